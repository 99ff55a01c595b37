/* A store on disk whose memory is far too small: publishers, consumers, checkpoints one after
 * another, a mode that changes, and readers of the status, all at once.  Every message arrives
 * once, per publisher in order unless it was requeued; RabbitMQ's invariants hold whenever
 * somebody looks; memory stays within its budget; and afterwards the space is back.
 *
 * Meant for -fsanitize=thread as well. */
#include "../unit/engine/engine_fixture.h"
#include "qs_test_dirs.h"

#include <pthread.h>
#include <stdatomic.h>

#define QUEUES 2
#define PUBLISHERS 2
#define MESSAGES 12000 /* of each publisher */
#define LARGE_BYTES 3000
#define BUDGET (256u << 10)

static const char *const queue_names[QUEUES] = {"plain", "lazy"};

struct shared {
    struct engine engine;
    atomic_uint received;
    atomic_uint publishing;
    atomic_bool done;
};

struct worker {
    struct shared *shared;
    int number;
};

/* Message number n of a publisher: every fifth goes to both queues, the others in turn. */
static bool goes_to(uint32_t number, int queue)
{
    return number % 5 == 0 || number % QUEUES == (uint32_t)queue;
}

static size_t write_body(char *body, int publisher, uint32_t number)
{
    size_t bytes = number % 23 == 7 ? LARGE_BYTES : 24 + number % 300;

    memset(body, '.', bytes);
    body[snprintf(body, 24, "%d %u", publisher, number)] = ' ';
    body[bytes] = '\0';
    return bytes;
}

static void *run_publisher(void *argument)
{
    struct worker *worker = argument;
    struct shared *shared = worker->shared;
    qs_channel *channel;
    char body[LARGE_BYTES + 1];

    QS_CHECK_OK(qs_channel_open(&channel, shared->engine.store, QS_ERROR));
    for (uint32_t number = 0; number < MESSAGES; number++) {
        size_t bytes = write_body(body, worker->number, number);
        bool both = number % 5 == 0;
        const char *key = both ? "" : queue_names[number % QUEUES];
        QS_CHECK_OK(qs_test_publish(channel, both ? "amq.fanout" : "", key,
                                    number % 11 == 3 ? TRANSIENT : PERSISTENT,
                                    (qs_slice){body, bytes}, 0));
    }
    qs_channel_close(channel);
    atomic_fetch_sub(&shared->publishing, 1);
    return NULL;
}

struct expected {
    uint32_t next[PUBLISHERS];
    uint32_t seen[PUBLISHERS][MESSAGES];
};

/* A slice does not end in a zero, and sscanf looks for one: the head is copied. */
static void read_body(qs_slice body, int *publisher, uint32_t *number)
{
    char head[24];

    QS_CHECK(body.bytes >= sizeof head && body.bytes <= LARGE_BYTES);
    memcpy(head, body.data, sizeof head - 1);
    head[sizeof head - 1] = '\0';
    QS_CHECK(sscanf(head, "%d %u", publisher, number) == 2);
}

static void check_message(struct expected *expected, int queue, const qs_message *message)
{
    char body[LARGE_BYTES + 1];
    int publisher = -1;
    uint32_t number = 0;

    read_body(message->body, &publisher, &number);
    QS_CHECK(publisher >= 0 && publisher < PUBLISHERS && number < MESSAGES);
    QS_CHECK(write_body(body, publisher, number) == message->body.bytes);
    QS_CHECK(memcmp(body, message->body.data, message->body.bytes) == 0);
    QS_CHECK(goes_to(number, queue));
    QS_CHECK(message->redelivered == (expected->seen[publisher][number] > 0));
    QS_CHECK(message->delivery_count == expected->seen[publisher][number]);
    QS_CHECK(message->redelivered || number >= expected->next[publisher]);
    if (!message->redelivered) {
        expected->next[publisher] = number + 1;
    }
}

/* Takes some, gives back a few of them, acks the others. */
static void *run_consumer(void *argument)
{
    struct worker *worker = argument;
    struct shared *shared = worker->shared;
    QS_TEST_FREED struct expected *expected = calloc(1, sizeof *expected);
    uint32_t random = 12345u + (uint32_t)worker->number;
    uint64_t left = 0;
    qs_channel *channel;

    QS_CHECK(expected != NULL);
    for (uint32_t number = 0; number < MESSAGES; number++) {
        left += goes_to(number, worker->number) ? PUBLISHERS : 0;
    }
    QS_CHECK_OK(qs_channel_open(&channel, shared->engine.store, QS_ERROR));
    while (left > 0) {
        qs_message message;
        qs_status status =
            qs_channel_get(channel, text(queue_names[worker->number]), 0, &message, QS_ERROR);
        int publisher = 0;
        uint32_t number = 0;
        if (status == QS_EEMPTY) {
            usleep(200);
            continue;
        }
        QS_CHECK_OK(status);
        check_message(expected, worker->number, &message);
        read_body(message.body, &publisher, &number);
        random = random * 1664525u + 1013904223u;
        if (random >> 24 < 16 && expected->seen[publisher][number] < 3) {
            expected->seen[publisher][number] += 1;
            QS_CHECK_OK(qs_channel_nack(channel, message.delivery_tag, QS_REQUEUE, 0, QS_ERROR));
        } else {
            QS_CHECK_OK(qs_channel_ack(channel, message.delivery_tag, 0, QS_ERROR));
            left -= 1;
        }
        qs_message_release(&message);
        if (random >> 24 == 255) {
            usleep(2000); /* the publishers get ahead */
        }
    }
    qs_channel_close(channel);
    atomic_fetch_add(&shared->received, 1);
    return NULL;
}

