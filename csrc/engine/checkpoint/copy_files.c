/* Copying a store's files. copying.c decides which of them hold still. */
#include "copy_files.h"

#include "alloc.h"
#include "block_format.h"
#include "check.h"
#include "checkpoint_format.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "image.h"
#include "journal_file.h"
#include "priorities.h"

#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES (64u << 10) /* one of zeros is not written: holes stay holes */
#define STREAM_SUFFIX "str"

static const struct {
    const char *name;
    const char *suffixes[2]; /* of a file that is copied as it is found; NULL: nothing */
} folders[QSI_COPY_FOLDERS] = {
    [QSI_COPY_JOURNAL] = {"journal", {NULL}},
    [QSI_COPY_CHECKPOINT] = {"checkpoint", {"ckp", "key"}},
    [QSI_COPY_INDEX] = {"index", {"seg"}},
    [QSI_COPY_MESSAGES] = {"messages", {"msg"}},
    [QSI_COPY_STREAMS] = {"streams", {STREAM_SUFFIX}},
    [QSI_COPY_TRANSIENT] = {"transient", {NULL}},
};

static qs_status check_goes_on(const struct qsi_copy *copy, qs_error *error)
{
    return copy->goes_on == NULL || copy->goes_on(copy->context)
               ? QS_OK
               : qsi_fail(error, QS_EINTR, "the copy was given up");
}

/* ---- one file ---- */

static qs_status copy_bytes(struct qsi_copy *copy, qs_file *from, qs_file *to, qs_error *error)
{
    qs_env *env = copy->store->env;
    uint64_t size, at = 0;
    size_t got = 0;

    QS_TRY(qsi_env_size(env, from, &size, error));
    while (at < size) {
        size_t wanted = size - at < PIECE_BYTES ? (size_t)(size - at) : PIECE_BYTES;

        QS_TRY(check_goes_on(copy, error));
        QS_TRY(qsi_file_read(env, from, copy->piece, wanted, at, &got, error));
        if (got == 0) {
            break; /* it was made shorter meanwhile */
        }
        if (!qsi_is_zero(copy->piece, got)) {
            const qs_part part = {.data = copy->piece, .bytes = got};
            QS_TRY(qsi_file_write(env, to, &part, 1, at, error));
            copy->copied.bytes += got;
        }
        at += got;
    }
    return qsi_env_truncate(env, to, at, error);
}

/* QS_ENOENT: it went. */
static qs_status copy_file(struct qsi_copy *copy, enum qsi_copy_folder folder, const char *name,
                           qs_error *error)
{
    qs_env *env = copy->store->env;
    qs_file *from, *to;
    qs_status status;

    QS_TRY(
        qsi_env_open(env, copy->from[folder], name, QS_OPEN_READ | QS_OPEN_LINKED, &from, error));
    status =
        qsi_env_open(env, copy->to[folder], name, QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &to, error);
    if (status == QS_OK) {
        status = copy_bytes(copy, from, to, error);
        env->close(env, to);
        copy->copied.files += 1;
    } else if (status == QS_ENOENT) { /* the copy's directory, not the file */
        status = qsi_fail(error, QS_EIO, "open '%s': its directory was removed", name);
    }
    env->close(env, from);
    return status;
}

/* ---- all of a folder ---- */

struct walk {
    struct qsi_copy *copy;
    enum qsi_copy_folder folder;
    qs_status (*step)(struct qsi_copy *copy, enum qsi_copy_folder folder, const char *name,
                      qs_error *error);
    qs_error *error;
    qs_status status;
};

/* A file that is removed meanwhile is not needed. */
static bool visit(void *context, const char *name)
{
    struct walk *walk = context;
    qs_status status = walk->step(walk->copy, walk->folder, name, walk->error);

    walk->status = status == QS_ENOENT ? QS_OK : status;
    return walk->status == QS_OK;
}

static qs_status name_place(const struct qsi_copy *copy, enum qsi_copy_folder folder,
                            qs_status status, qs_error *error)
{
    if (status != QS_OK) {
        qsi_error_prefix(error, "%s, %s", copy->path, folders[folder].name);
    }
    return status;
}

static qs_status walk(struct walk walk, qs_dir *dir)
{
    qs_env *env = walk.copy->store->env;
    qs_status status = qsi_env_dir_list(env, dir, visit, &walk, walk.error);

    return name_place(walk.copy, walk.folder, status != QS_OK ? status : walk.status, walk.error);
}

/* ---- the steps ---- */

static bool record_entry(void *found, const char *name)
{
    (void)name;
    *(bool *)found = true;
    return false;
}

