/* Events: messages, confirms and returns that a broker would send unasked, and ways to wait for
 * them without a thread. */
#ifndef QSTORE_EVENTS_H
#define QSTORE_EVENTS_H

#include "qstore/channel.h"

enum {
    QS_EVENT_RETURN = 1,
    QS_EVENT_ACK = 2,
    QS_EVENT_NACK = 4,
    QS_EVENT_DELIVERY = 8,
    QS_EVENT_CANCEL = 16,
    QS_EVENT_CHANGE = 32, /* with QS_EVENT_ARM: messages or confirms came, for any channel */
    QS_EVENT_ARM = 64,
    QS_EVENT_DURABLE = 8388608, /* of the effects of calls with QS_NO_WAIT */
};

typedef struct qs_event {
    uint32_t kind;
    uint64_t publish_number; /* ACK, NACK */
    bool multiple;           /* ACK, NACK: this number and all before it */
    uint64_t count;          /* ACK, NACK: numbers that no event has named before */
    /* NACK: QS_EQUEUE_FULL, or QS_ESTORE_FAILED: qs_store_failure tells why. */
    qs_status reason;
    uint64_t lsn;           /* DURABLE: up to here; 0: the store failed, and the rest is lost */
    uint32_t reply_code;    /* RETURN: 312 */
    const char *reply_text; /* RETURN: "NO_ROUTE" */
    /* RETURN, DELIVERY: all of it.  CANCEL: consumer_tag and queue only.  NACK by a full queue:
     * queue only, "" if the queue was deleted since, or there is no memory for its name. */
    qs_message message;
} qs_event;

/* qs_channel_next_event - return the next event whose kind is in kinds; returns come before acks.
 *
 * DURABLE reports calls that changed something with QS_NO_WAIT: it comes when the first of those
 * not reported yet is durable, and again when the last is (qs_channel_completion_lsn).  ACK and
 * NACK go together: asking for one asks for both, so that numbers come in order.  A returned
 * delivery counts against the prefetch.  With QS_EVENT_ARM in kinds and timeout_ns 0, an answer
 * QS_EEMPTY arms the descriptor of qs_channel_event_fd.
 * Returns: QS_EEMPTY (none came within timeout_ns; 0: do not wait), QS_ECORRUPT and QS_EIO (a
 *          delivery cannot be read, and is withheld), QS_EWOULDBLOCK (with QS_NO_WAIT in kinds),
 *          QS_EINVAL (QS_EVENT_ARM without a descriptor)
 * Blocks:  up to timeout_ns, and to read a message that is not in memory
 * Owns:    event_out->message: qs_message_release */
QS_API QS_MUST_CHECK qs_status qs_channel_next_event(qs_channel *channel, uint32_t kinds,
                                                     uint64_t timeout_ns, qs_event *event_out,
                                                     qs_error *error);

/* qs_channel_next_events - return several events with one taking of the lock, as
 * qs_channel_next_event does with timeout_ns 0.
 *
 * In:      max        the most events to return
 *          bytes_max  the event with which bodies and properties reach this many bytes is the last
 * Out:     count_out  the number of events in events_out, whatever is returned
 * Returns: QS_OK (max or bytes_max is reached: ask again), QS_EEMPTY (there are no more; armed with
 *          QS_EVENT_ARM); any other status that qs_channel_next_event would answer after those
 *          events
 * Blocks:  as qs_channel_next_event
 * Owns:    the message of each event: qs_message_release */
QS_API QS_MUST_CHECK qs_status qs_channel_next_events(qs_channel *channel, uint32_t kinds,
                                                      uint32_t max, uint64_t bytes_max,
                                                      qs_event *events_out, uint32_t *count_out,
                                                      qs_error *error);

/* qs_channel_ignore_returns - with ignored, keep no unroutable mandatory messages for
 * QS_EVENT_RETURN from now on.
 *
 * In confirm mode such messages are counted, and the first is kept, for qs_channel_take_ignored.
 * Without ignored they are kept until they are read.  All channels together keep at most an eighth
 * of memory_budget of them (one always fits): a publish beyond that is refused with QS_ESTORE_FULL.
 * Returns: QS_OK, or the common statuses */
QS_API QS_MUST_CHECK qs_status qs_channel_ignore_returns(qs_channel *channel, bool ignored,
                                                         qs_error *error);

/* qs_channel_take_ignored - return the number of mandatory messages that came back in confirm mode
 * while returns were ignored, since the last call.
 *
 * Out:     first_out  the first of them, as QS_EVENT_RETURN; kind 0 if there was none, or no room
 *                     to keep it
 * Returns: QS_OK, or the common statuses
 * Owns:    first_out->message: qs_message_release */
