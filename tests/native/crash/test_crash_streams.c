/* Simulated power cuts over streams: publishes one by one, in batches and in transactions, to
 * streams, a queue and both; cursors, retention, flushes, checkpoints, streams that are deleted and
 * declared again, clocks that go back, and several crashes behind each other, recovery included.
 *
 * Arguments: seed, number of states, the one kind of runs (from 0). */
#include "crash_log.h"

/* Percent of the states; generations, ops, cut_percent, random_cuts. */
static const struct crash_kind kinds[] = {
    {"long lives", 25, {1, 150, 8, .random_cuts = 2}},
    {"short lives", 30, {5, 40, 8, 2, .end_steps = 300}},
    {"crashes around recovery", 15, {8, 6, 15, 2, .end_steps = 60}},
    {"files that cannot be read", 15, {4, 80, 5, 2, .end_steps = 500, .unread_percent = 20}},
    {"failing calls", 15, {4, 50, 5, 2, .end_steps = 400, .has_faults = true}},
};

int main(int argc, char **argv)
{
    crash_run_kinds(argc, argv, log_run, kinds, sizeof kinds / sizeof kinds[0], 100000);
    return 0;
}
