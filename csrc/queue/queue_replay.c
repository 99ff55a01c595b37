/* Recovery: segments that a checkpoint names, and later settles of the journal.  Invariants: a
 * restored segment has a count and a file, but no state until it is loaded; the replay has loaded
 * the state of each segment that a settle divides or requeues; no message is out. */
#include "queue_replay.h"

#include "check.h"
#include "error.h"
#include "queue_delays.h"
#include "queue_internal.h"
#include "queue_publish.h"
#include "queue_records.h"
#include "record.h"

qs_status qsi_queue_restore(struct qsi_queue *queue, const struct qsi_restored_segment *restored)
{
    struct qsi_segment *segment;

    QS_DCHECK(restored->file->heap_end > 0);
    QS_DCHECK(restored->ready_count + restored->delayed_count > 0);
    QS_TRY(qsi_queue_append_segment(queue, restored->file->number, &segment));
    segment->file = *restored->file;
    QS_DCHECK(segment->settled == NULL && segment->busy == 0);
    segment->durable_area = restored->file->state_area;
    segment->named = true;
    segment->page_aligned = true;
    segment->ready_count = restored->ready_count;
    segment->delayed_count = restored->delayed_count;
    segment->seen_end = restored->seen_end;
    segment->has_stored = restored->has_stored;
    segment->earliest = restored->has_expiries ? 0 : QSI_NEVER;
    segment->earliest_due = restored->delayed_count > 0 ? restored->earliest_due : QSI_NEVER;
    qsi_queue_update_earliest(queue, segment->earliest);
    qsi_queue_update_earliest(queue, segment->earliest_due);
    qsi_queue_more_ready(queue, segment->ready_count);
    queue->delayed_count += segment->delayed_count;
    return QS_OK;
}

static qs_status fail_segment(const char *what, uint64_t number, qs_error *error)
{
    return qsi_fail(error, QS_ECORRUPT, "segment %llu: %s", (unsigned long long)number, what);
}

static qs_status restore_segments(struct qsi_queue *queue, const struct qsi_queue_state *state,
                                  const uint8_t *record, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t entries = queue->shared->entries;
    uint64_t next_number = 0;

    QS_DCHECK(queue->segment_count == 0);
    for (uint32_t i = 0; i < state->segment_count; i++) {
        struct qsi_segment_entry entry;
        qsi_segment_entry_decode(&entry, record, i);
        if (entry.file.number < next_number || entry.file.number > UINT64_MAX / 2 / entries ||
            entry.file.number * entries >= state->base_seq) {
            return fail_segment("out of order", entry.file.number, error);
        }
        if (entry.live_count == 0 || entry.live_count > entries || entry.seen_end > entries ||
            entry.delayed_count > entry.live_count || entry.file.heap_end == 0 ||
            entry.file.state_area > 2 || entry.given_end >= entries) {
            return fail_segment("impossible counts", entry.file.number, error);
        }
        next_number = entry.file.number + 1;
        if (qsi_queue_restore(queue, &(struct qsi_restored_segment){
                                         .file = &entry.file,
                                         .ready_count = entry.live_count - entry.delayed_count,
                                         .delayed_count = entry.delayed_count,
                                         .earliest_due = entry.earliest_due,
                                         .seen_end = entry.seen_end,
                                         .has_stored = entry.has_stored,
                                         .has_expiries = entry.has_expiries,
                                     }) != QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "segments of a queue");
        }
        qsi_queue_segment_at(queue, i)->given_end = entry.given_end;
    }
    return QS_OK;
}

static qs_status restore_state(struct qsi_queue *queue, const uint8_t *record,
                               uint64_t *next_seq_io, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_queue_state state;

    QS_TRY(qsi_queue_state_decode(&state, record, error));
    if (queue->container.next_seq != 0) {
        return qsi_fail(error, QS_ECORRUPT, "its state comes twice, or too late");
    }
    if (state.next_seq > UINT64_MAX / 4) {
        return qsi_fail(error, QS_ECORRUPT, "sequence %llu", (unsigned long long)state.next_seq);
    }
    QS_TRY(restore_segments(queue, &state, record, error));
    qsi_queue_start_at(&queue->container, state.base_seq);
    *next_seq_io = state.next_seq;
    return QS_OK;
}

