/* How fast queues move, and what part of the memory that earns them. */
#ifndef QSI_RATES_H
#define QSI_RATES_H

#include "store.h"
#include "thread_safety.h"

void qsi_update_rates(struct qs_store *store, struct store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex);
/* Once a second, by the pager: queues that moved are sampled, so that rates are right whenever
 * somebody looks. */
void qsi_sample_rates(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
static inline double qsi_rate(const struct store_queue *queue, double sum)
    QSI_REQUIRES(qsi_store_mutex)
{
    return queue->rate_weight > 0 ? sum / queue->rate_weight : 0;
}
/* RabbitMQ's rule: how many messages each queue may keep in memory, by how fast it moves. */
void qsi_update_targets(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

#endif
