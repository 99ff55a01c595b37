/* One store on disk and many threads: publishers of messages and of batches, consumers of each
 * kind, queues that come and go, callers of sync and readers of statistics, and a close under
 * those who wait.  Every message arrives once, in order, and the totals agree.
 *
 * Meant for -fsanitize=thread; files are small, so that they roll over all the time. */
#include "concurrent_fixture.h"
#include "qs_test_calls.h"

#define SINGLE_PUBLISHERS 2
#define PUBLISHERS (SINGLE_PUBLISHERS + 1) /* the last one publishes batches */
#define MESSAGES 4800                      /* of each publisher */
#define BATCH_ROWS 40
#define LARGE_EVERY 16
#define LARGE_BYTES 3000

struct consumer {
    struct shared *shared;
    int queue;
    qs_channel *channel;
    uint32_t next[PUBLISHERS]; /* the least number that may come */
    uint32_t counts[PUBLISHERS];
};

/* "<publisher> <number> ....": number n of a publisher goes to queue n % QUEUES. */
static size_t write_body(char *body, int publisher, uint32_t number)
{
    size_t bytes = number % LARGE_EVERY == 7 ? LARGE_BYTES : 24 + number % 100;

    memset(body, '.', bytes);
    body[snprintf(body, 24, "%d %u", publisher, number)] = ' ';
    body[bytes] = '\0';
    return bytes;
}

static void check_body(struct consumer *consumer, qs_slice body, bool redelivered)
{
    char expected[LARGE_BYTES + 1];
    int publisher = -1;
    uint32_t number = 0;

    QS_CHECK(body.bytes >= 24 && body.bytes <= LARGE_BYTES);
    memcpy(expected, body.data, 23);
    expected[23] = '\0';
    QS_CHECK(sscanf(expected, "%d %u", &publisher, &number) == 2);
    QS_CHECK(publisher >= 0 && publisher < PUBLISHERS && number < MESSAGES);
    QS_CHECK(write_body(expected, publisher, number) == body.bytes);
    QS_CHECK(memcmp(expected, body.data, body.bytes) == 0);
    QS_CHECK(number % QUEUES == (uint32_t)consumer->queue);
    if (!redelivered) {
        QS_CHECK(number >= consumer->next[publisher]);
        consumer->next[publisher] = number + 1;
    }
}

static void settled(struct consumer *consumer, uint32_t count)
{
    if (atomic_fetch_add(&consumer->shared->received, count) + count == PUBLISHERS * MESSAGES) {
        atomic_store(&consumer->shared->done, true);
    }
}

/* ---- publishers ---- */

struct publisher {
    struct shared *shared;
    int index;
};

static void *publish_singles(void *argument)
{
    struct publisher *publisher = argument;
    qs_channel *channel = open_channel(publisher->shared);
    char body[LARGE_BYTES + 1];
    bool nacked;

    QS_CHECK_OK(qs_channel_confirm_select(channel, QS_ERROR));
    for (uint32_t number = 0; number < MESSAGES; number++) {
        size_t bytes = write_body(body, publisher->index, number);
        qs_slice properties = number % 11 == 5 ? TRANSIENT : PERSISTENT;
        qs_receipt receipt;

        QS_CHECK_OK(qs_channel_publish(channel, NONE, text(queue_names[number % QUEUES]),
                                       properties, (qs_slice){body, bytes}, 0, 0, &receipt,
                                       QS_ERROR));
        QS_CHECK(receipt.first_number == number + 1);
        if (number % 100 == 99) {
            QS_CHECK_OK(qs_channel_wait_confirms(channel, QS_FOREVER, &nacked, QS_ERROR));
            QS_CHECK(!nacked);
        } else if (number % 100 == 50) {
            QS_CHECK_OK(qs_store_wait_durable(publisher->shared->engine.store, receipt.lsn,
                                              QS_FOREVER, QS_ERROR));
        }
    }
    QS_CHECK_OK(qs_channel_wait_confirms(channel, QS_FOREVER, &nacked, QS_ERROR));
    atomic_fetch_sub(&publisher->shared->publishing, 1);
    qs_channel_close(channel);
    return NULL;
}

