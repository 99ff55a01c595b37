/* The table of message files: new ones, and the open handles of all.
 *
 * Invariants: a handle with references stays open; messages->idle has exactly the open handles of
 * settled files without references.  So at most handle_max handles, and those in use, are open for
 * reading. */
#include "check.h"
#include "error.h"
#include "message_file.h"

qs_status qsi_message_table_add(struct qsi_message_store *messages, struct qsi_message_file *file)
{
    QS_DCHECK(file->id.number > 0);
    return qsi_map_put_number(&messages->files, file->id.number, file);
}

static void set_doomed(struct qsi_message_store *messages, struct qsi_message_file *file,
                       uint64_t bytes) QSI_REQUIRES(qsi_message_store_mutex)
{
    uint64_t others = messages->doomed_bytes - file->doomed_bytes;

    QS_DCHECK(messages->doomed_bytes >= file->doomed_bytes);
    __atomic_store_n(&messages->doomed_bytes, others + bytes, __ATOMIC_RELAXED);
    file->doomed_bytes = bytes;
}

void qsi_message_table_remove(struct qsi_message_store *messages, struct qsi_message_file *file)
{
    QS_DCHECK(file->place_count == 0);
    QS_ASSERT(file->refs == 0);
    set_doomed(messages, file, 0);
    if (!qsi_list_is_empty(&file->in_idle)) {
        qsi_list_remove(&file->in_idle);
        messages->open_count--;
    }
    qsi_list_remove(&file->in_unsettled);
    qsi_list_remove(&file->in_replaced);
    if (!file->is_replaced) {
        qsi_map_remove_number(&messages->files, file->id.number);
    }
}

struct qsi_message_file *qsi_message_table_find(struct qsi_message_store *messages, uint32_t number)
{
    return qsi_map_get_number(&messages->files, number);
}

bool qsi_message_file_is_dead(const struct qsi_message_store *messages,
                              const struct qsi_message_file *file)
{
    return !qsi_counts_any(&file->counts) && file->place_count == 0 && file != messages->current &&
           file != messages->next && !file->is_kept;
}

void qsi_message_file_count_doomed(struct qsi_message_store *messages,
                                   struct qsi_message_file *file)
{
    uint64_t bytes = qsi_message_file_doomed_bytes(messages, file);

    if (bytes != file->doomed_bytes) {
        set_doomed(messages, file, bytes);
    }
}

/* -- making files ----------------------------------------------------------------------------- */

static qs_status install(struct qsi_message_store *messages, struct qsi_message_file *file,
                         qs_error *error) QSI_REQUIRES(qsi_message_store_mutex)
{
    QS_DCHECK(file->handle != NULL && file->refs == 0);
    QS_ASSERT_HELD(&messages->mutex);
    if (qsi_message_table_add(messages, file) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "table of message files");
    }
    qsi_list_push_back(&messages->unsettled, &file->in_unsettled);
    return QS_OK;
}

qs_status qsi_message_file_make(struct qsi_message_store *messages, uint64_t bytes,
                                struct qsi_message_file **file_out, qs_error *error)
{
    uint64_t number = messages->next_number;
    struct qsi_message_file *file = NULL;
    qs_status status;

    QS_ASSERT_HELD(&messages->mutex);
    *file_out = NULL;
    QS_ASSERT(!messages->is_creating);
    if (number > UINT32_MAX) {
        return qsi_fail(error, QS_ESTORE_FULL, "no numbers are left for message files");
    }
    messages->next_number++; /* not undone: after a failure the name may still exist */
    messages->is_creating = true;
    qsi_message_store_unlock(messages);
    status = qsi_message_file_create(messages, (uint32_t)number, bytes, &file, error);
    qsi_message_store_lock(messages);
    QS_DCHECK(messages->is_creating);
    messages->is_creating = false;
    qsi_cond_broadcast(&messages->created);
    if (status != QS_OK) {
        return status;
    }
    status = install(messages, file, error);
    if (status != QS_OK) {
        qsi_message_file_discard(messages, file);
        return status;
    }
    if (bytes >= messages->file_bytes && messages->file_bytes < messages->options.file_bytes) {
        messages->file_bytes *= 2;
    }
    *file_out = file;
    return QS_OK;
}

bool qsi_message_file_shrink(struct qsi_message_store *messages, uint64_t bytes, uint64_t least)
{
    uint64_t smaller = bytes / 4 > least ? bytes / 4 : least;

    QS_ASSERT_HELD(&messages->mutex);
    if (bytes <= least) {
        return false;
    }
    QS_DCHECK(smaller < bytes);
    messages->file_bytes =
        smaller < messages->options.file_bytes ? smaller : messages->options.file_bytes;
    return true;
}

/* -- handles ---------------------------------------------------------------------------------- */

