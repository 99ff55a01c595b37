/* Reading bodies.
 *
 * A reference determines every byte of a record's header, so the header is compared, not
 * interpreted: bytes of a file never decide how much is read, or where. */
#include "qstore/codec.h"

#include "check.h"
#include "error.h"
#include "file.h"
#include "le.h"
#include "message_file.h"

#include <string.h>

#define CHECK_BUFFER_BYTES 32768u

/* The location of a record.  In generation 0 it is the one in the reference. */
struct location {
    struct qsi_message_view view;
    uint64_t offset;
};

static qs_status fail_record(qs_error *error, const struct location *at,
                             const struct qsi_body_ref *ref, const char *what)
{
    char path[QSI_MESSAGE_PATH_BYTES];

    qsi_message_path(path, at->view.file->id);
    return qsi_fail_corrupt(error, path, at->offset, "body in slot %u: %s", ref->slot, what);
}

static qs_status read_fully(struct qsi_message_store *messages, const struct location *at,
                            const struct qsi_body_ref *ref, uint64_t offset, void *data,
                            size_t bytes, qs_error *error)
{
    size_t read;
    qs_status status =
        qsi_file_read(messages->env, at->view.handle, data, bytes, offset, &read, error);

    if (status != QS_OK) {
        return qsi_message_file_fail(error, status, at->view.file->id);
    }
    return read == bytes ? QS_OK : fail_record(error, at, ref, "beyond the end of the file");
}

/* Reads one offset of the table, without checking the table's checksum: a wrong offset leads to no
 * record of this slot. */
static qs_status look_up(struct qsi_message_store *messages, struct location *at,
                         const struct qsi_body_ref *ref, qs_error *error)
{
    uint8_t cell[8];

    at->offset = at->view.header.table_offset;
    if (ref->slot >= at->view.header.table_slots) {
        return fail_record(error, at, ref, "the file has no such slot");
    }
    QS_TRY(read_fully(messages, at, ref, at->offset + (uint64_t)ref->slot * 8, cell, sizeof cell,
                      error));
    if (qsi_get_u64(cell) == 0) {
        return fail_record(error, at, ref,
                           "not there any more: it was damaged or dead at compaction");
    }
    at->offset = qsi_get_u64(cell);
    return QS_OK;
}

static qs_status check_range(const struct location *at, const struct qsi_body_ref *ref,
                             qs_error *error)
{
    if (at->offset < QSI_MESSAGE_HEADER_BYTES || at->offset % QSI_BODY_PACKED_ALIGNMENT != 0) {
        return fail_record(error, at, ref, "no record can begin here");
    }
    if (at->offset > at->view.bytes || qsi_body_record_bytes(ref) > at->view.bytes - at->offset) {
        return fail_record(error, at, ref, "beyond the end of the file");
    }
    return QS_OK;
}

/* Locates a reference in the acquired file, which is released if the record is not there. */
static qs_status find(struct qsi_message_store *messages, const struct qsi_body_ref *ref,
                      struct location *at_out, qs_error *error)
{
    qs_status status = QS_OK;

    at_out->offset = ref->offset;
    if (at_out->view.file->id.generation > 0) {
        status = look_up(messages, at_out, ref, error);
    }
    if (status == QS_OK) {
        status = check_range(at_out, ref, error);
    }
    if (status != QS_OK) {
        qsi_message_file_release(messages, at_out->view.file);
    }
    return status;
}

/* Acquires the file of a reference, and checks that it is large enough. */
static qs_status acquire(struct qsi_message_store *messages, const struct qsi_body_ref *ref,
                         struct location *at_out, qs_error *error)
{
    QS_TRY(qsi_message_file_acquire(messages, ref->file, &at_out->view, error));
    return find(messages, ref, at_out, error);
}

static qs_status check_header(const struct location *at, const struct qsi_body_ref *ref,
                              const uint8_t *header, qs_error *error)
{
    uint8_t expected[QSI_BODY_HEADER_BYTES];

    qsi_body_header_encode(expected, ref, at->view.header.salt);
    if (memcmp(header, expected, sizeof expected) != 0) {
        return fail_record(error, at, ref, "the record header is not the one referred to");
    }
    return QS_OK;
}

