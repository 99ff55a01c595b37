/* Looking at a queue's messages: nothing is delivered, no count changes, no file is written.
 *
 * A position is a message's sequence.  In a queue with priorities, the bits above have the distance
 * of its priority from the highest one, so positions ascend in the order of delivery.  Messages
 * that are not in memory are read into memory of the call.  States of segments take a few KiB each
 * and are read into the queue, as for a consumer. */
#include "alloc.h"
#include "browse_internal.h"
#include "check.h"
#include "clock.h"
#include "content.h"
#include "enter.h"
#include "error.h"
#include "pager.h"
#include "paging.h"
#include "priorities.h"
#include "queue_delays.h"
#include "queue_life.h"
#include "wake.h"
#include "work.h"
#include "work_load.h"

#include <string.h>

#define LOAD_BYTES_MAX (2u << 20)

/* Adds the message in a slot with a known record.  Does nothing if the message does not fit: the
 * batch is full then. */
static qs_status add_slot(struct qsi_browse *browse, const struct qsi_store_queue *subqueue,
                          const struct qsi_segment *segment, uint32_t slot, struct qsi_chunk *chunk,
                          const uint8_t *record, uint32_t row) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t at = slot / QSI_WORD_BITS - segment->word_base;
    struct qsi_taken next = {.chunk = chunk, .record = record, .row = row, .count = 1};
    struct qsi_messages view;
    uint32_t bytes;

    QS_ASSERT_HELD(&browse->store->mutex);
    qsi_messages_view(&view, record);
    bytes = qsi_messages_body_bytes(&view, row);
    if (bytes > browse->bytes_left && browse->batch.message_count > 0) {
        browse->bytes_left = 0;
        return QS_OK;
    }
    QS_DCHECK(row < view.row_count);
    next.first_tag =
        qsi_position_of(subqueue, qsi_queue_first_seq(&subqueue->core, segment) + slot);
    next.is_unacked = (segment->out[at] >> (slot % QSI_WORD_BITS) & 1) != 0;
    next.is_delayed =
        (qsi_segment_delayed(segment, slot / QSI_WORD_BITS) >> (slot % QSI_WORD_BITS) & 1) != 0 &&
        qsi_segment_due(segment, slot) > browse->now_us;
    next.delivery_count = next.is_unacked
                              ? qsi_segment_deliveries_before(&subqueue->core, segment, slot)
                              : qsi_segment_deliveries(segment, slot);
    next.redelivered = next.delivery_count > 0;
    return qsi_browse_add(browse, &next, bytes);
}

/* Whether the message is ready and has expired: no consumer gets it any more. */
static bool has_expired(const struct qsi_browse *browse, const struct qsi_segment *segment,
                        uint32_t slot) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t at = slot - segment->word_base * QSI_WORD_BITS;
    bool is_out = (segment->out[at / QSI_WORD_BITS] >> (at % QSI_WORD_BITS) & 1) != 0;
    bool is_delayed =
        (qsi_segment_delayed(segment, slot / QSI_WORD_BITS) >> (slot % QSI_WORD_BITS) & 1) != 0;

    QS_DCHECK(slot / QSI_WORD_BITS >= segment->word_base);
    if (is_delayed && qsi_segment_due(segment, slot) > browse->now_us) {
        return false;
    }
    return !is_out && segment->expiries != NULL && segment->expiries[at] <= browse->now_us;
}

/* The next slot with a message to show, from slot on; entries: there is none. */
static uint32_t next_slot(const struct qsi_browse *browse, const struct qsi_queue *queue,
                          const struct qsi_segment *segment, uint32_t slot)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t entries = qsi_queue_entries(queue);

    while (slot < entries) {
        uint32_t word = slot / QSI_WORD_BITS;
        uint64_t live = qsi_segment_live(queue, segment, word) & ~UINT64_C(0)
                                                                     << (slot % QSI_WORD_BITS);
        if (live == 0) {
            slot = (word + 1) * QSI_WORD_BITS;
            continue;
        }
        slot = word * QSI_WORD_BITS + (uint32_t)__builtin_ctzll(live);
        QS_DCHECK(slot < entries);
        if (!has_expired(browse, segment, slot)) {
            return slot;
        }
        slot += 1;
    }
    return entries;
}

/* ---- messages on the disk ---- */

