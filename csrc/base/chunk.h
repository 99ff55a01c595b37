/* A counted, immutable-once-written piece of memory.  Records are encoded into a chunk, the journal
 * writes it from there and the queues deliver from there: bodies are copied once.  Bytes below
 * `used` never change, so readers need no lock; the writer that appends behind `used` holds the
 * lock of whoever owns the open chunk. */
#ifndef QSI_CHUNK_H
#define QSI_CHUNK_H

#include "qstore/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qsi_budget;

struct qsi_chunk {
    uint32_t refs;             /* touched with atomics only */
    struct qsi_budget *budget; /* that counts it; NULL: none does.  Of a shared one with atomics */
    bool is_marked;            /* its owner's note, under the owner's lock */
    bool is_reusable;          /* its memory may wait for the next chunk of its budget */
    size_t capacity;
    size_t used;
    uint64_t charged; /* bytes that the budget counts; touched with atomics only */
    uint8_t data[];
};

/* One reference for the caller; NULL when out of memory. */
struct qsi_chunk *qsi_chunk_create(size_t capacity);
/* A chunk for what comes and goes again and again, and is large: memory that the kernel has to make
 * takes ten times as long to read into as memory that was used before.  So two of them wait in the
 * budget that they were charged to; what waits is not counted, as what the allocator keeps is not.
 * budget: NULL is fine.  To be charged to the same budget. */
struct qsi_chunk *qsi_chunk_create_reusable(struct qsi_budget *budget, size_t capacity);
/* Has the kernel make all the pages of a new chunk at once, for who writes the whole of it next:
 * a fault for each costs more than the copy. */
void qsi_chunk_populate(struct qsi_chunk *chunk);
struct qsi_chunk *qsi_chunk_ref(struct qsi_chunk *chunk);
void qsi_chunk_unref(struct qsi_chunk *chunk); /* NULL is fine */
/* Counts the chunk in budget until it is freed.  Once, and before others can reach it. */
void qsi_chunk_charge(struct qsi_chunk *chunk, struct qsi_budget *budget);
/* Its owner appends no more: what is not used is neither counted by the budget, which is the one
 * that it was charged to, nor, as far as pages go, in memory.  Of a small rest nothing changes. */
void qsi_chunk_end(struct qsi_chunk *chunk, struct qsi_budget *budget);
/* Nobody counts it any more: it was given to somebody whose memory it is from now on.  Any number
 * of holders may say so at once. */
void qsi_chunk_uncharge(struct qsi_chunk *chunk);

#endif
