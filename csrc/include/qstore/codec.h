/* Stateless functions over bytes and Arrow arrays, for tools and workers without a store.
 *
 * Nothing here blocks or keeps a pointer; the functions that allocate return QS_ENOMEM.  Sizes
 * follow their pointer; a pointer may be NULL only when its size is 0.
 * Threads: any.  Fork: no state, so both sides may go on. */
#ifndef QSTORE_CODEC_H
#define QSTORE_CODEC_H

#include "qstore/arrow.h"
#include "qstore/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* qs_crc32c - the CRC-32C (Castagnoli) checksum of all records.
 *
 * In:      seed   0, or the result for the bytes before these: checksums chain
 * Returns: the checksum; seed when data_bytes is 0
 */
QS_API uint32_t qs_crc32c(uint32_t seed, const void *data, size_t data_bytes);

/* qs_properties_check - whether bytes are well-formed message properties.
 *
 * In:      blob   AMQP 0-9-1 property flags and values, nested header tables included; empty is
 *                 well-formed
 * Returns: QS_OK        every length, type and string is in order, to the last byte
 *          QS_ECORRUPT  they are not; error tells which property
 */
QS_API QS_MUST_CHECK qs_status qs_properties_check(const void *blob, size_t blob_bytes,
                                                   qs_error *error);

/* A column of byte strings, as Arrow lays out binary and utf8: row i is the bytes from offsets[i]
 * to offsets[i + 1] of data. */
typedef struct qs_strings {
    /* count + 1 of them; NULL when count is 0. */
    const int32_t *offsets;
    const void *data;
    size_t data_bytes;
    size_t count;
} qs_strings;

/* qs_crc32c_column - the checksum of each row.
 *
 * In:      crcs_out  of count numbers
 * Returns: QS_OK
 *          QS_EINVAL  offsets that decrease or lead out of data; error names the row, and crcs_out
 *                     is not complete
 */
QS_API QS_MUST_CHECK qs_status qs_crc32c_column(const qs_strings *column, uint32_t *crcs_out,
                                                qs_error *error);

/* qs_shard_column - the shard of each row.
 *
 * An exchange of type x-consistent-hash computes the same number for a routing key with these bytes
 * if shard_count queues or streams are bound with equal weights.  Destinations are numbered from 0
 * in the order in which they were first bound.
 * In:      shard_count  1 to 2^31 - 1
 *          shards_out   of count numbers
 * Returns: as qs_crc32c_column; QS_EINVAL also for another shard_count
 */
QS_API QS_MUST_CHECK qs_status qs_shard_column(const qs_strings *column, uint32_t shard_count,
                                               uint32_t *shards_out, qs_error *error);

enum {                            /* the batches that have a column, as bits */
       QS_RECEIVED_DELIVERED = 1, /* of qs_channel_get_batch */
       QS_RECEIVED_BROWSED = 2,   /* of qs_store_browse */
       QS_RECEIVED_STREAM = 4,    /* of a stream's reader */
       QS_RECEIVED_POLLED = 8,    /* of Python's stream consumers, beside those of a stream */
};

/* How a column is read in a batch that is published. */
typedef enum qs_column_kind {
    QS_COLUMN_IGNORED, /* it describes where a received message was */
    QS_COLUMN_BODY,
    QS_COLUMN_TEXT, /* strings of at most 255 bytes */
    QS_COLUMN_HEADERS,
    QS_COLUMN_INTEGER,
    QS_COLUMN_TIMESTAMP, /* whole seconds since 1970, from a timestamp or an integer */
    QS_COLUMN_INSTANT,   /* a timestamp */
} qs_column_kind;

/* An Arrow column of messages; docs/ARROW.md has a table of all. */
typedef struct qs_column {
    const char *name;
    const char *format;  /* Arrow's, of the received column; of a dictionary, its codes' */
    const char *meaning; /* of the received column */
    uint32_t received;   /* QS_RECEIVED_*; 0: such a column is only published */
    uint32_t part;       /* of a stream's batch: QS_STREAM_COLUMN_*; 0: always there */
    qs_column_kind published;
    int64_t low, high; /* the numbers that a published column may have, both inclusive */
} qs_column;

/* qs_column_at - one of the columns of messages, in the order of received batches.
 *
 * Returns: NULL behind the last one
 */
QS_API const qs_column *qs_column_at(size_t index);

/* qs_columns_schema - the schema of a received batch.
 *
 * In:      received  one of QS_RECEIVED_DELIVERED, QS_RECEIVED_BROWSED, QS_RECEIVED_STREAM
 *          parts     of a stream's batch: QS_STREAM_COLUMN_* (stream.h)
 * Returns: QS_OK, QS_ENOMEM, or QS_EINVAL (another value of received)
 * Owns:    *schema_out: its own release callback
 */
QS_API QS_MUST_CHECK qs_status qs_columns_schema(uint32_t received, uint32_t parts,
                                                 struct ArrowSchema *schema_out, qs_error *error);

/* qs_rows_check - whether each row of a record batch makes a message, for a store with the default
 * limits.
 *
 * The verdict is that of qs_channel_publish_batch, save for what depends on exchanges and queues,
 * and so is the error text; of several faults in one batch the two may name different ones.  The
 * body column is "body"; times without a zone are UTC.
 * In:      array        one record batch
 *          rows_before  error texts count rows from here
 *          now_us       microseconds since 1970: from then on delays count
 * Returns: QS_OK
 *          QS_EINVAL               the batch cannot be read, or a message is due too late; column
 *                                  or row are named
 *          QS_PRECONDITION_FAILED  a body or an expiration is too large; headers have CC or BCC
 *          QS_ENOMEM
 * Owns:    the caller keeps schema and array
 */
QS_API QS_MUST_CHECK qs_status qs_rows_check(const struct ArrowSchema *schema,
                                             const struct ArrowArray *array, uint64_t rows_before,
                                             uint64_t now_us, qs_error *error);

#define QS_BODY_REFERENCE_BYTES 28

/* The position of a walk through a journal file. */
typedef struct qs_journal_walk {
    uint64_t salt;         /* of the file */
    uint64_t from_lsn;     /* records of blocks that begin before this are skipped */
    uint64_t upto_lsn;     /* the walk ends before blocks that end behind this */
    uint64_t lsn;          /* of the first block; on return the end of the last block walked */
    uint32_t file;         /* its number */
    uint32_t next_file;    /* out: the last block was the file's end block, and names this one */
    uint64_t walked_bytes; /* out */
    uint64_t wanted_bytes; /* out: more than 0: so many are needed for the block behind them */
    uint64_t ref_count;    /* out: of the blocks that were walked */
    uint64_t
        wanted_refs;   /* out: more than refs_room: so many need room for the block behind them */
    bool is_elsewhere; /* out: the block behind them names messages in files of streams */
} qs_journal_walk;

/* qs_journal_walk_blocks - walk through the whole blocks of a journal file, and stop after one that
 * refers to bodies, which may be large.
 *
 * In:      data      bytes of the file from the beginning of a block
 *          refs_out  of refs_room * QS_BODY_REFERENCE_BYTES bytes: receives the references to
 *                    bodies in message files
 *          walk_io   the first five members
 * Returns: QS_OK, also without any block; QS_ECORRUPT: the checksum is right, but the records are
 *          invalid
 */
QS_API QS_MUST_CHECK qs_status qs_journal_walk_blocks(const void *data, size_t data_bytes,
                                                      void *refs_out, size_t refs_room,
                                                      qs_journal_walk *walk_io, qs_error *error);

#endif
