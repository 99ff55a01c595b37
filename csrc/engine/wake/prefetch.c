/* Consumers that acknowledge none of what they have, while their queues grow. */
#include "prefetch.h"

bool qsi_consumer_is_slow(const struct qsi_store_consumer *consumer)
{
    QS_ASSERT_HELD(&consumer->channel->store->mutex);
    return consumer->queue != NULL && qsi_consumer_is_used_up(consumer) &&
           qsi_ready_count(consumer->queue) >= consumer->full_ready + consumer->prefetch;
}

uint64_t qsi_slow_count(struct qs_store *store)
{
    uint64_t found = 0;
    struct qsi_list *next;

    QS_ASSERT_HELD(&store->mutex);
    for (struct qsi_list *node = store->watch.full.next; node != &store->watch.full; node = next) {
        const struct qsi_store_consumer *consumer =
            QSI_LIST_OWNER(node, const struct qsi_store_consumer, in_full);
        next = node->next;
        if (!qsi_consumer_is_used_up(consumer)) {
            qsi_list_remove(node);
        }
        found += qsi_consumer_is_slow(consumer);
    }
    return found;
}
