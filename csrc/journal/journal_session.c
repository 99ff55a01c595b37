/* Beginning and ending a session of the journal. */
#include "alloc.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "journal_internal.h"

#include <string.h>

/* Reuses an unused file of an earlier session; its old bytes do no harm, because they have another
 * salt.  remove_others removes a file that is too small. */
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
        return QS_OK;
    }
    /* Size and name may not be durable yet. */
    QS_TRY(qsi_file_sync(journal->env, journal->file, error));
    QS_TRY(qsi_dir_sync(journal->env, journal->dir, error));
    journal->header.number = number;
    return QS_OK;
}

/* Files without use: those after the sessions, created ahead and never used, or begun and cut off;
 * those before the first session, whose content is in a checkpoint; and the file of a session
 * without records. */
struct leftovers {
    struct qsi_journal_numbers files;
    uint32_t used_from; /* files in [used_from, used_upto] belong to sessions */
    uint32_t used_upto;
    uint32_t needed_upto; /* the same after the new session is in the manifest */
};

/* Reuses the lowest file after the sessions that is large enough, if there is one. */
static qs_status recycle_unused(struct qsi_journal *journal, const struct leftovers *leftovers,
                                qs_error *error)
{
    for (uint32_t i = 0; i < leftovers->files.count && journal->file == NULL; i++) {
        if (leftovers->files.items[i] > leftovers->used_upto) {
            QS_TRY(recycle(journal, leftovers->files.items[i], error));
        }
    }
    return QS_OK;
}

/* Removes unused files, so that repeated kills do not accumulate them.  This must come after the
 * new manifest: the old one may name one of them. */
static qs_status remove_others(struct qsi_journal *journal, const struct leftovers *leftovers,
                               qs_error *error)
{
    for (uint32_t i = 0; i < leftovers->files.count; i++) {
        uint32_t number = leftovers->files.items[i];
        if ((number < leftovers->used_from || number > leftovers->needed_upto) &&
            number != journal->header.number) {
            QS_TRY(qsi_journal_remove(journal, number, error));
        }
    }
    return QS_OK;
}

/* Creates the first file.  On a full disk it first removes files that a checkpoint has made dead,
 * which the manifest does not name; a small file suffices then. */
static qs_status make_first(struct qsi_journal *journal, const struct leftovers *leftovers,
                            struct qsi_spare *spare, qs_error *error)
{
    qs_status status = qsi_journal_spare_make(journal, spare, error);

    if (status != QS_ENOSPC) {
        return status;
    }
    for (uint32_t i = 0; i < leftovers->files.count; i++) {
        if (leftovers->files.items[i] < leftovers->used_from) {
            QS_TRY(qsi_journal_remove(journal, leftovers->files.items[i], error));
        }
    }
    spare->number = qsi_journal_take_number(journal);
    spare->bytes = QSI_JOURNAL_FILE_BYTES_MIN;
    return qsi_journal_spare_make(journal, spare, error);
}

static qs_status first_file(struct qsi_journal *journal, struct leftovers *leftovers,
                            qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_spare spare = {0};
    uint32_t highest = leftovers->used_upto;

    QS_TRY(qsi_journal_list(&leftovers->files, journal->env, journal->dir, error));
    if (leftovers->files.count > 0 &&
        leftovers->files.items[leftovers->files.count - 1] > highest) {
        highest = leftovers->files.items[leftovers->files.count - 1];
    }
    if (highest >= UINT32_MAX - 1) {
        return qsi_fail(error, QS_EINVAL,
                        "journal file numbers are used up: is there a foreign %u.jnl?", highest);
    }
    journal->next_number = highest + 1;
    if (!journal->options.anew) {
        QS_TRY(recycle_unused(journal, leftovers, error));
    }
    if (journal->file == NULL) {
        spare.number = qsi_journal_take_number(journal);
        spare.bytes = qsi_journal_first_bytes(journal);
        QS_TRY(make_first(journal, leftovers, &spare, error));
        journal->file = spare.file;
        journal->file_bytes = spare.bytes;
        journal->header.number = spare.number;
    }
    journal->filled_upto = journal->file_bytes; /* or not known */
    journal->last_spare_ns = journal->env->monotonic_ns(journal->env);
    journal->last_spare_lsn = journal->appended_lsn;
    journal->last_spare_bytes = qsi_journal_first_bytes(journal);
    if (journal->last_spare_bytes > journal->file_bytes) {
        journal->last_spare_bytes = journal->file_bytes;
    }
    return QS_OK;
}

/* Begins the session.  The file's header must be durable before the manifest names the session:
 * without it the file would count as damaged. */
static qs_status begin_session(struct qsi_journal *journal, struct qsi_manifest *manifest,
                               uint64_t end_lsn, qs_error *error)
{
    struct qsi_session session = {.base_lsn = end_lsn, .first_file = journal->header.number};
    struct qsi_session *last =
        manifest->session_count > 0 ? &manifest->sessions[manifest->session_count - 1] : NULL;
    struct qsi_session before = last != NULL ? *last : session;
    struct qsi_manifest old = *manifest;
    qs_status status;

    QS_TRY(qsi_env_random(journal->env, &session.salt, sizeof session.salt, error));
    QS_TRY(qsi_env_random(journal->env, &journal->header.next_salt, sizeof session.salt, error));
    journal->header.salt = session.salt;
    journal->header.base_lsn = end_lsn;
    journal->header.session = manifest->session_number + 1;
    QS_TRY(qsi_journal_begin_file(journal, error));
    session.after_crash = last != NULL && !manifest->clean;
    if (last != NULL && last->base_lsn == end_lsn) { /* the last session has no records */
        session.after_crash = session.after_crash || last->after_crash;
        *last = session;
    } else if (qsi_manifest_add_session(manifest, &session) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "manifest");
    }
    manifest->session_number += 1;
    manifest->clean = manifest->failed = false;
    manifest->end_lsn = end_lsn;
    journal->session = session;
    status = qsi_manifest_store(manifest, journal->env, journal->root, error);
    /* The old manifest is unchanged, so restore this copy: the caller may try again. */
    if (qsi_is_shortage(status)) {
        if (manifest->session_count == old.session_count && old.session_count > 0) {
            manifest->sessions[old.session_count - 1] = before;
        }
        manifest->session_count = old.session_count;
        manifest->session_number = old.session_number;
        manifest->clean = old.clean;
        manifest->failed = old.failed;
        manifest->end_lsn = old.end_lsn;
    }
    return status;
}

