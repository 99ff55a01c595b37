/* Memory from the replaceable allocator.  The caller reports QS_ENOMEM. */
#ifndef QSI_ALLOC_H
#define QSI_ALLOC_H

#include "qstore/alloc.h"

#include <stddef.h>
#include <stdint.h>

/* The average overhead of an allocation in the C library's allocator. */
#define QSI_ALLOCATION_BYTES 16u

void *qsi_alloc(size_t bytes);                 /* uninitialised; NULL when out of memory */
void *qsi_zalloc(size_t bytes);                /* zeroed */
void *qsi_realloc(void *memory, size_t bytes); /* memory may be NULL */
void qsi_free(void *memory);                   /* NULL is fine */

/* Doubles the array items of *capacity_io elements, or creates it with first elements; items may be
 * NULL then.  Returns the array; NULL: out of memory, and the array is unchanged. */
void *qsi_grow(void *items, uint32_t *capacity_io, uint32_t first, size_t item_bytes);

#endif
