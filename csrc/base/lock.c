/* Mutexes, condition variables and threads over pthreads.
 *
 * These calls fail only if the caller broke a rule (a mutex not held, memory overwritten), so
 * errors are assertions; only starting a thread may fail. */
#define _GNU_SOURCE 1 /* pthread_setname_np */
#include "lock.h"

#include "check.h"
#include "error.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

#define NS_PER_SECOND 1000000000u
#define THREAD_NAME_BYTES 16 /* the kernel's, with the NUL */

#if QSI_CHECKS_LOCKS
static _Thread_local const char self; /* each thread has its own, at a different address */

bool qsi_mutex_is_held(const struct qsi_mutex *mutex)
{
    return __atomic_load_n(&mutex->owner, __ATOMIC_RELAXED) == &self;
}

static void set_owner(struct qsi_mutex *mutex, const void *owner)
{
    __atomic_store_n(&mutex->owner, owner, __ATOMIC_RELAXED);
}

static void record_locked(struct qsi_mutex *mutex)
{
    set_owner(mutex, &self);
}

static void record_unlocked(struct qsi_mutex *mutex)
{
    set_owner(mutex, NULL);
}
#else
static inline void record_locked(struct qsi_mutex *mutex)
{
    (void)mutex;
}

static inline void record_unlocked(struct qsi_mutex *mutex)
{
    (void)mutex;
}
#endif

void qsi_mutex_init(struct qsi_mutex *mutex)
{
    QS_ASSERT(pthread_mutex_init(&mutex->mutex, NULL) == 0);
    record_unlocked(mutex);
}

void qsi_mutex_fini(struct qsi_mutex *mutex)
{
    QS_ASSERT_NOT_HELD(mutex);
    QS_ASSERT(pthread_mutex_destroy(&mutex->mutex) == 0);
}

void qsi_mutex_lock(struct qsi_mutex *mutex)
{
    QS_ASSERT_NOT_HELD(mutex); /* the thread would wait for itself forever */
    QS_ASSERT(pthread_mutex_lock(&mutex->mutex) == 0);
    record_locked(mutex);
}

void qsi_mutex_unlock(struct qsi_mutex *mutex)
{
    QS_ASSERT_HELD(mutex);
    record_unlocked(mutex);
    QS_ASSERT(pthread_mutex_unlock(&mutex->mutex) == 0);
}

/* macOS has no such attribute: see wait_for. */
static void set_clock(pthread_condattr_t *attributes)
{
#ifdef __APPLE__
    (void)attributes;
#else
    QS_ASSERT(pthread_condattr_setclock(attributes, CLOCK_MONOTONIC) == 0);
#endif
}

void qsi_cond_init(struct qsi_cond *cond)
{
    pthread_condattr_t attributes;

    QS_ASSERT(pthread_condattr_init(&attributes) == 0);
    set_clock(&attributes);
    QS_ASSERT(pthread_cond_init(&cond->cond, &attributes) == 0);
    QS_ASSERT(pthread_condattr_destroy(&attributes) == 0);
}

void qsi_cond_fini(struct qsi_cond *cond)
{
    QS_ASSERT(pthread_cond_destroy(&cond->cond) == 0);
}

void qsi_cond_signal(struct qsi_cond *cond)
{
    QS_ASSERT(pthread_cond_signal(&cond->cond) == 0);
}

void qsi_cond_broadcast(struct qsi_cond *cond)
{
    QS_ASSERT(pthread_cond_broadcast(&cond->cond) == 0);
}

/* macOS waits for a duration, other systems until a time; neither depends on a clock that can be
 * set. */
static int wait_for(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t timeout_ns)
{
#ifdef __APPLE__
    struct timespec time = {.tv_sec = (time_t)(timeout_ns / NS_PER_SECOND),
                            .tv_nsec = (long)(timeout_ns % NS_PER_SECOND)};

    return pthread_cond_timedwait_relative_np(cond, mutex, &time);
#else
    struct timespec time;
    uint64_t ns;

    QS_ASSERT(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    ns = (uint64_t)time.tv_nsec + timeout_ns % NS_PER_SECOND;
    time.tv_sec += (time_t)(timeout_ns / NS_PER_SECOND + ns / NS_PER_SECOND);
    time.tv_nsec = (long)(ns % NS_PER_SECOND);
    return pthread_cond_timedwait(cond, mutex, &time);
#endif
}

bool qsi_cond_wait(struct qsi_cond *cond, struct qsi_mutex *mutex, uint64_t timeout_ns)
{
    int result;

    QS_ASSERT_HELD(mutex);
    record_unlocked(mutex);
    if (timeout_ns == QSI_WAIT_FOREVER) {
        result = pthread_cond_wait(&cond->cond, &mutex->mutex);
        QS_ASSERT(result == 0);
    } else {
        result = wait_for(&cond->cond, &mutex->mutex, timeout_ns);
        QS_ASSERT(result == 0 || result == ETIMEDOUT);
    }
    record_locked(mutex);
    return result == 0;
}

/* For debuggers only, so a failure is harmless.  On macOS a thread can name only itself. */
static void set_name(pthread_t thread, const char *name)
{
#ifdef __APPLE__
    (void)thread;
    (void)name;
#else
    char short_name[THREAD_NAME_BYTES];

    snprintf(short_name, sizeof short_name, "%s", name);
    pthread_setname_np(thread, short_name);
#endif
}

qs_status qsi_thread_start(pthread_t *thread_out, const char *name, void *(*run)(void *),
                           void *argument, qs_error *error)
{
    sigset_t all;
    sigset_t before;
    int result;

    /* A new thread inherits the mask: handlers of the host never run on a thread of the library. */
    sigfillset(&all);
    QS_ASSERT(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    result = pthread_create(thread_out, NULL, run, argument);
    QS_ASSERT(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    if (result != 0) {
        return qsi_fail_errno(error, QS_ENOMEM, result, "start thread '%s'", name);
    }
    set_name(*thread_out, name);
    return QS_OK;
}
