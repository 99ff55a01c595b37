/* Runs of a workload with power cuts: the heart of the crash suite.
 *
 * A run works on one disk in several generations.  At steps chosen by chance the disk is cut in
 * several ways; each cut is opened as a store of its own and compared with the model as it is at
 * that moment, while the run goes on unharmed.  A generation ends
 *
 *   - with a power cut: the next one goes on from the disk that a cut left, or
 *   - with the death of the process: the next one goes on from the same disk, page cache and all,
 *     so that only recovery's own syncs make what it showed durable,
 *
 * and that can be at any step, also while recovery is at work.  What a recovery showed is the truth
 * for everything after it.
 *
 * All of a run follows from its seed. */
#ifndef CRASH_RUN_H
#define CRASH_RUN_H

#include "crash_space.h"
#include "env_test.h"

#include <time.h>

struct crash_run_options {
    enum crash_bug bug;
    uint32_t generations;    /* 1 at least */
    uint32_t ops;            /* of one generation, about */
    uint32_t cut_percent;    /* of the steps at which cuts are taken */
    uint32_t random_cuts;    /* at each such step, beside the two simple ones */
    uint32_t unread_percent; /* of the segment files that are to be written to cannot be read */
    bool has_faults;         /* one call of each generation fails, most often a sync */
    uint32_t end_steps;      /* a generation that is cut off ends within so many steps */
    uint32_t end_syncs;      /* not 0: or at one of the first syncs of its work, mid-commit */
    bool pages;              /* crash_paging_options, and work to go with it */
};

struct crash_run {
    const struct crash_run_options *options;
    struct crash_report *report;
    uint64_t random;
    qs_options store_options;
    uint32_t generation;
    qs_env *sim;
    qs_env *fault;        /* around sim */
    struct crash_env env; /* around fault */
    struct crash_model model;
    struct crash_model frozen; /* as it was when the generation ended */
    uint64_t end_step;         /* the step at which the generation ends; 0: when its work is done */
    uint64_t end_sync;         /* or the sync at which it does; 0: none */
    bool ends_in_power_cut;
    bool has_ended;
    const struct crash_work *work; /* of this generation */
    qs_env *next_disk;             /* after a power cut */
};

/* Opens the disk as a store of its own, compares and throws everything away.  space_seed not 0:
 * settles everything as well, and looks at what is left of its space. */
void crash_check_disk_as(struct crash_model *model, struct crash_report *report, qs_env *mem,
                         qs_options options, uint64_t space_seed);
void crash_check_disk(struct crash_model *model, struct crash_report *report, qs_env *mem);
void crash_run(const struct crash_run_options *options, struct crash_report *report, uint64_t seed);
double crash_seconds(void);

/* The second argument, or so many: a sixteenth where QS_SWEEPS is "short" in the environment, a
 * twentieth where each state costs twenty times more. */
uint64_t crash_state_count(int argc, char **argv, uint64_t count);

/* Runs one after another, from seed on, until there were so many states, or a violation when one is
 * looked for. */
void crash_run_many(const struct crash_run_options *options, struct crash_report *report,
                    uint64_t seed, uint64_t state_count, bool stops_at_violation);

#endif
