/* Messages on their way to who gets them. */
#ifndef QSI_RECEIVE_H
#define QSI_RECEIVE_H

#include "store.h"
#include "thread_safety.h"

/* REQUIRES qsi_unacked_reserve(1).  Delivers the first ready message; QS_EEMPTY.  The body of a
 * stored one is not read yet: *body_out tells where it is.  *released_out: nothing was delivered;
 * the lock was released to bring the message from the disk, and all is to be looked at again. */
qs_status qsi_deliver_one(struct qs_channel *channel, struct store_queue *queue,
                          struct store_consumer *consumer, qs_message *message_out,
                          struct qsi_body *body_out, bool *released_out, enum qsi_wait wait,
                          qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* The same of the message that was dealt first, which stays so unless it is delivered: to a
 * consumer of this channel.  A failure that released the lock leaves it dealt, another ready. */
qs_status qsi_deliver_dealt(struct qs_channel *channel, struct store_deal deal,
                            qs_message *message_out, struct qsi_body *body_out, bool *released_out,
                            enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Without the lock: reads what qsi_deliver_one left out, if anything.  Ends in
 * qs_message_release. */
qs_status qsi_deliver_body(struct qs_store *store, qs_message *message, const struct qsi_body *body,
                           qs_error *error) QS_MUST_CHECK;
/* May release the lock meanwhile, and tells so.  Room to settle as many messages at once. */
qs_status qsi_make_settle_room(struct qs_channel *channel, bool no_ack, uint64_t count,
                               bool *released_out, enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

/* One row of a record in chunk, which the message holds; as below. */
void qsi_view_row(struct qsi_chunk *chunk, const uint8_t *record, uint32_t row, qs_message *message,
                  struct qsi_body *body_out);
/* A message of a run; the body of a stored one is not read yet: *body_out tells where it is. */
void qsi_view_message(const struct qsi_run *run, uint32_t run_row, qs_message *message,
                      struct qsi_body *body_out);

/* What a record of the message store holds, in a chunk of its own. */
struct qsi_stored {
    struct qsi_chunk *chunk;
    struct qsi_slice exchange, key, properties, body;
};

/* Without the lock.  The chunk is the caller's to release. */
qs_status qsi_read_stored(struct qs_store *store, const struct qsi_body *body,
                          struct qsi_stored *stored_out, qs_error *error) QS_MUST_CHECK;

#endif
