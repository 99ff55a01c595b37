/* A test for each way in which a call may fail, and sweeps of calls:
 *
 *     for (struct qs_test_sweep sweep = {.how = how}; qs_test_sweep_on(&sweep);) {
 *         qs_env *env = qs_test_sweep_env(&sweep);
 *
 *         qs_test_sweep_calls(&sweep, env);
 *         status = what is tried;
 *         qs_test_sweep_rest(&sweep);
 *         QS_CHECK(sweep.has_failed || status == QS_OK);
 *     }
 */
#ifndef QS_TEST_FAULTS_H
#define QS_TEST_FAULTS_H

#include "env_test.h"
#include "qs_test.h"
#include "qs_test_sweep.h"

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

static inline void qs_test_sweep_end_envs(struct qs_test_sweep *sweep)
{
    qsi_env_fault_destroy(sweep->env);
    qsi_env_mem_destroy(sweep->mem);
    sweep->mem = sweep->env = NULL;
}

/* An environment for this try whose calls may fail, around a new one in memory. */
static inline qs_env *qs_test_sweep_env(struct qs_test_sweep *sweep)
{
    sweep->mem = qsi_env_mem_create(sweep->n);
    sweep->env = qsi_env_fault_create(sweep->mem);
    sweep->end = qs_test_sweep_end_envs;
    return sweep->env;
}

static inline void qs_test_sweep_rest_calls(struct qs_test_sweep *sweep)
{
    sweep->has_failed |= qsi_env_fault_fired(sweep->faulty);
    qsi_env_fault_arm(sweep->faulty, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
}

/* From here on the n-th call of the environment fails. */
static inline void qs_test_sweep_calls(struct qs_test_sweep *sweep, qs_env *faulty)
{
    sweep->faulty = faulty;
    sweep->rest = qs_test_sweep_rest_calls;
    qsi_env_fault_arm(faulty, (enum qsi_fault_kind)sweep->kind, (enum qsi_fault_how)sweep->how,
                      sweep->n, sweep->is_sticky);
}

#endif
