/* Something is tried again and again, each time with the next of its allocations failing, until
 * none fails any more; of the calls of an environment: qs_test_faults.h.
 *
 *     for (struct qs_test_sweep sweep = {.has_own_memory = true}; qs_test_sweep_on(&sweep);) {
 *         qs_test_sweep_allocations(&sweep);
 *         status = what is tried;
 *         qs_test_sweep_rest(&sweep);
 *         QS_CHECK(status == (sweep.has_failed ? QS_ENOMEM : QS_OK));
 *     }
 */
#ifndef QS_TEST_SWEEP_H
#define QS_TEST_SWEEP_H

#include "qstore/env.h"

#include "qs_test_alloc.h"

#define QS_TEST_SWEEP_MAX 10000 /* a sweep that does not come to an end is a failure */

struct qs_test_sweep {
    /* allocations: of a memory that is in use already, or of own, from the first try to the last */
    struct qs_test_alloc *memory;
    bool has_own_memory;
    /* calls: enum qsi_fault_kind and how */
    int kind, how;
    bool is_sticky;  /* all behind the one that fails do, too */
    uint64_t fewest; /* as many fail at least, one if 0 */
    uint64_t thins;  /* the later, the fewer: the n-th is followed by the one n / thins behind it */
    uint64_t n;      /* the one that fails */
    bool has_failed; /* it did */
    struct qs_test_alloc own;
    const char *running;                       /* the test */
    char name[160];                            /* and which one fails */
    uint64_t alive;                            /* allocations, before a try */
    qs_env *mem, *env;                         /* made for a try */
    qs_env *faulty;                            /* whose calls fail */
    void (*rest)(struct qs_test_sweep *sweep); /* where calls fail: none does */
    void (*end)(struct qs_test_sweep *sweep);  /* of a try with an environment */
};

/* Whether there is another try: all of the last one has been given back. */
static inline bool qs_test_sweep_on(struct qs_test_sweep *sweep)
{
    if (sweep->end != NULL) {
        sweep->end(sweep);
    }
    if (sweep->n == 0) {
        sweep->running = qs_test_running;
        if (sweep->has_own_memory) {
            sweep->memory = &sweep->own;
            qs_test_alloc_install(sweep->memory);
        }
    }
    QS_CHECK(sweep->n == 0 || sweep->memory == NULL || sweep->memory->alive == sweep->alive);
    if (sweep->n > 0 && !sweep->has_failed) {
        QS_CHECK(sweep->n > 1 && sweep->n > sweep->fewest);
        if (sweep->has_own_memory) {
            qs_test_alloc_end(sweep->memory);
        }
        qs_test_running = sweep->running;
        return false;
    }
    sweep->alive = sweep->memory != NULL ? sweep->memory->alive : 0;
    sweep->has_failed = false;
    sweep->n += 1 + (sweep->thins != 0 ? sweep->n / sweep->thins : 0);
    QS_CHECK(sweep->n < QS_TEST_SWEEP_MAX);
    snprintf(sweep->name, sizeof sweep->name, "%s, number %" PRIu64, sweep->running, sweep->n);
    qs_test_running = sweep->name;
    return true;
}

/* From here on the n-th allocation fails, */
static inline void qs_test_sweep_allocations(struct qs_test_sweep *sweep)
{
    qs_test_alloc_arm(sweep->memory, sweep->n, sweep->is_sticky);
}

/* and from here on none.  A try may have more than one such stretch. */
static inline void qs_test_sweep_rest(struct qs_test_sweep *sweep)
{
    if (sweep->rest != NULL) {
        sweep->rest(sweep);
    } else {
        sweep->has_failed |= sweep->memory->has_failed;
        qs_test_alloc_arm(sweep->memory, 0, false);
    }
}

#endif
