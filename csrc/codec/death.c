/* Field tables with an additional death. */
#include "death.h"

#include "check.h"
#include "field_table.h"
#include "le.h"
#include "properties.h"

#include <string.h>

static bool is_named(const struct qsi_field *field, const char *name)
{
    return qsi_slice_equals(field->name, qsi_slice_make(name, (uint32_t)strlen(name)));
}

/* ---- writing: the first failure is kept until the end ---- */

struct writer {
    struct qsi_buf *out;
    bool failed;
};

static void put(struct writer *writer, const void *data, size_t bytes)
{
    if (!writer->failed && bytes > 0) {
        writer->failed = qsi_buf_append(writer->out, data, bytes) != QS_OK;
    }
}

static void put_be32(struct writer *writer, uint32_t value)
{
    const uint8_t bytes[4] = {(uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8),
                              (uint8_t)value};

    put(writer, bytes, sizeof bytes);
}

static void put_be64(struct writer *writer, uint64_t value)
{
    put_be32(writer, (uint32_t)(value >> 32));
    put_be32(writer, (uint32_t)value);
}

static void put_name(struct writer *writer, struct qsi_slice name, char type)
{
    const uint8_t length = (uint8_t)name.bytes;

    QS_DCHECK(name.bytes <= UINT8_MAX);
    put(writer, &length, 1);
    put(writer, name.data, name.bytes);
    put(writer, &type, 1);
}

static void put_sized(struct writer *writer, struct qsi_slice value)
{
    put_be32(writer, value.bytes);
    put(writer, value.data, value.bytes);
}

static void put_text(struct writer *writer, const char *name, struct qsi_slice value)
{
    put_name(writer, qsi_slice_make(name, (uint32_t)strlen(name)), 'S');
    put_sized(writer, value);
}

/* Copies a field unchanged. */
static void put_value(struct writer *writer, const struct qsi_field *field)
{
    if (strchr("SxAF", field->type) != NULL) {
        put_sized(writer, field->value);
    } else {
        put(writer, field->value.data, field->value.bytes);
    }
}

static void put_field(struct writer *writer, const struct qsi_field *field)
{
    put_name(writer, field->name, (char)field->type);
    put_value(writer, field);
}

/* Begins a value with a length in front; returns the place of the length. */
static size_t begin_sized(struct writer *writer)
{
    size_t at = writer->out->bytes;

    put_be32(writer, 0);
    return at;
}

static void end_sized(struct writer *writer, size_t at)
{
    if (!writer->failed) {
        QS_DCHECK(writer->out->bytes >= at + 4);
        uint32_t bytes = (uint32_t)(writer->out->bytes - at - 4);
        for (int i = 0; i < 4; i++) {
            writer->out->data[at + (size_t)i] = (uint8_t)(bytes >> (24 - 8 * i));
        }
    }
}

/* ---- reading ---- */

static bool has_text(struct qsi_slice table, const char *name, struct qsi_slice text)
{
    struct qsi_field field;

    return qsi_table_find(table, qsi_slice_make(name, (uint32_t)strlen(name)), &field) &&
           field.type == 'S' && qsi_slice_equals(field.value, text);
}

/* The deaths in the headers; a null slice: there are none, or the header is invalid. */
static struct qsi_slice deaths_of(struct qsi_slice headers)
{
    struct qsi_field field;

    return headers.data != NULL && qsi_table_find(headers, QSI_SLICE_LITERAL("x-death"), &field) &&
                   field.type == 'A'
               ? field.value
               : QSI_SLICE_NULL;
}

/* ---- adding a death ---- */

/* Writes the routing key, and those of the CC header. */
static void put_routing_keys(struct writer *writer, const struct qsi_death *death,
                             struct qsi_slice headers)
{
    struct qsi_field cc, key;
    size_t at;

    put_name(writer, QSI_SLICE_LITERAL("routing-keys"), 'A');
    at = begin_sized(writer);
    put(writer, "S", 1);
    put_sized(writer, death->key);
    if (headers.data != NULL && qsi_table_find(headers, QSI_SLICE_LITERAL("CC"), &cc) &&
        cc.type == 'A') {
        struct qsi_field_walk walk = qsi_array_walk(cc.value);
        while (qsi_field_next(&walk, &key)) {
            if (key.type == 'S') {
                put(writer, "S", 1);
                put_sized(writer, key.value);
            }
        }
    }
    end_sized(writer, at);
}

static void put_count(struct writer *writer, uint64_t count)
{
    put_name(writer, QSI_SLICE_LITERAL("count"), 'l');
    put_be64(writer, count);
}

static void put_first_death(struct writer *writer, const struct qsi_death *death,
                            struct qsi_slice headers, struct qsi_slice expiration)
{
    size_t at;

    QS_DCHECK(death->queue.bytes > 0 && death->reason[0] != '\0');
    put(writer, "F", 1);
    at = begin_sized(writer);
    put_count(writer, 1);
    put_text(writer, "reason", qsi_slice_make(death->reason, (uint32_t)strlen(death->reason)));
    put_text(writer, "queue", death->queue);
    put_name(writer, QSI_SLICE_LITERAL("time"), 'T');
    put_be64(writer, death->time_s);
    put_text(writer, "exchange", death->exchange);
    put_routing_keys(writer, death, headers);
    if (expiration.data != NULL) {
        put_text(writer, "original-expiration", expiration);
    }
    end_sized(writer, at);
}

