/* Streams: queues declared with x-queue-type=stream.  Messages of a stream stay, however often they
 * are read, until retention drops them; any number of readers read the one copy, by offset.
 *
 * An offset is 64 bits, counts up from 0 and has no gaps.  The offset of a durable message is never
 * given to another one.  After a crash messages that were not durable are gone, and their offsets
 * are given again.  Publication times in a stream (us since 1970) never decrease.
 *
 * Streams are declared, published to and deleted as queues are (channel.h, batch.h). */
#ifndef QSTORE_STREAM_H
#define QSTORE_STREAM_H

#include "qstore/arrow.h"
#include "qstore/channel.h"

/* ---- status ---- */

typedef struct qs_stream_status {
    uint64_t first, next;  /* the offsets of the stream are [first, next) */
    uint64_t durable;      /* readers get messages below this offset */
    uint64_t last_time_us; /* when the last message was published; 0: there was none yet */
    uint64_t segments;     /* files, and the one that grows */
    uint64_t disk_bytes;   /* of them */
    uint64_t ram_bytes;    /* messages that are in memory */
    uint64_t flushed;      /* messages below this offset are in files */
    uint64_t cursors;      /* groups that have a cursor */
    uint64_t id;           /* of the stream: no other stream of the store ever has it */
} qs_stream_status;

/* qs_store_stream_status - return the offsets and the size of a stream.
 *
 * Returns: QS_NOT_FOUND (no channel is closed by it), QS_EINVAL (a queue that is no stream) */
QS_API QS_MUST_CHECK qs_status qs_store_stream_status(qs_store *store, qs_slice stream,
                                                      qs_stream_status *status_out,
                                                      qs_error *error);

/* qs_store_stream_offset_at - return the first offset published at or after a time.
 *
 * Out:     offset_out  next, if there is none
 * Returns: as qs_store_stream_status; QS_ECORRUPT and QS_EIO (the index or block needed cannot be
 *          read)
 * Blocks:  to read an index and one block at most */
QS_API QS_MUST_CHECK qs_status qs_store_stream_offset_at(qs_store *store, qs_slice stream,
                                                         uint64_t time_us, uint64_t *offset_out,
                                                         qs_error *error);

/* ---- reading ---- */

typedef struct qs_stream_reader qs_stream_reader;

enum {                   /* where a reader begins */
       QS_STREAM_FIRST,  /* at the oldest message */
       QS_STREAM_LAST,   /* at the last block, or the last messages published together */
       QS_STREAM_NEXT,   /* behind all present messages */
       QS_STREAM_OFFSET, /* at an offset; beyond next: the reader waits for it */
       QS_STREAM_TIME,   /* at the first message published at or after a time */
};

enum { /* columns; "offset" is always there */
       QS_STREAM_COLUMN_TIMESTAMP = 1,
       QS_STREAM_COLUMN_EXCHANGE = 2,
       QS_STREAM_COLUMN_ROUTING_KEY = 4,
       QS_STREAM_COLUMN_BODY = 8,
       QS_STREAM_COLUMN_PROPERTIES = 16, /* headers, message_id ... : all of them */
       QS_STREAM_COLUMNS = 31,
};

typedef struct qs_stream_start {
    uint32_t at;      /* QS_STREAM_FIRST ... */
    uint64_t offset;  /* of QS_STREAM_OFFSET */
    uint64_t time_us; /* of QS_STREAM_TIME */
} qs_stream_start;

typedef struct qs_stream_read {
    qs_stream_start start;
    uint32_t columns; /* QS_STREAM_COLUMN_*; 0: all */
    /* Patterns as of a topic exchange ("eu.#"): a message comes whose routing key matches one of
     * them.  Copied.  None: every message. */
    const qs_slice *routing_keys;
    size_t routing_key_count;
    bool clamps; /* a dropped offset counts as the first one present, without an error */
} qs_stream_read;

/* qs_stream_reader_open - open a reader of a stream.
 *
 * A reader costs the store nothing between calls, and does not keep messages from being dropped.  A
 * reader serves one thread at a time.
 * Returns: QS_NOT_FOUND, QS_EINVAL (no stream; a routing key of more than 255 bytes; an unknown
 *          start), QS_EOFFSET (the offset was dropped, and clamps is false), QS_ECORRUPT and QS_EIO
 *          (QS_STREAM_TIME, QS_STREAM_LAST)
 * Blocks:  QS_STREAM_TIME and QS_STREAM_LAST: to read an index and one block at most
 * Owns:    *reader_out: qs_stream_reader_close */
QS_API QS_MUST_CHECK qs_status qs_stream_reader_open(qs_stream_reader **reader_out, qs_store *store,
                                                     qs_slice stream, const qs_stream_read *read,
                                                     qs_error *error);

/* qs_stream_reader_next - return the next messages as one record batch.
 *
 * Columns: offset (uint64), timestamp (when it was published: us, UTC), exchange, routing_key
 * (dictionaries), body, and the properties as in qs_channel_get_batch, but "timestamp" of the
 * properties is "message_timestamp"; the same in every batch of a reader.
 * In:      rows_max, bytes_max   of bodies; one message comes in any case
 *          timeout_ns            how long to wait for more at the end; 0: not at all
 * Returns: QS_EEMPTY (nothing came in time: the reader is at the end), QS_EOFFSET (the next message
 *          was dropped: qs_stream_reader_seek), QS_NOT_FOUND (the stream was deleted), QS_ECORRUPT
 *          (some messages cannot be read: the next call continues behind them), QS_EIO
 * Blocks:  up to timeout_ns; to read what is not in memory
 * Owns:    *schema_out and *array_out: their own release callbacks */
