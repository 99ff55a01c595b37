/* Bugs planted in the environment, one at a time: the suite must see each of them.  A suite that
 * finds nothing proves nothing until it was seen to find something.
 *
 * Arguments: seed. */
#include "qs_crash_run.h"

#define STATES_MAX 200000 /* within which a bug must show */

/* The mix that the suite itself runs, in small. */
static const struct crash_run_options mix[] = {
    {.generations = 2, .ops = 40, .cut_percent = 40, .random_cuts = 3, .end_steps = 100},
    {.generations = 6, .ops = 4, .cut_percent = 30, .random_cuts = 2, .end_steps = 25},
    {.generations = 12, .ops = 8, .cut_percent = 5, .random_cuts = 2, .end_syncs = 1},
};

static void run_mix(enum crash_bug bug, bool has_faults, struct crash_report *report, uint64_t seed,
                    uint64_t state_count)
{
    while (report->states < state_count && report->violations == 0) {
        struct crash_run_options options = mix[seed % 3];

        options.bug = bug;
        options.has_faults = has_faults;
        crash_run(&options, report, seed++);
    }
}

static void must_be_caught(const char *name, enum crash_bug bug, bool has_faults, uint64_t seed)
{
    struct crash_report report = {.told_max = 1};

    run_mix(bug, has_faults, &report, seed, STATES_MAX);
    printf("%s: %s after %" PRIu64 " states\n", name,
           report.violations > 0 ? "caught" : "NOT CAUGHT", report.states);
    fflush(stdout);
    QS_CHECK(report.violations > 0);
}

/* The same runs without a bug: what is caught above is the bug and not the harness. */
static void must_be_clean(bool has_faults, uint64_t seed)
{
    struct crash_report report = {.told_max = 10};

    run_mix(CRASH_NO_BUG, has_faults, &report, seed, 5000);
    printf("no bug%s: %" PRIu64 " states, %" PRIu64 " violations\n",
           has_faults ? ", failing calls" : "", report.states, report.violations);
    QS_CHECK(report.violations == 0);
}

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);

    must_be_clean(false, seed);
    must_be_clean(true, seed);
    must_be_caught("no directory sync", CRASH_NO_DIR_SYNC, false, seed);
    must_be_caught("confirm before sync", CRASH_NO_FILE_SYNC, false, seed);
    must_be_caught("retry of a failed sync", CRASH_RETRIED_SYNC, true, seed);
    must_be_caught("constant salt", CRASH_CONSTANT_RANDOM, false, seed);
    return 0;
}
