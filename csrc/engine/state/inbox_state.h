/* A store's inbox, and its thread. */
#ifndef QSI_INBOX_STATE_H
#define QSI_INBOX_STATE_H

#include "qstore/adopt.h"
#include "qstore/env.h"

#include "buf.h"
#include "thread_safety.h"

#include <pthread.h>

struct qsi_inbox_name {
    char text[64];
};

enum qsi_inbox_known_as {
    QSI_INBOX_NOT_KNOWN,
    QSI_INBOX_IS_ANSWER,  /* which is all it ever is */
    QSI_INBOX_FAILS,      /* it cannot be read, or begun with, or refused, for now */
    QSI_INBOX_UNANSWERED, /* it was adopted, and its answer cannot be written, for now */
};

/* The result of a look at a name, for the next one. */
struct qsi_inbox_known {
    struct qsi_inbox_name name;
    enum qsi_inbox_known_as as;
    uint32_t tries;       /* that failed, one behind the other */
    uint64_t due_ns;      /* by the monotonic clock: when to try again */
    bool wakes;           /* the thread, then */
    qs_adoption adoption; /* of one that is unanswered */
};

struct qsi_inbox {
    qs_dir *dir;          /* NULL: there is none */
    int watch_fd;         /* -1: the thread looks now and then */
    int event_fd;         /* wakes the thread; -1: there is none */
    pthread_t thread;     /* if it is running */
    struct qsi_buf known; /* struct qsi_inbox_known, in the order of names */
    uint64_t adopted QSI_GUARDED_BY(qsi_store_mutex); /* answered so */
    uint64_t refused QSI_GUARDED_BY(qsi_store_mutex);
    uint64_t failing QSI_GUARDED_BY(qsi_store_mutex); /* after the last look */
    bool adopting QSI_GUARDED_BY(qsi_store_mutex);
    char error[QS_ERROR_TEXT_BYTES] QSI_GUARDED_BY(qsi_store_mutex); /* the last one */
    bool is_running QSI_GUARDED_BY(qsi_store_mutex);
    bool stops QSI_GUARDED_BY(qsi_store_mutex);
};

#endif
