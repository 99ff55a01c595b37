/* Writing to the message store: places, and the files that a commit has to sync.
 *
 * Invariants: records of a file do not overlap and are in order of their slots; a file with a
 * marked body that no set has taken is in store->dirty. */
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
    struct qsi_message_store *store;
    qs_status status;
};

static qs_status add_existing(struct qsi_message_store *store, struct qsi_message_id id)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    struct qsi_message_file *file = qsi_message_file_describe(id);

    QS_DCHECK(id.generation == 0);
    if (file == NULL || qsi_message_table_add(store, file) != QS_OK) {
        qsi_message_file_destroy(store, file);
        return QS_ENOMEM;
    }
    return QS_OK;
}

/* The checkpoint determines the valid generation; without one it is the first. */
static qs_status visit_file(struct qsi_message_store *store, struct qsi_message_id id)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    if (id.number >= store->next_number) {
        store->next_number = (uint64_t)id.number + 1;
    }
    return id.generation == 0 ? add_existing(store, id) : qsi_message_strays_add(store, id);
}

static bool visit_name(void *context, const char *name) QSI_REQUIRES(qsi_message_store_mutex)
{
    struct listing *listing = context;
    struct qsi_message_id id;

    if (qsi_message_name_parse(&id, name)) {
        listing->status = visit_file(listing->store, id);
    }
    return listing->status == QS_OK;
}

static qs_status list_files(struct qsi_message_store *store, qs_error *error)
{
    struct listing listing = {store, QS_OK};

    QS_TRY(qsi_env_dir_list(store->env, store->dir, visit_name, &listing, error));
    if (listing.status != QS_OK) {
        return qsi_fail(error, listing.status, "list of message files");
    }
    return QS_OK;
}

static struct qsi_message_store *create_store(qs_env *env, qs_dir *dir, const uint8_t *uuid,
                                              const struct qsi_message_store_options *options)
{
    struct qsi_message_store *store = qsi_zalloc(sizeof *store);

    if (store == NULL) {
        return NULL;
    }
    qsi_message_store_is_private(store);
    store->env = env;
    store->dir = dir;
    memcpy(store->uuid, uuid, QSI_UUID_BYTES);
    store->options = *options;
    store->next_number = 1;
    store->file_bytes = options->file_bytes;
    qsi_mutex_init(&store->mutex);
    qsi_cond_init(&store->created);
    qsi_list_init(&store->idle);
    qsi_list_init(&store->unsettled);
    qsi_list_init(&store->replaced);
    return store;
}

qs_status qsi_message_store_open(struct qsi_message_store **store_out, qs_env *env, qs_dir *dir,
                                 const uint8_t uuid[QSI_UUID_BYTES],
                                 const struct qsi_message_store_options *options, qs_error *error)
{
    struct qsi_message_store *store;
    qs_status status;

    *store_out = NULL;
    QS_ASSERT(options->file_bytes >= QSI_MESSAGE_FILE_BYTES_MIN && options->handle_max > 0);
    store = create_store(env, dir, uuid, options);
    if (store == NULL) {
        return qsi_fail(error, QS_ENOMEM, "message store");
    }
    qsi_message_store_is_private(store);
    status = list_files(store, error);
    if (status != QS_OK) {
        qsi_message_store_close(store);
        return status;
    }
    *store_out = store;
    return QS_OK;
}

static void destroy_replaced(struct qsi_message_store *store) QSI_REQUIRES(qsi_message_store_mutex)
{
    while (!qsi_list_is_empty(&store->replaced)) {
        struct qsi_message_file *file =
            QSI_LIST_OWNER(store->replaced.next, struct qsi_message_file, in_replaced);

        qsi_message_table_remove(store, file);
        qsi_message_file_destroy(store, file);
    }
}

