/* Messages that a consumer of a stream reads ahead. */
#ifndef QSI_STREAM_READ_AHEAD_H
#define QSI_STREAM_READ_AHEAD_H

#include "store.h"
#include "stream_cursor.h"
#include "thread_safety.h"

/* The next message that the consumer wants, among those read ahead; skips others.  False: there is
 * none.  Only durable messages are returned. */
bool qsi_stream_next_row(struct qsi_store_consumer *consumer, uint32_t *row_out)
    QSI_REQUIRES(qsi_store_mutex);
/* Reads the next messages ahead.  From memory without letting go of the lock; else it is released
 * meanwhile, *released_out says so, and the consumer may be gone.
 * QS_ECORRUPT  messages cannot be read: the consumer goes on behind them
 * QS_EIO, QS_ENOMEM, QS_EWOULDBLOCK */
qs_status qsi_stream_read_ahead(struct qsi_store_consumer *consumer, bool *released_out,
                                enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
