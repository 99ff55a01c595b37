/* Writing a body to its place.
 *
 * Other threads may change the caller's memory during the write.  The checksum must be that of the
 * written bytes, so such a body is copied, piece by piece, through the message store's own memory.
 * A body that does not change is written in place. */
#include "qstore/codec.h"

#include "alloc.h"
#include "check.h"
#include "error.h"
#include "file.h"
#include "message_file.h"
#include "message_store.h"

#include <string.h>

#define PIECE_BYTES (256u << 10)

static uint64_t total_bytes(const qs_part *parts, size_t part_count)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < part_count; i++) {
        bytes += parts[i].bytes;
    }
    return bytes;
}

/* The reference without its checksum. */
static struct qsi_body_ref ref_of(const struct qsi_place *place)
{
    return (struct qsi_body_ref){
        .file = place->file->id.number,
        .slot = place->slot,
        .offset = place->offset,
        .envelope_bytes = place->envelope_bytes,
        .body_bytes = place->body_bytes,
    };
}

static void check_parts(const struct qsi_place *place, const qs_part *parts, size_t part_count)
{
    QS_ASSERT(part_count <= QSI_BODY_PARTS_MAX);
    QS_ASSERT(total_bytes(parts, part_count) ==
              (uint64_t)place->envelope_bytes + place->body_bytes);
}

static qs_status write_at(struct qsi_message_store *messages, struct qsi_message_file *file,
                          const qs_part *parts, size_t part_count, uint64_t offset, qs_error *error)
{
    qs_status status;

    qsi_mutex_lock(&file->write_mutex);
    status = qsi_file_write(messages->env, file->handle, parts, part_count, offset, error);
    qsi_mutex_unlock(&file->write_mutex);
    return status == QS_OK ? QS_OK : qsi_message_file_fail(error, status, file->id);
}

/* -- a body that does not change -------------------------------------------------------------- */

qs_status qsi_message_store_write_constant(struct qsi_message_store *messages,
                                           const struct qsi_place *place, const qs_part *parts,
                                           size_t part_count, struct qsi_body_ref *ref_out,
                                           qs_error *error)
{
    uint64_t salt = place->file->header.salt;
    uint8_t header[QSI_BODY_HEADER_BYTES];
    qs_part gathered[QSI_BODY_PARTS_MAX + 1] = {{header, sizeof header}};
    struct qsi_body_ref ref = ref_of(place);

    check_parts(place, parts, part_count);
    qsi_body_header_encode(header, &ref, salt); /* without the checksum, which covers the header */
    ref.crc = qsi_body_header_crc(header);
    for (size_t i = 0; i < part_count; i++) {
        gathered[i + 1] = parts[i];
        ref.crc = qs_crc32c(ref.crc, parts[i].data, parts[i].bytes);
    }
    qsi_body_header_encode(header, &ref, salt);
    QS_TRY(write_at(messages, place->file, gathered, part_count + 1, place->offset, error));
    *ref_out = ref;
    return QS_OK;
}

/* -- a body that may change ------------------------------------------------------------------- */

/* The remaining part of the parts.  Every byte is read once. */
struct source {
    const qs_part *parts;
    size_t part_count;
    size_t part_done; /* bytes of the first part */
};

/* Copies up to bytes_max bytes into data; returns their number. */
static size_t copy_piece(struct source *source, uint8_t *data, size_t bytes_max)
{
    size_t done = 0;

    while (source->part_count > 0 && done < bytes_max) {
        size_t left = source->parts->bytes - source->part_done;
        size_t bytes = left < bytes_max - done ? left : bytes_max - done;

        if (bytes > 0) {
            memcpy(data + done, (const uint8_t *)source->parts->data + source->part_done, bytes);
        }
        done += bytes;
        source->part_done += bytes;
        if (bytes == left) {
            source->parts++;
            source->part_count--;
            source->part_done = 0;
        }
    }
    return done;
}

/* Writes the pieces after the first one. */
static qs_status write_pieces(struct qsi_message_store *messages, const struct qsi_place *place,
                              struct source *source, uint8_t *piece, uint32_t *crc_io,
                              qs_error *error)
{
    uint64_t offset = place->offset + PIECE_BYTES;

    while (source->part_count > 0) {
        qs_part part = {piece, copy_piece(source, piece, PIECE_BYTES)};

        *crc_io = qs_crc32c(*crc_io, piece, part.bytes);
        QS_TRY(write_at(messages, place->file, &part, 1, offset, error));
        offset += part.bytes;
    }
    return QS_OK;
}

/* Copies and writes a body in pieces.  The first piece has the header, with the checksum of all
 * pieces, so it is written last. */
static qs_status write_copies(struct qsi_message_store *messages, const struct qsi_place *place,
                              struct source *source, uint8_t *first, uint8_t *piece,
                              struct qsi_body_ref *ref, qs_error *error)
{
    uint64_t salt = place->file->header.salt;
    qs_part part = {first, QSI_BODY_HEADER_BYTES};
    size_t bytes =
        copy_piece(source, first + QSI_BODY_HEADER_BYTES, PIECE_BYTES - QSI_BODY_HEADER_BYTES);

    qsi_body_header_encode(first, ref, salt); /* without the checksum, which covers the header */
    ref->crc = qs_crc32c(qsi_body_header_crc(first), first + QSI_BODY_HEADER_BYTES, bytes);
    QS_TRY(write_pieces(messages, place, source, piece, &ref->crc, error));
    qsi_body_header_encode(first, ref, salt);
    part.bytes += bytes;
    return write_at(messages, place->file, &part, 1, place->offset, error);
}

qs_status qsi_message_store_write(struct qsi_message_store *messages, const struct qsi_place *place,
                                  const qs_part *parts, size_t part_count,
                                  struct qsi_body_ref *ref_out, qs_error *error)
{
    uint64_t bytes = QSI_BODY_HEADER_BYTES + total_bytes(parts, part_count);
    struct source source = {.parts = parts, .part_count = part_count};
    struct qsi_body_ref ref = ref_of(place);
    bool is_one_piece = bytes <= PIECE_BYTES;
    uint8_t *pieces;
    qs_status status;

    check_parts(place, parts, part_count);
    pieces = qsi_alloc(is_one_piece ? (size_t)bytes : 2 * (size_t)PIECE_BYTES);
    if (pieces == NULL) {
        return qsi_fail(error, QS_ENOMEM, "copy of a body");
    }
    status = write_copies(messages, place, &source, pieces,
                          is_one_piece ? NULL : pieces + PIECE_BYTES, &ref, error);
    qsi_free(pieces);
    if (status == QS_OK) {
        *ref_out = ref;
    }
    return status;
}
