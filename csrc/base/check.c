/* Aborts after a broken invariant: continuing could write wrong bytes to disk. */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void qsi_assert_failed(const char *file, int line, const char *condition)
{
    fprintf(stderr, "qstore: %s:%d: assertion failed: %s\n", file, line, condition);
    abort();
}
