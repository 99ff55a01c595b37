/* Texts as slices, and properties that hold a delivery mode and nothing else. */
#ifndef QS_TEST_SLICES_H
#define QS_TEST_SLICES_H

#include "qstore/qstore.h"

#include <stdbool.h>
#include <string.h>

#define NONE ((qs_slice){NULL, 0})
#define PERSISTENT ((qs_slice){"\x10\0\2", 3})
#define TRANSIENT ((qs_slice){"\x10\0\1", 3})

static inline qs_slice text(const char *string)
{
    return (qs_slice){string, strlen(string)};
}

static inline bool holds(qs_slice slice, const char *string)
{
    return slice.bytes == strlen(string) &&
           (slice.bytes == 0 || memcmp(slice.data, string, slice.bytes) == 0);
}

#endif
