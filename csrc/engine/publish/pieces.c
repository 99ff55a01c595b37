/* Pieces: encoded records between publish and accept. */
#include "alloc.h"
#include "check.h"
#include "clock.h"
#include "commit.h"
#include "error.h"
#include "levels.h"
#include "limits.h"
#include "pager.h"
#include "publish.h"
#include "turns.h"
#include "wake.h"

#include <string.h>

struct piece *qsi_pieces_add(struct pieces *pieces)
{
    if (pieces->count == pieces->capacity) {
        uint32_t capacity = pieces->capacity == 0 ? 4 : pieces->capacity * 2;
        struct piece *grown = qsi_realloc(pieces->items, capacity * sizeof *grown);
        if (grown == NULL) {
            return NULL;
        }
        pieces->items = grown;
        pieces->capacity = capacity;
    }
    memset(&pieces->items[pieces->count], 0, sizeof pieces->items[0]);
    return &pieces->items[pieces->count++];
}

void qsi_pieces_note_bytes(struct pieces *pieces, const struct piece *piece)
{
    if (piece->journalled) {
        pieces->journal_bytes += piece->chunk->used;
        pieces->entry_bytes_max = piece->chunk->used > pieces->entry_bytes_max
                                      ? piece->chunk->used
                                      : pieces->entry_bytes_max;
    }
}

void qsi_pieces_fini(struct pieces *pieces, struct qsi_message_store *messages)
{
    for (uint32_t i = 0; i < pieces->count; i++) {
        struct piece *piece = &pieces->items[i];
        for (uint32_t k = 0; k < piece->destination_count; k++) {
            qsi_run_destroy(piece->destinations[k].run);
        }
        for (uint32_t k = 0; k < piece->place_count; k++) {
            qsi_message_store_abandon(messages, &piece->places[k]);
        }
        qsi_free(piece->destinations);
        qsi_free(piece->places);
        qsi_chunk_unref(piece->chunk);
    }
    qsi_free(pieces->items);
    memset(pieces, 0, sizeof *pieces);
}

/* Of all levels: what is to come is asked of them together. */
static void forget_reserving(struct store_queue *queue)
{
    struct store_queue *owner = qsi_owner_of(queue);

    for (uint32_t i = 0; i < qsi_level_count(owner); i++) {
        struct qsi_queue *core = &qsi_level_at(owner, i)->core;
        qsi_queue_expect_nothing(core);
    }
}

