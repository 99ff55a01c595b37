/* Work queues over a stream, and many threads: publishers of one stream, consumers of each queue
 * that acknowledge and put back, readers, checkpoints, and a stream that is deleted under them.
 *
 * Meant for -fsanitize=thread; segments are small, so that files come all the time. */
#include "concurrent_fixture.h"
#include "qs_test_calls.h"

#define WORK_QUEUES 2u
#define PUBLISHERS 2u
#define MESSAGES 900u /* of each publisher */
#define ALL (PUBLISHERS * MESSAGES)
#define BATCH_ROWS 25
#define LARGE_BYTES 3000u
#define DELETIONS 6

static const char *const work_names[WORK_QUEUES] = {"work.0", "work.1"};

struct work {
    struct shared shared;
    bool is_whole; /* the stream stays: every message comes to every queue */
    atomic_uint next_publisher;
    atomic_uint acked[WORK_QUEUES];
    atomic_uchar times[WORK_QUEUES][ALL]; /* that a message was acknowledged */
};

struct consumer {
    struct work *work;
    uint32_t queue;
};

static qs_status try_declare(qs_channel *channel, const char *name, const char *key,
                             const char *value)
{
    struct qs_test_fields arguments = {.used = 0};

    qs_test_put_text(&arguments, key, value);
    if (strcmp(key, "x-queue-type") == 0) {
        qs_test_put_long(&arguments, "x-stream-max-segment-size-bytes", 16384);
    } else {
        qs_test_put_text(&arguments, "x-stream-offset", "first");
    }
    return qs_test_declare_as(channel, name, QS_DURABLE, qs_test_fields_slice(&arguments));
}

static void declare_all(qs_channel *channel)
{
    QS_CHECK_OK(try_declare(channel, "s", "x-queue-type", "stream"));
    for (uint32_t queue = 0; queue < WORK_QUEUES; queue++) {
        QS_CHECK_OK(try_declare(channel, work_names[queue], "x-stream-source", "s"));
    }
}

/* The stream stays as long as a work queue reads it. */
static void delete_all(struct engine *engine)
{
    CHECK_CHANNEL_ERROR(engine, QS_PRECONDITION_FAILED, qs_test_delete(engine->channel, "s", 0));
    for (uint32_t queue = 0; queue < WORK_QUEUES; queue++) {
        QS_CHECK_OK(qs_test_delete(engine->channel, work_names[queue], 0));
    }
    QS_CHECK_OK(qs_test_delete(engine->channel, "s", 0));
}

/* ---- publishing ---- */

static void *publish_all(void *argument)
{
    struct work *work = argument;
    uint32_t first = atomic_fetch_add(&work->next_publisher, 1) * MESSAGES;
    qs_channel *channel = open_channel(&work->shared);
    static const char filling[LARGE_BYTES];
    char body[LARGE_BYTES];

    memcpy(body, filling, sizeof body);
    for (uint32_t number = first; number < first + MESSAGES; number++) {
        qs_slice bytes = {body, number % 16 == 7 ? LARGE_BYTES : 64};
        snprintf(body, sizeof body, "%u", number);
        QS_CHECK_OK(qs_test_publish(channel, "", "s", PERSISTENT, bytes, 0));
        if (number % 50 == 49) {
            QS_CHECK_OK(qs_store_sync(work->shared.engine.store, QS_ERROR));
        }
    }
    atomic_fetch_sub(&work->shared.publishing, 1);
    qs_channel_close(channel);
    return NULL;
}

/* ---- consuming ---- */

static uint32_t number_of(qs_slice body)
{
    uint32_t number = (uint32_t)strtoul(body.data, NULL, 10); /* ends with a zero */

    QS_CHECK(body.bytes >= 64 && number < ALL);
    return number;
}

static void note_acked(struct consumer *consumer, uint32_t number)
{
    struct work *work = consumer->work;

    if (work->is_whole) {
        QS_CHECK(atomic_fetch_add(&work->times[consumer->queue][number], 1) == 0);
    }
    atomic_fetch_add(&work->acked[consumer->queue], 1);
}

static bool is_over(const struct consumer *consumer)
{
    return consumer->work->is_whole ? atomic_load(&consumer->work->acked[consumer->queue]) == ALL
                                    : atomic_load(&consumer->work->shared.done);
}

/* What it says where the queue, or its stream, was deleted meanwhile. */
static bool goes_on(const struct consumer *consumer, qs_channel **channel_io, qs_status status)
{
    if (status == QS_OK) {
        return true;
    }
    QS_CHECK(status == QS_EEMPTY || !consumer->work->is_whole);
    if (status != QS_EEMPTY) {
        qs_channel_close(*channel_io);
        *channel_io = open_channel(&consumer->work->shared);
    }
    return false;
}

