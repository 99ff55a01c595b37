/* Flushing: messages get their slots in segment files.  Invariants: at begin a job copies or holds
 * everything of the queue that it needs; run looks at nothing else; end advances flushed_seq and
 * the file, whatever was settled in between. */
#include "alloc.h"
#include "check.h"
#include "envelope.h"
#include "error.h"
#include "paging.h"
#include "queue_delays.h"
#include "queue_internal.h"

#include <string.h>

static void free_flush(struct qsi_flush *flush)
{
    for (uint32_t i = 0; i < flush->run_count; i++) {
        qsi_chunk_unref(flush->runs[i].messages.chunk);
        qsi_free(flush->runs[i].messages.rows);
    }
    qsi_free(flush->runs);
    qsi_free(flush->live);
    qsi_free(flush->transient);
    qsi_free(flush->seen);
    qsi_free(flush->deliveries);
    qsi_free(flush->dues);
    flush->dues = NULL;
    flush->seen = NULL;
    flush->deliveries = NULL;
    flush->runs = NULL;
    flush->run_count = 0;
    flush->live = flush->transient = NULL;
}

/* The end of the flush: the segment's or the queue's end, or the first end of a run after
 * bytes_max.  Counts the runs. */
static uint64_t flush_limit(const struct qsi_queue *queue, uint64_t from_seq, uint64_t end_seq,
                            uint64_t bytes_max, uint32_t *run_count_out)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t bytes = 0;
    uint32_t count = 0;

    QS_DCHECK(from_seq < end_seq && end_seq <= queue->container.next_seq);
    for (uint32_t i = qsi_queue_find_run(queue, from_seq); i < queue->run_count; i++) {
        const struct qsi_run *run = qsi_queue_run_at(queue, i);
        uint64_t run_end = run->first_seq + run->count;
        if (run->first_seq >= end_seq) {
            break;
        }
        count += 1;
        bytes += run->ram_bytes;
        if (bytes >= bytes_max && run_end < end_seq) {
            end_seq = run_end;
            break;
        }
    }
    *run_count_out = count;
    return end_seq;
}

static qs_status copy_run(struct qsi_flush_run *copy, const struct qsi_run *run,
                          uint64_t segment_seq, uint64_t from_seq, uint64_t to_seq)
{
    uint64_t first = run->first_seq > from_seq ? run->first_seq : from_seq;
    uint64_t end = run->first_seq + run->count < to_seq ? run->first_seq + run->count : to_seq;

    QS_DCHECK(first < end && first >= segment_seq);
    QS_DCHECK(end <= run->first_seq + run->count);
    *copy = (struct qsi_flush_run){
        .messages = run->messages,
        .first = (uint32_t)(first - segment_seq),
        .count = (uint32_t)(end - first),
    };
    copy->messages.chunk = NULL;
    if (run->messages.rows == NULL) {
        copy->messages.first_row = (uint32_t)(first - run->first_seq);
    } else {
        copy->messages.rows = qsi_alloc(copy->count * sizeof *copy->messages.rows);
        if (copy->messages.rows == NULL) {
            return QS_ENOMEM;
        }
        memcpy(copy->messages.rows, run->messages.rows + (first - run->first_seq),
               copy->count * sizeof *copy->messages.rows);
    }
    copy->messages.chunk = qsi_chunk_ref(run->messages.chunk);
    return QS_OK;
}

/* Bitmaps end with the last flushed slot: a queue of few messages needs few words. */
static uint32_t flush_words(const struct qsi_flush *flush)
{
    return qsi_bitmap_words(flush->to);
}

static qs_status record_deliveries(struct qsi_flush *flush) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_segment *segment = flush->segment;
    uint32_t base = segment->word_base * QSI_WORD_BITS;
    uint32_t end = flush_words(flush) * QSI_WORD_BITS;
    uint32_t covered = base + segment->word_count * QSI_WORD_BITS;

    QS_DCHECK(flush->to > flush->from);
    if (segment->deliveries == NULL) {
        return QS_OK;
    }
    flush->deliveries = qsi_zalloc(end);
    if (flush->deliveries == NULL) {
        return QS_ENOMEM;
    }
    if (base < end) {
        memcpy(flush->deliveries + base, segment->deliveries,
               (covered < end ? covered : end) - base);
    }
    return QS_OK;
}

