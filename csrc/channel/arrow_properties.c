#include "arrow_properties.h"

#include "check.h"
#include "error.h"
#include "field_text.h"
#include "properties.h"

#include <inttypes.h>
#include <string.h>

static const enum qsi_property text_properties[QSI_COLUMN_TEXT_COUNT] = {
#define QSI_TEXT_COLUMN(id, name) QSI_PROPERTY_##id,
#include "columns.def"
};

static qs_status number_append(struct qsi_arrow_builder *builder, int column, uint64_t first,
                               uint64_t count, int64_t value)
{
    struct qsi_arrow_number *number = &builder->numbers[column];

    QS_TRY(qsi_arrow_number_reserve(number, qsi_column_number_bytes(column), first, count));
    if (qsi_column_number_bytes(column) == 1) {
        memset(number->values + number->filled, (int)value, count);
    } else {
        for (uint64_t i = 0; i < count; i++) {
            memcpy(number->values + (number->filled + i) * sizeof value, &value, sizeof value);
        }
    }
    qsi_arrow_set_bits(number->validity, number->filled, count);
    number->filled += count;
    number->set_count += count;
    return QS_OK;
}

static qs_status append_header(struct qsi_arrow_builder *builder, const struct qsi_field *field)
{
    uint64_t entry = builder->header_keys.filled;

    QS_TRY(qsi_arrow_text_append(&builder->header_keys, entry, 1, field->name));
    if (field->type == 'V') {
        return QS_OK;
    }
    QS_TRY(qsi_arrow_text_reserve(&builder->header_values, entry, 1));
    QS_TRY(qsi_field_text_append(&builder->header_values.data, field));
    return qsi_arrow_text_set_data(&builder->header_values);
}

static qs_status append_headers(struct qsi_arrow_builder *builder, uint64_t first, uint64_t count,
                                struct qsi_slice table)
{
    QS_TRY(qsi_arrow_text_reserve(&builder->headers, first, count));
    for (uint64_t i = 0; i < count; i++) {
        struct qsi_field_walk walk = qsi_table_walk(table);
        struct qsi_field field;

        while (qsi_field_next(&walk, &field)) {
            QS_TRY(append_header(builder, &field));
        }
        if (builder->header_keys.filled > INT32_MAX) {
            return QS_EINVAL;
        }
        qsi_arrow_text_set(&builder->headers, (int32_t)builder->header_keys.filled);
    }
    return QS_OK;
}

/* False: text is not a decimal number, or too large. */
static bool parse_expiration(struct qsi_slice text, int64_t *milliseconds_out)
{
    int64_t value = 0;

    for (uint32_t i = 0; i < text.bytes; i++) {
        int digit = text.data[i] - '0';

        if (digit < 0 || digit > 9 || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, digit, &value)) {
            return false;
        }
    }
    *milliseconds_out = value;
    return text.bytes > 0;
}

static qs_status append_numbers(struct qsi_arrow_builder *builder, uint64_t first, uint64_t count,
                                const struct qsi_properties *properties)
{
    int64_t milliseconds;

    if (qsi_properties_has(properties, QSI_PROPERTY_DELIVERY_MODE)) {
        QS_TRY(number_append(builder, QSI_COLUMN_NUMBER_DELIVERY_MODE, first, count,
                             properties->delivery_mode));
    }
    if (qsi_properties_has(properties, QSI_PROPERTY_PRIORITY)) {
        QS_TRY(
            number_append(builder, QSI_COLUMN_NUMBER_PRIORITY, first, count, properties->priority));
    }
    if (parse_expiration(qsi_properties_text(properties, QSI_PROPERTY_EXPIRATION), &milliseconds)) {
        QS_TRY(number_append(builder, QSI_COLUMN_NUMBER_EXPIRATION_MS, first, count, milliseconds));
    }
    if (qsi_properties_has(properties, QSI_PROPERTY_TIMESTAMP) &&
        properties->timestamp <= INT64_MAX) {
        QS_TRY(number_append(builder, QSI_COLUMN_NUMBER_TIMESTAMP, first, count,
                             (int64_t)properties->timestamp));
    }
    return QS_OK;
}

/* Appends the same properties for rows [first, first + count). */
static qs_status append_properties(struct qsi_arrow_builder *builder, uint64_t first,
                                   uint64_t count, const struct qsi_properties *properties)
{
    QS_TRY(append_numbers(builder, first, count, properties));
    if (qsi_properties_has(properties, QSI_PROPERTY_HEADERS)) {
        QS_TRY(append_headers(builder, first, count, properties->text[QSI_PROPERTY_HEADERS]));
    }
    for (int i = 0; i < QSI_COLUMN_TEXT_COUNT; i++) {
        if (qsi_properties_has(properties, text_properties[i])) {
            QS_TRY(qsi_arrow_text_append(&builder->texts[i], first, count,
                                         properties->text[text_properties[i]]));
        }
    }
    return QS_OK;
}

qs_status qsi_arrow_builder_properties(struct qsi_arrow_builder *builder, uint64_t first,
                                       uint64_t count, struct qsi_slice blob, qs_error *error)
{
    struct qsi_properties properties;
    qs_status status;

    if (blob.bytes == 0 || !qsi_arrow_builder_wants(builder, QS_STREAM_COLUMN_PROPERTIES)) {
        return QS_OK;
    }
    QS_TRY(qsi_properties_decode(&properties, blob.data, blob.bytes, error));
    status = append_properties(builder, first, count, &properties);
    if (status == QS_EINVAL) {
        return qsi_fail(error, status,
                        "the properties of this batch pass %" PRId32 " bytes in one column",
                        INT32_MAX);
    }
    if (status != QS_OK) {
        return qsi_fail(error, status, "the properties of a batch of %" PRIu64 " rows",
                        first + count);
    }
    return QS_OK;
}
