/* The planted bug that needs another link: a recovery that believes the journal what is in a
 * stream's file.  block_last.c holds this one symbol and nothing else, so the definition below
 * takes its place in the whole engine.
 *
 * Arguments: seed. */
#include "block_read.h"
#include "crash_log.h"

qs_status qsi_block_file_check_last(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                                    const struct qsi_block_last *last, qs_error *error)
{
    (void)blocks;
    (void)file;
    (void)last;
    (void)error;
    return QS_OK;
}

int main(int argc, char **argv)
{
    static const struct crash_run_options options = {5, 40, 30, 2, .end_steps = 300};
    static const struct crash_mix mix = {log_run, &options, 1};

    crash_must_be_caught(&mix, "blocks not checked", LOG_NO_BUG, false, qs_test_seed(argc, argv));
    return 0;
}