/* The count; a client may have written any value. */
static int64_t count_of(const struct qsi_field *field)
{
    struct qsi_number number;

    return qsi_field_integer(field, &number) && (number.is_negative || number.bits < INT64_MAX)
               ? (int64_t)number.bits
               : 0;
}

/* Writes the table of an earlier death with its count increased. */
static void put_death_again(struct writer *writer, struct qsi_slice death)
{
    struct qsi_field_walk walk = qsi_table_walk(death);
    struct qsi_field field;
    bool is_counted = false;
    size_t at;

    put(writer, "F", 1);
    at = begin_sized(writer);
    while (qsi_field_next(&walk, &field)) {
        if (is_named(&field, "count")) {
            put_count(writer, (uint64_t)count_of(&field) + 1);
            is_counted = true;
        } else {
            put_field(writer, &field);
        }
    }
    if (!is_counted) {
        put_count(writer, 1);
    }
    end_sized(writer, at);
}

static bool is_same_death(const struct qsi_field *known, const struct qsi_death *death)
{
    return known->type == 'F' && has_text(known->value, "queue", death->queue) &&
           has_text(known->value, "reason",
                    qsi_slice_make(death->reason, (uint32_t)strlen(death->reason)));
}

static void put_deaths(struct writer *writer, const struct qsi_death *death,
                       struct qsi_slice headers, struct qsi_slice expiration)
{
    struct qsi_slice known = deaths_of(headers);
    struct qsi_field_walk walk = qsi_array_walk(known);
    struct qsi_field field, same = {.name = QSI_SLICE_NULL};
    size_t at;
    bool again = false;

    while (known.data != NULL && !again && qsi_field_next(&walk, &field)) {
        again = is_same_death(&field, death);
        same = again ? field : same;
    }
    QS_DCHECK(!again || same.type == 'F');
    put_name(writer, QSI_SLICE_LITERAL("x-death"), 'A');
    at = begin_sized(writer);
    if (again) {
        put_death_again(writer, same.value);
    } else {
        put_first_death(writer, death, headers, expiration);
    }
    walk = qsi_array_walk(known);
    while (known.data != NULL && qsi_field_next(&walk, &field)) {
        if (!is_same_death(&field, death)) {
            put(writer, &field.type, 1);
            put_value(writer, &field);
        }
    }
    end_sized(writer, at);
}

static void put_headers(struct writer *writer, const struct qsi_death *death,
                        struct qsi_slice headers, struct qsi_slice expiration)
{
    bool is_first = deaths_of(headers).data == NULL;
    struct qsi_field_walk walk = qsi_table_walk(headers);
    struct qsi_field field;

    while (headers.data != NULL && qsi_field_next(&walk, &field)) {
        bool written_anew = is_named(&field, "x-death") ||
                            (is_first && (is_named(&field, "x-first-death-reason") ||
                                          is_named(&field, "x-first-death-queue") ||
                                          is_named(&field, "x-first-death-exchange")));
        if (!written_anew && !(death->has_new_key && is_named(&field, "CC"))) {
            put_field(writer, &field);
        }
    }
    put_deaths(writer, death, headers, expiration);
    if (is_first) {
        put_text(writer, "x-first-death-reason",
                 qsi_slice_make(death->reason, (uint32_t)strlen(death->reason)));
        put_text(writer, "x-first-death-queue", death->queue);
        put_text(writer, "x-first-death-exchange", death->exchange);
    }
}

qs_status qsi_death_write(struct qsi_buf *properties_out, struct qsi_slice properties,
                          const struct qsi_death *death)
{
    struct qsi_buf headers = {NULL};
    struct writer writer = {.out = &headers};
    struct qsi_properties decoded;
    uint8_t *place;
    qs_status status;

    QS_TRY(qsi_properties_decode(&decoded, properties.data, properties.bytes, NULL));
    put_headers(&writer, death, qsi_properties_text(&decoded, QSI_PROPERTY_HEADERS),
                qsi_properties_text(&decoded, QSI_PROPERTY_EXPIRATION));
    decoded.present &= (uint16_t)~qsi_property_flag(QSI_PROPERTY_EXPIRATION);
    qsi_properties_set(&decoded, QSI_PROPERTY_HEADERS,
                       qsi_slice_make(headers.data, (uint32_t)headers.bytes));
    status = writer.failed
                 ? QS_ENOMEM
                 : qsi_buf_reserve(properties_out, qsi_properties_bytes(&decoded), &place);
    if (status == QS_OK) {
        QS_DCHECK((decoded.present & qsi_property_flag(QSI_PROPERTY_HEADERS)) != 0);
        qsi_properties_encode(place, &decoded);
        properties_out->bytes += qsi_properties_bytes(&decoded);
    }
    qsi_buf_fini(&headers);
    return status;
}

bool qsi_death_is_cycle(struct qsi_slice properties, struct qsi_slice queue)
{
    struct qsi_slice known = deaths_of(qsi_properties_headers(properties.data, properties.bytes));
    struct qsi_field_walk walk = qsi_array_walk(known);
    struct qsi_field field;

    while (known.data != NULL && qsi_field_next(&walk, &field)) {
        if (field.type != 'F' || has_text(field.value, "reason", QSI_SLICE_LITERAL("rejected"))) {
            return false; /* a client rejected it, so it does not circulate by itself */
        }
        if (has_text(field.value, "queue", queue)) {
            return true;
        }
    }
    return false;
}
