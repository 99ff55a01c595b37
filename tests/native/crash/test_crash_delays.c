/* Power cuts and failing calls over messages that are delayed: published so, requeued so, in
 * transactions, in batches of records and over checkpoints that carry, flush and page them.
 *
 * After each cut, as much as was durable must be there, once, and nothing may come before it is
 * due:
 *
 *   - what is confirmed and not acked is in the queue;
 *   - of what is delayed until a time that is known, nothing is delivered before it;
 *   - when that time is over, everything is delivered.
 *
 * Arguments: seed, number of runs. */
#include "qstore/qstore.h"

#include "check.h"
#include "crash_model.h"
#include "env_test.h"
#include "failing_calls.h"
#include "qs_test_calls.h"
#include "qs_test_fields.h"
#include "qs_test_slices.h"

#define SECOND_US UINT64_C(1000000)
#define MESSAGES_MAX 400
#define STEPS 60
#define CUTS_OF_STEP 40 /* every so many disk steps a cut is taken, and the one that drops all */

struct known {
    uint64_t dues[2];     /* by the wall clock: before, and as it is now; 0: at once */
    uint64_t publish_lsn; /* CRASH_UNDER_WAY: during the call */
    uint64_t delay_lsn;   /* durable up to here: the second due holds */
    uint64_t ack_lsn;     /* 0: nobody acked it */
    uint64_t tag;         /* 0: it is not out */
};

struct run {
    qs_env *sim;
    qs_options options;
    qs_store *store;
    qs_channel *channel;
    struct known known[MESSAGES_MAX];
    uint32_t count;
    uint64_t random, durable_lsn, cuts, delivered;
};

static uint32_t below(struct run *run, uint32_t limit)
{
    run->random = run->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((run->random >> 33) % limit);
}

static uint64_t wall_us(qs_env *env)
{
    return env->wall_us(env);
}

/* ---- what a recovered store shows ---- */

/* The number of the message that comes next; MESSAGES_MAX: none does. */
static uint32_t take(qs_channel *channel)
{
    qs_message message;
    uint32_t number = 0;
    qs_status status = qs_channel_get(channel, text("q"), QS_NO_ACK, &message, QS_ERROR);

    if (status == QS_EEMPTY) {
        return MESSAGES_MAX;
    }
    QS_CHECK_OK(status);
    QS_CHECK(message.body.bytes >= sizeof number);
    memcpy(&number, message.body.data, sizeof number);
    qs_message_release(&message);
    return number;
}

/* The earliest time at which the message may come: a delay that was not durable may not have
 * happened, and so may one that was not durable have. */
static uint64_t due_least(const struct run *run, const struct known *known)
{
    return known->delay_lsn <= run->durable_lsn ? known->dues[1]
           : known->dues[0] < known->dues[1]    ? known->dues[0]
                                                : known->dues[1];
}

static void take_all(const struct run *run, qs_env *disk, qs_channel *channel, uint8_t *seen)
{
    uint64_t now = wall_us(disk);
    uint32_t number;

    while ((number = take(channel)) != MESSAGES_MAX) {
        const struct known *known = &run->known[number];
        QS_CHECK(number < run->count && !seen[number]);
        seen[number] = 1;
        QS_CHECK(known->ack_lsn == 0 || known->ack_lsn > run->durable_lsn);
        QS_CHECK(due_least(run, known) <= now);
    }
}

