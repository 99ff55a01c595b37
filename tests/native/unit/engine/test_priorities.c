/* Queues with priorities: strict order whatever the messages came by, one queue to everybody who
 * looks at it, and priorities that come back after a crash, a checkpoint and a close, each
 * message in its own. */
#include "engine_fixture.h"
#include "priorities.h"
#include "queue_life.h"

static void put_argument(uint8_t **at, const char *name, uint8_t value)
{
    size_t bytes = strlen(name);

    *(*at)++ = (uint8_t)bytes;
    memcpy(*at, name, bytes);
    *at += bytes;
    *(*at)++ = 'B';
    *(*at)++ = value;
}

static void declare_priorities(struct engine *engine, const char *queue, uint32_t flags,
                               uint8_t most, uint8_t length)
{
    uint8_t table[128], *at = table;

    put_argument(&at, "x-max-priority", most);
    if (length > 0) {
        put_argument(&at, "x-max-length", length);
    }
    QS_CHECK_OK(
        qs_test_declare_as(engine->channel, queue, flags, (qs_slice){table, (size_t)(at - table)}));
}

static void publish_at(struct engine *engine, const char *queue, uint8_t priority, const char *body)
{
    const uint8_t properties[] = {0x18, 0, 2, priority};

    publish_to(engine, "", queue, (qs_slice){properties, sizeof properties}, text(body));
}

static void take(struct engine *engine, const char *queue, const char *body)
{
    ack(engine, get(engine, queue, body).delivery_tag, 0);
}

ENGINE_TEST(test_the_highest_come_first)
{
    declare_priorities(engine, "q", QS_DURABLE, 5, 0);
    publish(engine, "q", "none");
    publish_at(engine, "q", 3, "three");
    publish_at(engine, "q", 200, "most");
    publish_at(engine, "q", 5, "most too");
    publish_at(engine, "q", 0, "zero");
    publish_at(engine, "q", 3, "three too");
    check_counts(engine, "q", 6, 0);
    take(engine, "q", "most");
    take(engine, "q", "most too");
    take(engine, "q", "three");
    publish_at(engine, "q", 4, "four");
    take(engine, "q", "four");
    take(engine, "q", "three too");
    take(engine, "q", "none");
    take(engine, "q", "zero");
    get_nothing(engine, "q");
    check_counts(engine, "q", 0, 0);
}

ENGINE_TEST(test_a_requeued_message_is_back_in_its_priority)
{
    uint64_t low, high;

    declare_priorities(engine, "q", QS_DURABLE, 2, 0);
    publish_at(engine, "q", 1, "a");
    publish_at(engine, "q", 1, "b");
    publish_at(engine, "q", 2, "c");
    high = get(engine, "q", "c").delivery_tag;
    low = get(engine, "q", "a").delivery_tag;
    check_counts(engine, "q", 1, 2);
    QS_CHECK_OK(qs_channel_nack(engine->channel, low, QS_REQUEUE, 0, QS_ERROR));
    QS_CHECK(get(engine, "q", "a").redelivered);
    QS_CHECK_OK(qs_channel_nack(engine->channel, high, QS_REQUEUE, 0, QS_ERROR));
    take(engine, "q", "c");
    take(engine, "q", "b");
    check_counts(engine, "q", 0, 1);
}

ENGINE_TEST(test_a_close_and_a_checkpoint_keep_priorities)
{
    QS_TEST_FREED char *large = make_body(20000, 7);

    declare_priorities(engine, "q", QS_DURABLE, 9, 0);
    publish_at(engine, "q", 1, "a");
    publish_at(engine, "q", 9, large);
    publish_at(engine, "q", 9, "settled");
    take(engine, "q", large);
    publish_at(engine, "q", 9, large);
    take(engine, "q", "settled");
    for (int i = 0; i < 3; i++) {
        QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
        publish_at(engine, "q", 4, "b");
        engine_reopen(engine);
        publish_at(engine, "q", 9, "more");
        check_counts(engine, "q", 4, 0);
        get(engine, "q", large);
        engine_reopen(engine);
        check_counts(engine, "q", 4, 0);
        QS_CHECK(get(engine, "q", large).redelivered);
        take(engine, "q", "more");
        take(engine, "q", "b");
        engine_reopen(engine);
    }
    take(engine, "q", large);
    take(engine, "q", "a");
    get_nothing(engine, "q");
}

