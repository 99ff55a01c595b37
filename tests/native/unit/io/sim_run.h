/* Running the tests of the simulated disk: each gives all its memory back. */
#ifndef SIM_RUN_H
#define SIM_RUN_H

#include "qs_test_alloc.h"
#include "sim_fixture.h"
#include "splitmix.h"

static uint64_t seed;

static inline void run(void (*test)(void))
{
    seed = qs_test_seed_given;
    sim_set_up(seed);
    test();
    sim_tear_down();
}
#define SIM_TEST(name) QS_TEST_BY(run, name, (void))

#endif