static qs_status check_crc(const struct location *at, const struct qsi_body_ref *ref, uint32_t crc,
                           qs_error *error)
{
    return crc == ref->crc ? QS_OK : fail_record(error, at, ref, "checksum mismatch");
}

static qs_status read_record(struct qsi_message_store *messages, const struct location *at,
                             const struct qsi_body_ref *ref, uint8_t *data, qs_error *error)
{
    size_t bytes = (size_t)qsi_body_record_bytes(ref);

    QS_TRY(read_fully(messages, at, ref, at->offset, data, bytes, error));
    QS_TRY(check_header(at, ref, data, error));
    return check_crc(at, ref,
                     qs_crc32c(qsi_body_header_crc(data), data + QSI_BODY_HEADER_BYTES,
                               bytes - QSI_BODY_HEADER_BYTES),
                     error);
}

qs_status qsi_message_store_read(struct qsi_message_store *messages, const struct qsi_body_ref *ref,
                                 void *data, qs_error *error)
{
    struct location at;
    qs_status status;

    QS_TRY(acquire(messages, ref, &at, error));
    status = read_record(messages, &at, ref, data, error);
    qsi_message_file_release(messages, at.view.file);
    return status;
}

static qs_status read_replaced(struct qsi_message_store *messages, const struct qsi_body_ref *ref,
                               uint32_t index, void *data)
{
    struct location at;
    qs_status status;

    QS_TRY(qsi_message_file_acquire_replaced(messages, ref->file, index, &at.view, NULL));
    QS_TRY(find(messages, ref, &at, NULL));
    status = read_record(messages, &at, ref, data, NULL);
    qsi_message_file_release(messages, at.view.file);
    return status;
}

qs_status qsi_message_store_read_dead(struct qsi_message_store *messages,
                                      const struct qsi_body_ref *ref, void *data, qs_error *error)
{
    qs_status first = qsi_message_store_read(messages, ref, data, error);
    qs_status status = first;

    for (uint32_t i = 0; status == QS_ECORRUPT; i++) {
        status = read_replaced(messages, ref, i, data);
    }
    return status == QS_EEMPTY ? first : status;
}

static qs_status check_record(struct qsi_message_store *messages, const struct location *at,
                              const struct qsi_body_ref *ref, qs_error *error)
{
    uint8_t buffer[CHECK_BUFFER_BYTES];
    uint64_t position = QSI_BODY_HEADER_BYTES;
    uint64_t end = qsi_body_record_bytes(ref);
    uint32_t crc;

    QS_TRY(read_fully(messages, at, ref, at->offset, buffer, QSI_BODY_HEADER_BYTES, error));
    QS_TRY(check_header(at, ref, buffer, error));
    crc = qsi_body_header_crc(buffer);
    while (position < end) {
        size_t bytes = end - position < sizeof buffer ? (size_t)(end - position) : sizeof buffer;

        QS_TRY(read_fully(messages, at, ref, at->offset + position, buffer, bytes, error));
        crc = qs_crc32c(crc, buffer, bytes);
        position += bytes;
    }
    return check_crc(at, ref, crc, error);
}

qs_status qsi_message_store_check(struct qsi_message_store *messages,
                                  const struct qsi_body_ref *ref, qs_error *error)
{
    struct location at;
    qs_status status;

    QS_TRY(acquire(messages, ref, &at, error));
    status = check_record(messages, &at, ref, error);
    qsi_message_file_release(messages, at.view.file);
    return status;
}

qs_status qsi_message_store_locate(struct qsi_message_store *messages,
                                   const struct qsi_body_ref *ref, qs_error *error)
{
    struct location at;

    QS_TRY(acquire(messages, ref, &at, error));
    qsi_message_file_release(messages, at.view.file);
    return QS_OK;
}
