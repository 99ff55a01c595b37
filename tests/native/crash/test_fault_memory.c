/* Out of memory under a mixed workload: several channels, confirms, transactions with keys,
 * consumers that ack when the content is on the disk only, expiry, queues that are deleted,
 * fan-out, paging under a small budget, checkpoints.  Allocations fail again and again, at
 * random.
 *
 * The call that met it fails with QS_ENOMEM and may be repeated; nothing else happens: no store
 * fails, no channel closes, nothing that was confirmed is lost, nothing is there twice, and a
 * store whose queues were emptied holds no body any more.
 *
 * Arguments: seed, number of operations in each round. */
#include "qstore/alloc.h"
#include "qstore/qstore.h"

#include "env_test.h"
#include "qs_test.h"
#include "qs_test_calls.h"
#include "qs_test_slices.h"
#include "splitmix.h"

#define SHORT_LIVED                \
    ((qs_slice){"\x11\x00\x02\x02" \
                "50",              \
                6}) /* ms */
#define SHORT_LIFE_NS UINT64_C(60000000)
#define TRIES 40 /* before memory comes back */
#define PREFETCH 30
#define CHANNELS 3

/* ---- an allocator that fails one time in many ---- */

struct scarce {
    uint64_t random;
    uint64_t one_in; /* 0: never */
    uint64_t alive, failures;
};

static void *scarce_realloc(void *context, void *memory, size_t bytes)
{
    struct scarce *scarce = context;

    if (scarce->one_in != 0 && qsi_splitmix_below(&scarce->random, scarce->one_in) == 0) {
        scarce->failures += 1;
        return NULL;
    }
    scarce->alive += memory == NULL;
    return realloc(memory, bytes);
}

static void scarce_free(void *context, void *memory)
{
    ((struct scarce *)context)->alive -= memory != NULL;
    free(memory);
}

static struct scarce scarce;

/* Files in memory grow in a write, which no real one needs memory for. */
static qs_status (*write_in_memory)(qs_env *, qs_file *, const qs_part *, size_t, uint64_t,
                                    size_t *, qs_error *);

static qs_status write_with_memory(qs_env *env, qs_file *file, const qs_part *parts,
                                   size_t part_count, uint64_t offset, size_t *written_out,
                                   qs_error *error)
{
    uint64_t one_in = scarce.one_in;
    qs_status status;

    scarce.one_in = 0;
    status = write_in_memory(env, file, parts, part_count, offset, written_out, error);
    scarce.one_in = one_in;
    return status;
}

/* ---- the work ---- */

struct work {
    qs_env *env;
    qs_store *store;
    qs_channel *plain, *transacted, *reader;
    uint64_t random, one_in;
    uint64_t sent[CHANNELS]; /* to a, b and c: messages whose call succeeded */
    uint64_t taken;          /* of c */
    uint64_t keys, refused;
    uint64_t held[PREFETCH]; /* tags of c that are not settled yet */
    uint32_t held_count;
    uint64_t expiring, deleted; /* messages to d that are to expire; queues that were deleted */
};

