/* Looking up a place in a stream while retention drops the file that is about to be read, or while
 * the stream is deleted. */
#include "../engine/engine_fixture.h"
#include "qs_test_fields.h"

#include <pthread.h>
#include <stdatomic.h>

#define ROWS 400u
#define NAPS 300 /* of 1 ms: a checkpoint that does not wait for readers is done long before */

static qs_env plain;
static struct engine engine;
static pthread_t dropper;
static atomic_bool is_armed, is_dropping, is_done;

static void fill(void)
{
    static char body[500];

    for (uint32_t i = 0; i < ROWS; i++) {
        QS_CHECK_OK(
            qs_test_publish(engine.channel, "", "s", PERSISTENT, (qs_slice){body, sizeof body}, 0));
    }
    QS_CHECK_OK(qs_store_sync(engine.store, QS_ERROR));
}

/* Retention drops the first segment, and a checkpoint makes it count. */
static void *drop_segments(void *unused)
{
    (void)unused;
    fill();
    QS_CHECK_OK(qs_store_checkpoint(engine.store, QS_ERROR));
    fill();
    QS_CHECK_OK(qs_store_checkpoint(engine.store, QS_ERROR));
    atomic_store(&is_done, true);
    return NULL;
}

static qs_status open_late(qs_env *env, qs_dir *dir, const char *name, uint32_t flags,
                           qs_file **file_out, qs_error *error)
{
    if ((flags & QS_OPEN_READ) != 0 && strstr(name, ".str") != NULL &&
        atomic_exchange(&is_armed, false)) {
        QS_CHECK(pthread_create(&dropper, NULL, drop_segments, NULL) == 0);
        atomic_store(&is_dropping, true);
        for (int i = 0; i < NAPS && !atomic_load(&is_done); i++) {
            usleep(1000);
        }
    }
    return plain.open(env, dir, name, flags, file_out, error);
}

static void start(void)
{
    engine_start(&engine, IN_MEMORY);
    qs_test_declare_with(
        engine.channel, "s", QS_DURABLE,
        "x-queue-type=stream x-max-messages=600 x-stream-max-segment-size-bytes=100000");
    for (int segment = 0; segment < 2; segment++) {
        fill();
        QS_CHECK_OK(qs_store_checkpoint(engine.store, QS_ERROR));
    }
    engine_close(&engine); /* so that no file is open, and no index in memory */
    engine_open(&engine);
    plain = *engine.env;
    engine.env->open = open_late;
    atomic_store(&is_dropping, false);
    atomic_store(&is_done, false);
    atomic_store(&is_armed, true);
}

static void stop(void)
{
    QS_CHECK(atomic_load(&is_dropping));
    QS_CHECK(pthread_join(dropper, NULL) == 0);
    engine.env->open = plain.open;
    engine_stop(&engine);
}

QS_TEST(test_a_time_is_found_while_retention_drops_its_segment)
{
    uint64_t offset;

    start();
    QS_CHECK_OK(qs_store_stream_offset_at(engine.store, text("s"), 1, &offset, QS_ERROR));
    stop();
}

static void declare_work(const char *name, const char *begins)
{
    qs_test_declare_with(engine.channel, name, QS_DURABLE, "x-stream-offset=%s x-stream-source=s",
                         begins);
}

QS_TEST(test_a_work_queue_begins_at_a_time_while_retention_drops_its_segment)
{
    start();
    declare_work("w", "1Y");
    stop();
}

QS_TEST(test_a_work_queue_begins_at_the_last_block_while_retention_drops_it)
{
    start();
    declare_work("w", "last");
    stop();
}

/* ---- the stream is deleted ---- */

enum successor { NOTHING, QUEUE, STREAM };
static enum successor successor;
static qs_channel *other;

/* Whoever looks has released the lock. */
static qs_status open_after_deletion(qs_env *env, qs_dir *dir, const char *name, uint32_t flags,
                                     qs_file **file_out, qs_error *error)
{
    if ((flags & QS_OPEN_READ) != 0 && strstr(name, ".str") != NULL &&
        atomic_exchange(&is_armed, false)) {
        struct qs_test_fields arguments = {.used = 0};

        if (successor == STREAM) {
            qs_test_put_text(&arguments, "x-queue-type", "stream");
        }
        QS_CHECK_OK(qs_test_delete(other, "s", 0));
        if (successor != NOTHING) {
            qs_test_declare(other, "s", QS_DURABLE, &arguments);
        }
        atomic_store(&is_dropping, true);
    }
    return plain.open(env, dir, name, flags, file_out, error);
}

static void start_deleting(enum successor comes)
{
    start();
    successor = comes;
    engine.env->open = open_after_deletion;
    QS_CHECK_OK(qs_channel_open(&other, engine.store, QS_ERROR));
}

static void stop_deleting(void)
{
    QS_CHECK(atomic_load(&is_dropping));
    qs_channel_close(other);
    engine.env->open = plain.open;
    engine_stop(&engine);
}

static qs_status consume_from_the_last_block(void)
{
    struct qs_test_fields arguments = qs_test_fields_of("x-stream-offset=last");

    QS_CHECK_OK(qs_channel_qos(engine.channel, 10, 0, 0, QS_ERROR));
    return qs_test_consume(engine.channel, "s", "c", 0, qs_test_fields_slice(&arguments));
}

QS_TEST(test_a_consumer_of_a_stream_that_is_deleted_meanwhile_is_told)
{
    start_deleting(NOTHING);
    QS_CHECK_STATUS(QS_NOT_FOUND, consume_from_the_last_block());
    stop_deleting();
}

/* What was found in the old stream is no place in the new one. */
QS_TEST(test_a_consumer_gets_the_messages_of_what_has_the_streams_name_now)
{
    for (int comes = QUEUE; comes <= STREAM; comes++) {
        qs_event event;

        start_deleting((enum successor)comes);
        QS_CHECK_OK(consume_from_the_last_block());
        publish(&engine, "s", "new");
        QS_CHECK_OK(qs_store_sync(engine.store, QS_ERROR));
        event = expect_event(&engine, QS_EVENT_DELIVERY, QS_EVENT_DELIVERY);
        QS_CHECK(holds(event.message.body, "new"));
        qs_message_release(&event.message);
        stop_deleting();
    }
}

QS_TEST(test_a_work_queue_of_a_stream_that_is_deleted_meanwhile_is_refused)
{
    struct qs_test_fields arguments = qs_test_fields_of("x-stream-offset=1Y x-stream-source=s");
    qs_declare_ok ok;

    start_deleting(NOTHING);
    QS_CHECK(qs_channel_queue_declare(engine.channel, text("w"), QS_DURABLE,
                                      qs_test_fields_slice(&arguments), &ok, NULL) != QS_OK);
    engine_new_channel(&engine);
    QS_CHECK(!has_queue(&engine, "w"));
    stop_deleting();
}
