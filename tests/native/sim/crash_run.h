/* Runs of a workload with power cuts (crash_life.h): the heart of the crash suite. */
#ifndef CRASH_RUN_H
#define CRASH_RUN_H

#include "crash_life.h"
#include "crash_space.h"

struct crash_run {
    struct crash_life life;
    qs_options store_options;
    struct crash_model model;
    struct crash_model frozen;     /* as it was when the generation ended */
    uint64_t end_sync;             /* the sync at which the generation ends; 0: none */
    const struct crash_work *work; /* of this generation */
};

/* Opens the disk as a store of its own, compares and throws everything away.  space_seed not 0:
 * settles everything as well, and looks at what is left of its space. */
void crash_check_disk_as(struct crash_model *model, struct crash_report *report, qs_env *mem,
                         qs_options options, uint64_t space_seed);
void crash_check_disk(struct crash_model *model, struct crash_report *report, qs_env *mem);
void crash_run(const struct crash_run_options *options, struct crash_report *report, uint64_t seed);

#endif
