/* The other side of a store's inbox: a process that has the owner adopt staged files. */
#include "alloc.h"
#include "buf.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "inbox_note.h"
#include "transactions.h"

#include <string.h>

/* A note that is replaced between the open and the check of its names has no name any more. */
#define LOAD_TRIES 4
#define NS_PER_US 1000u

struct qs_request {
    qs_env *env;
    qs_dir *inbox;
    struct qsi_inbox_name asked, owned;
    uint64_t expires_us;
};

/* ---- asking ---- */

static qs_status check_keys(const qs_slice *keys, size_t count, qs_error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (keys[i].bytes == 0 || keys[i].bytes > QSI_TRANSACTION_KEY_BYTES_MAX) {
            return qsi_fail(error, QS_EINVAL, "transaction key of %zu bytes: 1 to %d",
                            keys[i].bytes, QSI_TRANSACTION_KEY_BYTES_MAX);
        }
    }
    return QS_OK;
}

static qs_status check_ask(const qs_ask *ask, qs_error *error)
{
    QS_TRY(check_keys(&ask->key, 1, error));
    QS_TRY(check_keys(ask->unless, ask->unless_count, error));
    QS_TRY(check_keys(ask->forget, ask->forget_count, error));
    if (ask->path_count + ask->unless_count + ask->forget_count > QSI_INBOX_NOTE_BYTES_MAX) {
        return qsi_fail(error, QS_EINVAL, "%zu staged files at once", ask->path_count);
    }
    for (size_t i = 0; i < ask->path_count; i++) {
        if (ask->paths[i][0] != '/') {
            return qsi_fail(error, QS_EINVAL,
                            "staged file '%s': its owner to be has another working directory, "
                            "so give the path from the root",
                            ask->paths[i]);
        }
    }
    return QS_OK;
}

static qs_status add(struct qsi_buf *strings, qs_slice string, qs_error *error)
{
    return qsi_buf_append(strings, &string, sizeof string) == QS_OK
               ? QS_OK
               : qsi_fail(error, QS_ENOMEM, "staged files");
}

static qs_status add_all(struct qsi_buf *strings, const qs_ask *ask, qs_error *error)
{
    QS_DCHECK(strings->bytes == 0);
    QS_TRY(add(strings, ask->key, error));
    for (size_t i = 0; i < ask->unless_count; i++) {
        QS_TRY(add(strings, ask->unless[i], error));
    }
    for (size_t i = 0; i < ask->forget_count; i++) {
        QS_TRY(add(strings, ask->forget[i], error));
    }
    for (size_t i = 0; i < ask->path_count; i++) {
        QS_TRY(add(strings, (qs_slice){ask->paths[i], strlen(ask->paths[i])}, error));
    }
    return QS_OK;
}

static qs_status name_it(struct qs_request *request, uint64_t timeout_ns, qs_error *error)
{
    uint64_t number, now_us = request->env->wall_us(request->env);
    uint64_t timeout_us = timeout_ns / NS_PER_US;

    QS_DCHECK(request->inbox != NULL);
    QS_TRY(qsi_env_random(request->env, &number, sizeof number, error));
    request->expires_us =
        timeout_us < UINT64_MAX / 2 - now_us ? now_us + timeout_us : UINT64_MAX / 2;
    qsi_inbox_name_make(&request->asked, request->expires_us, number, QSI_INBOX_ASKS);
    request->owned = request->asked;
    qsi_inbox_name_own(&request->owned);
    return QS_OK;
}

/* QS_ENOENT: it is not there. */
static qs_status look_for(const struct qs_request *request, const struct qsi_inbox_name *name)
{
    qs_file *file;
    qs_status status =
        qsi_env_open(request->env, request->inbox, name->text, QS_OPEN_READ, &file, NULL);

    if (status == QS_OK) {
        request->env->close(request->env, file);
    }
    return status;
}

/* A manifest that could not be made durable is removed.  If that fails the call waits for it: it
 * could not be taken back, or an owner has begun with it, and makes it durable. */
static qs_status store_manifest(struct qs_request *request, const struct qsi_inbox_note *note,
                                qs_error *error)
{
    qs_status status =
        qsi_inbox_note_store(note, request->env, request->inbox, request->asked.text, error);

    QS_DCHECK(note->kind == QSI_INBOX_MANIFEST);
    if (status == QS_OK || qs_request_take_back(request, NULL) == QS_OK) {
        return status;
    }
    return look_for(request, &request->asked) == QS_OK ||
                   look_for(request, &request->owned) == QS_OK
               ? QS_OK
               : status;
}

static qs_status send(struct qs_request *request, const qs_ask *ask, qs_error *error)
{
    struct qsi_inbox_note note = {
        .kind = QSI_INBOX_MANIFEST,
        .flags = ask->flags & QS_MANDATORY,
        .unless_count = (uint32_t)ask->unless_count,
        .forget_count = (uint32_t)ask->forget_count,
        .path_count = (uint32_t)ask->path_count,
    };
    struct qsi_buf strings = {0};
    qs_status status = add_all(&strings, ask, error);

    note.strings = (qs_slice *)(void *)strings.data;
    if (status == QS_OK) {
        status = name_it(request, ask->timeout_ns, error);
    }
    if (status == QS_OK) {
        status = store_manifest(request, &note, error);
    }
    qsi_buf_fini(&strings);
    return status;
}

