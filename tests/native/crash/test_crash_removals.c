/* Simulated power cuts over messages that leave their queues by themselves (crash_removals.h):
 * in memory, and where queues page.
 *
 * Arguments: seed, number of states, the one kind of runs (from 0). */
#include "crash_removals.h"
#include "crash_run.h"

static const struct {
    const char *name;
    struct removal_options options;
    uint32_t percent; /* of the states */
} kinds[] = {
    {"long lives", {.generations = 1, .ops = 200, .cut_percent = 30}, 25},
    {"short lives", {.generations = 5, .ops = 60, .cut_percent = 20, .end_steps = 300}, 25},
    {"crashes around recovery",
     {.generations = 8, .ops = 12, .cut_percent = 20, .end_steps = 40},
     20},
    {"paged",
     {.generations = 3, .ops = 100, .cut_percent = 8, .end_steps = 500, .pages = true},
     30},
};

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);
    uint64_t state_count = crash_state_count(argc, argv, 60000);
    uint64_t states = 0, violations = 0, moved = 0;

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct crash_report report = {.told_max = 10};
        uint64_t wanted = argc > 3 ? state_count : state_count * kinds[i].percent / 100;
        double began = crash_seconds();

        if (argc > 3 && i != strtoull(argv[3], NULL, 0)) {
            continue;
        }
        for (uint64_t run = seed; report.states < wanted; run++) {
            moved += removal_run(&kinds[i].options, &report, run);
        }
        states += report.states;
        violations += report.violations;
        printf("%s: %" PRIu64 " states, %" PRIu64 " violations, %.0f states/s\n", kinds[i].name,
               report.states, report.violations, (double)report.states / (crash_seconds() - began));
        fflush(stdout);
    }
    printf("%" PRIu64 " crash states, %" PRIu64 " dead letters, %" PRIu64 " violations\n", states,
           moved, violations);
    QS_CHECK(violations == 0 && moved > 0);
    return 0;
}
