/* The removal list: messages that are out, as if delivered, until somebody drains the list. */
#include "check.h"
#include "limits.h"

qs_status qsi_depart_reserve(struct qs_store *store, uint32_t stretch_count)
{
    struct departures *departures = &store->departures;
    uint8_t *room;

    QS_TRY(qsi_unacked_reserve(&departures->holder->unacked, stretch_count));
    return qsi_buf_reserve(&departures->fresh, stretch_count * sizeof(struct departure), &room);
}

void qsi_depart(struct qs_store *store, struct store_queue *queue,
                const struct qsi_stretch *stretch, enum qsi_reason reason)
{
    struct departures *departures = &store->departures;
    struct departure departure = {.reason = reason};
    struct departure *last = NULL;

    departure.first_tag =
        qsi_unacked_add(&departures->holder->unacked, &queue->core, stretch, NULL);
    departure.last_tag = departure.first_tag + stretch->count - 1;
    if (departures->fresh.bytes > 0) {
        last = (struct departure *)(void *)(departures->fresh.data + departures->fresh.bytes) - 1;
    }
    if (last != NULL && last->reason == reason && last->last_tag + 1 == departure.first_tag) {
        last->last_tag = departure.last_tag;
    } else if (qsi_buf_append(&departures->fresh, &departure, sizeof departure) != QS_OK) {
        QS_ASSERT(false); /* room was reserved */
    }
}
