/* How fast queues move, and how much memory that gives them. */
#ifndef QSI_RATES_H
#define QSI_RATES_H

#include "store.h"
#include "thread_safety.h"

void qsi_update_rates(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex);
/* Called once a second by the pager: samples queues that moved, so that rates are right whenever
 * they are read. */
void qsi_sample_rates(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
static inline double qsi_rate(const struct qsi_store_queue *queue, double sum)
    QSI_REQUIRES(qsi_store_mutex)
{
    return queue->rate_weight > 0 ? sum / queue->rate_weight : 0;
}
/* RabbitMQ's rule: how many messages each queue may keep in memory, by how fast it moves.  Updates
 * the targets that target_ram_count returns; for_pager: as far as paging needs it. */
void qsi_update_targets(struct qs_store *store, bool for_pager) QSI_REQUIRES(qsi_store_mutex);
/* From the last update, with the queue's present rates; infinity: memory is not short. */
double qsi_target_ram_count(const struct qs_store *store, const struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex);

#endif
