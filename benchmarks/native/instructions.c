/* The hot paths, one a run, for counting their instructions (tools/instructions.py does, under
 * callgrind).
 *
 * What is counted is the same in each run: a store without threads, on files in memory, with a
 * clock that stands still.  Only the function run_<path> counts; what leads up to it does not.
 *
 * usage: instructions         prints what compiled it, and a line "PATH MESSAGES" for each path
 *        instructions PATH    goes it */
#include "qstore/qstore.h"

#include "env_test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_ROWS 10000u
#define BODY_BYTES 100u
#define BATCHES 10u
#define MESSAGES (BATCHES * BATCH_ROWS)
#define SINGLES 20000u
#define KEYS 100u       /* distinct ones in a batch for the topic exchange */
#define TOPIC_QUEUES 8u /* each takes an eighth of the keys, and one more takes all */
#define FANOUT_QUEUES 10u
#define CONSUMERS 8u
#define CONSUMED 20000u
#define PREFETCH 100u
#define CHECKPOINT_QUEUES KEYS
#define CHECKPOINT_BATCHES 100u
#define KEY_BYTES_MAX 16u
#define SMALL_BUDGET (UINT64_C(1) << 20)

#if defined(__clang__)
#define COMPILER "clang"
#define COMPILER_MAJOR __clang_major__
#else
#define COMPILER "gcc"
#define COMPILER_MAJOR __GNUC__
#endif
#if defined(__x86_64__)
#define MACHINE "x86_64"
#else
#define MACHINE "another machine"
#endif

static const qs_slice queue_name = {"q", 1};
static const qs_slice default_exchange = {"", 0};
static const qs_slice nothing = {NULL, 0};
static const qs_slice persistent = {"\x10\x00\x02", 3};
static char one_body[BODY_BYTES];

static void check(qs_status status, const qs_error *error, const char *what)
{
    if (status != QS_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, qs_status_name(status), error->text);
        exit(1);
    }
}

static qs_slice text(const char *chars)
{
    return (qs_slice){chars, strlen(chars)};
}

/* ---- a record batch: bodies, and a routing key in each row ---- */

static int32_t body_offsets[BATCH_ROWS + 1], key_offsets[BATCH_ROWS + 1];
static char bodies[BATCH_ROWS * BODY_BYTES], keys[BATCH_ROWS * KEY_BYTES_MAX];

static void keep_schema(struct ArrowSchema *schema)
{
    schema->release = NULL;
}

static void keep_array(struct ArrowArray *array)
{
    array->release = NULL;
}

static const void *body_buffers[3] = {NULL, body_offsets, bodies};
static const void *key_buffers[3] = {NULL, key_offsets, keys};
static const void *struct_buffers[1];
static struct ArrowSchema body_schema = {.format = "z", .name = "body", .release = keep_schema};
static struct ArrowSchema key_schema = {
    .format = "u", .name = "routing_key", .release = keep_schema};
static struct ArrowSchema *column_schemas[2] = {&body_schema, &key_schema};
static struct ArrowArray body_array = {
    .length = BATCH_ROWS, .n_buffers = 3, .buffers = body_buffers, .release = keep_array};
static struct ArrowArray key_array = {
    .length = BATCH_ROWS, .n_buffers = 3, .buffers = key_buffers, .release = keep_array};
static struct ArrowArray *columns[2] = {&body_array, &key_array};
static struct ArrowSchema batch_schema = {.format = "+s",
                                          .name = "",
                                          .n_children = 1,
                                          .children = column_schemas,
                                          .release = keep_schema};
static struct ArrowArray batch_array = {.length = BATCH_ROWS,
                                        .n_buffers = 1,
                                        .buffers = struct_buffers,
                                        .n_children = 1,
                                        .children = columns,
                                        .release = keep_array};
static const struct ArrowArray *batch_arrays[1] = {&batch_array};
static qs_batch batch = {
    .schema = &batch_schema, .arrays = batch_arrays, .array_count = 1, .body_column = "body"};

static void fill_batch(void)
{
    memset(bodies, 'x', sizeof bodies);
    for (uint32_t i = 0; i < BATCH_ROWS; i++) {
        int bytes =
            snprintf(keys + key_offsets[i], KEY_BYTES_MAX, "at.%u.k%u", i % TOPIC_QUEUES, i % KEYS);
        key_offsets[i + 1] = key_offsets[i] + bytes;
        body_offsets[i + 1] = body_offsets[i] + (int32_t)BODY_BYTES;
    }
    batch.routing_key = queue_name;
}

