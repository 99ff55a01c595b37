/* Connections and channels: declaring, publishing, receiving and settling one message at a time,
 * and transactions.  Batches are in batch.h, events in events.h. */
#ifndef QSTORE_CHANNEL_H
#define QSTORE_CHANNEL_H

#include "qstore/store.h"

typedef struct qs_connection qs_connection;
typedef struct qs_channel qs_channel;

/* ---- connections ---- */

/* qs_connection_open - open a connection, which channels share.  Exclusive queues belong to their
 * connection and are deleted with it.
 *
 * Returns: QS_OK, or the common statuses
 * Owns:    *connection_out: qs_connection_close */
QS_API QS_MUST_CHECK qs_status qs_connection_open(qs_connection **connection_out, qs_store *store,
                                                  qs_error *error);

/* qs_connection_close - close its channels, delete its exclusive queues, free.
 *
 * May be called after the store was closed.  The channels' memory stays until qs_channel_close; a
 * channel that waits in another thread answers QS_ECHANNEL_CLOSED.
 * Blocks:  for room in the journal, to requeue the unacknowledged messages of its channels; to
 *          remove messages that must leave their queues (store.h) */
QS_API void qs_connection_close(qs_connection *connection);

/* qs_connection_is_closed - whether an error, or the close of its store, closed the connection. */
QS_API bool qs_connection_is_closed(qs_connection *connection);

/* qs_connection_channel - open a channel of this connection.
 *
 * Returns: QS_ECHANNEL_CLOSED when the connection is closed
 * Owns:    *channel_out: qs_channel_close */
QS_API QS_MUST_CHECK qs_status qs_connection_channel(qs_channel **channel_out,
                                                     qs_connection *connection, qs_error *error);

/* ---- channels ---- */

/* qs_channel_open - open a channel with a connection of its own.
 *
 * Returns: QS_OK, or the common statuses
 * Owns:    *channel_out: qs_channel_close */
QS_API QS_MUST_CHECK qs_status qs_channel_open(qs_channel **channel_out, qs_store *store,
                                               qs_error *error);

/* qs_channel_close - requeue everything unacked, cancel the consumers, free.  May be called after
 * the store was closed.
 *
 * Blocks:  for room in the journal, to requeue unacknowledged messages; to remove messages that
 *          must leave their queues (store.h) */
QS_API void qs_channel_close(qs_channel *channel);

/* qs_channel_number - the channel's number in the store, from 1 in the order of opening.
 * qs_store_visit_counts names channels by it. */
QS_API uint64_t qs_channel_number(const qs_channel *channel);

enum {
    QS_PASSIVE = 1,
    QS_DURABLE = 2,
    QS_EXCLUSIVE = 4,
    QS_AUTO_DELETE = 8,
    QS_INTERNAL = 16, /* of exchange_declare; of publish: to an internal exchange, too */
    QS_IF_UNUSED = 32,
    QS_IF_EMPTY = 64,
    QS_NO_ACK = 128,
    QS_MANDATORY = 256,
    QS_GLOBAL = 512,
    QS_MULTIPLE = 1024,
    QS_REQUEUE = 2048,
    QS_NO_WAIT = 4096,   /* of most verbs; a kind of next_event */
    QS_REJECT = 8192,    /* of settle_range: as nack without QS_REQUEUE */
    QS_IN_TX = 16384,    /* of settle_range: part of the channel's transaction, if there is one */
    QS_WITHHELD = 32768, /* of recover: withheld messages only */
    QS_BODY_CONSTANT = 65536,   /* of publish: the body does not change during the call */
    QS_NO_SYNC = 131072,        /* of declaring and the like: it need not be durable on return */
    QS_IMMEDIATE = 262144,      /* of publish, which refuses this flag */
    QS_TO_EXCHANGE = 524288,    /* of change_binding: the destination is an exchange */
    QS_AUTO_ACK = 2097152,      /* of consume: the caller acknowledges by itself; not of a stream */
    QS_UNBIND = 1048576,        /* of change_binding: remove the binding */
    QS_RESERVED_NAME = 4194304, /* of queue_declare: the name may begin with "amq." */
};

