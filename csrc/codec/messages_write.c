/* Layout and writing of messages records. */
#include "messages_write.h"

#include "check.h"
#include "error.h"
#include "messages_columns.h"
#include "record_head.h"

static inline void place_columns(struct qsi_messages_layout *layout, uint8_t flags)
{
    uint64_t at = QSI_MESSAGES_HEADER_BYTES +
                  (uint64_t)layout->destination_count * QSI_MESSAGES_DESTINATION_BYTES;

    layout->routes_at = at;
    at = qsi_column_bytes(flags, at + 4 * (uint64_t)layout->route_count + layout->routes_bytes);
    layout->row_routes_at = at;
    at += qsi_column_bytes(flags, (uint64_t)layout->row_count * layout->row_route_width);
    layout->expirations_at = at;
    at += qsi_expirations_bytes(flags, layout->row_count);
    layout->dues_at = at;
    at += qsi_dues_bytes(flags, layout->row_count);
    layout->properties_at = at;
    at += (flags & QSI_MESSAGES_PROPERTIES_PER_ROW) != 0 ? qsi_offsets_bytes(layout->row_count) : 4;
    at = qsi_column_bytes(flags, at + layout->properties_bytes);
    layout->bodies_at = at;
    at += qsi_stored_bytes(flags, layout->row_count) +
          qsi_body_offsets_bytes(flags, layout->row_count) + layout->bodies_bytes;
    layout->record_bytes = qsi_record_align(at);
    QS_DCHECK(layout->record_bytes >= layout->bodies_at && layout->bodies_at > layout->routes_at);
}

qs_status qsi_messages_layout(struct qsi_messages_layout *layout, qs_error *error)
{
    QS_DCHECK(layout->row_count > 0 && layout->route_count > 0);
    layout->row_route_width = qsi_code_width(layout->route_count);
    place_columns(layout, (uint8_t)(layout->flags & ~QSI_MESSAGES_ALIGNED));
    if (layout->row_count > 1 && layout->record_bytes >= QSI_MESSAGES_ALIGN_FROM) {
        layout->flags |= QSI_MESSAGES_ALIGNED;
    }
    if (QS_UNLIKELY((layout->flags & QSI_MESSAGES_ALIGNED) != 0)) {
        place_columns(layout, layout->flags);
    }
    if (layout->record_bytes > UINT32_MAX) {
        return qsi_fail(error, QS_EINVAL, "a record of %llu bytes is more than 4 GiB",
                        (unsigned long long)layout->record_bytes);
    }
    return QS_OK;
}

/* Writes zeros before each place where a column begins; the column's own bytes are written over
 * them. */
static void clear_gaps(uint8_t *record, const struct qsi_messages_layout *layout)
{
    uint64_t offsets_at = layout->bodies_at + qsi_stored_bytes(layout->flags, layout->row_count);
    const uint64_t places[] = {
        layout->row_routes_at,
        layout->expirations_at,
        layout->dues_at,
        layout->properties_at,
        layout->bodies_at,
        offsets_at,
        offsets_at + qsi_body_offsets_bytes(layout->flags, layout->row_count),
    };

    QS_DCHECK(layout->row_routes_at >= QSI_MESSAGES_ALIGN_TO);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        memset(record + places[i] - QSI_MESSAGES_ALIGN_TO, 0, QSI_MESSAGES_ALIGN_TO);
    }
}

void qsi_messages_begin(uint8_t *record, const struct qsi_messages_layout *layout)
{
    QS_DCHECK(layout->record_bytes <= UINT32_MAX && layout->row_count > 0);
    QS_ASSERT(layout->record_bytes % QSI_RECORD_ALIGN == 0);
    if ((layout->flags & QSI_MESSAGES_ALIGNED) != 0) {
        clear_gaps(record, layout);
    }
    qsi_record_put_head(record, (uint32_t)layout->record_bytes, QSI_RECORD_MESSAGES, layout->flags);
    record[6] = layout->row_route_width;
    qsi_put_u32(record + 8, layout->row_count);
    qsi_put_u32(record + 12, layout->route_count);
    qsi_put_u32(record + 16, layout->destination_count);
    qsi_put_u32(record + 20, (uint32_t)layout->routes_at);
    qsi_put_u32(record + 24, (uint32_t)layout->row_routes_at);
    qsi_put_u32(record + 28, (uint32_t)layout->properties_at);
    qsi_put_u32(record + 32, (uint32_t)layout->bodies_at);
    qsi_put_u32(record + 36, 0);
    qsi_messages_put_time(record, 0);
    memset(record + layout->record_bytes - QSI_RECORD_ALIGN, 0, QSI_RECORD_ALIGN);
    if ((layout->flags & QSI_MESSAGES_HAS_STORED) != 0) {
        memset(record + layout->bodies_at, 0, qsi_stored_bytes(layout->flags, layout->row_count));
    }
}

void qsi_messages_put_row_routes(uint8_t *record, const struct qsi_messages_layout *layout,
                                 const uint32_t *codes)
{
    uint8_t *at = record + layout->row_routes_at;

    QS_DCHECK(layout->route_count > 0);
    QS_DCHECK(layout->row_route_width == qsi_code_width(layout->route_count));
    switch (layout->row_route_width) {
    case 0:
        return;
    case 1:
        for (uint32_t row = 0; row < layout->row_count; row++) {
            at[row] = (uint8_t)codes[row];
        }
        return;
    case 2:
        for (uint32_t row = 0; row < layout->row_count; row++) {
            qsi_put_u16(at + 2 * (size_t)row, (uint16_t)codes[row]);
        }
        return;
    default:
        for (uint32_t row = 0; row < layout->row_count; row++) {
            qsi_put_u32(at + 4 * (size_t)row, codes[row]);
        }
    }
}

uint8_t *qsi_messages_stored_place(uint8_t *record, const struct qsi_messages_layout *layout)
{
    return record + layout->bodies_at;
}

uint8_t *qsi_messages_body_offsets_place(uint8_t *record, const struct qsi_messages_layout *layout)
{
    return record + layout->bodies_at + qsi_stored_bytes(layout->flags, layout->row_count);
}

uint8_t *qsi_messages_bodies_place(uint8_t *record, const struct qsi_messages_layout *layout)
{
    return qsi_messages_body_offsets_place(record, layout) +
           qsi_body_offsets_bytes(layout->flags, layout->row_count);
}

/* ---- rows ---- */

static void mark_stored(struct qsi_messages_writer *writer)
{
    QS_DCHECK(writer->stored != NULL);
    writer->stored[writer->row / 8] |= (uint8_t)(1u << (writer->row % 8));
}

void qsi_messages_write_ref(struct qsi_messages_writer *writer, const struct qsi_body_ref *ref)
{
    mark_stored(writer);
    qsi_body_ref_encode(qsi_messages_write_cell(writer, QSI_BODY_REF_BYTES), ref);
}

void qsi_messages_write_damage(struct qsi_messages_writer *writer,
                               const struct qsi_body_damage *damage)
{
    mark_stored(writer);
    qsi_body_damage_encode(qsi_messages_write_cell(writer, QSI_BODY_DAMAGE_BYTES), damage);
}
