/* Appending rows to a batch in the making.  Invariant: a nullable column holds at most as many
 * rows as the builder, all bits of its validity from `filled` on are clear, and rows it does not
 * hold are null. */
#include "arrow_build.h"

#include "alloc.h"
#include "check.h"
#include "error.h"
#include "field_text.h"
#include "le.h"

#include <inttypes.h>
#include <string.h>

#define ROWS_MIN 64

static const enum qsi_property text_properties[QSI_ARROW_TEXT_COUNT] = {
    QSI_PROPERTY_MESSAGE_ID, QSI_PROPERTY_CORRELATION_ID, QSI_PROPERTY_TYPE,
    QSI_PROPERTY_APP_ID,     QSI_PROPERTY_CONTENT_TYPE,   QSI_PROPERTY_CONTENT_ENCODING,
    QSI_PROPERTY_REPLY_TO,   QSI_PROPERTY_USER_ID};

enum { PRIORITY, DELIVERY_MODE, EXPIRATION_MS, TIMESTAMP };

static const uint8_t number_bytes[QSI_ARROW_NUMBER_COUNT] = {1, 1, 8, 8};

void qsi_arrow_builder_init(struct qsi_arrow_builder *builder)
{
    memset(builder, 0, sizeof *builder);
}

static void text_fini(struct qsi_arrow_text *text)
{
    qsi_free(text->offsets);
    qsi_free(text->validity);
    qsi_buf_fini(&text->data);
}

void qsi_arrow_builder_fini(struct qsi_arrow_builder *builder)
{
    qsi_free(builder->tags);
    qsi_free(builder->times);
    qsi_free(builder->redelivered);
    qsi_free(builder->unacked);
    qsi_free(builder->delayed);
    qsi_free(builder->delivery_counts);
    qsi_free(builder->body_offsets);
    qsi_buf_fini(&builder->body);
    for (int i = 0; i < QSI_ARROW_DICTIONARY_COUNT; i++) {
        qsi_free(builder->codes[i]);
        qsi_map_fini(&builder->names[i]);
        text_fini(&builder->entries[i]);
    }
    text_fini(&builder->headers);
    text_fini(&builder->header_keys);
    text_fini(&builder->header_values);
    for (int i = 0; i < QSI_ARROW_TEXT_COUNT; i++) {
        text_fini(&builder->texts[i]);
    }
    for (int i = 0; i < QSI_ARROW_NUMBER_COUNT; i++) {
        qsi_free(builder->numbers[i].values);
        qsi_free(builder->numbers[i].validity);
    }
    memset(builder, 0, sizeof *builder);
}

/* ---- growing ---- */

/* memory is the address of a pointer to bytes_each * capacity bytes. */
static qs_status grow(void *memory, uint64_t bytes)
{
    void *old;
    void *grown;

    memcpy(&old, memory, sizeof old);
    grown = qsi_realloc(old, bytes);
    if (grown == NULL) {
        return QS_ENOMEM;
    }
    memcpy(memory, &grown, sizeof grown);
    return QS_OK;
}

static uint64_t bitmap_bytes(uint64_t rows)
{
    return (rows + 7) / 8;
}

/* Bits behind the old capacity are cleared, so that setting is all that appending does. */
static qs_status grow_bits(uint8_t **bits, uint64_t old_capacity, uint64_t capacity)
{
    QS_TRY(grow(bits, bitmap_bytes(capacity)));
    memset(*bits + bitmap_bytes(old_capacity), 0,
           bitmap_bytes(capacity) - bitmap_bytes(old_capacity));
    return QS_OK;
}

static uint64_t grown_capacity(uint64_t capacity, uint64_t needed)
{
    uint64_t doubled = 2 * capacity > ROWS_MIN ? 2 * capacity : ROWS_MIN;

    return qsi_round_up(doubled > needed ? doubled : needed, ROWS_MIN); /* whole bytes of bits */
}

static qs_status reserve_rows(struct qsi_arrow_builder *builder, uint64_t count)
{
    uint64_t capacity;

    if (QS_LIKELY(count <= builder->capacity - builder->rows)) {
        return QS_OK;
    }
    capacity = grown_capacity(builder->capacity, builder->rows + count);
    QS_TRY(grow(&builder->tags, capacity * sizeof *builder->tags));
    QS_TRY(grow(&builder->delivery_counts, capacity * sizeof *builder->delivery_counts));
    QS_TRY(grow(&builder->codes[QSI_ARROW_EXCHANGE], capacity * sizeof(int32_t)));
    QS_TRY(grow(&builder->codes[QSI_ARROW_ROUTING_KEY], capacity * sizeof(int32_t)));
    QS_TRY(grow(&builder->body_offsets, (capacity + 1) * sizeof(int32_t)));
    QS_TRY(grow_bits(&builder->redelivered, builder->capacity, capacity));
    if (builder->shape == QSI_ARROW_STREAM) {
        QS_TRY(grow(&builder->times, capacity * sizeof *builder->times));
    }
    if (builder->shape == QSI_ARROW_BROWSED) {
        QS_TRY(grow_bits(&builder->unacked, builder->capacity, capacity));
        QS_TRY(grow_bits(&builder->delayed, builder->capacity, capacity));
    }
    builder->body_offsets[0] = 0;
    builder->capacity = capacity;
    return QS_OK;
}