/* With QS_NO_WAIT a call waits for the store's lock and nothing else.  If it would have to wait for
 * room in the journal or in memory, to write a body to the message store, or to read a message from
 * a file, it does nothing and answers QS_EWOULDBLOCK: call again without the flag.
 *
 * A call that would wait until its effect is durable returns QS_OK at once.  A server that answers
 * later compares qs_channel_completion_lsn with qs_store_durable_lsn, or with the LSN of
 * QS_EVENT_DURABLE (events.h). */

/* qs_channel_completion_lsn - the LSN at which the last call with QS_NO_WAIT on this channel will
 * be durable; 0: it is durable already, or had nothing to make durable.
 *
 * Call it right after that call, in the same thread.
 * Blocks:  not even for the store's lock */
QS_API uint64_t qs_channel_completion_lsn(const qs_channel *channel);

/* ---- exchanges and queues ----
 *
 * Arguments are AMQP field tables without the 4-byte length in front.  They are stored with their
 * names in byte order; of entries with the same name the last counts.
 *
 * A change of something durable is journalled.  The call that makes the change, or finds it made,
 * returns when it is durable.  With QS_NO_SYNC the call blocks for room in the journal alone.  The
 * change is then durable when qs_store_sync returns, when a later durable call returns, or when a
 * persistent message published afterwards is confirmed. */

/* qs_channel_exchange_declare - create an exchange, or check that an existing one equals this
 * declaration.
 *
 * In:      flags    QS_PASSIVE, QS_DURABLE, QS_AUTO_DELETE, QS_INTERNAL, QS_NO_SYNC, QS_NO_WAIT
 * Returns: QS_NOT_FOUND (passive), QS_PRECONDITION_FAILED (the existing one differs),
 *          QS_ACCESS_REFUSED (a reserved name), QS_COMMAND_INVALID (no such type), QS_ESTORE_FULL
 * Blocks:  for a commit, if it is durable
 * Durable: when it returns, if it is durable */
QS_API QS_MUST_CHECK qs_status qs_channel_exchange_declare(qs_channel *channel, qs_slice exchange,
                                                           qs_slice type, uint32_t flags,
                                                           qs_slice arguments, qs_error *error);

/* qs_channel_exchange_delete - delete an exchange and its bindings.  A missing exchange is no
 * error.
 *
 * In:      flags    QS_IF_UNUSED, QS_NO_SYNC, QS_NO_WAIT
 * Returns: QS_PRECONDITION_FAILED (in use), QS_ACCESS_REFUSED (a reserved name), QS_ESTORE_FULL
 * Blocks:  for a commit, if it is durable
 * Durable: when it returns, if it is durable */
QS_API QS_MUST_CHECK qs_status qs_channel_exchange_delete(qs_channel *channel, qs_slice exchange,
                                                          uint32_t flags, qs_error *error);

/* qs_channel_change_binding - route messages from an exchange to a queue or to another exchange, or
 * end that.  Each exchange passes a message on once, so cycles end.
 *
 * In:      destination  a queue; with QS_TO_EXCHANGE an exchange
 *          flags        QS_TO_EXCHANGE; QS_UNBIND: remove the binding, and a binding that is not
 *                       there is no error; QS_NO_SYNC, QS_NO_WAIT
 * Returns: QS_NOT_FOUND (either), QS_ACCESS_REFUSED (the default exchange), QS_RESOURCE_LOCKED,
 *          QS_PRECONDITION_FAILED (an argument that the exchange's type does not take),
 *          QS_ESTORE_FULL
 * Blocks:  for a commit, if both are durable
 * Durable: when it returns, if both are durable */
QS_API QS_MUST_CHECK qs_status qs_channel_change_binding(qs_channel *channel, qs_slice destination,
                                                         qs_slice source, qs_slice routing_key,
                                                         qs_slice arguments, uint32_t flags,
                                                         qs_error *error);

/* qs_queue_argument_name - return the name of a supported queue argument, by index from 0; NULL
 * after the last.
 *
 * Any other argument is stored, and may differ when the queue is declared again.  Arguments that
 * ask for copies on other machines (x-queue-type other than classic, x-ha-*, x-quorum-*, ...) are
 * refused with QS_PRECONDITION_FAILED. */
