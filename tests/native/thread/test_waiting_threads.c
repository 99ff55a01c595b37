/* Many threads wait at several queues: who waits for what came is woken and nobody else, and none
 * is forgotten.
 *
 * Waits are endless here: a wake-up that is lost ends in the alarm. */
#include "concurrent_fixture.h"
#include "qs_test_batch.h"
#include "qs_test_calls.h"
#include "store.h"

#define SLEEPERS 8
#define ALARM_S 300

enum way { GETS, CONSUMES, READS };

struct sleeper {
    struct shared *shared;
    const char *queue;
    enum way way;
    qs_connection *connection; /* of its channel; NULL: it has one of its own */
    qs_status status;
    atomic_bool was_asleep;
    pthread_t thread;
};

/* ---- how many sleep, and how many were woken ---- */

static uint64_t woken_count(struct shared *shared)
{
    struct qs_store *store = shared->engine.store;
    uint64_t count;

    qsi_store_lock(store);
    count = store->events.woken_count;
    qsi_store_unlock(store);
    return count;
}

static void await_asleep(struct shared *shared, uint32_t count)
{
    struct qs_store *store = shared->engine.store;
    uint32_t asleep;

    do {
        usleep(PAUSE_US);
        qsi_store_lock(store);
        asleep = store->events.armed_count;
        qsi_store_unlock(store);
    } while (asleep != count);
}

static void run_with_store(void (*test)(struct shared *shared))
{
    static struct shared shared;

    start_store(&shared, false);
    test(&shared);
    engine_stop(&shared.engine);
}
#define STORE_TEST(name) QS_TEST_BY(run_with_store, name, (struct shared * shared))

/* ---- sleepers ---- */

static qs_status get_one(qs_channel *channel, const char *queue)
{
    struct received received;
    qs_status status = qs_channel_get_batch(channel, text(queue), 1, 1000, QS_NO_ACK, QS_FOREVER,
                                            &received.schema, &received.array, QS_ERROR);

    if (status == QS_OK) {
        QS_CHECK(received.array.length == 1);
        received_release(&received);
    }
    return status;
}

static qs_status consume_one(qs_channel *channel)
{
    qs_event event;
    qs_status status =
        qs_channel_next_event(channel, QS_EVENT_DELIVERY, QS_FOREVER, &event, QS_ERROR);

    if (status == QS_OK) {
        qs_message_release(&event.message);
    }
    return status;
}

static qs_status read_one(struct shared *shared, const char *stream)
{
    qs_stream_read read = {.start = {.at = QS_STREAM_NEXT}};
    qs_stream_reader *reader;
    struct received received;
    qs_status status;

    QS_CHECK_OK(
        qs_stream_reader_open(&reader, shared->engine.store, text(stream), &read, QS_ERROR));
    status = qs_stream_reader_next(reader, 10, 1000, QS_FOREVER, &received.schema, &received.array,
                                   QS_ERROR);
    if (status == QS_OK) {
        received_release(&received);
    }
    qs_stream_reader_close(reader);
    return status;
}

static void *sleep_once(void *argument)
{
    struct sleeper *sleeper = argument;
    qs_channel *channel;

    if (sleeper->way == READS) {
        sleeper->status = read_one(sleeper->shared, sleeper->queue);
        return NULL;
    }
    if (sleeper->connection != NULL) {
        QS_CHECK_OK(qs_connection_channel(&channel, sleeper->connection, QS_ERROR));
    } else {
        channel = open_channel(sleeper->shared);
    }
    if (sleeper->way == GETS) {
        sleeper->status = get_one(channel, sleeper->queue);
    } else {
        QS_CHECK_OK(qs_test_consume(channel, sleeper->queue, "", QS_NO_ACK, NONE));
        sleeper->status = consume_one(channel);
    }
    qs_channel_close(channel);
    return NULL;
}

static void start_sleepers(struct shared *shared, struct sleeper *sleepers, const char *queue,
                           enum way way)
{
    for (int i = 0; i < SLEEPERS; i++) {
        sleepers[i] = (struct sleeper){.shared = shared, .queue = queue, .way = way};
        sleepers[i].thread = start(sleep_once, &sleepers[i]);
    }
}

