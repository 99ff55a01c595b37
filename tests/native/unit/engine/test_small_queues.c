/* Many small queues beside large ones: a checkpoint carries the small ones in its own file, and
 * gives the others files of their own. */
#include "backlog.h"
#include "engine_fixture.h"
#include "store.h"

enum { QUEUES = 800, MESSAGES = 8, BODY_BYTES = 100, LARGE_MESSAGES = 6000 };
#define CHECKPOINT_BYTES (16u << 20) /* small is a queue with up to 4 KiB; else 1 MiB is carried */

static const char *small(int queue)
{
    static char name[16];

    snprintf(name, sizeof name, "small-%d", queue);
    return name;
}

/* What a message says of itself, padded to the length of a body. */
static const char *body_of(int queue, int message)
{
    static char body[BODY_BYTES + 1];
    int length = snprintf(body, sizeof body, "%d/%d ", queue, message);

    memset(body + length, 'x', (size_t)(BODY_BYTES - length));
    return body;
}

static void checkpoint(struct engine *engine)
{
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
}

static void publish_small(struct engine *engine, int message)
{
    for (int i = 0; i < QUEUES; i++) { /* in turn: the messages of no queue lie together */
        publish(engine, small(i), body_of(i, message));
    }
}

static void start(struct engine *engine)
{
    engine_init(engine, IN_MEMORY);
    engine->options.checkpoint_bytes = CHECKPOINT_BYTES;
    engine_open(engine);
    for (int i = 0; i < QUEUES; i++) {
        declare(engine, small(i), QS_DURABLE);
    }
    declare(engine, "large", QS_DURABLE);
    for (int k = 0; k < MESSAGES; k++) {
        publish_small(engine, k);
    }
    for (int k = 0; k < LARGE_MESSAGES; k++) {
        publish(engine, "large", body_of(-1, k));
    }
}

QS_TEST_FIXTURE(run_started, struct engine, start(&fixture), engine_stop(&fixture))
#define QUEUES_TEST(name) QS_TEST_BY(run_started, name, (struct engine * engine))

/* The next message is this one, and is acked. */
static void take(struct engine *engine, const char *queue, const char *body)
{
    qs_message message;

    QS_CHECK_OK(qs_channel_get(engine->channel, text(queue), QS_NO_ACK, &message, QS_ERROR));
    QS_CHECK(holds(message.body, body));
    qs_message_release(&message);
}

static void take_all(struct engine *engine, int from, int to)
{
    for (int i = 0; i < QUEUES; i++) {
        check_counts(engine, small(i), (uint64_t)(to - from), 0);
        for (int k = from; k < to; k++) {
            take(engine, small(i), body_of(i, k));
        }
    }
    for (int k = 0; k < LARGE_MESSAGES; k++) {
        take(engine, "large", body_of(-1, k));
    }
}

static void check_after_crash(struct engine *engine, int from, int to)
{
    struct engine crashed;

    engine_open_crashed(engine, &crashed);
    take_all(&crashed, from, to);
    engine_stop(&crashed);
}

QUEUES_TEST(test_many_small_queues_share_the_checkpoints_file)
{
    uint64_t bodies = (uint64_t)QUEUES * MESSAGES * BODY_BYTES;
    uint64_t bytes, segments;

    checkpoint(engine);
    segments = stats_of(engine).segments_written;
    QS_CHECK(segments > 0 && segments <= LARGE_MESSAGES / 1024 + 1); /* those of the large one */
    bytes = stats_of(engine).bytes_checkpointed;
    QS_CHECK(bytes > bodies && bytes < bodies * 3 / 2);
    check_after_crash(engine, 0, MESSAGES);

    publish_small(engine, MESSAGES);
    for (int i = 0; i < QUEUES; i++) {
        take(engine, small(i), body_of(i, 0));
    }
    checkpoint(engine);
    QS_CHECK(stats_of(engine).segments_written == segments);
    check_after_crash(engine, 1, MESSAGES + 1);
    take_all(engine, 1, MESSAGES + 1);
    checkpoint(engine);
    QS_CHECK(engine->store->space.named_bytes < bodies / 4); /* no messages any more */
}

static qs_status tell_no_space(qs_env *env, qs_dir *dir, uint64_t *total_out, uint64_t *free_out,
                               qs_error *error)
{
    (void)env;
    (void)dir;
    (void)error;
    *total_out = UINT64_C(1) << 40;
    *free_out = 0;
    return QS_OK;
}

/* Files of their own would take more than the checkpoint's does. */
QUEUES_TEST(test_small_queues_are_carried_where_the_disk_is_nearly_full)
{
    engine->env->space = tell_no_space;
    checkpoint(engine);
    QS_CHECK(stats_of(engine).segments_written <= LARGE_MESSAGES / 1024 + 1);
    check_after_crash(engine, 0, MESSAGES);
}

