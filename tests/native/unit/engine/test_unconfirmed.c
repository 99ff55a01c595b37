/* What a channel's confirms wait for, seen between publishing and the commit: in memory nothing is
 * committed until somebody waits. */
#include "engine_fixture.h"
#include "qs_test_batch.h"

struct seen {
    char text[512]; /* "1-3 5-5 a b" */
};

static void note(void *context, const qs_unconfirmed *info)
{
    struct seen *seen = context;
    size_t used = strlen(seen->text);
    char *at = seen->text + used;
    const char *gap = used > 0 ? " " : "";

    if (info->first_number > 0) {
        QS_CHECK(info->queue.bytes == 0 && info->first_number <= info->last_number);
        snprintf(at, sizeof seen->text - used, "%s%" PRIu64 "-%" PRIu64, gap, info->first_number,
                 info->last_number);
    } else {
        snprintf(at, sizeof seen->text - used, "%s%.*s", gap, (int)info->queue.bytes,
                 (const char *)info->queue.data);
    }
}

static void check_waits(struct engine *engine, const char *expected)
{
    struct seen seen = {""};

    QS_CHECK_OK(qs_channel_visit_unconfirmed(engine->channel, note, &seen, QS_ERROR));
    if (strcmp(seen.text, expected) != 0) {
        fprintf(stderr, "got '%s', expected '%s'\n", seen.text, expected);
        exit(1);
    }
}

static void start(struct engine *engine)
{
    static const char *const queues[] = {"a", "b", "c"};
    qs_declare_ok ok;

    engine_start(engine, IN_MEMORY);
    for (int i = 0; i < 3; i++) {
        QS_CHECK_OK(qs_channel_queue_declare(engine->channel, text(queues[i]),
                                             i < 2 ? QS_DURABLE : 0, NONE, &ok, QS_ERROR));
        QS_CHECK_OK(qs_channel_queue_bind(engine->channel, text(queues[i]), text("amq.fanout"),
                                          NONE, NONE, QS_ERROR));
    }
}

static void send(struct engine *engine, const char *exchange, const char *key, qs_slice properties)
{
    qs_receipt receipt;

    QS_CHECK_OK(qs_channel_publish(engine->channel, text(exchange), text(key), properties,
                                   text("x"), 0, &receipt, QS_ERROR));
}

static void wait_for_all(struct engine *engine)
{
    bool nacked = true;

    QS_CHECK_OK(qs_channel_wait_confirms(engine->channel, QS_FOREVER, &nacked, QS_ERROR));
    QS_CHECK(!nacked);
}

static void test_numbers_and_queues_wait_until_the_commit(void)
{
    struct engine engine;

    start(&engine);
    send(&engine, "", "a", PERSISTENT);
    check_waits(&engine, ""); /* no confirm mode: nothing has a number */
    QS_CHECK_OK(qs_channel_confirm_select(engine.channel, QS_ERROR));
    check_waits(&engine, "");
    send(&engine, "", "a", PERSISTENT);
    send(&engine, "", "a", PERSISTENT);
    check_waits(&engine, "1-1 2-2 a");
    send(&engine, "amq.fanout", "", PERSISTENT); /* c is not durable */
    check_waits(&engine, "1-1 2-2 3-3 a b");
    wait_for_all(&engine);
    check_waits(&engine, "");
    send(&engine, "", "b", PERSISTENT);
    check_waits(&engine, "4-4 b");
    engine_stop(&engine);
}

static void test_what_needs_no_disk_is_not_waited_for(void)
{
    struct engine engine;

    start(&engine);
    QS_CHECK_OK(qs_channel_confirm_select(engine.channel, QS_ERROR));
    send(&engine, "", "a", TRANSIENT);
    send(&engine, "", "c", PERSISTENT);
    send(&engine, "", "nowhere", PERSISTENT);
    check_waits(&engine, "");
    send(&engine, "", "b", PERSISTENT);
    check_waits(&engine, "4-4 b");
    engine_stop(&engine);
}

static void test_a_batch_waits_for_each_of_its_queues(void)
{
    struct qs_test_batch rows;
    struct engine engine;
    qs_receipt receipt;
    qs_batch batch;

    start(&engine);
    QS_CHECK_OK(qs_channel_confirm_select(engine.channel, QS_ERROR));
    qs_test_batch_init(&rows);
    memcpy(qs_test_batch_add(&rows, "b", 1), "x", 1);
    memcpy(qs_test_batch_add(&rows, "a", 1), "y", 1);
    memcpy(qs_test_batch_add(&rows, "c", 1), "z", 1);
    batch = qs_test_batch_finish(&rows);
    QS_CHECK_OK(qs_channel_publish_batch(engine.channel, &batch, &receipt, QS_ERROR));
    check_waits(&engine, "1-3 b a");
    wait_for_all(&engine);
    check_waits(&engine, "");
    qs_test_batch_fini(&rows);
    engine_stop(&engine);
}

static void test_a_deleted_queue_is_not_waited_for(void)
{
    struct engine engine;
    uint64_t count;

    start(&engine);
    QS_CHECK_OK(qs_channel_confirm_select(engine.channel, QS_ERROR));
    send(&engine, "amq.fanout", "", PERSISTENT);
    QS_CHECK_OK(qs_channel_queue_delete(engine.channel, text("a"), QS_NO_SYNC, &count, QS_ERROR));
    check_waits(&engine, "1-1 b");
    engine_stop(&engine);
}

static void test_turns_of_queues_take_no_memory_for_what_is_durable(void)
{
    struct engine engine;

    start(&engine);
    QS_CHECK_OK(qs_channel_confirm_select(engine.channel, QS_ERROR));
    for (int i = 0; i < 500; i++) {
        send(&engine, "", i % 2 == 0 ? "a" : "b", PERSISTENT);
        if (i % 5 == 4) {
            wait_for_all(&engine);
            check_waits(&engine, "");
        }
    }
    send(&engine, "", "a", PERSISTENT);
    check_waits(&engine, "501-501 a");
    engine_stop(&engine);
}

int main(void)
{
    test_numbers_and_queues_wait_until_the_commit();
    test_what_needs_no_disk_is_not_waited_for();
    test_a_batch_waits_for_each_of_its_queues();
    test_a_deleted_queue_is_not_waited_for();
    test_turns_of_queues_take_no_memory_for_what_is_durable();
    return 0;
}
