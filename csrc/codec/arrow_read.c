/* Measuring, copying and encoding the rows of an open batch.  Opening checked everything. */
#include "arrow_read.h"

#include "check.h"
#include "field_table.h"
#include "le.h"

#define VIEW_BYTES 16

static uint32_t longest32(const qsi_arrow_i32 *offsets, uint64_t count)
{
    uint32_t longest = 0;

    for (uint64_t i = 0; i < count; i++) {
        uint32_t bytes = (uint32_t)offsets[i + 1] - (uint32_t)offsets[i];

        longest = bytes > longest ? bytes : longest;
    }
    return longest;
}

static uint32_t longest64(const qsi_arrow_i64 *offsets, uint64_t count)
{
    uint32_t longest = 0;

    for (uint64_t i = 0; i < count; i++) {
        uint32_t bytes = (uint32_t)(offsets[i + 1] - offsets[i]);

        longest = bytes > longest ? bytes : longest;
    }
    return longest;
}

static uint32_t longest_view(const uint8_t *views, uint64_t count)
{
    uint32_t longest = 0;

    for (uint64_t i = 0; i < count; i++) {
        uint32_t bytes = *(const qsi_arrow_u32 *)(views + i * VIEW_BYTES);

        longest = bytes > longest ? bytes : longest;
    }
    return longest;
}

uint32_t qsi_arrow_strings_max(const struct qsi_arrow_strings *strings)
{
    switch (strings->layout) {
    case QSI_ARROW_OFFSETS32:
        return longest32((const qsi_arrow_i32 *)strings->places, strings->count);
    case QSI_ARROW_OFFSETS64:
        return longest64((const qsi_arrow_i64 *)strings->places, strings->count);
    case QSI_ARROW_VIEWS:
        return longest_view(strings->places, strings->count);
    case QSI_ARROW_FIXED:
        return strings->count == 0 ? 0 : strings->width;
    case QSI_ARROW_ABSENT:
        break;
    }
    return 0;
}

uint32_t qsi_arrow_body_max(const struct qsi_arrow_batch *batch, uint64_t *row_out)
{
    uint32_t longest = 0;
    uint64_t row = 0;

    *row_out = 0;
    if (!qsi_arrow_has_dictionary(&batch->body)) {
        longest = qsi_arrow_strings_max(&batch->body.strings);
        while (row < batch->rows && qsi_arrow_bytes(&batch->body, row).bytes != longest) {
            row++;
        }
        *row_out = row;
        return longest;
    }
    for (; row < batch->rows; row++) { /* the longest entry of the dictionary need not be in use */
        uint32_t bytes = qsi_arrow_bytes(&batch->body, row).bytes;

        if (bytes > longest) {
            longest = bytes;
            *row_out = row;
        }
    }
    return longest;
}

uint64_t qsi_arrow_body_total(const struct qsi_arrow_batch *batch, uint64_t from, uint64_t to)
{
    const struct qsi_arrow_strings *strings = &batch->body.strings;
    uint64_t total = 0;

    QS_DCHECK(from <= to && to <= batch->rows);
    if (from == to) {
        return 0;
    }
    if (!qsi_arrow_has_dictionary(&batch->body)) {
        if (strings->layout == QSI_ARROW_OFFSETS32) {
            const qsi_arrow_i32 *offsets = (const qsi_arrow_i32 *)strings->places;
            return (uint64_t)(offsets[to] - offsets[from]);
        }
        if (strings->layout == QSI_ARROW_OFFSETS64) {
            const qsi_arrow_i64 *offsets = (const qsi_arrow_i64 *)strings->places;
            return (uint64_t)(offsets[to] - offsets[from]);
        }
    }
    for (uint64_t row = from; row < to; row++) {
        total += qsi_arrow_bytes(&batch->body, row).bytes;
    }
    return total;
}

/* restrict lets the compiler vectorise the loops. */
static void rebase32(uint8_t *restrict offsets_out, const qsi_arrow_i32 *restrict offsets,
                     uint64_t count)
{
    uint32_t base = (uint32_t)offsets[0];

    for (uint64_t i = 0; i < count; i++) {
        qsi_put_u32(offsets_out + 4 * i, (uint32_t)offsets[i] - base);
    }
}

