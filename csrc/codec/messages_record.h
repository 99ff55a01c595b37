/* The record of a batch of messages.
 *
 * It has the messages in columns, and each body once even if several queues take it.  The order of
 * rows is the order of publishing.  A destination is a queue and the sequence of the first row for
 * it; later rows for it have the following sequences.  A route is an exchange, a routing key and
 * their destinations; a row names its route.  A message published alone is a batch of one row. */
#ifndef QSI_MESSAGES_RECORD_H
#define QSI_MESSAGES_RECORD_H

#include "qstore/status.h"

#include "body_ref.h"
#include "le.h"
#include "messages_columns.h"
#include "slice.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QSI_MESSAGES_HEADER_BYTES 48
#define QSI_MESSAGES_DESTINATION_BYTES 24
#define QSI_NO_EXPIRATION UINT32_MAX /* in ms: the row has no expiration of its own */

/* A view of a record; its pointers are into the record. */
struct qsi_messages {
    const uint8_t *record;
    uint32_t row_count;
    uint32_t route_count;
    uint32_t destination_count;
    uint8_t flags;
    uint8_t row_route_width;
    const uint8_t *destinations;
    const uint8_t *routes; /* route_count offsets u32 from the record's start, then the routes */
    const uint8_t *row_routes;  /* row_count codes of row_route_width bytes */
    const uint8_t *expirations; /* row_count of u32 ms, or NULL */
    const uint8_t *dues;        /* row_count of u64 us, or NULL */
    /* PER_ROW: row_count + 1 offsets u32, then blobs; otherwise length u32, then the blob. */
    const uint8_t *properties;
    const uint8_t *stored;       /* bitmap, or NULL */
    const uint8_t *body_offsets; /* row_count + 1 of u32 */
    const uint8_t *bodies;
};
/* REQUIRES a record that this process wrote, or that passed qsi_messages_check. */
void qsi_messages_view(struct qsi_messages *view_out, const uint8_t *record);
/* Checks every count, offset and index of a record from a file, and that each stored body is a
 * reference.  QS_ECORRUPT has the reason. */
qs_status qsi_messages_check(const uint8_t *record, qs_error *error) QS_MUST_CHECK;
/* The same for a record without references to the message store: a row whose body is not in the
 * record is a damaged message. */
qs_status qsi_messages_check_whole(const uint8_t *record, qs_error *error) QS_MUST_CHECK;
/* Checks only header, destinations and routes, given the record's first bytes bytes: then the
 * routes and counts of a view may be used. */
qs_status qsi_messages_check_routes(const uint8_t *record, uint64_t bytes,
                                    qs_error *error) QS_MUST_CHECK;

static inline uint64_t qsi_messages_time(const uint8_t *record)
{
    return qsi_get_u64(record + 40);
}
/* The limit of the routes; bytes between their end and this are zeros. */
static inline uint32_t qsi_messages_routes_end(const uint8_t *record)
{
    return qsi_get_u32(record + 24);
}
static inline bool qsi_messages_has_expiration(const uint8_t *record)
{
    return (record[5] & QSI_MESSAGES_HAS_EXPIRATION) != 0;
}
static inline bool qsi_messages_has_due(const uint8_t *record)
{
    return (record[5] & QSI_MESSAGES_HAS_DUE) != 0;
}
/* Whether a column has expirations or due times. */
static inline bool qsi_messages_has_times(const uint8_t *record)
{
    return (record[5] & (QSI_MESSAGES_HAS_EXPIRATION | QSI_MESSAGES_HAS_DUE)) != 0;
}
static inline uint32_t qsi_messages_expiration(const struct qsi_messages *view, uint32_t row)
{
    return view->expirations != NULL ? qsi_get_u32(view->expirations + 4 * (size_t)row)
                                     : QSI_NO_EXPIRATION;
}
/* 0: not delayed. */
static inline uint64_t qsi_messages_due(const struct qsi_messages *view, uint32_t row)
{
    return view->dues != NULL ? qsi_get_u64(view->dues + 8 * (size_t)row) : 0;
}