static qs_status add_loaded(struct qsi_browse *browse, struct qsi_store_queue *subqueue,
                            const struct qsi_page_in *job) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_segment_load *load = &job->load;
    uint32_t end = load->first + load->count;
    uint32_t slot = next_slot(browse, &subqueue->core, job->segment, load->first);

    QS_DCHECK(end <= qsi_queue_entries(&subqueue->core) && load->chunk != NULL);
    for (; slot < end && !qsi_browse_is_full(browse);
         slot = next_slot(browse, &subqueue->core, job->segment, slot + 1)) {
        uint32_t i = slot - load->first;
        QS_TRY(add_slot(browse, subqueue, job->segment, slot, load->chunk, load->chunk->data,
                        load->rows != NULL ? load->rows[i] : i));
    }
    return QS_OK;
}

/* Runs the job and adds the messages that it read; the queue's memory does not keep them.  Releases
 * the lock meanwhile. */
static qs_status load_and_add(struct qsi_browse *browse, struct qsi_store_queue *subqueue,
                              struct qsi_page_in *job, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = browse->store;
    struct qsi_segment_load load;
    qs_status status;

    QS_ASSERT_HELD(&store->mutex);
    qsi_pager_job_begin(store, subqueue);
    status = qsi_page_in_run(job, qsi_index_of(store, subqueue), store->transient_index, error);
    if (status == QS_ECORRUPT) {
        status = qsi_page_in_damaged(job);
    }
    qsi_store_lock(store);
    if (status == QS_OK && job->load.chunk != NULL) {
        status = add_loaded(browse, subqueue, job);
    }
    qsi_page_in_take(job, &load);
    qsi_pager_job_end(store, subqueue);
    qsi_chunk_unref(load.chunk);
    qsi_free(load.rows);
    return status == QS_ENOMEM ? qsi_fail(error, status, "messages from the disk") : status;
}

static uint64_t load_bytes(const struct qsi_browse *browse)
{
    uint64_t bytes = browse->bytes_left < LOAD_BYTES_MAX ? browse->bytes_left : LOAD_BYTES_MAX;

    return browse->messages_left == 1 ? 0 : bytes;
}

/* ---- one step ---- */

#define WORK_BYTES_MAX (16u << 20) /* of a work queue's content, if the pager does not read it */

/* Reads content of a work queue, which is in its stream, as for a consumer, and drops it again.
 * Releases the lock meanwhile. */
static qs_status read_work(struct qsi_browse *browse, struct qsi_store_queue *queue, uint64_t seq,
                           qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    qs_status status;

    if (queue->container.ram_bytes > WORK_BYTES_MAX) {
        (void)qsi_container_drop_content(&queue->container, 0, UINT64_MAX);
    }
    queue->jobs += 1;
    status = qsi_work_load_one(browse->store, queue, seq, error);
    qsi_end_queue_job(queue);
    return status == QS_EEMPTY ? QS_OK : status;
}

/* Reads the message in a slot.  May release the lock meanwhile, and then sets *again_out: look
 * everything up again. */
static qs_status read_slot(struct qsi_browse *browse, struct qsi_store_queue *subqueue,
                           struct qsi_segment *segment, uint32_t slot, bool *again_out,
                           qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t seq = qsi_queue_first_seq(&subqueue->core, segment) + slot;
    const struct qsi_run *run = qsi_queue_run_of(&subqueue->core, seq);
    struct qsi_page_in job;
    uint32_t row;

    if (run != NULL) {
        const uint8_t *record = qsi_run_record(run, (uint32_t)(seq - run->first_seq), &row);
        return add_slot(browse, subqueue, segment, slot, run->messages.chunk, record, row);
    }
    *again_out = true;
    if (!qsi_appends(subqueue)) {
        return read_work(browse, subqueue, seq, error);
    }
    QS_DCHECK(seq < subqueue->core.container.flushed_seq); /* otherwise it is in memory */
    switch (qsi_page_in_message(&job, &subqueue->core, segment, slot, load_bytes(browse))) {
    case QSI_PAGE_IN_BEGUN:
        return load_and_add(browse, subqueue, &job, error);
    case QSI_PAGE_IN_UNDER_WAY:
        return qsi_pager_wait(browse->store, subqueue);
    case QSI_PAGE_IN_NOTHING:
        QS_ASSERT(false); /* no run has it */
    case QSI_PAGE_IN_NO_MEMORY:
        break;
    }
    return qsi_fail(error, QS_ENOMEM, "messages from the disk");
}

