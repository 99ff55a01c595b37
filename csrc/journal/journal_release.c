/* Journal files that are not needed any more: renamed to be spares, or removed. */
#include "alloc.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "journal_internal.h"

#include <stdlib.h>
#include <string.h>

struct old_file {
    uint64_t bytes; /* its size as a spare; 0: it cannot be one */
    uint32_t number;
};

struct release {
    struct old_file *files; /* those to be reused first */
    uint32_t count;
    struct qsi_spares fresh; /* renamed files, which become spares */
    uint32_t below_number;
    uint32_t making;  /* number of a spare that another thread may be creating; 0: none */
    uint32_t reusing; /* the number of files to be reused */
};

qs_status qsi_journal_remove(struct qsi_journal *journal, uint32_t number, qs_error *error)
{
    char name[QSI_JOURNAL_NAME_BYTES];
    qs_status status;

    qsi_journal_name(name, number);
    status = qsi_env_remove(journal->env, journal->dir, name, error);
    return status == QS_ENOENT ? QS_OK : status;
}

/* Removes files below below_number from the list of starts.  Spares below it were overtaken, and
 * are removed with the other files. */
static void forget_below(struct qsi_journal *journal, uint32_t below_number)
{
    struct qsi_starts *files = &journal->files;
    uint32_t gone = 0;

    qsi_journal_drop_spares_below(journal, below_number);
    while (gone < files->count && files->items[gone].first_file < below_number) {
        gone += 1;
    }
    if (gone > 0) {
        QS_DCHECK(files->count >= gone);
        files->count -= gone;
        memmove(files->items, files->items + gone, files->count * sizeof *files->items);
    }
}

static void begin_release(struct qsi_journal *journal, struct release *release, uint32_t keep)
{
    uint32_t spare_count;

    qsi_journal_lock(journal);
    forget_below(journal, release->below_number);
    spare_count = journal->spares.count + journal->taken.count;
    release->making = journal->making;
    release->reusing = keep > spare_count ? keep - spare_count : 0;
    if (keep == 0) {
        journal->last_spare_bytes = qsi_journal_first_bytes(journal);
    }
    qsi_journal_unlock(journal);
}

/* Returns 0 for a file that cannot be opened: it is removed. */
static uint64_t spare_bytes_of(struct qsi_journal *journal, uint32_t number)
{
    char name[QSI_JOURNAL_NAME_BYTES];
    qs_file *file = NULL;
    uint64_t bytes = 0;

    qsi_journal_name(name, number);
    if (qsi_env_open(journal->env, journal->dir, name, QS_OPEN_READ, &file, NULL) != QS_OK) {
        return 0;
    }
    if (qsi_env_size(journal->env, file, &bytes, NULL) != QS_OK) {
        bytes = 0;
    }
    journal->env->close(journal->env, file);
    bytes &= ~(uint64_t)(QSI_BLOCK_ALIGN - 1);
    return bytes >= QSI_JOURNAL_FILE_BYTES_MIN && bytes <= journal->options.file_bytes ? bytes : 0;
}

static int compare_use(const void *a, const void *b)
{
    const struct old_file *x = a;
    const struct old_file *y = b;

    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    return x->number < y->number ? -1 : x->number > y->number;
}

/* Finds the files to remove, and those of them to reuse. */
static qs_status find_old(struct qsi_journal *journal, struct release *release, qs_error *error)
{
    struct qsi_journal_numbers numbers;
    qs_status status = qsi_journal_list(&numbers, journal->env, journal->dir, error);

    if (status != QS_OK) {
        return qsi_fail_unread(error, status, "journal");
    }
    release->files = qsi_alloc((numbers.count + 1) * sizeof *release->files);
    if (release->files == NULL) {
        qsi_journal_numbers_fini(&numbers);
        return qsi_fail(error, QS_ENOMEM, "journal files to give back");
    }
    for (uint32_t i = 0; i < numbers.count && numbers.items[i] < release->below_number; i++) {
        if (numbers.items[i] != release->making) {
            release->files[release->count++] = (struct old_file){
                .bytes = release->reusing > 0 ? spare_bytes_of(journal, numbers.items[i]) : 0,
                .number = numbers.items[i],
            };
        }
    }
    qsi_journal_numbers_fini(&numbers);
    qsort(release->files, release->count, sizeof *release->files, compare_use);
    while (release->reusing > 0 &&
           (release->reusing > release->count || release->files[release->reusing - 1].bytes == 0)) {
        QS_DCHECK(release->reusing > 0);
        release->reusing -= 1;
    }
    return QS_OK;
}

/* Renames a file to a new number.  Its old bytes do no harm there: its header and blocks have the
 * old number, and salts that no reader expects any more. */