static void *publish_batches(void *argument)
{
    struct publisher *publisher = argument;
    qs_channel *channel = open_channel(publisher->shared);
    static char bodies[BATCH_ROWS][LARGE_BYTES + 1];
    uint64_t confirmed = 0;

    QS_CHECK_OK(qs_channel_confirm_select(channel, QS_ERROR));
    for (uint32_t number = 0; number < MESSAGES; number += BATCH_ROWS) {
        const char *texts[BATCH_ROWS], *keys[BATCH_ROWS];
        struct table table;
        qs_receipt receipt;

        for (uint32_t row = 0; row < BATCH_ROWS; row++) {
            write_body(bodies[row], publisher->index, number + row);
            texts[row] = bodies[row];
            keys[row] = queue_names[(number + row) % QUEUES];
        }
        table_init(&table, BATCH_ROWS);
        table_add_strings(&table, "body", "z", texts);
        table_add_strings(&table, "routing_key", "u", keys);
        QS_CHECK_OK(table_publish(channel, &table, "", "", 0, &receipt, QS_ERROR));
        QS_CHECK(receipt.count == BATCH_ROWS && receipt.last_number == number + BATCH_ROWS);
        table_fini(&table);
    }
    while (confirmed < MESSAGES) { /* pipelined: the events tell */
        qs_event event;

        QS_CHECK_OK(qs_channel_next_event(channel, QS_EVENT_ACK | QS_EVENT_NACK, QS_FOREVER, &event,
                                          QS_ERROR));
        QS_CHECK(event.kind == QS_EVENT_ACK && event.publish_number > confirmed);
        confirmed = event.publish_number;
    }
    atomic_fetch_sub(&publisher->shared->publishing, 1);
    qs_channel_close(channel);
    return NULL;
}

/* ---- consumers ---- */

static void *consume_by_get(void *argument)
{
    struct consumer *consumer = argument;
    uint32_t turn = 0;

    while (!atomic_load(&consumer->shared->done)) {
        qs_message message;
        qs_status status = qs_channel_get(consumer->channel, text(queue_names[consumer->queue]), 0,
                                          &message, QS_ERROR);

        if (status == QS_EEMPTY) {
            usleep(PAUSE_US);
            continue;
        }
        QS_CHECK(status == QS_OK);
        check_body(consumer, message.body, message.redelivered);
        qs_message_release(&message);
        if (++turn % 50 == 0 && !message.redelivered) {
            QS_CHECK_OK(
                qs_channel_nack(consumer->channel, message.delivery_tag, QS_REQUEUE, 0, QS_ERROR));
        } else {
            QS_CHECK_OK(qs_channel_ack(consumer->channel, message.delivery_tag, 0, QS_ERROR));
            settled(consumer, 1);
        }
    }
    return NULL;
}

static void *consume_by_batch(void *argument)
{
    struct consumer *consumer = argument;

    while (!atomic_load(&consumer->shared->done)) {
        struct received received;
        int64_t rows;

        QS_CHECK_OK(qs_channel_get_batch(consumer->channel, text(queue_names[consumer->queue]), 100,
                                         1u << 20, 0, SECOND / 50, &received.schema,
                                         &received.array, QS_ERROR));
        rows = received.array.length;
        for (int64_t row = 0; row < rows; row++) {
            check_body(consumer, received_body(&received, row), false);
            QS_CHECK(!received_redelivered(&received, row));
        }
        if (rows > 0) {
            QS_CHECK_OK(qs_channel_ack(consumer->channel, received_tag(&received, rows - 1),
                                       QS_MULTIPLE, QS_ERROR));
            settled(consumer, (uint32_t)rows);
        }
        received_release(&received);
    }
    return NULL;
}

static void *consume_by_event(void *argument)
{
    struct consumer *consumer = argument;

    QS_CHECK_OK(qs_channel_qos(consumer->channel, 20, 0, 0, QS_ERROR));
    QS_CHECK_OK(qs_test_consume(consumer->channel, queue_names[consumer->queue], "", 0, NONE));
    while (!atomic_load(&consumer->shared->done)) {
        qs_event event;
        qs_status status = qs_channel_next_event(consumer->channel, QS_EVENT_DELIVERY, SECOND / 50,
                                                 &event, QS_ERROR);

        if (status == QS_EEMPTY) {
            continue;
        }
        QS_CHECK(status == QS_OK);
        check_body(consumer, event.message.body, event.message.redelivered);
        QS_CHECK_OK(qs_channel_ack(consumer->channel, event.message.delivery_tag, 0, QS_ERROR));
        qs_message_release(&event.message);
        settled(consumer, 1);
    }
    return NULL;
}

/* ---- the others ---- */

