/* Batches: many messages in one call, as Arrow arrays (arrow.h). */
#ifndef QSTORE_BATCH_H
#define QSTORE_BATCH_H

#include "qstore/arrow.h"
#include "qstore/channel.h"

typedef struct qs_batch {
    /* A struct: the schema of the record batches. */
    const struct ArrowSchema *schema;
    /* array_count record batches, which are read in place and not released. */
    const struct ArrowArray *const *arrays;
    size_t array_count;
    /* Name of the body column, NUL-terminated; "body". */
    const char *body_column;
    /* Used where the column of this name is missing, or null in a row. */
    qs_slice exchange;
    qs_slice routing_key;
    /* Encoded; columns take precedence.  Without a delivery mode a message is persistent. */
    qs_slice properties;
    /* QS_MANDATORY. */
    uint32_t flags;
    /* Converts a local time of the caller, in seconds since 1970, to UTC; used for times without a
     * zone.  NULL: such times are UTC. */
    int64_t (*utc_of)(int64_t shown_s);
} qs_batch;

/* qs_channel_publish_batch - publish every row of every array, in order, or nothing if anything is
 * wrong.
 *
 * Columns are found by name: docs/ARROW.md lists them.  An unknown column is refused, so that a
 * misspelt name is noticed.
 * Returns: as qs_channel_publish; QS_EINVAL (the batch cannot be read; column or row are named)
 * Blocks:  as qs_channel_publish
 * Durable: once receipt_out->lsn is
 * Owns:    the caller keeps schema and arrays */
QS_API QS_MUST_CHECK qs_status qs_channel_publish_batch(qs_channel *channel, const qs_batch *batch,
                                                        qs_receipt *receipt_out, qs_error *error);

/* qs_channel_get_batch - take up to max_messages ready messages as one record batch.
 *
 * The columns, always the same, are those of docs/ARROW.md.
 * In:      bytes_max  of the bodies; one message comes in any case
 *          flags      QS_NO_ACK, QS_NO_WAIT
 * Returns: as qs_channel_get; a batch without rows if nothing came within timeout_ns
 * Blocks:  up to timeout_ns for messages; to read what is not in memory
 * Owns:    *schema_out and *array_out: their own release callbacks */
QS_API QS_MUST_CHECK qs_status qs_channel_get_batch(qs_channel *channel, qs_slice queue,
                                                    uint64_t max_messages, uint64_t bytes_max,
                                                    uint32_t flags, uint64_t timeout_ns,
                                                    struct ArrowSchema *schema_out,
                                                    struct ArrowArray *array_out, qs_error *error);

#endif
