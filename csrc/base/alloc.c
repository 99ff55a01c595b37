/* The replaceable allocator: the only mutable state of the library in a process.
 *
 * Invariant: the functions never get a request for 0 bytes, so NULL always means out of memory. */
#include "alloc.h"

#include <stdlib.h>
#include <string.h>

static void *libc_realloc(void *context, void *memory, size_t bytes)
{
    (void)context;
    return realloc(memory, bytes);
}

static void libc_free(void *context, void *memory)
{
    (void)context;
    free(memory);
}

static const qs_allocator libc_allocator = {.realloc = libc_realloc, .free = libc_free};
static qs_allocator allocator = {.realloc = libc_realloc, .free = libc_free};

void qs_allocator_set(const qs_allocator *replacement)
{
    allocator = replacement != NULL ? *replacement : libc_allocator;
}

void *qsi_realloc(void *memory, size_t bytes)
{
    return allocator.realloc(allocator.context, memory, bytes != 0 ? bytes : 1);
}

void *qsi_alloc(size_t bytes)
{
    return qsi_realloc(NULL, bytes);
}

void *qsi_zalloc(size_t bytes)
{
    void *memory = qsi_alloc(bytes);

    if (memory != NULL) {
        memset(memory, 0, bytes);
    }
    return memory;
}

void qsi_free(void *memory)
{
    if (memory != NULL) {
        allocator.free(allocator.context, memory);
    }
}

void *qsi_grow(void *items, uint32_t *capacity_io, uint32_t first, size_t item_bytes)
{
    uint32_t capacity = *capacity_io == 0 ? first : 2 * *capacity_io;
    void *grown = capacity > *capacity_io ? qsi_realloc(items, capacity * item_bytes) : NULL;

    if (grown != NULL) {
        *capacity_io = capacity;
    }
    return grown;
}
