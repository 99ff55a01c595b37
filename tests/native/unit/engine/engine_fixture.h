/* What the tests of the engine share: a store in memory or on disk, and its verbs in short. */
#ifndef ENGINE_FIXTURE_H
#define ENGINE_FIXTURE_H

#include "qstore/qstore.h"

#include "env_test.h"
#include "qs_test_calls.h"
#include "qs_test_fields.h"
#include "qs_test_slices.h"

#define SECOND UINT64_C(1000000000)

/* In memory nothing runs by itself: whoever waits commits.  On disk everything runs as in a
 * program. */
enum place { IN_MEMORY, ON_DISK };

struct engine {
    qs_env *env; /* of the store */
    qs_env *memory;
    qs_env *fault; /* around memory or the disk; NULL: none */
    char path[128];
    qs_options options;
    qs_store *store;
    qs_channel *channel;
    struct engine *dead; /* the one before a crash, which ends with it; NULL: none */
};

static inline void engine_open(struct engine *engine)
{
    QS_CHECK_OK(
        qs_store_open(&engine->store, engine->path, &engine->options, engine->env, QS_ERROR));
    QS_CHECK_OK(qs_channel_open(&engine->channel, engine->store, QS_ERROR));
}

static inline void engine_init(struct engine *engine, enum place place)
{
    memset(engine, 0, sizeof *engine);
    qs_options_default(&engine->options);
    engine->options.journal_file_bytes = 1u << 20;
    engine->options.message_file_bytes = 1u << 20;
    if (place == ON_DISK) {
        qs_test_make_dir(engine->path, sizeof engine->path);
        engine->env = qs_env_posix();
        return;
    }
    engine->options.background = false;
    snprintf(engine->path, sizeof engine->path, "store");
    engine->memory = qsi_env_mem_create(1);
    engine->env = engine->memory;
}

/* Calls of its environment may fail from here on; the environment that fails them ends with it. */
static inline qs_env *engine_put_fault(struct engine *engine)
{
    engine->env = engine->fault = qsi_env_fault_create(engine->env);
    return engine->fault;
}

static inline void engine_start(struct engine *engine, enum place place)
{
    engine_init(engine, place);
    engine_open(engine);
}

static inline bool is_known(qs_store *store, qs_slice key)
{
    bool known;

    QS_CHECK_OK(qs_store_transaction_known(store, key, &known, QS_ERROR));
    return known;
}

static inline void engine_close(struct engine *engine)
{
    qs_channel_close(engine->channel);
    QS_CHECK_OK(qs_store_close(engine->store, QS_ERROR));
}

static inline void engine_reopen(struct engine *engine)
{
    engine_close(engine);
    engine_open(engine);
}

static inline void engine_stop(struct engine *engine);

static inline void engine_fini(struct engine *engine)
{
    if (engine->dead != NULL) {
        engine_stop(engine->dead);
        free(engine->dead);
    }
    qsi_env_fault_destroy(engine->fault);
    if (engine->memory != NULL) {
        qsi_env_mem_destroy(engine->memory);
    } else {
        qs_test_remove_dir(engine->path);
    }
}

static inline void engine_stop(struct engine *engine)
{
    engine_close(engine);
    engine_fini(engine);
}

/* A store on what a crash now would leave: what was written is there, nothing is closed.  In memory
 * only; the caller stops it. */
static inline void engine_open_crashed(const struct engine *engine, struct engine *crashed_out)
{
    static uint64_t seed = 1; /* another one each time: salts of sessions never repeat */

    *crashed_out = *engine;
    crashed_out->memory = qsi_env_mem_clone(engine->memory, ++seed);
    crashed_out->env = crashed_out->memory;
    crashed_out->fault = NULL;
    crashed_out->dead = NULL;
    engine_open(crashed_out);
}

/* The process dies, and another one opens the store; the old one stays open until the end. */
static inline void engine_crash(struct engine *engine)
{
    struct engine *dead = malloc(sizeof *dead);

    QS_CHECK(dead != NULL);
    *dead = *engine;
    engine_open_crashed(dead, engine);
    engine->dead = dead;
}