QS_API QS_MUST_CHECK qs_status qs_channel_take_ignored(qs_channel *channel, qs_event *first_out,
                                                       uint64_t *count_out, qs_error *error);

/* qs_channel_event_fd - return an eventfd, non-blocking and close-on-exec, for an event loop that
 * waits without a thread.
 *
 * The store writes to the descriptor once, when an event of the armed kinds may be there or when
 * the channel is closed.  qs_channel_next_event with QS_EVENT_ARM arms it under the same hold of
 * the lock that found no event, so no event is missed.  An armed channel waits as a thread in that
 * call would: confirms are expedited, and a get leaves the messages to the channel's consumers.  To
 * wait, read the descriptor, take events until QS_EEMPTY, and return to the loop.  An unarmed
 * descriptor costs nothing.
 * Out:     fd_out    the same descriptor at each call
 * Returns: QS_EINVAL (the store has no background threads), QS_EIO (no descriptor is left)
 * Owns:    *fd_out: the caller closes it after the loop has stopped watching it and after
 *          qs_channel_close, which writes to it a last time, has returned.  Nothing else closes it:
 *          a loop that watches a closed descriptor hears nothing, or reads from a descriptor that
 *          another thread has opened under the same number */
QS_API QS_MUST_CHECK qs_status qs_channel_event_fd(qs_channel *channel, int *fd_out,
                                                   qs_error *error);

/* ---- many channels ---- */

typedef struct qs_listener qs_listener;

enum { QS_ALARM_MEMORY = 1, QS_ALARM_DISK = 2 };

/* qs_listener_open - open one descriptor for an event loop with many channels of a store.
 *
 * A channel of a listener is put on the listener's list when it would otherwise write to an eventfd
 * of its own.  The store writes to the descriptor when the empty list gets a channel, and not again
 * before qs_listener_next has emptied the list: nothing is written while the loop is at work.
 * Threads: one at a time.
 * Returns: QS_EIO (no descriptor is left)
 * Owns:    *listener_out: qs_listener_close */
QS_API QS_MUST_CHECK qs_status qs_listener_open(qs_listener **listener_out, qs_store *store,
                                                qs_error *error);

/* qs_listener_close - close a listener; its channels are not reported any more.
 *
 * It may be called before or after its channels, and the store, are closed.  The loop must have
 * stopped watching the descriptor, which this closes. */
QS_API void qs_listener_close(qs_listener *listener);

/* qs_listener_fd - the eventfd of a listener, to be watched, not read.  The listener owns it. */
QS_API int qs_listener_fd(const qs_listener *listener);

/* qs_listener_add - have a channel that is armed (qs_channel_next_event) report to this listener
 * from now on.
 *
 * It reports when it is shut, too, but not after it was closed.
 * In:      tag  the value that qs_listener_next returns for the channel
 * Returns: QS_EINVAL (the channel has a listener or a descriptor already, or belongs to another
 *          store; the store has no background threads) */
QS_API QS_MUST_CHECK qs_status qs_listener_add(qs_listener *listener, qs_channel *channel,
                                               void *tag, qs_error *error);

/* qs_listener_next - return the channels that have reported, each once, in the order of their
 * reports.
 *
 * If it returns fewer than max, the list is empty, and the loop may wait for the descriptor.
 * Out:     alarms_out  QS_ALARM_*: publishers wait for memory, or are refused for want of space; a
 *                      change is reported without a tag.  May be NULL
 * Returns: the number of tags in tags_out */
QS_API size_t qs_listener_next(qs_listener *listener, void **tags_out, size_t max,
                               uint32_t *alarms_out);

/* qs_listener_hold - until qs_listener_go, call no thread for commits that the channels wait for:
 * the loop commits once it has handled all its input.
 *
 * Threads: that of qs_listener_next */
QS_API void qs_listener_hold(qs_listener *listener);

/* qs_listener_is_awaited - whether a channel has begun to wait for a commit since
 * qs_listener_hold. */
QS_API bool qs_listener_is_awaited(const qs_listener *listener);

/* qs_listener_go - commit what channels have waited for since qs_listener_hold.
 *
 * If the commit is likely to take less than a millisecond, as the last one did, this call makes it:
 * two threads fewer have to wake before a publisher is confirmed.  Otherwise the store's own thread
 * makes it.
 * In:      may_wait  the loop has nothing else to do
 * Returns: true: the commit was made here, and channels that reported meanwhile were not written to
 *          the descriptor: the loop calls qs_listener_next now
 * Blocks:  with may_wait, for the commit
 * Threads: that of qs_listener_next */
QS_API bool qs_listener_go(qs_listener *listener, bool may_wait);

#endif
