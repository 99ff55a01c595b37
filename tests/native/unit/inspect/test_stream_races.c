/* Looking up a place in a stream while retention drops the file that is about to be read. */
#include "../engine/engine_fixture.h"
#include "qs_test_fields.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define ROWS 400u
#define NAPS 300 /* of 1 ms: a checkpoint that does not wait for readers is done long before */

static qs_env plain;
static struct engine engine;
static pthread_t dropper;
static atomic_bool is_armed, is_dropping, is_done;

static void fill(void)
{
    static char body[500];
    qs_receipt receipt;

    for (uint32_t i = 0; i < ROWS; i++) {
        QS_CHECK_OK(qs_channel_publish(engine.channel, text(""), text("s"), PERSISTENT,
                                       (qs_slice){body, sizeof body}, 0, &receipt, QS_ERROR));
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
    if (flags == QS_OPEN_READ && strstr(name, ".str") != NULL &&
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
    struct qs_test_fields arguments = {.used = 0};
    qs_declare_ok ok;

    engine_start(&engine, IN_MEMORY);
    qs_test_put_text(&arguments, "x-queue-type", "stream");
    qs_test_put_long(&arguments, "x-max-messages", 600);
    qs_test_put_long(&arguments, "x-stream-max-segment-size-bytes", 100000);
    QS_CHECK_OK(qs_channel_queue_declare(engine.channel, text("s"), QS_DURABLE,
                                         qs_test_fields_slice(&arguments), &ok, QS_ERROR));
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

static void test_a_time_is_found_while_retention_drops_its_segment(void)
{
    uint64_t offset;

    start();
    QS_CHECK_OK(qs_store_stream_offset_at(engine.store, text("s"), 1, &offset, QS_ERROR));
    stop();
}

int main(void)
{
    test_a_time_is_found_while_retention_drops_its_segment();
    return 0;
}