static qs_status restore_former(struct qsi_queue *queue, const uint8_t *record, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_segment_file file;
    struct qsi_segment *segment;
    uint32_t end;

    QS_TRY(qsi_former_file_decode(&file, &end, record, error));
    segment = end <= queue->shared->entries ? qsi_queue_find_segment(queue, file.number) : NULL;
    if (segment == NULL) {
        return fail_segment("a former file of none that there is", file.number, error);
    }
    return qsi_segment_restore_former(segment, &file, end) == QS_OK
               ? QS_OK
               : qsi_fail(error, QS_ENOMEM, "segments of a queue");
}

qs_status qsi_queue_restore_record(struct qsi_container *container, const uint8_t *record,
                                   uint64_t *next_seq_io, qs_error *error)
{
    struct qsi_queue *queue = qsi_as_queue(container);

    return qsi_record_type(record) == QSI_RECORD_FORMER_FILE
               ? restore_former(queue, record, error)
               : restore_state(queue, record, next_seq_io, error);
}

bool qsi_queue_has_file(const struct qsi_queue *queue, const struct qsi_segment_file *file)
{
    const struct qsi_segment *segment = qsi_queue_find_segment(queue, file->number);

    for (uint32_t i = 0; segment != NULL && i < segment->former_count; i++) {
        if (segment->formers[i].file.generation == file->generation) {
            return true;
        }
    }
    return segment != NULL && segment->file.heap_end > 0 &&
           segment->file.generation == file->generation;
}

void qsi_queue_end_segment(struct qsi_queue *queue, struct qsi_segment *segment)
{
    uint32_t entries = queue->shared->entries;

    QS_DCHECK(queue->container.flushed_seq == queue->container.next_seq);
    QS_DCHECK(segment == qsi_queue_last_segment(queue));
    QS_ASSERT(segment->settled == NULL && segment->number == queue->container.next_seq / entries);
    segment->given_end = (uint32_t)(queue->container.next_seq & (entries - 1));
    segment->is_damaged = true;
    queue->container.next_seq = queue->container.flushed_seq = (segment->number + 1) * entries;
}

void qsi_queue_lose_segment(struct qsi_queue *queue, struct qsi_segment *segment)
{
    QS_DCHECK(segment->queue == queue && segment->settled == NULL);
    queue->retired_number = segment->number; /* later messages of it get another file */
    queue->retired_generation = segment->file.generation + 1;
    segment->file.heap_end = 0; /* so that it is not removed */
    qsi_segment_free_formers(segment);
    segment->has_stored = false;
    qsi_queue_settle_unloaded(queue, segment);
}

struct qsi_segment *qsi_queue_needs_state(const struct qsi_queue *queue,
                                          const struct qsi_settle *settle)
{
    uint64_t seq = settle->first_seq;
    uint64_t end = seq + settle->count;
    uint32_t entries = queue->shared->entries;

    for (uint32_t i = qsi_queue_segment_index(queue, seq / entries); i < queue->segment_count;
         i++) {
        struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        uint64_t first = qsi_segment_first_seq(queue->shared, segment);
        if (first >= end) {
            break;
        }
        if (segment->settled == NULL &&
            (settle->kind != QSI_SETTLE_ACK || first < seq || first + entries > end)) {
            return segment;
        }
    }
    return NULL;
}

/* One delivery more, or one less, or none, and perhaps a delay.  A message that was delayed before
 * had been delivered when this was written. */
static void replay_deliveries(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t from,
                              uint32_t to, const struct qsi_settle *settle)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(segment->settled != NULL && to <= queue->shared->entries);
    while (from < to) {
        uint32_t word = from / QSI_WORD_BITS;
        uint32_t end = (word + 1) * QSI_WORD_BITS < to ? (word + 1) * QSI_WORD_BITS : to;
        uint64_t range = qsi_low_bits(end - from) << (from % QSI_WORD_BITS);
        uint64_t mask;
        qsi_queue_undelay(queue, segment, word, qsi_segment_delayed(segment, word) & range);
        mask = qsi_segment_ready(queue, segment, word) & range;
        if (settle->kind == QSI_SETTLE_TAKE_BACK) {
            qsi_segment_uncount_deliveries(segment, word, mask);
        } else if (mask != 0 && settle->kind != QSI_SETTLE_DUE) {
            qsi_segment_count_deliveries(queue, segment, word, mask);
            segment->seen[word - segment->word_base] |= mask;
        }
        if (mask != 0) {
            qsi_segment_dirty_state(segment);
        }
        if (mask != 0 && qsi_settle_has_due(settle->kind)) {
            qsi_queue_delay(queue, segment, word, mask, settle->due_us);
        }
        from = end;
    }
}