static void check_disk(const struct run *run, qs_env *disk)
{
    uint8_t seen[MESSAGES_MAX] = {0};
    qs_queue_status status;
    qs_store *store;
    qs_channel *channel;

    QS_CHECK_OK(qs_store_open(&store, "store", &run->options, disk, QS_ERROR));
    QS_CHECK_OK(qs_channel_open(&channel, store, QS_ERROR));
    if (qs_store_queue_status(store, text("q"), &status, NULL) == QS_OK) {
        take_all(run, disk, channel, seen);
        for (int i = 0; i < 5; i++) {
            qsi_env_mem_advance(disk, 25 * UINT64_C(1000000000));
            take_all(run, disk, channel, seen);
        }
        QS_CHECK_OK(qs_store_queue_status(store, text("q"), &status, QS_ERROR));
        QS_CHECK(status.messages_ready == 0 && status.messages_delayed == 0);
    }
    for (uint32_t i = 0; i < run->count; i++) {
        const struct known *known = &run->known[i];
        QS_CHECK(seen[i] || known->publish_lsn > run->durable_lsn || known->ack_lsn != 0);
    }
    qs_channel_close(channel);
    QS_CHECK_OK(qs_store_close(store, QS_ERROR));
}

static void take_cut(struct run *run, enum qsi_cut_how how, uint64_t seed)
{
    qs_env *disk = qsi_env_sim_cut(run->sim, how, seed);

    check_disk(run, disk);
    qsi_env_mem_destroy(disk);
    run->cuts += 1;
}

/* The store may not be asked now: durable is what was so before the call under way. */
static void at_step(void *context, uint64_t step)
{
    struct run *run = context;

    if (step % CUTS_OF_STEP < 3) {
        take_cut(run, (enum qsi_cut_how)(step % CUTS_OF_STEP), run->random + step);
    }
}

/* ---- what is done ---- */

static void note_durable(struct run *run)
{
    run->durable_lsn = qs_store_durable_lsn(run->store);
}

static uint64_t any_delay(struct run *run)
{
    static const uint64_t delays[] = {0, 1, 3, 10, 60, 90};

    return delays[below(run, 6)] * SECOND_US;
}

static void publish(struct run *run)
{
    struct known *known = &run->known[run->count];
    uint8_t body[3000] = {0};
    uint64_t delay = any_delay(run);
    qs_receipt receipt;

    if (run->count == MESSAGES_MAX) {
        return;
    }
    memcpy(body, &run->count, sizeof run->count);
    *known = (struct known){.publish_lsn = CRASH_UNDER_WAY};
    known->dues[0] = known->dues[1] = delay > 0 ? wall_us(run->sim) + delay : 0;
    run->count += 1;
    QS_CHECK_OK(qs_channel_publish(run->channel, text(""), text("q"), PERSISTENT,
                                   (qs_slice){body, below(run, 8) == 0 ? sizeof body : 40}, 0,
                                   delay, &receipt, QS_ERROR));
    known->publish_lsn = receipt.lsn;
}

static void get(struct run *run)
{
    qs_message message;
    uint32_t number;
    qs_status status = qs_channel_get(run->channel, text("q"), 0, &message, QS_ERROR);

    if (status == QS_EEMPTY) {
        return;
    }
    QS_CHECK_OK(status);
    memcpy(&number, message.body.data, sizeof number);
    QS_CHECK(number < run->count && run->known[number].tag == 0);
    QS_CHECK(run->known[number].dues[1] <= wall_us(run->sim));
    run->known[number].tag = message.delivery_tag;
    run->delivered += 1;
    qs_message_release(&message);
}

static void settle(struct run *run)
{
    uint32_t number = run->count > 0 ? below(run, run->count) : 0;
    struct known *known = &run->known[number];
    qs_stats stats;

    while (number < run->count && known->tag == 0) {
        known = &run->known[++number];
    }
    if (number >= run->count) {
        return;
    }
    if (below(run, 3) == 0) {
        known->ack_lsn = CRASH_UNDER_WAY;
        QS_CHECK_OK(qs_channel_ack(run->channel, known->tag, 0, QS_ERROR));
        qs_store_stats(run->store, &stats);
        known->ack_lsn = stats.appended_lsn;
    } else {
        uint64_t delay = any_delay(run);
        known->dues[0] = known->delay_lsn <= run->durable_lsn ? known->dues[1] : 0;
        known->dues[1] = delay > 0 ? wall_us(run->sim) + delay : 0;
        known->delay_lsn = CRASH_UNDER_WAY;
        QS_CHECK_OK(qs_channel_nack(run->channel, known->tag, QS_REQUEUE, delay, QS_ERROR));
        qs_store_stats(run->store, &stats);
        known->delay_lsn = stats.appended_lsn;
    }
    known->tag = 0;
}