/* Determines the use of the files before the new session begins. */
static void judge_files(const struct qsi_journal *journal, const struct qsi_manifest *manifest,
                        uint64_t end_lsn, struct leftovers *leftovers)
{
    const struct qsi_session *last =
        manifest->session_count > 0 ? &manifest->sessions[manifest->session_count - 1] : NULL;

    if (manifest->checkpoint_number != 0 && last != NULL) {
        leftovers->used_from = manifest->sessions[0].first_file;
        if (leftovers->used_upto + 1 < leftovers->used_from) {
            leftovers->used_upto = leftovers->used_from - 1;
        }
    }
    leftovers->needed_upto = leftovers->used_upto;
    if (last != NULL && last->base_lsn == end_lsn && !journal->options.salvage &&
        last->first_file <= leftovers->needed_upto) {
        leftovers->needed_upto = last->first_file - 1;
    }
}

/* Refuses an end before the checkpoint: the next open would skip records at LSNs that the
 * checkpoint covers. */
static qs_status check_end(const struct qsi_manifest *manifest, uint64_t end_lsn, qs_error *error)
{
    if (end_lsn >= qsi_manifest_needed_from(manifest)) {
        return QS_OK;
    }
    return qsi_fail_corrupt(
        error, "MANIFEST", 64, "checkpoint at LSN %llu; the journal ends before it at %llu",
        (unsigned long long)manifest->checkpoint_lsn, (unsigned long long)end_lsn);
}

qs_status qsi_journal_open(struct qsi_journal **journal_out, qs_env *env, qs_dir *root, qs_dir *dir,
                           const struct qsi_journal_options *options, struct qsi_manifest *manifest,
                           uint32_t used_upto, uint64_t end_lsn, qs_error *error)
{
    struct leftovers leftovers = {.used_upto = used_upto};
    struct qsi_journal *journal = qsi_zalloc(sizeof *journal);
    qs_status status;

    *journal_out = NULL;
    if (journal == NULL) {
        return qsi_fail(error, QS_ENOMEM, "journal");
    }
    qsi_journal_is_private(journal);
    journal->env = env;
    journal->root = root;
    journal->dir = dir;
    journal->options = *options;
    memcpy(journal->header.uuid, options->uuid, QSI_UUID_BYTES);
    journal->appended_lsn = journal->durable_lsn = journal->written_lsn = end_lsn;
    journal->block_lsn = end_lsn;
    status = check_end(manifest, end_lsn, error);
    if (status != QS_OK) {
        goto out;
    }
    judge_files(journal, manifest, end_lsn, &leftovers);
    status = first_file(journal, &leftovers, error);
    if (status != QS_OK) {
        goto out;
    }
    status = begin_session(journal, manifest, end_lsn, error);
    if (status != QS_OK) {
        goto out;
    }
    journal->room_bytes = journal->file_bytes - journal->write_at;
    status = remove_others(journal, &leftovers, error);
    if (status != QS_OK) {
        goto out;
    }
    *journal_out = journal;
    journal = NULL;
out:
    qsi_journal_numbers_fini(&leftovers.files);
    qsi_journal_close(journal);
    return status;
}

void qsi_journal_close(struct qsi_journal *journal)
{
    if (journal == NULL) {
        return;
    }
    qsi_journal_is_private(journal);
    qsi_entries_fini(&journal->open);
    qsi_entries_fini(&journal->sealed);
    qsi_journal_close_spares(journal);
    qsi_free(journal->files.items);
    qsi_free(journal->begun.items);
    journal->env->close(journal->env, journal->file);
    qsi_free(journal);
}

/* ---- begin of reading ---- */

void qsi_journal_session_at(const struct qsi_journal *journal, uint64_t lsn,
                            struct qsi_session *start_out)
{
    uint32_t low = 0;
    uint32_t high = journal->files.count;

    QS_ASSERT(lsn >= journal->session.base_lsn && lsn <= journal->durable_lsn);
    while (low < high) { /* finds the first file that begins after lsn */
        uint32_t middle = low + (high - low) / 2;
        if (journal->files.items[middle].base_lsn <= lsn) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *start_out = low > 0 ? journal->files.items[low - 1] : journal->session;
}

uint32_t qsi_journal_last_file(const struct qsi_journal *journal)
{
    QS_DCHECK(journal->session.first_file > 0);
    return journal->files.count > 0 ? journal->files.items[journal->files.count - 1].first_file
                                    : journal->session.first_file;
}

/* ---- the end ---- */

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
    qsi_journal_is_private(journal);
    QS_ASSERT(journal->durable_lsn == journal->appended_lsn);
    qsi_journal_close_spares(journal); /* replacing the manifest needs a descriptor */
    manifest->clean = true;
    manifest->end_lsn = journal->durable_lsn;
    QS_TRY(qsi_manifest_store(manifest, journal->env, journal->root, error));
    /* This only frees space: if it fails, the next session ignores the tail anyway. */
    return qsi_env_truncate(journal->env, journal->file, journal->write_at, error);
}