/* The next sequence to examine if a segment has no more messages to show from seq on.  The rest of
 * a work queue may begin in the same segment. */
static uint64_t seq_after(const struct qsi_queue *queue, const struct qsi_segment *segment,
                          uint64_t seq) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t end = qsi_queue_first_seq(queue, segment) + qsi_queue_entries(queue);
    uint64_t next = queue->container.next_seq > seq ? queue->container.next_seq : seq;

    QS_DCHECK(seq < end);
    return qsi_queue_is_work(queue) && next < end ? next : end;
}

/* Adds messages of one segment from browse->position on, and advances it.  *again_out: the lock was
 * released. */
static qs_status step_segment(struct qsi_browse *browse, struct qsi_store_queue *subqueue,
                              struct qsi_segment *segment, bool *again_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t entries = qsi_queue_entries(&subqueue->core);
    uint64_t first_seq = qsi_queue_first_seq(&subqueue->core, segment);
    uint64_t seq = qsi_sequence_in(browse->position);
    uint32_t slot = seq > first_seq ? (uint32_t)(seq - first_seq) : 0;

    QS_DCHECK(seq < first_seq + entries);
    if (segment->settled == NULL) {
        uint64_t behind = qsi_position_of(subqueue, first_seq + entries);
        qs_status status = qsi_pager_read_state(browse->store, subqueue, segment, error);
        *again_out = true;
        if (qsi_is_unreadable(status)) {
            browse->behind_damage = behind;
        }
        return status;
    }
    slot = next_slot(browse, &subqueue->core, segment, slot);
    while (slot < entries && !qsi_browse_is_full(browse) && !*again_out) {
        uint64_t count = browse->batch.message_count;
        QS_TRY(read_slot(browse, subqueue, segment, slot, again_out, error));
        if (!*again_out && browse->batch.message_count > count) {
            slot = next_slot(browse, &subqueue->core, segment, slot + 1);
        }
    }
    if (!*again_out) {
        uint64_t next =
            slot < entries ? first_seq + slot : seq_after(&subqueue->core, segment, seq);
        QS_DCHECK(qsi_position_of(subqueue, next) >= browse->position);
        browse->position = qsi_position_of(subqueue, next);
    }
    return QS_OK;
}

/* Adds messages of one priority from browse->position on. */
static qs_status step_subqueue(struct qsi_browse *browse, struct qsi_store_queue *subqueue,
                               bool *again_out, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_queue *core = &subqueue->core;
    uint64_t number = qsi_sequence_in(browse->position) / qsi_queue_entries(core);

    QS_ASSERT_HELD(&browse->store->mutex);
    for (uint32_t i = qsi_queue_segment_index(core, number);
         i < qsi_queue_segment_count(core) && !qsi_browse_is_full(browse) && !*again_out; i++) {
        struct qsi_segment *segment = qsi_queue_segment_at(core, i);
        if (qsi_segment_live_count(segment) > 0) {
            QS_TRY(step_segment(browse, subqueue, segment, again_out, error));
            qsi_browse_pass_added(browse);
        }
    }
    if (qsi_work_rest(core) > 0 && !qsi_browse_is_full(browse) && !*again_out) {
        uint64_t seq = qsi_sequence_in(browse->position), next = core->container.next_seq;
        if (seq < core->work.end) {
            *again_out = true;
            return read_work(browse, subqueue, seq > next ? seq : next, error);
        }
    }
    return QS_OK;
}

/* Collects messages.  QS_EEMPTY: there is none at or after the position.  May release the lock
 * meanwhile. */
static qs_status gather(struct qsi_browse *browse, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    bool again = true;

    QS_ASSERT_HELD(&browse->store->mutex);
    while (again && !qsi_browse_is_full(browse)) {
        struct qsi_store_queue *queue = qsi_find_queue(browse->store, browse->name);
        again = false;
        if (queue == NULL) {
            return qsi_fail_no_queue(browse->store, browse->name, error);
        }
        if (qsi_is_stream(queue)) {
            qs_status status = qsi_browse_stream(browse, queue, error);
            if (status != QS_OK && status != QS_EEMPTY) {
                return status;
            }
            again = status == QS_OK;
            continue;
        }
        for (uint32_t i = 0; i < qsi_subqueue_count(queue) && !again && !qsi_browse_is_full(browse);
             i++) {
            struct qsi_store_queue *subqueue = qsi_subqueue_at(queue, i);
            uint64_t first = qsi_position_of(subqueue, 0);
            if (browse->position >> QSI_PRIORITY_SHIFT > first >> QSI_PRIORITY_SHIFT) {
                continue;
            }
            browse->position = browse->position > first ? browse->position : first;
            QS_TRY(step_subqueue(browse, subqueue, &again, error));
        }
    }
    return browse->batch.message_count > 0 ? QS_OK : QS_EEMPTY;
}

