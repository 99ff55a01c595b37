/* A store on a full disk closes, whatever was done on it before.
 *
 * Rounds by seed: a disk of some size is filled, a part of it is drained, it is filled again,
 * with commits, checkpoints and purges in between.  The disk tells what is free, and nobody else
 * takes any of it: each close, sync and checkpoint must succeed, and what is there afterwards is
 * what was not settled. */
#include "engine_fixture.h"
#include "splitmix.h"

enum { DISK_MIN = 1 << 20, DISK_STEP = 64 << 10, DISK_STEPS = 64, OPERATIONS = 40, ROUNDS = 8 };

/* In these the space that a checkpoint needs was taken by others, once. */
static const uint64_t known_seeds[] = {47, 105, 112};

struct round {
    struct engine engine;
    uint64_t random;
    uint32_t first, end; /* the messages that are there: their numbers */
};

static uint64_t below(struct round *round, uint64_t limit)
{
    return qsi_splitmix_below(&round->random, limit);
}

static uint32_t body_bytes(uint32_t number)
{
    return number % 11 == 0 ? 9000 : 100 + number % 7 * 150;
}

static bool publish_next(struct round *round)
{
    QS_TEST_FREED char *body = make_body(body_bytes(round->end), round->end);
    qs_status status = qs_test_publish(round->engine.channel, "", "q", PERSISTENT, text(body), 0);

    if (status != QS_OK && status != QS_ESTORE_FULL) {
        fprintf(stderr, "publish: %s\n", qs_test_error.text);
    }
    QS_CHECK(status == QS_OK || status == QS_ESTORE_FULL);
    round->end += status == QS_OK ? 1 : 0;
    return status == QS_OK;
}

static void sync_it(struct round *round)
{
    qs_status status = qs_store_sync(round->engine.store, QS_ERROR);

    if (status != QS_OK) {
        fprintf(stderr, "sync: %s\n", qs_test_error.text);
    }
    QS_CHECK(status == QS_OK);
}

static void publish_some(struct round *round, uint64_t count, uint64_t every)
{
    while (count-- > 0 && publish_next(round)) {
        if (every > 0 && count % every == 0) {
            sync_it(round);
        }
    }
}

static void take_some(struct round *round, uint64_t count, uint64_t every)
{
    while (count-- > 0 && round->first < round->end) {
        QS_TEST_FREED char *body = make_body(body_bytes(round->first), round->first);
        uint64_t tag = get(&round->engine, "q", body).delivery_tag;

        ack(&round->engine, tag, 0);
        round->first += 1;
        if (every > 0 && count % every == 0) {
            sync_it(round);
        }
    }
}

static void purge(struct round *round)
{
    uint64_t dropped;

    QS_CHECK_OK(qs_channel_queue_purge(round->engine.channel, text("q"), 0, &dropped, QS_ERROR));
    QS_CHECK(dropped == round->end - round->first);
    round->first = round->end;
}

static void close_it(struct round *round)
{
    qs_status status;

    qs_channel_close(round->engine.channel);
    status = qs_store_close(round->engine.store, QS_ERROR);
    if (status != QS_OK) {
        fprintf(stderr, "close: %s; %" PRIu64 " bytes used\n", qs_test_error.text,
                qsi_env_ram_used(round->engine.memory));
    }
    QS_CHECK(status == QS_OK);
}

static void operate(struct round *round)
{
    uint64_t every = below(round, 2) * (1 + below(round, 8));

    switch (below(round, 10)) {
    case 0:
    case 1:
        publish_some(round, UINT64_MAX, every * 16);
        break;
    case 2:
        publish_some(round, below(round, 2000), every);
        break;
    case 3:
    case 4:
    case 5:
        take_some(round, below(round, 3000), every);
        break;
    case 6:
        take_some(round, UINT64_MAX, every);
        break;
    case 7:
        if (below(round, 4) == 0) {
            purge(round);
        }
        break;
    case 8:
        QS_CHECK_OK(qs_store_checkpoint(round->engine.store, QS_ERROR));
        break;
    case 9:
        close_it(round);
        engine_open(&round->engine);
        check_counts(&round->engine, "q", round->end - round->first, 0);
        break;
    }
}

static void play(uint64_t seed)
{
    struct round round = {.random = seed};
    static const uint64_t budgets[] = {256u << 10, 1u << 20, 64u << 20};
    static const uint32_t entries[] = {16, 64, 1024, 16384};
    uint64_t disk = DISK_MIN + below(&round, DISK_STEPS) * DISK_STEP;

    engine_init(&round.engine, IN_MEMORY);
    qsi_env_ram_limit(round.engine.memory, disk);
    round.engine.options.journal_file_bytes = 64u << 10;
    round.engine.options.message_file_bytes = 64u << 10;
    round.engine.options.memory_budget = budgets[below(&round, 3)];
    round.engine.options.segment_entries = entries[below(&round, 4)];
    printf("seed %" PRIu64 ": disk %" PRIu64 ", budget %" PRIu64 ", segments of %u\n", seed, disk,
           round.engine.options.memory_budget, round.engine.options.segment_entries);
    fflush(stdout);
    engine_open(&round.engine);
    declare(&round.engine, "q", QS_DURABLE);
    for (int i = 0; i < OPERATIONS; i++) {
        operate(&round);
    }
    take_some(&round, UINT64_MAX, 1);
    close_it(&round);
    engine_fini(&round.engine);
}

/* test_space_close [SEED [ROUNDS]] */
int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    uint64_t rounds = argc > 2 ? strtoull(argv[2], NULL, 10) : ROUNDS;

    for (uint64_t i = 0; i < rounds; i++) {
        play(seed + i);
    }
    for (size_t i = 0; argc == 1 && i < sizeof known_seeds / sizeof known_seeds[0]; i++) {
        play(known_seeds[i]);
    }
    return 0;
}
