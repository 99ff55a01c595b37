/* Simulated power cuts over stores that page: more messages than fit into memory, checkpoints at
 * any time, segments that are rewritten and message files that are compacted, lazy queues,
 * purges and deletions of what is on the disk, and all of that in crashes during recovery as
 * well.  A part of the states is settled to the end, to see that space comes back.
 *
 * Arguments: seed, number of states, the one kind of runs (from 0). */
#include "crash_run.h"

/* Percent of the states; generations, ops, cut_percent, random_cuts. */
static const struct crash_kind kinds[] = {
    {"long lives", 20, {1, 120, 5, .random_cuts = 2, .pages = true}},
    {"short lives", 30, {4, 40, 5, 2, .end_steps = 400, .pages = true}},
    {"crashes around recovery", 20, {6, 6, 10, 2, .end_steps = 60, .pages = true}},
    {"first commits of sessions", 10, {12, 8, 3, 2, .end_syncs = 3, .pages = true}},
    {"segments that cannot be read",
     10,
     {4, 80, 5, 2, .end_steps = 600, .unread_percent = 10, .pages = true}},
    {"failing calls", 10, {3, 40, 5, 2, .end_steps = 400, .has_faults = true, .pages = true}},
};

int main(int argc, char **argv)
{
    crash_run_kinds(argc, argv, crash_run, kinds, sizeof kinds / sizeof kinds[0], 150000);
    return 0;
}
