/* Purging removes ready and delayed messages, with a record for each stretch of them.  Discarding
 * removes one message. */
#include "check.h"
#include "commit.h"
#include "enter.h"
#include "error.h"
#include "pager.h"
#include "priorities.h"
#include "queue_life.h"
#include "queue_settle.h"
#include "store.h"
#include "thread_safety.h"
#include "topology.h"
#include "wake.h"

struct purge {
    uint64_t queue_id;
    uint8_t *at;
    uint32_t count;
};

static void record_purged(void *context, uint64_t first_seq, uint32_t count)
{
    struct purge *purge = context;
    struct qsi_settle settle = {.queue_id = purge->queue_id,
                                .first_seq = first_seq,
                                .count = count,
                                .kind = QSI_SETTLE_ACK};

    QS_DCHECK(count > 0);
    qsi_settle_encode(purge->at, &settle);
    purge->at += QSI_SETTLE_BYTES;
    purge->count += 1;
}

/* The bytes of the purge's records. */
static uint64_t purge_bytes(const struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t ranges = 0;

    for (uint32_t i = 0; i < qsi_subqueue_count(queue); i++) {
        ranges += qsi_container_purge_ranges(&qsi_core_at(queue, i)->container);
    }
    return ranges * QSI_SETTLE_BYTES;
}

static void ignore_range(void *context, uint64_t first_seq, uint32_t count)
{
    (void)context;
    (void)first_seq;
    (void)count;
}

static uint64_t purge_priorities(struct qsi_store_queue *queue, qsi_range_visitor *visit,
                                 struct purge *purge) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < qsi_subqueue_count(queue); i++) {
        struct qsi_queue *core = &qsi_subqueue_at(queue, i)->core;
        purge->queue_id = core->container.id;
        count += qsi_container_purge(&core->container, visit, purge);
    }
    return count;
}

static qs_status purge_queue(struct qs_store *store, struct qsi_store_queue *queue,
                             uint64_t *count_out, uint64_t *lsn_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct purge purge = {0};
    struct qsi_chunk *chunk = NULL;
    uint64_t from, bytes = purge_bytes(queue);

    if (!qsi_is_journalled(queue) || bytes == 0) {
        *count_out = purge_priorities(queue, ignore_range, &purge);
        return QS_OK;
    }
    if (qsi_journal_reserve(store->journal, 1) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "journal");
    }
    if (qsi_container_reserve_purge(&queue->container) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "queue '%.*s'", QSI_NAME(queue->name));
    }
    QS_TRY(qsi_arena_place(store, true, bytes, &chunk, error));
    QS_DCHECK(bytes <= chunk->capacity - chunk->used);
    from = chunk->used;
    purge.at = chunk->data + from;
    *count_out = purge_priorities(queue, record_purged, &purge);
    QS_ASSERT((uint64_t)purge.count * QSI_SETTLE_BYTES <= bytes); /* room was made for so many */
    chunk->used += (uint64_t)purge.count * QSI_SETTLE_BYTES;
    *lsn_out = qsi_store_append(store, chunk, from, chunk->used - from, purge.count, false);
    qsi_commit_wake(store);
    return QS_OK;
}

/* Finds the queue and makes room for the purge's records, which may take turns. */
static qs_status prepare_purge(struct qs_channel *channel, struct qsi_slice name,
                               struct qsi_store_queue **queue_out, enum qsi_wait wait,
                               qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    bool released = true;

    while (released) {
        uint64_t bytes;
        QS_TRY(qsi_require_queue(channel, name, queue_out, error));
        QS_TRY(qsi_refuse_stream(channel->store, *queue_out, "queue.purge", error));
        bytes = purge_bytes(*queue_out);
        QS_TRY(qsi_commit_make_room(channel->store, bytes, bytes, QSI_ROOM_REMOVE, &released, wait,
                                    error));
    }
    return QS_OK;
}

qs_status qs_channel_queue_purge(qs_channel *channel, qs_slice queue, uint32_t flags,
                                 uint64_t *count_out, qs_error *error)
{
    struct qsi_store_queue *found = NULL;
    uint64_t lsn = 0;
    qs_status status;

    *count_out = 0;
    QS_TRY(qsi_enter_topology(channel, 0, qsi_wait_of(flags), error));
    status = prepare_purge(channel, qsi_slice_of(queue), &found, qsi_wait_of(flags), error);
    if (status == QS_OK) {
        status = purge_queue(channel->store, found, count_out, &lsn, error);
    }
    if (status == QS_OK) {
        status = qsi_commit_complete(channel, lsn, flags, error);
    }
    return qsi_channel_leave_after(channel, qsi_wait_of(flags), status);
}

