/* Opening and closing the message store. */
#include "alloc.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "message_file.h"
#include "message_store.h"

#include <string.h>

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
