/* The power is cut before each step of what happens on a simulated disk. */
#ifndef QS_TEST_CUTS_H
#define QS_TEST_CUTS_H

#include "env_test.h"
#include "qs_test.h"

struct qs_test_cuts {
    qs_env *sim;
    void (*check)(void *context, qs_env *disk); /* the disk that a cut left ends with it */
    void *context;
    uint64_t seed;
    uint64_t by_chance; /* as many of each step, beside one that keeps all and one that drops all */
    uint64_t count;
};

static inline void qs_test_cut(struct qs_test_cuts *cuts, enum qsi_cut_how how, uint64_t seed)
{
    qs_env *disk = qsi_env_sim_cut(cuts->sim, how, seed);
    const char *running = qs_test_running;
    char name[200];

    snprintf(name, sizeof name, "%s, cut %d of seed %" PRIu64, running, (int)how, seed);
    qs_test_running = name;
    cuts->check(cuts->context, disk);
    qs_test_running = running;
    qsi_env_mem_destroy(disk);
    cuts->count++;
}

static inline void qs_test_cuts_take(void *context, uint64_t step)
{
    struct qs_test_cuts *cuts = context;

    qs_test_cut(cuts, QSI_CUT_KEEP_ALL, step);
    qs_test_cut(cuts, QSI_CUT_DROP_ALL, step);
    for (uint64_t i = 0; i < cuts->by_chance; i++) {
        qs_test_cut(cuts, QSI_CUT_RANDOM, cuts->seed + step * cuts->by_chance + i);
    }
}

/* From here to the end. */
static inline void qs_test_cuts_begin(struct qs_test_cuts *cuts)
{
    qsi_env_sim_on_step(cuts->sim, qs_test_cuts_take, cuts);
}

static inline void qs_test_cuts_end(struct qs_test_cuts *cuts)
{
    qsi_env_sim_on_step(cuts->sim, NULL, NULL);
}

#endif
