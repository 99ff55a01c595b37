/* Reading: views, and batches of messages from files or from the tail.
 *
 * Invariant: the contents of a view do not change: segments before table_to, the copy of the active
 * one, its index, and pieces of the tail with references of their own. */
#include "alloc.h"
#include "bits.h"
#include "check.h"
#include "error.h"
#include "stream_internal.h"

#include <string.h>

/* ---- views ---- */

static qs_status take_tail(struct qsi_stream_view *view, const struct qsi_stream *stream,
                           uint64_t from, uint32_t rows_max, uint64_t bytes_max)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_buf pieces = {0};
    uint32_t first = qsi_stream_find_run(stream, from), rows = 0;
    uint64_t bytes = 0;
    qs_status status = QS_OK;

    for (uint32_t i = first; i < stream->run_count && rows < rows_max && bytes < bytes_max; i++) {
        const struct qsi_stream_run *run = qsi_stream_run_at(stream, i);
        uint32_t at = from > run->run->first_seq ? (uint32_t)(from - run->run->first_seq) : 0;
        uint32_t count = run->run->count - at;
        struct qsi_stream_tail piece;
        count = count < rows_max - rows ? count : rows_max - rows;
        status = qsi_stream_tail_take(&piece, run, at, count);
        if (status == QS_OK) {
            status = qsi_buf_append(&pieces, &piece, sizeof piece);
            if (status != QS_OK) {
                qsi_stream_tail_fini(&piece);
            }
        }
        if (status != QS_OK) {
            break;
        }
        rows += count;
        bytes += run->run->ram_bytes;
    }
    view->tail = (struct qsi_stream_tail *)(void *)pieces.data;
    view->tail_count = (uint32_t)(pieces.bytes / sizeof *view->tail);
    return status;
}

static void count_tail_refs(const struct qsi_stream_view *view, bool adds)
    QSI_REQUIRES(qsi_store_mutex)
{
    for (uint32_t i = 0; i < view->tail_count && view->shared->messages != NULL; i++) {
        const struct qsi_stream_tail *tail = &view->tail[i];
        if (tail->has_stored) {
            qsi_stream_count_refs(view->shared->messages, &tail->messages, 0, tail->count, true,
                                  adds);
        }
    }
}

static void free_view(struct qsi_stream_view *view)
{
    for (uint32_t i = 0; i < view->tail_count; i++) {
        qsi_stream_tail_fini(&view->tail[i]);
    }
    qsi_free(view->tail);
    qsi_stream_table_unref(view->table);
    qsi_block_index_unref(view->active_index);
    memset(view, 0, sizeof *view);
}

/* Whether the runs have the messages at or after from, as far as there are any.  Between the first
 * run and the end they lack none. */
static bool tail_has(const struct qsi_stream *stream, uint64_t from) QSI_REQUIRES(qsi_store_mutex)
{
    return from >= stream->container.flushed_seq ||
           (stream->run_count > 0 && from >= qsi_stream_run_at(stream, 0)->run->first_seq);
}

qs_status qsi_stream_view_take(struct qsi_stream_view *view_out, struct qsi_stream *stream,
                               uint64_t from, uint32_t rows_max, uint64_t bytes_max)
{
    qs_status status = QS_OK;

    *view_out = (struct qsi_stream_view){
        .shared = stream->shared,
        .id = stream->container.id,
        .first = stream->first,
        .next = stream->container.next_seq,
        .files_end = stream->container.flushed_seq,
        .table = qsi_stream_table_ref(stream->table),
        .table_from = stream->table_first,
        .table_to = qsi_stream_table_count(stream),
        .active = stream->active,
        .active_index =
            stream->active_index != NULL ? qsi_block_index_ref(stream->active_index) : NULL,
    };
    from = from < stream->first ? stream->first : from;
    if (tail_has(stream, from)) {
        status = take_tail(view_out, stream, from, rows_max, bytes_max);
    }
    if (status != QS_OK) {
        free_view(view_out);
        return status;
    }
    count_tail_refs(view_out, true);
    return QS_OK;
}

void qsi_stream_view_fini(struct qsi_stream_view *view)
{
    count_tail_refs(view, false);
    free_view(view);
}

