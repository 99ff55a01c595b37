/* How a session of the journal begins and ends. */
#include "alloc.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "journal_internal.h"

#include <string.h>

#define FIRST_FILE_BYTES (1u << 20) /* a session begins small */

#define LEFTOVERS_MAX 64

/* Files that hold nothing of any session: made ahead and never used, or begun and cut off. */
struct leftovers {
    uint32_t used_upto;
    uint32_t highest;
    uint32_t numbers[LEFTOVERS_MAX];
    uint32_t count;
};

static bool visit_leftover(void *context, const char *name)
{
    struct leftovers *leftovers = context;
    uint32_t number;

    if (!qsi_journal_number(name, &number) || number <= leftovers->used_upto) {
        return true;
    }
    leftovers->highest = number > leftovers->highest ? number : leftovers->highest;
    if (leftovers->count < LEFTOVERS_MAX) {
        leftovers->numbers[leftovers->count++] = number;
    }
    return true;
}

/* An unused file of an earlier session serves again, stale bytes and all: they carry another salt. */
static qs_status recycle(struct qsi_journal *journal, uint32_t number, qs_error *error)
{
    char name[QSI_JOURNAL_NAME_BYTES];
    qs_status status;

    qsi_journal_name(name, number);
    status = qsi_env_open(journal->env, journal->dir, name, QS_OPEN_READ | QS_OPEN_WRITE,
                          &journal->file, error);
    if (status != QS_OK) {
        return status;
    }
    QS_TRY(qsi_env_size(journal->env, journal->file, &journal->file_bytes, error));
    journal->file_bytes &= ~(uint64_t)(QSI_BLOCK_ALIGN - 1);
    if (journal->file_bytes < QSI_JOURNAL_FILE_BYTES_MIN) {
        journal->env->close(journal->env, journal->file);
        journal->file = NULL;
        return qsi_env_remove(journal->env, journal->dir, name, error);
    }
    /* Its size and name may be news to the disk. */
    QS_TRY(qsi_file_sync(journal->env, journal->file, error));
    QS_TRY(qsi_dir_sync(journal->env, journal->dir, error));
    journal->header.number = number;
    return QS_OK;
}

/* Kills do not leave a growing heap of unused files.  Not before the manifest is new: the old one may name one of them. */
static qs_status remove_others(struct qsi_journal *journal, const struct leftovers *leftovers,
                               qs_error *error)
{
    for (uint32_t i = 0; i < leftovers->count; i++) {
        char name[QSI_JOURNAL_NAME_BYTES];
        qs_status status;
        if (leftovers->numbers[i] == journal->header.number) {
            continue;
        }
        qsi_journal_name(name, leftovers->numbers[i]);
        status = qsi_env_remove(journal->env, journal->dir, name, error);
        if (status != QS_OK && status != QS_ENOENT) {
            return status;
        }
    }
    return QS_OK;
}

static qs_status first_file(struct qsi_journal *journal, struct leftovers *leftovers,
                            qs_error *error)
{
    struct qsi_spare spare = {0};

    QS_TRY(qsi_env_dir_list(journal->env, journal->dir, visit_leftover, leftovers, error));
    if (leftovers->highest >= UINT32_MAX - 1) {
        return qsi_fail(error, QS_EINVAL,
                        "journal file numbers are used up: is there a foreign %u.jnl?",
                        leftovers->highest);
    }
    journal->next_number = leftovers->highest + 1;
    if (leftovers->count > 0 && !journal->options.anew) {
        QS_TRY(recycle(journal, leftovers->numbers[0], error));
    }
    if (journal->file == NULL) {
        spare.number = qsi_journal_take_number(journal);
        spare.bytes = journal->options.file_bytes < FIRST_FILE_BYTES ? journal->options.file_bytes
                                                                     : FIRST_FILE_BYTES;
        QS_TRY(qsi_journal_spare_make(journal, &spare, error));
        journal->file = spare.file;
        journal->file_bytes = spare.bytes;
        journal->header.number = spare.number;
    }
    journal->last_spare_ns = journal->env->monotonic_ns(journal->env);
    journal->last_spare_lsn = journal->appended_lsn;
    journal->last_spare_bytes =
        journal->file_bytes < FIRST_FILE_BYTES ? journal->file_bytes : FIRST_FILE_BYTES;
    return QS_OK;
}

