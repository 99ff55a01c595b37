/* A stream of the store: a log, and the positions of its groups of readers.
 *
 * For code that takes, settles, expires or counts messages a stream is a queue that stays empty:
 * its messages are in the log, and no call takes them.  Its consumers have cursors
 * (stream_cursor.h). */
#ifndef QSI_STORE_STREAM_H
#define QSI_STORE_STREAM_H

#include "cursor_record.h"
#include "map.h"
#include "policy.h"
#include "store_queue.h"
#include "stream.h"
#include "thread_safety.h"

#define QSI_CURSOR_GONE UINT64_MAX /* the offset of a group that has no cursor any more */

struct qsi_store_cursor {
    uint64_t offset;
    uint32_t own_bytes;
    uint8_t own[QSI_CURSOR_OWN_BYTES_MAX];
};

struct qsi_stream_mark {
    uint64_t next, commit;
};
/* At most so many commits wait for the disk, except for a larger batch. */
#define QSI_STREAM_MARKS 40u

struct qsi_store_stream {
    struct qsi_stream log;
    struct qsi_map cursors; /* group -> store_cursor */
    /* Messages below durable_next were durable at the last look.  Messages below a mark are durable
     * when its commit is; marks follow each other in a ring. */
    uint64_t durable_next;
    struct qsi_stream_mark marks[QSI_STREAM_MARKS];
    uint32_t first_mark, mark_count;
    struct qsi_store_queue *queue; /* whose stream it is */
    struct qsi_list in_grown;      /* of the store, while its consumers are to be told of more */
    uint64_t out_count;            /* delivered to consumers and not acknowledged */
    struct qsi_list work_queues;   /* that read it: store_queue.in_source */
    uint64_t notified_next;        /* they were told of what is below */
    struct qsi_list in_sources;    /* of the store, while they are to be told of more */
};

/* Readers get only durable messages: after a crash other messages would have the offsets of lost
 * ones, and a reader that keeps offsets elsewhere would miss them.  They get all durable
 * messages. */
struct qs_store;
uint64_t qsi_stream_durable_next(const struct qs_store *store, struct qsi_store_stream *stream)
    QSI_REQUIRES(qsi_store_mutex);
/* The last count messages of the stream are in a record that is appended to the journal next, in
 * this hold of the lock. */
void qsi_stream_mark_pushed(const struct qs_store *store, struct qsi_store_stream *stream,
                            uint64_t count) QSI_REQUIRES(qsi_store_mutex);
/* The LSN at which more of the stream will be durable.  REQUIRES that some messages are not. */
uint64_t qsi_stream_awaited_lsn(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

/* Cursors of a queue: qsi_cursors_of.  NULL: the group has none. */
const struct qsi_store_cursor *qsi_cursor_find(const struct qsi_map *cursors,
                                               struct qsi_slice group);
uint64_t qsi_cursor_count(const struct qsi_map *cursors);
/* Room for the cursor of a group: qsi_cursor_set cannot fail then.  QS_ENOMEM. */
qs_status qsi_cursor_reserve(struct qsi_map *cursors, struct qsi_slice group) QS_MUST_CHECK;
/* REQUIRES that room, and sizes within the bounds. */
void qsi_cursor_set(struct qsi_map *cursors, const struct qsi_cursor_record *cursor);

#endif
