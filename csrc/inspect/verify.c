/* Verifying: reads and checks everything that a store needs of its files, and writes nothing.
 *
 * The needed messages must be known first, because bodies of others may be missing.  So checkpoint
 * and journal are read once for queues and settled messages, and once more for the bodies that live
 * messages refer to.  Between the readings two numbers are kept for each settle record. */
#include "alloc.h"
#include "check.h"
#include "engine.h"
#include "env_call.h"
#include "error.h"
#include "lost_files.h"
#include "verify_internal.h"

#include <string.h>

#define READ_HANDLES 64
#define MESSAGE_FILE_BYTES (64u << 10) /* no file is created */

/* ---- bytes to read ---- */

struct measure {
    struct qsi_verify *verify;
    qs_dir *dir;
    uint64_t bytes;
};

static bool measure_file(void *context, const char *name)
{
    struct measure *measure = context;
    qs_env *env = measure->verify->env;
    qs_file *file = NULL;
    uint64_t bytes = 0;

    if (qsi_env_open(env, measure->dir, name, QS_OPEN_READ | QS_OPEN_LINKED, &file, NULL) ==
        QS_OK) {
        if (qsi_env_size(env, file, &bytes, NULL) == QS_OK) {
            measure->bytes += bytes;
        }
        env->close(env, file);
    }
    return true;
}

/* Measures files for the progress; files that cannot be measured count as empty.  The journal is
 * read twice. */
static qs_status measure_all(struct qsi_verify *verify, qs_error *error)
{
    qs_dir *dirs[] = {verify->journal_dir,  verify->journal_dir,    verify->index_dir,
                      verify->messages_dir, verify->checkpoint_dir, verify->streams_dir};

    for (size_t i = 0; verify->callbacks->progress != NULL && i < sizeof dirs / sizeof dirs[0];
         i++) {
        struct measure measure = {verify, dirs[i], 0};
        if (dirs[i] == NULL) {
            continue;
        }
        QS_TRY(qsi_env_dir_list(verify->env, dirs[i], measure_file, &measure, error));
        verify->bytes_total += measure.bytes;
    }
    return QS_OK;
}

/* ---- verification ---- */

static qs_status open_root(struct qsi_verify *verify, const char *path, qs_error *error)
{
    uint64_t pid = 0;
    bool created;
    qs_status status =
        qsi_env_dir_open_root(verify->env, path, false, &verify->root, &created, error);

    if (status == QS_ENOENT) {
        return qsi_fail(error, QS_ESTORE_NOT_FOUND, "no such directory");
    }
    if (status == QS_OK) {
        status = qsi_manifest_load(&verify->manifest, verify->env, verify->root, error);
        qsi_manifest_fini(&verify->manifest);
    }
    if (status == QS_ENOENT) {
        return qsi_fail_no_manifest(verify->env, verify->root, error);
    }
    QS_TRY(status);
    status =
        qsi_env_lock_shared(verify->env, verify->root, "LOCK", &verify->lock_file, &pid, error);
    return status == QS_ESTORE_LOCKED ? qsi_fail_owned(error, pid, path, "close it first") : status;
}

static qs_status load_manifest(struct qsi_verify *verify, qs_error *error)
{
    uint32_t entries;

    QS_DCHECK(verify->lock_file != NULL); /* an earlier reading may be of another one */
    QS_TRY(qsi_manifest_load(&verify->manifest, verify->env, verify->root, error));
    if (verify->manifest.session_count == 0) {
        return qsi_fail_not_created(error);
    }
    entries = verify->manifest.segment_entries;
    if (!qsi_segment_entries_are_possible(entries)) {
        return qsi_fail_corrupt(error, "MANIFEST", 48, "segments of %u entries", entries);
    }
    return QS_OK;
}