static void end_sleepers(struct sleeper *sleepers, qs_status status)
{
    for (int i = 0; i < SLEEPERS; i++) {
        QS_CHECK(pthread_join(sleepers[i].thread, NULL) == 0);
        QS_CHECK(sleepers[i].status == status);
    }
}

static void delete(struct shared *shared, const char *queue)
{
    QS_CHECK_OK(qs_test_delete(shared->engine.channel, queue, 0));
}

/* ---- tests ---- */

STORE_TEST(test_a_message_wakes_one_thread)
{
    struct sleeper idle[SLEEPERS], getting[SLEEPERS], consuming[SLEEPERS];
    uint64_t woken;

    start_sleepers(shared, idle, queue_names[0], GETS);
    start_sleepers(shared, getting, queue_names[1], GETS);
    start_sleepers(shared, consuming, queue_names[2], CONSUMES);
    await_asleep(shared, 3 * SLEEPERS);
    woken = woken_count(shared);
    for (uint32_t i = 1; i <= SLEEPERS; i++) {
        publish(&shared->engine, queue_names[1], "got");
        await_asleep(shared, 3 * SLEEPERS - 2 * i + 1);
        QS_CHECK(woken_count(shared) == woken + 2 * i - 1);
        publish(&shared->engine, queue_names[2], "consumed");
        await_asleep(shared, 3 * SLEEPERS - 2 * i);
        QS_CHECK(woken_count(shared) == woken + UINT64_C(2) * i);
    }
    end_sleepers(getting, QS_OK);
    end_sleepers(consuming, QS_OK);
    delete(shared, queue_names[0]);
    end_sleepers(idle, QS_NOT_FOUND);
    QS_CHECK(woken_count(shared) == woken + UINT64_C(3) * SLEEPERS);
}

STORE_TEST(test_messages_that_come_together_wake_as_many_threads)
{
    struct sleeper sleepers[SLEEPERS];
    uint64_t woken;
    qs_channel *channel = open_channel(shared);

    QS_CHECK_OK(qs_channel_tx_select(channel, QS_ERROR));
    for (int way = GETS; way <= CONSUMES; way++) {
        start_sleepers(shared, sleepers, queue_names[0], (enum way)way);
        await_asleep(shared, SLEEPERS);
        woken = woken_count(shared);
        for (int i = 0; i < SLEEPERS / 2; i++) {
            QS_CHECK_OK(
                qs_test_publish(channel, "", queue_names[0], PERSISTENT, text("together"), 0));
        }
        QS_CHECK(woken_count(shared) == woken);
        QS_CHECK_OK(qs_test_commit(channel, NONE, 0));
        await_asleep(shared, SLEEPERS / 2);
        QS_CHECK(woken_count(shared) == woken + SLEEPERS / 2);
        for (int i = 0; i < SLEEPERS / 2; i++) {
            publish(&shared->engine, queue_names[0], "the rest");
        }
        end_sleepers(sleepers, QS_OK);
    }
    qs_channel_close(channel);
}

/* What one leaves is for the next, and what one had and gave back as well. */
STORE_TEST(test_who_takes_less_than_there_is_wakes_the_next)
{
    struct sleeper sleepers[SLEEPERS];
    static struct qs_test_batch batch;
    qs_batch arrays;
    qs_message message;
    qs_receipt receipt;
    uint64_t woken;

    start_sleepers(shared, sleepers, queue_names[0], GETS);
    await_asleep(shared, SLEEPERS);
    woken = woken_count(shared);
    qs_test_batch_init(&batch);
    for (int i = 0; i < SLEEPERS - 1; i++) {
        (void)qs_test_batch_add(&batch, queue_names[0], 1);
    }
    arrays = qs_test_batch_finish(&batch);
    QS_CHECK_OK(qs_channel_publish_batch(shared->engine.channel, &arrays, &receipt, QS_ERROR));
    qs_test_batch_fini(&batch);
    await_asleep(shared, 1);
    QS_CHECK(woken_count(shared) == woken + SLEEPERS - 1);
    publish(&shared->engine, queue_names[1], "of another queue");
    message = get(&shared->engine, queue_names[1], "of another queue");
    QS_CHECK_OK(
        qs_channel_nack(shared->engine.channel, message.delivery_tag, QS_REQUEUE, 0, QS_ERROR));
    QS_CHECK(woken_count(shared) == woken + SLEEPERS - 1);
    publish(&shared->engine, queue_names[0], "the last");
    end_sleepers(sleepers, QS_OK);
}