QS_API const char *qs_queue_argument_name(uint32_t index);

typedef struct qs_declare_ok {
    char queue[256]; /* NUL-terminated; the name made up by the store when "" was declared */
    uint64_t message_count, consumer_count;
} qs_declare_ok;

/* qs_channel_queue_declare - create a queue, or check that an existing one equals this declaration.
 *
 * In:      queue  "": the store makes up a name
 *          flags  QS_PASSIVE, QS_DURABLE, QS_EXCLUSIVE, QS_AUTO_DELETE; QS_RESERVED_NAME, for a
 *                 server that makes queues of its own; QS_NO_WAIT, and QS_NO_SYNC: queues declared
 *                 one after another share a commit
 * Returns: QS_NOT_FOUND (passive), QS_PRECONDITION_FAILED (the existing one differs, or an argument
 *          has a wrong value), QS_RESOURCE_LOCKED (exclusive to another connection),
 *          QS_ACCESS_REFUSED (a reserved name), QS_ESTORE_FULL
 * Blocks:  for a commit, if it is durable
 * Durable: when it returns, if it is durable */
QS_API QS_MUST_CHECK qs_status qs_channel_queue_declare(qs_channel *channel, qs_slice queue,
                                                        uint32_t flags, qs_slice arguments,
                                                        qs_declare_ok *ok_out, qs_error *error);

/* qs_channel_queue_purge - drop all ready and delayed messages; unacknowledged messages stay.
 *
 * In:      flags      QS_NO_WAIT
 * Out:     count_out  messages dropped
 * Returns: QS_NOT_FOUND, QS_RESOURCE_LOCKED, QS_ESTORE_FULL
 * Blocks:  for a commit, if the queue is durable
 * Durable: when it returns */
QS_API QS_MUST_CHECK qs_status qs_channel_queue_purge(qs_channel *channel, qs_slice queue,
                                                      uint32_t flags, uint64_t *count_out,
                                                      qs_error *error);

/* qs_channel_queue_discard - drop one ready or delayed message, whether or not it can be read.
 *
 * In:      position  of qs_store_browse or qs_store_peek
 * Returns: QS_NOT_FOUND, QS_EEMPTY (no message is there), QS_PRECONDITION_FAILED (unacknowledged,
 *          or of a stream), QS_ECORRUPT (its segment cannot be read), QS_ESTORE_FULL
 * Blocks:  to read what is not in memory
 * Durable: with the next commit */
QS_API QS_MUST_CHECK qs_status qs_channel_queue_discard(qs_channel *channel, qs_slice queue,
                                                        uint64_t position, qs_error *error);

/* qs_channel_queue_delete - delete a queue with its messages and bindings.  A missing queue is no
 * error.
 *
 * In:      flags      QS_IF_UNUSED, QS_IF_EMPTY, QS_NO_SYNC, QS_NO_WAIT
 * Out:     count_out  messages dropped
 * Returns: QS_PRECONDITION_FAILED (in use, not empty), QS_RESOURCE_LOCKED, QS_ESTORE_FULL
 * Blocks:  for a commit, if the queue is durable
 * Durable: when it returns */
QS_API QS_MUST_CHECK qs_status qs_channel_queue_delete(qs_channel *channel, qs_slice queue,
                                                       uint32_t flags, uint64_t *count_out,
                                                       qs_error *error);

/* ---- publishing ---- */

/* qs_channel_confirm_select - number and confirm every publish of this channel from now on.
 *
 * Returns: QS_PRECONDITION_FAILED (the channel is transactional) */
QS_API QS_MUST_CHECK qs_status qs_channel_confirm_select(qs_channel *channel, qs_error *error);

/* qs_channel_next_publish_number - the number of the next publish; 0 outside confirm mode. */
QS_API uint64_t qs_channel_next_publish_number(qs_channel *channel);

/* Publishes whose confirms wait for the disk, by number; with has_queue also their exchange and
 * queue.  Publishes of a batch are reported once for each queue of the batch. */
typedef struct qs_unconfirmed {
    uint64_t first_number, last_number;
    bool has_queue;
    qs_slice exchange, queue;
} qs_unconfirmed;