/* ---- a store ---- */

struct bench {
    qs_env *env;
    qs_options options;
    qs_store *store, *replayed;
    qs_channel *channel;
};

static void declare(struct bench *bench, const char *queue)
{
    qs_error error = {0};
    qs_declare_ok ok;

    check(qs_channel_queue_declare(bench->channel, text(queue), QS_DURABLE, nothing, &ok, &error),
          &error, "declare");
}

static void open_bench(struct bench *bench, uint64_t memory_budget)
{
    qs_error error = {0};

    memset(bench, 0, sizeof *bench);
    bench->env = qsi_env_mem_create(1);
    qs_options_default(&bench->options);
    bench->options.background = false;
    if (memory_budget != 0) {
        bench->options.memory_budget = memory_budget;
    }
    if (bench->env == NULL) {
        abort();
    }
    check(qs_store_open(&bench->store, "store", &bench->options, bench->env, &error), &error,
          "open");
    check(qs_channel_open(&bench->channel, bench->store, &error), &error, "channel");
    check(qs_channel_confirm_select(bench->channel, &error), &error, "confirm");
    declare(bench, "q");
}

static void close_bench(struct bench *bench)
{
    qs_error error = {0};

    qs_channel_close(bench->channel);
    check(qs_store_close(bench->store, &error), &error, "close");
    if (bench->replayed != NULL) {
        check(qs_store_close(bench->replayed, &error), &error, "close");
    }
}

static void wait_all(struct bench *bench)
{
    qs_error error = {0};
    bool nacked = false;

    check(qs_channel_wait_confirms(bench->channel, QS_FOREVER, &nacked, &error), &error, "wait");
    if (nacked) {
        abort();
    }
}

static void publish_batches(struct bench *bench, uint32_t count)
{
    qs_error error = {0};
    qs_receipt receipt;

    for (uint32_t i = 0; i < count; i++) {
        check(qs_channel_publish_batch(bench->channel, &batch, &receipt, &error), &error,
              "publish_batch");
    }
    wait_all(bench);
}

static uint64_t last_tag(const struct ArrowSchema *schema, const struct ArrowArray *array)
{
    for (int64_t i = 0; i < schema->n_children; i++) {
        if (strcmp(schema->children[i]->name, "delivery_tag") == 0) {
            const uint64_t *tags = array->children[i]->buffers[1];
            return tags[array->length - 1];
        }
    }
    abort();
}

/* Receives and settles all that is in the queue, a batch at a time. */
static void take_batches(struct bench *bench, uint64_t expected)
{
    struct ArrowSchema schema;
    struct ArrowArray array;
    qs_error error = {0};

    while (expected > 0) {
        check(qs_channel_get_batch(bench->channel, queue_name, BATCH_ROWS, UINT64_MAX, 0, 0,
                                   &schema, &array, &error),
              &error, "get_batch");
        if (array.length == 0 || (uint64_t)array.length > expected) {
            abort();
        }
        expected -= (uint64_t)array.length;
        check(qs_channel_ack(bench->channel, last_tag(&schema, &array), QS_MULTIPLE, &error),
              &error, "ack");
        array.release(&array);
        schema.release(&schema);
    }
}

/* ---- the paths ---- */

/* A first batch, taken at once: what comes after it finds everything in place. */
static void prepare_empty(struct bench *bench)
{
    open_bench(bench, 0);
    publish_batches(bench, 1);
    take_batches(bench, BATCH_ROWS);
}

static void prepare_full(struct bench *bench)
{
    open_bench(bench, 0);
    publish_batches(bench, BATCHES);
}

static void run_publish_batch(struct bench *bench)
{
    publish_batches(bench, BATCHES);
}

static void run_publish(struct bench *bench)
{
    qs_error error = {0};
    qs_receipt receipt;

    for (uint32_t i = 0; i < SINGLES; i++) {
        check(qs_channel_publish(bench->channel, default_exchange, queue_name, persistent,
                                 (qs_slice){one_body, sizeof one_body}, 0, 0, &receipt, &error),
              &error, "publish");
    }
    wait_all(bench);
}

