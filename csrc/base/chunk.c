/* Counted memory.
 *
 * Invariant: refs is above 0 while any thread can reach the chunk.  Dropping a reference releases
 * the holder's reads and writes; the last drop acquires those of all others before it frees. */
#include "chunk.h"

#include "alloc.h"
#include "budget.h"
#include "check.h"

#include <sys/mman.h>

#define POPULATE_BYTES_MIN (256u << 10) /* smaller memory has usually been used before */
#define REUSED_BYTES_MIN (256u << 10)
#define REUSED_BYTES_MAX (4u << 20)
#define PAGE_BYTES 4096u           /* if pages are larger, the kernel refuses, which is fine */
#define PAGE_BYTES_MAX (64u << 10) /* the largest of all kernels */
#define REST_BYTES_MIN (16u << 10)

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
    chunk->is_reusable = false;
    chunk->capacity = capacity;
    chunk->used = 0;
    chunk->charged = 0;
    return chunk;
}

static bool is_worth_keeping(size_t capacity)
{
    return capacity >= REUSED_BYTES_MIN && capacity <= REUSED_BYTES_MAX;
}

struct qsi_chunk *qsi_chunk_create_reusable(struct qsi_budget *budget, size_t capacity)
{
    struct qsi_chunk *chunk;

    for (uint32_t i = 0; budget != NULL && i < QSI_BUDGET_SPARES && is_worth_keeping(capacity);
         i++) {
        chunk = __atomic_exchange_n(&budget->spares[i], NULL, __ATOMIC_ACQ_REL);
        if (chunk != NULL && chunk->capacity >= capacity && chunk->capacity / 2 <= capacity) {
            return chunk;
        }
        qsi_free(chunk);
    }
    chunk = qsi_chunk_create(capacity);
    if (chunk != NULL) {
        chunk->is_reusable = is_worth_keeping(capacity);
        qsi_chunk_populate(chunk);
    }
    return chunk;
}

/* Keeps an unreferenced chunk for reuse.  False: it must be freed. */
static bool keep_spare(struct qsi_chunk *chunk)
{
#ifdef __SANITIZE_ADDRESS__ /* the sanitizer finds uses of freed memory */
    (void)chunk;
    return false;
#else
    struct qsi_budget *budget = __atomic_load_n(&chunk->budget, __ATOMIC_RELAXED);
    struct qsi_chunk *none = NULL;
    bool is_kept = false;

    if (!chunk->is_reusable || budget == NULL) {
        return false;
    }
    qsi_budget_ref(budget);
    qsi_chunk_uncharge(chunk);
    chunk->refs = 1;
    chunk->is_marked = false;
    chunk->used = 0;
    for (uint32_t i = 0; i < QSI_BUDGET_SPARES && !is_kept; i++, none = NULL) {
        is_kept = __atomic_compare_exchange_n(&budget->spares[i], &none, chunk, false,
                                              __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
    }
    if (__atomic_load_n(&budget->is_closed, __ATOMIC_SEQ_CST) != 0) { /* close may have missed it */
        qsi_budget_drop_spares(budget);
    }
    qsi_budget_unref(budget); /* the last reference frees the kept chunks */
    return is_kept;
#endif
}

void qsi_chunk_populate(struct qsi_chunk *chunk)
{
    QS_DCHECK(chunk->refs == 1);
#ifdef MADV_POPULATE_WRITE
    uintptr_t begin = ((uintptr_t)chunk->data + PAGE_BYTES - 1) & ~(uintptr_t)(PAGE_BYTES - 1);
    uintptr_t end = ((uintptr_t)chunk->data + chunk->capacity) & ~(uintptr_t)(PAGE_BYTES - 1);

    if (chunk->capacity >= POPULATE_BYTES_MIN) {
        /* On failure the pages fault in one by one. */
        (void)madvise((void *)begin, end - begin, MADV_POPULATE_WRITE);
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
    if (budget != NULL) { /* no other thread was faster */
        qsi_budget_sub(budget, __atomic_exchange_n(&chunk->charged, 0, __ATOMIC_RELAXED));
        qsi_budget_unref(budget);
    }
}

/* Frees whole pages of any size: the kernel rounds up, and memory after the end belongs to
 * other owners. */
static void give_back(uint8_t *from, uint8_t *to)
{
    uintptr_t begin = ((uintptr_t)from + PAGE_BYTES_MAX - 1) & ~(uintptr_t)(PAGE_BYTES_MAX - 1);
    uintptr_t end = (uintptr_t)to & ~(uintptr_t)(PAGE_BYTES_MAX - 1);

    if (begin < end) {
        (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
    }
}

void qsi_chunk_end(struct qsi_chunk *chunk, struct qsi_budget *budget)
{
    uint64_t rest = chunk->capacity - chunk->used;
    uint64_t charged = __atomic_load_n(&chunk->charged, __ATOMIC_RELAXED);

    QS_DCHECK(chunk->used <= chunk->capacity);
    if (rest < REST_BYTES_MIN) {
        return;
    }
    while (charged > rest) { /* otherwise a holder is uncharging it */
        if (__atomic_compare_exchange_n(&chunk->charged, &charged, charged - rest, false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            qsi_budget_sub(budget, rest);
            break;
        }
    }
    give_back(chunk->data + chunk->used, chunk->data + chunk->capacity);
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
    if (before == 1 && !keep_spare(chunk)) {
        qsi_chunk_uncharge(chunk);
        qsi_free(chunk);
    }
}

void qsi_chunk_charge(struct qsi_chunk *chunk, struct qsi_budget *budget)
{
    QS_DCHECK(budget != NULL && chunk->refs > 0);
    QS_ASSERT(chunk->budget == NULL);
    chunk->budget = qsi_budget_ref(budget);
    chunk->charged = sizeof *chunk + chunk->capacity;
    qsi_budget_add(budget, chunk->charged);
}