/* ---- verbs ---- */

static qs_status begin(struct qsi_browse *browse, qs_store *store, qs_slice queue,
                       uint64_t position, uint64_t messages_max, uint64_t bytes_max,
                       qs_error *error) QSI_ACQUIRES_IF_OK(qsi_store_mutex)
{
    *browse = (struct qsi_browse){.store = store,
                                  .name = qsi_slice_of(queue),
                                  .position = position,
                                  .messages_left = messages_max,
                                  .bytes_left = bytes_max,
                                  .batch.shape = QSI_ARROW_BROWSED};
    QS_TRY(qsi_store_enter(store, error));
    browse->now_us = qsi_clock_us(store);
    return QS_OK;
}

/* Collects messages, and releases the lock.  Messages before a damaged segment are returned first;
 * the next call reports the damage. */
static qs_status gather_and_leave(struct qsi_browse *browse, uint32_t *reader_out, qs_error *error)
    QSI_RELEASES(qsi_store_mutex)
{
    qs_status status = gather(browse, error);

    QS_ASSERT_HELD(&browse->store->mutex);
    if (browse->batch.message_count > 0 && qsi_is_unreadable(status)) {
        status = QS_OK;
        qsi_browse_pass_added(browse);
    } else if (browse->behind_damage != 0) {
        browse->position = browse->behind_damage;
    }
    *reader_out = qsi_reader_begin(browse->store);
    qsi_store_unlock(browse->store);
    return status;
}

static void end(struct qsi_browse *browse, uint32_t reader)
{
    qsi_taken_release(&browse->batch.taken);
    qsi_store_lock(browse->store);
    qsi_reader_end(browse->store, reader);
    qsi_store_leave(browse->store);
}

qs_status qs_store_browse(qs_store *store, qs_slice queue, uint64_t *position_io,
                          uint64_t messages_max, uint64_t bytes_max, struct ArrowSchema *schema_out,
                          struct ArrowArray *array_out, qs_error *error)
{
    uint64_t most =
        bytes_max < QSI_ARROW_BODY_BYTES_MAX ? bytes_max : (uint64_t)QSI_ARROW_BODY_BYTES_MAX;
    struct qsi_browse browse;
    uint32_t reader;
    qs_status status;

    QS_TRY(begin(&browse, store, queue, *position_io, messages_max, most, error));
    status = gather_and_leave(&browse, &reader, error);
    if (status == QS_OK) {
        status = qsi_browse_build(&browse, schema_out, array_out, error);
    }
    *position_io = browse.position;
    end(&browse, reader);
    return status;
}

qs_status qs_store_peek(qs_store *store, qs_slice queue, uint64_t *position_io, uint32_t *state_out,
                        qs_message *message_out, qs_error *error)
{
    struct qsi_browse browse;
    struct qsi_body body;
    uint32_t reader;
    qs_status status;

    memset(message_out, 0, sizeof *message_out);
    QS_TRY(begin(&browse, store, queue, *position_io, 1, UINT64_MAX, error));
    status = gather_and_leave(&browse, &reader, error);
    if (status == QS_OK) {
        const struct qsi_taken *taken =
            (const struct qsi_taken *)(const void *)browse.batch.taken.data;
        *state_out = taken->is_unacked   ? QS_MESSAGE_UNACKED
                     : taken->is_delayed ? QS_MESSAGE_DELAYED
                                         : QS_MESSAGE_READY;
        message_out->queue = queue;
        message_out->delivery_tag = taken->first_tag;
        message_out->redelivered = taken->redelivered;
        message_out->delivery_count = taken->delivery_count;
        qsi_view_row(taken->chunk, taken->record, taken->row, message_out, &body);
        status = qsi_deliver_body(store, message_out, &body, error);
    }
    *position_io = browse.position;
    end(&browse, reader);
    return status;
}