STORE_TEST(test_who_is_closed_is_woken_alone)
{
    struct sleeper sleepers[SLEEPERS], closed[2];
    qs_connection *connection;
    uint64_t woken;

    QS_CHECK_OK(qs_connection_open(&connection, shared->engine.store, QS_ERROR));
    start_sleepers(shared, sleepers, queue_names[0], GETS);
    for (int i = 0; i < 2; i++) {
        closed[i] = (struct sleeper){.shared = shared,
                                     .queue = queue_names[0],
                                     .way = (enum way)i,
                                     .connection = connection};
        closed[i].thread = start(sleep_once, &closed[i]);
    }
    await_asleep(shared, SLEEPERS + 2);
    woken = woken_count(shared);
    qs_connection_close(connection);
    for (int i = 0; i < 2; i++) {
        QS_CHECK(pthread_join(closed[i].thread, NULL) == 0);
        QS_CHECK(closed[i].status == QS_ECHANNEL_CLOSED);
    }
    QS_CHECK(woken_count(shared) == woken + 2);
    for (int i = 0; i < SLEEPERS; i++) {
        publish(&shared->engine, queue_names[0], "for all");
    }
    end_sleepers(sleepers, QS_OK);
}

/* Its channel is closed between its wake-up and its turn, mostly: the message is the next one's. */
STORE_TEST(test_who_is_woken_and_closed_passes_the_message_on)
{
    for (int round = 0; round < 100; round++) {
        struct sleeper first = {.shared = shared, .queue = queue_names[0], .way = GETS};
        struct sleeper second = first;
        uint64_t left;
        QS_CHECK_OK(qs_connection_open(&first.connection, shared->engine.store, QS_ERROR));
        first.thread = start(sleep_once, &first);
        await_asleep(shared, 1);
        second.thread = start(sleep_once, &second);
        await_asleep(shared, 2);
        publish(&shared->engine, queue_names[0], "for one");
        qs_connection_close(first.connection);
        QS_CHECK(pthread_join(first.thread, NULL) == 0);
        QS_CHECK(first.status == QS_OK || first.status == QS_ECHANNEL_CLOSED);
        if (first.status == QS_OK) {
            publish(&shared->engine, queue_names[0], "for the other");
        }
        QS_CHECK(pthread_join(second.thread, NULL) == 0);
        QS_CHECK(second.status == QS_OK);
        /* What the first had when it was closed is the second's as well. */
        QS_CHECK_OK(qs_channel_queue_purge(shared->engine.channel, text(queue_names[0]), 0, &left,
                                           QS_ERROR));
        QS_CHECK(left <= 1);
    }
}

static void declare_stream(struct shared *shared, const char *name)
{
    qs_test_declare_with(shared->engine.channel, name, QS_DURABLE, "x-queue-type=stream");
}

STORE_TEST(test_a_stream_wakes_its_own_readers)
{
    struct sleeper readers[SLEEPERS], idle[SLEEPERS];
    qs_stream_read read = {.start = {.at = QS_STREAM_NEXT}};
    qs_stream_reader *both[3];
    uint64_t woken;

    declare_stream(shared, "s");
    declare_stream(shared, "idle");
    start_sleepers(shared, readers, "s", READS);
    start_sleepers(shared, idle, "idle", READS);
    await_asleep(shared, 2 * SLEEPERS);
    woken = woken_count(shared);
    publish(&shared->engine, "s", "read");
    end_sleepers(readers, QS_OK);
    QS_CHECK(woken_count(shared) == woken + SLEEPERS);
    for (int i = 0; i < 2; i++) {
        QS_CHECK_OK(qs_stream_reader_open(&both[i], shared->engine.store,
                                          text(i == 0 ? "s" : "idle"), &read, QS_ERROR));
    }
    both[2] = both[0]; /* twice is fine */
    QS_CHECK_STATUS(QS_EEMPTY, qs_stream_readers_wait(both, 3, 1000, QS_ERROR));
    publish(&shared->engine, "s", "waited for");
    QS_CHECK_OK(qs_stream_readers_wait(both, 3, QS_FOREVER, QS_ERROR));
    qs_stream_reader_close(both[0]);
    qs_stream_reader_close(both[1]);
    await_asleep(shared, SLEEPERS);
    delete(shared, "idle");
    end_sleepers(idle, QS_NOT_FOUND);
}

