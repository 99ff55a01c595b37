/* Counted memory.
 *
 * Invariant: refs is above 0 while anyone can reach the chunk.  Dropping a reference releases the
 * holder's reads and writes; the last one acquires those of all the others before it frees. */
#include "chunk.h"

#include "alloc.h"
#include "budget.h"
#include "check.h"

#include <sys/mman.h>

#define POPULATE_BYTES_MIN (256u << 10) /* below that memory has been used before, mostly */
#define PAGE_BYTES 4096u                /* or more: then the kernel refuses, which is fine */

struct qsi_chunk *qsi_chunk_create(size_t capacity)
{
    struct qsi_chunk *chunk;

    if (capacity > SIZE_MAX - sizeof *chunk) {
        return NULL;
    }
    chunk = qsi_alloc(sizeof *chunk + capacity);
    if (chunk == NULL) {
        return NULL;
    }
    chunk->refs = 1;
    chunk->budget = NULL;
    chunk->is_marked = false;
    chunk->capacity = capacity;
    chunk->used = 0;
    return chunk;
}

void qsi_chunk_populate(struct qsi_chunk *chunk)
{
    QS_DCHECK(chunk->refs == 1);
#ifdef MADV_POPULATE_WRITE
    uintptr_t begin = ((uintptr_t)chunk->data + PAGE_BYTES - 1) & ~(uintptr_t)(PAGE_BYTES - 1);
    uintptr_t end = ((uintptr_t)chunk->data + chunk->capacity) & ~(uintptr_t)(PAGE_BYTES - 1);

    if (chunk->capacity >= POPULATE_BYTES_MIN) {
        (void)madvise((void *)begin, end - begin, MADV_POPULATE_WRITE); /* else they fault */
    }
#else
    (void)chunk;
#endif
}

struct qsi_chunk *qsi_chunk_ref(struct qsi_chunk *chunk)
{
    uint32_t before = __atomic_fetch_add(&chunk->refs, 1, __ATOMIC_RELAXED);

    QS_ASSERT(before > 0 && before < UINT32_MAX);
    return chunk;
}

void qsi_chunk_uncharge(struct qsi_chunk *chunk)
{
    struct qsi_budget *budget = __atomic_load_n(&chunk->budget, __ATOMIC_RELAXED);

    if (budget != NULL) {
        budget = __atomic_exchange_n(&chunk->budget, NULL, __ATOMIC_ACQ_REL);
    }
    if (budget != NULL) { /* nobody was quicker */
        qsi_budget_sub(budget, sizeof *chunk + chunk->capacity);
        qsi_budget_unref(budget);
    }
}

void qsi_chunk_unref(struct qsi_chunk *chunk)
{
    uint32_t before;

    if (chunk == NULL) {
        return;
    }
    before = __atomic_fetch_sub(&chunk->refs, 1, __ATOMIC_ACQ_REL);
    QS_ASSERT(before > 0);
    QS_DCHECK(before > 1 || chunk->used <= chunk->capacity);
    if (before == 1) {
        qsi_chunk_uncharge(chunk);
        qsi_free(chunk);
    }
}

void qsi_chunk_charge(struct qsi_chunk *chunk, struct qsi_budget *budget)
{
    QS_DCHECK(budget != NULL && chunk->refs > 0);
    QS_ASSERT(chunk->budget == NULL);
    chunk->budget = qsi_budget_ref(budget);
    qsi_budget_add(budget, sizeof *chunk + chunk->capacity);
}