qs_status qsi_copy_begin(struct qsi_copy *copy, qs_error *error)
{
    struct qs_store *store = copy->store;
    qs_env *env = store->env;
    bool ignored, has_entries = false;

    copy->from[QSI_COPY_JOURNAL] = store->journal_dir;
    copy->from[QSI_COPY_CHECKPOINT] = store->checkpoint_dir;
    copy->from[QSI_COPY_INDEX] = store->index_dir;
    copy->from[QSI_COPY_MESSAGES] = store->messages_dir;
    copy->from[QSI_COPY_STREAMS] = store->streams_dir;
    copy->piece = qsi_alloc(PIECE_BYTES);
    if (copy->piece == NULL) {
        return qsi_fail(error, QS_ENOMEM, "a copy");
    }
    QS_TRY(qsi_env_dir_open_root(env, copy->path, true, &copy->root, &ignored, error));
    QS_TRY(qsi_env_dir_list(env, copy->root, record_entry, &has_entries, error));
    if (has_entries) {
        return qsi_fail(error, QS_EEXIST, "'%s' is not empty: name a new directory", copy->path);
    }
    for (int i = 0; i < QSI_COPY_FOLDERS; i++) {
        QS_TRY(name_place(
            copy, (enum qsi_copy_folder)i,
            qsi_env_dir_open(env, copy->root, folders[i].name, true, &copy->to[i], &ignored, error),
            error));
    }
    return QS_OK;
}

/* False: it is not of a kind that is ever linked. */
static bool parse_name(enum qsi_copy_folder folder, const char *name, struct qsi_copy_sealed *out)
{
    struct qsi_block_file block;
    struct qsi_message_id message;

    if (folder == QSI_COPY_STREAMS && qsi_block_name_parse(&block, name, STREAM_SUFFIX)) {
        *out = (struct qsi_copy_sealed){folder, block.owner, block.number};
        return true;
    }
    if (folder == QSI_COPY_MESSAGES && qsi_message_name_parse(&message, name)) {
        *out = (struct qsi_copy_sealed){folder, message.number, message.generation};
        return true;
    }
    return false;
}

static bool is_sealed_block(struct qs_store *store, const struct qsi_copy_sealed *name)
{
    const struct qsi_store_queue *queue;
    bool sealed;

    qsi_store_lock(store);
    queue = qsi_find_by_id(store, name->major);
    sealed = queue != NULL && qsi_container_has_file(queue->messages, name->minor, true);
    qsi_store_unlock(store);
    return sealed;
}

static bool is_sealed(struct qs_store *store, const struct qsi_copy_sealed *name)
{
    const struct qsi_message_id message = {(uint32_t)name->major, (uint32_t)name->minor};

    return name->folder == QSI_COPY_STREAMS
               ? is_sealed_block(store, name)
               : qsi_message_store_has_settled(store->messages, message);
}

static qs_status record_sealed(struct qsi_copy *copy, enum qsi_copy_folder folder, const char *name,
                               qs_error *error)
{
    struct qsi_copy_sealed file, *sealed = copy->sealed;

    QS_TRY(check_goes_on(copy, error));
    if (!parse_name(folder, name, &file) || !is_sealed(copy->store, &file)) {
        return QS_OK;
    }
    if (copy->sealed_count == copy->sealed_capacity) {
        sealed = qsi_grow(sealed, &copy->sealed_capacity, 64, sizeof *sealed);
        if (sealed == NULL) {
            return qsi_fail(error, QS_ENOMEM, "names of sealed files");
        }
        copy->sealed = sealed;
    }
    sealed[copy->sealed_count++] = file;
    return QS_OK;
}

static int compare(uint64_t left, uint64_t right)
{
    return (left > right) - (left < right);
}

static int compare_sealed(const void *a, const void *b)
{
    const struct qsi_copy_sealed *left = a, *right = b;
    int order = compare(left->folder, right->folder);

    order = order != 0 ? order : compare(left->major, right->major);
    return order != 0 ? order : compare(left->minor, right->minor);
}

qs_status qsi_copy_sealed(struct qsi_copy *copy, qs_error *error)
{
    for (enum qsi_copy_folder i = QSI_COPY_MESSAGES; i <= QSI_COPY_STREAMS; i++) {
        QS_TRY(walk((struct walk){copy, i, record_sealed, error, QS_OK}, copy->from[i]));
    }
    if (copy->sealed_count > 0) {
        qsort(copy->sealed, copy->sealed_count, sizeof *copy->sealed, compare_sealed);
    }
    return QS_OK;
}

static bool was_sealed(const struct qsi_copy *copy, enum qsi_copy_folder folder, const char *name)
{
    struct qsi_copy_sealed wanted;

    return copy->sealed_count > 0 && parse_name(folder, name, &wanted) &&
           bsearch(&wanted, copy->sealed, copy->sealed_count, sizeof wanted, compare_sealed) !=
               NULL;
}

