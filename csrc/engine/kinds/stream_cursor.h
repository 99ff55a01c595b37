/* A consumer of a stream: a cursor.  It takes nothing from the stream, and settles nothing; its
 * unacknowledged messages are counted for its prefetch.
 *
 * It gets durable messages in order, from its position on: a batch is read ahead, from the
 * publishers' chunks or from a block, and delivered row by row. */
#ifndef QSI_STREAM_CURSOR_H
#define QSI_STREAM_CURSOR_H

#include "store.h"
#include "store_channel.h"
#include "store_stream.h"
#include "stream.h"
#include "thread_safety.h"

#include <stdbool.h>
#include <stdint.h>

/* Which messages it gets: by their header x-stream-filter-value. */
struct qsi_stream_filter {
    uint32_t count; /* 0: every message */
    bool takes_unfiltered;
    struct qsi_slice *values; /* into the cursor's arguments */
};

#define GUARDED QSI_GUARDED_BY(qsi_store_mutex)
struct qsi_stream_cursor {
    struct qsi_store_consumer *consumer; /* whose cursor it is */
    uint64_t stream_id;
    uint64_t position GUARDED; /* of the next message, or before it */
    /* What was read ahead: none, if count is 0. */
    struct qsi_stream_batch batch GUARDED;
    struct qsi_stream_view view GUARDED; /* of a batch of the tail */
    bool has_view GUARDED;
    uint64_t *wanted GUARDED; /* a bit for each message of the batch; NULL: all of them */
    bool is_reading GUARDED;  /* a thread reads for it without the lock */
    bool is_acked GUARDED;    /* since its progress was noted; it is in_acked of the channel */
    bool tracks;              /* its acks note how far it is, under its tag */
    struct qsi_list in_acked GUARDED;
    struct qsi_stream_filter filter;
    uint8_t *arguments; /* what the filter points into */
};
#undef GUARDED

/* REQUIRES that no thread reads for it.  NULL is fine. */
void qsi_stream_cursor_destroy(struct qsi_stream_cursor *cursor) QSI_REQUIRES(qsi_store_mutex);
/* Forgets what was read ahead. */
void qsi_stream_cursor_drop_batch(struct qsi_stream_cursor *cursor) QSI_REQUIRES(qsi_store_mutex);
/* Whether a consumer of a stream has something to get.  With a filter it may turn out that it has
 * not. */
bool qsi_stream_cursor_has_next(const struct qsi_store_consumer *consumer)
    QSI_REQUIRES(qsi_store_mutex);
/* Whether it has, once a commit made it durable. */
bool qsi_stream_cursor_awaits(const struct qsi_store_consumer *consumer)
    QSI_REQUIRES(qsi_store_mutex);

/* Threads that wait for the stream get its messages committed. */
void qsi_stream_call_threads(struct qs_store *store, struct qsi_store_stream *stream)
    QSI_REQUIRES(qsi_store_mutex);
/* A consumer joined or left a stream: whether a commit notifies its consumers. */
void qsi_stream_update_consumers(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex);
/* After a commit: notifies armed channels whose consumers have something to get. */
void qsi_streams_notify(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

#endif
