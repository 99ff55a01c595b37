/* A counted piece of memory, immutable once written.  Records are encoded into a chunk, the journal
 * writes them from it and queues deliver from it, so bodies are copied once.  Bytes below `used`
 * never change, so readers need no lock.  The thread that appends after `used` holds the lock of
 * the owner of the open chunk. */
#ifndef QSI_CHUNK_H
#define QSI_CHUNK_H

#include "qstore/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qsi_budget;

struct qsi_chunk {
    uint32_t refs; /* accessed only with atomics */
    /* The budget that counts it; NULL: none; with atomics for a shared chunk. */
    struct qsi_budget *budget;
    bool is_marked;   /* for the owner, under the owner's lock */
    bool is_reusable; /* its memory may be kept for the next chunk of its budget */
    size_t capacity;
    size_t used;
    uint64_t charged; /* bytes that the budget counts; accessed only with atomics */
    uint8_t data[];
};

/* Returns a chunk with one reference for the caller; NULL: out of memory. */
struct qsi_chunk *qsi_chunk_create(size_t capacity);
/* Creates a chunk for repeated, large use: reading into memory that the kernel must allocate first
 * takes ten times as long as reading into used memory.  So the budget to which such chunks are
 * charged keeps up to two of them for reuse.  Kept chunks are not counted, like memory that the
 * allocator keeps.  budget: must be the one to which the chunk is charged; NULL is fine. */
struct qsi_chunk *qsi_chunk_create_reusable(struct qsi_budget *budget, size_t capacity);
/* Allocates all pages of a new chunk at once, for a caller that is about to fill it: a page fault
 * for each costs more than the copy. */
void qsi_chunk_populate(struct qsi_chunk *chunk);
struct qsi_chunk *qsi_chunk_ref(struct qsi_chunk *chunk);
void qsi_chunk_unref(struct qsi_chunk *chunk); /* NULL is fine */
/* Charges the chunk to budget until it is freed.  Call it once, before other threads can reach the
 * chunk. */
void qsi_chunk_charge(struct qsi_chunk *chunk, struct qsi_budget *budget);
/* Ends appending.  The unused rest is not counted by budget any more, which must be the one to
 * which the chunk was charged, and its whole pages are freed.  A small rest stays. */
void qsi_chunk_end(struct qsi_chunk *chunk, struct qsi_budget *budget);
/* Ends counting: the chunk belongs to another owner's memory from now on.  Any number of threads
 * may call it at the same time. */
void qsi_chunk_uncharge(struct qsi_chunk *chunk);

#endif
