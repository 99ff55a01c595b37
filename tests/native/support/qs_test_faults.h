/* A test for each way in which a call may fail. */
#ifndef QS_TEST_FAULTS_H
#define QS_TEST_FAULTS_H

#include "env_test.h"
#include "qs_test.h"

static inline void qs_test_each_fault(void (*test)(enum qsi_fault_how how))
{
    test(QSI_FAULT_EIO);
    test(QSI_FAULT_ENOSPC);
    test(QSI_FAULT_SHORT_EIO);
    test(QSI_FAULT_SHORT);
    test(QSI_FAULT_EINTR);
    test(QSI_FAULT_SYNC_LOST);
}
#define QS_FAULT_TEST(name) QS_TEST_BY(qs_test_each_fault, name, (enum qsi_fault_how how))

#endif
