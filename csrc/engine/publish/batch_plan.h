/* The next record of a batch: its rows, and its length. */
#ifndef QSI_BATCH_PLAN_H
#define QSI_BATCH_PLAN_H

#include "batch.h"

struct qsi_record_plan {
    const struct qsi_arrow_batch *array;
    const uint32_t *codes; /* of the array's rows; NULL: route 0 */
    uint64_t array_row;    /* of the array's first, in the batch */
    uint64_t from, to;
    uint64_t longest_bytes; /* of the array's bodies */
    bool per_row_properties;
    bool any_transient, any_persistent;
    uint32_t stored_count;
    struct qsi_messages_layout layout;
    uint32_t *used_routes; /* routes of the pending record, in order of their record codes */
    uint32_t *used_destinations;
};

static inline bool qsi_row_is_transient(const struct qsi_batch *batch,
                                        const struct qsi_arrow_batch *array, uint64_t row)
{
    uint8_t mode = qsi_arrow_delivery_mode(array, row);

    return (mode != 0 ? mode : batch->defaults.delivery_mode) == 1 && !batch->keeps_all;
}
static inline struct qsi_batch_route *
qsi_row_route(struct qsi_batch *batch, const struct qsi_record_plan *plan, uint64_t row)
{
    return &batch->routes[plan->codes != NULL ? plan->codes[row] : 0];
}
/* Whether the row's body goes to the message store. */
static inline bool qsi_row_is_stored(struct qsi_batch *batch, const struct qsi_record_plan *plan,
                                     uint64_t row, uint64_t properties_bytes, uint64_t body_bytes)
{
    return (!batch->is_for_stream ||
            properties_bytes + body_bytes >= batch->rules.stream_embed_below) &&
           qsi_is_stored(batch->store, properties_bytes, body_bytes) &&
           qsi_row_route(batch, plan, row)->durable &&
           !qsi_row_is_transient(batch, plan->array, row);
}

/* ---- batch_measure.c ---- */

/* Sets plan->to, as far as limit_bytes permit, and counts the needs of the rows. */
qs_status qsi_plan_rows(struct qsi_batch *batch, struct qsi_record_plan *plan, uint64_t limit_bytes,
                        qs_error *error) QS_MUST_CHECK;
/* Numbers the routes and destinations that the record's rows use, and counts rows by destination;
 * forgetting the numbers frees them, too. */
qs_status qsi_plan_routes(struct qsi_batch *batch, struct qsi_record_plan *plan,
                          qs_error *error) QS_MUST_CHECK;
void qsi_plan_forget_routes(struct qsi_batch *batch, struct qsi_record_plan *plan);
/* The layout.  REQUIRES rows, and routes with destinations. */
qs_status qsi_plan_layout(struct qsi_batch *batch, struct qsi_record_plan *plan,
                          qs_error *error) QS_MUST_CHECK;

/* ---- batch_encode.c ---- */

/* Fills the pending record's memory, and puts bodies into the message store. */
qs_status qsi_plan_encode(struct qsi_batch *batch, const struct qsi_record_plan *plan,
                          struct qsi_pending_record *pending_record, qs_error *error) QS_MUST_CHECK;

/* The blob of a row's properties: the common one, or its own, which the caller frees. */
qs_status qsi_plan_blob(const struct qsi_batch *batch, const struct qsi_record_plan *plan,
                        uint64_t row, struct qsi_slice *blob_out, qs_error *error) QS_MUST_CHECK;
void qsi_plan_free_blob(const struct qsi_record_plan *plan, struct qsi_slice blob);

#endif