/* qs_channel_visit_unconfirmed - call visit for the publishes of this channel that are accepted and
 * not confirmed: first for all numbers, in order, then, in order again, once for each queue that
 * they went to.
 *
 * The visitor runs under the store's lock: copy what is needed and call nothing of this library.
 * Returns: QS_OK, without a visit outside confirm mode */
QS_API QS_MUST_CHECK qs_status qs_channel_visit_unconfirmed(
    qs_channel *channel, void (*visit)(void *context, const qs_unconfirmed *info), void *context,
    qs_error *error);

enum { QS_RECEIPT_ROWS = 8 };
typedef struct qs_receipt {
    uint64_t first_number, last_number; /* 0 outside confirm mode, or for an empty batch */
    uint64_t count;
    uint64_t lsn; /* durable when qs_store_durable_lsn() reaches this; 0: nothing to wait for */
    uint64_t unrouted_count; /* that no queue took: confirmed, and returned with QS_MANDATORY */
    uint64_t refused_count;  /* that a full queue refused: nacked */
    uint64_t refused_rows[QS_RECEIPT_ROWS]; /* the first of them, counted from 0 in the call */
    char refused_queue[256]; /* the queue that refused the first of them, NUL-terminated; or "" */
} qs_receipt;

/* qs_channel_publish - publish one message to the queues to which exchange, routing_key and headers
 * route it.
 *
 * The strings in the headers CC and BCC (arrays) are routing keys as well; BCC is removed from the
 * message.
 *
 * With a delay the message is in its queues at once, and as durable as any other, but not ready
 * before it is due by the store's clock, whatever happens meanwhile.  Then it takes the place at
 * which it was published among the ready messages.  Its time to live begins when it is due.  In a
 * transaction the delay begins with this call.
 * In:      properties  encoded (codec.h), or empty; delivery mode 2 makes the message persistent
 *          body        copied.  If another thread changes it meanwhile, the message has bytes
 *                      that the body had at some time during the call.  QS_BODY_CONSTANT saves
 *                      copying a large body twice; a change would then damage the message
 *          flags       QS_MANDATORY: an unroutable message comes back as an event; in a transaction
 *                      it comes at the commit, also when its queues were deleted by then;
 *                      QS_NO_WAIT; QS_BODY_CONSTANT; QS_INTERNAL: the exchange may be internal
 *          delay_us    the message is delivered this long from now at the earliest; 0: at once
 * Returns: QS_NOT_FOUND (no such exchange), QS_ACCESS_REFUSED (an internal exchange),
 *          QS_NOT_IMPLEMENTED (QS_IMMEDIATE, which no broker has any more), QS_PRECONDITION_FAILED
 *          (the body is too large, or the header CC or BCC is no array), QS_ESTORE_FULL (nothing
 *          was accepted: try again), QS_EWOULDBLOCK (QS_NO_WAIT), QS_EINVAL (a delay of more than
 *          100 years); QS_OK: accepted, not yet durable
 * Blocks:  when too much waits to be synced (the call then helps to commit), and to write a large
 *          body
 * Durable: once receipt_out->lsn is */
QS_API QS_MUST_CHECK qs_status qs_channel_publish(qs_channel *channel, qs_slice exchange,
                                                  qs_slice routing_key, qs_slice properties,
                                                  qs_slice body, uint32_t flags, uint64_t delay_us,
                                                  qs_receipt *receipt_out, qs_error *error);

/* qs_channel_wait_confirms - wait until every publish of this channel so far is confirmed or
 * nacked.
 *
 * Out:     nacked_out  whether any was nacked since the last call; QS_EVENT_NACK tells which, and
 *                      why
 * Returns: QS_ETIMEDOUT
 * Blocks:  for a commit, which the caller leads itself when no other thread does
 * Durable: confirmed persistent messages, when it returns QS_OK, except those that consumers have
 *          acknowledged in all their queues: these do not come again (docs/DURABILITY.md) */
QS_API QS_MUST_CHECK qs_status qs_channel_wait_confirms(qs_channel *channel, uint64_t timeout_ns,
                                                        bool *nacked_out, qs_error *error);

/* ---- receiving ---- */

