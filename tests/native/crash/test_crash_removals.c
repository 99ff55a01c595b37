/* Simulated power cuts over messages that leave their queues by themselves (crash_removals.h):
 * in memory, and where queues page.
 *
 * Arguments: seed, number of states, the one kind of runs (from 0). */
#include "crash_removals.h"

/* Percent of the states; generations, ops, cut_percent, random_cuts. */
static const struct crash_kind kinds[] = {
    {"long lives", 25, {1, 200, 30, .random_cuts = 1}},
    {"short lives", 25, {5, 60, 20, 1, .end_steps = 300}},
    {"crashes around recovery", 20, {8, 12, 20, 1, .end_steps = 40}},
    {"paged", 30, {3, 100, 8, 1, .end_steps = 500, .pages = true}},
};

int main(int argc, char **argv)
{
    struct crash_report all =
        crash_run_kinds(argc, argv, removal_run, kinds, sizeof kinds / sizeof kinds[0], 60000);

    printf("%" PRIu64 " dead letters\n", all.dead_letters);
    QS_CHECK(all.dead_letters > 0);
    return 0;
}
