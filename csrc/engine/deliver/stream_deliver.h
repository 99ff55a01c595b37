/* Messages of a stream, on their way to a consumer and back. */
#ifndef QSI_STREAM_DELIVER_H
#define QSI_STREAM_DELIVER_H

#include "store.h"
#include "stream_cursor.h"
#include "thread_safety.h"

/* A message that a consumer gets: the place of its body, and, in a stream, its offset. */
struct qsi_delivery {
    struct qsi_body body;
    bool is_of_stream;
    bool was_dealt; /* deals.h */
    uint64_t offset;
};

/* REQUIRES qsi_unacked_reserve(1) and a consumer of a stream that can take.  As qsi_deliver_one:
 * *released_out says that nothing was delivered, and all is to be looked at again.
 * QS_ECORRUPT  messages cannot be read: the next call goes on behind them
 * QS_EWOULDBLOCK  they must be read from a file */
qs_status qsi_stream_deliver_one(struct qsi_store_consumer *consumer, qs_message *message_out,
                                 struct qsi_delivery *delivery_out, bool *released_out,
                                 enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Adds the header x-stream-offset to a message whose body is there.  QS_ENOMEM */
qs_status qsi_stream_set_offset(qs_message *message, uint64_t offset,
                                qs_error *error) QS_MUST_CHECK;

/* Tags of the extent, which is one of a stream, are outstanding no longer: they were acknowledged,
 * or never reached the caller and the consumer gets them again. */
enum qsi_stream_end { QSI_STREAM_ACKED, QSI_STREAM_COMES_AGAIN, QSI_STREAM_LOST };
void qsi_stream_settled(const struct qsi_extent *extent, uint64_t mask, enum qsi_stream_end end)
    QSI_REQUIRES(qsi_store_mutex);
/* Tags of the extent are withheld: the consumer gets their messages again. */
void qsi_stream_withheld(const struct qsi_extent *extent, uint64_t mask)
    QSI_REQUIRES(qsi_store_mutex);
/* They are not withheld any more; the consumer may be gone. */
void qsi_stream_hand_back(const struct qsi_extent *extent, uint64_t mask)
    QSI_REQUIRES(qsi_store_mutex);
/* The message of a tag that was delivered just now did not reach the caller. */
void qsi_stream_take_back(struct qs_channel *channel, uint64_t tag, enum qsi_stream_end end)
    QSI_REQUIRES(qsi_store_mutex);

/* After acks: stores the positions of consumers that want it.  Records go to chunk, which has room
 * for tracking_bytes; NULL: no records.  Returns their number. */
uint32_t qsi_stream_record_acked(struct qs_channel *channel, struct qsi_chunk *chunk)
    QSI_REQUIRES(qsi_store_mutex);
/* QS_NOT_IMPLEMENTED: one of these tags is of a stream, whose messages are not rejected. */
qs_status qsi_stream_refuse_nack(const struct qs_channel *channel, uint64_t first_tag,
                                 uint64_t last_tag, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
