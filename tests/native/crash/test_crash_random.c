/* Simulated power cuts over random workloads: publishes of every kind, several queues and channels,
 * bodies in the message store, acks, requeues, purges, declarations, transactions, closing and
 * reopening, files that roll over and are used again, and several crashes behind each other on one
 * disk, recovery itself included.
 *
 * Arguments: seed, number of states. */
#include "crash_run.h"

/* Percent of the states; generations, ops, cut_percent, random_cuts. */
static const struct crash_kind kinds[] = {
    {"long lives", 40, {1, 120, 40, .random_cuts = 3}},
    {"short lives", 30, {4, 30, 30, 3, .end_steps = 90}},
    {"crashes around recovery", 10, {5, 4, 40, 3, .end_steps = 25}},
    {"first commits of sessions", 10, {12, 8, 5, 2, .end_syncs = 1}},
    {"failing calls", 10, {3, 40, 30, 3, .end_steps = 150, .has_faults = true}},
};

int main(int argc, char **argv)
{
    crash_run_kinds(argc, argv, crash_run, kinds, sizeof kinds / sizeof kinds[0], 400000);
    return 0;
}
