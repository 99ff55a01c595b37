/* A record batch on its way from Arrow to pending records: shared by the files that publish one. */
#ifndef QSI_BATCH_H
#define QSI_BATCH_H

#include "arrow_read.h"
#include "copies.h"
#include "error.h"
#include "message_rules.h"
#include "properties.h"
#include "publish_prepare.h"
#include "refuse.h"
#include "returns.h"
#include "thread_safety.h"

/* A distinct (exchange, routing key) of the batch and its destinations. */
struct qsi_batch_route {
    struct qsi_slice exchange, key; /* in the caller's arrays */
    uint64_t hash;
    uint32_t *destinations; /* indexes in destinations */
    uint32_t destination_count;
    bool durable;           /* at least one of them is */
    bool by_headers;        /* rows with other headers may go elsewhere */
    uint16_t by_properties; /* and rows with other values of these: qsi_property_flag() of each */
    uint32_t record_code;   /* in the pending record being made, or NO_CODE */
    uint64_t rows;          /* of the records that are made */
};

struct qsi_batch_destination {
    uint64_t queue_id;
    bool durable;
    bool keeps_all; /* transient messages as well */
    bool is_direct; /* batches may be written into its files */
    uint8_t priority_max;
    uint32_t record_code;
    uint32_t record_rows;
};

#define NO_CODE UINT32_MAX
#define RECORD_ROWS_MAX (256u << 10) /* rows cost bytes beside their bodies */
/* Messages for exactly one stream keep smaller bodies inside: they are never in the message
 * store. */
#define STREAM_EMBED_BELOW (128u << 10)

/* The limits of rows, and how they become records. */
struct qsi_batch_rules {
    uint64_t body_bytes_max;     /* and of properties */
    uint64_t record_bytes_max;   /* of one record, but a row always fits */
    uint64_t stream_embed_below; /* of messages for exactly one stream */
    uint8_t record_flags;        /* that each record has */
    struct qsi_budget *budget;   /* that counts the records */
};

struct qsi_batch {
    struct qs_channel *channel; /* like the next: NULL for rows that are staged, without a store */
    struct qs_store *store;
    struct qsi_batch_rules rules;
    const qs_batch *input;
    struct qsi_arrow_batch *arrays;
    uint64_t row_count;
    uint64_t properties_longest; /* of the rows that were measured */
    uint64_t now_us;
    uint64_t record_rows_max; /* that the next record may have */
    bool mandatory;
    bool is_for_stream; /* one stream, and nothing else */
    bool keeps_all;     /* like a queue that makes messages persistent: no row is transient */

    struct qsi_properties defaults;
    struct qsi_copies copies; /* of the defaults */
    uint8_t *constant;        /* the defaults as a blob */
    uint32_t constant_bytes;

    struct qsi_batch_route *routes;
    uint32_t route_count, route_capacity;
    struct qsi_slice hashed_exchange;
    uint64_t exchange_hash;
    uint32_t *slots; /* open addressing over routes; NO_CODE: free */
    uint32_t slot_count;
    struct qsi_batch_destination *destinations;
    uint32_t destination_count, destination_capacity;
    struct qsi_map destination_codes; /* queue id -> index + 1 */

    uint32_t *codes; /* route of each row of the array at hand; NULL: all rows take route 0 */
    uint64_t code_capacity;
    uint32_t *refined; /* routes of all rows, if headers or priorities decide; NULL: nowhere */
    struct qsi_pending_records pending_records;
    struct qsi_return_rules return_rules; /* of the channel, at the look-up of the routes */
    struct qsi_list returns;
    uint64_t unrouted_count; /* rows that lead to no queue */
    struct qsi_published_notes published;
};

static inline qs_status qsi_batch_no_memory(qs_error *error)
{
    return qsi_fail(error, QS_ENOMEM, "batch");
}

/* ---- batch_open.c ---- */

struct qsi_batch_rules qsi_batch_rules_of(const struct qs_store *store);
/* Checks defaults and arrays, and finds the distinct routes.  REQUIRES input, rules and an empty
 * list of returns.  fini in any case. */
qs_status qsi_batch_open(struct qsi_batch *batch, qs_error *error) QS_MUST_CHECK;
void qsi_batch_fini(struct qsi_batch *batch);

/* ---- batch_routes.c: the distinct routes, without the lock, and where they lead, under it ---- */

static inline bool qsi_batch_has_route_columns(const struct qsi_arrow_batch *array)
{
    return array->exchange.present || array->routing_key.present;
}
/* Fills batch->codes with the route of each row of an array that has route columns. */
qs_status qsi_batch_code_rows(struct qsi_batch *batch, const struct qsi_arrow_batch *array,
                              qs_error *error) QS_MUST_CHECK;
qs_status qsi_batch_find_routes(struct qsi_batch *batch, qs_error *error) QS_MUST_CHECK;
qs_status qsi_batch_look_up_routes(struct qsi_batch *batch, qs_error *error) QS_MUST_CHECK;

/* Adds a route at the end. */
qs_status qsi_batch_add_route(struct qsi_batch *batch, const struct qsi_batch_route *route,
                              uint32_t *code_out, qs_error *error) QS_MUST_CHECK;
/* Looks up the destinations of the route with these properties (whose headers cannot be filled),
 * and with the defaults' carbon copies if it is to have them. */
qs_status qsi_batch_look_up(struct qsi_batch *batch, struct qsi_batch_route *route,
                            const struct qsi_properties *properties, bool has_copies,
                            qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

/* The index of a queue, or of a priority, known already or not. */
qs_status qsi_batch_add_destination(struct qsi_batch *batch,
                                    const struct qsi_batch_destination *destination,
                                    uint32_t *index_out, qs_error *error) QS_MUST_CHECK;
/* Fills batch->refined with the routes of all rows by their names. */
qs_status qsi_batch_code_all_rows(struct qsi_batch *batch, qs_error *error) QS_MUST_CHECK;

/* ---- batch_headers.c: rows whose own headers decide their route; the lock is taken briefly
 * ---- */

qs_status qsi_batch_refine_routes(struct qsi_batch *batch, qs_error *error) QS_MUST_CHECK;
/* QS_PRECONDITION_FAILED: a row has its own header CC or BCC. */
qs_status qsi_batch_check_headers(const struct qsi_batch *batch, qs_error *error) QS_MUST_CHECK;

/* ---- batch_priorities.c: rows that go to queues with priorities; without the lock ---- */

qs_status qsi_batch_divide_routes(struct qsi_batch *batch, qs_error *error) QS_MUST_CHECK;

/* ---- batch_records.c: the rows as encoded records of some size; without the lock ---- */

qs_status qsi_batch_make_records(struct qsi_batch *batch, qs_error *error) QS_MUST_CHECK;

#endif