static void *make_checkpoints(void *argument)
{
    struct shared *shared = argument;

    while (!atomic_load(&shared->done)) {
        QS_CHECK_OK(qs_store_checkpoint(shared->engine.store, QS_ERROR));
        usleep(3000);
    }
    return NULL;
}

static void check_status(struct engine *engine, const char *queue)
{
    qs_queue_status status;

    QS_CHECK_OK(qs_store_queue_status(engine->store, text(queue), &status, QS_ERROR));
    QS_CHECK(status.alpha + status.beta + status.gamma + status.delta ==
             status.messages_ready + status.messages_unacked);
    QS_CHECK(status.q1 + status.q2 + status.delta_len + status.q3 + status.q4 ==
             status.messages_ready);
    QS_CHECK(status.q1 == 0 || status.q3 > 0);
    QS_CHECK(status.q2 == 0 || status.delta_len > 0);
    QS_CHECK(status.delta_len == 0 || status.q3 > 0);
    QS_CHECK((status.q3 == 0 && status.q4 == 0) == (status.messages_ready == 0));
}

static void *look(void *argument)
{
    struct shared *shared = argument;
    uint64_t most = 0;
    uint32_t turn = 0;
    qs_stats stats;

    while (!atomic_load(&shared->done)) {
        for (int i = 0; i < QUEUES; i++) {
            check_status(&shared->engine, queue_names[i]);
        }
        QS_CHECK_OK(
            qs_store_set_queue_mode(shared->engine.store, text("lazy"), turn++ % 8 < 4, QS_ERROR));
        qs_store_stats(shared->engine.store, &stats);
        most = stats.ram_bytes > most ? stats.ram_bytes : most;
        usleep(1000);
    }
    qs_store_stats(shared->engine.store, &stats);
    printf("%" PRIu64 " bytes at most, %" PRIu64 " paged out, %" PRIu64 " paged in, %" PRIu64
           " checkpoints, %" PRIu64 " segment files\n",
           most, stats.messages_paged_out, stats.messages_paged_in, stats.checkpoints,
           stats.segments_written);
    QS_CHECK(stats.messages_paged_out > 0 && stats.messages_paged_in > 0);
    return NULL;
}

/* Nobody takes any yet, and they are more than memory holds: from here on it is certain that
 * messages go to the disk and come back. */
static void await_paging(struct engine *engine)
{
    while (stats_of(engine).messages_paged_out == 0) {
        usleep(1000);
    }
}

int main(void)
{
    static struct shared shared;
    struct engine *engine = &shared.engine;
    struct worker publishers[PUBLISHERS], consumers[QUEUES];
    pthread_t threads[PUBLISHERS + QUEUES + 2];
    int count = 0;

    engine_init(engine, ON_DISK);
    engine->options.memory_budget = BUDGET;
    engine->options.segment_entries = 256;
    engine->options.embed_below = 1024;
    engine->options.journal_file_bytes = 256u << 10;
    engine->options.message_file_bytes = 64u << 10;
    engine->options.checkpoint_bytes = 512u << 10;
    engine_open(engine);
    for (int i = 0; i < QUEUES; i++) {
        declare(engine, queue_names[i], QS_DURABLE);
        bind_queue(engine, queue_names[i], "amq.fanout", "");
    }
    atomic_store(&shared.publishing, PUBLISHERS);
    for (int i = 0; i < PUBLISHERS; i++) {
        publishers[i] = (struct worker){&shared, i};
        QS_CHECK(pthread_create(&threads[count++], NULL, run_publisher, &publishers[i]) == 0);
    }
    await_paging(engine);
    for (int i = 0; i < QUEUES; i++) {
        consumers[i] = (struct worker){&shared, i};
        QS_CHECK(pthread_create(&threads[count++], NULL, run_consumer, &consumers[i]) == 0);
    }
    QS_CHECK(pthread_create(&threads[count++], NULL, make_checkpoints, &shared) == 0);
    QS_CHECK(pthread_create(&threads[count++], NULL, look, &shared) == 0);
    for (int i = 0; i < PUBLISHERS + QUEUES; i++) {
        pthread_join(threads[i], NULL);
    }
    atomic_store(&shared.done, true);
    for (int i = PUBLISHERS + QUEUES; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    engine_reopen(engine);
    QS_CHECK(qs_test_count_files(engine->env, engine->path, "index", "") == 0);
    QS_CHECK(qs_test_count_files(engine->env, engine->path, "transient", "") == 0);
    QS_CHECK(qs_test_count_files(engine->env, engine->path, "messages", "") == 0);
    engine_stop(engine);
    return 0;
}
