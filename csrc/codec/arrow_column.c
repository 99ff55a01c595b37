/* Checking one array: its errors, the copies of its buffers, its structure and nulls.
 *
 * Invariant: bytes of a buffer are copied before they are examined, so the checked bytes are the
 * used ones. */
#include "arrow_column.h"

#include "alloc.h"
#include "arrow_words.h"
#include "check.h"
#include "error.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define WORDS_BYTES 64 /* of a type's name */

const uint8_t qsi_arrow_no_bytes[1];

qs_status qsi_arrow_fail(const struct qsi_arrow_column *column, const char *format, ...)
{
    char text[QS_ERROR_TEXT_BYTES];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (column->name == NULL) {
        return qsi_fail(column->error, QS_EINVAL, "record batch: %s", text);
    }
    return qsi_fail(column->error, QS_EINVAL, "column \"%s\"%s: %s", column->name, column->part,
                    text);
}

qs_status qsi_arrow_fail_row(const struct qsi_arrow_column *column, uint64_t row,
                             const char *format, ...)
{
    char text[QS_ERROR_TEXT_BYTES];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (strcmp(column->unit, "row") == 0) {
        row += column->rows_before;
    }
    return qsi_fail(column->error, QS_EINVAL, "%s %" PRIu64 ": %s%s %s", column->unit, row,
                    column->name, column->part, text);
}

/* ---- copies of the caller's buffers ---- */

struct qsi_arrow_copy {
    struct qsi_arrow_copy *next;
    uint8_t data[];
};

qs_status qsi_arrow_make_copy(const struct qsi_arrow_column *column, uint64_t bytes,
                              uint8_t **data_out)
{
    struct qsi_arrow_copy *copy =
        bytes <= SIZE_MAX - sizeof *copy ? qsi_alloc(sizeof *copy + (size_t)bytes) : NULL;

    if (copy == NULL) {
        return qsi_fail(column->error, QS_ENOMEM, "copy of column \"%s\"",
                        column->name != NULL ? column->name : "");
    }
    copy->next = *column->copies;
    *column->copies = copy;
    *data_out = copy->data;
    return QS_OK;
}

qs_status qsi_arrow_copy_bytes(const struct qsi_arrow_column *column, const void *data,
                               uint64_t bytes, const uint8_t **copy_out)
{
    uint8_t *copy = NULL;

    QS_DCHECK(bytes == 0 || data != NULL);
    QS_TRY(qsi_arrow_make_copy(column, bytes, &copy));
    if (bytes > 0) {
        memcpy(copy, data, (size_t)bytes);
    }
    *copy_out = copy;
    return QS_OK;
}

void qsi_arrow_batch_close(struct qsi_arrow_batch *batch)
{
    while (batch->copies != NULL) {
        struct qsi_arrow_copy *next = batch->copies->next;

        qsi_free(batch->copies);
        batch->copies = next;
    }
}

qs_status qsi_arrow_fail_type(const struct qsi_arrow_column *column, const char *expected)
{
    char words[WORDS_BYTES];

    qsi_arrow_type_words(column->schema, words, sizeof words);
    return qsi_arrow_fail(column, "Arrow's %s cannot be used, expected %s", words, expected);
}

/* ---- structure ---- */

qs_status qsi_arrow_check_structure(const struct qsi_arrow_column *column, int64_t buffers_min,
                                    int64_t buffers_max, int64_t children)
{
    const struct ArrowArray *array = column->array;

    if (array->length < 0 || array->offset < 0 || array->length > QSI_ARROW_POSITIONS_MAX ||
        array->offset > QSI_ARROW_POSITIONS_MAX) {
        return qsi_arrow_fail(column, "length %" PRId64 " at offset %" PRId64 " is impossible",
                              array->length, array->offset);
    }
    if (array->null_count < -1) {
        return qsi_arrow_fail(column, "null count %" PRId64 " is impossible", array->null_count);
    }
    if (column->first + column->rows > (uint64_t)array->offset + (uint64_t)array->length) {
        return qsi_arrow_fail(
            column, "length %" PRId64 " is less than the %" PRIu64 " that are needed",
            array->length, column->first + column->rows - (uint64_t)array->offset);
    }
    if (array->n_buffers < buffers_min || array->n_buffers > buffers_max ||
        array->buffers == NULL) {
        return qsi_arrow_fail(column, "%" PRId64 " buffers, expected %" PRId64, array->n_buffers,
                              buffers_min);
    }
    if (array->n_children != children || column->schema->n_children != children) {
        return qsi_arrow_fail(column, "%" PRId64 " children, expected %" PRId64, array->n_children,
                              children);
    }
    return QS_OK;
}

qs_status qsi_arrow_open_validity(const struct qsi_arrow_column *column,
                                  const uint8_t **validity_out, uint64_t *offset_out)
{
    const uint8_t *bits = column->array->null_count == 0 ? NULL : column->array->buffers[0];

    QS_DCHECK(column->array->n_buffers > 0);
    *validity_out = NULL;
    *offset_out = column->first % 8;
    if (bits == NULL && column->array->null_count > 0) {
        return qsi_arrow_fail(column, "%" PRId64 " nulls, but no validity buffer",
                              column->array->null_count);
    }
    if (bits == NULL || column->rows == 0) {
        return QS_OK;
    }
    return qsi_arrow_copy_bytes(column, bits + column->first / 8,
                                (*offset_out + column->rows + 7) / 8, validity_out);
}

uint64_t qsi_arrow_first_null(const uint8_t *validity, uint64_t offset, uint64_t count)
{
    uint64_t row = 0;

    QS_DCHECK(validity == NULL || offset < 8);
    if (validity == NULL) {
        return count;
    }
    while (row < count) {
        uint64_t word;

        if ((offset + row) % 8 == 0 && count - row >= 64) {
            memcpy(&word, validity + (offset + row) / 8, sizeof word);
            if (word == UINT64_MAX) {
                row += 64;
                continue;
            }
        }
        if (!qsi_arrow_bit(validity, offset + row)) {
            return row;
        }
        row++;
    }
    return count;
}
