/* Simulated power cuts over stores that page: more messages than fit into memory, checkpoints at
 * any time, segments that are rewritten and message files that are compacted, lazy queues,
 * purges and deletions of what is on the disk, and all of that in crashes during recovery as
 * well.  A part of the states is settled to the end, to see that space comes back.
 *
 * Arguments: seed, number of states, the one kind of runs (from 0). */
#include "crash_run.h"

static const struct {
    const char *name;
    struct crash_run_options options;
    uint32_t percent; /* of the states */
} kinds[] = {
    {"long lives", {.generations = 1, .ops = 120, .cut_percent = 5, .random_cuts = 2}, 20},
    {"short lives",
     {.generations = 4, .ops = 40, .cut_percent = 5, .random_cuts = 2, .end_steps = 400},
     30},
    {"crashes around recovery",
     {.generations = 6, .ops = 6, .cut_percent = 10, .random_cuts = 2, .end_steps = 60},
     20},
    {"first commits of sessions",
     {.generations = 12, .ops = 8, .cut_percent = 3, .random_cuts = 2, .end_syncs = 3},
     10},
    {"segments that cannot be read",
     {.generations = 4,
      .ops = 80,
      .cut_percent = 5,
      .random_cuts = 2,
      .end_steps = 600,
      .unread_percent = 10},
     10},
    {"failing calls",
     {.generations = 3,
      .ops = 40,
      .cut_percent = 5,
      .random_cuts = 2,
      .end_steps = 400,
      .has_faults = true},
     10},
};

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);
    uint64_t state_count = crash_state_count(argc, argv, 150000);
    struct crash_report all = {.told_max = 10};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (argc > 3 && i != strtoull(argv[3], NULL, 0)) {
            continue;
        }
        struct crash_run_options options = kinds[i].options;
        struct crash_report report = {.told_max = 10};
        double began = crash_seconds();

        options.pages = true;
        crash_run_many(&options, &report, seed,
                       argc > 3 ? state_count : state_count * kinds[i].percent / 100, false);
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
