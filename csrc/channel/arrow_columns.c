/* The columns of a batch while it is built.  Invariant: all bits of a nullable column's validity
 * from `filled` on are clear, and rows from there on are null. */
#include "arrow_columns.h"

#include "alloc.h"
#include "check.h"
#include "field_text.h"

#include <string.h>

#define ROWS_MIN 64

void qsi_arrow_text_fini(struct qsi_arrow_text *text)
{
    qsi_free(text->offsets);
    qsi_free(text->validity);
    qsi_buf_fini(&text->data);
}

/* ---- growing ---- */

qs_status qsi_arrow_grow(void *memory, uint64_t bytes)
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

qs_status qsi_arrow_grow_bits(uint8_t **bits, uint64_t old_capacity, uint64_t capacity)
{
    QS_TRY(qsi_arrow_grow(bits, bitmap_bytes(capacity)));
    memset(*bits + bitmap_bytes(old_capacity), 0,
           bitmap_bytes(capacity) - bitmap_bytes(old_capacity));
    return QS_OK;
}

uint64_t qsi_arrow_grown_capacity(uint64_t capacity, uint64_t needed)
{
    uint64_t doubled = 2 * capacity > ROWS_MIN ? 2 * capacity : ROWS_MIN;

    return qsi_round_up(doubled > needed ? doubled : needed, ROWS_MIN); /* whole bytes of bits */
}

void qsi_arrow_set_bits(uint8_t *bits, uint64_t from, uint64_t count)
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

qs_status qsi_arrow_text_reserve(struct qsi_arrow_text *text, uint64_t first, uint64_t count)
{
    uint64_t capacity;

    if (first + count > text->capacity || text->capacity == 0) {
        capacity = qsi_arrow_grown_capacity(text->capacity, first + count);
        QS_TRY(qsi_arrow_grow(&text->offsets, (capacity + 1) * sizeof *text->offsets));
        QS_TRY(qsi_arrow_grow_bits(&text->validity, text->capacity, capacity));
        text->offsets[0] = 0;
        text->capacity = capacity;
    }
    while (text->filled < first) {
        text->offsets[++text->filled] = text->end;
    }
    return QS_OK;
}

void qsi_arrow_text_set(struct qsi_arrow_text *text, int32_t end)
{
    text->validity[text->filled / 8] |= (uint8_t)(1u << text->filled % 8);
    text->end = end;
    text->offsets[++text->filled] = end;
    text->set_count++;
}

qs_status qsi_arrow_text_set_data(struct qsi_arrow_text *text)
{
    if (text->data.bytes > INT32_MAX) {
        return QS_EINVAL;
    }
    qsi_arrow_text_set(text, (int32_t)text->data.bytes);
    return QS_OK;
}

qs_status qsi_arrow_text_append(struct qsi_arrow_text *text, uint64_t first, uint64_t count,
                                struct qsi_slice value)
{
    QS_TRY(qsi_arrow_text_reserve(text, first, count));
    for (uint64_t i = 0; i < count; i++) {
        QS_TRY(qsi_text_append(&text->data, value));
        QS_TRY(qsi_arrow_text_set_data(text));
    }
    return QS_OK;
}

qs_status qsi_arrow_number_reserve(struct qsi_arrow_number *number, uint64_t bytes_each,
                                   uint64_t first, uint64_t count)
{
    uint64_t capacity;

    if (first + count > number->capacity || number->capacity == 0) {
        capacity = qsi_arrow_grown_capacity(number->capacity, first + count);
        QS_TRY(qsi_arrow_grow(&number->values, capacity * bytes_each));
        QS_TRY(qsi_arrow_grow_bits(&number->validity, number->capacity, capacity));
        number->capacity = capacity;
    }
    if (number->filled < first) {
        memset(number->values + number->filled * bytes_each, 0,
               (first - number->filled) * bytes_each);
        number->filled = first;
    }
    return QS_OK;
}

qs_status qsi_arrow_text_fill(struct qsi_arrow_text *text, uint64_t rows)
{
    return text->capacity == 0 ? QS_OK : qsi_arrow_text_reserve(text, rows, 0);
}
