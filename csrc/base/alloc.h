/* Memory from the replaceable allocator.  QS_ENOMEM is the caller's to raise. */
#ifndef QSI_ALLOC_H
#define QSI_ALLOC_H

#include "qstore/alloc.h"

#include <stddef.h>
#include <stdint.h>

/* What the C library's allocator takes for each allocation beside its bytes, on average. */
#define QSI_ALLOCATION_BYTES 16u

void *qsi_alloc(size_t bytes);                 /* uninitialised; NULL when out of memory */
void *qsi_zalloc(size_t bytes);                /* zeroed */
void *qsi_realloc(void *memory, size_t bytes); /* memory may be NULL */
void qsi_free(void *memory);                   /* NULL is fine */

/* Makes an array of *capacity_io items twice as long, or begins it with first items; items may be
 * NULL then.  Returns the array; NULL: out of memory, and the array is as it was. */
void *qsi_grow(void *items, uint32_t *capacity_io, uint32_t first, size_t item_bytes);

#endif