static qs_status record_live(struct qsi_flush *flush) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_queue *queue = flush->queue;
    const struct qsi_segment *segment = flush->segment;
    bool mixed = queue->container.durable && segment->transient != NULL;

    QS_DCHECK(segment->settled != NULL);
    flush->live = qsi_zalloc(flush_words(flush) * sizeof *flush->live);
    flush->seen = qsi_zalloc(flush_words(flush) * sizeof *flush->seen);
    if (mixed) {
        flush->transient = qsi_zalloc(flush_words(flush) * sizeof *flush->transient);
    }
    if (flush->live == NULL || flush->seen == NULL || (mixed && flush->transient == NULL)) {
        return QS_ENOMEM;
    }
    QS_TRY(record_deliveries(flush));
    if (segment->delayed_count > 0) {
        flush->dues = qsi_segment_copy_dues(segment, qsi_queue_words(queue));
        if (flush->dues == NULL) {
            return QS_ENOMEM;
        }
    }
    for (uint32_t word = flush->from / QSI_WORD_BITS; word < qsi_bitmap_words(flush->to); word++) {
        flush->live[word] = qsi_segment_live(queue, flush->segment, word) &
                            qsi_word_range(word, flush->from, flush->to);
        flush->message_count += qsi_popcount(flush->live[word]);
        if (flush->live[word] != 0) {
            flush->seen[word] = flush->live[word] & qsi_segment_seen_before(segment, word);
        }
        if (mixed) {
            flush->transient[word] =
                flush->live[word] & qsi_segment_transient(flush->segment, word);
        }
    }
    return QS_OK;
}

void qsi_flush_refresh(struct qsi_flush *flush)
{
    QS_DCHECK(flush->file.heap_end <= flush->segment->file.heap_end ||
              flush->file.generation != flush->segment->file.generation);
    flush->file = flush->segment->file;
    flush->transient_file = flush->segment->transient_file;
    flush->page_aligned = flush->segment->page_aligned;
}

/* Skips segments without live messages. */
static struct qsi_segment *segment_to_flush(const struct qsi_queue *queue, uint64_t *seq_io)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t entries = queue->shared->entries;

    uint32_t i = qsi_queue_segment_index(queue, *seq_io / entries);

    for (; *seq_io < queue->container.next_seq && i < queue->segment_count; i++) {
        struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        uint64_t first_seq = qsi_segment_first_seq(queue->shared, segment);
        if (first_seq >= queue->container.next_seq) {
            break;
        }
        if (qsi_segment_live_count(segment) > 0) {
            *seq_io = first_seq > *seq_io ? first_seq : *seq_io;
            return segment;
        }
    }
    *seq_io = queue->container.next_seq;
    return NULL;
}

qs_status qsi_flush_begin(struct qsi_flush *flush, struct qsi_queue *queue, uint64_t from_seq,
                          uint64_t bytes_max)
{
    uint32_t entries = queue->shared->entries;
    uint32_t run_count = 0, first_run;
    uint64_t segment_seq;
    qs_status status;
    bool first;

    QS_DCHECK(from_seq >= queue->container.flushed_seq && from_seq <= queue->container.next_seq);
    memset(flush, 0, sizeof *flush);
    first = from_seq == queue->container.flushed_seq;
    flush->segment = segment_to_flush(queue, &from_seq);
    queue->container.flushed_seq =
        first ? from_seq : queue->container.flushed_seq; /* nothing between is live */
    if (flush->segment == NULL) {
        return QS_EEMPTY;
    }
    flush->queue = queue;
    segment_seq = qsi_segment_first_seq(queue->shared, flush->segment);
    flush->end_seq = segment_seq + entries < queue->container.next_seq ? segment_seq + entries
                                                                       : queue->container.next_seq;
    flush->end_seq = flush_limit(queue, from_seq, flush->end_seq, bytes_max, &run_count);
    flush->first_seq = segment_seq;
    flush->from = (uint32_t)(from_seq - segment_seq);
    flush->to = (uint32_t)(flush->end_seq - segment_seq);
    qsi_flush_refresh(flush);
    flush->runs = qsi_zalloc((run_count + 1) * sizeof *flush->runs);
    status = flush->runs != NULL ? record_live(flush) : QS_ENOMEM;
    first_run = qsi_queue_find_run(queue, from_seq);
    for (uint32_t i = 0; status == QS_OK && i < run_count; i++) {
        status = copy_run(&flush->runs[i], qsi_queue_run_at(queue, first_run + i), segment_seq,
                          from_seq, flush->end_seq);
        flush->run_count += status == QS_OK ? 1 : 0;
    }
    if (status != QS_OK) {
        free_flush(flush);
        return status;
    }
    QS_DCHECK(flush->from < flush->to && flush->to <= entries);
    QS_DCHECK(queue->container.flushed_seq <= from_seq && flush->end_seq > from_seq);
    flush->segment->busy += 1;
    return QS_OK;
}

