/* Timers by due time: a binary heap. */
#ifndef QSI_TIMERS_H
#define QSI_TIMERS_H

#include "qstore/status.h"

#include <stddef.h>
#include <stdint.h>

#define QSI_TIMER_NEVER UINT64_MAX

struct qsi_timer {
    uint64_t due_ns;
    size_t place; /* in the heap, from 1; 0: not in it */
};

/* Zeroed memory is an empty heap. */
struct qsi_timers {
    struct qsi_timer **heap;
    size_t count, capacity;
};
void qsi_timers_fini(struct qsi_timers *timers);

/* Reserves room for that many timers, so that setting one never fails. */
qs_status qsi_timers_reserve(struct qsi_timers *timers, size_t count) QS_MUST_CHECK;

/* Sets or moves a timer; QSI_TIMER_NEVER removes it. */
void qsi_timers_set(struct qsi_timers *timers, struct qsi_timer *timer, uint64_t due_ns);

/* The due time of the first timer, or QSI_TIMER_NEVER. */
uint64_t qsi_timers_next_ns(const struct qsi_timers *timers);

/* Removes and returns the first timer if it is due; else NULL. */
struct qsi_timer *qsi_timers_take_due(struct qsi_timers *timers, uint64_t now_ns);

#endif
