/* What follows when a queue has got messages, be it a run of them or one: the same steps for all
 * who publish.  Inline, since a single message pays for each instruction. */
#ifndef QSI_PUSHED_H
#define QSI_PUSHED_H

#include "commit.h"
#include "limits.h"
#include "pager.h"
#include "priorities.h"
#include "publish.h"
#include "turns.h"
#include "wake.h"

/* The record says where its messages are. */
static inline void qsi_note_pushed(struct qs_store *store, const struct store_queue *queue,
                                   uint8_t *record, uint32_t index, const struct pushed *pushed)
    QSI_REQUIRES(qsi_store_mutex)
{
    qsi_messages_put_destination(record, index, queue->container.id, pushed->first_seq,
                                 pushed->count);
    store->stats.routed += pushed->count;
}
static inline void qsi_announce_pushed(struct qs_store *store, struct store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    qsi_note_growth(store, queue);
    /* Those of a stream get what is durable; the commit tells them.  To ask here how far that is
     * would count these as durable, since the journal does not have them yet. */
    if (queue->stream == NULL) {
        qsi_signal_consumers(store, qsi_owner_of(queue));
    }
}
/* Once for all records that were accepted together.  is_due: there is something to commit. */
static inline void qsi_announce_accepted(struct qs_store *store, bool is_due)
    QSI_REQUIRES(qsi_store_mutex)
{
    if (is_due) {
        qsi_commit_kick(store);
    }
    qsi_pager_kick(store);
    qsi_events_announce(store);
}

#endif
