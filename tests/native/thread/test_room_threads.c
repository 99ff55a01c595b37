/* Threads that find the journal full at the same moment, again and again: its files are made one at
 * a time, by whichever thread comes first, and all messages find room.
 *
 * Meant for -fsanitize=thread as well. */
#include "../unit/engine/engine_fixture.h"

#include <pthread.h>

#define THREADS 8
#define MESSAGES 200 /* of each */
#define BODY_BYTES 25000

static void *run_publisher(void *argument)
{
    struct engine *engine = argument;
    QS_TEST_FREED char *body = make_body(BODY_BYTES, 1);
    qs_channel *channel;

    QS_CHECK_OK(qs_channel_open(&channel, engine->store, QS_ERROR));
    for (int i = 0; i < MESSAGES; i++) {
        QS_CHECK_OK(qs_test_publish(channel, "", "q", PERSISTENT, text(body), 0));
    }
    qs_channel_close(channel);
    return NULL;
}

/* A file takes two of these messages, and each thread that finds none looks for room by itself
 * while it has let the store's lock go. */
QS_TEST(test_threads_that_need_a_journal_file_at_once_make_one_at_a_time)
{
    pthread_t threads[THREADS];
    struct engine engine;

    engine_init(&engine, ON_DISK);
    engine.options.journal_file_bytes = 64u << 10;
    engine.options.embed_below = 32u << 10;
    engine.options.sync = QS_SYNC_NONE;
    engine_open(&engine);
    declare(&engine, "q", QS_DURABLE);
    for (int i = 0; i < THREADS; i++) {
        QS_CHECK(pthread_create(&threads[i], NULL, run_publisher, &engine) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        QS_CHECK(pthread_join(threads[i], NULL) == 0);
    }
    check_counts(&engine, "q", (uint64_t)THREADS * MESSAGES, 0);
    engine_reopen(&engine);
    check_counts(&engine, "q", (uint64_t)THREADS * MESSAGES, 0);
    engine_stop(&engine);
}
