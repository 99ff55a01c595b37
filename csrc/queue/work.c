/* Work queues: state for messages from the source, and the operations that differ from other
 * queues.
 *
 * Invariants: the queue's ready count is the sum over its segments and the rest; flushed_seq is
 * next_seq; runs have no references to the message store; no segment has a file. */
#include "work.h"

#include "alloc.h"
#include "check.h"
#include "queue_internal.h"
#include "queue_publish.h"
#include "queue_replay.h"
#include "queue_settle.h"
#include "queue_take.h"
#include "work_kind.h"

#include <string.h>

void qsi_work_init(struct qsi_queue *queue, struct qsi_queue_shared *shared, uint64_t id)
{
    qsi_queue_init(queue, shared, id, true);
    queue->container.kind = &qsi_work_kind;
}

/* ---- the rest, and how it gets state ---- */

uint64_t qsi_work_raise(struct qsi_queue *queue, uint64_t end)
{
    uint64_t count = end > queue->work.end ? end - queue->work.end : 0;

    QS_ASSERT(queue->sum == NULL && queue->work.end >= queue->container.next_seq);
    queue->work.end += count;
    queue->container.in_count += count;
    qsi_queue_more_ready(queue, count);
    return count;
}

/* A process that crashed had them: [seq, seq + count), all in one segment. */
static void mark_seen(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t slot,
                      uint32_t count) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t first = qsi_queue_first_seq(queue, segment);
    uint64_t seen = queue->work.seen_upto > first ? queue->work.seen_upto - first : 0;
    uint32_t end = seen < slot + count ? (uint32_t)seen : slot + count;

    for (uint32_t word = slot / QSI_WORD_BITS; slot < end && word < qsi_bitmap_words(end); word++) {
        segment->seen[word - segment->word_base] |= qsi_word_range(word, slot, end);
    }
    segment->seen_end = end > segment->seen_end ? end : segment->seen_end;
}

/* Counts of deliveries are kept before anything is seen: what is seen next has none behind it. */
static qs_status keep_deliveries(struct qsi_queue *queue, uint64_t upto)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t entries = queue->shared->entries;
    uint64_t seq = queue->container.next_seq;

    for (; queue->counts_deliveries && seq < upto && seq < queue->work.seen_upto;
         seq = (seq / entries + 1) * entries) {
        struct qsi_segment *segment = qsi_queue_find_segment(queue, seq / entries);
        QS_ASSERT(segment != NULL);
        QS_TRY(qsi_segment_keep_deliveries(queue, segment));
    }
    return QS_OK;
}

/* Messages below upto, at most work.end, get their state.  QS_ENOMEM: none of them. */
static qs_status admit(struct qsi_queue *queue, uint64_t upto) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t entries = queue->shared->entries;
    uint64_t seq = queue->container.next_seq;

    QS_ASSERT(upto <= queue->work.end);
    if (upto <= seq) {
        return QS_OK;
    }
    QS_TRY(qsi_queue_cover_next(queue, upto - seq));
    QS_TRY(keep_deliveries(queue, upto));
    queue->container.next_seq = queue->container.flushed_seq = upto;
    while (seq < upto) {
        uint32_t slot = (uint32_t)(seq & (entries - 1));
        uint32_t here = upto - seq < entries - slot ? (uint32_t)(upto - seq) : entries - slot;
        uint32_t index = qsi_queue_segment_index(queue, seq / entries);
        struct qsi_segment *segment = qsi_queue_segment_at(queue, index);
        QS_DCHECK(segment->number == seq / entries && segment->settled != NULL);
        segment->ready_count += here;
        if (slot / QSI_WORD_BITS < segment->first_word) {
            segment->first_word = slot / QSI_WORD_BITS;
        }
        queue->scan = index < queue->scan ? index : queue->scan;
        mark_seen(queue, segment, slot, here);
        seq += here;
    }
    return QS_OK;
}

/* Messages of the rest below to are removed without ever having had a state. */
static qs_status skip(struct qsi_queue *queue, uint64_t to) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t count = to - queue->container.next_seq;

    QS_DCHECK(to > queue->container.next_seq && to <= queue->work.end);
    QS_TRY(qsi_queue_skip_to(&queue->container, to));
    queue->container.flushed_seq = to;
    queue->container.settled_count += count;
    qsi_queue_fewer_ready(queue, count);
    return QS_OK;
}

/* ---- content ---- */

static uint32_t count_live(const struct qsi_queue *queue, uint64_t from, uint64_t to)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t entries = queue->shared->entries, live = 0;

    while (from < to) {
        const struct qsi_segment *segment = qsi_queue_find_segment(queue, from / entries);
        uint32_t slot = (uint32_t)(from & (entries - 1));
        uint32_t end = to - from < entries - slot ? slot + (uint32_t)(to - from) : entries;
        for (uint32_t word = slot / QSI_WORD_BITS; segment != NULL && word < qsi_bitmap_words(end);
             word++) {
            live += qsi_popcount(qsi_segment_live(queue, segment, word) &
                                 qsi_word_range(word, slot, end));
        }
        from += end - slot;
    }
    return live;
}