QS_TEST(test_a_queue_that_grows_gets_files_of_its_own)
{
    struct engine engine;
    uint64_t segments;

    start(&engine);
    checkpoint(&engine);
    segments = stats_of(&engine).segments_written;
    for (int k = MESSAGES; k < LARGE_MESSAGES; k++) {
        publish(&engine, small(7), body_of(7, k));
        publish(&engine, small(8), body_of(8, k));
        publish(&engine, small(9), body_of(9, k));
        publish(&engine, small(10), body_of(10, k));
    }
    checkpoint(&engine);
    QS_CHECK(stats_of(&engine).segments_written > segments);
    for (int i = 0; i < 2; i++) {
        struct engine crashed;
        engine_open_crashed(&engine, &crashed);
        for (int k = 0; k < LARGE_MESSAGES; k++) {
            take(&crashed, small(7), body_of(7, k));
            take(&crashed, small(10), body_of(10, k));
        }
        check_counts(&crashed, small(6), MESSAGES, 0);
        engine_stop(&crashed);
        checkpoint(&engine);
    }
    engine_stop(&engine);
}

/* What was carried is more than memory may take: it is paged, queue by queue. */
QUEUES_TEST(test_carried_queues_page_where_the_next_open_has_less_memory)
{
    checkpoint(engine);
    engine_close(engine);
    engine->options.memory_budget = 256u << 10;
    engine_open(engine);
    publish_small(engine, MESSAGES);
    QS_CHECK(stats_of(engine).messages_paged_out > 0);
    checkpoint(engine);
    check_after_crash(engine, 0, MESSAGES + 1);
    take_all(engine, 0, MESSAGES + 1);
}

/* Messages of one queue with properties, times and deliveries of their own. */
QUEUES_TEST(test_messages_that_differ_are_carried_as_they_are)
{
    static const uint8_t with_type[] = {0x10, 0x20, 2, 4, 'k', 'i', 'n', 'd'};
    qs_slice properties = {with_type, sizeof with_type};
    qs_message message;

    publish_to(engine, "", small(0), properties, text("typed"));
    publish_to(engine, "", small(0), TRANSIENT, text("transient"));
    publish(engine, small(0), "last");
    QS_CHECK_OK(qs_channel_get(engine->channel, text(small(0)), 0, &message, QS_ERROR));
    qs_message_release(&message);
    QS_CHECK_OK(qs_channel_nack(engine->channel, message.delivery_tag, QS_REQUEUE, 0, QS_ERROR));
    checkpoint(engine);
    for (int i = 0; i < 2; i++) { /* from what was published, and from what was carried */
        engine_crash(engine);
        check_counts(engine, small(0), MESSAGES + 2, 0);
        QS_CHECK_OK(qs_channel_get(engine->channel, text(small(0)), 0, &message, QS_ERROR));
        QS_CHECK(message.redelivered && holds(message.body, body_of(0, 0)));
        qs_message_release(&message);
        QS_CHECK_OK(
            qs_channel_nack(engine->channel, message.delivery_tag, QS_REQUEUE, 0, QS_ERROR));
        checkpoint(engine);
    }
    for (int k = 0; k < MESSAGES; k++) {
        take(engine, small(0), body_of(0, k));
    }
    QS_CHECK_OK(qs_channel_get(engine->channel, text(small(0)), QS_NO_ACK, &message, QS_ERROR));
    QS_CHECK(holds(message.body, "typed") && message.properties.bytes == sizeof with_type &&
             memcmp(message.properties.data, with_type, sizeof with_type) == 0);
    qs_message_release(&message);
    take(engine, small(0), "last");
}

/* One that writes much is not made again for little. */
UNOPENED_TEST(test_a_large_checkpoint_is_not_made_each_second)
{
    engine_open(engine);
    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", "body");
    checkpoint(engine);
    publish(engine, "q", "body");
    qs_store *store = engine->store;
    qsi_store_lock(store);
    store->paging.dead_bytes = 1;
    qsi_env_mem_advance(engine->memory, SECOND + 1);
    QS_CHECK(qsi_checkpoint_is_due(store));
    store->space.named_bytes = 160u << 20;
    QS_CHECK(!qsi_checkpoint_is_due(store));
    qsi_env_mem_advance(engine->memory, 9 * SECOND);
    QS_CHECK(!qsi_checkpoint_is_due(store));
    store->paging.dead_bytes = 160u << 20;
    QS_CHECK(qsi_checkpoint_is_due(store));
    store->paging.dead_bytes = 1;
    qsi_env_mem_advance(engine->memory, SECOND);
    QS_CHECK(qsi_checkpoint_is_due(store));
    store->paging.dead_bytes = 0;
    qsi_env_mem_advance(engine->memory, 60 * SECOND); /* the interval */
    QS_CHECK(!qsi_checkpoint_is_due(store));
    qsi_env_mem_advance(engine->memory, 15 * 60 * SECOND);
    QS_CHECK(qsi_checkpoint_is_due(store));
    qsi_store_unlock(store);
}
