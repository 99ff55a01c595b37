/* Pieces: encoded records between publish and accept. */
#include "alloc.h"
#include "check.h"
#include "clock.h"
#include "commit.h"
#include "error.h"
#include "limits.h"
#include "pager.h"
#include "priorities.h"
#include "publish.h"
#include "turns.h"
#include "wake.h"

#include <string.h>

struct pending_record *qsi_pending_records_add(struct pending_records *pending_records)
{
    if (pending_records->count == pending_records->capacity) {
        uint32_t capacity = pending_records->capacity == 0 ? 4 : pending_records->capacity * 2;
        struct pending_record *grown =
            qsi_realloc(pending_records->items, capacity * sizeof *grown);
        if (grown == NULL) {
            return NULL;
        }
        pending_records->items = grown;
        pending_records->capacity = capacity;
    }
    memset(&pending_records->items[pending_records->count], 0, sizeof pending_records->items[0]);
    return &pending_records->items[pending_records->count++];
}

void qsi_pending_records_note_bytes(struct pending_records *pending_records,
                                    const struct pending_record *pending_record)
{
    if (pending_record->journalled) {
        pending_records->journal_bytes += pending_record->chunk->used;
        pending_records->entry_bytes_max =
            pending_record->chunk->used > pending_records->entry_bytes_max
                ? pending_record->chunk->used
                : pending_records->entry_bytes_max;
    }
}

void qsi_pending_records_fini(struct pending_records *pending_records,
                              struct qsi_message_store *messages)
{
    for (uint32_t i = 0; i < pending_records->count; i++) {
        struct pending_record *pending_record = &pending_records->items[i];
        for (uint32_t k = 0; k < pending_record->destination_count; k++) {
            qsi_run_destroy(pending_record->destinations[k].run);
        }
        for (uint32_t k = 0; k < pending_record->place_count; k++) {
            qsi_message_store_abandon(messages, &pending_record->places[k]);
        }
        qsi_free(pending_record->destinations);
        qsi_free(pending_record->places);
        qsi_chunk_unref(pending_record->chunk);
    }
    qsi_free(pending_records->items);
    memset(pending_records, 0, sizeof *pending_records);
}

/* Of all priorities: what is to come is asked of them together. */
static void forget_reserving(struct store_queue *queue)
{
    struct store_queue *owner = qsi_owner_of(queue);

    for (uint32_t i = 0; i < qsi_subqueue_count(owner); i++) {
        struct qsi_queue *core = &qsi_subqueue_at(owner, i)->core;
        qsi_queue_expect_nothing(core);
    }
}

/* How many messages each queue is to get of all the pending records. */
static void count_messages(struct qs_store *store, const struct pending_records *pending_records)
{
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < pending_records->count; i++) {
            const struct pending_record *pending_record = &pending_records->items[i];
            for (uint32_t k = 0; k < pending_record->destination_count; k++) {
                struct store_queue *queue =
                    qsi_find_by_id(store, pending_record->destinations[k].queue_id);
                const struct qsi_run *run = pending_record->destinations[k].run;
                if (queue == NULL) {
                    continue;
                }
                if (pass == 0) {
                    forget_reserving(queue);
                    continue;
                }
                qsi_queue_expect(&queue->core, run->count,
                                 qsi_policy_counts_bytes(&queue->policy) && qsi_queue_refuses(queue)
                                     ? qsi_run_body_bytes(run)
                                     : 0);
            }
        }
    }
}

static qs_status no_memory(const struct store_queue *queue, qs_error *error)
{
    return qsi_fail(error, QS_ENOMEM, "queue '%.*s'", (int)queue->name.bytes,
                    (const char *)queue->name.data);
}

/* Levels that nobody used before. */
static qs_status make_priorities(struct qs_store *store,
                                 const struct pending_records *pending_records, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    for (uint32_t i = 0; i < pending_records->count; i++) {
        const struct pending_record *pending_record = &pending_records->items[i];
        for (uint32_t k = 0; k < pending_record->destination_count; k++) {
            uint64_t id = pending_record->destinations[k].queue_id;
            struct store_queue *subqueue;
            if (QS_UNLIKELY(qsi_priority_in(id) != 0)) {
                QS_TRY(qsi_require_by_id(store, id, &subqueue, error));
            }
        }
    }
    return QS_OK;
}