typedef struct qs_message {
    uint64_t delivery_tag;
    uint32_t delivery_count; /* earlier deliveries */
    bool redelivered;
    uint64_t ready_left; /* of qs_channel_get: messages ready behind this one; else 0 */
    /* An identity that no other message of the store ever has: the number of the queue, or of the
     * priority within it, and the place there.  A redelivery has the same.  0: the message is of a
     * stream. */
    uint64_t container, sequence;
    /* Valid until qs_message_release. */
    qs_slice exchange, routing_key, properties, body, queue, consumer_tag;
    /* Private: what qs_message_release frees. */
    void *hold, *hold_names;
} qs_message;

/* qs_message_release - free the memory of the message's slices.  A zeroed message is fine. */
QS_API void qs_message_release(qs_message *message);

/* qs_channel_get - take the next ready message of a queue.  Waiting consumers with room in their
 * prefetch come first.
 *
 * In:      flags  QS_NO_ACK, QS_NO_WAIT
 * Returns: QS_EEMPTY (nothing is ready), QS_NOT_FOUND, QS_RESOURCE_LOCKED, QS_ECORRUPT and
 *          QS_EIO (the message cannot be read, and is withheld), QS_EWOULDBLOCK (QS_NO_WAIT)
 * Blocks:  to read a message that is not in memory
 * Owns:    *message_out: qs_message_release */
QS_API QS_MUST_CHECK qs_status qs_channel_get(qs_channel *channel, qs_slice queue, uint32_t flags,
                                              qs_message *message_out, qs_error *error);

/* qs_channel_qos - limit the number of unacknowledged messages; 0: no limit.
 *
 * The limit is for each consumer registered afterwards or, with QS_GLOBAL, for all consumers of the
 * channel together; both hold.  A call without QS_GLOBAL lifts the channel's limit.  Messages taken
 * by qs_channel_get do not count.
 * In:      prefetch_bytes  0
 *          flags           QS_GLOBAL
 * Returns: QS_NOT_IMPLEMENTED (prefetch_bytes, as from RabbitMQ) */
QS_API QS_MUST_CHECK qs_status qs_channel_qos(qs_channel *channel, uint32_t prefetch_count,
                                              uint32_t prefetch_bytes, uint32_t flags,
                                              qs_error *error);

/* qs_channel_consume - register a consumer; qs_channel_next_event returns its messages.
 *
 * A message goes to the consumer of the highest priority with room in its prefetch, whether or not
 * its channel asks for events.
 * In:      consumer_tag  "": the store makes up a tag
 *          flags         QS_NO_ACK, QS_EXCLUSIVE, QS_NO_WAIT
 *          arguments     x-priority; of a stream x-stream-offset, x-stream-filter,
 *                        x-stream-match-unfiltered, x-stream-automatic-offset-tracking
 *                        (docs/STREAMS.md); others are ignored
 * Out:     tag_out       the consumer's tag, NUL-terminated
 * Returns: QS_NOT_ALLOWED (the channel has a consumer of that tag), QS_NOT_FOUND,
 *          QS_RESOURCE_LOCKED, QS_PRECONDITION_FAILED (x-priority is no whole number; of a stream
 *          also: no prefetch, a wrong argument), QS_ACCESS_REFUSED (exclusive use),
 *          QS_NOT_IMPLEMENTED (QS_NO_ACK of a stream), QS_ECORRUPT and QS_EIO (the start in the
 *          stream cannot be read), QS_EWOULDBLOCK (QS_NO_WAIT, of a stream)
 * Blocks:  of a stream, to read an index and one block at most */
QS_API QS_MUST_CHECK qs_status qs_channel_consume(qs_channel *channel, qs_slice queue,
                                                  qs_slice consumer_tag, uint32_t flags,
                                                  qs_slice arguments, char tag_out[256],
                                                  qs_error *error);

/* qs_channel_cancel - end a consumer; its messages stay unacknowledged.  An unknown tag is no
 * error.
 *
 * Returns: QS_OK, or the common statuses */
QS_API QS_MUST_CHECK qs_status qs_channel_cancel(qs_channel *channel, qs_slice consumer_tag,
                                                 qs_error *error);

