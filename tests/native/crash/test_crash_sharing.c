/* Simulated power cuts over many small queues beside large ones: what the checkpoint carries in its
 * own file, what has files of its own, and what goes from the one to the other.
 *
 * Every queue is a list of messages, each of which is there, gone, or neither for certain.  After
 * a cut every queue is drained:
 *
 *   - what is there for certain comes, once, and in order; what is gone does not;
 *   - then, behind two checkpoints, there is no file of a segment.
 *
 * Arguments: seed, number of states. */
#include "qstore/qstore.h"

#include "crash_run.h"
#include "env_call.h"
#include "qs_test_calls.h"
#include "qs_test_slices.h"
#include "store.h"

#define SMALL 24 /* queues; some of them have a time to live */
#define LARGE 3
#define QUEUES (SMALL + LARGE)
#define MESSAGES_MAX 4000 /* of one run */
#define STEPS 90
#define STATES 100000
#define BUG_STATES 20000 /* within which a bug must show */
#define UNREAD UINT32_MAX

enum bug {
    NO_BUG,
    NO_CHECKPOINT_SYNC, /* what is carried is in no synced file */
    TAKEN_FOR_FLUSHED,  /* a checkpoint leaves out what no file has */
};

enum certainty { UNCERTAIN, THERE, GONE };

struct message {
    uint8_t queue;
    bool is_transient;
    enum certainty certainty, next; /* next: when all is durable */
    uint64_t tag;                   /* 0: it is not out */
};

struct run {
    qs_env *sim;
    struct crash_env env;
    qs_options options;
    qs_store *store;
    qs_channel *channel;
    struct message messages[MESSAGES_MAX];
    uint32_t count;
    bool may_lack[QUEUES]; /* the queue itself */
    uint64_t random, states, violations;
    uint32_t cut_share;
    enum bug bug;
};

static uint32_t below(struct run *run, uint32_t limit)
{
    return (uint32_t)qsi_splitmix_below(&run->random, limit);
}

static qs_slice name_of(uint32_t queue)
{
    static char names[QUEUES][8]; /* each its own: a cut is checked in the middle of a call */

    return (qs_slice){names[queue],
                      (size_t)snprintf(names[queue], sizeof names[queue], "q%u", queue)};
}

/* Which message it is, and what is in the rest of it. */
static uint32_t number_in(qs_slice body)
{
    uint32_t number = UNREAD;

    QS_CHECK(body.bytes >= sizeof number);
    memcpy(&number, body.data, sizeof number);
    for (size_t i = sizeof number; i < body.bytes; i++) {
        if (((const uint8_t *)body.data)[i] != (uint8_t)(number * 7 + i)) {
            return UNREAD;
        }
    }
    return number;
}

/* ---- what a recovered store shows ---- */

static void violated(struct run *run, const char *what, uint32_t queue, uint32_t number)
{
    if (run->violations++ < 3 && run->bug == NO_BUG) {
        printf("violation: q%u: message %u: %s: %s\n", queue, number, what, qs_test_error.text);
    }
}

static void drain(struct run *run, qs_channel *channel, uint32_t queue)
{
    uint32_t next = 0;
    qs_message message;
    qs_status status;

    while ((status = qs_channel_get(channel, name_of(queue), QS_NO_ACK, &message, QS_ERROR)) ==
           QS_OK) {
        uint32_t number = number_in(message.body);
        qs_message_release(&message);
        if (number >= run->count || number < next || run->messages[number].queue != queue ||
            run->messages[number].certainty == GONE || run->messages[number].is_transient) {
            violated(run, "should not be there", queue, number);
            return;
        }
        for (; next < number; next++) {
            if (run->messages[next].queue == queue && run->messages[next].certainty == THERE) {
                violated(run, "is lost", queue, next);
            }
        }
        next = number + 1;
    }
    if (status != QS_EEMPTY && (status != QS_NOT_FOUND || !run->may_lack[queue])) {
        violated(run, "cannot be taken", queue, next);
    }
    for (; next < run->count; next++) {
        if (run->messages[next].queue == queue && run->messages[next].certainty == THERE) {
            violated(run, "is lost", queue, next);
        }
    }
}

static bool no_segment(void *context, const char *name)
{
    violated(context, name, 0, 0);
    return true;
}

