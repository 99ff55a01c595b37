/* Functions over each row of a column. */
#include "qstore/codec.h"

#include "check.h"
#include "error.h"
#include "shard.h"

static qs_status row_at(const qs_strings *column, size_t row, const uint8_t **data_out,
                        size_t *bytes_out, qs_error *error)
{
    int32_t from = column->offsets[row], to = column->offsets[row + 1];

    if (from < 0 || to < from || (size_t)to > column->data_bytes) {
        return qsi_fail(error, QS_EINVAL, "row %zu: offsets %d and %d do not lie in %zu bytes", row,
                        from, to, column->data_bytes);
    }
    *bytes_out = (size_t)(to - from);
    *data_out = *bytes_out > 0 ? (const uint8_t *)column->data + from : NULL;
    return QS_OK;
}

qs_status qs_crc32c_column(const qs_strings *column, uint32_t *crcs_out, qs_error *error)
{
    const uint8_t *data;
    size_t bytes;

    for (size_t row = 0; row < column->count; row++) {
        QS_TRY(row_at(column, row, &data, &bytes, error));
        crcs_out[row] = qs_crc32c(0, data, bytes);
    }
    return QS_OK;
}

qs_status qs_shard_column(const qs_strings *column, uint32_t shard_count, uint32_t *shards_out,
                          qs_error *error)
{
    const uint8_t *data;
    size_t bytes;

    if (shard_count == 0 || shard_count > INT32_MAX) {
        return qsi_fail(error, QS_EINVAL, "%u shards: 1 to %d are possible", shard_count,
                        INT32_MAX);
    }
    for (size_t row = 0; row < column->count; row++) {
        QS_TRY(row_at(column, row, &data, &bytes, error));
        shards_out[row] = (uint32_t)qsi_shard_jump(qsi_shard_hash(data, bytes), shard_count);
    }
    return QS_OK;
}