/* After an AMQP error: another channel. */
static inline void engine_new_channel(struct engine *engine)
{
    qs_channel_close(engine->channel);
    QS_CHECK_OK(qs_channel_open(&engine->channel, engine->store, QS_ERROR));
}

/* The call ends the channel with this status; another one takes its place. */
#define CHECK_CHANNEL_ERROR(engine, expected, call)                              \
    do {                                                                         \
        QS_CHECK_STATUS(expected, call);                                         \
        QS_CHECK_STATUS(QS_ECHANNEL_CLOSED,                                      \
                        qs_channel_confirm_select((engine)->channel, QS_ERROR)); \
        engine_new_channel(engine);                                              \
    } while (0)

static inline void declare(struct engine *engine, const char *queue, uint32_t flags)
{
    qs_test_declare(engine->channel, queue, flags, NULL);
}

static inline void declare_exchange(struct engine *engine, const char *exchange, const char *type,
                                    uint32_t flags)
{
    QS_CHECK_OK(qs_test_declare_exchange(engine->channel, exchange, type, flags));
}

static inline void bind_queue(struct engine *engine, const char *queue, const char *exchange,
                              const char *key)
{
    QS_CHECK_OK(qs_test_bind(engine->channel, queue, exchange, key, 0));
}

static inline qs_receipt publish_to(struct engine *engine, const char *exchange, const char *key,
                                    qs_slice properties, qs_slice body)
{
    qs_receipt receipt;

    QS_CHECK_OK(qs_channel_publish(engine->channel, text(exchange), text(key), properties, body, 0,
                                   0, &receipt, QS_ERROR));
    QS_CHECK(receipt.count == 1);
    return receipt;
}

/* A persistent message through the default exchange. */
static inline qs_receipt publish(struct engine *engine, const char *queue, const char *body)
{
    return publish_to(engine, "", queue, PERSISTENT, text(body));
}

/* Gets the next message, which has this body, and releases it; its slices may no longer be read. */
static inline qs_message get_flags(struct engine *engine, const char *queue, const char *body,
                                   uint32_t flags)
{
    qs_message message;

    QS_CHECK_OK(qs_channel_get(engine->channel, text(queue), flags, &message, QS_ERROR));
    if (!holds(message.body, body)) {
        fprintf(stderr, "queue %s: expected '%s', got '%.*s'\n", queue, body,
                (int)message.body.bytes, (const char *)message.body.data);
        QS_CHECK(!"body");
    }
    qs_message_release(&message);
    return message;
}

static inline qs_message get(struct engine *engine, const char *queue, const char *body)
{
    return get_flags(engine, queue, body, 0);
}

/* Messages whose bodies are numbers. */
static inline qs_receipt publish_number(struct engine *engine, const char *queue, int64_t number)
{
    char body[32];

    snprintf(body, sizeof body, "%" PRId64, number);
    return publish(engine, queue, body);
}

static inline qs_message get_number(struct engine *engine, const char *queue, int64_t number)
{
    char body[32];

    snprintf(body, sizeof body, "%" PRId64, number);
    return get(engine, queue, body);
}

/* From the first number to the one before end. */
static inline void publish_numbers(struct engine *engine, const char *queue, int64_t first,
                                   int64_t end)
{
    for (; first < end; first++) {
        publish_number(engine, queue, first);
    }
}

static inline void get_numbers(struct engine *engine, const char *queue, int64_t first, int64_t end)
{
    for (; first < end; first++) {
        get_number(engine, queue, first);
    }
}

static inline void get_nothing(struct engine *engine, const char *queue)
{
    qs_message message;

    QS_CHECK_STATUS(QS_EEMPTY, qs_channel_get(engine->channel, text(queue), 0, &message, QS_ERROR));
}

static inline void ack(struct engine *engine, uint64_t tag, uint32_t flags)
{
    QS_CHECK_OK(qs_channel_ack(engine->channel, tag, flags, QS_ERROR));
}

