/* Beginning to consume from a stream. */
#ifndef QSI_STREAM_CONSUME_H
#define QSI_STREAM_CONSUME_H

#include "store.h"
#include "stream_cursor.h"
#include "thread_safety.h"

struct consume_call {
    struct qsi_slice tag; /* empty: the store makes one up */
    struct qsi_slice arguments;
    uint32_t flags;
};

/* Whether there may be such a consumer, in RabbitMQ's words, and its cursor: nowhere yet.
 * QS_NOT_IMPLEMENTED, QS_PRECONDITION_FAILED, QS_ENOMEM */
qs_status qsi_stream_cursor_create(struct stream_cursor **cursor_out,
                                   const struct qs_channel *channel,
                                   const struct store_queue *queue, const struct consume_call *call,
                                   qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* May release the lock meanwhile; the stream may be gone afterwards.  Moves the cursor to where its
 * arguments say, or, if it notes how far it is, to where it was. */
qs_status qsi_stream_cursor_start(struct stream_cursor *cursor, struct qs_store *store,
                                  struct store_queue *queue, const struct consume_call *call,
                                  qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