static void run_get_batch(struct bench *bench)
{
    take_batches(bench, MESSAGES);
}

static void run_get(struct bench *bench)
{
    qs_error error = {0};
    qs_message message;

    for (uint32_t i = 0; i < SINGLES; i++) {
        check(qs_channel_get(bench->channel, queue_name, 0, &message, &error), &error, "get");
        check(qs_channel_ack(bench->channel, message.delivery_tag, 0, &error), &error, "ack");
        qs_message_release(&message);
    }
}

/* Consumers of one queue, a channel each, and all that is in the queue. */
static void consume_all(struct bench *bench, uint32_t consumer_count)
{
    static qs_event events[PREFETCH];
    char tag[256];
    qs_error error = {0};
    qs_channel *channels[CONSUMERS];
    uint32_t count;

    for (uint32_t i = 0; i < consumer_count; i++) {
        check(qs_channel_open(&channels[i], bench->store, &error), &error, "channel");
        check(qs_channel_qos(channels[i], PREFETCH, 0, 0, &error), &error, "qos");
        check(qs_channel_consume(channels[i], queue_name, nothing, 0, nothing, tag, &error), &error,
              "consume");
    }
    for (uint32_t got = 0, next = 0; got < CONSUMED; next = (next + 1) % consumer_count) {
        qs_status status = qs_channel_next_events(channels[next], QS_EVENT_DELIVERY, PREFETCH,
                                                  UINT64_MAX, events, &count, &error);
        if (count == 0) {
            check(status, &error, "next_events");
        }
        check(qs_channel_ack(channels[next], events[count - 1].message.delivery_tag, QS_MULTIPLE,
                             &error),
              &error, "ack");
        for (uint32_t i = 0; i < count; i++) {
            qs_message_release(&events[i].message);
        }
        got += count;
    }
    for (uint32_t i = 0; i < consumer_count; i++) {
        qs_channel_close(channels[i]);
    }
}

static void run_consume(struct bench *bench)
{
    consume_all(bench, 1);
}

static void run_consume_shared(struct bench *bench)
{
    consume_all(bench, CONSUMERS);
}

static void declare_exchange(struct bench *bench, const char *name, const char *type)
{
    qs_error error = {0};

    check(qs_channel_exchange_declare(bench->channel, text(name), text(type), QS_DURABLE, nothing,
                                      &error),
          &error, "exchange");
    batch.exchange = text(name);
}

static void bind(struct bench *bench, const char *queue, const char *key)
{
    qs_error error = {0};

    check(qs_channel_change_binding(bench->channel, text(queue), batch.exchange, text(key), nothing,
                                    0, &error),
          &error, "bind");
}

static void prepare_topic(struct bench *bench)
{
    char name[KEY_BYTES_MAX], key[KEY_BYTES_MAX];

    open_bench(bench, 0);
    declare_exchange(bench, "topics", "topic");
    for (uint32_t i = 0; i < TOPIC_QUEUES; i++) {
        snprintf(name, sizeof name, "q%u", i);
        snprintf(key, sizeof key, "*.%u.#", i);
        declare(bench, name);
        bind(bench, name, key);
    }
    bind(bench, "q", "#");
    batch_schema.n_children = batch_array.n_children = 2;
    publish_batches(bench, 1);
}

static void prepare_fanout(struct bench *bench)
{
    char name[KEY_BYTES_MAX];

    open_bench(bench, 0);
    declare_exchange(bench, "all", "fanout");
    for (uint32_t i = 0; i < FANOUT_QUEUES; i++) {
        snprintf(name, sizeof name, "q%u", i);
        declare(bench, name);
        bind(bench, name, "");
    }
    publish_batches(bench, 1);
}

static void run_topic_batch(struct bench *bench)
{
    publish_batches(bench, BATCHES);
}

static void run_fanout_batch(struct bench *bench)
{
    publish_batches(bench, BATCHES);
}

/* Half of what was published is settled; then the process is gone, and its files stay. */
static void prepare_replay(struct bench *bench)
{
    prepare_full(bench);
    publish_batches(bench, BATCHES);
    take_batches(bench, MESSAGES);
    bench->env = qsi_env_mem_clone(bench->env, 1);
    if (bench->env == NULL) {
        abort();
    }
}

