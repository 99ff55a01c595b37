/* Writing to the message store: places, and the files that a commit has to sync.
 *
 * Invariants: records of a file do not overlap and are in order of their slots; a file with a
 * marked body that no set has taken is in messages->dirty. */
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "message_file.h"
#include "message_store.h"

/* -- places ----------------------------------------------------------------------------------- */

static uint64_t padded_bytes(uint32_t envelope_bytes, uint32_t body_bytes)
{
    uint64_t bytes = (uint64_t)QSI_BODY_HEADER_BYTES + envelope_bytes + body_bytes;

    return qsi_round_up(bytes, QSI_BODY_ALIGNMENT);
}

/* Takes a place at the end of the file.  REQUIRES room in the file.  Also makes room for the
 * counts, so adding to them cannot fail. */
static qs_status take_place(struct qsi_message_file *file, struct qsi_place *place, qs_error *error)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    QS_DCHECK(place->file == NULL && place->slot_count > 0);
    QS_ASSERT(file->end % QSI_BODY_ALIGNMENT == 0 && place->bytes <= file->bytes - file->end);
    QS_ASSERT(place->slot_count <= UINT32_MAX - file->next_slot);
    if (qsi_counts_reserve(&file->counts, file->next_slot + place->slot_count) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "reference counts of message file %u", file->id.number);
    }
    place->file = file;
    place->offset = file->end;
    place->slot = file->next_slot;
    file->end += place->bytes;
    file->next_slot += place->slot_count;
    QS_DCHECK(file->next_slot <= file->counts.capacity);
    QS_DCHECK(file->end <= file->bytes);
    file->place_count++;
    file->refs++;
    return QS_OK;
}

/* Releases the lock while a file is created or awaited: check again afterwards.  On a full disk
 * files become smaller, as long as needed bytes fit. */
static qs_status advance_current(struct qsi_message_store *messages, uint64_t needed,
                                 qs_error *error) QSI_REQUIRES(qsi_message_store_mutex)
{
    uint64_t least = qsi_round_up(QSI_MESSAGE_HEADER_BYTES + needed, QSI_MESSAGE_FILE_BYTES_MIN);
    qs_status status;
    uint64_t bytes;

    QS_ASSERT_HELD(&messages->mutex);
    if (messages->is_creating) {
        (void)qsi_cond_wait(&messages->created, &messages->mutex, QSI_WAIT_FOREVER);
        return QS_OK;
    }
    if (messages->next != NULL) {
        struct qsi_message_file *full = messages->current;

        QS_DCHECK(messages->next->place_count == 0);
        messages->current = messages->next;
        messages->next = NULL;
        if (full != NULL) {
            qsi_message_file_count_doomed(messages, full);
        }
        return QS_OK;
    }
    bytes = messages->file_bytes > least ? messages->file_bytes : least;
    status = qsi_message_file_make(messages, bytes, &messages->next, error);
    return qsi_is_full(status) && qsi_message_file_shrink(messages, bytes, least) ? QS_OK : status;
}

static bool has_room(const struct qsi_message_file *file, uint64_t bytes)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    QS_DCHECK(file == NULL || file->end <= file->bytes);
    return file != NULL && bytes <= file->bytes - file->end;
}

static qs_status place_in_current(struct qsi_message_store *messages, struct qsi_place *place,
                                  qs_error *error) QSI_REQUIRES(qsi_message_store_mutex)
{
    while (!has_room(messages->current, place->bytes)) {
        QS_TRY(advance_current(messages, place->bytes, error));
    }
    return take_place(messages->current, place, error);
}

/* Creates a file for a single large record; the current file stays current. */
static qs_status place_alone(struct qsi_message_store *messages, struct qsi_place *place,
                             qs_error *error) QSI_REQUIRES(qsi_message_store_mutex)
{
    struct qsi_message_file *file;
    qs_status status;

    QS_DCHECK(place->bytes > messages->options.file_bytes - QSI_MESSAGE_HEADER_BYTES);
    while (messages->is_creating) {
        (void)qsi_cond_wait(&messages->created, &messages->mutex, QSI_WAIT_FOREVER);
    }
    QS_TRY(qsi_message_file_make(messages, QSI_MESSAGE_HEADER_BYTES + place->bytes, &file, error));
    status = take_place(file, place, error);
    qsi_message_file_count_doomed(messages, file); /* without a place it is of no use */
    return status;
}

qs_status qsi_message_place_take(struct qsi_message_store *messages, struct qsi_place *place,
                                 qs_error *error)
{
    qs_status status;

    QS_DCHECK(place->file == NULL && place->bytes > 0);
    qsi_message_store_lock(messages);
    if (place->bytes <= messages->options.file_bytes - QSI_MESSAGE_HEADER_BYTES) {
        status = place_in_current(messages, place, error);
    } else {
        status = place_alone(messages, place, error);
    }
    qsi_message_store_unlock(messages);
    return status;
}

