/* Beginning to consume from a stream. */
#ifndef QSI_STREAM_CONSUME_H
#define QSI_STREAM_CONSUME_H

#include "store.h"
#include "stream_cursor.h"
#include "thread_safety.h"

struct qsi_consume_call {
    struct qsi_slice tag; /* empty: the store makes one up */
    struct qsi_slice arguments;
    uint32_t flags;
};

/* Checks, with RabbitMQ's texts, that there may be such a consumer, and makes its cursor, which has
 * no place yet.  QS_NOT_IMPLEMENTED, QS_PRECONDITION_FAILED, QS_ENOMEM */
qs_status qsi_stream_cursor_create(struct qsi_stream_cursor **cursor_out,
                                   const struct qs_channel *channel,
                                   const struct qsi_store_queue *queue,
                                   const struct qsi_consume_call *call, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* May release the lock meanwhile; the stream may be gone afterwards.  Moves the cursor to the place
 * that its arguments name, or, with offset tracking, to the stored one. */
qs_status qsi_stream_cursor_start(struct qsi_stream_cursor *cursor, struct qs_store *store,
                                  struct qsi_store_queue *queue,
                                  const struct qsi_consume_call *call, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
