/* Bugs planted in the environment, one at a time: the suite must see each of them.  A suite that
 * finds nothing proves nothing until it was seen to find something.
 *
 * Arguments: seed. */
#include "crash_removals.h"
#include "crash_run.h"

#define STATES_MAX 200000 /* within which a bug must show */

/* The mix that the suite itself runs, in small. */
static const struct crash_run_options mix[] = {
    {.generations = 2, .ops = 40, .cut_percent = 40, .random_cuts = 3, .end_steps = 100},
    {.generations = 6, .ops = 4, .cut_percent = 30, .random_cuts = 2, .end_steps = 25},
    {.generations = 12, .ops = 8, .cut_percent = 5, .random_cuts = 2, .end_syncs = 1},
};

static const struct crash_run_options paging_mix[] = {
    {.generations = 1, .ops = 100, .cut_percent = 5, .random_cuts = 2, .pages = true},
    {.generations = 4,
     .ops = 40,
     .cut_percent = 5,
     .random_cuts = 2,
     .end_steps = 400,
     .pages = true},
    {.generations = 6,
     .ops = 6,
     .cut_percent = 10,
     .random_cuts = 2,
     .end_steps = 60,
     .pages = true},
};

static void run_mix(const struct crash_run_options *three, enum crash_bug bug, bool has_faults,
                    struct crash_report *report, uint64_t seed, uint64_t state_count)
{
    while (report->states < state_count && report->violations == 0) {
        struct crash_run_options options = three[seed % 3];

        options.bug = bug;
        options.has_faults = has_faults;
        crash_run(&options, report, seed++);
    }
}

static void must_be_caught(const char *name, const struct crash_run_options *three,
                           enum crash_bug bug, bool has_faults, uint64_t seed)
{
    struct crash_report report = {.told_max = 1};

    run_mix(three, bug, has_faults, &report, seed, STATES_MAX);
    printf("%s: %s after %" PRIu64 " states\n", name,
           report.violations > 0 ? "caught" : "NOT CAUGHT", report.states);
    fflush(stdout);
    QS_CHECK(report.violations > 0);
}

/* The same runs without a bug: what is caught above is the bug and not the harness. */
static void must_be_clean(const struct crash_run_options *three, bool has_faults, uint64_t seed)
{
    struct crash_report report = {.told_max = 10};

    run_mix(three, CRASH_NO_BUG, has_faults, &report, seed, 5000);
    printf("no bug%s: %" PRIu64 " states, %" PRIu64 " violations\n",
           has_faults ? ", failing calls" : "", report.states, report.violations);
    QS_CHECK(report.violations == 0);
}

/* Messages that leave their queues by themselves. */
static const struct removal_options removing = {.generations = 1, .ops = 150, .cut_percent = 30};

static void run_removing(enum crash_bug bug, struct crash_report *report, uint64_t seed,
                         uint64_t state_count)
{
    struct removal_options options = removing;

    options.bug = bug;
    while (report->states < state_count && report->violations == 0) {
        removal_run(&options, report, seed++);
    }
}

static void must_be_clean_removing(uint64_t seed)
{
    struct crash_report report = {.told_max = 10};

    run_removing(CRASH_NO_BUG, &report, seed, 3000);
    printf("no bug, removing: %" PRIu64 " states, %" PRIu64 " violations\n", report.states,
           report.violations);
    QS_CHECK(report.violations == 0);
}

static void must_be_caught_removing(const char *name, enum crash_bug bug, uint64_t seed)
{
    struct crash_report report = {.told_max = 1};

    run_removing(bug, &report, seed, STATES_MAX);
    printf("%s: %s after %" PRIu64 " states\n", name,
           report.violations > 0 ? "caught" : "NOT CAUGHT", report.states);
    fflush(stdout);
    QS_CHECK(report.violations > 0);
}

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);

    must_be_clean(mix, false, seed);
    must_be_clean(mix, true, seed);
    must_be_caught("no directory sync", mix, CRASH_NO_DIR_SYNC, false, seed);
    must_be_caught("confirm before sync", mix, CRASH_NO_FILE_SYNC, false, seed);
    must_be_caught("retry of a failed sync", mix, CRASH_RETRIED_SYNC, true, seed);
    must_be_caught("constant salt", mix, CRASH_CONSTANT_RANDOM, false, seed);
    must_be_clean(paging_mix, false, seed);
    must_be_clean(paging_mix, true, seed);
    must_be_caught("segments not synced", paging_mix, CRASH_NO_SEGMENT_SYNC, false, seed);
    must_be_caught("index directory not synced", paging_mix, CRASH_NO_INDEX_DIR_SYNC, false, seed);
    must_be_caught("checkpoint not synced", paging_mix, CRASH_NO_CHECKPOINT_SYNC, false, seed);
    must_be_caught("checkpoint's directory not synced", paging_mix, CRASH_NO_CHECKPOINT_DIR_SYNC,
                   false, seed);
    must_be_caught("message files not synced", paging_mix, CRASH_NO_MESSAGE_SYNC, false, seed);
    must_be_caught("early removal", paging_mix, CRASH_EARLY_REMOVAL, false, seed);
    must_be_caught("early removal of message files", paging_mix, CRASH_EARLY_MESSAGE_REMOVAL, false,
                   seed);
    must_be_caught("counted twice", paging_mix, CRASH_COUNTED_TWICE, false, seed);
    must_be_caught("dropped twice", paging_mix, CRASH_DROPPED_TWICE, false, seed);
    must_be_caught("durable state area overwritten", paging_mix, CRASH_AREA_OVERWRITTEN, false,
                   seed);
    must_be_caught("shared page", paging_mix, CRASH_SHARED_PAGE, false, seed);
    must_be_clean_removing(seed);
    must_be_caught_removing("dead letters and their ends apart", CRASH_GROUP_DIVIDED, seed);
    return 0;
}
