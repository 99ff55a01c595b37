/* Sessions in the journal's files that MANIFEST does not have.
 *
 * An open creates the first file of its session, with the header, before MANIFEST names the
 * session, and journals nothing before that.  So a crash may leave a file of the next session
 * without records.  If there is more, MANIFEST is older than the journal: an earlier copy has
 * replaced it. */
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "scan.h"

#include <string.h>

qs_status qsi_journal_head_read(struct qsi_journal_head *head_out, qs_env *env, qs_dir *dir,
                                uint32_t number, const uint8_t uuid[QSI_UUID_BYTES],
                                qs_error *error)
{
    uint8_t data[QSI_JOURNAL_HEADER_BYTES + QSI_BLOCK_HEADER_BYTES] = {0};
    char name[QSI_JOURNAL_NAME_BYTES];
    struct qsi_block block;
    qs_file *file = NULL;
    size_t bytes = 0;
    qs_status status;

    memset(head_out, 0, sizeof *head_out);
    qsi_journal_name(name, number);
    QS_TRY(qsi_env_open(env, dir, name, QS_OPEN_READ, &file, error));
    status = qsi_file_read(env, file, data, sizeof data, 0, &bytes, error);
    env->close(env, file);
    if (status != QS_OK) {
        return status;
    }
    head_out->is_whole = qsi_journal_header_decode(&head_out->header, data, uuid, number,
                                                   qsi_journal_header_salt(data));
    if (!head_out->is_whole) {
        return QS_OK;
    }
    for (uint64_t i = 0; i < QSI_JOURNAL_MARKS; i++) {
        uint64_t upto =
            qsi_journal_mark_decode(data + qsi_journal_mark_at(i), head_out->header.salt);
        head_out->marked_upto = upto > head_out->marked_upto ? upto : head_out->marked_upto;
    }
    head_out->is_used =
        head_out->marked_upto > 0 ||
        (qsi_block_decode(&block, data + QSI_JOURNAL_HEADER_BYTES, head_out->header.salt) &&
         block.file_number == number);
    return QS_OK;
}

static bool is_unknown(const struct qsi_manifest *manifest, const struct qsi_journal_head *head)
{
    uint64_t next = manifest->session_number + 1;

    return head->is_whole && head->header.session >= next &&
           (head->header.session > next || head->header.index > 0 || head->is_used);
}

static qs_status fail_unknown(const struct qsi_manifest *manifest,
                              const struct qsi_journal_head *head, qs_error *error)
{
    char path[QSI_JOURNAL_PATH_BYTES];

    qsi_journal_path(path, head->header.number);
    return qsi_fail_corrupt(error, "MANIFEST", 88,
                            "an older copy: it ends with session %llu, and %s was written in "
                            "session %llu: put the latest MANIFEST back",
                            (unsigned long long)manifest->session_number, path,
                            (unsigned long long)head->header.session);
}

/* Adds a session to the manifest, beginning at the first of its files that exists.  REQUIRES that
 * the files of a session come in ascending order. */
static qs_status adopt(struct qsi_manifest *manifest, const struct qsi_journal_head *head,
                       qs_error *error)
{
    const struct qsi_journal_header *header = &head->header;
    struct qsi_session session = {.salt = header->salt,
                                  .base_lsn = header->base_lsn,
                                  .first_file = header->number,
                                  .after_crash = true};
    const struct qsi_session *last =
        manifest->session_count > 0 ? &manifest->sessions[manifest->session_count - 1] : NULL;

    if (header->session == manifest->session_number ||
        (last != NULL &&
         (last->base_lsn > header->base_lsn || last->first_file > header->number))) {
        return QS_OK;
    }
    if (qsi_manifest_add_session(manifest, &session) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "manifest");
    }
    manifest->session_number = header->session;
    manifest->clean = manifest->failed = false;
    return QS_OK;
}

static qs_status walk_unknown(qs_env *env, qs_dir *dir, struct qsi_manifest *manifest,
                              const struct qsi_journal_numbers *files, bool adopts, qs_error *error)
{
    for (uint32_t i = 0; i < files->count; i++) {
        struct qsi_journal_head head;
        QS_TRY(qsi_journal_head_read(&head, env, dir, files->items[i], manifest->uuid, error));
        if (is_unknown(manifest, &head)) {
            QS_TRY(adopts ? adopt(manifest, &head, error) : fail_unknown(manifest, &head, error));
        }
    }
    return QS_OK;
}

qs_status qsi_journal_check_sessions(qs_env *env, qs_dir *dir, const struct qsi_manifest *manifest,
                                     const struct qsi_journal_numbers *files, qs_error *error)
{
    struct qsi_manifest unchanged = *manifest;

    return walk_unknown(env, dir, &unchanged, files, false, error);
}

qs_status qsi_journal_adopt_sessions(qs_env *env, qs_dir *dir, struct qsi_manifest *manifest,
                                     qs_error *error)
{
    struct qsi_journal_numbers files;
    qs_status status;

    QS_TRY(qsi_journal_list(&files, env, dir, error));
    status = walk_unknown(env, dir, manifest, &files, true, error);
    qsi_journal_numbers_fini(&files);
    return status;
}