static void rebase64(uint8_t *restrict offsets_out, const qsi_arrow_i64 *restrict offsets,
                     uint64_t count)
{
    uint32_t base = (uint32_t)offsets[0]; /* differences fit 32 bits, so the lower halves suffice */

    for (uint64_t i = 0; i < count; i++) {
        qsi_put_u32(offsets_out + 4 * i, (uint32_t)offsets[i] - base);
    }
}

static void copy_fixed(const struct qsi_arrow_strings *strings, uint64_t from, uint64_t count,
                       uint8_t *offsets_out, uint8_t *bytes_out)
{
    for (uint64_t i = 0; i <= count; i++) {
        qsi_put_u32(offsets_out + 4 * i, (uint32_t)i * strings->width);
    }
    memcpy(bytes_out, strings->data + from * strings->width, count * strings->width);
}

static void copy_rows(const struct qsi_arrow_bytes_column *column, uint64_t from, uint64_t to,
                      uint8_t *offsets_out, uint8_t *bytes_out)
{
    uint32_t total = 0;

    qsi_put_u32(offsets_out, 0);
    for (uint64_t row = from; row < to; row++) {
        struct qsi_slice body = qsi_arrow_bytes(column, row);

        memcpy(bytes_out + total, body.data, body.bytes);
        total += body.bytes;
        offsets_out += 4;
        qsi_put_u32(offsets_out, total);
    }
}

void qsi_arrow_body_copy(const struct qsi_arrow_batch *batch, uint64_t from, uint64_t to,
                         uint8_t *offsets_out, uint8_t *bytes_out)
{
    const struct qsi_arrow_strings *strings = &batch->body.strings;
    const qsi_arrow_i32 *offsets32 = (const qsi_arrow_i32 *)strings->places + from;
    const qsi_arrow_i64 *offsets64 = (const qsi_arrow_i64 *)strings->places + from;
    uint64_t count = to - from;

    QS_DCHECK(from <= to && to <= batch->rows);
    if (count == 0) { /* an empty batch may have no buffers */
        qsi_put_u32(offsets_out, 0);
    } else if (qsi_arrow_has_dictionary(&batch->body) || strings->layout == QSI_ARROW_VIEWS) {
        copy_rows(&batch->body, from, to, offsets_out, bytes_out);
    } else if (strings->layout == QSI_ARROW_OFFSETS32) {
        rebase32(offsets_out, offsets32, count + 1);
        memcpy(bytes_out, strings->data + offsets32[0], (size_t)(offsets32[count] - offsets32[0]));
    } else if (strings->layout == QSI_ARROW_OFFSETS64) {
        rebase64(offsets_out, offsets64, count + 1);
        memcpy(bytes_out, strings->data + offsets64[0], (size_t)(offsets64[count] - offsets64[0]));
    } else {
        copy_fixed(strings, from, count, offsets_out, bytes_out);
    }
}

#define US_PER_S 1000000

uint64_t qsi_arrow_due_us(const struct qsi_arrow_batch *batch, uint64_t row)
{
    const struct qsi_arrow_int_column *due = &batch->due;
    int64_t value;

    if (!due->present ||
        qsi_arrow_is_null(due->values.validity, due->values.validity_offset, row)) {
        return 0;
    }
    value = qsi_arrow_integer_at(&due->values, row);
    if (value <= 0) {
        return 0;
    }
    if (due->divisor > US_PER_S) {
        int64_t parts = due->divisor / US_PER_S;
        return (uint64_t)(value / parts) + (value % parts != 0 ? 1 : 0);
    }
    if (value > INT64_MAX / (US_PER_S / due->divisor)) {
        return UINT64_MAX;
    }
    return (uint64_t)(value * (US_PER_S / due->divisor));
}

bool qsi_arrow_has_properties(const struct qsi_arrow_batch *batch)
{
    return batch->text_count > 0 || batch->headers.present || batch->priority.present ||
           batch->delivery_mode.present || batch->expiration_ms.present || batch->timestamp.present;
}

