/* The AMQP property encoding.  Invariant: a cursor's `at` never passes its `end`, and every length is compared
 * with what is left before it is used. */
#include "properties.h"

#include "qstore/codec.h"

#include "check.h"
#include "error.h"
#include "le.h"

#define FLAGS_BYTES 2
#define FLAGS_UNKNOWN \
    3u /* bit 0 announces more flags, which basic messages do not have; bit 1 is unused */

struct cursor {
    const uint8_t *at;
    const uint8_t *end;
};

const char *qsi_property_name(enum qsi_property property)
{
    static const char *const names[QSI_PROPERTY_COUNT] = {
        "content_type",   "content_encoding", "headers",    "delivery_mode", "priority",
        "correlation_id", "reply_to",         "expiration", "message_id",    "timestamp",
        "type",           "user_id",          "app_id",     "cluster_id"};

    QS_ASSERT(property < QSI_PROPERTY_COUNT);
    return names[property];
}

static size_t left(const struct cursor *cursor)
{
    return (size_t)(cursor->end - cursor->at);
}

/* The next bytes, or NULL when there are fewer. */
static const uint8_t *take(struct cursor *cursor, size_t bytes)
{
    const uint8_t *taken = cursor->at;

    if (left(cursor) < bytes) {
        return NULL;
    }
    cursor->at += bytes;
    return taken;
}

static bool take_short_string(struct cursor *cursor, struct qsi_slice *string_out)
{
    const uint8_t *length = take(cursor, 1);
    const uint8_t *data = length == NULL ? NULL : take(cursor, *length);

    if (data == NULL) {
        return false;
    }
    *string_out = qsi_slice_make(data, *length);
    return true;
}

/* Bytes behind a 32-bit length: long strings, tables, arrays. */
static bool take_long_string(struct cursor *cursor, struct qsi_slice *string_out)
{
    const uint8_t *length = take(cursor, 4);
    const uint8_t *data = length == NULL ? NULL : take(cursor, qsi_get_be32(length));

    if (data == NULL) {
        return false;
    }
    *string_out = qsi_slice_make(data, qsi_get_be32(length));
    return true;
}

/* The first property of a set of flags. */
static enum qsi_property first_property(uint16_t flags)
{
    return (enum qsi_property)(__builtin_clz(flags) - 16);
}

static bool take_flags(struct cursor *cursor, uint16_t *flags_out)
{
    const uint8_t *flags = take(cursor, FLAGS_BYTES);

    if (flags == NULL) {
        return false;
    }
    *flags_out = qsi_get_be16(flags);
    return (*flags_out & FLAGS_UNKNOWN) == 0;
}

static bool take_property(struct cursor *cursor, enum qsi_property property,
                          struct qsi_properties *properties)
{
    const uint8_t *number;

    switch (property) {
    case QSI_PROPERTY_HEADERS:
        return take_long_string(cursor, &properties->text[property]) &&
               qsi_table_check(properties->text[property]);
    case QSI_PROPERTY_DELIVERY_MODE:
        number = take(cursor, 1);
        properties->delivery_mode = number == NULL ? 0 : *number;
        return number != NULL;
    case QSI_PROPERTY_PRIORITY:
        number = take(cursor, 1);
        properties->priority = number == NULL ? 0 : *number;
        return number != NULL;
    case QSI_PROPERTY_TIMESTAMP:
        number = take(cursor, 8);
        properties->timestamp = number == NULL ? 0 : qsi_get_be64(number);
        return number != NULL;
    default:
        return take_short_string(cursor, &properties->text[property]);
    }
}

