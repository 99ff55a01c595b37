/* The steps after a queue got messages, a run of them or one: the same for all publishers.  Inline,
 * because a single message pays for each instruction. */
#ifndef QSI_PUSHED_H
#define QSI_PUSHED_H

#include "commit.h"
#include "limits.h"
#include "notify.h"
#include "pager.h"
#include "priorities.h"
#include "refuse.h"
#include "store_kind.h"
#include "turns.h"
#include "wake.h"

/* The record has the places of its messages. */
static inline void qsi_put_pushed(struct qs_store *store, const struct qsi_store_queue *queue,
                                  uint8_t *record, uint32_t index, const struct qsi_pushed *pushed)
    QSI_REQUIRES(qsi_store_mutex)
{
    qsi_messages_put_destination(record, index, queue->container.id, pushed->first_seq,
                                 pushed->count);
    store->stats.routed += pushed->count;
}
/* REQUIRES that the record is appended next. */
static inline void qsi_notify_pushed(struct qs_store *store, struct qsi_store_queue *queue,
                                     const struct qsi_pushed *pushed) QSI_REQUIRES(qsi_store_mutex)
{
    qsi_check_growth(store, queue);
    if (queue->kind->pushed == NULL) {
        qsi_notify_consumers(store, qsi_owner_of(queue));
    } else {
        queue->kind->pushed(store, queue, pushed->count, pushed->journalled);
    }
}
/* Once for all records that were accepted together. is_due: there is something to commit. */
static inline void qsi_notify_accepted(struct qs_store *store, bool is_due)
    QSI_REQUIRES(qsi_store_mutex)
{
    if (is_due) {
        qsi_commit_wake(store);
    }
    qsi_pager_wake(store);
    qsi_events_notify(store);
}

#endif
