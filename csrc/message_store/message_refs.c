/* References to bodies: added and dropped while the store is open, restored when it is opened. */
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "message_file.h"
#include "record.h"

#define SLOT_BEYOND UINT32_MAX /* a slot that no file has */
#define UNCHECKED_SLOTS 4096u  /* so many get room without a check of the file's size */

/* A record has at least 32 bytes, which bounds the slot by the offset.  An inconsistent reference
 * gets a slot that no file has. */
static uint32_t slot_of(const struct qsi_body_ref *ref)
{
    bool possible = ref->offset >= QSI_MESSAGE_HEADER_BYTES && ref->offset <= INT64_MAX &&
                    ref->offset % QSI_BODY_PACKED_ALIGNMENT == 0 &&
                    ref->slot <= (ref->offset - QSI_MESSAGE_HEADER_BYTES) / QSI_BODY_HEADER_BYTES;

    return possible ? ref->slot : SLOT_BEYOND;
}

void qsi_message_store_add_refs(struct qsi_message_store *messages, const struct qsi_body_ref *ref,
                                uint32_t durable, uint32_t transient)
{
    struct qsi_message_file *file;

    qsi_message_store_lock(messages);
    file = qsi_message_table_find(messages, ref->file);
    if (file != NULL) {
        if (qsi_counts_add(&file->counts, slot_of(ref), qsi_body_packed_bytes(ref), durable,
                           transient)) {
            file->is_encoded = false;
        }
        qsi_message_file_count_doomed(messages, file);
    }
    qsi_message_store_unlock(messages);
}

void qsi_message_store_drop_ref(struct qsi_message_store *messages, const struct qsi_body_ref *ref,
                                bool transient)
{
    struct qsi_message_file *file;

    qsi_message_store_lock(messages);
    file = qsi_message_table_find(messages, ref->file);
    if (file != NULL) {
        if (qsi_counts_drop(&file->counts, slot_of(ref), qsi_body_packed_bytes(ref), transient)) {
            file->is_encoded = false;
        }
        qsi_message_file_count_doomed(messages, file);
    }
    qsi_message_store_unlock(messages);
}

/* -- recovery --------------------------------------------------------------------------------- */

/* Also adds an entry for a missing file, so that its number is not used again. */
static qs_status find_or_add(struct qsi_message_store *messages, uint32_t number,
                             struct qsi_message_file **file_out, qs_error *error)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    struct qsi_message_file *file = qsi_message_table_find(messages, number);

    if (file == NULL) {
        file = qsi_message_file_describe((struct qsi_message_id){number, 0});
        if (file == NULL || qsi_message_table_add(messages, file) != QS_OK) {
            qsi_message_file_destroy(messages, file);
            return qsi_fail(error, QS_ENOMEM, "table of message files");
        }
        file->is_present = false;
    }
    if (number >= messages->next_number) {
        QS_DCHECK(number > 0);
        messages->next_number = (uint64_t)number + 1;
    }
    *file_out = file;
    return QS_OK;
}

static qs_status look_at_size(struct qsi_message_store *messages, struct qsi_message_file *file,
                              uint64_t *bytes_out, qs_error *error)
{
    char name[QSI_MESSAGE_NAME_BYTES];
    qs_file *handle;
    qs_status status;

    qsi_message_name(name, file->id);
    status = qsi_env_open(messages->env, messages->dir, name, QS_OPEN_READ | QS_OPEN_LINKED,
                          &handle, error);
    if (status != QS_OK) {
        return qsi_message_file_fail(error, status, file->id);
    }
    status = qsi_env_size(messages->env, handle, bytes_out, error);
    messages->env->close(messages->env, handle);
    return status == QS_OK ? QS_OK : qsi_message_file_fail(error, status, file->id);
}

/* Makes room for slots.  The number comes from a file, so it is checked against the size of the
 * message file before memory is allocated. */
