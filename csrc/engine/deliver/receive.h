/* Messages on their way to a caller. */
#ifndef QSI_RECEIVE_H
#define QSI_RECEIVE_H

#include "store.h"
#include "thread_safety.h"

/* REQUIRES qsi_unacked_reserve(1).  Delivers the first ready message; QS_EEMPTY.  A stored body is
 * not read yet: *body_out has its place.  *released_out: nothing was delivered; the lock was
 * released to read the message from the disk, and the caller must look again. */
qs_status qsi_deliver_one(struct qs_channel *channel, struct qsi_store_queue *queue,
                          struct qsi_store_consumer *consumer, qs_message *message_out,
                          struct qsi_body *body_out, bool *released_out, enum qsi_wait wait,
                          qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* The same for the message that was dealt first, to a consumer of this channel; it stays dealt
 * unless it is delivered.  A failure that released the lock leaves it dealt, any other failure
 * leaves it ready. */
qs_status qsi_deliver_dealt(struct qs_channel *channel, struct qsi_store_deal deal,
                            qs_message *message_out, struct qsi_body *body_out, bool *released_out,
                            enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* May release the lock meanwhile, and reports that.  Without acknowledgements it reserves room to
 * settle one message. */
qs_status qsi_make_settle_room(struct qs_channel *channel, bool no_ack, bool *released_out,
                               enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
