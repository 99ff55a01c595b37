/* A stream in a checkpoint: its segments, and the messages that are in no segment.
 *
 * Invariants: the state is of one moment: messages below flushed are in the files that it names,
 * those from there on are carried; named bytes are never written again, because the next block
 * begins on a page of its own. */
#include "alloc.h"
#include "check.h"
#include "error.h"
#include "stream_internal.h"
#include "stream_record.h"

#define FLUSH_ALL UINT64_MAX

struct stream_snapshot {
    struct qsi_snapshot snapshot;
    /* as the files are: */
    struct qsi_stream_table *table;
    uint32_t table_from, table_to;
    struct qsi_stream_segment active;
    uint64_t first, flushed, next, flushed_time_us;
    uint64_t named_bytes; /* of what came, all but the tail */
};

static struct stream_snapshot *self_of(struct qsi_snapshot *snapshot)
{
    return (struct stream_snapshot *)(void *)snapshot;
}

static struct qsi_stream *stream_of(const struct stream_snapshot *self)
{
    return qsi_stream_of(self->snapshot.container);
}

static uint32_t segment_count(const struct stream_snapshot *self)
{
    return self->table_to - self->table_from + (self->active.block_count > 0 ? 1 : 0);
}

static const struct qsi_stream_segment *segment_at(const struct stream_snapshot *self, uint32_t i)
{
    QS_DCHECK(i < segment_count(self));
    return i < self->table_to - self->table_from ? &self->table->segments[self->table_from + i]
                                                 : &self->active;
}

/* Notes the present contents of the files; nothing is added to their last pages any more. */
static void take_state(void *context) QSI_REQUIRES(qsi_store_mutex)
{
    struct stream_snapshot *self = context;
    struct qsi_stream *stream = stream_of(self);
    uint64_t tail = qsi_stream_unflushed_bytes(&stream_of(context)->container);

    qsi_stream_table_unref(self->table);
    self->table = qsi_stream_table_ref(stream->table);
    self->table_from = stream->table_first;
    self->table_to = qsi_stream_table_count(stream);
    self->active = stream->active;
    self->first = stream->first < stream->container.flushed_seq ? stream->first
                                                                : stream->container.flushed_seq;
    self->flushed = stream->container.flushed_seq;
    self->named_bytes = tail < stream->in_bytes ? stream->in_bytes - tail : 0;
    self->flushed_time_us = stream->flushed_time_us;
    QS_DCHECK(self->first <= self->flushed && self->table_from <= self->table_to);
    stream->page_aligned = true;
    /* The directory is synced, too: it has new names. */
    self->snapshot.file_count = segment_count(self) + 1;
}

/* ---- syncs ---- */

static bool is_synced(const struct qsi_stream *stream, const struct qsi_stream_segment *segment)
{
    return segment->next <= stream->synced_next &&
           (segment->first != stream->synced_segment || segment->end == stream->synced_end);
}

static qs_status sync_snapshot(struct qsi_snapshot *snapshot, uint32_t file, bool reaches_disk,
                               qs_error *error)
{
    const struct stream_snapshot *self = self_of(snapshot);
    const struct qsi_stream *stream = stream_of(self);
    struct qsi_block_dir *blocks = stream->shared->blocks;
    struct qsi_block_file named;

    QS_DCHECK(file < snapshot->file_count);
    if (file == segment_count(self)) {
        return reaches_disk && file > 0 ? qsi_block_dir_sync(blocks, error) : QS_OK;
    }
    if (is_synced(stream, segment_at(self, file))) {
        return QS_OK;
    }
    named = qsi_stream_file(stream->container.id, segment_at(self, file));
    return reaches_disk ? qsi_block_file_sync(blocks, &named, error)
                        : qsi_block_file_find(blocks, &named, error);
}

static bool written_path(const struct qsi_snapshot *snapshot,
                         char path_out[QSI_CONTAINER_PATH_BYTES])
{
    const struct stream_snapshot *self = (const struct stream_snapshot *)(const void *)snapshot;
    const struct qsi_stream *stream = stream_of(self);

    _Static_assert(QSI_BLOCK_PATH_BYTES <= QSI_CONTAINER_PATH_BYTES, "a path fits");
    for (uint32_t i = 0; i < segment_count(self); i++) {
        if (!is_synced(stream, segment_at(self, i))) {
            struct qsi_block_file file = qsi_stream_file(stream->container.id, segment_at(self, i));
            qsi_block_file_path(path_out, stream->shared->blocks, &file);
            return true;
        }
    }
    return false;
}

/* ---- the record ---- */

static qs_status encode(const struct qsi_snapshot *snapshot, struct qsi_buf *out,
                        uint32_t *record_count_io)
{
    const struct stream_snapshot *self = (const struct stream_snapshot *)(const void *)snapshot;
    uint32_t count = segment_count(self);
    struct qsi_stream_state state = {
        .stream_id = self->snapshot.container->id,
        .first = self->first,
        .flushed = self->flushed,
        .next = self->next,
        .last_time_us = self->flushed_time_us,
        .segment_count = count,
    };
    uint8_t *record;

    if (qsi_stream_state_bytes(count) > UINT32_MAX) {
        return QS_ENOMEM;
    }
    QS_TRY(qsi_buf_reserve(out, qsi_stream_state_bytes(count), &record));
    qsi_stream_state_encode(record, &state);
    for (uint32_t i = 0; i < count; i++) {
        const struct qsi_stream_state_segment segment =
            qsi_stream_segment_to_state(segment_at(self, i));
        qsi_stream_state_put_segment(record, i, &segment);
    }
    out->bytes += qsi_stream_state_bytes(count);
    *record_count_io += 1;
    return QS_OK;
}