struct qsi_route_view {
    struct qsi_slice exchange;
    struct qsi_slice key;
    uint32_t destination_count;
    const uint8_t *destinations; /* u32 indexes */
};
static inline uint32_t qsi_messages_row_route(const struct qsi_messages *view, uint32_t row)
{
    switch (view->row_route_width) {
    case 0:
        return 0;
    case 1:
        return view->row_routes[row];
    case 2:
        return qsi_get_u16(view->row_routes + 2 * (size_t)row);
    default:
        return qsi_get_u32(view->row_routes + 4 * (size_t)row);
    }
}
static inline struct qsi_route_view qsi_messages_route(const struct qsi_messages *view,
                                                       uint32_t route)
{
    const uint8_t *at = view->record + qsi_get_u32(view->routes + 4 * (size_t)route);
    uint32_t count = qsi_get_u32(at);
    uint8_t exchange_bytes = at[4];
    uint8_t key_bytes = at[5];
    const uint8_t *names = at + 8 + 4 * (size_t)count;

    return (struct qsi_route_view){
        .exchange = qsi_slice_make(names, exchange_bytes),
        .key = qsi_slice_make(names + exchange_bytes, key_bytes),
        .destination_count = count,
        .destinations = at + 8,
    };
}
static inline struct qsi_slice qsi_messages_properties(const struct qsi_messages *view,
                                                       uint32_t row)
{
    if ((view->flags & QSI_MESSAGES_PROPERTIES_PER_ROW) == 0) {
        return qsi_slice_make(view->properties + 4, qsi_get_u32(view->properties));
    }
    const uint8_t *offsets = view->properties + 4 * (size_t)row;
    const uint8_t *blobs = view->properties + 4 * ((size_t)view->row_count + 1);
    uint32_t from = qsi_get_u32(offsets);
    return qsi_slice_make(blobs + from, qsi_get_u32(offsets + 4) - from);
}
static inline bool qsi_messages_is_stored(const struct qsi_messages *view, uint32_t row)
{
    return view->stored != NULL && (view->stored[row / 8] >> (row % 8) & 1) != 0;
}
/* The cell of a body; qsi_messages_read_body decodes it. */
static inline struct qsi_slice qsi_messages_body(const struct qsi_messages *view, uint32_t row)
{
    uint32_t from = qsi_get_u32(view->body_offsets + 4 * (size_t)row);

    return qsi_slice_make(view->bodies + from,
                          qsi_get_u32(view->body_offsets + 4 * (size_t)row + 4) - from);
}
/* Returns the body, its reference, or its damage. */
static inline void qsi_messages_read_body(const struct qsi_messages *view, uint32_t row,
                                          struct qsi_body *body_out)
{
    struct qsi_slice cell = qsi_messages_body(view, row);

    if (qsi_messages_is_stored(view, row)) {
        qsi_body_decode(body_out, cell);
    } else {
        body_out->kind = QSI_BODY_EMBEDDED;
        body_out->bytes = cell;
    }
}
/* The reference of a stored body.  REQUIRES a record that passed qsi_messages_check, which has no
 * damaged messages. */
struct qsi_body_ref qsi_messages_body_ref(const struct qsi_messages *view, uint32_t row);
/* The size of the body, wherever it is; 0 for a damaged one. */
uint32_t qsi_messages_body_bytes(const struct qsi_messages *view, uint32_t row);
static inline uint64_t qsi_messages_destination_queue(const struct qsi_messages *view,
                                                      uint32_t index)
{
    return qsi_get_u64(view->destinations + (size_t)index * QSI_MESSAGES_DESTINATION_BYTES);
}
static inline uint64_t qsi_messages_destination_seq(const struct qsi_messages *view, uint32_t index)
{
    return qsi_get_u64(view->destinations + (size_t)index * QSI_MESSAGES_DESTINATION_BYTES + 8);
}
static inline uint32_t qsi_messages_destination_rows(const struct qsi_messages *view,
                                                     uint32_t index)
{
    return qsi_get_u32(view->destinations + (size_t)index * QSI_MESSAGES_DESTINATION_BYTES + 16);
}

#endif