qs_status qsi_arrow_builder_reserve(struct qsi_arrow_builder *builder, uint64_t rows,
                                    uint64_t body_bytes, qs_error *error)
{
    uint8_t *room;

    if (rows > QSI_ARROW_ROWS_MAX - builder->rows ||
        body_bytes > QSI_ARROW_BODY_BYTES_MAX - builder->body.bytes) {
        return qsi_fail(error, QS_EINVAL,
                        "a batch of %" PRIu64 " rows and %" PRIu64 " bytes is too large", rows,
                        body_bytes + builder->body.bytes);
    }
    if (reserve_rows(builder, rows) != QS_OK ||
        qsi_buf_reserve(&builder->body, body_bytes, &room) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "a batch of %" PRIu64 " rows and %" PRIu64 " bytes",
                        builder->rows + rows, body_bytes + builder->body.bytes);
    }
    return QS_OK;
}

static void set_bits(uint8_t *bits, uint64_t from, uint64_t count)
{
    uint64_t end = from + count;

    for (; from < end && from % 8 != 0; from++) {
        bits[from / 8] |= (uint8_t)(1u << from % 8);
    }
    memset(bits + from / 8, 0xff, (end - from) / 8);
    for (from = end - (end - from) % 8; from < end; from++) {
        bits[from / 8] |= (uint8_t)(1u << from % 8);
    }
}

/* ---- nullable columns ---- */

/* Makes room for count rows more after the nulls up to row first. */
static qs_status text_reserve(struct qsi_arrow_text *text, uint64_t first, uint64_t count)
{
    uint64_t capacity;

    if (first + count > text->capacity || text->capacity == 0) {
        capacity = grown_capacity(text->capacity, first + count);
        QS_TRY(grow(&text->offsets, (capacity + 1) * sizeof *text->offsets));
        QS_TRY(grow_bits(&text->validity, text->capacity, capacity));
        text->offsets[0] = 0;
        text->capacity = capacity;
    }
    while (text->filled < first) {
        text->offsets[++text->filled] = text->end;
    }
    return QS_OK;
}

/* Ends the next row at end.  REQUIRES room. */
static void text_set(struct qsi_arrow_text *text, int32_t end)
{
    text->validity[text->filled / 8] |= (uint8_t)(1u << text->filled % 8);
    text->end = end;
    text->offsets[++text->filled] = end;
    text->set_count++;
}

/* Ends the next row where data ends.  REQUIRES room. */
static qs_status text_set_data(struct qsi_arrow_text *text)
{
    if (text->data.bytes > INT32_MAX) {
        return QS_EINVAL;
    }
    text_set(text, (int32_t)text->data.bytes);
    return QS_OK;
}

/* Rows [first, first + count) all become value. */
static qs_status text_append(struct qsi_arrow_text *text, uint64_t first, uint64_t count,
                             struct qsi_slice value)
{
    QS_TRY(text_reserve(text, first, count));
    for (uint64_t i = 0; i < count; i++) {
        QS_TRY(qsi_text_append(&text->data, value));
        QS_TRY(text_set_data(text));
    }
    return QS_OK;
}

static qs_status number_reserve(struct qsi_arrow_number *number, uint64_t bytes_each,
                                uint64_t first, uint64_t count)
{
    uint64_t capacity;

    if (first + count > number->capacity || number->capacity == 0) {
        capacity = grown_capacity(number->capacity, first + count);
        QS_TRY(grow(&number->values, capacity * bytes_each));
        QS_TRY(grow_bits(&number->validity, number->capacity, capacity));
        number->capacity = capacity;
    }
    if (number->filled < first) {
        memset(number->values + number->filled * bytes_each, 0,
               (first - number->filled) * bytes_each);
        number->filled = first;
    }
    return QS_OK;
}

static qs_status number_append(struct qsi_arrow_builder *builder, int column, uint64_t count,
                               int64_t value)
{
    struct qsi_arrow_number *number = &builder->numbers[column];

    QS_TRY(number_reserve(number, number_bytes[column], builder->rows, count));
    if (number_bytes[column] == 1) {
        memset(number->values + number->filled, (int)value, count);
    } else {
        for (uint64_t i = 0; i < count; i++) {
            memcpy(number->values + (number->filled + i) * sizeof value, &value, sizeof value);
        }
    }
    set_bits(number->validity, number->filled, count);
    number->filled += count;
    number->set_count += count;
    return QS_OK;
}

