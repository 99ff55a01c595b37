/* Events: what a broker would send unasked, and waiting for it without a thread. */
#ifndef QSTORE_EVENTS_H
#define QSTORE_EVENTS_H

#include "qstore/channel.h"

enum {
    QS_EVENT_RETURN = 1,
    QS_EVENT_ACK = 2,
    QS_EVENT_NACK = 4,
    QS_EVENT_DELIVERY = 8,
    QS_EVENT_CANCEL = 16,
    QS_EVENT_CHANGE = 32, /* with QS_EVENT_ARM: when messages or confirms come, for any channel */
    QS_EVENT_ARM = 64,
    QS_EVENT_DURABLE = 8388608, /* what calls with QS_NO_WAIT did */
};

typedef struct qs_event {
    uint32_t kind;
    uint64_t publish_number; /* ACK, NACK */
    bool multiple;           /* ACK, NACK: this number and all before it */
    uint64_t count;          /* ACK, NACK: of numbers of which nothing was said before */
    /* NACK: QS_EQUEUE_FULL, or QS_ESTORE_FAILED: qs_store_failure tells why. */
    qs_status reason;
    uint64_t lsn;           /* DURABLE: up to there; 0: the store failed, and the rest is lost */
    uint32_t reply_code;    /* RETURN: 312 */
    const char *reply_text; /* RETURN: "NO_ROUTE" */
    /* RETURN, DELIVERY; CANCEL: consumer_tag and queue only; NACK by a full queue: queue only, ""
     * when it was deleted since, or there is no memory for its name. */
    qs_message message;
} qs_event;

/* qs_channel_next_event - the next event whose kind is in kinds, returns before acks.
 *
 * DURABLE comes when the first of the calls is durable that have changed something with QS_NO_WAIT
 * and were not told of, and again when the last is (qs_channel_completion_lsn).
 * ACK and NACK go together: asking for one asks for both, so that numbers come in order.  A
 * delivery counts against prefetch from here on.  With QS_EVENT_ARM in kinds and timeout_ns 0, an
 * answer QS_EEMPTY arms the descriptor of qs_channel_event_fd.
 * Returns: QS_EEMPTY (none came within timeout_ns; 0: do not wait), QS_ECORRUPT and QS_EIO (a
 *          delivery cannot be read, and is withheld), QS_EWOULDBLOCK (with QS_NO_WAIT in kinds),
 *          QS_EINVAL (QS_EVENT_ARM without a descriptor)
 * Blocks:  up to timeout_ns, and to read a message that is not in memory
 * Owns:    event_out->message: qs_message_release */
QS_API QS_MUST_CHECK qs_status qs_channel_next_event(qs_channel *channel, uint32_t kinds,
                                                     uint64_t timeout_ns, qs_event *event_out,
                                                     qs_error *error);

/* qs_channel_next_events - several of them for one taking of the lock, as qs_channel_next_event
 * does with timeout_ns 0.
 *
 * In:      max        how many at most
 *          bytes_max  the event with which bodies and properties have so many bytes is the last
 * Out:     count_out  how many there are in events_out, whatever is returned
 * Returns: QS_OK (max or bytes_max is reached: ask again), QS_EEMPTY (that is all; armed with
 *          QS_EVENT_ARM); what qs_channel_next_event would answer behind those events
 * Blocks:  as qs_channel_next_event
 * Owns:    the message of each event: qs_message_release */
QS_API QS_MUST_CHECK qs_status qs_channel_next_events(qs_channel *channel, uint32_t kinds,
                                                      uint32_t max, uint64_t bytes_max,
                                                      qs_event *events_out, uint32_t *count_out,
                                                      qs_error *error);

/* qs_channel_ignore_returns - with ignored, unroutable mandatory messages are not kept for
 * QS_EVENT_RETURN from now on.
 *
 * In confirm mode they are counted, and the first is kept, for qs_channel_take_ignored.  Otherwise
 * they are kept until they are read.  All channels together keep an eighth of memory_budget of them
 * (one always fits): a publish that would pass that is refused with QS_ESTORE_FULL.
 * Returns: QS_OK, or the common statuses */
QS_API QS_MUST_CHECK qs_status qs_channel_ignore_returns(qs_channel *channel, bool ignored,
                                                         qs_error *error);

/* qs_channel_take_ignored - how many mandatory messages came back in confirm mode while returns
 * were ignored, since the last call.
 *
 * Out:     first_out  the first of them, as QS_EVENT_RETURN; kind 0 when there was none, or no room
 *                     to keep it
 * Returns: QS_OK, or the common statuses
 * Owns:    first_out->message: qs_message_release */
