/* Simulated power cuts over streams: publishes one by one, in batches and in transactions, to
 * streams, a queue and both; cursors, retention, flushes, checkpoints, streams that are deleted and
 * declared again, clocks that go back, and several crashes behind each other, recovery included.
 *
 * Arguments: seed, number of states, the one kind of runs (from 0). */
#include "crash_log.h"
#include "crash_run.h"

static const struct {
    const char *name;
    struct log_run_options options;
    uint32_t percent; /* of the states */
} kinds[] = {
    {"long lives", {.generations = 1, .ops = 150, .cut_percent = 8, .random_cuts = 2}, 25},
    {"short lives",
     {.generations = 5, .ops = 40, .cut_percent = 8, .random_cuts = 2, .end_steps = 300},
     30},
    {"crashes around recovery",
     {.generations = 8, .ops = 6, .cut_percent = 15, .random_cuts = 2, .end_steps = 60},
     15},
    {"files that cannot be read",
     {.generations = 4,
      .ops = 80,
      .cut_percent = 5,
      .random_cuts = 2,
      .end_steps = 500,
      .unread_percent = 20},
     15},
    {"failing calls",
     {.generations = 4,
      .ops = 50,
      .cut_percent = 5,
      .random_cuts = 2,
      .end_steps = 400,
      .has_faults = true},
     15},
};

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);
    uint64_t state_count = crash_state_count(argc, argv, 100000);
    struct crash_report all = {.told_max = 10};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct crash_report report = {.told_max = 10};
        uint64_t wanted = argc > 3 ? state_count : state_count * kinds[i].percent / 100;
        double began = crash_seconds();

        if (argc > 3 && i != strtoull(argv[3], NULL, 0)) {
            continue;
        }
        for (uint64_t run = seed; report.states < wanted; run++) {
            log_run(&kinds[i].options, &report, run);
        }
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