/* qs_channel_pause - stop giving messages to a consumer, as when its prefetch is used up, or
 * resume.
 *
 * Messages that were delivered stay with the consumer; messages dealt to it and not yet read are
 * ready again.  A caller that reads a channel's consumers one by one can pause the others, which
 * bounds the messages that arrive for them.  An unknown tag is no error.
 * Returns: QS_OK, or the common statuses */
QS_API QS_MUST_CHECK qs_status qs_channel_pause(qs_channel *channel, qs_slice consumer_tag,
                                                bool paused, qs_error *error);

/* ---- settling ---- */

/* qs_channel_ack - acknowledge a message: it was handled, and leaves its queue.
 *
 * In:      delivery_tag  0 with QS_MULTIPLE: all
 *          flags         QS_MULTIPLE, QS_NO_WAIT
 * Returns: QS_PRECONDITION_FAILED "unknown delivery tag N", QS_EWOULDBLOCK (QS_NO_WAIT)
 * Blocks:  for room in the journal, without QS_NO_WAIT
 * Durable: with the next commit, for which the call does not wait; in a transaction, with its
 *          commit */
QS_API QS_MUST_CHECK qs_status qs_channel_ack(qs_channel *channel, uint64_t delivery_tag,
                                              uint32_t flags, qs_error *error);

/* qs_channel_nack - reject a message: with QS_REQUEUE it returns to its place, otherwise it is
 * dropped or goes to the dead-letter exchange.
 *
 * With a delay a requeued message is not ready before delay_us have passed on the store's clock,
 * whatever happens meanwhile.  Then the message is back in its place.  A message that has reached
 * the delivery limit of its queue is dead-lettered at once.
 * In:      delivery_tag  0 with QS_MULTIPLE: all
 *          flags         QS_MULTIPLE, QS_REQUEUE, QS_NO_WAIT
 *          delay_us      0: no delay
 * Returns: as qs_channel_ack; QS_EINVAL (more than 100 years, or a delay without QS_REQUEUE)
 * Blocks, durable: as qs_channel_ack */
QS_API QS_MUST_CHECK qs_status qs_channel_nack(qs_channel *channel, uint64_t delivery_tag,
                                               uint32_t flags, uint64_t delay_us, qs_error *error);

/* qs_channel_recover - requeue all unacknowledged messages, and the withheld ones.
 *
 * In:      flags  QS_REQUEUE; QS_WITHHELD: only the withheld ones; QS_NO_WAIT
 * Returns: QS_NOT_IMPLEMENTED (without QS_REQUEUE, as from RabbitMQ)
 * Blocks:  for room in the journal
 * Durable: as qs_channel_ack */
QS_API QS_MUST_CHECK qs_status qs_channel_recover(qs_channel *channel, uint32_t flags,
                                                  qs_error *error);

/* qs_channel_withhold - mark messages that were taken, but could not be handed to the consumer.
 *
 * None of the functions above finds these messages any more, and they take no room in a prefetch.
 * They stay unacknowledged until the channel is closed or recovers; then they are ready again, as
 * if they had not been taken.  A call that fails because a body is damaged, or for want of memory,
 * withholds the message itself.
 * Returns: QS_OK, or the common statuses */
QS_API QS_MUST_CHECK qs_status qs_channel_withhold(qs_channel *channel, uint64_t first_tag,
                                                   uint64_t last_tag, qs_error *error);

/* qs_channel_settle_range - acknowledge the messages of these tags that are outstanding; with
 * QS_REQUEUE requeue them, with QS_REJECT reject them.
 *
 * It is meant for messages taken on behalf of a consumer that has them now, or never will.  It
 * takes effect at once even in an open transaction, except on tags that the transaction has
 * settled; with QS_IN_TX it is part of the transaction, as with QS_MULTIPLE.
 * In:      flags     QS_REQUEUE, QS_REJECT, QS_IN_TX, QS_NO_WAIT
 *          delay_us  as of qs_channel_nack
 * Returns: as qs_channel_nack; QS_EINVAL (first_tag is 0)
 * Blocks, durable: as qs_channel_ack */
QS_API QS_MUST_CHECK qs_status qs_channel_settle_range(qs_channel *channel, uint64_t first_tag,
                                                       uint64_t last_tag, uint32_t flags,
                                                       uint64_t delay_us, qs_error *error);

#endif