/* ---- one message ---- */

struct place {
    struct qsi_store_queue *subqueue;
    struct qsi_segment *segment;
    uint32_t slot;
};

/* QS_EEMPTY: there is no such message. */
static qs_status find_place(struct qsi_store_queue *queue, uint64_t position,
                            struct place *place_out) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t seq = qsi_sequence_in(position);

    for (uint32_t i = 0; i < qsi_subqueue_count(queue); i++) {
        struct qsi_store_queue *subqueue = qsi_subqueue_at(queue, i);
        uint32_t entries = qsi_queue_entries(&subqueue->core);
        uint32_t index = qsi_queue_segment_index(&subqueue->core, seq / entries);
        if (qsi_position_of(subqueue, seq) != position ||
            index == qsi_queue_segment_count(&subqueue->core)) {
            continue;
        }
        *place_out = (struct place){subqueue, qsi_queue_segment_at(&subqueue->core, index),
                                    (uint32_t)(seq % entries)};
        return place_out->segment->number == seq / entries ? QS_OK : QS_EEMPTY;
    }
    return QS_EEMPTY;
}

/* REQUIRES state. */
static qs_status judge_place(const struct place *place, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_segment *segment = place->segment;
    uint32_t word = place->slot / QSI_WORD_BITS;
    uint64_t bit = UINT64_C(1) << (place->slot % QSI_WORD_BITS);

    if ((qsi_segment_live(&place->subqueue->core, segment, word) & bit) == 0) {
        return QS_EEMPTY;
    }
    return (segment->out[word - segment->word_base] & bit) == 0
               ? QS_OK
               : qsi_fail(error, QS_PRECONDITION_FAILED, "the message is unacknowledged");
}

/* The message, its state in memory, and room for its record: all of it may take turns. */
static qs_status prepare_discard(struct qs_channel *channel, struct qsi_slice name,
                                 uint64_t position, struct place *place_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    bool released = true;

    while (released) {
        struct qsi_store_queue *queue;
        QS_TRY(qsi_require_queue(channel, name, &queue, error));
        if (!qsi_takes(queue) || !qsi_appends(queue)) {
            return qsi_fail(error, QS_PRECONDITION_FAILED,
                            "the messages of queue '%.*s' are a stream's", QSI_NAME(name));
        }
        QS_TRY(find_place(queue, position, place_out));
        if (place_out->segment->settled == NULL) {
            QS_TRY(qsi_pager_read_state(channel->store, place_out->subqueue, place_out->segment,
                                        error));
            continue;
        }
        QS_TRY(judge_place(place_out, error));
        QS_TRY(qsi_commit_make_room(channel->store, QSI_SETTLE_BYTES, QSI_SETTLE_BYTES,
                                    QSI_ROOM_REMOVE, &released, QSI_MAY_WAIT, error));
    }
    return QS_OK;
}

static qs_status discard(struct qs_store *store, const struct place *place, uint64_t seq,
                         uint64_t *lsn_out, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_queue *core = &place->subqueue->core;
    struct qsi_chunk *chunk = NULL;

    if (qsi_is_journalled(place->subqueue)) {
        struct purge purge = {.queue_id = core->container.id};
        uint64_t from;
        if (qsi_journal_reserve(store->journal, 1) != QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "journal");
        }
        QS_TRY(qsi_arena_place(store, true, QSI_SETTLE_BYTES, &chunk, error));
        from = chunk->used;
        purge.at = chunk->data + from;
        record_purged(&purge, seq, 1);
        chunk->used += QSI_SETTLE_BYTES;
        *lsn_out = qsi_store_append(store, chunk, from, QSI_SETTLE_BYTES, 1, false);
        qsi_commit_wake(store);
    }
    qsi_queue_discard(core, place->segment, place->slot);
    return QS_OK;
}

qs_status qs_channel_queue_discard(qs_channel *channel, qs_slice queue, uint64_t position,
                                   qs_error *error)
{
    struct place place = {.slot = 0};
    uint64_t lsn = 0;
    qs_status status;

    QS_TRY(qsi_enter_topology(channel, 0, QSI_MAY_WAIT, error));
    status = prepare_discard(channel, qsi_slice_of(queue), position, &place, error);
    if (status == QS_OK) {
        status = discard(channel->store, &place, qsi_sequence_in(position), &lsn, error);
    }
    if (status == QS_OK) {
        status = qsi_commit_complete(channel, lsn, QS_NO_SYNC, error);
    }
    return qsi_channel_leave_after(channel, QSI_MAY_WAIT, status);
}