static qs_status open_all(struct qsi_verify *verify, const char *path, qs_error *error)
{
    struct qsi_message_store_options options = {MESSAGE_FILE_BYTES, READ_HANDLES};
    uint32_t words;

    QS_DCHECK(verify->root == NULL && verify->messages == NULL);
    QS_TRY(open_root(verify, path, error));
    QS_TRY(load_manifest(verify, error));
    QS_TRY(
        qsi_require_directory(verify->env, verify->root, "journal", &verify->journal_dir, error));
    QS_TRY(
        qsi_require_directory(verify->env, verify->root, "messages", &verify->messages_dir, error));
    QS_TRY(qsi_require_directory(verify->env, verify->root, "index", &verify->index_dir, error));
    QS_TRY(qsi_require_directory(verify->env, verify->root, "checkpoint", &verify->checkpoint_dir,
                                 error));
    if (verify->manifest.has_streams) {
        QS_TRY(qsi_require_directory(verify->env, verify->root, "streams", &verify->streams_dir,
                                     error));
        QS_TRY(qsi_block_dir_open(&verify->blocks, verify->env, verify->streams_dir,
                                  verify->manifest.uuid, "streams", "str", error));
    }
    words = qsi_bitmap_words(verify->manifest.segment_entries);
    verify->settled = qsi_zalloc(words * sizeof *verify->settled);
    verify->live = qsi_zalloc(words * sizeof *verify->live);
    if (verify->settled == NULL || verify->live == NULL) {
        return qsi_fail(error, QS_ENOMEM, "bitmaps of a segment");
    }
    QS_TRY(qsi_message_store_open(&verify->messages, verify->env, verify->messages_dir,
                                  verify->manifest.uuid, &options, error));
    return qsi_index_open(&verify->index, verify->env, verify->index_dir, verify->manifest.uuid,
                          verify->manifest.segment_entries, error);
}

static qs_status run(struct qsi_verify *verify, const char *path, qs_error *error)
{
    qs_error detail = {0};
    qs_status status = open_all(verify, path, &detail);

    if (status != QS_OK) { /* without these nothing else can be checked */
        return qsi_verify_found(verify, status, &detail, error);
    }
    QS_TRY(measure_all(verify, error));
    QS_TRY(qsi_verify_load_checkpoint(verify, error));
    QS_TRY(qsi_verify_read_journal(verify, error));
    qsi_verify_collect_end(verify);
    /* Without the checkpoint the valid generations of message files are not known. */
    if (verify->manifest.checkpoint_number != 0 && verify->checkpoint == NULL) {
        return QS_OK;
    }
    QS_DCHECK(verify->checkpoint == NULL || verify->manifest.checkpoint_number != 0);
    QS_TRY(qsi_verify_checkpoint(verify, error));
    status = qsi_verify_journal(verify, &detail);
    /* Damage of the journal itself was reported before. */
    QS_TRY(qsi_verify_found(verify, status == QS_ECORRUPT ? QS_OK : status, &detail, error));
    QS_TRY(qsi_verify_written_files(verify, error));
    if (verify->verified->damages == 0) { /* finds errors that only an open would find */
        status = qsi_store_judge(path, verify->env, &detail);
        QS_TRY(qsi_verify_found(verify, status, &detail, error));
    }
    verify->bytes_done = verify->bytes_total;
    qsi_verify_report(verify, 0);
    return qsi_verify_found(verify, QS_OK, &detail, error);
}

static void end(struct qsi_verify *verify)
{
    qs_env *env = verify->env;
    struct qsi_map_cursor cursor = qsi_map_begin(&verify->queues);

    while (qsi_map_next(&verify->queues, &cursor)) {
        struct qsi_known_queue *queue = cursor.value;
        qsi_buf_fini(&queue->settled);
        qsi_free(queue);
    }
    qsi_map_fini(&verify->queues);
    qsi_map_fini(&verify->names);
    qsi_block_dir_close(verify->blocks);
    qsi_index_close(verify->index);
    qsi_message_store_close(verify->messages);
    qsi_free(verify->checkpoint);
    qsi_buf_fini(&verify->formers);
    qsi_buf_fini(&verify->written);
    qsi_free(verify->settled);
    qsi_free(verify->live);
    qsi_manifest_fini(&verify->manifest);
    env->dir_close(env, verify->streams_dir);
    env->dir_close(env, verify->checkpoint_dir);
    env->dir_close(env, verify->index_dir);
    env->dir_close(env, verify->messages_dir);
    env->dir_close(env, verify->journal_dir);
    env->close(env, verify->lock_file);
    env->dir_close(env, verify->root);
}

qs_status qs_store_verify(const char *path, qs_env *env, const qs_verify_callbacks *callbacks,
                          qs_verified *verified_out, qs_error *error)
{
    static const qs_verify_callbacks nobody;
    struct qsi_verify verify = {
        .env = env != NULL ? env : qs_env_posix(),
        .callbacks = callbacks != NULL ? callbacks : &nobody,
        .verified = verified_out,
    };
    qs_error detail = {0};
    qs_status status;

    memset(verified_out, 0, sizeof *verified_out);
    status = run(&verify, path, &detail);
    if (status == QS_OK && verified_out->damages > 0) {
        QS_DCHECK(verify.first.status == QS_ECORRUPT);
        detail = verify.first;
        status = QS_ECORRUPT;
    }
    end(&verify);
    if (status != QS_OK) {
        qsi_error_prefix(&detail, "verify store '%s'", path);
        if (error != NULL) {
            *error = detail;
        }
    }
    return status;
}