/* Nothing is live, so nothing is kept. */
static void check_space(struct run *run, qs_store *store)
{
    for (int i = 0; i < 2; i++) {
        if (qs_store_checkpoint(store, QS_ERROR) != QS_OK) {
            violated(run, "no checkpoint", 0, 0);
        }
    }
    if (qsi_env_dir_list(store->env, store->index_dir, no_segment, run, QS_ERROR) != QS_OK) {
        violated(run, "no directory", 0, 0);
    }
}

static void check_disk(struct run *run, qs_env *disk)
{
    qs_store *store;
    qs_channel *channel;

    if (qs_store_open(&store, "store", &run->options, disk, QS_ERROR) != QS_OK) {
        violated(run, "open", 0, 0);
        return;
    }
    for (uint32_t queue = 0; queue < QUEUES; queue++) {
        QS_CHECK_OK(qs_channel_open(&channel, store, QS_ERROR)); /* not found closes it */
        drain(run, channel, queue);
        qs_channel_close(channel);
    }
    check_space(run, store);
    if (qs_store_close(store, QS_ERROR) != QS_OK) {
        violated(run, "close", 0, 0);
    }
}

static void take_cut(struct run *run, enum qsi_cut_how how, uint64_t seed)
{
    qs_env *disk = qsi_env_sim_cut(run->sim, how, seed);

    check_disk(run, disk);
    qsi_env_mem_destroy(disk);
    run->states += 1;
}

static void at_step(void *context, uint64_t step)
{
    struct run *run = context;
    uint64_t random = step * UINT64_C(0x9e3779b97f4a7c15) + run->random;

    if (qsi_splitmix_below(&random, run->cut_share) == 0 && run->violations == 0) {
        take_cut(run, QSI_CUT_DROP_ALL, step);
        take_cut(run, QSI_CUT_KEEP_ALL, step);
        take_cut(run, QSI_CUT_RANDOM, step);
        take_cut(run, QSI_CUT_RANDOM, step + 1);
    }
}

/* ---- what is done ---- */

static void change(struct run *run, uint32_t number, enum certainty next)
{
    run->messages[number].certainty = UNCERTAIN;
    run->messages[number].next = next;
}

/* Whatever was done is durable. */
static void settle_all(struct run *run)
{
    QS_CHECK_OK(qs_store_sync(run->store, QS_ERROR));
    for (uint32_t i = 0; i < run->count; i++) {
        run->messages[i].certainty = run->messages[i].next;
    }
    memset(run->may_lack, 0, sizeof run->may_lack);
}

static void declare(struct run *run, uint32_t queue)
{
    /* x-message-ttl: a day, as the table that AMQP has it in */
    static const uint8_t ttl[] = {13,  'x', '-', 'm', 'e', 's', 's',  'a',  'g', 'e',
                                  '-', 't', 't', 'l', 'I', 5,   0x26, 0x5c, 0x00};
    qs_slice arguments = {ttl, queue % 5 == 4 && queue < SMALL ? sizeof ttl : 0};
    qs_declare_ok ok;

    run->may_lack[queue] = true;
    QS_CHECK_OK(qs_channel_queue_declare(run->channel, name_of(queue), QS_DURABLE | QS_NO_SYNC,
                                         arguments, &ok, QS_ERROR));
}

static void publish(struct run *run, uint32_t queue, uint32_t bytes)
{
    bool is_transient = below(run, 12) == 0;
    uint8_t body[3000];
    qs_receipt receipt;

    if (run->count == MESSAGES_MAX) {
        return;
    }
    memcpy(body, &run->count, sizeof run->count);
    for (uint32_t i = sizeof run->count; i < bytes; i++) {
        body[i] = (uint8_t)(run->count * 7 + i);
    }
    run->messages[run->count] =
        (struct message){.queue = (uint8_t)queue, .is_transient = is_transient, .next = THERE};
    if (is_transient) {
        run->messages[run->count].next = UNCERTAIN;
    }
    run->count += 1;
    QS_CHECK_OK(qs_channel_publish(run->channel, text(""), name_of(queue),
                                   is_transient ? TRANSIENT : PERSISTENT, (qs_slice){body, bytes},
                                   0, 0, &receipt, QS_ERROR));
}