QS_API QS_MUST_CHECK qs_status qs_channel_take_ignored(qs_channel *channel, qs_event *first_out,
                                                       uint64_t *count_out, qs_error *error);

/* qs_channel_event_fd - waiting without a thread: an eventfd for an event loop, non-blocking and
 * close-on-exec.
 *
 * It is written once when an event of the kinds that it is armed for may be there, and when the
 * channel is closed.  qs_channel_next_event arms it with QS_EVENT_ARM, under the same hold of the
 * lock that found no event, so none is missed.  A channel that is armed waits as a thread in that
 * call would: confirms are hurried, and a get leaves the messages to its consumers.
 * To wait: read the descriptor, take events until QS_EEMPTY, go back to the loop.  Unarmed it costs
 * nothing.
 * Out:     fd_out    the same at each call
 * Returns: QS_EINVAL (the store has no background threads), QS_EIO (no descriptor is left)
 * Owns:    *fd_out: the caller closes it, after qs_channel_close has returned, which writes to it a
 *          last time, and after the loop has stopped watching it.  Nothing else closes it: a loop
 *          that watches a closed descriptor hears nothing, or reads what another thread has opened
 *          under the same number */
QS_API QS_MUST_CHECK qs_status qs_channel_event_fd(qs_channel *channel, int *fd_out,
                                                   qs_error *error);

/* ---- many channels ---- */

typedef struct qs_listener qs_listener;

enum { QS_ALARM_MEMORY = 1, QS_ALARM_DISK = 2 };

/* qs_listener_open - one descriptor for an event loop that has many channels of a store.
 *
 * A channel that is given to a listener goes to a list of it where it would write to an eventfd of
 * its own.  The descriptor is written when something comes to the empty list, and not again before
 * qs_listener_next has emptied that: while the loop is at work nothing is written.
 * Threads: one at a time.
 * Returns: QS_EIO (no descriptor is left)
 * Owns:    *listener_out: qs_listener_close */
QS_API QS_MUST_CHECK qs_status qs_listener_open(qs_listener **listener_out, qs_store *store,
                                                qs_error *error);

/* qs_listener_close - its channels ring no more.
 *
 * May be called before and after they are closed, and after the store was.  The loop has stopped
 * watching the descriptor, which is closed. */
QS_API void qs_listener_close(qs_listener *listener);

/* qs_listener_fd - an eventfd: to be watched, not to be read; the listener's. */
QS_API int qs_listener_fd(const qs_listener *listener);

/* qs_listener_add - from now on a channel that is armed (qs_channel_next_event) rings here.
 *
 * It rings when it is shut, too, and not any more once it is closed.
 * In:      tag  what qs_listener_next tells
 * Returns: QS_EINVAL (the channel has a listener or a descriptor, or another store; the store has
 *          no background threads) */
QS_API QS_MUST_CHECK qs_status qs_listener_add(qs_listener *listener, qs_channel *channel,
                                               void *tag, qs_error *error);

/* qs_listener_next - the channels that rang, each once, in the order in which they did.
 *
 * Of fewer than max it has emptied the list: then the loop may wait for the descriptor.
 * Out:     alarms_out  QS_ALARM_*: publishers wait for memory, or are refused for want of space; a
 *                      change rings without a tag.  May be NULL
 * Returns: how many there are in tags_out */
QS_API size_t qs_listener_next(qs_listener *listener, void **tags_out, size_t max,
                               uint32_t *alarms_out);

/* qs_listener_hold - until qs_listener_go no thread is called for commits that its channels wait
 * for: the loop looks after them once it has looked at all that came.
 *
 * Threads: that of qs_listener_next */
QS_API void qs_listener_hold(qs_listener *listener);

/* qs_listener_is_awaited - whether a channel waits for a commit since qs_listener_hold. */
QS_API bool qs_listener_is_awaited(const qs_listener *listener);

/* qs_listener_go - what channels wait for since qs_listener_hold is committed.
 *
 * If it is likely to take less than a millisecond, as the last commit did, it is made here, so that
 * two threads less have to wake before a publisher is told.  Otherwise the store's own thread is
 * called.
 * In:      may_wait  the loop has nothing else to do
 * Returns: true: it was made here, and the descriptor was not written for who rang meanwhile: the
 *          loop calls qs_listener_next now
 * Blocks:  with may_wait, for the commit
 * Threads: that of qs_listener_next */
QS_API bool qs_listener_go(qs_listener *listener, bool may_wait);

#endif