/* Queues that come, get a copy of something and go, with messages ready and unacked in them. */
static void *change_topology(void *argument)
{
    struct shared *shared = argument;
    qs_channel *channel = open_channel(shared);

    for (uint32_t turn = 0; !atomic_load(&shared->done); turn++) {
        uint32_t flags = turn % 2 == 0 ? QS_DURABLE : QS_AUTO_DELETE;
        qs_message message;
        uint64_t count;

        qs_test_declare(channel, "temporary", flags, NULL);
        QS_CHECK_OK(qs_test_bind(channel, "temporary", "amq.topic", "a.#", 0));
        for (int i = 0; i < 3; i++) {
            QS_CHECK_OK(qs_test_publish(channel, "amq.topic", "a.b", PERSISTENT, text("copy"), 0));
        }
        QS_CHECK_OK(qs_channel_get(channel, text("temporary"), 0, &message, QS_ERROR));
        qs_message_release(&message);
        if (turn % 3 == 0) {
            QS_CHECK_OK(qs_channel_queue_purge(channel, text("temporary"), 0, &count, QS_ERROR));
            QS_CHECK(count == 2);
        }
        QS_CHECK_OK(qs_channel_queue_delete(channel, text("temporary"), 0, &count, QS_ERROR));
        QS_CHECK(count == (turn % 3 == 0 ? 0 : 2));
        QS_CHECK_OK(qs_channel_ack(channel, message.delivery_tag, 0, QS_ERROR));
    }
    qs_channel_close(channel);
    return NULL;
}

static void *sync_all_the_time(void *argument)
{
    struct shared *shared = argument;
    uint64_t durable = 0;

    while (!atomic_load(&shared->done)) {
        uint64_t now;

        QS_CHECK_OK(qs_store_sync(shared->engine.store, QS_ERROR));
        now = qs_store_durable_lsn(shared->engine.store);
        QS_CHECK(now >= durable);
        durable = now;
    }
    return NULL;
}

static void ignore_queue(void *context, const qs_queue_info *info)
{
    *(size_t *)context += info->name.bytes;
}

static void *read_statistics(void *argument)
{
    struct shared *shared = argument;

    while (!atomic_load(&shared->done)) {
        qs_stats stats;
        qs_queue_status status;
        size_t bytes = 0;

        qs_store_stats(shared->engine.store, &stats);
        QS_CHECK(stats.durable_lsn <= stats.appended_lsn && !stats.failed);
        QS_CHECK_OK(
            qs_store_queue_status(shared->engine.store, text(queue_names[0]), &status, QS_ERROR));
        QS_CHECK(status.alpha + status.beta + status.gamma + status.delta ==
                 status.messages_ready + status.messages_unacked);
        QS_CHECK_OK(qs_store_visit_queues(shared->engine.store, ignore_queue, &bytes));
        QS_CHECK(bytes >= 1);
        usleep(PAUSE_US);
    }
    return NULL;
}

/* ---- all of them ---- */

static void check_totals(struct shared *shared)
{
    qs_stats stats = stats_of(&shared->engine);

    for (int i = 0; i < QUEUES; i++) {
        check_counts(&shared->engine, queue_names[i], 0, 0);
    }
    QS_CHECK(atomic_load(&shared->received) == PUBLISHERS * MESSAGES);
    QS_CHECK(stats.messages_published >= PUBLISHERS * MESSAGES);
    QS_CHECK(stats.messages_acked + stats.messages_requeued >= stats.messages_delivered);
    QS_CHECK(stats.bytes_stored >
             (uint64_t)(PUBLISHERS * MESSAGES / LARGE_EVERY) * LARGE_BYTES / 2);
    QS_CHECK(!stats.failed);
}

QS_BOOL_TEST(test_every_message_arrives_once_among_many_threads, limited)
{
    static struct shared shared;
    struct publisher publishers[PUBLISHERS];
    struct consumer consumers[QUEUES] = {0};
    void *(*const consume[QUEUES])(void *) = {consume_by_get, consume_by_batch, consume_by_event};
    pthread_t threads[PUBLISHERS + QUEUES + 3];
    int count = 0;

    start_store(&shared, limited);
    atomic_store(&shared.publishing, PUBLISHERS);
    for (int i = 0; i < QUEUES; i++) {
        consumers[i].shared = &shared;
        consumers[i].queue = i;
        consumers[i].channel = open_channel(&shared);
        threads[count++] = start(consume[i], &consumers[i]);
    }
    for (int i = 0; i < PUBLISHERS; i++) {
        publishers[i] = (struct publisher){&shared, i};
        threads[count++] =
            start(i < SINGLE_PUBLISHERS ? publish_singles : publish_batches, &publishers[i]);
    }
    threads[count++] = start(change_topology, &shared);
    threads[count++] = start(sync_all_the_time, &shared);
    threads[count++] = start(read_statistics, &shared);
    for (int i = 0; i < count; i++) {
        QS_CHECK(pthread_join(threads[i], NULL) == 0);
    }
    for (int i = 0; i < QUEUES; i++) {
        qs_channel_close(consumers[i].channel);
    }
    check_totals(&shared);
    engine_reopen(&shared.engine); /* and all of it was journalled */
    for (int i = 0; i < QUEUES; i++) {
        check_counts(&shared.engine, queue_names[i], 0, 0);
    }
    QS_CHECK(!has_queue(&shared.engine, "temporary"));
    engine_stop(&shared.engine);
}
