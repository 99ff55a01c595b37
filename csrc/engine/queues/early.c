/* Confirms ahead of the disk.  One entry of the journal at a time, because an entry is in one
 * block: notes about the last entry are stale as soon as another one has begun. */
#include "early.h"

#include "alloc.h"
#include "check.h"
#include "journal.h"
#include "notify.h"
#include "priorities.h"

#include <string.h>

#define MESSAGES_MAX 64u
#define COPIES_MAX 128u
#define SLOTS 512u    /* a power of two, and some times as many as copies */
#define READY_MAX 64u /* in a longer queue no message is likely to be consumed before its commit */

struct early_copy {
    uint64_t container_id; /* 0: none */
    uint64_t seq;
    uint32_t message;
};

struct early_message {
    struct qs_channel *channel; /* NULL: it is gone */
    uint64_t number;
    uint32_t copies_left;
};

struct early {
    uint64_t entry; /* the entry in which all of them are */
    uint32_t message_count, copy_count, done_count;
    struct early_message messages[MESSAGES_MAX];
    uint32_t done[MESSAGES_MAX]; /* acknowledged everywhere, and not confirmed yet */
    struct early_copy slots[SLOTS];
};

/* The copy, or the free slot where it would be.  There are more slots than copies. */
static struct early_copy *find(struct early *early, uint64_t container_id, uint64_t seq)
{
    uint64_t hash = (container_id + seq * UINT64_C(0x9e3779b97f4a7c15)) >> 32;
    struct early_copy *slot = &early->slots[hash % SLOTS];

    while (slot->container_id != 0 && (slot->container_id != container_id || slot->seq != seq)) {
        slot = slot + 1 == early->slots + SLOTS ? early->slots : slot + 1;
    }
    return slot;
}

/* That of the last entry; NULL: there is no memory. */
static struct early *begin(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t entry = qsi_journal_last_entry(store->journal);
    struct early *early = store->commit.early;

    if (early == NULL) {
        early = store->commit.early = qsi_zalloc(sizeof *early);
    } else if (early->entry != entry && early->copy_count > 0) {
        QS_DCHECK(early->done_count == 0);
        memset(early->slots, 0, sizeof early->slots);
        early->message_count = early->copy_count = 0;
    }
    if (early != NULL) {
        early->entry = entry;
    }
    return early;
}

/* Otherwise nothing is acknowledged, or only other messages. */
static bool is_had_soon(const struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_takes(queue) && qsi_appends(queue) && (queue->flags & QS_DURABLE) != 0 &&
           queue->consumer_count > 0 && qsi_ready_count(queue) <= READY_MAX;
}

void qsi_early_record(struct qs_channel *channel, const struct qsi_route *route, uint8_t priority,
                      uint64_t number)
{
    struct early *early;

    QS_ASSERT_HELD(&channel->store->mutex);
    for (uint32_t i = 0; i < route->count; i++) {
        if (!is_had_soon(qsi_queue_of(route->destinations[i]))) {
            return;
        }
    }
    early = begin(channel->store);
    if (early == NULL || early->message_count == MESSAGES_MAX ||
        early->copy_count + route->count > COPIES_MAX) {
        return;
    }
    for (uint32_t i = 0; i < route->count; i++) {
        const struct qsi_container *container =
            qsi_subqueue_of(qsi_queue_of(route->destinations[i]), priority)->messages;
        struct early_copy *slot = find(early, container->id, container->next_seq - 1);
        QS_DCHECK(slot->container_id == 0); /* no route leads to a queue twice */
        *slot = (struct early_copy){container->id, container->next_seq - 1, early->message_count};
    }
    early->copy_count += route->count;
    early->messages[early->message_count++] = (struct early_message){channel, number, route->count};
}

void qsi_early_acknowledged(struct qs_store *store, uint64_t container_id, uint64_t word_seq,
                            uint64_t mask)
{
    struct early *early = store->commit.early;

    QS_ASSERT_HELD(&store->mutex);
    if (early->copy_count == 0 || early->entry != qsi_journal_last_entry(store->journal)) {
        return;
    }
    for (; mask != 0; mask &= mask - 1) {
        const struct early_copy *copy =
            find(early, container_id, word_seq + (uint32_t)__builtin_ctzll(mask));
        struct early_message *message;
        if (copy->container_id == 0) {
            continue;
        }
        message = &early->messages[copy->message];
        QS_DCHECK(message->copies_left > 0);
        message->copies_left -= 1;
        if (message->copies_left == 0) {
            early->done[early->done_count++] = copy->message;
        }
    }
}

static void confirm(struct qs_channel *channel, uint64_t number) QSI_REQUIRES(qsi_store_mutex)
{
    if (qsi_confirms_early(&channel->confirms, number) &&
        (channel->armed_kinds & (QS_EVENT_ACK | QS_EVENT_NACK)) != 0) {
        qsi_channel_notify(channel);
    }
}

void qsi_early_confirm(struct qs_store *store)
{
    struct early *early = store->commit.early;

    QS_ASSERT_HELD(&store->mutex);
    if (early->done_count == 0) {
        return;
    }
    if (early->entry == qsi_journal_last_entry(store->journal)) { /* the acks are in it */
        for (uint32_t i = 0; i < early->done_count; i++) {
            const struct early_message *message = &early->messages[early->done[i]];
            if (message->channel != NULL) {
                confirm(message->channel, message->number);
            }
        }
        qsi_events_notify(store);
    }
    early->done_count = 0;
}

void qsi_early_forget(struct qs_channel *channel)
{
    struct early *early = channel->store->commit.early;

    QS_ASSERT_HELD(&channel->store->mutex);
    for (uint32_t i = 0; early != NULL && i < early->message_count; i++) {
        if (early->messages[i].channel == channel) {
            early->messages[i].channel = NULL;
        }
    }
}

void qsi_early_fini(struct qs_store *store)
{
    qsi_free(store->commit.early);
    store->commit.early = NULL;
}
