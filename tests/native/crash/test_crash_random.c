/* Simulated power cuts over random workloads: publishes of every kind, several queues and channels,
 * bodies in the message store, acks, requeues, purges, declarations, transactions, closing and
 * reopening, files that roll over and are used again, and several crashes behind each other on one
 * disk, recovery itself included.
 *
 * Arguments: seed, number of states. */
#include "crash_run.h"

static const struct {
    const char *name;
    struct crash_run_options options;
    uint32_t percent; /* of the states */
} kinds[] = {
    {"long lives", {.generations = 1, .ops = 120, .cut_percent = 40, .random_cuts = 3}, 40},
    {"short lives",
     {.generations = 4, .ops = 30, .cut_percent = 30, .random_cuts = 3, .end_steps = 90},
     30},
    {"crashes around recovery",
     {.generations = 5, .ops = 4, .cut_percent = 40, .random_cuts = 3, .end_steps = 25},
     10},
    {"first commits of sessions",
     {.generations = 12, .ops = 8, .cut_percent = 5, .random_cuts = 2, .end_syncs = 1},
     10},
    {"failing calls",
     {.generations = 3,
      .ops = 40,
      .cut_percent = 30,
      .random_cuts = 3,
      .end_steps = 150,
      .has_faults = true},
     10},
};

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);
    uint64_t state_count = crash_state_count(argc, argv, 400000);
    struct crash_report all = {.told_max = 10};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct crash_report report = {.told_max = 10};
        double began = crash_seconds();

        crash_run_many(&kinds[i].options, &report, seed, state_count * kinds[i].percent / 100,
                       false);
        all.states += report.states;
        all.violations += report.violations;
        printf("%s: %" PRIu64 " states, %" PRIu64 " violations, %.0f states/s\n", kinds[i].name,
               report.states, report.violations, (double)report.states / (crash_seconds() - began));
        fflush(stdout);
    }
    printf("%" PRIu64 " crash states, %" PRIu64 " violations\n", all.states, all.violations);
    QS_CHECK(all.violations == 0);
    return 0;
}
