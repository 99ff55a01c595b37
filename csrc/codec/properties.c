/* The AMQP encoding of a message's properties. */
#include "properties.h"

#include "qstore/codec.h"

#include "check.h"
#include "cursor.h"
#include "error.h"
#include "field_table.h"
#include "le.h"

#define FLAGS_BYTES 2
/* Bit 0 announces more flags, which basic messages do not have; bit 1 is unused. */
#define FLAGS_UNKNOWN 3u

const char *qsi_property_name(enum qsi_property property)
{
    static const char *const names[QSI_PROPERTY_COUNT] = {
        "content_type",   "content_encoding", "headers",    "delivery_mode", "priority",
        "correlation_id", "reply_to",         "expiration", "message_id",    "timestamp",
        "type",           "user_id",          "app_id",     "cluster_id"};

    QS_ASSERT(property < QSI_PROPERTY_COUNT);
    return names[property];
}

/* The first property in a set of flags. */
static enum qsi_property first_property(uint16_t flags)
{
    QS_DCHECK(flags != 0);
    return (enum qsi_property)(__builtin_clz(flags) - 16);
}

static bool take_flags(struct qsi_cursor *cursor, uint16_t *flags_out)
{
    const uint8_t *flags = qsi_take(cursor, FLAGS_BYTES);

    if (flags == NULL) {
        return false;
    }
    *flags_out = qsi_get_be16(flags);
    return (*flags_out & FLAGS_UNKNOWN) == 0;
}

static bool take_property(struct qsi_cursor *cursor, enum qsi_property property,
                          struct qsi_properties *properties)
{
    const uint8_t *number;

    switch (property) {
    case QSI_PROPERTY_HEADERS:
        return qsi_take_long_string(cursor, &properties->text[property]) &&
               qsi_table_check(properties->text[property]);
    case QSI_PROPERTY_DELIVERY_MODE:
        number = qsi_take(cursor, 1);
        properties->delivery_mode = number == NULL ? 0 : *number;
        return number != NULL;
    case QSI_PROPERTY_PRIORITY:
        number = qsi_take(cursor, 1);
        properties->priority = number == NULL ? 0 : *number;
        return number != NULL;
    case QSI_PROPERTY_TIMESTAMP:
        number = qsi_take(cursor, 8);
        properties->timestamp = number == NULL ? 0 : qsi_get_be64(number);
        return number != NULL;
    default:
        return qsi_take_short_string(cursor, &properties->text[property]);
    }
}

qs_status qsi_properties_decode(struct qsi_properties *properties_out, const uint8_t *blob,
                                uint32_t blob_bytes, qs_error *error)
{
    struct qsi_cursor cursor = {blob, blob + blob_bytes};
    uint16_t flags;

    properties_out->present = 0;
    if (blob_bytes == 0) {
        return QS_OK;
    }
    if (!take_flags(&cursor, &flags)) {
        return qsi_fail(error, QS_ECORRUPT, "message properties: no valid flags in %u bytes",
                        blob_bytes);
    }
    while (flags != 0) {
        enum qsi_property property = first_property(flags);

        if (!take_property(&cursor, property, properties_out)) {
            return qsi_fail(error, QS_ECORRUPT,
                            "message properties: %s is damaged or cut off (%u bytes in all)",
                            qsi_property_name(property), blob_bytes);
        }
        QS_DCHECK((properties_out->present & qsi_property_flag(property)) == 0);
        properties_out->present |= qsi_property_flag(property);
        flags &= (uint16_t)~qsi_property_flag(property);
    }
    if (cursor.at != cursor.end) {
        return qsi_fail(error, QS_ECORRUPT, "message properties: %zu bytes after the last one",
                        qsi_cursor_left(&cursor));
    }
    return QS_OK;
}

qs_status qs_properties_check(const void *blob, size_t blob_bytes, qs_error *error)
{
    struct qsi_properties properties;

    if (blob_bytes > UINT32_MAX) {
        return qsi_fail(error, QS_ECORRUPT,
                        "message properties: %zu bytes, more than 32 bits can tell", blob_bytes);
    }
    return qsi_properties_decode(&properties, blob, (uint32_t)blob_bytes, error);
}

static bool is_number(enum qsi_property property)
{
    return property == QSI_PROPERTY_DELIVERY_MODE || property == QSI_PROPERTY_PRIORITY ||
           property == QSI_PROPERTY_TIMESTAMP;
}

uint64_t qsi_properties_bytes(const struct qsi_properties *properties)
{
    uint64_t bytes = FLAGS_BYTES;

    QS_DCHECK((properties->present & FLAGS_UNKNOWN) == 0);
    if (properties->present == 0) {
        return 0;
    }
    for (uint16_t flags = properties->present; flags != 0;) {
        enum qsi_property property = first_property(flags);

        flags &= (uint16_t)~qsi_property_flag(property);
        if (property == QSI_PROPERTY_TIMESTAMP) {
            bytes += 8;
        } else if (is_number(property)) {
            bytes += 1;
        } else {
            bytes += (property == QSI_PROPERTY_HEADERS ? 4u : 1u) +
                     (uint64_t)properties->text[property].bytes;
        }
    }
    return bytes;
}