QS_API QS_MUST_CHECK qs_status qs_stream_reader_next(qs_stream_reader *reader, uint64_t rows_max,
                                                     uint64_t bytes_max, uint64_t timeout_ns,
                                                     struct ArrowSchema *schema_out,
                                                     struct ArrowArray *array_out, qs_error *error);

/* qs_stream_readers_wait - wait until one of several readers of one store has a message to read or
 * an error to report.  Messages that a filter skips count.
 *
 * Each reader serves this call meanwhile.
 * Returns: QS_EEMPTY (nothing came in time), QS_EINVAL (no readers)
 * Blocks:  up to timeout_ns */
QS_API QS_MUST_CHECK qs_status qs_stream_readers_wait(qs_stream_reader *const *readers,
                                                      size_t count, uint64_t timeout_ns,
                                                      qs_error *error);

/* qs_stream_reader_schema - the schema of every batch of this reader.
 *
 * Returns: QS_OK, or QS_ENOMEM
 * Owns:    *schema_out: its own release callback */
QS_API QS_MUST_CHECK qs_status qs_stream_reader_schema(const qs_stream_reader *reader,
                                                       struct ArrowSchema *schema_out,
                                                       qs_error *error);

/* qs_stream_reader_position - the offset at or behind which the next call begins: messages below
 * were read, or skipped by the filter. */
QS_API uint64_t qs_stream_reader_position(const qs_stream_reader *reader);

/* qs_stream_reader_seek - continue reading at another place.
 *
 * Returns, blocks: as qs_stream_reader_open */
QS_API QS_MUST_CHECK qs_status qs_stream_reader_seek(qs_stream_reader *reader,
                                                     const qs_stream_start *start, qs_error *error);

/* qs_stream_reader_close - close a reader, also after the store was closed; NULL is fine. */
QS_API void qs_stream_reader_close(qs_stream_reader *reader);

/* ---- cursors: the positions of groups of readers ---- */

#define QS_CURSOR_GROUP_BYTES_MAX 255
#define QS_CURSOR_OWN_BYTES_MAX 64

typedef struct qs_cursor {
    uint64_t offset; /* of the next message that the group wants */
    size_t own_bytes;
    uint8_t own[QS_CURSOR_OWN_BYTES_MAX]; /* the client's own bytes, stored with the cursor */
} qs_cursor;

/* qs_channel_commit_offset - set the cursor of a group.
 *
 * In a transactional channel this is part of the open transaction, atomic with its publishes and
 * settlements.  A cursor may move back, and may have any value.
 * In:      group   1 to 255 bytes
 *          offset  of the next message that the group wants
 *          own     at most 64 bytes
 *          flags   QS_NO_WAIT: do not wait until the cursor is durable
 * Out:     lsn_out  the cursor is durable when this LSN is; 0 in a transaction.  NULL is fine
 * Returns: QS_NOT_FOUND, QS_PRECONDITION_FAILED (the queue is no stream, or a size is wrong), which
 *          close the channel; QS_ESTORE_FULL, QS_EWOULDBLOCK (QS_NO_WAIT)
 * Blocks:  for a commit, unless it is part of a transaction
 * Durable: when it returns, or with the transaction */
QS_API QS_MUST_CHECK qs_status qs_channel_commit_offset(qs_channel *channel, qs_slice stream,
                                                        qs_slice group, uint64_t offset,
                                                        qs_slice own, uint32_t flags,
                                                        uint64_t *lsn_out, qs_error *error);

/* qs_channel_forget_offset - delete the cursor of a group.
 *
 * Returns, blocks, durable: as qs_channel_commit_offset; QS_OK, if there was none */
QS_API QS_MUST_CHECK qs_status qs_channel_forget_offset(qs_channel *channel, qs_slice stream,
                                                        qs_slice group, uint32_t flags,
                                                        uint64_t *lsn_out, qs_error *error);

/* qs_store_cursor - return the cursor of a group: the last one committed, durable or not.
 *
 * Returns: QS_EEMPTY (the group has none), QS_NOT_FOUND, QS_EINVAL (no stream) */
QS_API QS_MUST_CHECK qs_status qs_store_cursor(qs_store *store, qs_slice stream, qs_slice group,
                                               qs_cursor *cursor_out, qs_error *error);

typedef struct qs_cursor_info {
    qs_slice group, own;
    uint64_t offset;
} qs_cursor_info;

/* qs_store_visit_cursors - call visit for each group of a stream.
 *
 * The visitor runs under the store's lock: copy what is needed and call nothing of this library.
 *
 * Returns: QS_NOT_FOUND, QS_EINVAL (no stream) */
QS_API QS_MUST_CHECK qs_status qs_store_visit_cursors(qs_store *store, qs_slice stream,
                                                      void (*visit)(void *context,
                                                                    const qs_cursor_info *),
                                                      void *context, qs_error *error);

#endif