static void open_store(struct run *run)
{
    QS_CHECK_OK(qs_store_open(&run->store, "store", &run->options, run->sim, QS_ERROR));
    QS_CHECK_OK(qs_channel_open(&run->channel, run->store, QS_ERROR));
    qs_test_declare(run->channel, "q", QS_DURABLE, NULL);
}

static void close_store(struct run *run)
{
    qs_store *store = run->store;

    qs_channel_close(run->channel);
    QS_CHECK_OK(qs_store_sync(run->store, QS_ERROR)); /* requeues are promised from here on */
    note_durable(run);
    for (uint32_t i = 0; i < run->count; i++) {
        run->known[i].tag = 0;
    }
    run->store = NULL;
    QS_CHECK_OK(qs_store_close(store, QS_ERROR));
}

static void step(struct run *run)
{
    switch (below(run, 12)) {
    case 0:
    case 1:
    case 2:
    case 3:
        for (uint32_t n = below(run, 20); n > 0; n--) {
            publish(run);
        }
        break;
    case 4:
    case 5:
    case 6:
        for (uint32_t n = below(run, 12); n > 0; n--) {
            get(run);
        }
        break;
    case 7:
    case 8:
        for (uint32_t n = below(run, 12); n > 0; n--) {
            settle(run);
        }
        break;
    case 9:
        qsi_env_sim_advance(run->sim, below(run, 12) * UINT64_C(1000000000));
        break;
    case 10:
        QS_CHECK_OK(qs_store_sync(run->store, QS_ERROR));
        break;
    default:
        if (below(run, 3) == 0) {
            close_store(run);
            open_store(run);
        } else {
            QS_CHECK_OK(qs_store_checkpoint(run->store, QS_ERROR));
        }
    }
    note_durable(run);
}

static void play(uint64_t seed, uint64_t *cuts_io, uint64_t *delivered_io)
{
    QS_TEST_FREED struct run *run = calloc(1, sizeof *run);

    QS_CHECK(run != NULL);
    run->random = seed * UINT64_C(1000003);
    run->sim = qsi_env_sim_create(seed);
    run->options = qs_test_small_options();
    run->options.segment_entries = 64;
    run->options.embed_below = 1000;
    run->options.checkpoint_bytes = below(run, 2) == 0 ? 16 << 10 : 64 << 20;
    run->options.memory_budget = below(run, 2) == 0 ? 1 << 20 : 64 << 20;
    open_store(run);
    qsi_env_sim_on_step(run->sim, at_step, run);
    for (int i = 0; i < STEPS; i++) {
        step(run);
    }
    close_store(run);
    qsi_env_sim_on_step(run->sim, NULL, NULL);
    take_cut(run, QSI_CUT_DROP_ALL, seed);
    *cuts_io += run->cuts;
    *delivered_io += run->delivered;
    qsi_env_sim_destroy(run->sim);
}

/* ---- failing calls ---- */

#define SCRIPT_MESSAGES 100u /* over two segments */

/* Publishes one; what fails was perhaps published all the same. */
static qs_status try_publish(struct run *run, uint64_t delay)
{
    struct known *known = &run->known[run->count];
    uint8_t body[40] = {0};
    qs_receipt receipt;

    memcpy(body, &run->count, sizeof run->count);
    *known = (struct known){.publish_lsn = CRASH_UNDER_WAY};
    known->dues[0] = known->dues[1] = delay > 0 ? wall_us(run->sim) + delay : 0;
    run->count += 1;
    QS_TRY(qs_channel_publish(run->channel, text(""), text("q"), PERSISTENT,
                              (qs_slice){body, sizeof body}, 0, delay, &receipt, QS_ERROR));
    known->publish_lsn = receipt.lsn;
    return QS_OK;
}