static inline void check_counts(struct engine *engine, const char *queue, uint64_t ready,
                                uint64_t unacked)
{
    qs_queue_status status;

    QS_CHECK_OK(qs_store_queue_status(engine->store, text(queue), &status, QS_ERROR));
    if (status.messages_ready != ready || status.messages_unacked != unacked) {
        fprintf(stderr, "queue %s: %" PRIu64 " ready and %" PRIu64 " unacked\n", queue,
                status.messages_ready, status.messages_unacked);
        QS_CHECK(status.messages_ready == ready && status.messages_unacked == unacked);
    }
}

/* As check_counts, of what a thread of the store may still be at. */
static inline void await_counts(struct engine *engine, const char *queue, uint64_t ready,
                                uint64_t unacked)
{
    qs_queue_status status;

    do {
        QS_CHECK_OK(qs_store_queue_status(engine->store, text(queue), &status, QS_ERROR));
    } while (engine->options.background &&
             (status.messages_ready != ready || status.messages_unacked != unacked) &&
             usleep(1000) == 0);
    check_counts(engine, queue, ready, unacked);
}

static inline bool has_queue(struct engine *engine, const char *queue)
{
    qs_queue_status status;

    return qs_store_queue_status(engine->store, text(queue), &status, NULL) == QS_OK;
}

static inline qs_stats stats_of(struct engine *engine)
{
    qs_stats stats;

    qs_store_stats(engine->store, &stats);
    return stats;
}

/* The next event is of this kind, however long it takes; the caller releases its message. */
static inline qs_event expect_event(struct engine *engine, uint32_t kinds, uint32_t kind)
{
    qs_event event;

    QS_CHECK_OK(qs_channel_next_event(engine->channel, kinds, QS_FOREVER, &event, QS_ERROR));
    if (event.kind != kind) {
        fprintf(stderr, "event of kind %u, not %u\n", event.kind, kind);
        QS_CHECK(event.kind == kind);
    }
    return event;
}

static inline void expect_no_event(struct engine *engine, uint32_t kinds)
{
    qs_event event;

    QS_CHECK_STATUS(QS_EEMPTY, qs_channel_next_event(engine->channel, kinds, 0, &event, QS_ERROR));
}

/* A body of this size that names its number, the same bytes each time. */
static inline char *make_body(size_t bytes, uint32_t number)
{
    char *body = malloc(bytes + 1);

    QS_CHECK(body != NULL);
    for (size_t i = 0; i < bytes; i++) {
        body[i] = (char)('a' + (i * 7 + number) % 26);
    }
    body[bytes] = '\0';
    return body;
}

/* A test of an engine, in memory and on disk. */
typedef void engine_test(struct engine *engine);
static inline void run_in_each_place(engine_test *test)
{
    for (int place = IN_MEMORY; place <= ON_DISK; place++) {
        struct engine engine;

        engine_start(&engine, (enum place)place);
        test(&engine);
        engine_stop(&engine);
    }
}
#define ENGINE_TEST(name) QS_TEST_BY(run_in_each_place, name, (struct engine * engine))

QS_TEST_FIXTURE(run_in_memory, struct engine, engine_start(&fixture, IN_MEMORY),
                engine_stop(&fixture))
#define IN_MEMORY_TEST(name) QS_TEST_BY(run_in_memory, name, (struct engine * engine))
/* One that the test opens, with options of its own. */
QS_TEST_FIXTURE(run_unopened, struct engine, engine_init(&fixture, IN_MEMORY),
                engine_stop(&fixture))
#define UNOPENED_TEST(name) QS_TEST_BY(run_unopened, name, (struct engine * engine))
QS_TEST_FIXTURE(run_on_disk, struct engine, engine_start(&fixture, ON_DISK), engine_stop(&fixture))
#define ON_DISK_TEST(name) QS_TEST_BY(run_on_disk, name, (struct engine * engine))

/* One that makes its engine itself, in either place. */
static inline void run_with_each_place(void (*test)(enum place place))
{
    test(IN_MEMORY);
    test(ON_DISK);
}
#define PLACE_TEST(name) QS_TEST_BY(run_with_each_place, name, (enum place place))

#endif
