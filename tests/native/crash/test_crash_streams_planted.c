/* Bugs planted in streams, one at a time: the suite must see each of them.
 *
 * Arguments: seed. */
#include "crash_log.h"
#include "crash_run.h"

#define STATES_MAX 100000 /* within which a bug must show */

static const struct log_run_options mix[] = {
    {.generations = 1, .ops = 150, .cut_percent = 8, .random_cuts = 2},
    {.generations = 5, .ops = 40, .cut_percent = 8, .random_cuts = 2, .end_steps = 300},
    {.generations = 8, .ops = 6, .cut_percent = 15, .random_cuts = 2, .end_steps = 60},
};

static void run_mix(enum log_bug bug, struct crash_report *report, uint64_t seed,
                    uint64_t state_count)
{
    while (report->states < state_count && report->violations == 0) {
        struct log_run_options options = mix[seed % 3];

        options.bug = bug;
        options.has_faults = bug == LOG_SYNC_SWALLOWED;
        log_run(&options, report, seed++);
    }
}

int main(int argc, char **argv)
{
    static const char *const names[LOG_BUGS] = {
        [LOG_SYNC_SWALLOWED] = "a failed sync of a stream's file taken for done",
        [LOG_BLOCK_NOT_SYNCED] = "blocks not synced before the checkpoint",
        [LOG_NAME_NOT_SYNCED] = "files' names not synced before the checkpoint",
        [LOG_SHARED_PAGE] = "a page shared with a block that a checkpoint names",
        [LOG_CURSOR_DIVIDED] = "a cursor outside its group",
        [LOG_EARLY_REMOVAL] = "files removed before the record that drops them",
        [LOG_TRIM_UNTOLD] = "messages dropped without a record",
        [LOG_WRITTEN_NOT_SYNCED] = "blocks that the journal names not synced",
        [LOG_WRITTEN_NAME_NOT_SYNCED] = "nor the names of their files",
        [LOG_WRITTEN_BEHIND] = "nor what lies before them in the file",
    };
    uint64_t seed = qs_test_seed(argc, argv);
    struct crash_report clean = {.told_max = 10};

    for (enum log_bug bug = LOG_NO_BUG + 1; bug < LOG_BUGS; bug++) {
        struct crash_report report = {.told_max = 1};

        run_mix(bug, &report, seed, STATES_MAX);
        printf("%s: %s after %" PRIu64 " states\n", names[bug],
               report.violations > 0 ? "caught" : "NOT CAUGHT", report.states);
        fflush(stdout);
        QS_CHECK(report.violations > 0);
    }
    run_mix(LOG_NO_BUG, &clean, seed, 3000); /* what is caught is the bug and not the harness */
    QS_CHECK(clean.violations == 0);
    return 0;
}