/* ---- properties ---- */

static qs_status append_header(struct qsi_arrow_builder *builder, const struct qsi_field *field)
{
    uint64_t entry = builder->header_keys.filled;

    QS_TRY(text_append(&builder->header_keys, entry, 1, field->name));
    if (field->type == 'V') {
        return QS_OK;
    }
    QS_TRY(text_reserve(&builder->header_values, entry, 1));
    QS_TRY(qsi_field_text_append(&builder->header_values.data, field));
    return text_set_data(&builder->header_values);
}

static qs_status append_headers(struct qsi_arrow_builder *builder, uint64_t count,
                                struct qsi_slice table)
{
    QS_TRY(text_reserve(&builder->headers, builder->rows, count));
    for (uint64_t i = 0; i < count; i++) {
        struct qsi_field_walk walk = qsi_table_walk(table);
        struct qsi_field field;

        while (qsi_field_next(&walk, &field)) {
            QS_TRY(append_header(builder, &field));
        }
        if (builder->header_keys.filled > INT32_MAX) {
            return QS_EINVAL;
        }
        text_set(&builder->headers, (int32_t)builder->header_keys.filled);
    }
    return QS_OK;
}

/* False if text is not a decimal number that fits. */
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

static qs_status append_numbers(struct qsi_arrow_builder *builder, uint64_t count,
                                const struct qsi_properties *properties)
{
    int64_t milliseconds;

    if (qsi_properties_has(properties, QSI_PROPERTY_DELIVERY_MODE)) {
        QS_TRY(number_append(builder, DELIVERY_MODE, count, properties->delivery_mode));
    }
    if (qsi_properties_has(properties, QSI_PROPERTY_PRIORITY)) {
        QS_TRY(number_append(builder, PRIORITY, count, properties->priority));
    }
    if (parse_expiration(qsi_properties_text(properties, QSI_PROPERTY_EXPIRATION), &milliseconds)) {
        QS_TRY(number_append(builder, EXPIRATION_MS, count, milliseconds));
    }
    if (qsi_properties_has(properties, QSI_PROPERTY_TIMESTAMP) &&
        properties->timestamp <= INT64_MAX) {
        QS_TRY(number_append(builder, TIMESTAMP, count, (int64_t)properties->timestamp));
    }
    return QS_OK;
}

/* The same properties for the count rows that come next. */
static qs_status append_properties(struct qsi_arrow_builder *builder, uint64_t count,
                                   const struct qsi_properties *properties)
{
    QS_TRY(append_numbers(builder, count, properties));
    if (qsi_properties_has(properties, QSI_PROPERTY_HEADERS)) {
        QS_TRY(append_headers(builder, count, properties->text[QSI_PROPERTY_HEADERS]));
    }
    for (int i = 0; i < QSI_ARROW_TEXT_COUNT; i++) {
        if (qsi_properties_has(properties, text_properties[i])) {
            QS_TRY(text_append(&builder->texts[i], builder->rows, count,
                               properties->text[text_properties[i]]));
        }
    }
    return QS_OK;
}

static qs_status decode_and_append(struct qsi_arrow_builder *builder, uint64_t count,
                                   struct qsi_slice blob, qs_error *error)
{
    struct qsi_properties properties;
    qs_status status;

    QS_TRY(qsi_properties_decode(&properties, blob.data, blob.bytes, error));
    status = append_properties(builder, count, &properties);
    if (status == QS_EINVAL) {
        return qsi_fail(error, status,
                        "the properties of this batch pass %" PRId32 " bytes in one column",
                        INT32_MAX);
    }
    if (status != QS_OK) {
        return qsi_fail(error, status, "the properties of a batch of %" PRIu64 " rows",
                        builder->rows + count);
    }
    return QS_OK;
}

/* ---- rows ---- */

/* What a run tells about each of its rows.  REQUIRES room. */
static void put_run(struct qsi_arrow_builder *builder, const struct qsi_arrow_run *run,
                    uint64_t count)
{
    uint64_t *tags = builder->tags + builder->rows;
    uint32_t *delivery_counts = builder->delivery_counts + builder->rows;
    int32_t *exchanges = builder->codes[QSI_ARROW_EXCHANGE] + builder->rows;
    int32_t *routing_keys = builder->codes[QSI_ARROW_ROUTING_KEY] + builder->rows;

    for (uint64_t i = 0; i < count; i++) {
        tags[i] = run->first_tag + i;
        delivery_counts[i] = run->delivery_count;
        exchanges[i] = run->exchange_code;
        routing_keys[i] = run->routing_key_code;
    }
    if (run->redelivered) {
        set_bits(builder->redelivered, builder->rows, count);
    }
    if (run->is_unacked) {
        set_bits(builder->unacked, builder->rows, count);
    }
    if (run->is_delayed) {
        set_bits(builder->delayed, builder->rows, count);
    }
}