/* Takes the handle of the least recently used idle file, if there are too many. */
static qs_file *evict(struct qsi_message_store *messages) QSI_REQUIRES(qsi_message_store_mutex)
{
    struct qsi_message_file *file;
    qs_file *handle;

    if (messages->open_count <= messages->options.handle_max ||
        qsi_list_is_empty(&messages->idle)) {
        return NULL;
    }
    file = QSI_LIST_OWNER(messages->idle.next, struct qsi_message_file, in_idle);
    qsi_list_remove(&file->in_idle);
    handle = file->handle;
    file->handle = NULL;
    QS_DCHECK(handle != NULL && messages->open_count > 0);
    messages->open_count--;
    return handle;
}

qs_file *qsi_message_file_unref(struct qsi_message_store *messages, struct qsi_message_file *file)
{
    QS_ASSERT_HELD(&messages->mutex);
    QS_ASSERT(file->refs > 0);
    file->refs--;
    if (file->refs > 0 || !qsi_message_file_is_settled(file) || file->handle == NULL) {
        return NULL;
    }
    qsi_list_push_back(&messages->idle, &file->in_idle);
    return evict(messages);
}

/* Opens the file's handle, unless another reader was faster.  REQUIRES a reference. */
static qs_status open_handle(struct qsi_message_store *messages, struct qsi_message_file *file,
                             qs_error *error)
{
    struct qsi_message_view view;

    QS_TRY(qsi_message_file_open(messages, file->id, QS_OPEN_READ | QS_OPEN_LINKED, &view, error));
    qsi_message_store_lock(messages);
    if (file->handle == NULL) {
        file->handle = view.handle;
        file->bytes = view.bytes;
        file->header = view.header;
        messages->open_count++;
        view.handle = NULL;
    }
    qsi_message_store_unlock(messages);
    messages->env->close(messages->env, view.handle);
    return QS_OK;
}

/* REQUIRES a reference to file. */
static bool take_view(struct qsi_message_view *view_out, struct qsi_message_file *file)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    QS_DCHECK(file->refs > 0);
    *view_out = (struct qsi_message_view){file, file->handle, file->bytes, file->header};
    return file->handle != NULL;
}

qs_status qsi_message_file_acquire(struct qsi_message_store *messages, uint32_t number,
                                   struct qsi_message_view *view_out, qs_error *error)
{
    struct qsi_message_file *file;
    bool is_open = false;
    qs_status status;

    qsi_message_store_lock(messages);
    file = qsi_message_table_find(messages, number);
    if (file != NULL && file->is_going) {
        file = NULL;
    }
    if (file != NULL) {
        file->refs++;
        qsi_list_remove(&file->in_idle);
        is_open = take_view(view_out, file);
    }
    qsi_message_store_unlock(messages);
    if (file == NULL) {
        return qsi_message_file_fail_missing(error, (struct qsi_message_id){number, 0});
    }
    if (is_open) {
        return QS_OK;
    }
    status = open_handle(messages, file, error);
    if (status != QS_OK) {
        qsi_message_file_release(messages, file);
        return status;
    }
    qsi_message_store_lock(messages);
    (void)take_view(view_out, file);
    qsi_message_store_unlock(messages);
    return QS_OK;
}

/* The earlier generation of a file, after index others that compaction replaced before it. */
static struct qsi_message_file *find_replaced(struct qsi_message_store *messages, uint32_t number,
                                              uint32_t index) QSI_REQUIRES(qsi_message_store_mutex)
{
    for (struct qsi_list *node = messages->replaced.next; node != &messages->replaced;
         node = node->next) {
        struct qsi_message_file *file = QSI_LIST_OWNER(node, struct qsi_message_file, in_replaced);

        if (file->id.number == number && !file->is_going && index-- == 0) {
            return file;
        }
    }
    return NULL;
}

qs_status qsi_message_file_acquire_replaced(struct qsi_message_store *messages, uint32_t number,
                                            uint32_t index, struct qsi_message_view *view_out,
                                            qs_error *error)
{
    struct qsi_message_file *file;
    qs_status status;

    qsi_message_store_lock(messages);
    file = find_replaced(messages, number, index);
    if (file != NULL) {
        file->refs++;
        qsi_list_remove(&file->in_idle);
    }
    qsi_message_store_unlock(messages);
    if (file == NULL) {
        return QS_EEMPTY;
    }
    status = open_handle(messages, file, error);
    if (status != QS_OK) {
        qsi_message_file_release(messages, file);
        return status;
    }
    qsi_message_store_lock(messages);
    (void)take_view(view_out, file);
    qsi_message_store_unlock(messages);
    return QS_OK;
}

void qsi_message_file_release(struct qsi_message_store *messages, struct qsi_message_file *file)
{
    qs_file *handle;

    qsi_message_store_lock(messages);
    handle = qsi_message_file_unref(messages, file);
    qsi_message_store_unlock(messages);
    messages->env->close(messages->env, handle);
}