static void *consume_by_get(void *argument)
{
    struct consumer *consumer = argument;
    qs_channel *channel = open_channel(&consumer->work->shared);
    uint32_t count = 0;

    while (!is_over(consumer)) {
        qs_message message;
        uint32_t number;
        if (!goes_on(consumer, &channel,
                     qs_channel_get(channel, text(work_names[consumer->queue]), 0, &message,
                                    QS_ERROR))) {
            usleep(PAUSE_US);
            continue;
        }
        number = number_of(message.body);
        qs_message_release(&message);
        if (count++ % 7 == 3) {
            (void)goes_on(consumer, &channel,
                          qs_channel_nack(channel, message.delivery_tag, QS_REQUEUE, 0, QS_ERROR));
        } else if (goes_on(consumer, &channel,
                           qs_channel_ack(channel, message.delivery_tag, 0, QS_ERROR))) {
            note_acked(consumer, number);
        }
    }
    qs_channel_close(channel);
    return NULL;
}

static void *consume_batches(void *argument)
{
    struct consumer *consumer = argument;
    qs_channel *channel = open_channel(&consumer->work->shared);

    for (uint32_t turn = 0; !is_over(consumer); turn++) {
        struct received batch;
        uint64_t last;
        if (!goes_on(consumer, &channel,
                     qs_channel_get_batch(channel, text(work_names[consumer->queue]), BATCH_ROWS,
                                          UINT64_MAX, 0, 0, &batch.schema, &batch.array,
                                          QS_ERROR))) {
            usleep(PAUSE_US);
            continue;
        }
        if (batch.array.length == 0) {
            received_release(&batch);
            usleep(PAUSE_US);
            continue;
        }
        last = received_tag(&batch, batch.array.length - 1);
        if (turn % 5 == 4) {
            (void)goes_on(consumer, &channel,
                          qs_channel_nack(channel, last, QS_REQUEUE | QS_MULTIPLE, 0, QS_ERROR));
        } else if (goes_on(consumer, &channel,
                           qs_channel_ack(channel, last, QS_MULTIPLE, QS_ERROR))) {
            for (int64_t row = 0; row < batch.array.length; row++) {
                note_acked(consumer, number_of(received_body(&batch, row)));
            }
        }
        received_release(&batch);
    }
    qs_channel_close(channel);
    return NULL;
}

/* ---- beside them ---- */

static void *make_checkpoints(void *argument)
{
    struct work *work = argument;

    while (!atomic_load(&work->shared.done)) {
        qs_queue_status status;
        QS_CHECK_OK(qs_store_checkpoint(work->shared.engine.store, QS_ERROR));
        (void)!qs_store_queue_status(work->shared.engine.store, text("work.0"), &status, NULL);
    }
    return NULL;
}

static void run_threads(struct work *work, bool is_whole)
{
    pthread_t publishers[PUBLISHERS], consumers[2 * WORK_QUEUES], checkpoints;
    struct consumer contexts[WORK_QUEUES];

    memset(work, 0, sizeof *work);
    start_store(&work->shared, false);
    work->is_whole = is_whole;
    declare_all(work->shared.engine.channel);
    atomic_store(&work->shared.publishing, PUBLISHERS);
    checkpoints = start(make_checkpoints, work);
    for (uint32_t i = 0; i < WORK_QUEUES; i++) {
        contexts[i] = (struct consumer){work, i};
        consumers[2 * i] = start(consume_by_get, &contexts[i]);
        consumers[2 * i + 1] = start(consume_batches, &contexts[i]);
    }
    for (uint32_t i = 0; i < PUBLISHERS; i++) {
        publishers[i] = start(publish_all, work);
    }
    for (int i = 0; !is_whole && i < DELETIONS; i++) {
        QS_CHECK_OK(qs_store_sync(work->shared.engine.store, QS_ERROR));
        delete_all(&work->shared.engine);
        declare_all(work->shared.engine.channel);
    }
    for (uint32_t i = 0; i < PUBLISHERS; i++) {
        QS_CHECK(pthread_join(publishers[i], NULL) == 0);
    }
    atomic_store(&work->shared.done, !is_whole);
    for (uint32_t i = 0; i < 2 * WORK_QUEUES; i++) {
        QS_CHECK(pthread_join(consumers[i], NULL) == 0);
    }
    atomic_store(&work->shared.done, true);
    QS_CHECK(pthread_join(checkpoints, NULL) == 0);
}

QS_TEST(test_each_work_queue_gives_each_message_once)
{
    static struct work work;

    run_threads(&work, true);
    for (uint32_t queue = 0; queue < WORK_QUEUES; queue++) {
        for (uint32_t number = 0; number < ALL; number++) {
            QS_CHECK(atomic_load(&work.times[queue][number]) == 1);
        }
        check_counts(&work.shared.engine, work_names[queue], 0, 0);
    }
    engine_reopen(&work.shared.engine);
    check_counts(&work.shared.engine, work_names[0], 0, 0);
    engine_stop(&work.shared.engine);
}

QS_TEST(test_a_stream_goes_while_its_work_queues_are_consumed)
{
    static struct work work;

    run_threads(&work, false);
    engine_reopen(&work.shared.engine);
    QS_CHECK_OK(qs_store_checkpoint(work.shared.engine.store, QS_ERROR));
    engine_stop(&work.shared.engine);
}