static void get(struct run *run, uint32_t queue)
{
    qs_message message;
    qs_status status = qs_channel_get(run->channel, name_of(queue), 0, &message, QS_ERROR);
    uint32_t number;

    if (status != QS_OK) {
        if (status != QS_EEMPTY) {
            violated(run, "cannot be taken", queue, 0);
        }
        return;
    }
    number = number_in(message.body);
    if (number < run->count && run->messages[number].queue == queue &&
        run->messages[number].next != GONE) {
        run->messages[number].tag = message.delivery_tag;
    } else {
        violated(run, "comes, and should not", queue, number);
    }
    qs_message_release(&message);
}

static void settle(struct run *run)
{
    for (uint32_t i = 0; i < run->count; i++) {
        struct message *message = &run->messages[i];
        if (message->tag == 0 || below(run, 3) == 0) {
            continue;
        }
        if (below(run, 4) == 0) {
            QS_CHECK_OK(qs_channel_nack(run->channel, message->tag, QS_REQUEUE, 0, QS_ERROR));
        } else {
            change(run, i, GONE);
            QS_CHECK_OK(qs_channel_ack(run->channel, message->tag, 0, QS_ERROR));
        }
        message->tag = 0;
    }
}

static void drop_messages(struct run *run, uint32_t queue, bool with_unacked)
{
    for (uint32_t i = 0; i < run->count; i++) {
        struct message *message = &run->messages[i];
        if (message->queue == queue && message->next != GONE &&
            (with_unacked || message->tag == 0)) {
            change(run, i, GONE);
            message->tag = 0;
        }
    }
}

static void purge_or_delete(struct run *run, uint32_t queue)
{
    bool deletes = below(run, 2) == 0;
    uint64_t count;

    for (uint32_t i = 0; i < run->count; i++) { /* of a queue that goes no tag is settled */
        if (run->messages[i].queue == queue && run->messages[i].tag != 0) {
            return;
        }
    }
    drop_messages(run, queue, deletes);
    if (!deletes) {
        QS_CHECK_OK(qs_channel_queue_purge(run->channel, name_of(queue), 0, &count, QS_ERROR));
        return;
    }
    run->may_lack[queue] = true;
    QS_CHECK_OK(qs_channel_queue_delete(run->channel, name_of(queue), 0, &count, QS_ERROR));
    declare(run, queue);
}

static void open_store(struct run *run)
{
    QS_CHECK_OK(qs_store_open(&run->store, "store", &run->options, &run->env.env, QS_ERROR));
    QS_CHECK_OK(qs_channel_open(&run->channel, run->store, QS_ERROR));
}

/* What is out comes back, and what is transient goes. */
static void close_store(struct run *run)
{
    qs_channel_close(run->channel);
    settle_all(run);
    for (uint32_t i = 0; i < run->count; i++) {
        run->messages[i].tag = 0;
        if (run->messages[i].is_transient) {
            run->messages[i].certainty = run->messages[i].next = GONE;
        }
    }
    QS_CHECK_OK(qs_store_close(run->store, QS_ERROR));
}

/* The bug: the queues seem to be in files. */
static void plant(struct run *run)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&run->store->queues_by_id);

    qsi_store_lock(run->store);
    while (qsi_map_next(&run->store->queues_by_id, &cursor)) {
        struct qsi_store_queue *queue = cursor.value;
        if (queue->container.flushed_seq == 0) {
            queue->container.flushed_seq = queue->container.next_seq;
        }
    }
    qsi_store_unlock(run->store);
}

static void make_checkpoint(struct run *run)
{
    if (run->bug == TAKEN_FOR_FLUSHED) {
        plant(run);
    }
    QS_CHECK_OK(qs_store_checkpoint(run->store, QS_ERROR));
}