/* Writes length and table, or leaves room for the table: see the header. */
static uint8_t *put_headers(uint8_t *out, struct qsi_slice table)
{
    qsi_put_be32(out, table.bytes);
    if (table.data == NULL) {
        return out + 4 + table.bytes;
    }
    return qsi_put_bytes(out + 4, table);
}

uint8_t *qsi_properties_encode(uint8_t *blob_out, const struct qsi_properties *properties)
{
    uint8_t *out = blob_out;
    uint8_t *table = NULL;

    if (properties->present == 0) {
        return NULL;
    }
    QS_ASSERT((properties->present & FLAGS_UNKNOWN) == 0);
    qsi_put_be16(out, properties->present);
    out += FLAGS_BYTES;
    for (uint16_t flags = properties->present; flags != 0;) {
        enum qsi_property property = first_property(flags);

        flags &= (uint16_t)~qsi_property_flag(property);
        switch (property) {
        case QSI_PROPERTY_HEADERS:
            table = out + 4;
            out = put_headers(out, properties->text[property]);
            break;
        case QSI_PROPERTY_DELIVERY_MODE:
            *out++ = properties->delivery_mode;
            break;
        case QSI_PROPERTY_PRIORITY:
            *out++ = properties->priority;
            break;
        case QSI_PROPERTY_TIMESTAMP:
            qsi_put_be64(out, properties->timestamp);
            out += 8;
            break;
        default:
            out = qsi_put_short_string(out, properties->text[property]);
        }
    }
    QS_DCHECK((uint64_t)(out - blob_out) == qsi_properties_bytes(properties));
    return table;
}

/* Moves the cursor to a property's value, and skips those before it. */
static bool find_property(struct qsi_cursor *cursor, enum qsi_property wanted)
{
    struct qsi_slice skipped;
    uint16_t flags;

    if (!take_flags(cursor, &flags) || (flags & qsi_property_flag(wanted)) == 0) {
        return false;
    }
    for (;;) {
        enum qsi_property property = first_property(flags);
        bool taken;

        if (property == wanted) {
            return true;
        }
        flags &= (uint16_t)~qsi_property_flag(property);
        if (property == QSI_PROPERTY_HEADERS) {
            taken = qsi_take_long_string(cursor, &skipped);
        } else if (is_number(property)) {
            taken = qsi_take(cursor, property == QSI_PROPERTY_TIMESTAMP ? 8 : 1) != NULL;
        } else {
            taken = qsi_take_short_string(cursor, &skipped);
        }
        if (!taken) {
            return false;
        }
    }
}

static uint8_t find_octet(const uint8_t *blob, uint32_t blob_bytes, enum qsi_property property)
{
    struct qsi_cursor cursor = {blob, blob + blob_bytes};
    const uint8_t *octet = find_property(&cursor, property) ? qsi_take(&cursor, 1) : NULL;

    return octet == NULL ? 0 : *octet;
}

uint8_t qsi_properties_delivery_mode(const uint8_t *blob, uint32_t blob_bytes)
{
    return find_octet(blob, blob_bytes, QSI_PROPERTY_DELIVERY_MODE);
}

uint8_t qsi_properties_priority(const uint8_t *blob, uint32_t blob_bytes)
{
    return find_octet(blob, blob_bytes, QSI_PROPERTY_PRIORITY);
}

struct qsi_slice qsi_properties_expiration(const uint8_t *blob, uint32_t blob_bytes)
{
    struct qsi_cursor cursor = {blob, blob + blob_bytes};
    struct qsi_slice expiration;

    if (find_property(&cursor, QSI_PROPERTY_EXPIRATION) &&
        qsi_take_short_string(&cursor, &expiration)) {
        return expiration;
    }
    return QSI_SLICE_NULL;
}

struct qsi_slice qsi_properties_headers(const uint8_t *blob, uint32_t blob_bytes)
{
    struct qsi_cursor cursor = {blob, blob + blob_bytes};
    struct qsi_slice headers;

    if (find_property(&cursor, QSI_PROPERTY_HEADERS) && qsi_take_long_string(&cursor, &headers)) {
        return headers;
    }
    return QSI_SLICE_NULL;
}

qs_status qsi_expiration_parse(struct qsi_slice text, uint32_t *ms_out, qs_error *error)
{
    uint64_t ms = 0;

    for (uint32_t i = 0; i < text.bytes && ms <= QSI_EXPIRATION_MS_MAX; i++) {
        uint8_t digit = (uint8_t)(text.data[i] - '0');
        ms = digit <= 9 ? 10 * ms + digit : UINT64_MAX;
    }
    if (text.bytes == 0 || ms > QSI_EXPIRATION_MS_MAX) {
        return qsi_fail(error, QS_PRECONDITION_FAILED,
                        "invalid expiration '%.*s': milliseconds as a decimal number, %u at most",
                        (int)text.bytes, (const char *)text.data, QSI_EXPIRATION_MS_MAX);
    }
    *ms_out = (uint32_t)ms;
    return QS_OK;
}
