/* A count of bytes in memory, shared by everything that is to stay within one limit.  It
 * outlives its owner while something counted is held: a message that a consumer keeps may be
 * released after its store was closed. */
#ifndef QSI_BUDGET_H
#define QSI_BUDGET_H

#include <stdint.h>

#define QSI_BUDGET_SPARES 2u

struct qsi_chunk;

struct qsi_budget {
    uint64_t bytes; /* touched with atomics only */
    uint32_t refs;
    uint32_t is_closed;                          /* touched with atomics only */
    struct qsi_chunk *spares[QSI_BUDGET_SPARES]; /* touched with atomics only; see chunk.h */
};

/* One reference for the caller; NULL when out of memory. */
struct qsi_budget *qsi_budget_create(void);
struct qsi_budget *qsi_budget_ref(struct qsi_budget *budget);
void qsi_budget_unref(struct qsi_budget *budget); /* NULL is fine */
/* Its owner needs it no more, and gives its reference up: no chunk waits for its next use from now
 * on, even if something that is counted outlives the owner for long. */
void qsi_budget_close(struct qsi_budget *budget); /* NULL is fine */
/* Frees the chunks that wait for their next use. */
void qsi_budget_drop_spares(struct qsi_budget *budget);

static inline uint64_t qsi_budget_bytes(const struct qsi_budget *budget)
{
    return __atomic_load_n(&budget->bytes, __ATOMIC_RELAXED);
}
/* NULL is fine: not counted. */
static inline void qsi_budget_add(struct qsi_budget *budget, uint64_t bytes)
{
    if (budget != 0) {
        __atomic_fetch_add(&budget->bytes, bytes, __ATOMIC_RELAXED);
    }
}
static inline void qsi_budget_sub(struct qsi_budget *budget, uint64_t bytes)
{
    if (budget != 0) {
        __atomic_fetch_sub(&budget->bytes, bytes, __ATOMIC_RELAXED);
    }
}

#endif
