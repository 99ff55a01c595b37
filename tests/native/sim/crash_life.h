/* Lives on one disk: what all runs of the crash suite have.
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
#ifndef CRASH_LIFE_H
#define CRASH_LIFE_H

#include "crash_env.h"
#include "crash_model.h"
#include "env_test.h"

struct crash_run_options {
    uint32_t generations; /* 1 at least */
    uint32_t ops;         /* of one generation, about */
    uint32_t cut_percent; /* of the steps at which cuts are taken */
    uint32_t random_cuts; /* at each such step, beside the two simple ones */
    uint32_t end_steps;   /* a generation that is cut off ends within so many steps; 0: none is */
    uint32_t end_syncs;   /* not 0: or at one of the first syncs of its work, mid-commit */
    uint32_t unread_percent; /* of the files that are to be written to cannot be read */
    bool has_faults;         /* one call of each generation fails, most often a sync */
    bool pages;              /* crash_paging_options, and work to go with it */
    uint32_t bug;            /* enum crash_bug; of streams enum log_bug */
};

struct crash_life {
    const struct crash_run_options *options;
    struct crash_report *report;
    uint64_t random;
    uint32_t generation;
    qs_env *sim;
    qs_env *fault;        /* around sim */
    struct crash_env env; /* around fault */
    uint64_t end_step;    /* the step at which the generation ends; 0: when its work is done */
    bool ends_in_power_cut;
    bool has_ended;
    qs_env *next_disk; /* after a power cut */
    void (*on_step)(void *run, uint64_t step);
    void *run; /* that this is the life of */
};

/* on_step is called before each step of the disk. */
void crash_life_init(struct crash_life *life, const struct crash_run_options *options,
                     struct crash_report *report, uint64_t seed, enum crash_bug bug,
                     void (*on_step)(void *run, uint64_t step), void *run);
void crash_life_fini(struct crash_life *life);
uint32_t crash_life_below(struct crash_life *life, uint32_t limit);

/* Whether cuts are to be taken at the step. */
bool crash_life_wants_cuts(struct crash_life *life);

/* Where the generation is cut off; most of the last ones do all of their work. */
void crash_life_choose_end(struct crash_life *life);

/* A failed sync loses what it was for, as it does on Linux: calls still see it, the disk never
 * will. */
void crash_life_arm_fault(struct crash_life *life, uint32_t ops);
void crash_life_end(struct crash_life *life, bool is_at_work);

/* The process is gone without a trace, and the disk is the one that the next begins with. */
void crash_life_next(struct crash_life *life);
qs_env *crash_life_cut(struct crash_life *life, enum qsi_cut_how how);

/* Opens the disk as a store of its own, has it compared and throws everything away. */
struct crash_looking {
    void (*check)(void *context, qs_store *store, qs_channel *channel, struct crash_env *env);
    void *context;
    bool closing_drops; /* what retention says: it is not closed in order first */
    uint64_t wall_shift_us;
};
void crash_open_disk(struct crash_report *report, qs_env *mem, const qs_options *options,
                     const struct crash_looking *looking);

/* ---- what the tests do with runs ---- */

typedef void crash_runner(const struct crash_run_options *options, struct crash_report *report,
                          uint64_t seed);

struct crash_kind {
    const char *name;
    uint32_t percent; /* of the states */
    struct crash_run_options options;
};

double crash_seconds(void);

/* The second argument, or so many: a sixteenth where QS_SWEEPS is "short" in the environment, a
 * twentieth where each state costs twenty times more. */
uint64_t crash_state_count(int argc, char **argv, uint64_t count);

/* Runs of each kind.  Arguments: seed, number of states, the one kind (from 0).  Returns what they
 * were in all, without violations. */
struct crash_report crash_run_kinds(int argc, char **argv, crash_runner *run,
                                    const struct crash_kind *kinds, size_t kind_count,
                                    uint64_t states);

/* Runs with each of the options in turn until one is violated, or there were so many states. */
struct crash_mix {
    crash_runner *run;
    const struct crash_run_options *options;
    size_t count;
};
void crash_must_be_caught(const struct crash_mix *mix, const char *name, uint32_t bug,
                          bool has_faults, uint64_t seed);

/* Without a bug: what is caught is the bug and not the harness. */
void crash_must_be_clean(const struct crash_mix *mix, bool has_faults, uint64_t seed,
                         uint64_t states);

#endif
