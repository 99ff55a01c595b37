/* Bugs planted in the environment, one at a time: the suite must see each of them.  A suite that
 * finds nothing proves nothing until it was seen to find something.
 *
 * Arguments: seed. */
#include "crash_removals.h"
#include "crash_run.h"

/* The mix that the suite itself runs, in small: generations, ops, cut_percent, random_cuts. */
static const struct crash_run_options plain_options[] = {
    {2, 40, 40, 3, .end_steps = 100},
    {6, 4, 30, 2, .end_steps = 25},
    {12, 8, 5, 2, .end_syncs = 1},
};
static const struct crash_mix plain = {crash_run, plain_options, 3};

static const struct crash_run_options paging_options[] = {
    {1, 100, 5, .random_cuts = 2, .pages = true},
    {4, 40, 5, 2, .end_steps = 400, .pages = true},
    {6, 6, 10, 2, .end_steps = 60, .pages = true},
};
static const struct crash_mix paging = {crash_run, paging_options, 3};

/* Messages that leave their queues by themselves. */
static const struct crash_run_options removing_options = {1, 150, 30, .random_cuts = 1};
static const struct crash_mix removing = {removal_run, &removing_options, 1};

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);

    crash_must_be_clean(&plain, false, seed, 5000);
    crash_must_be_clean(&plain, true, seed, 5000);
    crash_must_be_caught(&plain, "no directory sync", CRASH_NO_DIR_SYNC, false, seed);
    crash_must_be_caught(&plain, "confirm before sync", CRASH_NO_FILE_SYNC, false, seed);
    crash_must_be_caught(&plain, "retry of a failed sync", CRASH_RETRIED_SYNC, true, seed);
    crash_must_be_caught(&plain, "constant salt", CRASH_CONSTANT_RANDOM, false, seed);
    crash_must_be_clean(&paging, false, seed, 5000);
    crash_must_be_clean(&paging, true, seed, 5000);
    crash_must_be_caught(&paging, "segments not synced", CRASH_NO_SEGMENT_SYNC, false, seed);
    crash_must_be_caught(&paging, "index directory not synced", CRASH_NO_INDEX_DIR_SYNC, false,
                         seed);
    crash_must_be_caught(&paging, "checkpoint not synced", CRASH_NO_CHECKPOINT_SYNC, false, seed);
    crash_must_be_caught(&paging, "checkpoint's directory not synced", CRASH_NO_CHECKPOINT_DIR_SYNC,
                         false, seed);
    crash_must_be_caught(&paging, "message files not synced", CRASH_NO_MESSAGE_SYNC, false, seed);
    crash_must_be_caught(&paging, "early removal", CRASH_EARLY_REMOVAL, false, seed);
    crash_must_be_caught(&paging, "early removal of message files", CRASH_EARLY_MESSAGE_REMOVAL,
                         false, seed);
    crash_must_be_caught(&paging, "counted twice", CRASH_COUNTED_TWICE, false, seed);
    crash_must_be_caught(&paging, "dropped twice", CRASH_DROPPED_TWICE, false, seed);
    crash_must_be_caught(&paging, "durable state area overwritten", CRASH_AREA_OVERWRITTEN, false,
                         seed);
    crash_must_be_caught(&paging, "shared page", CRASH_SHARED_PAGE, false, seed);
    crash_must_be_clean(&removing, false, seed, 3000);
    crash_must_be_caught(&removing, "dead letters and their ends apart", CRASH_GROUP_DIVIDED, false,
                         seed);
    return 0;
}