/* Room for what the settle delays. */
static qs_status cover_delays(struct qsi_queue *queue, const struct qsi_settle *settle)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t entries = queue->shared->entries;
    uint64_t end = settle->first_seq + settle->count;

    for (uint32_t i = qsi_queue_segment_index(queue, settle->first_seq / entries);
         qsi_settle_has_due(settle->kind) && i < queue->segment_count; i++) {
        struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        if (qsi_segment_first_seq(queue->shared, segment) >= end) {
            break;
        }
        if (segment->settled != NULL) {
            QS_TRY(qsi_segment_cover_delays(queue, segment));
        }
    }
    return QS_OK;
}

qs_status qsi_queue_replay_settle(struct qsi_container *container, const struct qsi_settle *settle)
{
    struct qsi_queue *queue = qsi_as_queue(container);
    uint32_t entries = queue->shared->entries;
    uint64_t end = settle->first_seq + settle->count;
    uint32_t i = qsi_queue_segment_index(queue, settle->first_seq / entries);

    QS_DCHECK(queue->out_count == 0);
    QS_TRY(cover_delays(queue, settle));
    while (i < queue->segment_count) {
        struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        uint32_t before = queue->segment_count;
        uint64_t first = qsi_segment_first_seq(queue->shared, segment);
        uint32_t from = settle->first_seq > first ? (uint32_t)(settle->first_seq - first) : 0;
        uint32_t to;
        if (first >= end) {
            break;
        }
        to = end - first < entries ? (uint32_t)(end - first) : entries;
        if (segment->settled == NULL) { /* whole: the replay has loaded the others */
            QS_ASSERT(from == 0 && to == entries && settle->kind == QSI_SETTLE_ACK);
            qsi_queue_settle_unloaded(queue, segment);
        } else if (settle->kind != QSI_SETTLE_ACK) {
            replay_deliveries(queue, segment, from, to, settle);
        } else {
            qsi_queue_settle_waiting(queue, segment, from, to);
            qsi_segment_retire_if_done(queue, segment);
        }
        i += queue->segment_count == before ? 1 : 0;
    }
    return QS_OK;
}

/* ---- after a crash ---- */

static qs_status mark_segment(struct qsi_queue *queue, struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t base = segment->word_base * QSI_WORD_BITS;

    QS_DCHECK(segment->settled != NULL);
    if (queue->counts_deliveries) {
        QS_TRY(qsi_segment_keep_deliveries(queue, segment));
    }
    for (uint32_t at = 0; at < segment->word_count; at++) {
        segment->seen[at] |= qsi_segment_assigned(queue, segment, segment->word_base + at);
    }
    for (uint32_t slot = base;
         !queue->counts_deliveries && segment->deliveries != NULL && slot < segment->seen_end &&
         slot < base + segment->word_count * QSI_WORD_BITS;
         slot++) {
        uint8_t *deliveries = &segment->deliveries[slot - base];
        *deliveries = *deliveries > 0 ? *deliveries : 1;
    }
    qsi_segment_dirty_state(segment);
    return QS_OK;
}

qs_status qsi_queue_mark_all_seen(struct qsi_container *container)
{
    struct qsi_queue *queue = qsi_as_queue(container);
    uint32_t entries = queue->shared->entries;

    QS_DCHECK(queue->out_count == 0);
    for (uint32_t i = 0; i < queue->segment_count; i++) {
        struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        uint64_t first = qsi_segment_first_seq(queue->shared, segment);
        uint64_t given = queue->container.next_seq > first ? queue->container.next_seq - first : 0;
        segment->seen_end = given < entries ? (uint32_t)given : entries;
        if (segment->settled != NULL) {
            QS_TRY(mark_segment(queue, segment));
        }
    }
    return QS_OK;
}