/* ---- rounds ---- */

#define ROUNDS 400
#define IN_ROUND 3
#define GETTERS 2
#define CONSUMERS 3

struct queue_of_rounds {
    struct shared *shared;
    const char *name;
    atomic_uint acked;
};

static bool is_over(qs_status status)
{
    QS_CHECK(status == QS_OK || status == QS_ECHANNEL_CLOSED || status == QS_ESTORE_CLOSED ||
             status == QS_EEMPTY);
    return status == QS_ESTORE_CLOSED || status == QS_ECHANNEL_CLOSED;
}

/* Some get one message and some two; what is redelivered is acknowledged. */
static void *get_in_rounds(void *argument)
{
    struct queue_of_rounds *queue = argument;
    qs_channel *channel = open_channel(queue->shared);
    unsigned turn = 0;

    for (;;) {
        struct received received;
        qs_status status = qs_channel_get_batch(channel, text(queue->name), 1 + turn % 2, 1000, 0,
                                                turn % 5 == 0 ? 50000 : QS_FOREVER,
                                                &received.schema, &received.array, QS_ERROR);
        turn += 1;
        if (is_over(status)) {
            break;
        }
        for (int64_t row = 0; row < received.array.length; row++) {
            uint64_t tag = received_tag(&received, row);
            if (!received_redelivered(&received, row) && turn % 3 == 0) {
                status = qs_channel_nack(channel, tag, QS_REQUEUE, 0, QS_ERROR);
            } else {
                status = qs_channel_ack(channel, tag, 0, QS_ERROR);
                atomic_fetch_add(&queue->acked, status == QS_OK ? 1 : 0);
            }
        }
        received_release(&received);
        if (is_over(status)) {
            break;
        }
    }
    qs_channel_close(channel);
    return NULL;
}

/* Has one message at a time; some put it back, and some go with it and come again. */
static void *consume_in_rounds(void *argument)
{
    struct queue_of_rounds *queue = argument;
    qs_status status = QS_OK;
    unsigned turn = 0;

    while (!is_over(status)) {
        qs_channel *channel;
        status = qs_channel_open(&channel, queue->shared->engine.store, QS_ERROR);
        if (is_over(status)) {
            break;
        }
        status = qs_channel_qos(channel, 1, 0, 0, QS_ERROR);
        if (status == QS_OK) {
            status = qs_test_consume(channel, queue->name, "", 0, NONE);
        }
        while (status == QS_OK || status == QS_EEMPTY) {
            qs_event event;
            status = qs_channel_next_event(channel, QS_EVENT_DELIVERY,
                                           turn % 5 == 0 ? 50000 : QS_FOREVER, &event, QS_ERROR);
            turn += 1;
            if (status != QS_OK) {
                continue;
            }
            qs_message_release(&event.message);
            if (!event.message.redelivered && turn % 7 == 0) {
                break; /* with the message */
            }
            if (!event.message.redelivered && turn % 3 == 0) {
                status =
                    qs_channel_nack(channel, event.message.delivery_tag, QS_REQUEUE, 0, QS_ERROR);
            } else {
                status = qs_channel_ack(channel, event.message.delivery_tag, 0, QS_ERROR);
                atomic_fetch_add(&queue->acked, status == QS_OK ? 1 : 0);
            }
        }
        qs_channel_close(channel);
    }
    return NULL;
}

/* A round is over when all its messages were acknowledged, so nothing comes after a wake-up that
 * was lost. */