/* How many messages each queue is to get of all the pieces. */
static void count_messages(struct qs_store *store, const struct pieces *pieces)
{
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < pieces->count; i++) {
            const struct piece *piece = &pieces->items[i];
            for (uint32_t k = 0; k < piece->destination_count; k++) {
                struct store_queue *queue = qsi_find_by_id(store, piece->destinations[k].queue_id);
                const struct qsi_run *run = piece->destinations[k].run;
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
static qs_status make_levels(struct qs_store *store, const struct pieces *pieces, qs_error *error)
{
    for (uint32_t i = 0; i < pieces->count; i++) {
        const struct piece *piece = &pieces->items[i];
        for (uint32_t k = 0; k < piece->destination_count; k++) {
            uint64_t id = piece->destinations[k].queue_id;
            struct store_queue *level;
            if (QS_UNLIKELY(qsi_level_in(id) != 0)) {
                QS_TRY(qsi_require_by_id(store, id, &level, error));
            }
        }
    }
    return QS_OK;
}

qs_status qsi_pieces_reserve(struct qs_store *store, const struct pieces *pieces,
                             uint32_t extra_entries, qs_error *error)
{
    QS_TRY(make_levels(store, pieces, error));
    count_messages(store, pieces);
    for (uint32_t i = 0; i < pieces->count; i++) {
        const struct piece *piece = &pieces->items[i];
        for (uint32_t k = 0; k < piece->destination_count; k++) {
            struct store_queue *queue = qsi_find_by_id(store, piece->destinations[k].queue_id);
            const struct qsi_run *run = piece->destinations[k].run;
            if (queue != NULL &&
                qsi_container_reserve(&queue->container, pieces->count,
                                      qsi_queue_coming(&queue->core)->messages,
                                      !run->journalled || run->has_transient) != QS_OK) {
                return no_memory(queue, error);
            }
            if (queue != NULL && (piece->has_expiration || piece->has_due) &&
                qsi_container_reserve_times(&queue->container, piece->chunk->data,
                                            qsi_queue_coming(&queue->core)->messages) != QS_OK) {
                return no_memory(queue, error);
            }
        }
    }
    if (qsi_journal_reserve(store->journal, pieces->count + extra_entries) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "journal");
    }
    return QS_OK;
}

/* Messages that expire are told when they were published. */
static void stamp(struct qs_store *store, const struct piece *piece)
{
    bool expires = piece->has_expiration;

    for (uint32_t i = 0; !expires && i < piece->destination_count; i++) {
        const struct store_queue *queue = qsi_find_by_id(store, piece->destinations[i].queue_id);
        expires = queue != NULL && qsi_policy_has_ttl(&queue->policy);
    }
    if (expires) {
        qsi_messages_put_time(piece->chunk->data, qsi_clock_us(store));
    }
}

/* refusals NULL: no queue refuses any.  Returns how many records refusals have got. */
static uint32_t push(struct qs_store *store, struct piece *piece, struct refusals *refusals)
{
    uint32_t refused = 0;

    stamp(store, piece);
    for (uint32_t i = 0; i < piece->destination_count; i++) {
        struct piece_destination *destination = &piece->destinations[i];
        struct store_queue *queue = qsi_find_by_id(store, destination->queue_id);
        uint32_t count = destination->run->count;
        uint64_t seq;
        if (queue == NULL) {
            continue; /* deleted meanwhile; fini frees the run */
        }
        seq = qsi_container_append(&queue->container, destination->run);
        qsi_messages_put_destination(piece->chunk->data, i, destination->queue_id, seq, count);
        if (refusals != NULL && qsi_queue_refuses(queue)) {
            refused += qsi_refusals_take(refusals, store, queue, piece, destination->run);
        } else if (piece->is_letter) {
            qsi_letter_pass_on(store, queue, destination->run);
        }
        destination->run = NULL;
        store->stats.routed += count;
        qsi_note_growth(store, queue);
        qsi_ring_consumers(store, qsi_owner_of(queue));
    }
    return refused;
}

static void mark_bodies(struct qs_store *store, const struct piece *piece)
{
    for (uint32_t k = 0; piece->journalled && k < piece->place_count; k++) {
        qsi_message_store_mark(store->messages, &piece->places[k]);
    }
}

static void tell(struct qs_store *store, uint64_t lsn)
{
    if (lsn != 0) {
        qsi_commit_kick(store);
    }
    qsi_pager_kick(store);
    qsi_events_announce(store);
}

uint64_t qsi_pieces_accept_group(struct qs_store *store, struct pieces *pieces, bool goes_on)
{
    uint64_t lsn = 0;
    uint32_t journalled = 0; /* that are still to come */

    for (uint32_t i = 0; i < pieces->count; i++) {
        journalled += pieces->items[i].journalled ? 1 : 0;
    }
    for (uint32_t i = 0; i < pieces->count; i++) {
        struct piece *piece = &pieces->items[i];
        (void)push(store, piece, NULL);
        mark_bodies(store, piece);
        if (piece->journalled) {
            journalled -= 1;
            lsn = qsi_store_append(store, piece->chunk, 0, piece->chunk->used, 1,
                                   goes_on || journalled > 0);
        }
    }
    tell(store, goes_on ? 0 : lsn);
    return lsn;
}

uint64_t qsi_pieces_accept(struct qs_store *store, struct pieces *pieces, struct refusals *refusals)
{
    uint64_t lsn = 0;

    for (uint32_t i = 0; i < pieces->count; i++) {
        struct piece *piece = &pieces->items[i];
        struct qsi_chunk *settles = refusals != NULL ? refusals->settles : NULL;
        uint64_t from = settles != NULL ? settles->used : 0;
        uint32_t refused = push(store, piece, refusals);
        mark_bodies(store, piece);
        if (piece->journalled) {
            lsn = qsi_store_append(store, piece->chunk, 0, piece->chunk->used, 1, refused > 0);
        }
        if (refused > 0) {
            lsn = qsi_store_append(store, settles, from, settles->used - from, refused, false);
        }
    }
    tell(store, lsn);
    return lsn;
}
