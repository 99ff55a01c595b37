/* Counting the references to bodies.
 *
 * Invariants: live_count and durable_count are the numbers of such slots in the arrays; counts of
 * slots from the file's next one on are 0. */
#include "message_counts.h"

#include "alloc.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "message_file.h"
#include "record.h"

#include <string.h>

#define CAPACITY_MIN 16u
#define UNCHECKED_SLOTS 4096u /* so many get room without a check of the file's size */

/* -- the counts of one file ------------------------------------------------------------------- */

void qsi_counts_fini(struct qsi_message_counts *counts)
{
    qsi_free(counts->durable);
    qsi_free(counts->transient);
    *counts = (struct qsi_message_counts){0};
}

static uint32_t grown_capacity(uint32_t capacity, uint32_t needed)
{
    uint64_t grown = capacity > CAPACITY_MIN / 2 ? (uint64_t)capacity * 2 : CAPACITY_MIN;

    QS_DCHECK(needed > capacity);
    if (grown < needed) {
        return needed;
    }
    return grown < UINT32_MAX ? (uint32_t)grown : UINT32_MAX;
}

static bool grow(uint16_t **array_io, uint32_t old_capacity, uint32_t capacity)
{
    uint16_t *grown = qsi_realloc(*array_io, (size_t)capacity * sizeof *grown);

    QS_DCHECK(capacity > old_capacity || old_capacity == 0);
    if (grown == NULL) {
        return false;
    }
    memset(grown + old_capacity, 0, (size_t)(capacity - old_capacity) * sizeof *grown);
    *array_io = grown;
    return true;
}

qs_status qsi_counts_reserve(struct qsi_message_counts *counts, uint32_t slot_count)
{
    uint32_t capacity;

    if (slot_count <= counts->capacity) {
        return QS_OK;
    }
    capacity = grown_capacity(counts->capacity, slot_count);
    /* A larger array than capacity says is harmless. */
    if (!grow(&counts->durable, counts->capacity, capacity) ||
        (counts->transient != NULL && !grow(&counts->transient, counts->capacity, capacity))) {
        return QS_ENOMEM;
    }
    counts->capacity = capacity;
    return QS_OK;
}

static uint64_t minus(uint64_t from, uint64_t bytes)
{
    return from > bytes ? from - bytes : 0;
}

static void raise_count(uint16_t *count, uint32_t by)
{
    *count = by < (uint32_t)(QSI_COUNT_STUCK - *count) ? (uint16_t)(*count + by) : QSI_COUNT_STUCK;
}

static void add_durable(struct qsi_message_counts *counts, uint32_t slot, uint64_t bytes,
                        uint32_t count)
{
    QS_DCHECK(slot < counts->capacity && count > 0);
    if (counts->durable[slot] == 0) {
        counts->durable_count++;
        counts->durable_bytes += bytes;
    }
    raise_count(&counts->durable[slot], count);
}

/* Adds transient references.  Without memory the file is pinned: it stays until the session ends,
 * which ends transient references. */
static void add_transient(struct qsi_message_counts *counts, uint32_t slot, uint32_t count)
{
    QS_DCHECK(slot < counts->capacity && count > 0);
    if (counts->transient == NULL && !counts->is_pinned &&
        !grow(&counts->transient, 0, counts->capacity)) {
        counts->is_pinned = true;
    }
    if (counts->transient != NULL) {
        raise_count(&counts->transient[slot], count);
    }
}

/* Adds references.  bytes: of the body in the slot, the same in every call.  True: the durable
 * counts changed. */
static bool add_count(struct qsi_message_counts *counts, uint32_t slot, uint64_t bytes,
                      uint32_t durable, uint32_t transient)
{
    bool was_live;

    if (slot >= counts->capacity) {
        counts->beyond += (uint64_t)durable + transient;
        return false;
    }
    was_live = qsi_counts_is_live(counts, slot);
    if (durable > 0) {
        add_durable(counts, slot, bytes, durable);
    }
    if (transient > 0) {
        add_transient(counts, slot, transient);
    }
    if (!was_live && qsi_counts_is_live(counts, slot)) {
        counts->live_count++;
        counts->live_bytes += bytes;
    }
    QS_DCHECK(counts->live_count <= counts->capacity &&
              counts->durable_count <= counts->live_count);
    return durable > 0;
}

/* Decrements the count.  False: it was 0, or it is stuck. */
static bool lower(uint16_t *count)
{
    if (*count == 0 || *count == QSI_COUNT_STUCK) {
        return false;
    }
    (*count)--;
    return true;
}

static bool drop_count(struct qsi_message_counts *counts, uint32_t slot, uint64_t bytes,
                       bool transient)
{
    uint16_t *array = transient ? counts->transient : counts->durable;

    if (slot >= counts->capacity) {
        counts->beyond -= counts->beyond > 0;
        return false;
    }
    if (array == NULL || !lower(&array[slot])) {
        return false;
    }
    if (!transient && array[slot] == 0) {
        QS_DCHECK(counts->durable_count > 0);
        counts->durable_count--;
        counts->durable_bytes = minus(counts->durable_bytes, bytes);
    }
    if (!qsi_counts_is_live(counts, slot)) {
        QS_DCHECK(counts->live_count > 0);
        counts->live_count--;
        counts->live_bytes = minus(counts->live_bytes, bytes);
    }
    QS_DCHECK(counts->durable_count <= counts->live_count);
    return !transient;
}

/* Sets the durable counts of slots [first, first + length), which had none.  REQUIRES room, or none
 * in the whole file. */
static void restore_durable(struct qsi_message_counts *counts, uint32_t first, uint32_t length,
                            uint16_t durable)
{
    QS_DCHECK(length <= UINT32_MAX - first);
    if (durable == 0) {
        return;
    }
    if (counts->capacity == 0) {
        counts->beyond += (uint64_t)durable * length;
        return;
    }
    QS_ASSERT(length <= counts->capacity - first);
    for (uint32_t i = 0; i < length; i++) {
        counts->durable[first + i] = durable;
    }
    counts->durable_count += length;
    counts->live_count += length;
}

/* -- the counts of the message store ---------------------------------------------------------- */

/* A record has at least 32 bytes, which bounds the slot by the offset.  An inconsistent reference
 * gets a slot that no file has. */
static uint32_t slot_of(const struct qsi_body_ref *ref)
{
    bool possible = ref->offset >= QSI_MESSAGE_HEADER_BYTES && ref->offset <= INT64_MAX &&
                    ref->offset % QSI_BODY_PACKED_ALIGNMENT == 0 &&
                    ref->slot <= (ref->offset - QSI_MESSAGE_HEADER_BYTES) / QSI_BODY_HEADER_BYTES;

    return possible ? ref->slot : QSI_SLOT_BEYOND;
}

void qsi_message_store_add_refs(struct qsi_message_store *messages, const struct qsi_body_ref *ref,
                                uint32_t durable, uint32_t transient)
{
    struct qsi_message_file *file;

    qsi_message_store_lock(messages);
    file = qsi_message_table_find(messages, ref->file);
    if (file != NULL) {
        if (add_count(&file->counts, slot_of(ref), qsi_body_packed_bytes(ref), durable,
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
        if (drop_count(&file->counts, slot_of(ref), qsi_body_packed_bytes(ref), transient)) {
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
    if (slot == QSI_SLOT_BEYOND) {
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
        restore_durable(&file->counts, slot, length, (uint16_t)count);
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
