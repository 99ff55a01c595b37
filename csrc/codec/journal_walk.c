/* The whole blocks of a journal file, and their references to bodies in the message store. */
#include "qstore/codec.h"

#include "block.h"
#include "body_ref.h"
#include "error.h"
#include "record.h"

#include <string.h>

struct refs {
    uint8_t *to;
    size_t room;  /* of references */
    size_t count; /* may exceed room: further references are only counted */
};

static void record_ref(struct refs *refs, struct qsi_slice cell)
{
    if (refs->count < refs->room) {
        memcpy(refs->to + refs->count * QSI_BODY_REF_BYTES, cell.data, QSI_BODY_REF_BYTES);
    }
    refs->count += 1;
}

static qs_status walk_messages(const uint8_t *record, struct refs *refs, qs_error *error)
{
    struct qsi_messages view;

    QS_TRY(qsi_messages_check(record, error));
    qsi_messages_view(&view, record);
    for (uint32_t row = 0; view.stored != NULL && row < view.row_count; row++) {
        if (qsi_messages_is_stored(&view, row)) {
            record_ref(refs, qsi_messages_body(&view, row));
        }
    }
    return QS_OK;
}

static qs_status walk_records(const uint8_t *at, uint64_t bytes, struct refs *refs,
                              bool *elsewhere_out, qs_error *error)
{
    while (bytes > 0) {
        uint8_t type;

        if (!qsi_record_fits(at, bytes)) {
            return qsi_fail(error, QS_ECORRUPT, "a record that reaches beyond its block");
        }
        type = qsi_record_type(at);
        if (type == QSI_RECORD_MESSAGES) {
            QS_TRY(walk_messages(at, refs, error));
        }
        *elsewhere_out = *elsewhere_out || type == QSI_RECORD_STREAM_WRITTEN ||
                         type == QSI_RECORD_STREAM_ADOPTED;
        bytes -= qsi_record_length(at);
        at += qsi_record_length(at);
    }
    return QS_OK;
}

/* False: the block is incomplete. */
static bool find_block(struct qsi_block *block, const uint8_t *data, size_t bytes,
                       qs_journal_walk *walk)
{
    if (bytes < QSI_BLOCK_HEADER_BYTES || !qsi_block_decode(block, data, walk->salt) ||
        block->file_number != walk->file || block->lsn != walk->lsn) {
        return false;
    }
    if (qsi_block_bytes(block->payload_bytes) > bytes) {
        walk->wanted_bytes = qsi_block_bytes(block->payload_bytes);
        return false;
    }
    return qsi_block_check(data, data + QSI_BLOCK_HEADER_BYTES, block->payload_bytes);
}

qs_status qs_journal_walk_blocks(const void *data, size_t data_bytes, void *refs_out,
                                 size_t refs_room, qs_journal_walk *walk_io, qs_error *error)
{
    const uint8_t *at = data;
    struct refs refs = {.to = refs_out, .room = refs_room};
    struct qsi_block block;

    walk_io->walked_bytes = walk_io->wanted_bytes = 0;
    walk_io->ref_count = walk_io->wanted_refs = 0;
    walk_io->next_file = 0;
    walk_io->is_elsewhere = false;
    while (walk_io->next_file == 0 && walk_io->ref_count == 0 &&
           find_block(&block, at + walk_io->walked_bytes, data_bytes - walk_io->walked_bytes,
                      walk_io) &&
           block.lsn + block.payload_bytes <= walk_io->upto_lsn) {
        const uint8_t *records = at + walk_io->walked_bytes + QSI_BLOCK_HEADER_BYTES;

        if (block.lsn >= walk_io->from_lsn) {
            QS_TRY(
                walk_records(records, block.payload_bytes, &refs, &walk_io->is_elsewhere, error));
        }
        if (walk_io->is_elsewhere) {
            break;
        }
        if (refs.count > refs.room) {
            walk_io->wanted_refs = refs.count;
            break;
        }
        walk_io->ref_count = refs.count;
        walk_io->walked_bytes += (size_t)qsi_block_bytes(block.payload_bytes);
        walk_io->lsn += block.payload_bytes;
        walk_io->next_file = block.next_file;
    }
    return QS_OK;
}