qs_status qsi_properties_decode(struct qsi_properties *properties_out, const uint8_t *blob,
                                uint32_t blob_bytes, qs_error *error)
{
    struct cursor cursor = {blob, blob + blob_bytes};
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
        properties_out->present |= qsi_property_flag(property);
        flags &= (uint16_t)~qsi_property_flag(property);
    }
    if (cursor.at != cursor.end) {
        return qsi_fail(error, QS_ECORRUPT, "message properties: %zu bytes after the last one",
                        left(&cursor));
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

qs_status qsi_properties_check(const struct qsi_properties *properties, qs_error *error)
{
    for (uint16_t flags = properties->present; flags != 0;) {
        enum qsi_property property = first_property(flags);
        struct qsi_slice text = properties->text[property];

        flags &= (uint16_t)~qsi_property_flag(property);
        if (is_number(property)) {
            continue;
        }
        if (property == QSI_PROPERTY_HEADERS) {
            if (!qsi_table_check(text)) {
                return qsi_fail(error, QS_EINVAL, "headers: not a well-formed field table");
            }
        } else if (text.bytes > QSI_SHORTSTR_BYTES_MAX) {
            return qsi_fail(error, QS_EINVAL, "%s: %u bytes, at most %d are possible",
                            qsi_property_name(property), text.bytes, QSI_SHORTSTR_BYTES_MAX);
        }
    }
    return QS_OK;
}

uint64_t qsi_properties_bytes(const struct qsi_properties *properties)
{
    uint64_t bytes = FLAGS_BYTES;

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

static uint8_t *put_bytes(uint8_t *out, struct qsi_slice bytes)
{
    qsi_copy_short(out, bytes.data, bytes.bytes);
    return out + bytes.bytes;
}

static uint8_t *put_short_string(uint8_t *out, struct qsi_slice string)
{
    QS_ASSERT(string.bytes <= QSI_SHORTSTR_BYTES_MAX);
    *out = (uint8_t)string.bytes;
    return put_bytes(out + 1, string);
}

/* The length word and the table, or room for it: see the header. */
static uint8_t *put_headers(uint8_t *out, struct qsi_slice table)
{
    qsi_put_be32(out, table.bytes);
    if (table.data == NULL) {
        return out + 4 + table.bytes;
    }
    return put_bytes(out + 4, table);
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
            out = put_short_string(out, properties->text[property]);
        }
    }
    return table;
}

/* Puts the cursor on a property's value, skipping those before it. */
static bool find_property(struct cursor *cursor, enum qsi_property wanted)
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
            taken = take_long_string(cursor, &skipped);
        } else if (is_number(property)) {
            taken = take(cursor, property == QSI_PROPERTY_TIMESTAMP ? 8 : 1) != NULL;
        } else {
            taken = take_short_string(cursor, &skipped);
        }
        if (!taken) {
            return false;
        }
    }
}

static uint8_t find_octet(const uint8_t *blob, uint32_t blob_bytes, enum qsi_property property)
{
    struct cursor cursor = {blob, blob + blob_bytes};
    const uint8_t *octet = find_property(&cursor, property) ? take(&cursor, 1) : NULL;

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
    struct cursor cursor = {blob, blob + blob_bytes};
    struct qsi_slice expiration;

    if (find_property(&cursor, QSI_PROPERTY_EXPIRATION) &&
        take_short_string(&cursor, &expiration)) {
        return expiration;
    }
    return QSI_SLICE_NULL;
}

struct qsi_slice qsi_properties_headers(const uint8_t *blob, uint32_t blob_bytes)
{
    struct cursor cursor = {blob, blob + blob_bytes};
    struct qsi_slice headers;