/* QS_ENOENT: it was removed.  If there can be no link it is copied. */
static qs_status link_file(struct qsi_copy *copy, enum qsi_copy_folder folder, const char *name,
                           qs_error *error)
{
    qs_status status =
        qsi_env_link(copy->store->env, copy->from[folder], name, copy->to[folder], name, error);

    if (status == QS_NOT_IMPLEMENTED) {
        return copy_file(copy, folder, name, error);
    }
    if (status == QS_OK) {
        copy->copied.linked += 1;
        copy->copied.files += 1;
    }
    return status;
}

qs_status qsi_copy_journal(struct qsi_copy *copy, uint32_t last, qs_error *error)
{
    struct qs_store *store = copy->store;
    uint32_t first;

    QS_TRY(qsi_manifest_load(&copy->manifest, store->env, store->root, error));
    if (copy->manifest.session_count == 0 || copy->manifest.checkpoint_number == 0 ||
        copy->manifest.sessions[0].first_file > last) {
        return qsi_fail(error, QS_EIO, "MANIFEST is not what the store wrote: who changed it?");
    }
    first = copy->manifest.sessions[0].first_file;
    for (uint32_t number = first; number <= last; number++) {
        char name[QSI_JOURNAL_NAME_BYTES];
        qs_status status;

        qsi_journal_name(name, number);
        status = copy_file(copy, QSI_COPY_JOURNAL, name, error);
        if (status == QS_ENOENT && number != first && number != last) {
            continue; /* numbers are left out */
        }
        QS_TRY(name_place(copy, QSI_COPY_JOURNAL, status, error));
    }
    return QS_OK;
}

static bool has_suffix(const char *name, enum qsi_copy_folder folder)
{
    const char *dot = strrchr(name, '.');

    for (int i = 0; i < 2 && dot != NULL; i++) {
        const char *suffix = folders[folder].suffixes[i];

        if (suffix != NULL && strcmp(dot + 1, suffix) == 0) {
            return true;
        }
    }
    return false;
}

static qs_status step_rest(struct qsi_copy *copy, enum qsi_copy_folder folder, const char *name,
                           qs_error *error)
{
    uint64_t number;

    QS_TRY(check_goes_on(copy, error));
    if (!has_suffix(name, folder) ||
        (qsi_checkpoint_number(name, &number) && number != copy->manifest.checkpoint_number)) {
        return QS_OK;
    }
    return was_sealed(copy, folder, name) ? link_file(copy, folder, name, error)
                                          : copy_file(copy, folder, name, error);
}

qs_status qsi_copy_rest(struct qsi_copy *copy, qs_error *error)
{
    for (enum qsi_copy_folder i = QSI_COPY_CHECKPOINT; i <= QSI_COPY_STREAMS; i++) {
        QS_TRY(walk((struct walk){copy, i, step_rest, error, QS_OK}, copy->from[i]));
    }
    return QS_OK;
}

/* Linked ones as well: their store may run without syncs. */
static qs_status step_sync(struct qsi_copy *copy, enum qsi_copy_folder folder, const char *name,
                           qs_error *error)
{
    qs_env *env = copy->store->env;
    qs_file *file;
    qs_status status;

    QS_TRY(check_goes_on(copy, error));
    QS_TRY(qsi_env_open(env, copy->to[folder], name, QS_OPEN_READ | QS_OPEN_LINKED, &file, error));
    status = qsi_file_sync_new(env, file, error);
    env->close(env, file);
    return status;
}

qs_status qsi_copy_end(struct qsi_copy *copy, qs_error *error)
{
    qs_env *env = copy->store->env;

    for (enum qsi_copy_folder i = 0; i < QSI_COPY_FOLDERS; i++) {
        QS_TRY(walk((struct walk){copy, i, step_sync, error, QS_OK}, copy->to[i]));
        QS_TRY(name_place(copy, i, qsi_dir_sync(env, copy->to[i], error), error));
    }
    QS_TRY(qsi_dir_sync(env, copy->root, error));
    QS_TRY(qsi_manifest_store(&copy->manifest, env, copy->root, error));
    copy->copied.files += 1;
    return qsi_dir_sync_parent(env, copy->root, error);
}

void qsi_copy_fini(struct qsi_copy *copy)
{
    qs_env *env = copy->store->env;

    for (int i = 0; i < QSI_COPY_FOLDERS; i++) {
        env->dir_close(env, copy->to[i]);
    }
    env->dir_close(env, copy->root);
    qsi_manifest_fini(&copy->manifest);
    qsi_free(copy->sealed);
    qsi_free(copy->piece);
}