/* Repeats a call until it succeeds; it may fail for want of memory, and for nothing else. */
#define UNTIL_DONE(work, call)                                                                   \
    do {                                                                                         \
        qs_status status_ = QS_ENOMEM;                                                           \
        (work)->one_in = scarce.one_in;                                                          \
        for (int try_ = 0; status_ == QS_ENOMEM; try_++) {                                       \
            scarce.one_in = try_ < TRIES ? (work)->one_in : 0;                                   \
            status_ = (call);                                                                    \
            (work)->refused += status_ == QS_ENOMEM ? 1 : 0;                                     \
        }                                                                                        \
        scarce.one_in = (work)->one_in;                                                          \
        if (status_ != QS_OK) {                                                                  \
            fprintf(stderr, "%s: %s: %s\n", #call, qs_status_name(status_), qs_test_error.text); \
            QS_CHECK(!"another error than QS_ENOMEM");                                           \
        }                                                                                        \
    } while (0)

static void open_work(struct work *work)
{
    static const char *const queues[] = {"a", "b", "c"};
    qs_options options = qs_test_small_options();

    work->held_count = 0;

    options.memory_budget = 128u << 10;
    options.segment_entries = 64;
    options.checkpoint_bytes = 512u << 10;
    UNTIL_DONE(work, qs_store_open(&work->store, "store", &options, work->env, QS_ERROR));
    UNTIL_DONE(work, qs_channel_open(&work->plain, work->store, QS_ERROR));
    UNTIL_DONE(work, qs_channel_open(&work->transacted, work->store, QS_ERROR));
    UNTIL_DONE(work, qs_channel_open(&work->reader, work->store, QS_ERROR));
    for (int i = 0; i < 3; i++) {
        UNTIL_DONE(work, qs_test_declare_as(work->plain, queues[i], QS_DURABLE, NONE));
        UNTIL_DONE(work, qs_test_bind(work->plain, queues[i], "amq.fanout", "", 0));
    }
    UNTIL_DONE(work, qs_test_declare_as(work->plain, "d", QS_DURABLE, NONE));
    UNTIL_DONE(work, qs_channel_confirm_select(work->plain, QS_ERROR));
    UNTIL_DONE(work, qs_channel_tx_select(work->transacted, QS_ERROR));
    UNTIL_DONE(work, qs_channel_qos(work->reader, PREFETCH, 0, 0, QS_ERROR));
    UNTIL_DONE(work, qs_test_consume(work->reader, "c", "reader", 0, NONE));
}

static void close_work(struct work *work)
{
    uint64_t one_in = scarce.one_in;

    scarce.one_in = 0; /* an orderly close may fail, and then the next open recovers: not here */
    qs_channel_close(work->plain);
    qs_channel_close(work->transacted);
    qs_channel_close(work->reader);
    QS_CHECK_OK(qs_store_close(work->store, QS_ERROR));
    scarce.one_in = one_in;
}

static qs_slice any_body(struct work *work)
{
    static const size_t sizes[] = {10, 300, 3000, 9000};
    static char bytes[9000];

    return (qs_slice){bytes, sizes[qsi_splitmix_below(&work->random, 4)]};
}

static void publish(struct work *work, bool fans_out)
{
    qs_slice exchange = fans_out ? text("amq.fanout") : NONE;
    qs_slice key = fans_out ? NONE : text("a");
    qs_slice body = any_body(work);
    qs_receipt receipt;

    UNTIL_DONE(work, qs_channel_publish(work->plain, exchange, key, PERSISTENT, body, 0, 0,
                                        &receipt, QS_ERROR));
    work->sent[0] += 1;
    work->sent[1] += fans_out ? 1 : 0;
    work->sent[2] += fans_out ? 1 : 0;
}

static void wait_for_confirms(struct work *work)
{
    qs_event event = {0};
    bool nacked;
    qs_status status = QS_OK;

    UNTIL_DONE(work, qs_channel_wait_confirms(work->plain, QS_FOREVER, &nacked, QS_ERROR));
    QS_CHECK(!nacked);
    while (status == QS_OK) {
        status = qs_channel_next_event(work->plain, QS_EVENT_ACK, 0, &event, QS_ERROR);
    }
    QS_CHECK(status == QS_EEMPTY);
}

static void transact(struct work *work)
{
    bool repeated;
    char key[32];

    snprintf(key, sizeof key, "key %" PRIu64, work->keys++);
    for (int i = 0; i < 4; i++) {
        qs_slice body = any_body(work);
        UNTIL_DONE(work, qs_test_publish(work->transacted, "", "b", PERSISTENT, body, 0));
    }
    UNTIL_DONE(work, qs_channel_tx_commit(work->transacted, text(key), 0, &repeated, QS_ERROR));
    QS_CHECK(!repeated);
    work->sent[1] += 4;
}

/* One delivery, or none. */
static qs_status take(struct work *work, qs_event *event)
{
    qs_status status = qs_channel_next_event(work->reader, QS_EVENT_DELIVERY, 0, event, QS_ERROR);

    return status == QS_EEMPTY ? QS_OK : status;
}

static void consume(struct work *work)
{
    while (work->held_count < PREFETCH) {
        qs_event event = {0};
        UNTIL_DONE(work, take(work, &event));
        if (event.kind != QS_EVENT_DELIVERY) {
            return;
        }
        work->held[work->held_count++] = event.message.delivery_tag;
        qs_message_release(&event.message);
    }
}

/* The content of most went to the disk since they were taken. */
static void settle(struct work *work)
{
    for (uint32_t i = 0; i < work->held_count; i++) {
        uint64_t tag = work->held[i];
        if (i % 3 == 2) {
            UNTIL_DONE(work, qs_channel_nack(work->reader, tag, QS_REQUEUE, 0, QS_ERROR));
        } else {
            UNTIL_DONE(work, qs_channel_ack(work->reader, tag, 0, QS_ERROR));
            work->taken += 1;
        }
    }
    work->held_count = 0;
}

/* What a delivery that ran out of memory left unacked is given back. */
static void recover(struct work *work)
{
    UNTIL_DONE(work, qs_channel_recover(work->reader, QS_REQUEUE, QS_ERROR));
    work->held_count = 0;
}

/* Enough that the first are on the disk when they expire. */
static void publish_short_lived(struct work *work)
{
    for (int i = 0; i < 20; i++) {
        qs_slice body = any_body(work);
        UNTIL_DONE(work, qs_test_publish(work->plain, "", "d", SHORT_LIVED, body, 0));
        work->expiring += 1;
    }
}

static qs_status get_nothing(struct work *work)
{
    qs_message message;
    qs_status status = qs_channel_get(work->reader, text("d"), QS_NO_ACK, &message, QS_ERROR);

    QS_CHECK(status != QS_OK);
    return status == QS_EEMPTY ? QS_OK : status;
}

static void expire(struct work *work)
{
    qs_queue_status queue;

    qsi_env_mem_advance(work->env, SHORT_LIFE_NS);
    UNTIL_DONE(work, get_nothing(work));
    UNTIL_DONE(work, qs_store_queue_status(work->store, text("d"), &queue, QS_ERROR));
    QS_CHECK(queue.messages_ready + queue.messages_unacked == 0);
    work->expiring = 0;
}

/* With messages in memory, on the disk and unacked. */
static void delete_queue(struct work *work)
{
    UNTIL_DONE(work, qs_test_declare_as(work->plain, "e", QS_DURABLE, NONE));
    for (int i = 0; i < 30; i++) {
        qs_slice body = any_body(work);
        UNTIL_DONE(work, qs_test_publish(work->plain, "", "e", PERSISTENT, body, 0));
    }
    for (int i = 0; i < 3; i++) {
        qs_message message;
        UNTIL_DONE(work, qs_channel_get(work->transacted, text("e"), 0, &message, QS_ERROR));
        qs_message_release(&message);
    }
    UNTIL_DONE(work, qs_test_delete(work->plain, "e", 0));
    work->deleted += 1;
}

static void ask(struct work *work)
{
    bool known = false;
    char key[32];

    if (work->keys > 0) {
        snprintf(key, sizeof key, "key %" PRIu64, qsi_splitmix_below(&work->random, work->keys));
        UNTIL_DONE(work, qs_store_transaction_known(work->store, text(key), &known, QS_ERROR));
        QS_CHECK(known);
    }
}

/* Most of it is on the disk: references of bodies are dropped that have to be read first. */
static void purge(struct work *work)
{
    uint64_t count;

    UNTIL_DONE(work, qs_channel_queue_purge(work->plain, text("a"), 0, &count, QS_ERROR));
    QS_CHECK(count == work->sent[0]);
    work->sent[0] = 0;
}

static void operate(struct work *work)
{
    qs_stats stats;

    switch (qsi_splitmix_below(&work->random, 22)) {
    case 0:
    case 1:
        transact(work);
        break;
    case 2:
    case 3:
    case 4:
        consume(work);
        break;
    case 5:
        recover(work);
        break;
    case 6:
        UNTIL_DONE(work, qs_store_checkpoint(work->store, QS_ERROR));
        break;
    case 7:
        wait_for_confirms(work);
        break;
    case 8:
        ask(work);
        break;
    case 9:
        UNTIL_DONE(work, qs_store_sync(work->store, QS_ERROR));
        break;
    case 10:
        if (work->sent[0] > 60) {
            purge(work);
        }
        break;
    case 11:
    case 12:
    case 13:
        settle(work);
        break;
    case 14:
        publish_short_lived(work);
        break;
    case 15:
        expire(work);
        break;
    case 16:
        delete_queue(work);
        break;
    default:
        publish(work, qsi_splitmix_below(&work->random, 3) == 0);
    }
    qs_store_stats(work->store, &stats);
    QS_CHECK(!stats.failed);
}

static void check_counts(const struct work *work, qs_store *store)
{
    static const char *const queues[] = {"a", "b", "c"};

    for (int i = 0; i < 3; i++) {
        qs_queue_status queue;
        uint64_t expected = work->sent[i] - (i == 2 ? work->taken : 0);
        QS_CHECK_OK(qs_store_queue_status(store, text(queues[i]), &queue, QS_ERROR));
        if (queue.messages_ready + queue.messages_unacked != expected) {
            fprintf(stderr, "queue %s: %" PRIu64 " messages, not %" PRIu64 "\n", queues[i],
                    queue.messages_ready + queue.messages_unacked, expected);
            QS_CHECK(!"lost or doubled");
        }
    }
}

/* Nothing refers to any body: no file with bodies is left, nor a byte of them counted. */
static void drain(struct work *work)
{
    static const char *const queues[] = {"a", "b", "c", "d"};
    qs_stats stats;

    for (int i = 0; i < 4; i++) {
        QS_CHECK_OK(qs_test_delete(work->plain, queues[i], 0));
    }
    for (int i = 0; i < 3; i++) { /* files go with the checkpoint after the one that named them */
        QS_CHECK_OK(qs_store_checkpoint(work->store, QS_ERROR));
    }
    qs_store_stats(work->store, &stats);
    if (stats.message_bytes_live != 0 || stats.message_files > 1) {
        fprintf(stderr, "%" PRIu64 " bytes of bodies in %" PRIu64 " files are left\n",
                stats.message_bytes_live, stats.message_files);
        QS_CHECK(!"bodies of messages that are gone");
    }
}

/* The process dies, and memory is there again. */
static void check_recovery(struct work *work)
{
    struct work again = *work;

    QS_CHECK_OK(qs_store_sync(work->store, QS_ERROR));
    again.env = qsi_env_mem_clone(work->env, 3);
    open_work(&again);
    check_counts(&again, again.store);
    drain(&again);
    close_work(&again);
    qsi_env_mem_destroy(again.env);
}

static void run(uint64_t seed, uint64_t one_in, uint64_t operations)
{
    struct work work = {.random = seed};

    work.env = qsi_env_mem_create(seed);
    write_in_memory = work.env->write;
    work.env->write = write_with_memory;
    scarce.random = seed;
    scarce.failures = 0;
    scarce.one_in = one_in;
    open_work(&work);
    for (uint64_t i = 0; i < operations; i++) {
        operate(&work);
        if (i % 100 == 99) {
            scarce.one_in = 0;
            check_counts(&work, work.store);
            check_recovery(&work);
            scarce.one_in = one_in;
        }
    }
    scarce.one_in = 0;
    close_work(&work);
    open_work(&work);
    check_counts(&work, work.store);
    drain(&work);
    close_work(&work);
    printf("one in %" PRIu64 ": %" PRIu64 " allocations failed, %" PRIu64 " calls refused\n",
           one_in, scarce.failures, work.refused);
    QS_CHECK(work.refused > 0 && work.deleted > 0);
    qsi_env_mem_destroy(work.env);
}

int main(int argc, char **argv)
{
    static const uint64_t rates[] = {5, 20, 100, 1000};
    uint64_t seed = qs_test_seed(argc, argv);
    uint64_t operations = argc > 2 ? strtoull(argv[2], NULL, 0) : 600;
    qs_allocator allocator = {.realloc = scarce_realloc, .free = scarce_free, .context = &scarce};

    qs_allocator_set(&allocator);
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        run(seed + i, rates[i], operations);
    }
    QS_CHECK(scarce.alive == 0);
    qs_allocator_set(NULL);
    return 0;
}