void qsi_message_store_close(struct qsi_message_store *store)
{
    struct qsi_map_cursor cursor;
    struct qsi_dirty_set unsynced;

    if (store == NULL) {
        return;
    }
    qsi_message_store_is_private(store);
    qsi_message_store_dirty_take(store, &unsynced);
    qsi_message_store_release(store, &unsynced);
    cursor = qsi_map_begin(&store->files);
    while (qsi_map_next(&store->files, &cursor)) {
        struct qsi_message_file *file = cursor.value;

        qsi_message_table_remove(store, file);
        qsi_message_file_destroy(store, file);
    }
    qsi_map_fini(&store->files);
    destroy_replaced(store);
    qsi_map_fini(&store->strays);
    qsi_cond_fini(&store->created);
    qsi_mutex_fini(&store->mutex);
    qsi_free(store);
}

void qsi_message_store_leave_free(struct qsi_message_store *store, uint64_t bytes)
{
    __atomic_store_n(&store->leave_free, bytes, __ATOMIC_RELAXED);
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
static qs_status advance_current(struct qsi_message_store *store, uint64_t needed, qs_error *error)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    uint64_t least = qsi_round_up(QSI_MESSAGE_HEADER_BYTES + needed, QSI_MESSAGE_FILE_BYTES_MIN);
    qs_status status;
    uint64_t bytes;

    QS_ASSERT_HELD(&store->mutex);
    if (store->is_creating) {
        (void)qsi_cond_wait(&store->created, &store->mutex, QSI_WAIT_FOREVER);
        return QS_OK;
    }
    if (store->next != NULL) {
        QS_DCHECK(store->next->place_count == 0);
        store->current = store->next;
        store->next = NULL;
        return QS_OK;
    }
    bytes = store->file_bytes > least ? store->file_bytes : least;
    status = qsi_message_file_make(store, bytes, &store->next, error);
    return qsi_is_full(status) && qsi_message_file_shrink(store, bytes, least) ? QS_OK : status;
}

static bool has_room(const struct qsi_message_file *file, uint64_t bytes)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    QS_DCHECK(file == NULL || file->end <= file->bytes);
    return file != NULL && bytes <= file->bytes - file->end;
}

static qs_status place_in_current(struct qsi_message_store *store, struct qsi_place *place,
                                  qs_error *error) QSI_REQUIRES(qsi_message_store_mutex)
{
    while (!has_room(store->current, place->bytes)) {
        QS_TRY(advance_current(store, place->bytes, error));
    }
    return take_place(store->current, place, error);
}

/* Creates a file for a single large record; the current file stays current. */
static qs_status place_alone(struct qsi_message_store *store, struct qsi_place *place,
                             qs_error *error) QSI_REQUIRES(qsi_message_store_mutex)
{
    struct qsi_message_file *file;

    QS_DCHECK(place->bytes > store->options.file_bytes - QSI_MESSAGE_HEADER_BYTES);
    while (store->is_creating) {
        (void)qsi_cond_wait(&store->created, &store->mutex, QSI_WAIT_FOREVER);
    }
    QS_TRY(qsi_message_file_make(store, QSI_MESSAGE_HEADER_BYTES + place->bytes, &file, error));
    return take_place(file, place, error);
}

qs_status qsi_message_place_take(struct qsi_message_store *store, struct qsi_place *place,
                                 qs_error *error)
{
    qs_status status;

    QS_DCHECK(place->file == NULL && place->bytes > 0);
    qsi_message_store_lock(store);
    if (place->bytes <= store->options.file_bytes - QSI_MESSAGE_HEADER_BYTES) {
        status = place_in_current(store, place, error);
    } else {
        status = place_alone(store, place, error);
    }
    qsi_message_store_unlock(store);
    return status;
}

qs_status qsi_message_store_reserve(struct qsi_message_store *store, uint32_t envelope_bytes,
                                    uint32_t body_bytes, struct qsi_place *place_out,
                                    qs_error *error)
{
    *place_out = (struct qsi_place){
        .bytes = padded_bytes(envelope_bytes, body_bytes),
        .slot_count = 1,
        .envelope_bytes = envelope_bytes,
        .body_bytes = body_bytes,
    };
    return qsi_message_place_take(store, place_out, error);
}

static struct qsi_message_file *end_place(struct qsi_place *place)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    struct qsi_message_file *file = place->file;

    QS_DCHECK(file != NULL && file->refs > 0);
    QS_ASSERT(file->place_count > 0);
    file->place_count--;
    place->file = NULL;
    return file;
}

