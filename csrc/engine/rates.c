/* How fast queues move, and what part of the memory that earns them. */
#include "engine.h"

#include <math.h>

#define RATE_HALF_LIFE_S 5.0
#define RATE_INTERVAL_NS 100000000u
#define IDLE_RATE 0.01    /* messages a second: below, a queue does not move */
#define PAGING_RATIO 0.5  /* of the budget: from there on targets are finite */
#define RATIO_GENTLE 0.95 /* RabbitMQ's: below this use, targets are rounded up */

/* Exponentially weighted, with RabbitMQ's half-life. */
static double blend(double old, double sample, double seconds)
{
    double weight = pow(0.5, seconds / RATE_HALF_LIFE_S);

    return sample * (1.0 - weight) + old * weight;
}

static double rate_of(double old, uint64_t now, uint64_t before, double seconds)
{
    return blend(old, ((double)now - (double)before) / seconds, seconds);
}

void qsi_update_rates(struct qs_store *store, struct store_queue *queue)
{
    uint64_t now = store->env->monotonic_ns(store->env);
    double seconds = (double)(now - queue->rate_at_ns) / 1e9;
    const struct qsi_queue *core = &queue->core;

    if (queue->rate_at_ns != 0 && now - queue->rate_at_ns < RATE_INTERVAL_NS) {
        return;
    }
    if (queue->rate_at_ns != 0) {
        queue->ingress_rate = rate_of(queue->ingress_rate, core->in_count, queue->rate_in, seconds);
        queue->egress_rate =
            rate_of(queue->egress_rate, core->taken_count, queue->rate_out, seconds);
        queue->ack_rate =
            rate_of(queue->ack_rate, core->settled_count, queue->rate_settled, seconds);
    }
    queue->rate_at_ns = now;
    queue->rate_in = core->in_count;
    queue->rate_out = core->taken_count;
    queue->rate_settled = core->settled_count;
}

/* Of messages in and out, and of those that wait for an ack: in when they go out, out when they are acked. */
static double sum_of_rates(const struct store_queue *queue)
{
    return queue->ingress_rate + 2 * queue->egress_rate + queue->ack_rate;
}

/* For how many seconds what the queue has in memory would last; infinity when it does not move. */
static double duration_of(const struct store_queue *queue)
{
    double rates = sum_of_rates(queue);

    return rates < IDLE_RATE ? INFINITY : (double)queue->core.ram_count / (4 * rates);
}

static double target_duration(struct qs_store *store)
{
    double ratio = (double)qsi_budget_bytes(store->budget) / (double)store->options.memory_budget;
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);
    double sum = 0;
    uint64_t count = 0;

    if (ratio < PAGING_RATIO) {
        return INFINITY;
    }
    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        struct store_queue *queue = cursor.value;
        double duration;
        qsi_update_rates(store, queue);
        duration = duration_of(queue);
        if (!isinf(duration)) {
            sum += duration;
            count += 1;
        }
    }
    if (count == 0) {
        return 0; /* nobody moves: nobody needs what is in memory */
    }
    return (ratio < RATIO_GENTLE ? (sum + 1) / (double)count : sum / (double)count) / ratio;
}

void qsi_update_targets(struct qs_store *store)
{
    double target = target_duration(store);
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);

    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        struct store_queue *queue = cursor.value;
        queue->target_ram_count = queue->lazy     ? 0
                                  : isinf(target) ? INFINITY
                                                  : trunc(target * sum_of_rates(queue));
    }
}