/* ---- begin and end ---- */

static void end(struct qsi_snapshot *snapshot, bool counts) QSI_REQUIRES(qsi_store_mutex)
{
    struct stream_snapshot *self = self_of(snapshot);
    struct qsi_stream *stream = stream_of(self);

    if (counts) {
        stream->synced_next = self->flushed;
        stream->synced_segment = self->active.block_count > 0 ? self->active.first : UINT64_MAX;
        stream->synced_end = self->active.end;
        qsi_stream_record_named(stream, self->flushed, self->named_bytes, &self->active);
    }
    qsi_stream_table_unref(self->table);
    qsi_buf_fini(&snapshot->jobs[QSI_SNAPSHOT_FLUSHES]);
    qsi_buf_fini(&snapshot->jobs[QSI_SNAPSHOT_OTHERS]);
    qsi_free(self);
}

static const struct qsi_snapshot_kind snapshot_kind = {
    .sync = sync_snapshot, .written_path = written_path, .encode = encode, .end = end};

static qs_status begin_job(struct stream_snapshot *self, struct qsi_carried *carried)
    QSI_REQUIRES(qsi_store_mutex)
{
    enum qsi_snapshot_step step = carried != NULL ? QSI_SNAPSHOT_OTHERS : QSI_SNAPSHOT_FLUSHES;
    struct qsi_stream_flush_job *job;
    qs_status status;

    QS_TRY(qsi_snapshot_reserve_job(&self->snapshot, step));
    status = qsi_stream_flush_job_begin(stream_of(self), FLUSH_ALL, carried, &job);
    if (status == QS_EEMPTY) {
        return QS_OK;
    }
    QS_TRY(status);
    qsi_snapshot_add_job(&self->snapshot, step, qsi_stream_flush_job(job));
    if (carried == NULL) {
        qsi_stream_flush_report(job, take_state, self);
    }
    return QS_OK;
}

qs_status qsi_stream_snapshot(struct qsi_container *container, struct qsi_carried *carried,
                              struct qsi_snapshot **snapshot_out)
{
    struct qsi_stream *stream = qsi_stream_of(container);
    uint64_t bytes = qsi_container_unflushed_bytes(container);
    struct stream_snapshot *self = qsi_zalloc(sizeof *self);
    bool is_carried;
    qs_status status;

    if (self == NULL) {
        return QS_ENOMEM;
    }
    is_carried = qsi_carried_take_room(carried, bytes);
    if (!is_carried && qsi_stream_has_stored_tail(stream)) {
        carried->bytes += bytes;
        is_carried = true;
    }
    qsi_stream_drop_stored(stream);
    self->snapshot.kind = &snapshot_kind;
    self->snapshot.container = container;
    self->next = container->next_seq;
    *snapshot_out = &self->snapshot;
    status = begin_job(self, is_carried ? carried : NULL);
    take_state(self); /* a flush does it once more, when it ends */
    return status;
}

/* ---- restore ---- */

static qs_status restore_segments(struct qsi_stream *stream, const struct qsi_stream_state *state,
                                  qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    stream->table = qsi_stream_table_create(state->segment_count + 1);
    if (stream->table == NULL) {
        return qsi_fail(error, QS_ENOMEM, "segments of a stream");
    }
    for (uint32_t i = 0; i < state->segment_count; i++) {
        struct qsi_stream_state_segment from;
        struct qsi_stream_segment segment;
        qsi_stream_state_segment(state, i, &from);
        segment = qsi_stream_segment_of_state(&from);
        if (i + 1 == state->segment_count && !from.sealed) {
            stream->active = segment;
        } else {
            stream->table->segments[stream->table->count++] = segment;
            stream->earlier_bytes += segment.end;
        }
    }
    return QS_OK;
}

qs_status qsi_stream_restore(struct qsi_container *container, const uint8_t *record,
                             uint64_t *next_seq_io, qs_error *error)
{
    struct qsi_stream *stream = qsi_stream_of(container);
    struct qsi_stream_state state;

    QS_TRY(qsi_stream_state_decode(&state, record, error));
    if (state.stream_id != container->id || container->next_seq != 0 || stream->table != NULL) {
        return qsi_fail(error, QS_ECORRUPT, "state of a stream: there is one already");
    }
    QS_TRY(restore_segments(stream, &state, error));
    container->next_seq = container->flushed_seq = state.flushed;
    stream->first = state.first;
    stream->last_time_us = stream->flushed_time_us = state.last_time_us;
    stream->synced_next = state.flushed;
    stream->synced_segment = stream->active.block_count > 0 ? stream->active.first : UINT64_MAX;
    stream->synced_end = stream->active.end;
    qsi_stream_record_named(stream, state.flushed, stream->in_bytes, &stream->active);
    stream->page_aligned = true;
    if (state.next > *next_seq_io) {
        *next_seq_io = state.next;
    }
    return QS_OK;
}
