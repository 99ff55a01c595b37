/* Copying records byte for byte, verified during the copy.
 *
 * Invariant: records that count as appended are whole; a damaged record is overwritten by the next
 * one, or truncated at the end. */
#include "message_copy.h"

#include "qstore/codec.h"

#include "error.h"
#include "file.h"

#include <string.h>

qs_status qsi_output_put(struct qsi_message_output *output, const void *data, size_t bytes,
                         uint64_t offset, qs_error *error)
{
    const qs_part part = {data, bytes};
    qs_status status = qsi_file_write(output->env, output->handle, &part, 1, offset, error);

    if (status != QS_OK) {
        return qsi_message_file_fail(error, status, output->id);
    }
    if (offset + bytes > output->high_water) {
        output->high_water = offset + bytes;
    }
    return QS_OK;
}

qs_status qsi_output_flush(struct qsi_message_output *output, qs_error *error)
{
    if (output->used > 0) {
        QS_TRY(qsi_output_put(output, output->buffer, output->used, output->flushed, error));
        output->flushed += output->used;
        output->used = 0;
    }
    return QS_OK;
}

/* Reads bytes of a record, and continues its checksum over them; *whole_out false: the file has
 * fewer. */
static qs_status read_piece(struct qsi_message_output *output, const struct qsi_message_view *view,
                            const struct qsi_body_ref *ref, uint64_t done, size_t bytes,
                            uint8_t *data, uint32_t *crc_io, bool *whole_out, qs_error *error)
{
    size_t skip = done == 0 ? QSI_BODY_HEADER_BYTES : 0;
    size_t read;
    qs_status status =
        qsi_file_read(output->env, view->handle, data, bytes, ref->offset + done, &read, error);

    if (status != QS_OK) {
        status = qsi_message_file_fail(error, status, view->file->id);
        return qsi_message_file_fail_unread(error, status, view->file->id);
    }
    *whole_out = read == bytes;
    if (!*whole_out) {
        return QS_OK;
    }
    if (done == 0) {
        *crc_io = qsi_body_header_crc(data);
    }
    *crc_io = qs_crc32c(*crc_io, data + skip, bytes - skip);
    return QS_OK;
}

/* Appends a record that fits into the buffer, if its checksum is right. */
static qs_status copy_small(struct qsi_message_output *output, const struct qsi_message_view *view,
                            const struct qsi_body_ref *ref, bool *copied_out, qs_error *error)
{
    size_t bytes = (size_t)qsi_body_record_bytes(ref);
    size_t packed = (size_t)qsi_body_packed_bytes(ref);
    uint8_t *room;
    uint32_t crc = 0;
    bool whole;

    if (packed > QSI_OUTPUT_BUFFER_BYTES - output->used) {
        QS_TRY(qsi_output_flush(output, error));
    }
    room = output->buffer + output->used;
    QS_TRY(read_piece(output, view, ref, 0, bytes, room, &crc, &whole, error));
    *copied_out = whole && crc == ref->crc;
    if (*copied_out) {
        memset(room + bytes, 0, packed - bytes);
        output->used += packed;
    }
    return QS_OK;
}

/* Writes a larger record while it is read; if it is damaged, the next one overwrites it. */
static qs_status copy_large(struct qsi_message_output *output, const struct qsi_message_view *view,
                            const struct qsi_body_ref *ref, bool *copied_out, qs_error *error)
{
    uint64_t end = qsi_body_record_bytes(ref);
    uint64_t done = 0;
    uint32_t crc = 0;
    bool whole = true;

    QS_TRY(qsi_output_flush(output, error));
    while (whole && done < end) {
        size_t bytes =
            end - done < QSI_OUTPUT_BUFFER_BYTES ? (size_t)(end - done) : QSI_OUTPUT_BUFFER_BYTES;

        QS_TRY(read_piece(output, view, ref, done, bytes, output->buffer, &crc, &whole, error));
        QS_TRY(qsi_output_put(output, output->buffer, bytes, output->flushed + done, error));
        done += bytes;
    }
    *copied_out = whole && crc == ref->crc;
    if (*copied_out) {
        static const uint8_t zeros[QSI_BODY_PACKED_ALIGNMENT];

        QS_TRY(qsi_output_put(output, zeros, (size_t)(qsi_body_packed_bytes(ref) - end),
                              output->flushed + end, error));
        output->flushed += qsi_body_packed_bytes(ref);
    }
    return QS_OK;
}

qs_status qsi_output_copy(struct qsi_message_output *output, const struct qsi_message_view *view,
                          const struct qsi_body_ref *ref, bool *copied_out, qs_error *error)
{
    char path[QSI_MESSAGE_PATH_BYTES];
    uint64_t bytes = qsi_body_record_bytes(ref);

    if (bytes > output->effort) {
        qsi_message_path(path, view->file->id);
        return qsi_fail_corrupt(
            error, path, ref->offset,
            "more garbage that looks like records than compaction puts up with");
    }
    output->effort -= bytes;
    if (qsi_body_packed_bytes(ref) <= QSI_OUTPUT_BUFFER_BYTES) {
        return copy_small(output, view, ref, copied_out, error);
    }
    return copy_large(output, view, ref, copied_out, error);
}