static qs_status rename_old(struct qsi_journal *journal, struct release *release,
                            const struct old_file *old, qs_error *error)
{
    struct qsi_spare spare = {.bytes = old->bytes};
    char from[QSI_JOURNAL_NAME_BYTES];
    char to[QSI_JOURNAL_NAME_BYTES];
    qs_status status;

    spare.number = qsi_journal_take_number(journal);
    qsi_journal_name(from, old->number);
    qsi_journal_name(to, spare.number);
    QS_TRY(qsi_env_open(journal->env, journal->dir, from, QS_OPEN_WRITE, &spare.file, error));
    release->fresh.items[release->fresh.count++] = spare;
    QS_TRY(qsi_env_rename(journal->env, journal->dir, from, to, error));
    status = qsi_file_sync(journal->env, spare.file, error); /* the size may not be durable yet */
    if (status != QS_OK) {
        qsi_error_prefix(error, "journal/%s, %s before", to, from);
    }
    return status;
}

/* Renames the files to reuse.  The new names must be durable before a file is used: otherwise a
 * crash could return it, with new records, to its old number, which is not read any more. */
static qs_status rename_reused(struct qsi_journal *journal, struct release *release,
                               qs_error *error)
{
    if (release->reusing == 0) {
        return QS_OK;
    }
    release->fresh.items = qsi_alloc(release->reusing * sizeof *release->fresh.items);
    if (release->fresh.items == NULL) {
        return qsi_fail(error, QS_ENOMEM, "%u journal files to use again", release->reusing);
    }
    for (uint32_t i = 0; i < release->reusing; i++) {
        QS_TRY(rename_old(journal, release, &release->files[i], error));
    }
    return qsi_dir_sync(journal->env, journal->dir, error);
}

/* Removes the other files; the first failure is reported.  The directory is not synced: a file
 * whose removal a crash undoes has a number below that of the first session, so it is not read, and
 * the next open or release removes it. */
static qs_status remove_unused(struct qsi_journal *journal, const struct release *release,
                               qs_error *error)
{
    qs_status first = QS_OK;

    for (uint32_t i = release->reusing; i < release->count; i++) {
        qs_status status =
            qsi_journal_remove(journal, release->files[i].number, first == QS_OK ? error : NULL);
        first = first == QS_OK ? status : first;
    }
    return first;
}

/* Removes renamed files, which are not in the list of spares yet. */
static void drop_fresh(struct qsi_journal *journal, struct release *release, uint32_t first)
{
    for (uint32_t i = first; i < release->fresh.count; i++) {
        journal->env->close(journal->env, release->fresh.items[i].file);
        (void)qsi_journal_remove(journal, release->fresh.items[i].number, NULL);
    }
    release->fresh.count = 0;
}

static qs_status hand_over(struct qsi_journal *journal, struct release *release, qs_error *error)
{
    qs_status status = QS_OK;
    uint32_t handed = 0;

    qsi_journal_lock(journal);
    while (status == QS_OK && handed < release->fresh.count) {
        status = qsi_spares_push(&journal->spares, &release->fresh.items[handed],
                                 journal->taken.count + 1);
        handed += status == QS_OK;
    }
    qsi_journal_unlock(journal);
    drop_fresh(journal, release, handed);
    return status == QS_OK ? QS_OK : qsi_fail(error, status, "spare journal files");
}

/* Takes the last spare, if there are more than keep and it is not needed for accepted entries.
 * False: there is none to take. */
static bool take_excess(struct qsi_journal *journal, uint32_t keep, struct qsi_spare *spare_out)
{
    struct qsi_spares *spares = &journal->spares;
    bool found = false;

    qsi_journal_lock(journal);
    if (spares->count > 0 && spares->count + journal->taken.count > keep) {
        *spare_out = spares->items[--spares->count];
        found = qsi_journal_has_room(journal, 0, 0);
        spares->count += found ? 0 : 1;
    }
    qsi_journal_unlock(journal);
    return found;
}

/* Removes spares that the journal needed only while it was busy. */
static qs_status remove_excess(struct qsi_journal *journal, uint32_t keep, qs_error *error)
{
    struct qsi_spare spare;

    while (take_excess(journal, keep, &spare)) {
        journal->env->close(journal->env, spare.file);
        QS_TRY(qsi_journal_remove(journal, spare.number, error));
    }
    return QS_OK;
}

qs_status qsi_journal_release(struct qsi_journal *journal, uint32_t below_number, uint32_t keep,
                              qs_error *error)
{
    struct release release = {.below_number = below_number};
    qs_status status;
    qs_status removed;

    begin_release(journal, &release, keep);
    status = find_old(journal, &release, error);
    if (status != QS_OK) {
        goto out;
    }
    status = rename_reused(journal, &release, error);
    if (status == QS_OK) {
        status = hand_over(journal, &release, error);
    } else {
        drop_fresh(journal, &release, 0);
        release.reusing = 0; /* files with their old names are removed, too */
    }
    removed = remove_unused(journal, &release, status == QS_OK ? error : NULL);
    status = status == QS_OK ? removed : status;
    if (status == QS_OK) {
        status = remove_excess(journal, keep, error);
    }
out:
    qsi_free(release.fresh.items);
    qsi_free(release.files);
    return status;
}