static uint32_t segment_count(const struct qsi_stream_view *view)
{
    return view->table_to - view->table_from + (view->active.block_count > 0 ? 1 : 0);
}

static const struct qsi_stream_segment *segment_at(const struct qsi_stream_view *view, uint32_t i)
{
    return i < view->table_to - view->table_from ? &view->table->segments[view->table_from + i]
                                                 : &view->active;
}

/* The first segment that ends after offset. */
static uint32_t find_segment(const struct qsi_stream_view *view, uint64_t offset)
{
    uint32_t low = 0, high = segment_count(view);

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (segment_at(view, middle)->next <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The first segment that has a message at or after time_us. */
static uint32_t find_segment_at(const struct qsi_stream_view *view, uint64_t time_us)
{
    uint32_t low = 0, high = segment_count(view);

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (segment_at(view, middle)->last_time_us < time_us) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The caller's reference. */
static qs_status read_index(const struct qsi_stream_view *view, uint32_t segment,
                            struct qsi_block_index **index_out, qs_error *error)
{
    const struct qsi_stream_segment *at = segment_at(view, segment);
    struct qsi_block_file file = qsi_stream_file(view->id, at);

    if (at == &view->active && view->active_index != NULL) {
        *index_out = qsi_block_index_ref(view->active_index);
        return QS_OK;
    }
    return qsi_block_cache_read_index(view->shared->cache, &file, index_out, error);
}

/* ---- batches ---- */

void qsi_stream_batch_fini(struct qsi_stream_batch *batch)
{
    qsi_block_view_fini(&batch->block);
    qsi_free(batch->wanted);
    memset(batch, 0, sizeof *batch);
}

const uint8_t *qsi_stream_batch_record(const struct qsi_stream_batch *batch, uint32_t i,
                                       uint32_t *record_row_out)
{
    QS_DCHECK(i < batch->count);
    if (batch->tail != NULL) {
        return qsi_messages_ref_record(&batch->tail->messages, batch->row + i, record_row_out);
    }
    *record_row_out = batch->row + i;
    return batch->block.messages.record;
}

void qsi_stream_batch_times(const struct qsi_stream_batch *batch, uint32_t from, uint32_t count,
                            int64_t *times_out)
{
    QS_ASSERT(from <= batch->count && count <= batch->count - from);
    if (batch->tail == NULL) {
        qsi_block_view_times(&batch->block, batch->row + from, count, times_out);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        times_out[i] = (int64_t)qsi_stream_tail_time(batch->tail, batch->row + from + i);
    }
}

/* ---- reading blocks ---- */

/* A bitmap of the wanted routes; *any_out: there are some. */
static qs_status filter_routes(const struct qsi_messages *messages, qsi_stream_filter *filter,
                               void *context, uint64_t **wanted_out, bool *any_out)
{
    uint64_t *wanted =
        qsi_zalloc((messages->route_count + QSI_WORD_BITS - 1) / QSI_WORD_BITS * sizeof *wanted);

    *wanted_out = wanted;
    *any_out = false;
    if (wanted == NULL) {
        return QS_ENOMEM;
    }
    for (uint32_t route = 0; route < messages->route_count; route++) {
        struct qsi_route_view view = qsi_messages_route(messages, route);
        if (filter(context, view.exchange, view.key)) {
            wanted[route / QSI_WORD_BITS] |= UINT64_C(1) << route % QSI_WORD_BITS;
            *any_out = true;
        }
    }
    return QS_OK;
}

/* Whether the block has a wanted route: only its dictionary is read. */
static qs_status look_at_block(const struct qsi_stream_view *view,
                               const struct qsi_block_file *file,
                               const struct qsi_block_entry *entry, qsi_stream_filter *filter,
                               void *context, struct qsi_stream_batch *batch, bool *any_out,
                               qs_error *error)
{
    struct qsi_block_dictionary dictionary;
    qs_status status;

    *any_out = true;
    if (filter == NULL) {
        return QS_OK;
    }
    QS_TRY(qsi_block_cache_read_dictionary(view->shared->cache, file, entry, &dictionary, error));
    status = filter_routes(&dictionary.messages, filter, context, &batch->wanted, any_out);
    qsi_block_dictionary_fini(&dictionary);
    if (status != QS_OK) {
        return qsi_fail(error, status, "routes of a block");
    }
    if (!*any_out) {
        qsi_free(batch->wanted);
        batch->wanted = NULL;
    }
    return QS_OK;
}

/* The rows of the block at or after offset, and below files_end. */
static qs_status read_block(const struct qsi_stream_view *view, const struct qsi_block_file *file,
                            const struct qsi_block_entry *entry, uint64_t offset,
                            struct qsi_stream_batch *batch, qs_error *error)
{
    QS_TRY(qsi_block_cache_read(view->shared->cache, file, entry, &batch->block, error));
    batch->row = offset > entry->first_offset ? (uint32_t)(offset - entry->first_offset) : 0;
    batch->first_offset = entry->first_offset + batch->row;
    batch->count = entry->rows - batch->row;
    return QS_OK;
}

/* QS_EEMPTY: the segment has no wanted messages; *offset_io is after it. */
static qs_status read_segment(const struct qsi_stream_view *view, uint32_t segment,
                              uint64_t *offset_io, qsi_stream_filter *filter, void *context,
                              struct qsi_stream_batch *batch, qs_error *error)
{
    struct qsi_block_file file = qsi_stream_file(view->id, segment_at(view, segment));
    struct qsi_block_index *index;
    qs_status status = read_index(view, segment, &index, error);
    bool any = false;

    if (status != QS_OK) {
        *offset_io = segment_at(view, segment)->next;
        return status;
    }
    for (uint32_t i = qsi_block_entries_find(index->entries, file.block_count, *offset_io);
         status == QS_OK && !any && i < file.block_count; i++) {
        const struct qsi_block_entry *entry = &index->entries[i];
        status = look_at_block(view, &file, entry, filter, context, batch, &any, error);
        if (status == QS_OK && any) {
            status = read_block(view, &file, entry, *offset_io, batch, error);
        }
        if (status != QS_OK || !any) {
            *offset_io = entry->first_offset + entry->rows;
        }
    }
    qsi_block_index_unref(index);
    if (status == QS_OK && !any) {
        *offset_io = segment_at(view, segment)->next;
        return QS_EEMPTY;
    }
    return status;
}

static qs_status read_tail(const struct qsi_stream_view *view, uint64_t offset,
                           struct qsi_stream_batch *batch)
{
    for (uint32_t i = 0; i < view->tail_count; i++) {
        const struct qsi_stream_tail *tail = &view->tail[i];
        if (tail->first_offset + tail->count > offset) {
            batch->tail = tail;
            batch->row = offset > tail->first_offset ? (uint32_t)(offset - tail->first_offset) : 0;
            batch->first_offset = tail->first_offset + batch->row;
            batch->count = tail->count - batch->row;
            return QS_OK;
        }
    }
    batch->first_offset = offset;
    return QS_EEMPTY;
}

qs_status qsi_stream_read(const struct qsi_stream_view *view, uint64_t offset,
                          qsi_stream_filter *filter, void *context,
                          struct qsi_stream_batch *batch_out, qs_error *error)
{
    uint32_t count = segment_count(view);

    memset(batch_out, 0, sizeof *batch_out);
    offset = offset < view->first ? view->first : offset;
    if (view->tail_count > 0 && offset >= view->tail[0].first_offset) {
        return read_tail(view, offset, batch_out);
    }
    for (uint32_t i = find_segment(view, offset); i < count; i++) {
        qs_status status = read_segment(view, i, &offset, filter, context, batch_out, error);
        if (status == QS_OK) {
            return QS_OK;
        }
        if (status != QS_EEMPTY) {
            qsi_stream_batch_fini(batch_out);
            batch_out->first_offset = offset;
            return status;
        }
    }
    offset = offset < view->files_end ? view->files_end : offset;
    return read_tail(view, offset, batch_out);
}

/* ---- by time, and by block ---- */

/* The first message of the tail at or after time_us: there is one. */
static uint64_t find_in_runs(const struct qsi_stream *stream, uint64_t time_us)
    QSI_REQUIRES(qsi_store_mutex)
{
    for (uint32_t i = 0; i < stream->run_count; i++) {
        const struct qsi_stream_run *run = qsi_stream_run_at(stream, i);
        struct qsi_stream_tail tail = {.messages = run->run->messages, .floor_us = run->floor_us};
        uint32_t low = 0, high = run->run->count;
        if (qsi_stream_tail_time(&tail, high - 1) < time_us) {
            continue;
        }
        while (low < high) {
            uint32_t middle = low + (high - low) / 2;
            if (qsi_stream_tail_time(&tail, middle) < time_us) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return run->run->first_seq + low;
    }
    return stream->container.next_seq;
}

qs_status qsi_stream_seek_begin(struct qsi_stream_seek *seek, struct qsi_stream *stream,
                                uint64_t time_us)
{
    *seek = (struct qsi_stream_seek){.time_us = time_us};
    QS_TRY(qsi_stream_view_take(&seek->view, stream, stream->container.next_seq, 0, 0));
    if (time_us > stream->flushed_time_us) { /* the files have none */
        seek->offset = find_in_runs(stream, time_us);
        if (seek->offset < stream->first) {
            seek->offset = stream->first;
        }
        seek->is_found = true;
    }
    return QS_OK;
}

/* In the block, or, if all its messages are earlier, the next one after it. */
static qs_status seek_block(struct qsi_stream_seek *seek, const struct qsi_block_file *file,
                            const struct qsi_block_index *index, uint32_t i, qs_error *error)
{
    const struct qsi_block_entry *entry = &index->entries[i];
    struct qsi_block_view block;
    uint32_t row;

    if (entry->first_time_us >= seek->time_us) {
        seek->offset = entry->first_offset;
        return QS_OK;
    }
    QS_TRY(qsi_block_cache_read(seek->view.shared->cache, file, entry, &block, error));
    row = qsi_block_view_row_at(&block, seek->time_us);
    seek->offset = row < entry->rows           ? entry->first_offset + row
                   : i + 1 < file->block_count ? entry[1].first_offset
                                               : entry->first_offset + entry->rows;
    qsi_block_view_fini(&block);
    return QS_OK;
}

qs_status qsi_stream_seek_run(struct qsi_stream_seek *seek, qs_error *error)
{
    struct qsi_stream_view *view = &seek->view;
    struct qsi_block_index *index;
    struct qsi_block_file file;
    uint32_t segment;
    qs_status status;

    if (seek->is_found) {
        return QS_OK;
    }
    segment = find_segment_at(view, seek->time_us);
    if (segment == segment_count(view)) {
        seek->offset = view->files_end;
    } else {
        file = qsi_stream_file(view->id, segment_at(view, segment));
        QS_TRY(read_index(view, segment, &index, error));
        status = seek_block(
            seek, &file, index,
            qsi_block_entries_find_time(index->entries, file.block_count, seek->time_us), error);
        qsi_block_index_unref(index);
        QS_TRY(status);
    }
    seek->offset = seek->offset < view->first ? view->first : seek->offset;
    seek->is_found = true;
    return QS_OK;
}

void qsi_stream_seek_end(struct qsi_stream_seek *seek)
{
    qsi_stream_view_fini(&seek->view);
}

qs_status qsi_stream_block_start(const struct qsi_stream_view *view, uint64_t offset,
                                 uint64_t *offset_out, qs_error *error)
{
    uint32_t segment = find_segment(view, offset), i;
    struct qsi_block_index *index;

    *offset_out = offset;
    for (uint32_t t = 0; t < view->tail_count; t++) {
        if (offset >= view->tail[t].first_offset &&
            offset - view->tail[t].first_offset < view->tail[t].count) {
            bool is_single = view->tail[t].messages.single_records; /* published alone */
            uint64_t begin = is_single ? offset : view->tail[t].run_offset;
            *offset_out = begin < view->first ? view->first : begin;
            return QS_OK;
        }
    }
    if (segment == segment_count(view)) {
        return QS_OK;
    }
    QS_TRY(read_index(view, segment, &index, error));
    i = qsi_block_entries_find(index->entries, segment_at(view, segment)->block_count, offset);
    if (i < segment_at(view, segment)->block_count && index->entries[i].first_offset <= offset) {
        *offset_out = index->entries[i].first_offset;
    }
    qsi_block_index_unref(index);
    *offset_out = *offset_out < view->first ? view->first : *offset_out;
    return QS_OK;
}
