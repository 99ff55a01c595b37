/* Mutexes and condition variables: pthreads with errors asserted and waits on the monotonic clock.
 * In debug builds, and under a sanitizer, a mutex records the thread that holds it. */
#ifndef QSI_LOCK_H
#define QSI_LOCK_H

#include "qstore/status.h"

#include "check.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define QSI_WAIT_FOREVER UINT64_MAX

#if !defined(NDEBUG) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define QSI_CHECKS_LOCKS 1
#else
#define QSI_CHECKS_LOCKS 0
#endif

struct qsi_mutex {
    pthread_mutex_t mutex;
#if QSI_CHECKS_LOCKS
    const void *owner; /* an address in the thread's own memory; NULL: not held.  Atomic */
#endif
};

/* For functions that need the lock, and for those that take it or must not run under it.  They cost
 * nothing in release builds. */
#if QSI_CHECKS_LOCKS
bool qsi_mutex_is_held(const struct qsi_mutex *mutex); /* by this thread */
#define QS_ASSERT_HELD(mutex) QS_ASSERT(qsi_mutex_is_held(mutex))
#define QS_ASSERT_NOT_HELD(mutex) QS_ASSERT(!qsi_mutex_is_held(mutex))
#else
#define QS_ASSERT_HELD(mutex) ((void)0)
#define QS_ASSERT_NOT_HELD(mutex) ((void)0)
#endif

struct qsi_cond {
    pthread_cond_t cond;
};
void qsi_mutex_init(struct qsi_mutex *mutex);
void qsi_mutex_fini(struct qsi_mutex *mutex);
void qsi_mutex_lock(struct qsi_mutex *mutex);
void qsi_mutex_unlock(struct qsi_mutex *mutex);
void qsi_cond_init(struct qsi_cond *cond); /* CLOCK_MONOTONIC */
void qsi_cond_fini(struct qsi_cond *cond);
void qsi_cond_signal(struct qsi_cond *cond);
void qsi_cond_broadcast(struct qsi_cond *cond);

/* Waits for timeout_ns, or QSI_WAIT_FOREVER; false: the time is over.  May return early.  REQUIRES
 * the mutex. */
bool qsi_cond_wait(struct qsi_cond *cond, struct qsi_mutex *mutex, uint64_t timeout_ns);

/* Starts a thread with all signals blocked and the given name (at most 15 characters). */
qs_status qsi_thread_start(pthread_t *thread_out, const char *name, void *(*run)(void *),
                           void *argument, qs_error *error) QS_MUST_CHECK;

#endif
