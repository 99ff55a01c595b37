/* Reading bodies back.
 *
 * A reference tells every byte of a record's header, so the header is compared, not interpreted:
 * nothing that stands in a file decides how much is read or where. */
#include "qstore/codec.h"

#include "check.h"
#include "error.h"
#include "file.h"
#include "message_file.h"

#include <string.h>

#define CHECK_BUFFER_BYTES 32768u

static qs_status fail_record(qs_error *error, const struct qsi_body_ref *ref, const char *what)
{
    char path[QSI_MESSAGE_PATH_BYTES];

    qsi_message_path(path, ref->file);
    return qsi_fail_corrupt(error, path, ref->offset, "body in slot %u: %s", ref->slot, what);
}

static qs_status check_range(const struct qsi_message_view *view, const struct qsi_body_ref *ref,
                             qs_error *error)
{
    if (ref->offset < QSI_MESSAGE_HEADER_BYTES || ref->offset % QSI_BODY_ALIGNMENT != 0) {
        return fail_record(error, ref, "no record can begin here");
    }
    if (ref->offset > view->bytes || qsi_body_record_bytes(ref) > view->bytes - ref->offset) {
        return fail_record(error, ref, "beyond the end of the file");
    }
    return QS_OK;
}

/* Acquires the file of a reference that it is large enough for. */
static qs_status acquire(struct qsi_message_store *store, const struct qsi_body_ref *ref,
                         struct qsi_message_view *view_out, qs_error *error)
{
    qs_status status;

    QS_TRY(qsi_message_file_acquire(store, ref->file, view_out, error));
    status = check_range(view_out, ref, error);
    if (status != QS_OK) {
        qsi_message_file_release(store, view_out->file);
    }
    return status;
}

static qs_status read_fully(struct qsi_message_store *store, const struct qsi_message_view *view,
                            const struct qsi_body_ref *ref, uint64_t position, void *data,
                            size_t bytes, qs_error *error)
{
    size_t read;
    qs_status status =
        qsi_file_read(store->env, view->handle, data, bytes, ref->offset + position, &read, error);

    if (status != QS_OK) {
        return qsi_message_file_fail(error, status, ref->file);
    }
    return read == bytes ? QS_OK : fail_record(error, ref, "beyond the end of the file");
}

static qs_status check_header(const struct qsi_message_view *view, const struct qsi_body_ref *ref,
                              const uint8_t *header, qs_error *error)
{
    uint8_t expected[QSI_BODY_HEADER_BYTES];

    qsi_body_header_encode(expected, ref, view->salt);
    if (memcmp(header, expected, sizeof expected) != 0) {
        return fail_record(error, ref, "the record header is not the one referred to");
    }
    return QS_OK;
}

static qs_status check_crc(const struct qsi_body_ref *ref, uint32_t crc, qs_error *error)
{
    return crc == ref->crc ? QS_OK : fail_record(error, ref, "checksum mismatch");
}

static qs_status read_record(struct qsi_message_store *store, const struct qsi_message_view *view,
                             const struct qsi_body_ref *ref, uint8_t *data, qs_error *error)
{
    size_t bytes = (size_t)qsi_body_record_bytes(ref);

    QS_TRY(read_fully(store, view, ref, 0, data, bytes, error));
    QS_TRY(check_header(view, ref, data, error));
    return check_crc(ref,
                     qs_crc32c(qsi_body_header_crc(data), data + QSI_BODY_HEADER_BYTES,
                               bytes - QSI_BODY_HEADER_BYTES),
                     error);
}

qs_status qsi_message_store_read(struct qsi_message_store *store, const struct qsi_body_ref *ref,
                                 void *data, qs_error *error)
{
    struct qsi_message_view view;
    qs_status status;

    QS_TRY(acquire(store, ref, &view, error));
    status = read_record(store, &view, ref, data, error);
    qsi_message_file_release(store, view.file);
    return status;
}

static qs_status check_record(struct qsi_message_store *store, const struct qsi_message_view *view,
                              const struct qsi_body_ref *ref, qs_error *error)
{
    uint8_t buffer[CHECK_BUFFER_BYTES];
    uint64_t position = QSI_BODY_HEADER_BYTES;
    uint64_t end = qsi_body_record_bytes(ref);
    uint32_t crc;

    QS_TRY(read_fully(store, view, ref, 0, buffer, QSI_BODY_HEADER_BYTES, error));
    QS_TRY(check_header(view, ref, buffer, error));
    crc = qsi_body_header_crc(buffer);
    while (position < end) {
        size_t bytes = end - position < sizeof buffer ? (size_t)(end - position) : sizeof buffer;

        QS_TRY(read_fully(store, view, ref, position, buffer, bytes, error));
        crc = qs_crc32c(crc, buffer, bytes);
        position += bytes;
    }
    return check_crc(ref, crc, error);
}

qs_status qsi_message_store_check(struct qsi_message_store *store, const struct qsi_body_ref *ref,
                                  qs_error *error)
{
    struct qsi_message_view view;
    qs_status status;

    QS_TRY(acquire(store, ref, &view, error));
    status = check_record(store, &view, ref, error);
    qsi_message_file_release(store, view.file);
    return status;
}

qs_status qsi_message_store_locate(struct qsi_message_store *store, const struct qsi_body_ref *ref,
                                   qs_error *error)
{
    struct qsi_message_view view;

    QS_TRY(acquire(store, ref, &view, error));
    qsi_message_file_release(store, view.file);
    return QS_OK;
}