/* The part of [from, *to_io) that no run has, from its first message on; false: nothing. */
static bool fit(const struct qsi_queue *queue, uint64_t from, uint64_t *to_io)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t index = qsi_queue_find_run(queue, from);

    *to_io = *to_io < queue->work.end ? *to_io : queue->work.end;
    if (index < queue->run_count) {
        const struct qsi_run *run = qsi_queue_run_at(queue, index);
        *to_io = run->first_seq < *to_io ? run->first_seq : *to_io;
    }
    return from < *to_io;
}

/* A run without messages in the queue yet; NULL: out of memory. */
static struct qsi_run *make_run(const struct qsi_messages_ref *messages, uint32_t first_message,
                                uint32_t count) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_run *run = qsi_zalloc(sizeof *run);

    if (run == NULL) {
        return NULL;
    }
    if (messages->rows != NULL) {
        run->messages.rows = qsi_alloc(count * sizeof *run->messages.rows);
        if (run->messages.rows == NULL) {
            qsi_free(run);
            return NULL;
        }
        memcpy(run->messages.rows, messages->rows + first_message,
               count * sizeof *run->messages.rows);
    } else {
        run->messages.first_row = messages->first_row + first_message;
    }
    run->messages.chunk = qsi_chunk_ref(messages->chunk);
    run->messages.record_at = messages->record_at;
    run->messages.single_records = messages->single_records;
    run->count = run->capacity = count;
    run->journalled = run->was_loaded = true;
    return run;
}

qs_status qsi_work_install(struct qsi_queue *queue, uint64_t first_seq, uint32_t count,
                           const struct qsi_messages_ref *messages, uint32_t first_message,
                           uint64_t ram_bytes)
{
    uint64_t to = first_seq + count;
    struct qsi_run *run;

    if (!fit(queue, first_seq, &to)) {
        return QS_OK;
    }
    QS_TRY(qsi_queue_reserve_runs(queue, 1));
    run = make_run(messages, first_message, (uint32_t)(to - first_seq));
    if (run == NULL) {
        return QS_ENOMEM;
    }
    if (admit(queue, to > queue->container.next_seq ? to : queue->container.next_seq) != QS_OK) {
        qsi_run_destroy(run);
        return QS_ENOMEM;
    }
    run->first_seq = first_seq;
    run->live_count = count_live(queue, first_seq, to);
    run->ram_bytes = ram_bytes * run->count / count;
    if (run->live_count == 0) {
        qsi_run_destroy(run);
        return QS_OK;
    }
    qsi_queue_insert_run(queue, run);
    return QS_OK;
}

qs_status qsi_work_install_damaged(struct qsi_queue *queue, uint64_t source_id, uint64_t first_seq,
                                   uint64_t end)
{
    struct qsi_segment_file file = {
        .queue_id = source_id, .number = first_seq, .generation = QSI_DAMAGE_OF_STREAM};
    uint64_t count = end - first_seq;
    struct qsi_messages_ref messages = {.record_at = 0};
    qs_status status;

    count = count < QSI_DAMAGED_ROWS_MAX ? count : QSI_DAMAGED_ROWS_MAX;
    QS_TRY(qsi_queue_damaged_record(queue, &file, 0, (uint32_t)count, &messages.chunk));
    status =
        qsi_work_install(queue, first_seq, (uint32_t)count, &messages, 0, messages.chunk->capacity);
    qsi_chunk_unref(messages.chunk);
    return status;
}

/* ---- what the source has no more ---- */

static uint64_t waiting_in(const struct qsi_segment *segment) QSI_REQUIRES(qsi_store_mutex)
{
    return (uint64_t)segment->ready_count + segment->delayed_count;
}

void qsi_work_lose(struct qsi_queue *queue, uint64_t from, uint64_t to)
{
    uint32_t entries = queue->shared->entries;
    uint32_t i = qsi_queue_segment_index(queue, from / entries);

    QS_ASSERT(from <= queue->container.next_seq);
    while (i < queue->segment_count) {
        struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        uint64_t first = qsi_queue_first_seq(queue, segment), before = waiting_in(segment);
        uint32_t segments = queue->segment_count;
        if (first >= to) {
            break;
        }
        qsi_queue_settle_waiting(queue, segment, from > first ? (uint32_t)(from - first) : 0,
                                 to - first < entries ? (uint32_t)(to - first) : entries);
        queue->work.passed_count += before - waiting_in(segment);
        qsi_segment_retire_if_done(queue, segment);
        i += queue->segment_count == segments ? 1 : 0;
    }
    to = to < queue->work.end ? to : queue->work.end;
    if (to > queue->container.next_seq) {
        uint64_t count = to - queue->container.next_seq;
        queue->work.passed_count += skip(queue, to) == QS_OK ? count : 0;
    }
}

