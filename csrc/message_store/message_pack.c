/* Packs: small bodies that move into the message store together, at a checkpoint.
 *
 * Invariants: a pack begins and ends at a sector boundary, so that its write touches no other
 * record; a file with a marked pack that was not synced is neither settled nor forgotten. */
#include "qstore/codec.h"

#include "alloc.h"
#include "check.h"
#include "env_call.h"
#include "envelope.h"
#include "error.h"
#include "file.h"
#include "message_file.h"
#include "message_store.h"

#include <string.h>

/* -- writing ---------------------------------------------------------------------------------- */

/* Sets the lengths of a body's record; its place is not known yet. */
static struct qsi_body_ref measure(const struct qsi_pack_body *body)
{
    return (struct qsi_body_ref){
        .envelope_bytes = qsi_envelope_bytes(body->exchange, body->key, body->properties),
        .body_bytes = body->body.bytes,
    };
}

static uint64_t pack_bytes(const struct qsi_pack_body *bodies, uint32_t count)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        struct qsi_body_ref ref = measure(&bodies[i]);

        bytes += qsi_body_packed_bytes(&ref);
    }
    return bytes;
}

/* Encodes header, envelope, body and padding; sets ref->crc. */
static void encode_record(uint8_t *at, const struct qsi_pack_body *body, struct qsi_body_ref *ref,
                          uint64_t salt)
{
    uint8_t *envelope = at + QSI_BODY_HEADER_BYTES;
    size_t padding = (size_t)(qsi_body_packed_bytes(ref) - qsi_body_record_bytes(ref));

    qsi_envelope_encode(envelope, body->exchange, body->key, body->properties);
    if (body->body.bytes > 0) {
        memcpy(envelope + ref->envelope_bytes, body->body.data, body->body.bytes);
    }
    memset(at + qsi_body_record_bytes(ref), 0, padding);
    qsi_body_header_encode(at, ref, salt); /* without the checksum, which covers the header */
    ref->crc =
        qs_crc32c(qsi_body_header_crc(at), envelope, (size_t)ref->envelope_bytes + ref->body_bytes);
    qsi_body_header_encode(at, ref, salt);
}

static void encode_pack(uint8_t *data, const struct qsi_pack_body *bodies, uint32_t count,
                        const struct qsi_place *place, struct qsi_body_ref *refs_out)
{
    uint64_t done = 0;

    for (uint32_t i = 0; i < count; i++) {
        refs_out[i] = measure(&bodies[i]);
        refs_out[i].file = place->file->id.number;
        refs_out[i].slot = place->slot + i;
        refs_out[i].offset = place->offset + done;
        encode_record(data + done, &bodies[i], &refs_out[i], place->file->header.salt);
        done += qsi_body_packed_bytes(&refs_out[i]);
    }
}

static qs_status write_at(struct qsi_message_store *messages, const struct qsi_place *place,
                          const uint8_t *data, size_t bytes, qs_error *error)
{
    struct qsi_message_file *file = place->file;
    const qs_part part = {data, bytes};
    qs_status status;

    qsi_mutex_lock(&file->write_mutex);
    status = qsi_file_write(messages->env, file->handle, &part, 1, place->offset, error);
    qsi_mutex_unlock(&file->write_mutex);
    return status == QS_OK ? QS_OK : qsi_message_file_fail(error, status, file->id);
}

qs_status qsi_message_store_write_pack(struct qsi_message_store *messages,
                                       const struct qsi_pack_body *bodies, uint32_t count,
                                       struct qsi_body_ref *refs_out, struct qsi_place *place_out,
                                       qs_error *error)
{
    uint64_t bytes = pack_bytes(bodies, count);
    uint8_t *data;
    qs_status status;

    QS_ASSERT(count > 0);
    *place_out = (struct qsi_place){
        .bytes = qsi_round_up(bytes, QSI_BODY_ALIGNMENT),
        .slot_count = count,
        .is_pack = true,
    };
    data = qsi_alloc((size_t)bytes);
    if (data == NULL) {
        return qsi_fail(error, QS_ENOMEM, "pack of %u bodies", count);
    }
    status = qsi_message_place_take(messages, place_out, error);
    if (status != QS_OK) {
        goto out;
    }
    encode_pack(data, bodies, count, place_out, refs_out);
    status = write_at(messages, place_out, data, (size_t)bytes, error);
    if (status != QS_OK) {
        qsi_message_store_abandon(messages, place_out);
    }
out:
    qsi_free(data);
    return status;
}

/* -- syncing ---------------------------------------------------------------------------------- */

/* The first file with a number above behind that has packs to sync, or NULL. */
static struct qsi_message_file *find_marked(struct qsi_message_store *messages, uint32_t behind)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    QS_ASSERT_HELD(&messages->mutex);
    for (struct qsi_list *node = messages->unsettled.next; node != &messages->unsettled;
         node = node->next) {
        struct qsi_message_file *file = QSI_LIST_OWNER(node, struct qsi_message_file, in_unsettled);

        if (file->id.number > behind && file->pack_syncs != file->pack_marks && !file->is_going) {
            return file;
        }
    }
    return NULL;
}

/* Releases the lock meanwhile.  Packs that are marked after the sync began wait for the next
 * one. */
static qs_status sync_marked(struct qsi_message_store *messages, struct qsi_message_file *file,
                             qs_error *error) QSI_REQUIRES(qsi_message_store_mutex)
{
    uint32_t marks = file->pack_marks;
    qs_status status;

    QS_ASSERT_HELD(&messages->mutex);
    file->refs++;
    qsi_message_store_unlock(messages);
    status = qsi_message_file_sync(messages, file->id, file->handle, error);
    if (status == QS_OK) { /* on failure the journal keeps the packed messages */
        status = qsi_env_check_linked(messages->env, file->handle, error);
        status = qsi_message_file_fail_unread(error, status, file->id);
    }
    qsi_message_store_lock(messages);
    if (status == QS_OK) {
        file->pack_syncs = marks;
    }
    /* There is no handle to close: a file with a pack to sync is unsettled. */
    (void)qsi_message_file_unref(messages, file);
    return status;
}

bool qsi_message_store_written_name(struct qsi_message_store *messages,
                                    char name_out[QSI_MESSAGE_NAME_BYTES])
{
    bool is_any;

    qsi_message_store_lock(messages);
    is_any = messages->current != NULL;
    if (is_any) {
        qsi_message_name(name_out, messages->current->id);
    }
    qsi_message_store_unlock(messages);
    return is_any;
}

qs_status qsi_message_store_sync_packs(struct qsi_message_store *messages, qs_error *error)
{
    struct qsi_message_file *file;
    uint32_t number = 0;
    qs_status status = QS_OK;

    qsi_message_store_lock(messages);
    if (messages->is_failed) {
        status = qsi_fail(error, QS_ESTORE_FAILED, "an earlier sync of a message file failed");
    }
    file = find_marked(messages, number);
    while (status == QS_OK && file != NULL) {
        number = file->id.number;
        status = sync_marked(messages, file, error);
        file = find_marked(messages, number);
    }
    qsi_message_store_unlock(messages);
    return status;
}