ENGINE_TEST(test_a_queue_goes_with_all_its_priorities)
{
    uint64_t count;

    declare_priorities(engine, "q", QS_DURABLE, 3, 0);
    publish_at(engine, "q", 1, "a");
    publish_at(engine, "q", 2, "out");
    publish_at(engine, "q", 3, "b");
    take(engine, "q", "b");
    get(engine, "q", "out");
    QS_CHECK_STATUS(QS_PRECONDITION_FAILED, qs_channel_queue_delete(engine->channel, text("q"),
                                                                    QS_IF_EMPTY, &count, QS_ERROR));
    engine_new_channel(engine);
    get(engine, "q", "out");
    QS_CHECK_OK(qs_channel_queue_delete(engine->channel, text("q"), 0, &count, QS_ERROR));
    QS_CHECK(count == 1 && engine->store->queues_by_id.count == 0);
    ack(engine, 0, QS_MULTIPLE); /* what is out of a queue that is gone */
    declare_priorities(engine, "q", QS_DURABLE, 3, 0);
    check_counts(engine, "q", 0, 0);
    publish_at(engine, "q", 2, "new");
    engine_reopen(engine);
    take(engine, "q", "new");
    get_nothing(engine, "q");
}

ENGINE_TEST(test_a_purge_spares_what_is_out)
{
    uint64_t count;

    declare_priorities(engine, "q", QS_DURABLE, 3, 0);
    for (uint8_t priority = 0; priority < 4; priority++) {
        publish_at(engine, "q", priority, "a");
        publish_at(engine, "q", priority, "b");
    }
    get(engine, "q", "a");
    QS_CHECK_OK(qs_channel_queue_purge(engine->channel, text("q"), 0, &count, QS_ERROR));
    QS_CHECK(count == 7);
    check_counts(engine, "q", 0, 1);
    engine_reopen(engine);
    take(engine, "q", "a");
    get_nothing(engine, "q");
}

ENGINE_TEST(test_exclusive_queues_end_with_their_channel)
{
    declare_priorities(engine, "x", QS_EXCLUSIVE, 9, 0);
    declare_priorities(engine, "y", QS_EXCLUSIVE, 9, 0);
    declare(engine, "stays", QS_DURABLE);
    for (uint8_t priority = 0; priority < 10; priority++) {
        publish_at(engine, "x", priority, "x");
        publish_at(engine, "y", priority, "y");
    }
    get(engine, "x", "x");
    engine_new_channel(engine);
    QS_CHECK(!has_queue(engine, "x") && !has_queue(engine, "y") && has_queue(engine, "stays"));
    QS_CHECK(engine->store->queues_by_id.count == 1);
}

ENGINE_TEST(test_the_head_is_dropped)
{
    declare_priorities(engine, "q", QS_DURABLE, 3, 3);
    publish_at(engine, "q", 2, "a");
    publish_at(engine, "q", 1, "b");
    publish_at(engine, "q", 1, "c");
    publish_at(engine, "q", 3, "d");
    check_counts(engine, "q", 3, 0); /* "d" was the highest */
    publish_at(engine, "q", 0, "e");
    publish_at(engine, "q", 1, "f");
    check_counts(engine, "q", 3, 0);
    take(engine, "q", "c");
    take(engine, "q", "f");
    take(engine, "q", "e");
    get_nothing(engine, "q");
}

ENGINE_TEST(test_unused_priorities_are_not_there)
{
    for (int i = 0; i < 100; i++) {
        char name[16];

        snprintf(name, sizeof name, "q%d", i);
        declare_priorities(engine, name, QS_DURABLE, 255, 0);
    }
    publish_at(engine, "q0", 255, "high");
    publish_at(engine, "q0", 77, "middle");
    QS_CHECK(engine->store->queues_by_id.count == 102);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    engine_reopen(engine);
    QS_CHECK(engine->store->queues_by_id.count == 102);
    take(engine, "q0", "high");
    take(engine, "q0", "middle");
}

static void visit(void *context, const qs_queue_info *info)
{
    uint64_t *seen = context;

    seen[0] += 1;
    seen[1] += info->messages_ready;
}

ENGINE_TEST(test_priorities_are_one_queue_to_visitors)
{
    uint64_t seen[2] = {0};
    qs_queue_status status;

    declare_priorities(engine, "q", QS_DURABLE, 9, 0);
    publish_at(engine, "q", 1, "a");
    publish_at(engine, "q", 2, "b");
    get(engine, "q", "b");
    publish_at(engine, "q", 8, "c");
    QS_CHECK_OK(qs_store_visit_queues(engine->store, visit, seen));
    QS_CHECK(seen[0] == 1 && seen[1] == 2);
    QS_CHECK_OK(qs_store_set_queue_mode(engine->store, text("q"), true, QS_ERROR));
    publish_at(engine, "q", 3, "d");
    QS_CHECK_OK(qs_store_queue_status(engine->store, text("q"), &status, QS_ERROR));
    QS_CHECK(status.lazy && status.messages_ready == 3 && status.messages_unacked == 1);
    QS_CHECK(status.alpha == 0 &&
             status.disk_bytes > 0); /* a priority made later is lazy as well */
}

/* The process dies with messages in all priorities, some of them in a checkpoint, some settled
 * behind it. */
