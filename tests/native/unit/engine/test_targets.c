/* Rates and targets are right at the moment at which somebody asks, by the store's clock, and a
 * queue that may have nothing in memory has nothing there once it rests. */
#include "engine_fixture.h"
#include "pager_steps.h"

#include <math.h>

#define BUDGET (1u << 20)
#define BODY_BYTES 1000

static void start_small(struct engine *engine)
{
    engine_init(engine, IN_MEMORY);
    engine->options.memory_budget = BUDGET;
    engine->options.checkpoint_bytes = 0;
    engine->options.checkpoint_interval_ms = 0;
    engine->options.segment_entries = 1024;
    engine_open(engine);
}

QS_TEST_FIXTURE(run_small, struct engine, start_small(&fixture), engine_stop(&fixture))
#define SMALL_TEST(name) QS_TEST_BY(run_small, name, (struct engine * engine))

static void publish_count(struct engine *engine, const char *queue, uint32_t count)
{
    QS_TEST_FREED char *body = make_body(BODY_BYTES, 1);

    for (uint32_t i = 0; i < count; i++) {
        publish(engine, queue, body);
    }
}

static void take_count(struct engine *engine, const char *queue, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        qs_message message;
        QS_CHECK_OK(qs_channel_get(engine->channel, text(queue), QS_NO_ACK, &message, QS_ERROR));
        QS_CHECK(message.delivery_tag > 0);
        qs_message_release(&message);
    }
}

static qs_queue_status status_of(struct engine *engine, const char *queue)
{
    qs_queue_status status;

    QS_CHECK_OK(qs_store_queue_status(engine->store, text(queue), &status, QS_ERROR));
    return status;
}

/* What the pager's thread does until there is nothing left to do. */
static void page(struct engine *engine)
{
    qsi_mutex_lock(&engine->store->mutex);
    while (qsi_pager_page_lazy(engine->store) || qsi_pager_step(engine->store)) {
    }
    qsi_mutex_unlock(&engine->store->mutex);
}

/* The clock of the test goes on by a microsecond for each question. */
static bool is_near(double one, double other)
{
    return fabs(one - other) <= 0.05 * other;
}

static void test_rates_were_zero_until_a_tenth_of_a_second_had_passed(uint64_t step_ns)
{
    struct engine engine;

    start_small(&engine);
    declare(&engine, "q", QS_DURABLE);
    for (uint32_t i = 1; i <= 20; i++) {
        qs_queue_status status;
        publish_count(&engine, "q", 10);
        take_count(&engine, "q", 1);
        qsi_env_mem_advance(engine.memory, step_ns);
        status = status_of(&engine, "q");
        QS_CHECK(is_near(status.ingress_rate, 10e9 / (double)step_ns));
        QS_CHECK(is_near(status.egress_rate, 1e9 / (double)step_ns));
    }
    engine_stop(&engine);
}

/* What one queue may keep by the rule, of which all in memory is an alpha: memory over the sum of
 * the average rates of what comes in and goes out, acks among both, for as long as memory lasts. */
static double target_of(struct engine *engine, const qs_queue_status *status)
{
    double rates = status->ingress_rate + 3 * status->egress_rate; /* each is acked at once */
    double ratio = (double)stats_of(engine).ram_bytes / BUDGET;
    double duration = (double)status->alpha / (4 * rates);

    return trunc((duration + (ratio < 0.95 ? 1 : 0)) / ratio * rates);
}

/* It was the one of the pager's last step, which is made while memory is short. */
SMALL_TEST(test_target_of_a_drained_queue_stayed_finite)
{
    qs_queue_status status;

    declare(engine, "q", QS_DURABLE);
    QS_CHECK(isinf(status_of(engine, "q").target_ram_count));
    publish_count(engine, "q", 100);
    qsi_env_mem_advance(engine->memory, SECOND);
    QS_CHECK(isinf(status_of(engine, "q").target_ram_count)); /* there is memory for all */
    publish_count(engine, "q", 500);
    for (uint32_t i = 0; i < 4; i++) { /* true each time, whether or not time passes */
        QS_CHECK(stats_of(engine).ram_bytes > BUDGET / 2);
        status = status_of(engine, "q");
        QS_CHECK(status.alpha == status.messages_ready && status.target_ram_count > 0);
        QS_CHECK(fabs(status.target_ram_count - target_of(engine, &status)) <= 1);
        publish_count(engine, "q", 20);
        take_count(engine, "q", 2);
        qsi_env_mem_advance(engine->memory, i % 2 * 30000000);
    }
    page(engine);
    take_count(engine, "q", (uint32_t)status_of(engine, "q").messages_ready);
    status = status_of(engine, "q");
    QS_CHECK(isinf(status.target_ram_count) && status.ingress_rate > 0);
}

/* Whatever else memory is used for; and without anything that moves the target is 0. */
SMALL_TEST(test_queue_with_a_target_of_zero_rests_without_alphas)
{
    qs_queue_status status;

    declare(engine, "q", QS_DURABLE);
    publish_count(engine, "q", 100);
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    qsi_budget_add(engine->store->budget, BUDGET / 10 * 6);
    status_of(engine, "q");
    qsi_env_mem_advance(engine->memory, 60 * SECOND);
    status = status_of(engine, "q");
    QS_CHECK(status.target_ram_count == 0 && status.alpha == 100);
    page(engine);
    status = status_of(engine, "q");
    QS_CHECK(status.target_ram_count == 0 && status.alpha == 0 && status.messages_ready == 100);
    qsi_budget_sub(engine->store->budget, BUDGET / 10 * 6);
    QS_CHECK(isinf(status_of(engine, "q").target_ram_count));
    take_count(engine, "q", 100);
}

/* They were read for a consumer, who stayed away. */
SMALL_TEST(test_alphas_of_a_lazy_queue_stayed_when_its_consumer_had_gone)
{
    qs_test_declare_with(engine->channel, "q", QS_DURABLE, "x-queue-mode=lazy");
    publish_count(engine, "q", 300);
    QS_CHECK(status_of(engine, "q").alpha == 0);
    for (uint32_t turn = 0; turn < 3; turn++) {
        take_count(engine, "q", 10);
        page(engine);
        QS_CHECK(status_of(engine, "q").alpha > 0); /* the consumer comes again */
        qsi_env_mem_advance(engine->memory, 2 * SECOND);
        page(engine);
        QS_CHECK(status_of(engine, "q").alpha == 0);
        QS_CHECK(status_of(engine, "q").target_ram_count == 0);
    }
    take_count(engine, "q", 270);
}

int main(void)
{
    test_rates_were_zero_until_a_tenth_of_a_second_had_passed(SECOND / 1000);
    test_rates_were_zero_until_a_tenth_of_a_second_had_passed(SECOND / 20);
    test_rates_were_zero_until_a_tenth_of_a_second_had_passed(SECOND);
    qs_test_run_all();
    return 0;
}
