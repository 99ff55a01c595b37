/* Writing the record of messages: the only encoder, for publishing, paging and restoring.
 *
 * First the sizes, which determine the layout; then the frames, the sections, and the rows in
 * order. */
#ifndef QSI_MESSAGES_WRITE_H
#define QSI_MESSAGES_WRITE_H

#include "messages_columns.h"
#include "messages_record.h"

#include <string.h>

/* Sizes for the layout; qsi_messages_layout fills in the rest. */
struct qsi_messages_layout {
    uint32_t row_count;
    uint32_t route_count;
    uint32_t destination_count;
    uint64_t routes_bytes;     /* sum of qsi_route_bytes() */
    uint64_t properties_bytes; /* of all blobs */
    uint64_t bodies_bytes;     /* of all body cells */
    uint8_t flags;             /* ALIGNED on input: wanted; it is also set for long records */
    /* Filled in by qsi_messages_layout. */
    uint8_t row_route_width; /* 0 with one route, otherwise 1, 2 or 4 */
    uint64_t routes_at, row_routes_at, expirations_at, dues_at, properties_at, bodies_at,
        record_bytes;
};
/* Computes the layout; this is the only function that decides about alignment.  QS_EINVAL: the
 * record would exceed 4 GiB. */
qs_status qsi_messages_layout(struct qsi_messages_layout *layout, qs_error *error) QS_MUST_CHECK;

/* Writes the header and the frames of empty sections into layout->record_bytes bytes at record,
 * padding included. */
void qsi_messages_begin(uint8_t *record, const struct qsi_messages_layout *layout);

/* Writers for the sections of a record. */
static inline void qsi_messages_put_destination(uint8_t *record, uint32_t index, uint64_t queue_id,
                                                uint64_t first_seq, uint32_t row_count)
{
    uint8_t *at =
        record + QSI_MESSAGES_HEADER_BYTES + (size_t)index * QSI_MESSAGES_DESTINATION_BYTES;

    qsi_put_u64(at, queue_id);
    qsi_put_u64(at + 8, first_seq);
    qsi_put_u32(at + 16, row_count);
    qsi_put_u32(at + 20, 0);
}
/* Sets the time of publishing, in us since 1970; 0: not needed. */
static inline void qsi_messages_put_time(uint8_t *record, uint64_t time_us)
{
    qsi_put_u64(record + 40, time_us);
}
/* REQUIRES the column of expirations. */
static inline void qsi_messages_put_expiration(uint8_t *record,
                                               const struct qsi_messages_layout *layout,
                                               uint32_t row, uint32_t ms)
{
    qsi_put_u32(record + layout->expirations_at + 4 * (size_t)row, ms);
}
/* REQUIRES the column of due times.  0: not delayed. */
static inline void qsi_messages_put_due(uint8_t *record, const struct qsi_messages_layout *layout,
                                        uint32_t row, uint64_t due_us)
{
    qsi_put_u64(record + layout->dues_at + 8 * (size_t)row, due_us);
}
/* Writes routes in order; *at_io starts at 0 and counts the bytes of routes so far.  destinations
 * NULL: the first destinations of the record, in order. */
static inline void qsi_messages_put_route(uint8_t *record, const struct qsi_messages_layout *layout,
                                          uint32_t index, uint64_t *at_io,
                                          struct qsi_slice exchange, struct qsi_slice key,
                                          const uint32_t *destinations, uint32_t destination_count)
{
    uint64_t offset = layout->routes_at + 4 * (uint64_t)layout->route_count + *at_io;
    uint8_t *at = record + offset;

    QS_DCHECK(exchange.bytes <= UINT8_MAX && key.bytes <= UINT8_MAX);
    qsi_put_u32(record + layout->routes_at + 4 * (size_t)index, (uint32_t)offset);
    qsi_put_u32(at, destination_count);
    at[4] = (uint8_t)exchange.bytes;
    at[5] = (uint8_t)key.bytes;
    qsi_put_u16(at + 6, 0);
    at += 8;
    for (uint32_t i = 0; i < destination_count; i++, at += 4) {
        qsi_put_u32(at, destinations != NULL ? destinations[i] : i);
    }
    qsi_slice_put(qsi_slice_put(at, exchange), key);
    *at_io += qsi_route_bytes(exchange.bytes, key.bytes, destination_count);
}
void qsi_messages_put_row_routes(uint8_t *record, const struct qsi_messages_layout *layout,
                                 const uint32_t *codes);