static void put_body_ends(int32_t *restrict ends, const uint8_t *restrict offsets, uint64_t count,
                          uint32_t shift)
{
    for (uint64_t i = 0; i < count; i++) {
        ends[i] = (int32_t)(qsi_get_u32(offsets + 4 * i) + shift);
    }
}

qs_status qsi_arrow_builder_rows(struct qsi_arrow_builder *builder, const struct qsi_arrow_run *run,
                                 const uint8_t *offsets, const uint8_t *data, uint64_t count,
                                 qs_error *error)
{
    uint32_t first = qsi_get_u32(offsets);
    uint32_t bytes = qsi_get_u32(offsets + 4 * count) - first;

    QS_TRY(qsi_arrow_builder_reserve(builder, count, bytes, error));
    if (run->properties.bytes > 0) {
        QS_TRY(decode_and_append(builder, count, run->properties, error));
    }
    put_run(builder, run, count);
    put_body_ends(builder->body_offsets + builder->rows + 1, offsets + 4, count,
                  (uint32_t)builder->body.bytes - first);
    if (bytes > 0) { /* else data may be NULL */
        memcpy(builder->body.data + builder->body.bytes, data + first, bytes);
    }
    builder->body.bytes += bytes;
    builder->rows += count;
    return QS_OK;
}

qs_status qsi_arrow_builder_row(struct qsi_arrow_builder *builder, const struct qsi_arrow_run *run,
                                struct qsi_slice body, qs_error *error)
{
    uint8_t offsets[8];

    qsi_put_u32(offsets, 0);
    qsi_put_u32(offsets + 4, body.bytes);
    return qsi_arrow_builder_rows(builder, run, offsets, body.data, 1, error);
}

static qs_status intern(struct qsi_arrow_builder *builder, int32_t *code_out,
                        enum qsi_arrow_dictionary dictionary, struct qsi_slice name,
                        qs_error *error)
{
    struct qsi_arrow_text *entries = &builder->entries[dictionary];
    void *known = qsi_map_get(&builder->names[dictionary], name.data, name.bytes);
    qs_status status;

    if (known != NULL) {
        *code_out = (int32_t)((uintptr_t)known - 1);
        return QS_OK;
    }
    status = text_append(entries, entries->filled, 1, name);
    if (status == QS_OK) {
        status = qsi_map_put(&builder->names[dictionary], name.data, name.bytes,
                             (void *)(uintptr_t)entries->filled);
    }
    if (status != QS_OK) {
        return qsi_fail(error, status, "the names of a batch, %" PRIu64 " so far", entries->filled);
    }
    *code_out = (int32_t)(entries->filled - 1);
    return QS_OK;
}

qs_status qsi_arrow_builder_intern(struct qsi_arrow_builder *builder, int32_t *code_out,
                                   enum qsi_arrow_dictionary dictionary, struct qsi_slice name,
                                   qs_error *error)
{
    struct qsi_arrow_recent_name *recent = &builder->recent[dictionary];

    if (recent->code_1 > 0 && recent->bytes == name.bytes &&
        memcmp(recent->data, name.data, name.bytes) == 0) {
        *code_out = recent->code_1 - 1;
        return QS_OK;
    }
    QS_TRY(intern(builder, code_out, dictionary, name, error));
    if (name.bytes <= sizeof recent->data) {
        memcpy(recent->data, name.data, name.bytes);
        recent->bytes = name.bytes;
        recent->code_1 = *code_out + 1;
    }
    return QS_OK;
}

static qs_status text_fill(struct qsi_arrow_text *text, uint64_t rows)
{
    return text->capacity == 0 ? QS_OK : text_reserve(text, rows, 0);
}

qs_status qsi_arrow_builder_fill(struct qsi_arrow_builder *builder)
{
    QS_TRY(text_fill(&builder->headers, builder->rows));
    QS_TRY(text_fill(&builder->header_values, builder->header_keys.filled));
    for (int i = 0; i < QSI_ARROW_TEXT_COUNT; i++) {
        QS_TRY(text_fill(&builder->texts[i], builder->rows));
    }
    for (int i = 0; i < QSI_ARROW_NUMBER_COUNT; i++) {
        if (builder->numbers[i].capacity > 0) {
            QS_TRY(number_reserve(&builder->numbers[i], number_bytes[i], builder->rows, 0));
        }
    }
    return QS_OK;
}