static qs_status begin_session(struct qsi_journal *journal, struct qsi_manifest *manifest,
                               uint64_t end_lsn, qs_error *error)
{
    struct qsi_session session = {.base_lsn = end_lsn, .first_file = journal->header.number};
    struct qsi_session *last =
        manifest->session_count > 0 ? &manifest->sessions[manifest->session_count - 1] : NULL;

    QS_TRY(qsi_env_random(journal->env, &session.salt, sizeof session.salt, error));
    QS_TRY(qsi_env_random(journal->env, &journal->header.next_salt, sizeof session.salt, error));
    session.after_crash = last != NULL && !manifest->clean;
    if (last != NULL && last->base_lsn == end_lsn) { /* nothing was journalled in it */
        session.after_crash = session.after_crash || last->after_crash;
        *last = session;
    } else if (qsi_manifest_add_session(manifest, &session) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "manifest");
    }
    manifest->clean = manifest->failed = false;
    manifest->end_lsn = end_lsn;
    journal->header.salt = session.salt;
    journal->header.base_lsn = end_lsn;
    return qsi_manifest_store(manifest, journal->env, journal->root, error);
}

qs_status qsi_journal_open(struct qsi_journal **journal_out, qs_env *env, qs_dir *root, qs_dir *dir,
                           const struct qsi_journal_options *options, struct qsi_manifest *manifest,
                           uint32_t used_upto, uint64_t end_lsn, qs_error *error)
{
    struct leftovers leftovers = {.used_upto = used_upto, .highest = used_upto};
    struct qsi_journal *journal = qsi_zalloc(sizeof *journal);
    qs_status status;

    *journal_out = NULL;
    if (journal == NULL) {
        return qsi_fail(error, QS_ENOMEM, "journal");
    }
    journal->env = env;
    journal->root = root;
    journal->dir = dir;
    journal->options = *options;
    memcpy(journal->header.uuid, options->uuid, QSI_UUID_BYTES);
    journal->appended_lsn = journal->durable_lsn = journal->block_lsn = end_lsn;
    journal->write_at = QSI_JOURNAL_HEADER_BYTES;
    status = first_file(journal, &leftovers, error);
    if (status != QS_OK) {
        goto out;
    }
    journal->room_bytes = journal->file_bytes - journal->write_at;
    status = begin_session(journal, manifest, end_lsn, error);
    if (status != QS_OK) {
        goto out;
    }
    status = remove_others(journal, &leftovers, error);
    if (status != QS_OK) {
        goto out;
    }
    *journal_out = journal;
    journal = NULL;
out:
    qsi_journal_close(journal);
    return status;
}

void qsi_journal_close(struct qsi_journal *journal)
{
    if (journal == NULL) {
        return;
    }
    qsi_entries_fini(&journal->open);
    qsi_entries_fini(&journal->sealed);
    qsi_journal_close_spares(journal);
    journal->env->close(journal->env, journal->file);
    qsi_free(journal);
}

qs_status qsi_journal_give_up(const struct qsi_journal *journal, struct qsi_manifest *manifest,
                              qs_error *error)
{
    manifest->failed = true;
    manifest->end_lsn = journal->durable_upto;
    return qsi_manifest_store(manifest, journal->env, journal->root, error);
}

qs_status qsi_journal_close_clean(struct qsi_journal *journal, struct qsi_manifest *manifest,
                                  qs_error *error)
{
    QS_ASSERT(journal->durable_lsn == journal->appended_lsn);
    manifest->clean = true;
    manifest->end_lsn = journal->durable_lsn;
    QS_TRY(qsi_manifest_store(manifest, journal->env, journal->root, error));
    if (journal->header_written) {
        /* Only a gift of space: if it is lost, the next session leaves the tail unread all the same. */
        return qsi_env_truncate(journal->env, journal->file, journal->write_at, error);
    }
    return QS_OK;
}
