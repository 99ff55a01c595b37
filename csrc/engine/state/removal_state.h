/* The removal list, and the timer that drains it. */
#ifndef QSI_REMOVAL_STATE_H
#define QSI_REMOVAL_STATE_H

#include "buf.h"
#include "list.h"
#include "lock.h"
#include "thread_safety.h"

#include <pthread.h>

struct qs_channel;

#define GUARDED QSI_GUARDED_BY(qsi_store_mutex)
/* Messages that leave queues without a consumer: removals.h. */
struct qsi_removals {
    /* they are unacked there; not among the store's channels */
    struct qs_channel *internal_channel GUARDED;
    struct qsi_buf leaving GUARDED; /* struct qsi_removal: removed first */
    /* the messages before it have left; changed only by the thread that drains */
    size_t leaving_at GUARDED;
    struct qsi_buf fresh GUARDED;     /* the same: what came since */
    struct qsi_buf stuck GUARDED;     /* the same: what could not leave, to be tried again */
    uint64_t tried_at_us GUARDED;     /* when it was tried last */
    struct qsi_list trimming GUARDED; /* queues with too many messages */
    struct qsi_list timed GUARDED;    /* queues that the timer looks after */
    bool is_busy GUARDED;             /* a thread drains the removal list */
    struct qsi_cond due;              /* for the timer */
    struct qsi_cond quiet;            /* no thread drains the removal list any more */
    uint64_t wakes_at_us GUARDED;     /* when the timer comes next */
    uint64_t retain_at_us GUARDED;    /* when streams are to be looked at again */
    bool is_woken GUARDED;            /* since the timer looked, something is due earlier */
    pthread_t thread;                 /* the timer's */
    bool has_timer GUARDED;
};
#undef GUARDED

#endif
