/* The ways in which an environment's n-th call fails in the sweeps. */
#ifndef CRASH_FAULTS_H
#define CRASH_FAULTS_H

#include "env_test.h"

struct crash_fault {
    const char *name;
    enum qsi_fault_how how;
    bool is_sticky;
    bool is_invisible; /* but for syncs, where an interruption is final */
};

static const struct crash_fault crash_faults[] = {
    {"input/output error", QSI_FAULT_EIO, false, false},
    {"no space", QSI_FAULT_ENOSPC, false, false},
    {"half written, then an error", QSI_FAULT_SHORT_EIO, false, false},
    {"half transferred", QSI_FAULT_SHORT, false, true},
    {"interrupted", QSI_FAULT_EINTR, false, true},
    {"sync lost", QSI_FAULT_SYNC_LOST, false, false},
    {"disk gone", QSI_FAULT_EIO, true, false},
    {"disk full for good", QSI_FAULT_ENOSPC, true, false},
    {"always half transferred", QSI_FAULT_SHORT, true, true},
};
#define CRASH_FAULT_COUNT (sizeof crash_faults / sizeof crash_faults[0])

#endif
