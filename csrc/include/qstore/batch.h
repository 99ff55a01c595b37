/* Batches: many messages in one call, as Arrow arrays (arrow.h). */
#ifndef QSTORE_BATCH_H
#define QSTORE_BATCH_H

#include "qstore/arrow.h"
#include "qstore/channel.h"

typedef struct qs_batch {
    /* Of a struct: the record batches' schema. */
    const struct ArrowSchema *schema;
    /* array_count record batches; read in place, not released. */
    const struct ArrowArray *const *arrays;
    size_t array_count;
    /* NUL-terminated; "body". */
    const char *body_column;
    /* Where there is no such column, or it is null in a row. */
    qs_slice exchange;
    qs_slice routing_key;
    /* Encoded; a column beats it.  No delivery mode anywhere: persistent. */
    qs_slice properties;
    /* QS_MANDATORY. */
    uint32_t flags;
    /* Of seconds since 1970 that clocks show where the caller is, those of UTC: what times without
     * a zone are.  NULL: they are of UTC. */
    int64_t (*utc_of)(int64_t shown_s);
} qs_batch;

/* qs_channel_publish_batch - publish every row of every array, in order, or nothing at all when
 * anything is wrong.
 *
 * Columns are found by name: docs/ARROW.md lists them.  One that it does not know is refused, so
 * that a misspelt name is not lost.
 * Returns: as qs_channel_publish; QS_EINVAL (the batch cannot be read; column or row are named)
 * Blocks:  as qs_channel_publish
 * Durable: once receipt_out->lsn is
 * Owns:    the caller keeps schema and arrays */
QS_API QS_MUST_CHECK qs_status qs_channel_publish_batch(qs_channel *channel, const qs_batch *batch,
                                                        qs_receipt *receipt_out, qs_error *error);

/* qs_channel_get_batch - take up to max_messages ready messages as one record batch.
 *
 * The columns, always the same, are those of docs/ARROW.md.
 * In:      bytes_max  of the bodies, but one message always fits
 *          flags      QS_NO_ACK, QS_NO_WAIT
 * Returns: as qs_channel_get, but zero rows when nothing came within timeout_ns
 * Blocks:  up to timeout_ns for messages; to read what is not in memory
 * Owns:    *schema_out and *array_out: their own release callbacks */
QS_API QS_MUST_CHECK qs_status qs_channel_get_batch(qs_channel *channel, qs_slice queue,
                                                    uint64_t max_messages, uint64_t bytes_max,
                                                    uint32_t flags, uint64_t timeout_ns,
                                                    struct ArrowSchema *schema_out,
                                                    struct ArrowArray *array_out, qs_error *error);

#endif