static qs_status open_inbox(struct qs_request *request, const char *path, qs_error *error)
{
    qs_dir *root;
    bool created;
    qs_status status;

    QS_TRY(qsi_env_dir_open_root(request->env, path, false, &root, &created, error));
    status = qsi_env_dir_open(request->env, root, QSI_INBOX_DIR, false, &request->inbox, &created,
                              error);
    request->env->dir_close(request->env, root);
    return status;
}

qs_status qs_request_open(qs_request **request_out, const char *path, const qs_ask *ask,
                          qs_env *env, qs_error *error)
{
    struct qs_request *request;
    qs_status status;

    *request_out = NULL;
    QS_TRY(check_ask(ask, error));
    request = qsi_zalloc(sizeof *request);
    if (request == NULL) {
        return qsi_fail(error, QS_ENOMEM, "request");
    }
    request->env = env != NULL ? env : qs_env_posix();
    status = open_inbox(request, path, error);
    if (status == QS_OK) {
        status = send(request, ask, error);
    }
    if (status != QS_OK) {
        qs_request_close(request);
        return status;
    }
    *request_out = request;
    return QS_OK;
}

/* ---- waiting ---- */

static qs_status load_owned(const struct qs_request *request, struct qsi_inbox_note *note,
                            qs_error *error)
{
    qs_status status = QS_EIO;

    for (int i = 0; i < LOAD_TRIES && status == QS_EIO; i++) {
        status =
            qsi_inbox_note_load(note, request->env, request->inbox, request->owned.text, error);
    }
    return status;
}

static qs_status report_failure(const struct qsi_inbox_note *note, qs_error *error)
{
    qs_status status = (qs_status)note->status;

    QS_DCHECK(qsi_inbox_string_count(note) == QSI_INBOX_ANSWER_STRINGS);
    if (error != NULL) {
        status = qsi_fail(error, status, "%s", (const char *)note->strings[0].data);
        qsi_error_set_path(error, (const char *)note->strings[1].data);
        error->os_errno = (int)note->os_errno;
        error->offset = note->offset;
    }
    return status;
}

/* The result of the owner's call.  It is valid once its name is durable: until then a power cut may
 * bring the manifest back, to be adopted, or adopted again if the caller has its key forgotten.
 * Adopted rows stay adopted, whatever fails here. */
static qs_status read_answer(const struct qs_request *request, const struct qsi_inbox_note *note,
                             bool *answered_out, qs_adoption *adoption_out, qs_error *error)
{
    qs_status status = (qs_status)note->status;
    qs_status synced = qsi_dir_sync(request->env, request->inbox, error);

    QS_DCHECK(note->kind == QSI_INBOX_ANSWER);
    if (status != QS_OK) {
        QS_TRY(synced);
    }
    *answered_out = true;
    *adoption_out = note->adoption;
    (void)qsi_env_remove(request->env, request->inbox, request->owned.text, NULL);
    return status == QS_OK ? QS_OK : report_failure(note, error);
}

/* An owner removed it when it expired, durably; or, much later, removed an answer to it. */
static qs_status report_gone(const struct qs_request *request, bool *answered_out, qs_error *error)
{
    uint64_t now_us = request->env->wall_us(request->env);

    QS_TRY(qsi_dir_sync(request->env, request->inbox, error));
    *answered_out = true;
    return now_us > request->expires_us + QSI_INBOX_ANSWER_KEPT_US
               ? qsi_fail(error, QS_ESTORE_FAILED,
                          "its answer is not kept any more: whether it was adopted, its key tells")
               : qsi_fail(error, QS_ETIMEDOUT, "no owner of the store began with it in time");
}

qs_status qs_request_look(qs_request *request, bool *answered_out, qs_adoption *adoption_out,
                          qs_error *error)
{
    struct qsi_inbox_note note;
    qs_status status = load_owned(request, &note, error);

    *answered_out = false;
    *adoption_out = (qs_adoption){.committed = false};
    if (status == QS_ENOENT) {
        if (look_for(request, &request->asked) != QS_ENOENT) {
            return QS_OK;
        }
        status = load_owned(request, &note, error); /* an owner began with it between the two */
    }
    if (status == QS_ENOENT) {
        return report_gone(request, answered_out, error);
    }
    QS_TRY(status);
    if (note.kind == QSI_INBOX_ANSWER) {
        status = read_answer(request, &note, answered_out, adoption_out, error);
    }
    qsi_inbox_note_fini(&note);
    return status;
}

qs_status qs_request_take_back(qs_request *request, qs_error *error)
{
    qs_status status = qsi_env_remove(request->env, request->inbox, request->asked.text, error);

    if (status == QS_ENOENT) {
        return QS_EWOULDBLOCK;
    }
    QS_TRY(status);
    return qsi_dir_sync(request->env, request->inbox, error);
}

void qs_request_close(qs_request *request)
{
    if (request != NULL) {
        request->env->dir_close(request->env, request->inbox);
        qsi_free(request);
    }
}
