/* How fast queues move, and how much memory that gives them. */
#include "rates.h"

#include "pager.h"
#include "queue_life.h"
#include "thread_safety.h"

#include <math.h>

#define RATE_HALF_LIFE_S 5.0
#define SAMPLE_NS 1000000000u
#define FORGET_S (6 * RATE_HALF_LIFE_S) /* a queue that moves again after that begins anew */
#define IDLE_RATE 0.01                  /* messages a second: below, a queue does not move */
#define TARGETS_NS 100000000u           /* the greatest age of targets */
#define FEW_QUEUES 64u                  /* so many queues are all looked at for each answer */
#define LOOK_NS 1000u                   /* of more, one in this time */
#define RATIO_GENTLE 0.95               /* RabbitMQ's: below this use, targets are rounded up */

/* ---- samples ---- */

/* Exponentially weighted, with RabbitMQ's half-life.  The sum begins at 0 and would be too low for
 * half a minute, so the weights so far are summed up as well. */
static void blend(struct qsi_store_queue *queue, double in, double out, double settled,
                  double seconds) QSI_REQUIRES(qsi_store_mutex)
{
    double old, weight;

    if (seconds <= 0) {
        return;
    }
    old = pow(0.5, seconds / RATE_HALF_LIFE_S);
    weight = (1.0 - old) / seconds;
    queue->ingress_sum = queue->ingress_sum * old + in * weight;
    queue->egress_sum = queue->egress_sum * old + out * weight;
    queue->ack_sum = queue->ack_sum * old + settled * weight;
    queue->rate_weight = queue->rate_weight * old + weight * seconds;
}

/* Nothing moved for that time. */
static void rest(struct qsi_store_queue *queue, double seconds) QSI_REQUIRES(qsi_store_mutex)
{
    if (seconds < FORGET_S) {
        blend(queue, 0, 0, 0, seconds);
    } else {
        queue->rate_weight = queue->ingress_sum = queue->egress_sum = queue->ack_sum = 0;
    }
}

static bool has_moved(const struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    return queue->messages->in_count != queue->rate_in ||
           queue->container.taken_count != queue->rate_out ||
           queue->container.settled_count != queue->rate_settled;
}

/* The store's last sample found no change in a queue that was not sampled then. */
static void sample(const struct qs_store *store, struct qsi_store_queue *queue, uint64_t now)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_queue *core = &queue->core;
    uint64_t from = queue->rate_at_ns;

    if (store->paging.rates_at_ns > from) {
        rest(queue, (double)(store->paging.rates_at_ns - from) / 1e9);
        from = store->paging.rates_at_ns;
    }
    if (!has_moved(queue)) {
        rest(queue, (double)(now - from) / 1e9);
    } else {
        blend(queue, (double)queue->messages->in_count - (double)queue->rate_in,
              (double)core->container.taken_count - (double)queue->rate_out,
              (double)core->container.settled_count - (double)queue->rate_settled,
              (double)(now - from) / 1e9);
    }
    qsi_record_rates(queue, now);
}

void qsi_update_rates(struct qs_store *store, struct qsi_store_queue *queue)
{
    uint64_t now = store->env->monotonic_ns(store->env);

    QS_ASSERT_HELD(&store->mutex);
    if (now > queue->rate_at_ns) { /* a sample counts as its time, however short */
        sample(store, queue, now);
    }
}

/* Everything that moves a queue, summed up. */
static uint64_t movement(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    return store->stats.routed + store->stats.delivered + store->stats.acked +
           store->stats.requeued + store->stats.expired + qsi_journal_appended_lsn(store->journal);
}

void qsi_sample_rates(struct qs_store *store)
{
    uint64_t now = store->env->monotonic_ns(store->env), moved = movement(store);
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);

    QS_ASSERT_HELD(&store->mutex);
    if (now - store->paging.rates_at_ns < SAMPLE_NS) {
        return;
    }
    while (moved != store->paging.rates_moved && qsi_map_next(&store->queues_by_id, &cursor)) {
        struct qsi_store_queue *queue = cursor.value;
        if (has_moved(queue)) {
            sample(store, queue, now);
        }
    }
    store->paging.rates_moved = moved;
    store->paging.rates_at_ns = now;
}

/* ---- targets ---- */

/* Of messages in and out, and of those that wait for an ack: in when they are delivered, out when
 * they are acked. */
static double sum_of_rates(const struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_rate(queue, queue->ingress_sum + 2 * queue->egress_sum + queue->ack_sum);
}

/* The seconds for which the queue's content in memory would last; infinity if it does not move. */
static double duration_of(const struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    double rates = sum_of_rates(queue);

    return rates < IDLE_RATE ? INFINITY : (double)queue->container.ram_count / (4 * rates);
}

/* Streams' content in memory is paged first, however fast they move. */
static double target_duration(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    double ratio = (double)qsi_pager_memory_used(store) / (double)store->options.memory_budget;
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);
    double sum = 0;
    uint64_t count = 0;

    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        struct qsi_store_queue *queue = cursor.value;
        double duration;
        qsi_update_rates(store, queue);
        duration = qsi_takes(queue) ? duration_of(queue) : INFINITY;
        if (!isinf(duration)) {
            sum += duration;
            count += 1;
        }
    }
    if (count == 0) {
        return 0; /* no queue moves: none needs its content in memory */
    }
    return (ratio < RATIO_GENTLE ? (sum + 1) / (double)count : sum / (double)count) / ratio;
}

/* With many queues a look at all of them takes long: its result then serves for a while. */
static uint64_t look_ns(const struct qs_store *store, bool for_pager) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t count = store->queues_by_id.count;

    if (for_pager || count > TARGETS_NS / LOOK_NS) {
        return TARGETS_NS;
    }
    return count < FEW_QUEUES ? 0 : count * LOOK_NS;
}

void qsi_update_targets(struct qs_store *store, bool for_pager)
{
    struct qsi_paging *paging = &store->paging;
    uint64_t now = store->env->monotonic_ns(store->env);

    QS_ASSERT_HELD(&store->mutex);
    if (qsi_pager_memory_used(store) <= qsi_pager_low_mark(store)) {
        paging->has_targets = false;
    } else if (!paging->has_targets || now - paging->targets_at_ns >= look_ns(store, for_pager)) {
        paging->has_targets = true;
        paging->targets_at_ns = now;
        paging->target_duration = target_duration(store);
    }
}

double qsi_target_ram_count(const struct qs_store *store, const struct qsi_store_queue *queue)
{
    QS_ASSERT_HELD(&store->mutex);
    if (queue->lazy) {
        return 0;
    }
    if (!store->paging.has_targets) {
        return INFINITY;
    }
    return qsi_takes(queue) ? trunc(store->paging.target_duration * sum_of_rates(queue)) : 0;
}