static qs_status make_room(struct qsi_message_store *messages, struct qsi_message_file *file,
                           uint32_t slot_count, qs_error *error)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    uint64_t bytes = 0;
    uint64_t slot_bytes = file->id.generation == 0 ? QSI_BODY_HEADER_BYTES : 8;

    if (!file->is_present || slot_count <= file->counts.capacity) {
        return QS_OK;
    }
    if (slot_count > UNCHECKED_SLOTS) {
        QS_TRY(look_at_size(messages, file, &bytes, error));
        if (slot_count > bytes / slot_bytes) {
            return QS_OK;
        }
    }
    if (qsi_counts_reserve(&file->counts, slot_count) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "reference counts of message file %u", file->id.number);
    }
    return QS_OK;
}

qs_status qsi_message_store_add_reference(struct qsi_message_store *messages,
                                          const struct qsi_body_ref *ref, qs_error *error)
{
    struct qsi_message_file *file;
    uint32_t slot = slot_of(ref);

    if (ref->file == 0) {
        return QS_OK;
    }
    qsi_message_store_is_private(messages);
    QS_TRY(find_or_add(messages, ref->file, &file, error));
    QS_DCHECK(messages->next_number > ref->file);
    if (slot == SLOT_BEYOND) {
        return QS_OK;
    }
    QS_TRY(make_room(messages, file, slot + 1, error));
    if (slot < file->counts.capacity && slot >= file->next_slot) {
        file->next_slot = slot + 1;
    }
    /* Offsets in references are offsets in generation 0. */
    if (file->id.generation == 0 && qsi_body_ref_end(ref) > file->end) {
        file->end = qsi_body_ref_end(ref);
    }
    return QS_OK;
}

/* Makes this generation the file, as the checkpoint's record says; any other one becomes a
 * stray. */
static qs_status choose_generation(struct qsi_message_store *messages,
                                   struct qsi_message_file *file, uint32_t generation,
                                   qs_error *error) QSI_REQUIRES(qsi_message_store_mutex)
{
    if (generation == 0) {
        return QS_OK;
    }
    if (file->is_present && qsi_message_strays_add(messages, file->id) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "list of message files");
    }
    QS_DCHECK(file->id.generation == 0);
    file->id.generation = generation;
    file->is_present = qsi_message_strays_take(messages, file->id);
    return QS_OK;
}

static void restore_counts(struct qsi_message_file *file,
                           const struct qsi_message_file_record *record)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    uint32_t slot = 0;

    for (uint32_t i = 0; i < record->run_count; i++) {
        uint32_t count;
        uint32_t length;

        qsi_message_file_run(record, i, &count, &length);
        qsi_counts_restore(&file->counts, slot, length, (uint16_t)count);
        slot += length;
    }
    QS_DCHECK(slot == record->slot_count); /* checked by decoding */
    file->counts.live_bytes = record->live_bytes;
    file->counts.durable_bytes = record->live_bytes;
}

qs_status qsi_message_store_restore(struct qsi_message_store *messages, const uint8_t *record,
                                    qs_error *error)
{
    struct qsi_message_file_record decoded;
    struct qsi_message_file *file;

    qsi_message_store_is_private(messages);
    QS_TRY(qsi_message_file_record_decode(&decoded, record, error));
    QS_TRY(find_or_add(messages, decoded.number, &file, error));
    if (file->is_named || qsi_counts_any(&file->counts)) {
        return qsi_fail(error, QS_ECORRUPT, "checkpoint: two records of message file %u",
                        decoded.number);
    }
    QS_TRY(choose_generation(messages, file, decoded.generation, error));
    QS_TRY(make_room(messages, file, decoded.slot_count, error));
    file->is_named = true;
    file->named_salt = decoded.salt;
    file->is_final = decoded.is_settled;
    file->end = decoded.end;
    if (file->counts.capacity >= decoded.slot_count) {
        file->next_slot = decoded.slot_count;
    } else {
        qsi_counts_fini(&file->counts); /* the file is too short for its slots: all are beyond it */
    }
    restore_counts(file, &decoded);
    return QS_OK;
}
