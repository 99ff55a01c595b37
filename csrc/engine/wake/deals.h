/* Messages that are dealt: consumers of a queue get them in turn, in whatever order they ask. */
#ifndef QSI_DEALS_H
#define QSI_DEALS_H

#include "store.h"
#include "thread_safety.h"

static inline struct qsi_store_consumer *qsi_consumer_in_queue(struct qsi_list *node)
{
    return QSI_LIST_OWNER(node, struct qsi_store_consumer, in_queue);
}
/* After the others of its priority, before those of lower ones. */
void qsi_consumer_line_up(struct qsi_store_queue *queue, struct qsi_store_consumer *consumer)
    QSI_REQUIRES(qsi_store_mutex);
enum qsi_turn {
    QSI_TURN_IS_ITS,    /* it was dealt a message, or gets the first ready one */
    QSI_TURN_OF_OTHERS, /* there is none for it */
    QSI_TURN_UNKNOWN,   /* the messages are not in memory: the caller reads them */
};
/* REQUIRES qsi_consumer_can_take.  Whether there is a message for this consumer.  Those before it
 * in line are dealt theirs meanwhile. */
static inline enum qsi_turn qsi_deal_to(struct qsi_store_consumer *consumer)
    QSI_REQUIRES(qsi_store_mutex);
/* The first message that was dealt to a consumer of the channel; NULL: there is none.  Valid until
 * something is dealt, taken or given up. */
static inline const struct qsi_store_deal *qsi_deals_first(const struct qs_channel *channel)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_store_deals *deals = &channel->deals;

    return QS_LIKELY(deals->count == 0) ? NULL : &deals->deals[deals->first];
}
/* REQUIRES that there is one.  The caller gets it, and it stays out. */
void qsi_deals_take(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);
/* If this is still the first, it is ready again, and the caller notifies the other consumers.
 * False: it is not. */
bool qsi_deals_give_up(struct qs_channel *channel, const struct qsi_store_deal *deal)
    QSI_REQUIRES(qsi_store_mutex);
/* All messages that were dealt to it are ready again, as if untouched.  True: there were some, and
 * the caller notifies the other consumers. */
bool qsi_deals_return(struct qsi_store_consumer *consumer) QSI_REQUIRES(qsi_store_mutex);
/* REQUIRES that no message is dealt to its consumers. */
void qsi_deals_fini(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);
/* It may have room again: it joins the line, if it was not in it. */
void qsi_consumer_back_in_line(struct qsi_store_consumer *consumer) QSI_REQUIRES(qsi_store_mutex);

/* ---- inline ---- */

/* For qsi_deal_to, if the consumer is one of several, and was dealt nothing. */
enum qsi_turn qsi_deal_in_line(struct qsi_store_consumer *consumer) QSI_REQUIRES(qsi_store_mutex);

static inline enum qsi_turn qsi_deal_to(struct qsi_store_consumer *consumer)
{
    const struct qsi_store_queue *queue = consumer->queue;

    return consumer->dealt_count > 0 || queue->consumer_count == 1 || queue->active == consumer ||
                   consumer->cursor != NULL
               ? QSI_TURN_IS_ITS
               : qsi_deal_in_line(consumer);
}

#endif
