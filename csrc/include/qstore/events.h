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
};

typedef struct qs_event {
    uint32_t kind;
    uint64_t publish_number; /* ACK, NACK */
    bool multiple;           /* ACK, NACK: this number and all before it */
    uint64_t count;          /* ACK, NACK: of numbers of which nothing was said before */
    uint32_t reply_code;     /* RETURN: 312 */
    const char *reply_text;  /* RETURN: "NO_ROUTE" */
    qs_message message;      /* RETURN, DELIVERY; CANCEL: consumer_tag and queue only */
} qs_event;

/* qs_channel_next_event - the next event whose kind is in kinds, returns before acks.
 *
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
 * call would: confirms are hurried, and consumers that come behind its own leave messages to them.
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

#endif