uint64_t qsi_work_low_water(const struct qsi_queue *queue)
{
    for (uint32_t i = 0; i < queue->segment_count; i++) {
        const struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        uint64_t first = qsi_segment_first_seq(queue->shared, segment);
        for (uint32_t at = 0; qsi_segment_live_count(segment) > 0 && at < segment->word_count;
             at++) {
            uint64_t live = qsi_segment_live(queue, segment, segment->word_base + at);
            if (live != 0) {
                return first + (uint64_t)(segment->word_base + at) * QSI_WORD_BITS +
                       (uint32_t)__builtin_ctzll(live);
            }
        }
    }
    return queue->container.next_seq;
}

/* ---- what it does otherwise than other queues ---- */

enum qsi_take qsi_work_take(struct qsi_container *container, uint32_t max_count,
                            struct qsi_stretch *stretch_out)
{
    struct qsi_queue *queue = qsi_as_queue(container);
    enum qsi_take found = qsi_queue_take(&queue->container, max_count, stretch_out);

    return found == QSI_TAKE_EMPTY && qsi_work_rest(queue) > 0 ? QSI_TAKE_PAGED : found;
}

/* As qsi_queue_skip_to needs it. */
qs_status qsi_work_reserve_purge(struct qsi_container *container)
{
    struct qsi_queue *queue = qsi_as_queue(container);
    uint32_t entries = queue->shared->entries;
    uint32_t slot = (uint32_t)(queue->container.next_seq & (entries - 1));
    const struct qsi_segment *last = qsi_queue_last_segment(queue);
    uint64_t rest = qsi_work_rest(queue);

    if (rest == 0 || last == NULL || last->number != queue->container.next_seq / entries) {
        return QS_OK;
    }
    return qsi_queue_cover(queue, last->number, slot,
                           rest < entries - slot ? slot + (uint32_t)rest : entries);
}

/* Without memory (qsi_work_reserve_purge) the rest stays. */
uint64_t qsi_work_purge(struct qsi_container *container, qsi_range_visitor *visit, void *context)
{
    struct qsi_queue *queue = qsi_as_queue(container);
    uint64_t from, to = queue->work.end, rest = qsi_work_rest(queue);
    uint64_t dropped = qsi_queue_purge(&queue->container, visit, context);

    from = queue->container.next_seq;
    if (rest == 0) {
        return dropped;
    }
    if (skip(queue, to) != QS_OK) {
        return dropped - rest;
    }
    while (visit != NULL && from < to) {
        uint64_t count = to - from < UINT32_MAX ? to - from : UINT32_MAX;
        visit(context, from, (uint32_t)count);
        from += count;
    }
    return dropped;
}

uint64_t qsi_work_purge_ranges(const struct qsi_container *container)
{
    const struct qsi_queue *queue = (const struct qsi_queue *)(const void *)container;
    uint64_t rest = qsi_work_rest(queue);

    return qsi_queue_purge_ranges(queue) + (rest > 0 ? rest / UINT32_MAX + 1 : 0);
}

uint64_t qsi_work_unflushed_bytes(const struct qsi_container *container)
{
    (void)container;
    return 0;
}

qs_status qsi_work_begin_flush(struct qsi_container *container, uint64_t bytes_max,
                               struct qsi_job **job_out)
{
    (void)container;
    (void)bytes_max;
    (void)job_out;
    return QS_EEMPTY;
}

void qsi_work_start_at(struct qsi_container *container, uint64_t seq)
{
    struct qsi_queue *queue = qsi_as_queue(container);

    qsi_queue_start_at(&queue->container, seq);
    queue->work.end = seq > queue->work.end ? seq : queue->work.end;
}

qs_status qsi_work_skip_to(struct qsi_container *container, uint64_t seq)
{
    QS_ASSERT(seq <= container->next_seq); /* its sequences are the source's */
    return QS_OK;
}

/* Settled messages were in the source, and may have no state here yet. */
qs_status qsi_work_replay_settle(struct qsi_container *container, const struct qsi_settle *settled)
{
    struct qsi_queue *queue = qsi_as_queue(container);
    uint64_t first = settled->first_seq, end = first + settled->count;

    if (end > container->next_seq) {
        (void)qsi_work_raise(queue, end);
        if (settled->kind != QSI_SETTLE_ACK) {
            QS_TRY(admit(queue, end));
        } else {
            QS_TRY(admit(queue, first));
            QS_TRY(skip(queue, end));
        }
    }
    return qsi_queue_replay_settle(&queue->container, settled);
}

qs_status qsi_work_mark_all_seen(struct qsi_container *container)
{
    struct qsi_queue *queue = qsi_as_queue(container);

    queue->work.seen_upto = queue->work.end;
    return qsi_queue_mark_all_seen(&queue->container);
}

void qsi_work_abandon(struct qsi_container *container)
{
    struct qsi_queue *queue = qsi_as_queue(container);

    qsi_queue_fewer_ready(queue, qsi_work_rest(queue));
    queue->work.end = container->next_seq;
    qsi_queue_abandon(&queue->container);
}