void qsi_message_store_abandon(struct qsi_message_store *store, struct qsi_place *place)
{
    if (place->file == NULL) {
        return;
    }
    qsi_message_store_lock(store);
    /* There is no handle to close: a file that had a place is unsettled. */
    (void)qsi_message_file_unref(store, end_place(place));
    qsi_message_store_unlock(store);
}

/* -- marking ---------------------------------------------------------------------------------- */

void qsi_message_store_mark(struct qsi_message_store *store, struct qsi_place *place)
{
    struct qsi_message_file *file;

    QS_ASSERT(place->file != NULL);
    qsi_message_store_lock(store);
    file = end_place(place);
    store->bytes_written += place->bytes;
    if (place->is_pack) {
        file->pack_marks++; /* synced by qsi_message_store_sync_packs: no commit waits for it */
    } else if (!file->is_dirty) {
        file->is_dirty = true;
        file->refs++;
        file->next_dirty = store->dirty;
        store->dirty = file;
    }
    (void)qsi_message_file_unref(store, file);
    qsi_message_store_unlock(store);
}

uint64_t qsi_message_store_bytes_written(struct qsi_message_store *store)
{
    uint64_t bytes;

    qsi_message_store_lock(store);
    bytes = store->bytes_written;
    qsi_message_store_unlock(store);
    return bytes;
}

/* -- syncing ---------------------------------------------------------------------------------- */

bool qsi_message_store_is_dirty(struct qsi_message_store *store)
{
    bool is_dirty;

    qsi_message_store_lock(store);
    is_dirty = store->dirty != NULL;
    qsi_message_store_unlock(store);
    return is_dirty;
}

void qsi_message_store_dirty_take(struct qsi_message_store *store, struct qsi_dirty_set *set_out)
{
    struct qsi_message_file *file;

    *set_out = (struct qsi_dirty_set){0};
    qsi_message_store_lock(store);
    QS_ASSERT(!store->set_is_out);
    for (file = store->dirty; file != NULL; file = file->next_dirty) {
        QS_ASSERT(file->is_dirty && !file->is_taken);
        file->is_dirty = false; /* its reference becomes that of the set */
        file->is_taken = true;
        file->next_taken = set_out->first;
        set_out->first = file;
        set_out->count++;
    }
    store->dirty = NULL;
    store->set_is_out = set_out->count > 0;
    qsi_message_store_unlock(store);
}

void qsi_message_store_release(struct qsi_message_store *store, struct qsi_dirty_set *set)
{
    struct qsi_message_file *file = set->first;

    if (file == NULL) {
        return;
    }
    qsi_message_store_lock(store);
    while (file != NULL) {
        struct qsi_message_file *next = file->next_taken;

        QS_DCHECK(file->is_taken && file->refs > 0);
        file->is_taken = false;
        (void)qsi_message_file_unref(store, file);
        file = next;
    }
    QS_DCHECK(store->set_is_out);
    store->set_is_out = false;
    qsi_message_store_unlock(store);
    *set = (struct qsi_dirty_set){0};
}

static bool has_failed(struct qsi_message_store *store)
{
    bool failed;

    qsi_message_store_lock(store);
    failed = store->is_failed;
    qsi_message_store_unlock(store);
    return failed;
}

qs_status qsi_message_store_sync(struct qsi_message_store *store, struct qsi_dirty_set *set,
                                 qs_error *error)
{
    qs_status status = QS_OK;

    if (has_failed(store)) {
        status = qsi_fail(error, QS_ESTORE_FAILED, "an earlier sync of a message file failed");
    }
    for (struct qsi_message_file *file = set->first; file != NULL && status == QS_OK;
         file = file->next_taken) {
        status = qsi_message_file_sync(store, file->id, file->handle, error);
        if (status == QS_OK) { /* bytes synced into a file without a name are lost */
            status = qsi_env_check_linked(store->env, file->handle, error);
            status = status == QS_OK ? QS_OK : qsi_message_file_fail(error, status, file->id);
        }
    }
    qsi_message_store_release(store, set);
    return status;
}
