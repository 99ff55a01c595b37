/* The removal list: messages that are out, as if delivered, until a thread drains the list. */
#include "check.h"
#include "limits.h"

qs_status qsi_reserve_removals(struct qs_store *store, uint32_t stretch_count)
{
    struct qsi_removals *removals = &store->removals;
    uint8_t *room;

    QS_TRY(qsi_unacked_reserve(&removals->internal_channel->unacked, stretch_count));
    return qsi_buf_reserve(&removals->fresh, stretch_count * sizeof(struct qsi_removal), &room);
}

void qsi_add_removal(struct qs_store *store, struct qsi_store_queue *queue,
                     const struct qsi_stretch *stretch, enum qsi_reason reason)
{
    struct qsi_removals *removals = &store->removals;
    struct qsi_removal removal = {.reason = reason};
    struct qsi_removal *last = NULL;

    QS_DCHECK(stretch->count > 0);
    removal.first_tag =
        qsi_unacked_add(&removals->internal_channel->unacked, &queue->container, stretch, NULL);
    removal.last_tag = removal.first_tag + stretch->count - 1;
    QS_DCHECK(removal.first_tag <= removal.last_tag);
    if (removals->fresh.bytes > 0) {
        last = (struct qsi_removal *)(void *)(removals->fresh.data + removals->fresh.bytes) - 1;
    }
    if (last != NULL && last->reason == reason && last->last_tag + 1 == removal.first_tag) {
        last->last_tag = removal.last_tag;
    } else if (qsi_buf_append(&removals->fresh, &removal, sizeof removal) != QS_OK) {
        QS_ASSERT(false); /* room was reserved */
    }
}
