/* Bugs planted in streams, one at a time: the suite must see each of them.
 *
 * Arguments: seed. */
#include "crash_log.h"

/* generations, ops, cut_percent, random_cuts */
static const struct crash_run_options options[] = {
    {1, 150, 8, .random_cuts = 2},
    {5, 40, 8, 2, .end_steps = 300},
    {8, 6, 15, 2, .end_steps = 60},
};
static const struct crash_mix mix = {log_run, options, 3};

int main(int argc, char **argv)
{
    static const char *const names[LOG_BUGS] = {
        [LOG_SYNC_SWALLOWED] = "a failed sync of a stream's file taken for done",
        [LOG_BLOCK_NOT_SYNCED] = "blocks not synced before the checkpoint",
        [LOG_NAME_NOT_SYNCED] = "files' names not synced before the checkpoint",
        [LOG_SHARED_PAGE] = "a page shared with a block that a checkpoint names",
        [LOG_CURSOR_DIVIDED] = "a cursor outside its group",
        [LOG_EARLY_REMOVAL] = "files removed before the record that drops them",
        [LOG_TRIM_UNRECORDED] = "messages dropped without a record",
        [LOG_WRITTEN_NOT_SYNCED] = "blocks that the journal names not synced",
        [LOG_WRITTEN_NAME_NOT_SYNCED] = "nor the names of their files",
        [LOG_WRITTEN_BEHIND] = "nor what lies before them in the file",
    };
    uint64_t seed = qs_test_seed(argc, argv);

    for (uint32_t bug = LOG_NO_BUG + 1; bug < LOG_BUGS; bug++) {
        crash_must_be_caught(&mix, names[bug], bug, bug == LOG_SYNC_SWALLOWED, seed);
    }
    crash_must_be_clean(&mix, false, seed, 3000);
    return 0;
}
