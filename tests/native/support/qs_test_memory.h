/* One counted memory for all tests of a program, which give all of it back in the end. */
#ifndef QS_TEST_MEMORY_H
#define QS_TEST_MEMORY_H

#include "qs_test_alloc.h"

static struct qs_test_alloc memory;

static void qs_test_memory_end(void)
{
    qs_test_alloc_end(&memory);
}

__attribute__((constructor)) static void qs_test_memory_begin(void)
{
    qs_test_alloc_install(&memory);
    qs_test_at_end = qs_test_memory_end;
}

#endif
