/* Rules for messages, and the check of a record batch without a store. */
#include "message_rules.h"

#include "qstore/codec.h"

#define US_PER_S UINT64_C(1000000)
#define DELAY_US_MAX (UINT64_C(100) * 366 * 24 * 3600 * US_PER_S)

#include "check.h"
#include "error.h"
#include "field_print.h"

qs_status qsi_copies_refuse(struct qsi_slice name, uint8_t type, qs_error *error)
{
    QS_DCHECK(qsi_is_copies_name(name));
    return qsi_fail(error, QS_PRECONDITION_FAILED,
                    "invalid message: {unacceptable_type_in_header,\"%.*s\",%s}", (int)name.bytes,
                    (const char *)name.data, qsi_field_type_name(type));
}

qs_status qsi_check_body_bytes(uint64_t bytes_max, uint64_t bytes, qs_error *error)
{
    if (bytes > bytes_max) {
        return qsi_fail(error, QS_PRECONDITION_FAILED,
                        "message size %llu is larger than max size %llu", (unsigned long long)bytes,
                        (unsigned long long)bytes_max);
    }
    return QS_OK;
}

qs_status qsi_check_properties_bytes(uint64_t bytes_max, uint64_t bytes, uint64_t row,
                                     qs_error *error)
{
    if (bytes > bytes_max) {
        return qsi_fail(error, QS_EINVAL, "row %llu: properties of %llu bytes",
                        (unsigned long long)row, (unsigned long long)bytes);
    }
    return QS_OK;
}

qs_status qsi_check_delay(uint64_t delay_us, qs_error *error)
{
    return delay_us <= DELAY_US_MAX
               ? QS_OK
               : qsi_fail(error, QS_EINVAL, "a delay of %llu s: 100 years at most",
                          (unsigned long long)(delay_us / US_PER_S));
}

/* ---- rows of record batches ---- */

qs_status qsi_check_row_expiration(int64_t expiration_ms, uint64_t row, qs_error *error)
{
    return expiration_ms <= QSI_EXPIRATION_MS_MAX
               ? QS_OK
               : qsi_fail(error, QS_PRECONDITION_FAILED,
                          "row %llu: invalid expiration '%lld': %u milliseconds at most",
                          (unsigned long long)row, (long long)expiration_ms, QSI_EXPIRATION_MS_MAX);
}

qs_status qsi_check_row_due(uint64_t due_us, uint64_t now_us, uint64_t row, qs_error *error)
{
    return due_us <= now_us || due_us - now_us <= DELAY_US_MAX
               ? QS_OK
               : qsi_fail(error, QS_EINVAL,
                          "row %llu: due in more than 100 years: a later time cannot be waited for",
                          (unsigned long long)row);
}

/* ---- record batches ---- */

static qs_status refuse_row(qs_status status, uint64_t row, qs_error *error)
{
    qsi_error_prefix(error, "row %llu", (unsigned long long)row);
    return status;
}

qs_status qsi_arrow_check_bodies(const struct qsi_arrow_batch *batch, uint64_t rows_before,
                                 uint64_t bytes_max, qs_error *error)
{
    uint64_t row;
    uint32_t longest = qsi_arrow_body_max(batch, &row);
    qs_status status = qsi_check_body_bytes(bytes_max, longest, error);

    return status == QS_OK ? QS_OK : refuse_row(status, rows_before + row, error);
}

static qs_status refuse_copies(const struct qsi_arrow_batch *batch,
                               const struct qsi_arrow_entries *entries, qs_error *error)
{
    for (uint64_t entry = entries->from; entry < entries->to; entry++) {
        struct qsi_slice name = qsi_arrow_bytes(&batch->headers.keys, entry);
        if (qsi_is_copies_name(name)) {
            bool is_null = qsi_slice_is_null(qsi_arrow_bytes(&batch->headers.values, entry));
            return qsi_copies_refuse(name, is_null ? 'V' : 'S', error);
        }
    }
    return QS_OK;
}

qs_status qsi_arrow_check_headers(const struct qsi_arrow_batch *batch, uint64_t rows_before,
                                  qs_error *error)
{
    for (uint64_t row = 0; batch->headers.present && row < batch->rows; row++) {
        struct qsi_arrow_entries entries;
        qs_status status = qsi_arrow_row_headers(batch, row, &entries)
                               ? refuse_copies(batch, &entries, error)
                               : QS_OK;
        if (status != QS_OK) {
            return refuse_row(status, rows_before + row, error);
        }
    }
    return QS_OK;
}

/* Checks the size of properties, which only headers can make too large.  A row without a delivery
 * mode gets one. */
static qs_status check_properties(const struct qsi_arrow_batch *batch, uint64_t rows_before,
                                  qs_error *error)
{
    const struct qsi_properties defaults = {
        .delivery_mode = 2, .present = qsi_property_flag(QSI_PROPERTY_DELIVERY_MODE)};

    for (uint64_t row = 0; batch->headers.present && row < batch->rows; row++) {
        struct qsi_arrow_row properties;
        uint64_t bytes = qsi_arrow_row_begin(&properties, batch, row, &defaults);
        QS_TRY(qsi_check_properties_bytes(QSI_BODY_BYTES_MAX, bytes, rows_before + row, error));
    }
    return QS_OK;
}

static qs_status check_times(const struct qsi_arrow_batch *batch, uint64_t rows_before,
                             uint64_t now_us, qs_error *error)
{
    int64_t expiration_ms;

    for (uint64_t row = 0; batch->expiration_ms.present && row < batch->rows; row++) {
        if (qsi_arrow_int(&batch->expiration_ms, row, &expiration_ms)) {
            QS_TRY(qsi_check_row_expiration(expiration_ms, rows_before + row, error));
        }
    }
    for (uint64_t row = 0; batch->due.present && row < batch->rows; row++) {
        QS_TRY(qsi_check_row_due(qsi_arrow_due_us(batch, row), now_us, rows_before + row, error));
    }
    return QS_OK;
}

static qs_status check_rows(const struct qsi_arrow_batch *batch, uint64_t rows_before,
                            uint64_t now_us, qs_error *error)
{
    QS_TRY(qsi_arrow_check_bodies(batch, rows_before, QSI_BODY_BYTES_MAX, error));
    QS_TRY(qsi_arrow_check_headers(batch, rows_before, error));
    QS_TRY(check_properties(batch, rows_before, error));
    return check_times(batch, rows_before, now_us, error);
}

qs_status qs_rows_check(const struct ArrowSchema *schema, const struct ArrowArray *array,
                        uint64_t rows_before, uint64_t now_us, qs_error *error)
{
    struct qsi_arrow_batch batch;
    qs_status status =
        qsi_arrow_batch_open(&batch, schema, array, "body", rows_before, NULL, error);

    if (status == QS_OK) {
        status = check_rows(&batch, rows_before, now_us, error);
        qsi_arrow_batch_close(&batch);
    }
    return status;
}
