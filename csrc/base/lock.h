/* Mutexes and condition variables: pthreads with errors asserted and waits on the monotonic
 * clock. */
#ifndef QSI_LOCK_H
#define QSI_LOCK_H

#include "qstore/status.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define QSI_WAIT_FOREVER UINT64_MAX
struct qsi_mutex {
    pthread_mutex_t mutex;
};
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

/* REQUIRES mutex held.  timeout_ns from now, or QSI_WAIT_FOREVER; false when it ran out.  May wake
 * early. */
bool qsi_cond_wait(struct qsi_cond *cond, struct qsi_mutex *mutex, uint64_t timeout_ns);

/* Starts a thread with all signals blocked and the given name (15 characters at most). */
qs_status qsi_thread_start(pthread_t *thread_out, const char *name, void *(*run)(void *),
                           void *argument, qs_error *error) QS_MUST_CHECK;

#endif
