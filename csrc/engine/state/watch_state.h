/* What the watch remembers (watch.h). */
#ifndef QSI_WATCH_STATE_H
#define QSI_WATCH_STATE_H

#include "list.h"

#include <stdbool.h>
#include <stdint.h>

struct qsi_watch {
    int64_t ahead_told_us;  /* how far the wall clock was ahead at the last report */
    uint64_t stall_told_ns; /* of the last stalled commit that was reported: its commit_began_ns */
    uint64_t refused_ns;    /* a publisher was last refused for want of space */
    uint64_t looked_ns;     /* whether there is some again, for listeners */
    bool is_full, is_full_told;
    bool is_held_told; /* that no checkpoint can be made */
    bool is_failure_told;
    bool are_ignored_told; /* arguments that the open found */
    struct qsi_list full;  /* consumers whose prefetch was used up, since the last look */
    struct {
        uint64_t number, lsn, bytes, took_ns;
        bool is_told;
    } checkpoint; /* the last one; number 0: none yet */
};

#endif