static void *publish_in_rounds(void *argument)
{
    struct queue_of_rounds *queue = argument;
    qs_channel *channel = open_channel(queue->shared);

    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < IN_ROUND; i++) {
            QS_CHECK_OK(qs_test_publish(channel, "", queue->name,
                                        round % 2 == 0 ? TRANSIENT : PERSISTENT, text("round"), 0));
            if (round % 3 == i) {
                usleep(PAUSE_US);
            }
        }
        while (atomic_load(&queue->acked) != (round + 1) * IN_ROUND) {
            usleep(PAUSE_US);
        }
    }
    qs_channel_close(channel);
    return NULL;
}

static void test_no_wake_up_is_lost(bool with_getters, bool with_consumers)
{
    static struct shared shared;
    struct queue_of_rounds queues[QUEUES];
    pthread_t publishers[QUEUES], threads[QUEUES * (GETTERS + CONSUMERS)];
    int count = 0;

    start_store(&shared, false);
    for (int q = 0; q < QUEUES; q++) {
        queues[q] = (struct queue_of_rounds){.shared = &shared, .name = queue_names[q]};
        for (int i = 0; with_getters && i < GETTERS; i++) {
            threads[count++] = start(get_in_rounds, &queues[q]);
        }
        for (int i = 0; with_consumers && i < CONSUMERS; i++) {
            threads[count++] = start(consume_in_rounds, &queues[q]);
        }
        publishers[q] = start(publish_in_rounds, &queues[q]);
    }
    for (int q = 0; q < QUEUES; q++) {
        QS_CHECK(pthread_join(publishers[q], NULL) == 0);
    }
    QS_CHECK_OK(qs_store_close(shared.engine.store, QS_ERROR));
    for (int i = 0; i < count; i++) {
        QS_CHECK(pthread_join(threads[i], NULL) == 0);
    }
    qs_channel_close(shared.engine.channel);
    engine_fini(&shared.engine);
}

/* The queue may expire before the thread waits: then it is declared again. */
static void *sleep_at_what_expires(void *argument)
{
    struct sleeper *sleeper = argument;

    do {
        qs_channel *channel = open_channel(sleeper->shared);
        qs_test_declare_with(channel, sleeper->queue, 0, "x-expires=20");
        qs_channel_close(channel);
        (void)sleep_once(sleeper);
    } while (sleeper->status == QS_NOT_FOUND && !atomic_load(&sleeper->was_asleep));
    return NULL;
}

/* A queue with x-expires is in use while a thread waits there. */
STORE_TEST(test_a_queue_at_which_a_thread_waits_does_not_expire)
{
    struct sleeper sleeper = {.shared = shared, .queue = "used", .way = GETS};

    sleeper.thread = start(sleep_at_what_expires, &sleeper);
    await_asleep(shared, 1);
    atomic_store(&sleeper.was_asleep, true);
    usleep(100 * 1000);
    publish(&shared->engine, "used", "got");
    QS_CHECK(pthread_join(sleeper.thread, NULL) == 0);
    QS_CHECK(sleeper.status == QS_OK);
}

/* A thread that waits for ever takes what is delayed when that is due. */
QS_TEST(test_without_a_timer_who_waits_looks_itself)
{
    static struct shared shared;
    struct sleeper sleeper = {.shared = &shared, .queue = "q", .way = GETS};
    qs_receipt receipt;

    memset(&shared, 0, sizeof shared);
    engine_init(&shared.engine, ON_DISK);
    shared.engine.options.background = false;
    engine_open(&shared.engine);
    qs_test_declare(shared.engine.channel, "q", 0, NULL);
    QS_CHECK_OK(qs_channel_publish(shared.engine.channel, NONE, text("q"), TRANSIENT, text("late"),
                                   0, 50 * 1000, &receipt, QS_ERROR));
    sleeper.thread = start(sleep_once, &sleeper);
    QS_CHECK(pthread_join(sleeper.thread, NULL) == 0);
    QS_CHECK(sleeper.status == QS_OK);
    engine_stop(&shared.engine);
}

int main(void)
{
    alarm(ALARM_S);
    qs_test_run_all();
    test_no_wake_up_is_lost(true, false);
    test_no_wake_up_is_lost(false, true);
    test_no_wake_up_is_lost(true, true);
    return 0;
}