static void step(struct run *run)
{
    uint32_t small = below(run, SMALL), large = SMALL + below(run, LARGE);

    switch (below(run, 16)) {
    case 0:
    case 1:
    case 2: /* a few for many */
        for (uint32_t n = 1 + below(run, 30); n > 0; n--) {
            publish(run, below(run, SMALL), 8 + below(run, 100));
        }
        break;
    case 3:
    case 4: /* it grows, and may become a large one for a while */
        for (uint32_t n = below(run, 30), bytes = 8 + below(run, 200); n > 0; n--) {
            publish(run, small, bytes);
        }
        break;
    case 5:
    case 6:
        for (uint32_t n = below(run, 25); n > 0; n--) {
            publish(run, large, 500 + below(run, 2000));
        }
        break;
    case 7:
    case 8:
        for (uint32_t n = below(run, 40); n > 0; n--) {
            get(run, below(run, QUEUES));
        }
        break;
    case 9:
        for (uint32_t n = below(run, 60), queue = below(run, QUEUES); n > 0; n--) {
            get(run, queue);
        }
        settle(run);
        break;
    case 10:
        settle(run);
        break;
    case 11:
        purge_or_delete(run, below(run, QUEUES));
        break;
    case 12:
        settle_all(run);
        break;
    case 13:
        if (run->bug == NO_BUG && below(run, 3) == 0) { /* what a bug left may not be opened */
            close_store(run);
            open_store(run);
        }
        break;
    default:
        make_checkpoint(run);
    }
    if (below(run, 2) == 0) {
        settle_all(run);
    }
}

/* Small is a queue with up to a 4096th of checkpoint_bytes. */
static void choose_options(struct run *run)
{
    static const uint64_t checkpoints[] = {1 << 20, 4 << 20, 8 << 20, 64 << 20};
    static const uint64_t budgets[] = {64 << 10, 256 << 10, 64 << 20};

    run->options = qs_test_small_options();
    run->options.segment_entries = below(run, 2) == 0 ? 16 : 256;
    run->options.embed_below = below(run, 2) == 0 ? 150 : 4096;
    run->options.checkpoint_bytes = checkpoints[below(run, 4)];
    run->options.checkpoint_interval_ms = 0;
    run->options.memory_budget = budgets[run->bug == TAKEN_FOR_FLUSHED ? 2 : below(run, 3)];
}

static void play(uint64_t seed, enum bug bug, uint64_t *states_io, uint64_t *violations_io)
{
    QS_TEST_FREED struct run *run = calloc(1, sizeof *run);

    QS_CHECK(run != NULL);
    run->random = seed * UINT64_C(1000003);
    run->bug = bug;
    run->cut_share = 20 + below(run, 60);
    run->sim = qsi_env_sim_create(seed);
    crash_env_init(&run->env, run->sim,
                   bug == NO_CHECKPOINT_SYNC ? CRASH_NO_CHECKPOINT_SYNC : CRASH_NO_BUG);
    choose_options(run);
    open_store(run);
    for (uint32_t queue = 0; queue < QUEUES; queue++) {
        declare(run, queue);
    }
    settle_all(run);
    qsi_env_sim_on_step(run->sim, at_step, run);
    for (int i = 0; i < STEPS && run->violations == 0; i++) {
        step(run);
    }
    qsi_env_sim_on_step(run->sim, NULL, NULL);
    close_store(run);
    if (run->violations == 0) {
        take_cut(run, QSI_CUT_DROP_ALL, seed);
    }
    *states_io += run->states;
    *violations_io += run->violations;
    if (run->violations > 0 && bug == NO_BUG) {
        printf("seed %" PRIu64 "\n", seed);
    }
    qsi_env_sim_destroy(run->sim);
}

static void must_be_caught(const char *name, enum bug bug, uint64_t seed)
{
    uint64_t states = 0, violations = 0;

    while (states < BUG_STATES && violations == 0) {
        play(seed++, bug, &states, &violations);
    }
    printf("%s: %s after %" PRIu64 " states\n", name, violations > 0 ? "caught" : "NOT CAUGHT",
           states);
    QS_CHECK(violations > 0);
}

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv), states = 0, violations = 0;
    uint64_t state_count = crash_state_count(argc, argv, STATES);
    double began = crash_seconds();

    must_be_caught("checkpoint not synced", NO_CHECKPOINT_SYNC, seed);
    must_be_caught("taken for flushed", TAKEN_FOR_FLUSHED, seed);
    while (states < state_count) {
        play(seed++, NO_BUG, &states, &violations);
        QS_CHECK(violations == 0);
    }
    printf("%" PRIu64 " crash states, %" PRIu64 " violations, %.0f states/s\n", states, violations,
           (double)states / (crash_seconds() - began));
    return 0;
}