    if (find_property(&cursor, QSI_PROPERTY_HEADERS) && take_long_string(&cursor, &headers)) {
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

#define VALUE_BYTES_COUNTED -1 /* a 32-bit length comes first */
#define VALUE_BYTES_UNKNOWN -2

static int value_bytes(uint8_t type)
{
    switch (type) {
    case 'V':
        return 0;
    case 't':
    case 'b':
    case 'B':
        return 1;
    case 's':
    case 'u':
        return 2;
    case 'I':
    case 'i':
    case 'f':
        return 4;
    case 'D':
        return 5;
    case 'l':
    case 'd':
    case 'T':
        return 8;
    case 'S':
    case 'x':
    case 'A':
    case 'F':
        return VALUE_BYTES_COUNTED;
    default:
        return VALUE_BYTES_UNKNOWN;
    }
}

static bool take_value(struct cursor *cursor, struct qsi_field *field)
{
    const uint8_t *type = take(cursor, 1);
    const uint8_t *value;
    int bytes;

    if (type == NULL) {
        return false;
    }
    field->type = *type;
    bytes = value_bytes(*type);
    if (bytes == VALUE_BYTES_COUNTED) {
        return take_long_string(cursor, &field->value);
    }
    if (bytes == VALUE_BYTES_UNKNOWN) {
        return false;
    }
    value = take(cursor, (size_t)bytes);
    field->value = qsi_slice_make(value, (uint32_t)bytes);
    return value != NULL;
}

bool qsi_field_next(struct qsi_field_walk *walk, struct qsi_field *field_out)
{
    struct cursor cursor = {walk->at, walk->end};

    if (walk->at == walk->end) {
        return false;
    }
    field_out->name = QSI_SLICE_NULL;
    if ((walk->named && !take_short_string(&cursor, &field_out->name)) ||
        !take_value(&cursor, field_out)) {
        walk->malformed = true;
        return false;
    }
    walk->at = cursor.at;
    return true;
}

static struct qsi_number number_of(int64_t value)
{
    return (struct qsi_number){(uint64_t)value, value < 0};
}

bool qsi_field_integer(const struct qsi_field *field, struct qsi_number *number_out)
{
    const uint8_t *value = field->value.data;

    switch (field->type) {
    case 'b':
        *number_out = number_of((int8_t)*value);
        return true;
    case 'B':
        *number_out = number_of(*value);
        return true;
    case 's':
        *number_out = number_of((int16_t)qsi_get_be16(value));
        return true;
    case 'u':
        *number_out = number_of(qsi_get_be16(value));
        return true;
    case 'I':
        *number_out = number_of((int32_t)qsi_get_be32(value));
        return true;
    case 'i':
        *number_out = number_of(qsi_get_be32(value));
        return true;
    case 'l':
        *number_out = number_of((int64_t)qsi_get_be64(value));
        return true;
    case 'T':
        *number_out = (struct qsi_number){qsi_get_be64(value), false};
        return true;
    default:
        return false;
    }
}

bool qsi_table_find(struct qsi_slice table, struct qsi_slice name, struct qsi_field *field_out)
{
    struct qsi_field_walk walk = qsi_table_walk(table);

    while (qsi_field_next(&walk, field_out)) {
        if (qsi_slice_equals(field_out->name, name)) {
            return true;
        }
    }
    return false;
}

bool qsi_table_check(struct qsi_slice table)
{
    struct qsi_field_walk levels[QSI_FIELD_DEPTH_MAX];
    struct qsi_field field;
    unsigned depth = 0;

    levels[0] = qsi_table_walk(table);
    for (;;) {
        if (qsi_field_next(&levels[depth], &field)) {
            if (field.type != 'F' && field.type != 'A') {
                continue;
            }
            if (depth + 1 == QSI_FIELD_DEPTH_MAX) {
                return false;
            }
            levels[++depth] =
                field.type == 'F' ? qsi_table_walk(field.value) : qsi_array_walk(field.value);
        } else if (levels[depth].malformed) {
            return false;
        } else if (depth-- == 0) {
            return true;
        }
    }
}

uint64_t qsi_table_string_bytes(struct qsi_slice name, struct qsi_slice value)
{
    return 1 + (uint64_t)name.bytes + 1 +
           (qsi_slice_is_null(value) ? 0 : 4 + (uint64_t)value.bytes);
}

uint8_t *qsi_table_string_put(uint8_t *out, struct qsi_slice name, struct qsi_slice value)
{
    out = put_short_string(out, name);
    if (qsi_slice_is_null(value)) {
        *out++ = 'V';
        return out;
    }
    *out++ = 'S';
    qsi_put_be32(out, value.bytes);
    return put_bytes(out + 4, value);
}
