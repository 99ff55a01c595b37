/* The allocator of the whole library.  It may be replaced once, before the first other call; tests
 * do so to fail the n-th allocation. */
#ifndef QSTORE_ALLOC_H
#define QSTORE_ALLOC_H

#include "qstore/status.h"

#include <stddef.h>

typedef struct qs_allocator {
    void *(*realloc)(void *context, void *memory,
                     size_t bytes);            /* memory NULL: allocate; never bytes 0 */
    void (*free)(void *context, void *memory); /* memory may be NULL */
    void *context;
} qs_allocator;

/* qs_allocator_set - use this allocator from now on; NULL restores the C library's.
 * Threads: none may be inside the library. */
QS_API void qs_allocator_set(const qs_allocator *allocator);

#endif