static void run_replay(struct bench *bench)
{
    qs_error error = {0};

    check(qs_store_open(&bench->replayed, "store", &bench->options, bench->env, &error), &error,
          "open");
}

/* More than fits in memory: what is published goes to segments, and comes back from them. */
static void prepare_page_out(struct bench *bench)
{
    open_bench(bench, SMALL_BUDGET);
    publish_batches(bench, 2);
}

static void run_page_out(struct bench *bench)
{
    publish_batches(bench, BATCHES);
}

static void prepare_page_in(struct bench *bench)
{
    open_bench(bench, SMALL_BUDGET);
    publish_batches(bench, BATCHES);
}

static void run_page_in(struct bench *bench)
{
    take_batches(bench, MESSAGES);
}

/* A run of its own for each message, and no room for them in memory. */
static void run_page_transaction(struct bench *bench)
{
    qs_error error = {0};
    qs_channel *channel;
    qs_receipt receipt;
    bool repeated;

    check(qs_channel_open(&channel, bench->store, &error), &error, "channel");
    check(qs_channel_tx_select(channel, &error), &error, "tx_select");
    for (uint32_t i = 0; i < SINGLES; i++) {
        check(qs_channel_publish(channel, default_exchange, queue_name, persistent,
                                 (qs_slice){one_body, sizeof one_body}, 0, 0, &receipt, &error),
              &error, "publish");
    }
    check(qs_channel_tx_commit(channel, nothing, 0, &repeated, &error), &error, "tx_commit");
    check(qs_channel_publish_batch(bench->channel, &batch, &receipt, &error), &error,
          "publish_batch");
    qs_channel_close(channel);
}

/* Batches with a row for each of many queues. */
static void prepare_checkpoint(struct bench *bench)
{
    char name[KEY_BYTES_MAX];

    open_bench(bench, 0);
    for (uint32_t i = 0; i < CHECKPOINT_QUEUES; i++) {
        snprintf(name, sizeof name, "at.%u.k%u", i % TOPIC_QUEUES, i % KEYS);
        declare(bench, name);
    }
    batch_schema.n_children = batch_array.n_children = 2;
    batch_array.length = body_array.length = key_array.length = CHECKPOINT_QUEUES;
    publish_batches(bench, CHECKPOINT_BATCHES);
}

static void run_checkpoint(struct bench *bench)
{
    qs_error error = {0};

    check(qs_store_checkpoint(bench->store, &error), &error, "checkpoint");
}

static const struct path {
    const char *name;
    uint32_t messages;
    void (*prepare)(struct bench *bench);
    void (*run)(struct bench *bench);
} paths[] = {
    {"publish_batch", MESSAGES, prepare_empty, run_publish_batch},
    {"publish", SINGLES, prepare_empty, run_publish},
    {"get_batch", MESSAGES, prepare_full, run_get_batch},
    {"get", SINGLES, prepare_full, run_get},
    {"consume", CONSUMED, prepare_full, run_consume},
    {"consume_shared", CONSUMED, prepare_full, run_consume_shared},
    {"topic_batch", MESSAGES, prepare_topic, run_topic_batch},
    {"fanout_batch", MESSAGES, prepare_fanout, run_fanout_batch},
    {"replay", 2 * MESSAGES, prepare_replay, run_replay},
    {"page_out", MESSAGES, prepare_page_out, run_page_out},
    {"page_in", MESSAGES, prepare_page_in, run_page_in},
    {"page_transaction", SINGLES, prepare_page_out, run_page_transaction},
    {"checkpoint", CHECKPOINT_QUEUES * CHECKPOINT_BATCHES, prepare_checkpoint, run_checkpoint},
};

static void list_paths(void)
{
    printf("%s %d, %s\n", COMPILER, COMPILER_MAJOR, MACHINE);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        printf("%s %" PRIu32 "\n", paths[i].name, paths[i].messages);
    }
}

int main(int argc, char **argv)
{
    struct bench bench;

    if (argc < 2) {
        list_paths();
        return 0;
    }
    fill_batch();
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        if (strcmp(argv[1], paths[i].name) == 0) {
            paths[i].prepare(&bench);
            paths[i].run(&bench);
            close_bench(&bench);
            return 0;
        }
    }
    fprintf(stderr, "no such path: %s\n", argv[1]);
    return 2;
}