qs_status qsi_message_store_reserve(struct qsi_message_store *messages, uint32_t envelope_bytes,
                                    uint32_t body_bytes, struct qsi_place *place_out,
                                    qs_error *error)
{
    *place_out = (struct qsi_place){
        .bytes = padded_bytes(envelope_bytes, body_bytes),
        .slot_count = 1,
        .envelope_bytes = envelope_bytes,
        .body_bytes = body_bytes,
    };
    return qsi_message_place_take(messages, place_out, error);
}

static struct qsi_message_file *end_place(struct qsi_message_store *messages,
                                          struct qsi_place *place)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    struct qsi_message_file *file = place->file;

    QS_DCHECK(file != NULL && file->refs > 0);
    QS_ASSERT(file->place_count > 0);
    file->place_count--;
    place->file = NULL;
    qsi_message_file_count_doomed(messages, file);
    return file;
}

void qsi_message_store_abandon(struct qsi_message_store *messages, struct qsi_place *place)
{
    if (place->file == NULL) {
        return;
    }
    qsi_message_store_lock(messages);
    /* There is no handle to close: a file that had a place is unsettled. */
    (void)qsi_message_file_unref(messages, end_place(messages, place));
    qsi_message_store_unlock(messages);
}

/* -- marking ---------------------------------------------------------------------------------- */

void qsi_message_store_mark(struct qsi_message_store *messages, struct qsi_place *place)
{
    struct qsi_message_file *file;

    QS_ASSERT(place->file != NULL);
    qsi_message_store_lock(messages);
    file = end_place(messages, place);
    messages->bytes_written += place->bytes;
    if (place->is_pack) {
        file->pack_marks++; /* synced by qsi_message_store_sync_packs: no commit waits for it */
    } else if (!file->is_dirty) {
        file->is_dirty = true;
        file->refs++;
        file->next_dirty = messages->dirty;
        messages->dirty = file;
    }
    (void)qsi_message_file_unref(messages, file);
    qsi_message_store_unlock(messages);
}

uint64_t qsi_message_store_bytes_written(struct qsi_message_store *messages)
{
    uint64_t bytes;

    qsi_message_store_lock(messages);
    bytes = messages->bytes_written;
    qsi_message_store_unlock(messages);
    return bytes;
}

/* -- syncing ---------------------------------------------------------------------------------- */

bool qsi_message_store_is_dirty(struct qsi_message_store *messages)
{
    bool is_dirty;

    qsi_message_store_lock(messages);
    is_dirty = messages->dirty != NULL;
    qsi_message_store_unlock(messages);
    return is_dirty;
}

void qsi_message_store_dirty_take(struct qsi_message_store *messages, struct qsi_dirty_set *set_out)
{
    struct qsi_message_file *file;

    *set_out = (struct qsi_dirty_set){0};
    qsi_message_store_lock(messages);
    QS_ASSERT(!messages->set_is_out);
    for (file = messages->dirty; file != NULL; file = file->next_dirty) {
        QS_ASSERT(file->is_dirty && !file->is_taken);
        file->is_dirty = false; /* its reference becomes that of the set */
        file->is_taken = true;
        file->next_taken = set_out->first;
        set_out->first = file;
        set_out->count++;
    }
    messages->dirty = NULL;
    messages->set_is_out = set_out->count > 0;
    qsi_message_store_unlock(messages);
}

void qsi_message_store_release(struct qsi_message_store *messages, struct qsi_dirty_set *set)
{
    struct qsi_message_file *file = set->first;

    if (file == NULL) {
        return;
    }
    qsi_message_store_lock(messages);
    while (file != NULL) {
        struct qsi_message_file *next = file->next_taken;

        QS_DCHECK(file->is_taken && file->refs > 0);
        file->is_taken = false;
        (void)qsi_message_file_unref(messages, file);
        file = next;
    }
    QS_DCHECK(messages->set_is_out);
    messages->set_is_out = false;
    qsi_message_store_unlock(messages);
    *set = (struct qsi_dirty_set){0};
}

static bool has_failed(struct qsi_message_store *messages)
{
    bool failed;

    qsi_message_store_lock(messages);
    failed = messages->is_failed;
    qsi_message_store_unlock(messages);
    return failed;
}

qs_status qsi_message_store_sync(struct qsi_message_store *messages, struct qsi_dirty_set *set,
                                 qs_error *error)
{
    qs_status status = QS_OK;

    if (has_failed(messages)) {
        status = qsi_fail(error, QS_ESTORE_FAILED, "an earlier sync of a message file failed");
    }
    for (struct qsi_message_file *file = set->first; file != NULL && status == QS_OK;
         file = file->next_taken) {
        status = qsi_message_file_sync(messages, file->id, file->handle, error);
        if (status == QS_OK) { /* bytes synced into a file without a name are lost */
            status = qsi_env_check_linked(messages->env, file->handle, error);
            status = status == QS_OK ? QS_OK : qsi_message_file_fail(error, status, file->id);
        }
    }
    qsi_message_store_release(messages, set);
    return status;
}