static void set_numbers(struct qsi_properties *properties, const struct qsi_arrow_batch *batch,
                        uint64_t row)
{
    int64_t value;

    if (qsi_arrow_int(&batch->delivery_mode, row, &value)) {
        properties->delivery_mode = (uint8_t)value;
        properties->present |= qsi_property_flag(QSI_PROPERTY_DELIVERY_MODE);
    }
    if (qsi_arrow_int(&batch->priority, row, &value)) {
        properties->priority = (uint8_t)value;
        properties->present |= qsi_property_flag(QSI_PROPERTY_PRIORITY);
    }
    if (qsi_arrow_int(&batch->timestamp, row, &value)) {
        properties->timestamp = (uint64_t)value;
        properties->present |= qsi_property_flag(QSI_PROPERTY_TIMESTAMP);
    }
}

/* Writes the number as decimal text at the end of the row's buffer. */
static struct qsi_slice expiration_text(struct qsi_arrow_row *row, uint64_t milliseconds)
{
    uint8_t *end = row->expiration_text + sizeof row->expiration_text;
    uint8_t *digit = end;

    do {
        *--digit = (uint8_t)('0' + milliseconds % 10);
        milliseconds /= 10;
    } while (milliseconds > 0);
    return qsi_slice_make(digit, (uint32_t)(end - digit));
}

bool qsi_arrow_row_headers(const struct qsi_arrow_batch *batch, uint64_t row,
                           struct qsi_arrow_entries *entries_out)
{
    const struct qsi_arrow_headers_column *headers = &batch->headers;
    const qsi_arrow_i32 *offsets = (const qsi_arrow_i32 *)headers->places + row;

    if (!headers->present || qsi_arrow_is_null(headers->validity, headers->validity_offset, row)) {
        return false;
    }
    *entries_out = (struct qsi_arrow_entries){
        .from = (uint64_t)(offsets[0] - headers->first),
        .to = (uint64_t)(offsets[1] - headers->first),
    };
    for (uint64_t entry = entries_out->from; entry < entries_out->to; entry++) {
        entries_out->bytes += qsi_table_string_bytes(qsi_arrow_bytes(&headers->keys, entry),
                                                     qsi_arrow_bytes(&headers->values, entry));
    }
    return true;
}

static void put_headers(uint8_t *table_out, const struct qsi_arrow_batch *batch,
                        const struct qsi_arrow_entries *entries)
{
    for (uint64_t entry = entries->from; entry < entries->to; entry++) {
        table_out = qsi_table_string_put(table_out, qsi_arrow_bytes(&batch->headers.keys, entry),
                                         qsi_arrow_bytes(&batch->headers.values, entry));
    }
}

uint64_t qsi_arrow_row_begin(struct qsi_arrow_row *row_out, const struct qsi_arrow_batch *batch,
                             uint64_t row, const struct qsi_properties *defaults)
{
    struct qsi_properties *properties = &row_out->properties;
    uint64_t headers_bytes = 0;
    int64_t expiration_ms;

    properties->present = 0;
    if (defaults != NULL) {
        *properties = *defaults;
    }
    for (uint8_t i = 0; i < batch->text_count; i++) {
        enum qsi_property property = (enum qsi_property)batch->text_present[i];
        struct qsi_slice text = qsi_arrow_bytes(&batch->text[property], row);

        if (!qsi_slice_is_null(text)) {
            qsi_properties_set(properties, property, text);
        }
    }
    set_numbers(properties, batch, row);
    if (qsi_arrow_int(&batch->expiration_ms, row, &expiration_ms)) {
        qsi_properties_set(properties, QSI_PROPERTY_EXPIRATION,
                           expiration_text(row_out, (uint64_t)expiration_ms));
    }
    if (qsi_arrow_row_headers(batch, row, &row_out->headers)) {
        headers_bytes = row_out->headers.bytes; /* only their size: they are written from the map */
        qsi_properties_set(properties, QSI_PROPERTY_HEADERS,
                           qsi_slice_make(NULL, (uint32_t)headers_bytes));
    }
    /* Adds the bytes that do not fit the slice's 32 bits, so that the caller sees the full size and
     * refuses it. */
    return qsi_properties_bytes(properties) + (headers_bytes - (uint32_t)headers_bytes);
}

void qsi_arrow_row_encode(uint8_t *blob_out, const struct qsi_arrow_row *row,
                          const struct qsi_arrow_batch *batch)
{
    uint8_t *table = qsi_properties_encode(blob_out, &row->properties);

    if (table != NULL && row->properties.text[QSI_PROPERTY_HEADERS].data == NULL) {
        put_headers(table, batch, &row->headers);
    }
}
