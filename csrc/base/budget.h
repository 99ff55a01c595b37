/* A count of bytes in memory, shared by all users of one limit.  It exists as long as counted
 * memory does, possibly longer than its owner: a consumer may release a message after its store was
 * closed. */
#ifndef QSI_BUDGET_H
#define QSI_BUDGET_H

#include <stdint.h>

#define QSI_BUDGET_SPARES 2u

struct qsi_chunk;

struct qsi_budget {
    uint64_t bytes; /* accessed only with atomics */
    uint32_t refs;
    uint32_t is_closed;                          /* accessed only with atomics */
    struct qsi_chunk *spares[QSI_BUDGET_SPARES]; /* accessed only with atomics; see chunk.h */
};

/* Returns a budget with one reference for the caller; NULL: out of memory. */
struct qsi_budget *qsi_budget_create(void);
struct qsi_budget *qsi_budget_ref(struct qsi_budget *budget);
void qsi_budget_unref(struct qsi_budget *budget); /* NULL is fine */
/* Ends the owner's use and drops its reference: from now on no chunk is kept for reuse, even if
 * counted memory exists much longer. */
void qsi_budget_close(struct qsi_budget *budget); /* NULL is fine */
/* Frees the chunks that are kept for reuse. */
void qsi_budget_drop_spares(struct qsi_budget *budget);

static inline uint64_t qsi_budget_bytes(const struct qsi_budget *budget)
{
    return __atomic_load_n(&budget->bytes, __ATOMIC_RELAXED);
}
/* NULL is fine: the bytes are not counted. */
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
