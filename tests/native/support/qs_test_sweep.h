/* Something is tried again and again, each time with the next of its calls of an environment, or
 * of its allocations, failing, until none fails any more:
 *
 *     for (struct qs_test_sweep sweep = {.how = how}; qs_test_sweep_on(&sweep);) {
 *         qs_env *env = qs_test_sweep_env(&sweep);
 *
 *         qs_test_sweep_calls(&sweep, env);
 *         status = what is tried;
 *         qs_test_sweep_rest(&sweep);
 *         QS_CHECK(sweep.has_failed || status == QS_OK);
 *     }
 */
#ifndef QS_TEST_SWEEP_H
#define QS_TEST_SWEEP_H

#include "qs_test_alloc.h"
#include "qs_test_faults.h"

#define QS_TEST_SWEEP_MAX 10000 /* a sweep that does not come to an end is a failure */

struct qs_test_sweep {
    /* which calls, and in which way */
    enum qsi_fault_kind kind;
    enum qsi_fault_how how;
    bool is_sticky;
    /* allocations: of a memory that is in use already, or of own, from the first try to the last */
    struct qs_test_alloc *memory;
    bool has_own_memory;
    uint64_t fewest; /* as many fail at least, one if 0 */
    uint64_t thins;  /* the later, the fewer: the n-th is followed by the one n / thins behind it */
    uint64_t n;      /* the call, or the allocation, that fails */
    bool has_failed; /* it did */
    struct qs_test_alloc own;
    uint64_t alive;    /* allocations, before a try */
    qs_env *mem, *env; /* of a try, which end with it */
    qs_env *armed;
};

static inline void qs_test_sweep_end_try(struct qs_test_sweep *sweep)
{
    qsi_env_fault_destroy(sweep->env);
    qsi_env_mem_destroy(sweep->mem);
    sweep->mem = sweep->env = NULL;
    QS_CHECK(sweep->memory == NULL || sweep->memory->alive == sweep->alive);
}

/* Whether there is another try: all of the last one has been given back. */
static inline bool qs_test_sweep_on(struct qs_test_sweep *sweep)
{
    if (sweep->n > 0) {
        qs_test_sweep_end_try(sweep);
    } else if (sweep->has_own_memory) {
        sweep->memory = &sweep->own;
        qs_test_alloc_install(sweep->memory);
    }
    if (sweep->n > 0 && !sweep->has_failed) {
        QS_CHECK(sweep->n > 1 && sweep->n > sweep->fewest);
        if (sweep->has_own_memory) {
            qs_test_alloc_end(sweep->memory);
        }
        return false;
    }
    sweep->alive = sweep->memory != NULL ? sweep->memory->alive : 0;
    sweep->has_failed = false;
    sweep->n += 1 + (sweep->thins != 0 ? sweep->n / sweep->thins : 0);
    QS_CHECK(sweep->n < QS_TEST_SWEEP_MAX);
    return true;
}

/* An environment for this try whose calls may fail, around a new one in memory. */
static inline qs_env *qs_test_sweep_env(struct qs_test_sweep *sweep)
{
    sweep->mem = qsi_env_mem_create(sweep->n);
    sweep->env = qsi_env_fault_create(sweep->mem);
    return sweep->env;
}

/* From here on the n-th call of the environment fails, */
static inline void qs_test_sweep_calls(struct qs_test_sweep *sweep, qs_env *faulty)
{
    sweep->armed = faulty;
    qsi_env_fault_arm(faulty, sweep->kind, sweep->how, sweep->n, sweep->is_sticky);
}

/* or the n-th allocation, */
static inline void qs_test_sweep_allocations(struct qs_test_sweep *sweep)
{
    qs_test_alloc_arm(sweep->memory, sweep->n, sweep->is_sticky);
}

/* and from here on none.  A try may have more than one such stretch. */
static inline void qs_test_sweep_rest(struct qs_test_sweep *sweep)
{
    if (sweep->memory != NULL) {
        sweep->has_failed |= sweep->memory->has_failed;
        qs_test_alloc_arm(sweep->memory, 0, false);
    } else {
        sweep->has_failed |= qsi_env_fault_fired(sweep->armed);
        qsi_env_fault_arm(sweep->armed, sweep->kind, sweep->how, 0, false);
    }
}

#endif
