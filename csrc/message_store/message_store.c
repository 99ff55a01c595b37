/* Writing to the message store: places, and the files that a commit has to sync.
 *
 * Invariants: records of a file do not overlap and are in order of their slots; a file with a
 * marked body that no set has taken is in messages->dirty. */
#include "message_store.h"

#include "alloc.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "message_file.h"

#include <string.h>

/* -- open and close --------------------------------------------------------------------------- */

struct listing {
    struct qsi_message_store *messages;
    qs_status status;
};

static qs_status add_existing(struct qsi_message_store *messages, struct qsi_message_id id)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    struct qsi_message_file *file = qsi_message_file_describe(id);

    QS_DCHECK(id.generation == 0);
    if (file == NULL || qsi_message_table_add(messages, file) != QS_OK) {
        qsi_message_file_destroy(messages, file);
        return QS_ENOMEM;
    }
    return QS_OK;
}

/* The checkpoint determines the valid generation; without one it is the first. */
static qs_status visit_file(struct qsi_message_store *messages, struct qsi_message_id id)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    if (id.number >= messages->next_number) {
        messages->next_number = (uint64_t)id.number + 1;
    }
    return id.generation == 0 ? add_existing(messages, id) : qsi_message_strays_add(messages, id);
}

static bool visit_name(void *context, const char *name) QSI_REQUIRES(qsi_message_store_mutex)
{
    struct listing *listing = context;
    struct qsi_message_id id;

    if (qsi_message_name_parse(&id, name)) {
        listing->status = visit_file(listing->messages, id);
    }
    return listing->status == QS_OK;
}

static qs_status list_files(struct qsi_message_store *messages, qs_error *error)
{
    struct listing listing = {messages, QS_OK};

    QS_TRY(qsi_env_dir_list(messages->env, messages->dir, visit_name, &listing, error));
    if (listing.status != QS_OK) {
        return qsi_fail(error, listing.status, "list of message files");
    }
    return QS_OK;
}

static struct qsi_message_store *create_store(qs_env *env, qs_dir *dir, const uint8_t *uuid,
                                              const struct qsi_message_store_options *options)
{
    struct qsi_message_store *messages = qsi_zalloc(sizeof *messages);

    if (messages == NULL) {
        return NULL;
    }
    qsi_message_store_is_private(messages);
    messages->env = env;
    messages->dir = dir;
    memcpy(messages->uuid, uuid, QSI_UUID_BYTES);
    messages->options = *options;
    messages->next_number = 1;
    messages->file_bytes = options->file_bytes;
    qsi_mutex_init(&messages->mutex);
    qsi_cond_init(&messages->created);
    qsi_list_init(&messages->idle);
    qsi_list_init(&messages->unsettled);
    qsi_list_init(&messages->replaced);
    return messages;
}

qs_status qsi_message_store_open(struct qsi_message_store **messages_out, qs_env *env, qs_dir *dir,
                                 const uint8_t uuid[QSI_UUID_BYTES],
                                 const struct qsi_message_store_options *options, qs_error *error)
{
    struct qsi_message_store *messages;
    qs_status status;

    *messages_out = NULL;
    QS_ASSERT(options->file_bytes >= QSI_MESSAGE_FILE_BYTES_MIN && options->handle_max > 0);
    messages = create_store(env, dir, uuid, options);
    if (messages == NULL) {
        return qsi_fail(error, QS_ENOMEM, "message store");
    }
    qsi_message_store_is_private(messages);
    status = list_files(messages, error);
    if (status != QS_OK) {
        qsi_message_store_close(messages);
        return status;
    }
    *messages_out = messages;
    return QS_OK;
}

static void destroy_replaced(struct qsi_message_store *messages)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    while (!qsi_list_is_empty(&messages->replaced)) {
        struct qsi_message_file *file =
            QSI_LIST_OWNER(messages->replaced.next, struct qsi_message_file, in_replaced);

        qsi_message_table_remove(messages, file);
        qsi_message_file_destroy(messages, file);
    }
}

void qsi_message_store_close(struct qsi_message_store *messages)
{
    struct qsi_map_cursor cursor;
    struct qsi_dirty_set unsynced;

    if (messages == NULL) {
        return;
    }
    qsi_message_store_is_private(messages);
    qsi_message_store_dirty_take(messages, &unsynced);
    qsi_message_store_release(messages, &unsynced);
    cursor = qsi_map_begin(&messages->files);
    while (qsi_map_next(&messages->files, &cursor)) {
        struct qsi_message_file *file = cursor.value;

        qsi_message_table_remove(messages, file);
        qsi_message_file_destroy(messages, file);
    }
    qsi_map_fini(&messages->files);
    destroy_replaced(messages);
    qsi_map_fini(&messages->strays);
    qsi_cond_fini(&messages->created);
    qsi_mutex_fini(&messages->mutex);
    qsi_free(messages);
}

void qsi_message_store_leave_free(struct qsi_message_store *messages, uint64_t bytes)
{
    __atomic_store_n(&messages->leave_free, bytes, __ATOMIC_RELAXED);
}

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
