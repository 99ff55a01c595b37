/* The planted bug that needs another link: a recovery that believes the journal what is in a
 * stream's file.  block_last.c holds this one symbol and nothing else, so the definition below
 * takes its place in the whole engine.
 *
 * Arguments: seed. */
#include "block_read.h"
#include "crash_log.h"

#define STATES_MAX 100000

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
    uint64_t seed = qs_test_seed(argc, argv);
    const struct log_run_options options = {
        .generations = 5, .ops = 40, .cut_percent = 30, .random_cuts = 2, .end_steps = 300};
    struct crash_report report = {.told_max = 1};

    while (report.states < STATES_MAX && report.violations == 0) {
        log_run(&options, &report, seed++);
    }
    printf("blocks not checked: %s after %" PRIu64 " states\n",
           report.violations > 0 ? "caught" : "NOT CAUGHT", report.states);
    QS_CHECK(report.violations > 0);
    return 0;
}
