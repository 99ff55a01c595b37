/* Each call of an operation fails in turn, in every way. */
#ifndef FAILING_CALLS_H
#define FAILING_CALLS_H

#include "env_test.h"

#include <stddef.h>

/* fail_one tells whether the n-th call failed, and one in step is tried; returns how many there
 * were. */
static inline uint64_t fail_each_call(bool (*fail_one)(uint64_t seed, uint64_t n,
                                                       enum qsi_fault_how how),
                                      uint64_t seed, uint64_t step)
{
    static const enum qsi_fault_how hows[] = {QSI_FAULT_EIO, QSI_FAULT_ENOSPC, QSI_FAULT_SHORT_EIO,
                                              QSI_FAULT_SYNC_LOST};
    uint64_t count = 0;

    for (size_t i = 0; i < sizeof hows / sizeof hows[0]; i++) {
        uint64_t n = 1;
        while (fail_one(seed, n, hows[i])) {
            n += step;
        }
        count += n - 1;
    }
    return count;
}

#endif