static qs_status try_nack(struct run *run)
{
    qs_message message;
    uint32_t number;
    struct known *known;
    qs_status status;

    QS_TRY(qs_channel_get(run->channel, text("q"), 0, &message, QS_ERROR));
    memcpy(&number, message.body.data, sizeof number);
    known = &run->known[number];
    known->dues[0] = known->dues[1];
    known->dues[1] = wall_us(run->sim) + 40 * SECOND_US;
    known->delay_lsn = CRASH_UNDER_WAY;
    status =
        qs_channel_nack(run->channel, message.delivery_tag, QS_REQUEUE, 40 * SECOND_US, QS_ERROR);
    qs_message_release(&message);
    return status;
}

static qs_status try_sync(struct run *run)
{
    QS_TRY(qs_store_sync(run->store, QS_ERROR));
    note_durable(run);
    for (uint32_t i = 0; i < run->count; i++) { /* whatever was under way is durable */
        if (run->known[i].delay_lsn == CRASH_UNDER_WAY) {
            run->known[i].delay_lsn = run->durable_lsn;
        }
    }
    return QS_OK;
}

static qs_status try_all(struct run *run)
{
    QS_TRY(qs_test_declare_as(run->channel, "q", QS_DURABLE, NONE));
    for (uint32_t i = 0; i < SCRIPT_MESSAGES; i++) {
        QS_TRY(try_publish(run, i % 3 * 30 * SECOND_US));
    }
    QS_TRY(try_sync(run));
    for (uint32_t i = 0; i < 10; i++) {
        QS_TRY(try_nack(run));
    }
    QS_TRY(try_sync(run));
    QS_TRY(qs_store_checkpoint(run->store, QS_ERROR));
    QS_TRY(try_nack(run));
    QS_TRY(try_publish(run, 50 * SECOND_US));
    QS_TRY(try_sync(run));
    return qs_store_checkpoint(run->store, QS_ERROR);
}

/* The n-th call fails: as much as was durable is there behind a power cut, and nothing comes
 * early. */
static bool fail_one(uint64_t seed, uint64_t n, enum qsi_fault_how how)
{
    QS_TEST_FREED struct run *run = calloc(1, sizeof *run);
    qs_env *fault;
    bool fired;

    QS_CHECK(run != NULL);
    run->sim = qsi_env_sim_create(seed);
    fault = qsi_env_fault_create(run->sim);
    run->options = qs_test_small_options();
    run->options.segment_entries = 64;
    QS_CHECK_OK(qs_store_open(&run->store, "store", &run->options, fault, QS_ERROR));
    QS_CHECK_OK(qs_channel_open(&run->channel, run->store, QS_ERROR));
    qsi_env_fault_arm(fault, QSI_FAULT_ANY, how, n, false);
    (void)!try_all(run);
    fired = qsi_env_fault_fired(fault);
    qs_channel_close(run->channel);
    (void)qs_store_close(run->store, NULL);
    take_cut(run, QSI_CUT_KEEP_ALL, seed + n);
    take_cut(run, QSI_CUT_DROP_ALL, seed + n);
    take_cut(run, QSI_CUT_RANDOM, seed + n);
    qsi_env_fault_destroy(fault);
    qsi_env_sim_destroy(run->sim);
    return fired;
}

static void test_delays_behind_a_call_that_failed(uint64_t seed)
{
    uint64_t count = fail_each_call(fail_one, seed, 1);

    printf("%" PRIu64 " failing calls\n", count);
    QS_CHECK(count > 50);
}

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);
    uint64_t runs = argc > 2 ? strtoull(argv[2], NULL, 10) : 60, cuts = 0, delivered = 0;

    for (uint64_t i = 0; i < runs; i++) {
        play(seed + i, &cuts, &delivered);
    }
    printf("%" PRIu64 " cuts, %" PRIu64 " deliveries\n", cuts, delivered);
    QS_CHECK(cuts > 10 * runs && delivered > runs);
    test_delays_behind_a_call_that_failed(seed);
    return 0;
}