/* ---- writing ---- */

/* The current record and its envelope, which often serves all its rows. */
struct flushing {
    struct qsi_flush *flush;
    struct qsi_segment_writer *writer;
    struct qsi_segment_writer *transient_writer;
    const uint8_t *record;
    struct qsi_messages view;
    uint8_t *envelope;
    uint32_t envelope_bytes, envelope_capacity;
    uint32_t envelope_route; /* it was made for; the properties are the record's */
};

static qs_status make_envelope(struct flushing *flushing, uint32_t row, qs_error *error)
{
    const struct qsi_messages *view = &flushing->view;
    uint32_t code = qsi_messages_row_route(view, row);
    struct qsi_route_view route;
    struct qsi_slice properties;

    if ((view->flags & QSI_MESSAGES_PROPERTIES_PER_ROW) == 0 && flushing->envelope_route == code) {
        return QS_OK;
    }
    route = qsi_messages_route(view, code);
    properties = qsi_messages_properties(view, row);
    flushing->envelope_bytes = qsi_envelope_bytes(route.exchange, route.key, properties);
    if (flushing->envelope_bytes > flushing->envelope_capacity) {
        qsi_free(flushing->envelope);
        flushing->envelope_capacity = 0;
        flushing->envelope = qsi_alloc(2 * (size_t)flushing->envelope_bytes);
        if (flushing->envelope == NULL) {
            return qsi_fail(error, QS_ENOMEM, "envelope");
        }
        flushing->envelope_capacity = 2 * flushing->envelope_bytes;
    }
    qsi_envelope_encode(flushing->envelope, route.exchange, route.key, properties);
    flushing->envelope_route =
        (view->flags & QSI_MESSAGES_PROPERTIES_PER_ROW) == 0 ? code : UINT32_MAX;
    return QS_OK;
}

static qs_status put_message(struct flushing *flushing, const uint8_t *record, uint32_t row,
                             uint32_t slot, qs_error *error)
{
    struct qsi_flush *flush = flushing->flush;
    struct qsi_segment_writer *writer =
        flush->transient != NULL && qsi_bitmap_has(flush->transient, slot)
            ? flushing->transient_writer
            : flushing->writer;
    struct qsi_body body;

    QS_DCHECK(qsi_bitmap_has(flush->live, slot));
    QS_DCHECK(writer != NULL);
    if (flushing->record != record) {
        qsi_messages_view(&flushing->view, record);
        flushing->record = record;
        flushing->envelope_route = UINT32_MAX;
    }
    qsi_messages_read_body(&flushing->view, row, &body);
    switch (body.kind) {
    case QSI_BODY_STORED:
        return qsi_segment_put_stored(writer, slot, &body.ref, error);
    case QSI_BODY_DAMAGED:
        return qsi_segment_fail_message(error, &body.damage);
    case QSI_BODY_EMBEDDED:
        break;
    }
    QS_TRY(make_envelope(flushing, row, error));
    return qsi_segment_put_embedded(writer, slot,
                                    qsi_slice_make(flushing->envelope, flushing->envelope_bytes),
                                    body.bytes, error);
}

static qs_status put_run(struct flushing *flushing, const struct qsi_flush_run *run,
                         qs_error *error)
{
    const uint64_t *live = flushing->flush->live;

    QS_DCHECK(run->first >= flushing->flush->from);
    QS_DCHECK(run->first + run->count <= flushing->flush->to);
    for (uint32_t i = 0; i < run->count; i++) {
        uint32_t row, slot = run->first + i;
        const uint8_t *record;
        if (!qsi_bitmap_has(live, slot)) {
            continue;
        }
        record = qsi_messages_ref_record(&run->messages, i, &row);
        QS_TRY(put_message(flushing, record, row, slot, error));
    }
    return QS_OK;
}

static bool any_bit(const uint64_t *bits, uint32_t words)
{
    for (uint32_t i = 0; i < words; i++) {
        if (bits[i] != 0) {
            return true;
        }
    }
    return false;
}

static bool wants_writer(const struct qsi_flush *flush, bool transient)
{
    uint32_t words = flush_words(flush);

    if (flush->transient == NULL) {
        return !transient;
    }
    if (transient) {
        return any_bit(flush->transient, words);
    }
    for (uint32_t i = 0; i < words; i++) {
        if ((flush->live[i] & ~flush->transient[i]) != 0) {
            return true;
        }
    }
    return false;
}