static inline uint8_t *qsi_messages_properties_place(uint8_t *record,
                                                     const struct qsi_messages_layout *layout)
{
    return record + layout->properties_at;
}
/* Writes the properties of all rows.  REQUIRES that rows have none of their own. */
static inline void qsi_messages_put_properties(uint8_t *record,
                                               const struct qsi_messages_layout *layout,
                                               struct qsi_slice properties)
{
    uint8_t *at = qsi_messages_properties_place(record, layout);

    qsi_put_u32(at, properties.bytes);
    qsi_slice_put(at + 4, properties);
}
/* Writes the body of the only row.  REQUIRES common properties, and no body in the message store.
 * It has the result of a writer of rows without its state, which would be costly for a single
 * message. */
static inline void qsi_messages_put_only_body(uint8_t *record,
                                              const struct qsi_messages_layout *layout,
                                              struct qsi_slice body)
{
    uint8_t *offsets = record + layout->bodies_at;

    QS_DCHECK(layout->row_count == 1 &&
              (layout->flags & (QSI_MESSAGES_PROPERTIES_PER_ROW | QSI_MESSAGES_HAS_STORED |
                                QSI_MESSAGES_ALIGNED)) == 0);
    qsi_put_u32(offsets, 0);
    qsi_put_u32(offsets + 4, body.bytes);
    qsi_slice_put(offsets + 8, body);
}
/* The place of the bitmap of stored bodies. */
uint8_t *qsi_messages_stored_place(uint8_t *record, const struct qsi_messages_layout *layout);
uint8_t *qsi_messages_body_offsets_place(uint8_t *record, const struct qsi_messages_layout *layout);
uint8_t *qsi_messages_bodies_place(uint8_t *record, const struct qsi_messages_layout *layout);

/* ---- rows, in order: properties and body ---- */

struct qsi_messages_writer {
    uint8_t *stored; /* the bitmap */
    uint8_t *property_offsets, *blobs;
    uint8_t *body_offsets, *bodies;
    uint32_t row;
    uint32_t blob_at, body_at;
    bool per_row_properties;
};
static inline void qsi_messages_writer_begin(struct qsi_messages_writer *writer_out,
                                             uint8_t *record,
                                             const struct qsi_messages_layout *layout)
{
    uint8_t *properties = qsi_messages_properties_place(record, layout);
    uint8_t *stored = record + layout->bodies_at;
    uint8_t *offsets = stored + qsi_stored_bytes(layout->flags, layout->row_count);

    *writer_out = (struct qsi_messages_writer){
        .stored = stored,
        .property_offsets = properties,
        .blobs = properties + qsi_offsets_bytes(layout->row_count),
        .body_offsets = offsets,
        .bodies = offsets + qsi_body_offsets_bytes(layout->flags, layout->row_count),
        .per_row_properties = (layout->flags & QSI_MESSAGES_PROPERTIES_PER_ROW) != 0,
    };
    qsi_put_u32(offsets, 0);
    if (writer_out->per_row_properties) {
        qsi_put_u32(properties, 0);
    }
}
/* Makes room for the next row's properties.  REQUIRES that rows have their own, and at most one
 * call for each row, before its body; without a call a row has none. */
static inline uint8_t *qsi_messages_write_properties(struct qsi_messages_writer *writer,
                                                     uint32_t bytes)
{
    uint8_t *at = writer->blobs + writer->blob_at;

    writer->blob_at += bytes;
    return at;
}
/* Makes room for the cell of the next row's body. */
static inline uint8_t *qsi_messages_write_cell(struct qsi_messages_writer *writer, uint32_t bytes)
{
    uint8_t *at = writer->bodies + writer->body_at;

    writer->body_at += bytes;
    writer->row += 1;
    qsi_put_u32(writer->body_offsets + 4 * (size_t)writer->row, writer->body_at);
    if (writer->per_row_properties) {
        qsi_put_u32(writer->property_offsets + 4 * (size_t)writer->row, writer->blob_at);
    }
    return at;
}
static inline void qsi_messages_write_body(struct qsi_messages_writer *writer,
                                           struct qsi_slice body)
{
    qsi_slice_put(qsi_messages_write_cell(writer, body.bytes), body);
}
/* Writes the cell of a body in the message store.  REQUIRES the bitmap. */
void qsi_messages_write_ref(struct qsi_messages_writer *writer, const struct qsi_body_ref *ref);
/* Writes the cell of a damaged message.  REQUIRES the bitmap. */
void qsi_messages_write_damage(struct qsi_messages_writer *writer,
                               const struct qsi_body_damage *damage);

#endif