IN_MEMORY_TEST(test_a_crash)
{
    declare_priorities(engine, "q", QS_DURABLE, 9, 0);
    publish_at(engine, "q", 1, "a");
    publish_at(engine, "q", 5, "gone");
    publish_at(engine, "q", 5, "b");
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    take(engine, "q", "gone");
    publish_at(engine, "q", 9, "c");
    publish_at(engine, "q", 7, "gone too");
    take(engine, "q", "c");
    take(engine, "q", "gone too");
    publish_at(engine, "q", 9, "d");
    QS_CHECK_OK(
        qs_store_wait_durable(engine->store, stats_of(engine).appended_lsn, QS_FOREVER, QS_ERROR));
    engine_crash(engine);
    check_counts(engine, "q", 3, 0);
    publish_at(engine, "q", 7, "new");
    take(engine, "q", "d");
    take(engine, "q", "new");
    take(engine, "q", "b");
    take(engine, "q", "a");
    get_nothing(engine, "q");
}

/* Far more than memory holds, at all priorities: the order is the same. */
UNOPENED_TEST(test_paging)
{
    char body[2048];

    engine->options.memory_budget = 128 << 10;
    engine->options.segment_entries = 64;
    engine_open(engine);
    declare_priorities(engine, "q", QS_DURABLE, 9, 0);
    memset(body, 'x', sizeof body);
    body[sizeof body - 1] = '\0';
    for (uint32_t i = 0; i < 1000; i++) {
        snprintf(body, 32, "%03u", i);
        body[3] = '-';
        publish_at(engine, "q", (uint8_t)(i * 7 % 10), body);
    }
    QS_CHECK(stats_of(engine).messages_paged_out > 500);
    for (uint32_t level = 10; level-- > 0;) {
        for (uint32_t i = 0; i < 1000; i++) {
            if (i * 7 % 10 == level) {
                snprintf(body, 32, "%03u", i);
                body[3] = '-';
                take(engine, "q", body);
            }
        }
    }
    get_nothing(engine, "q");
    QS_CHECK(stats_of(engine).messages_paged_in > 500);
}

/* Every priority there can be, filled and emptied in no order: the highest that has one is next,
 * and all are counted. */
ENGINE_TEST(test_all_priorities_fill_and_empty)
{
    uint32_t counts[256] = {0}, ready = 0, random = 1;

    declare_priorities(engine, "q", 0, 255, 0);
    for (uint32_t step = 0; step < 5000; step++) {
        bool more = step < 2500 ? step % 3 != 2 : step % 3 == 2;
        char body[8];
        uint32_t level = 255;
        uint64_t tag;
        random = random * 1664525 + 1013904223;
        if (more || ready == 0) {
            level = random >> 24;
            snprintf(body, sizeof body, "%u", level);
            publish_at(engine, "q", (uint8_t)level, body);
            counts[level]++;
            ready++;
        } else {
            while (counts[level] == 0) {
                level--;
            }
            tag = get_number(engine, "q", level).delivery_tag;
            if (random >> 30 == 0) {
                QS_CHECK_OK(qs_channel_nack(engine->channel, tag, QS_REQUEUE, 0, QS_ERROR));
            } else {
                ack(engine, tag, 0);
                counts[level]--;
                ready--;
            }
        }
        check_counts(engine, "q", ready, 0);
    }
}

static void publish_to_expire(struct engine *engine, uint8_t priority, const char *ms)
{
    uint8_t properties[16] = {0x19, 0, 2, priority, (uint8_t)strlen(ms)};

    memcpy(properties + 5, ms, strlen(ms));
    publish_to(engine, "", "q", (qs_slice){properties, 5 + strlen(ms)}, text(ms));
}

/* What expires next in one priority is told although another priority's went, or was taken,
 * before. */
IN_MEMORY_TEST(test_priorities_expire_each_in_its_time)
{
    const struct qsi_store_queue *queue;
    uint64_t first_us;

    declare_priorities(engine, "q", QS_DURABLE, 9, 0);
    queue = qsi_find_queue(engine->store, qsi_slice_make("q", 1));
    publish_to_expire(engine, 5, "1000");
    first_us = qsi_earliest(queue);
    publish_to_expire(engine, 1, "2000");
    publish_to_expire(engine, 9, "3000");
    publish_to_expire(engine, 0, "9000");
    qsi_env_mem_advance(engine->memory, SECOND + SECOND / 2);
    get(engine, "q", "3000");
    QS_CHECK(qsi_earliest(queue) > first_us + 900000);
    check_counts(engine, "q", 2, 1);
    qsi_env_mem_advance(engine->memory, SECOND);
    QS_CHECK_OK(qs_channel_recover(engine->channel, QS_REQUEUE, QS_ERROR));
    get(engine, "q", "3000");
    check_counts(engine, "q", 1, 1);
    QS_CHECK_OK(qs_channel_recover(engine->channel, QS_REQUEUE, QS_ERROR));
    qsi_env_mem_advance(engine->memory, SECOND);
    get(engine, "q", "9000");
    check_counts(engine, "q", 0, 1);
    QS_CHECK(stats_of(engine).messages_expired == 3);
}
