/* Only the begin of the blob is parsed: at most two short strings are before the headers. */
#include "stream_offset.h"

#include "check.h"
#include "field_table.h"
#include "properties.h"

#include <string.h>

#define NAME "x-stream-offset"

static uint8_t *put(uint8_t *at, const uint8_t *data, size_t bytes)
{
    if (bytes > 0) {
        memcpy(at, data, bytes);
    }
    return at + bytes;
}

static uint8_t *put_big(uint8_t *at, uint64_t value, uint32_t bytes)
{
    QS_DCHECK(bytes <= sizeof value);
    for (uint32_t i = 0; i < bytes; i++) {
        at[i] = (uint8_t)(value >> (8 * (bytes - 1 - i)));
    }
    return at + bytes;
}

/* The place of the headers' length, or where it would be. */
static uint32_t find_headers(struct qsi_slice blob, uint16_t flags)
{
    uint32_t at = 2;

    for (uint32_t i = 0; i < QSI_PROPERTY_HEADERS; i++) {
        if ((flags & qsi_property_flag((enum qsi_property)i)) != 0) {
            QS_ASSERT(at < blob.bytes);
            at += 1u + blob.data[at];
        }
    }
    QS_ASSERT(at <= blob.bytes);
    return at;
}

/* Writes the entries except the one of this name. */
static uint8_t *put_others(uint8_t *at, struct qsi_slice headers)
{
    struct qsi_field_walk walk = qsi_table_walk(headers);
    struct qsi_field field;
    const uint8_t *begin = walk.at;

    while (qsi_field_next(&walk, &field)) {
        if (!qsi_slice_equals(field.name, QSI_SLICE_LITERAL(NAME))) {
            at = put(at, begin, (size_t)(walk.at - begin));
        }
        begin = walk.at;
    }
    return at;
}

uint32_t qsi_stream_offset_put(uint8_t *properties_out, struct qsi_slice properties,
                               uint64_t offset)
{
    static const uint8_t none[2] = {0, 0};
    struct qsi_slice blob =
        properties.bytes >= 2 ? properties : qsi_slice_make(none, (uint32_t)sizeof none);
    uint16_t flags = (uint16_t)(blob.data[0] << 8 | blob.data[1]);
    struct qsi_slice headers = qsi_properties_headers(blob.data, blob.bytes);
    uint32_t before = find_headers(blob, flags), behind = before;
    uint8_t *at, *table;

    if ((flags & qsi_property_flag(QSI_PROPERTY_HEADERS)) != 0) {
        QS_ASSERT(headers.data != NULL);
        behind = before + 4 + headers.bytes;
    }
    flags |= qsi_property_flag(QSI_PROPERTY_HEADERS);
    QS_DCHECK(before >= 2 && behind <= blob.bytes);
    at = put_big(properties_out, flags, 2);
    at = put(at, blob.data + 2, before - 2);
    table = at + 4;
    at = headers.bytes > 0 ? put_others(table, headers) : table;
    *at++ = sizeof NAME - 1;
    at = put(at, (const uint8_t *)NAME, sizeof NAME - 1);
    *at++ = 'l';
    at = put_big(at, offset, 8);
    put_big(table - 4, (uint64_t)(at - table), 4);
    at = put(at, blob.data + behind, blob.bytes - behind);
    QS_ASSERT((uint64_t)(at - properties_out) <=
              (uint64_t)properties.bytes + QSI_STREAM_OFFSET_BYTES_MAX);
    return (uint32_t)(at - properties_out);
}