qs_status qsi_pending_records_reserve(struct qs_store *store,
                                      const struct pending_records *pending_records,
                                      uint32_t extra_entries, qs_error *error)
{
    QS_TRY(make_priorities(store, pending_records, error));
    count_messages(store, pending_records);
    for (uint32_t i = 0; i < pending_records->count; i++) {
        const struct pending_record *pending_record = &pending_records->items[i];
        for (uint32_t k = 0; k < pending_record->destination_count; k++) {
            struct store_queue *queue =
                qsi_find_by_id(store, pending_record->destinations[k].queue_id);
            const struct qsi_run *run = pending_record->destinations[k].run;
            if (queue != NULL &&
                qsi_container_reserve(&queue->container, pending_records->count,
                                      qsi_queue_coming(&queue->core)->messages,
                                      !run->journalled || run->has_transient) != QS_OK) {
                return no_memory(queue, error);
            }
            if (queue != NULL && (pending_record->has_expiration || pending_record->has_due) &&
                qsi_container_reserve_times(&queue->container, pending_record->chunk->data,
                                            qsi_queue_coming(&queue->core)->messages) != QS_OK) {
                return no_memory(queue, error);
            }
        }
    }
    if (qsi_journal_reserve(store->journal, pending_records->count + extra_entries) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "journal");
    }
    return QS_OK;
}

/* Messages that expire are told when they were published. */
static void stamp(struct qs_store *store, const struct pending_record *pending_record)
{
    bool expires = pending_record->has_expiration;

    for (uint32_t i = 0; !expires && i < pending_record->destination_count; i++) {
        const struct store_queue *queue =
            qsi_find_by_id(store, pending_record->destinations[i].queue_id);
        expires = queue != NULL && qsi_policy_has_ttl(&queue->policy);
    }
    if (expires) {
        qsi_messages_put_time(pending_record->chunk->data, qsi_clock_us(store));
    }
}

/* refusals NULL: no queue refuses any.  Returns how many records refusals have got. */
static uint32_t push(struct qs_store *store, struct pending_record *pending_record,
                     struct refusals *refusals) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t refused = 0;

    stamp(store, pending_record);
    for (uint32_t i = 0; i < pending_record->destination_count; i++) {
        struct pending_destination *destination = &pending_record->destinations[i];
        struct store_queue *queue = qsi_find_by_id(store, destination->queue_id);
        uint32_t count = destination->run->count;
        uint64_t seq;
        if (queue == NULL) {
            continue; /* deleted meanwhile; fini frees the run */
        }
        seq = qsi_container_append(&queue->container, destination->run);
        qsi_messages_put_destination(pending_record->chunk->data, i, destination->queue_id, seq,
                                     count);
        if (refusals != NULL && qsi_queue_refuses(queue)) {
            refused += qsi_refusals_take(refusals, store, queue, pending_record, destination->run);
        } else if (pending_record->is_dead_letter) {
            qsi_dead_letter_pass_on(store, queue, destination->run);
        }
        destination->run = NULL;
        store->stats.routed += count;
        qsi_note_growth(store, queue);
        qsi_signal_consumers(store, qsi_owner_of(queue));
    }
    return refused;
}

static void mark_bodies(struct qs_store *store, const struct pending_record *pending_record)
{
    for (uint32_t k = 0; pending_record->journalled && k < pending_record->place_count; k++) {
        qsi_message_store_mark(store->messages, &pending_record->places[k]);
    }
}

static void tell(struct qs_store *store, uint64_t lsn) QSI_REQUIRES(qsi_store_mutex)
{
    if (lsn != 0) {
        qsi_commit_kick(store);
    }
    qsi_pager_kick(store);
    qsi_events_announce(store);
}

uint64_t qsi_pending_records_accept_group(struct qs_store *store,
                                          struct pending_records *pending_records, bool goes_on)
{
    uint64_t lsn = 0;
    uint32_t journalled = 0; /* that are still to come */

    for (uint32_t i = 0; i < pending_records->count; i++) {
        journalled += pending_records->items[i].journalled ? 1 : 0;
    }
    for (uint32_t i = 0; i < pending_records->count; i++) {
        struct pending_record *pending_record = &pending_records->items[i];
        (void)push(store, pending_record, NULL);
        mark_bodies(store, pending_record);
        if (pending_record->journalled) {
            journalled -= 1;
            lsn = qsi_store_append(store, pending_record->chunk, 0, pending_record->chunk->used, 1,
                                   goes_on || journalled > 0);
        }
    }
    tell(store, goes_on ? 0 : lsn);
    return lsn;
}

uint64_t qsi_pending_records_accept(struct qs_store *store, struct pending_records *pending_records,
                                    struct refusals *refusals)
{
    uint64_t lsn = 0;

    for (uint32_t i = 0; i < pending_records->count; i++) {
        struct pending_record *pending_record = &pending_records->items[i];
        struct qsi_chunk *settles = refusals != NULL ? refusals->settles : NULL;
        uint64_t from = settles != NULL ? settles->used : 0;
        uint32_t refused = push(store, pending_record, refusals);
        mark_bodies(store, pending_record);
        if (pending_record->journalled) {
            lsn = qsi_store_append(store, pending_record->chunk, 0, pending_record->chunk->used, 1,
                                   refused > 0);
        }
        if (refused > 0) {
            lsn = qsi_store_append(store, settles, from, settles->used - from, refused, false);
        }
    }
    tell(store, lsn);
    return lsn;
}