static qs_status begin_writer(struct qsi_segment_writer **writer_out, struct qsi_index *index,
                              struct qsi_segment_file *file, bool page_aligned,
                              bool *cannot_read_out, qs_error *error)
{
    bool is_there = file->heap_end > 0;
    qs_status status = qsi_segment_writer_begin(writer_out, index, file, page_aligned, error);

    *cannot_read_out = is_there && qsi_is_damage(status);
    return status;
}

static qs_status begin_writers(struct flushing *flushing, struct qsi_index *index,
                               struct qsi_index *transient_index, qs_error *error)
{
    struct qsi_flush *flush = flushing->flush;

    if (wants_writer(flush, false)) {
        QS_TRY(begin_writer(&flushing->writer, index, &flush->file, flush->page_aligned,
                            &flush->cannot_read, error));
    }
    return wants_writer(flush, true)
               ? begin_writer(&flushing->transient_writer, transient_index, &flush->transient_file,
                              false, &flush->cannot_read_transient, error)
               : QS_OK;
}

static qs_status end_writer(struct qsi_segment_writer **writer, qs_status status, qs_error *error)
{
    struct qsi_segment_writer *ended = *writer;

    *writer = NULL;
    if (ended == NULL) {
        return status;
    }
    if (status != QS_OK) {
        qsi_segment_writer_abandon(ended);
        return status;
    }
    return qsi_segment_writer_end(ended, error);
}

qs_status qsi_flush_run(struct qsi_flush *flush, struct qsi_index *index,
                        struct qsi_index *transient_index, qs_error *error)
{
    struct flushing flushing = {.flush = flush, .envelope_route = UINT32_MAX};
    qs_status status;

    if (flush->message_count == 0) {
        return QS_OK;
    }
    status = begin_writers(&flushing, index, transient_index, error);
    for (uint32_t i = 0; status == QS_OK && i < flush->run_count; i++) {
        status = put_run(&flushing, &flush->runs[i], error);
    }
    status = end_writer(&flushing.writer, status, error);
    status = end_writer(&flushing.transient_writer, status, error);
    qsi_free(flushing.envelope);
    return status;
}

qs_status qsi_flush_leave_file(struct qsi_flush *flush)
{
    bool of_transients = flush->cannot_read_transient;

    QS_DCHECK(flush->segment->busy > 0);
    if (!flush->cannot_read && !of_transients) {
        return QS_ECORRUPT;
    }
    flush->cannot_read = flush->cannot_read_transient = false;
    QS_TRY(qsi_segment_leave_file(flush->segment, of_transients, flush->from));
    qsi_flush_refresh(flush);
    return QS_OK;
}

void qsi_flush_detach(struct qsi_flush *flush)
{
    QS_DCHECK(flush->segment->busy > 0);
    flush->segment->busy -= 1;
    flush->segment = NULL;
}

void qsi_flush_end(struct qsi_flush *flush, bool done)
{
    struct qsi_queue *queue = flush->queue;
    struct qsi_segment *segment = flush->segment;

    QS_DCHECK(segment == NULL || segment->queue == queue); /* NULL: it was detached */
    QS_DCHECK(flush->end_seq <= queue->container.next_seq);
    if (segment == NULL) { /* encoded: what is carried is not flushed */
        free_flush(flush);
        return;
    }
    QS_DCHECK(segment->busy > 0);
    segment->busy -= 1;
    if (done) {
        queue->shared->flushed_bytes +=
            flush->file.heap_end > segment->file.heap_end && segment->file.heap_end > 0
                ? flush->file.heap_end - segment->file.heap_end
                : 0;
        if (flush->message_count > 0 && wants_writer(flush, false)) {
            segment->file_dirty = !flush->is_named; /* slots, even without new bodies */
            segment->content_dirty = segment->file_dirty;
        }
        if (flush->file.heap_end != segment->file.heap_end) {
            segment->page_aligned = flush->is_named;
        }
        /* Other jobs write the state, and may have done so meanwhile. */
        flush->file.state_area = segment->file.state_area;
        flush->file.state_crc = segment->file.state_crc;
        segment->file = flush->file;
        segment->transient_file = flush->transient_file;
        if (queue->container.flushed_seq < flush->end_seq) {
            queue->container.flushed_seq = flush->end_seq;
        }
    }
    free_flush(flush);
    qsi_segment_retire_if_done(queue, segment);
}
