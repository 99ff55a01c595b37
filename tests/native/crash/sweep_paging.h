/* Operations of the fault sweep: checkpoints, compaction and queues that are paged. */
#ifndef SWEEP_PAGING_H
#define SWEEP_PAGING_H

#include "sweep_messages.h"

/* Of the queue that is on the disk for the greater part. */
static inline void publish_and_page(struct crash_work *work)
{
    for (int i = 0; i < 30 && !work->is_over; i++) {
        crash_publish(work, CRASH_PLAIN_CHANNEL, queue_of(work, i % 2), 3000, i % 7 != 0);
    }
}

static inline void publish_batch_and_page(struct crash_work *work)
{
    crash_publish_rows(work, CRASH_CONFIRM_CHANNEL, queue_of(work, 0), 40, 3000);
}

static inline void take_most(struct crash_work *work)
{
    for (int i = 0; i < 3 && !work->is_over; i++) {
        uint32_t left = i == 0 ? 70 : 12;

        while (left-- > 0 && crash_get(work, queue_of(work, i), CRASH_PLAIN_CHANNEL, 0) != NULL) {
        }
    }
}

/* All but each eighth, so that much is left of segments and message files, and little of their
 * contents. */
static inline void settle_most(struct crash_work *work)
{
    take_most(work);
    for (int i = 0; i < 3; i++) {
        struct crash_queue *queue = queue_of(work, i);

        for (uint32_t k = 0; k < queue->count && !work->is_over; k++) {
            if (queue->copies[k].tag != 0 && queue->copies[k].settle_lsn == 0 && k % 8 != 0) {
                crash_ack(work, CRASH_PLAIN_CHANNEL, &queue->copies[k], false, false);
            }
        }
    }
    crash_requeue_all(work, CRASH_PLAIN_CHANNEL);
}

static inline void settle_most_and_checkpoint(struct crash_work *work)
{
    settle_most(work);
    crash_work_checkpoint(work);
}

static inline void compact(struct crash_work *work)
{
    qs_status status;

    QS_CHECK(crash_compact(work->store, CRASH_COMPACTIONS_MAX, &status));
    crash_done(work, status, "compact");
}

static inline void compact_and_checkpoint(struct crash_work *work)
{
    compact(work);
    if (!work->is_over) {
        crash_work_checkpoint(work);
    }
}

static inline void set_mode(struct crash_work *work, bool lazy)
{
    struct crash_queue *queue = queue_of(work, 0);

    CRASH_CHANGE(work, queue->is_lazy, lazy ? CRASH_PRESENT : CRASH_ABSENT, "set mode",
                 qs_store_set_queue_mode(work->store, crash_queue_name(queue), lazy, QS_ERROR));
}

static inline void set_lazy(struct crash_work *work)
{
    set_mode(work, true);
}

static inline void set_default(struct crash_work *work)
{
    set_mode(work, false);
}

static inline void publish_to_lazy(struct crash_work *work)
{
    set_mode(work, true);
    publish_small(work);
    if (!work->is_over) {
        publish_small(work);
    }
}

static inline void ack_paged(struct crash_work *work)
{
    crash_ack(work, CRASH_PLAIN_CHANNEL, crash_any_out(work, CRASH_PLAIN_CHANNEL), true, false);
    if (!work->is_over) {
        crash_work_checkpoint(work);
    }
}

#endif
