/* Simulated power cuts over declarations that do not wait (QS_NO_SYNC): a confirmed message
 * is found, with the queue that it was published into, whatever the cut leaves.
 *
 * Each round declares an exchange, a queue and a binding without waiting, publishes through them,
 * waits for the confirm, and then deletes what an earlier round made, without waiting either.
 *
 * Argument: seed. */
#include "qstore/qstore.h"

#include "env_test.h"
#include "qs_test.h"
#include "qs_test_calls.h"
#include "qs_test_slices.h"

#define ROUNDS 40
#define KEPT 4 /* rounds until the queue of one is deleted */

struct run {
    qs_env *sim;
    qs_store *store;
    qs_channel *channel;
    uint32_t confirmed; /* rounds */
    uint32_t deleted;   /* of these queues that is durable */
    uint32_t deleting;  /* and of these nobody knows */
    uint64_t states;
};

static qs_slice numbered(char name[8], char kind, uint32_t round)
{
    return (qs_slice){name, (size_t)snprintf(name, 8, "%c%u", kind, round)};
}

static void open_store(qs_env *env, qs_store **store_out, qs_channel **channel_out)
{
    const qs_options options = qs_test_small_options();

    QS_CHECK_OK(qs_store_open(store_out, "store", &options, env, QS_ERROR));
    QS_CHECK_OK(qs_channel_open(channel_out, *store_out, QS_ERROR));
}

static void check_disk(struct run *run, qs_env *disk)
{
    qs_store *store;
    qs_channel *channel;
    qs_message message;
    char name[8];

    open_store(disk, &store, &channel);
    for (uint32_t round = run->deleting; round < run->confirmed; round++) {
        QS_CHECK_OK(
            qs_channel_get(channel, numbered(name, 'q', round), QS_NO_ACK, &message, QS_ERROR));
        qs_message_release(&message);
    }
    for (uint32_t round = 0; round < run->deleted; round++) {
        QS_CHECK_STATUS(QS_NOT_FOUND, qs_channel_get(channel, numbered(name, 'q', round), QS_NO_ACK,
                                                     &message, QS_ERROR));
        qs_channel_close(channel); /* which not found has closed */
        QS_CHECK_OK(qs_channel_open(&channel, store, QS_ERROR));
    }
    qs_channel_close(channel);
    QS_CHECK_OK(qs_store_close(store, QS_ERROR));
}

static void at_step(void *context, uint64_t step)
{
    struct run *run = context;

    for (int i = 0; i < 4; i++) {
        enum qsi_cut_how how = i == 0   ? QSI_CUT_DROP_ALL
                               : i == 1 ? QSI_CUT_KEEP_ALL
                                        : QSI_CUT_RANDOM;
        qs_env *disk = qsi_env_sim_cut(run->sim, how, 4 * step + (uint64_t)i);
        check_disk(run, disk);
        qsi_env_mem_destroy(disk);
        run->states += 1;
    }
}

static void make_a_queue(struct run *run, uint32_t round)
{
    char exchange[8], queue[8];
    qs_slice from = numbered(exchange, 'x', round), to = numbered(queue, 'q', round);
    qs_declare_ok ok;
    qs_receipt receipt;
    bool nacked;

    QS_CHECK_OK(qs_channel_exchange_declare(run->channel, from, text("fanout"),
                                            QS_DURABLE | QS_NO_SYNC, NONE, QS_ERROR));
    QS_CHECK_OK(
        qs_channel_queue_declare(run->channel, to, QS_DURABLE | QS_NO_SYNC, NONE, &ok, QS_ERROR));
    QS_CHECK_OK(
        qs_channel_change_binding(run->channel, to, from, NONE, NONE, QS_NO_SYNC, QS_ERROR));
    QS_CHECK_OK(qs_channel_publish(run->channel, from, NONE, PERSISTENT, text("body"), 0, 0,
                                   &receipt, QS_ERROR));
    QS_CHECK_OK(qs_channel_wait_confirms(run->channel, QS_FOREVER, &nacked, QS_ERROR));
    QS_CHECK(!nacked);
    run->confirmed = round + 1;
}

/* What the next round's confirm makes durable. */
static void delete_a_queue(struct run *run, uint32_t round)
{
    char exchange[8], queue[8];
    qs_slice from = numbered(exchange, 'x', round), to = numbered(queue, 'q', round);
    uint64_t count;

    run->deleting = round + 1;
    QS_CHECK_OK(qs_channel_change_binding(run->channel, to, from, NONE, NONE,
                                          QS_UNBIND | QS_NO_SYNC, QS_ERROR));
    QS_CHECK_OK(qs_channel_exchange_delete(run->channel, from, QS_NO_SYNC, QS_ERROR));
    QS_CHECK_OK(qs_channel_queue_delete(run->channel, to, QS_NO_SYNC, &count, QS_ERROR));
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    QS_TEST_FREED struct run *run = calloc(1, sizeof *run);

    QS_CHECK(run != NULL);
    run->sim = qsi_env_sim_create(seed);
    open_store(run->sim, &run->store, &run->channel);
    QS_CHECK_OK(qs_channel_confirm_select(run->channel, QS_ERROR));
    qsi_env_sim_on_step(run->sim, at_step, run);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        make_a_queue(run, round);
        run->deleted = run->deleting;
        if (round >= KEPT) {
            delete_a_queue(run, round - KEPT);
        }
    }
    QS_CHECK_OK(qs_store_checkpoint(run->store, QS_ERROR));
    qsi_env_sim_on_step(run->sim, NULL, NULL);
    qs_channel_close(run->channel);
    QS_CHECK_OK(qs_store_close(run->store, QS_ERROR));
    printf("%" PRIu64 " crash states\n", run->states);
    QS_CHECK(run->states > 400 && run->deleted == ROUNDS - KEPT - 1);
    qsi_env_sim_destroy(run->sim);
    return 0;
}
