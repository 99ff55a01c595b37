/* Files made ahead of the journal, the room they offer, and files that it gives back.
 *
 * Numbers are never given out twice while a store is open, and each is higher than those of all files there when it was opened.
 * So a file that is used again never has the number that its old header and blocks tell. */
#include "alloc.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "journal_internal.h"

#include <stdlib.h>
#include <string.h>

#define GROWTH 4                      /* a session's files grow fourfold */
#define FAST_BYTES_PER_MS (64u << 10) /* some 64 MB/s: commits are hundreds of KiB then */

static void lock(struct qsi_journal *journal)
{
    if (journal->options.lock != NULL) {
        journal->options.lock(journal->options.lock_context);
    }
}

static void unlock(struct qsi_journal *journal)
{
    if (journal->options.unlock != NULL) {
        journal->options.unlock(journal->options.lock_context);
    }
}

/* ---- room ---- */

/* What a file offers for sure, when a block may leave one entry's worth of it unused.  A page is
 * the end block's. */
static uint64_t usable(uint64_t room, uint64_t entry_bytes)
{
    uint64_t waste = entry_bytes + 3 * (uint64_t)QSI_BLOCK_ALIGN;

    return room > waste ? room - waste : 0;
}

static uint64_t room_in_all(const struct qsi_journal *journal, uint64_t entry_bytes)
{
    uint64_t room = usable(journal->room_bytes, entry_bytes);

    for (uint32_t i = 0; i < journal->spares.count; i++) {
        room += usable(journal->spares.items[i].bytes - QSI_JOURNAL_HEADER_BYTES, entry_bytes);
    }
    for (uint32_t i = 0; i < journal->taken.count; i++) {
        room += usable(journal->taken.items[i].bytes - QSI_JOURNAL_HEADER_BYTES, entry_bytes);
    }
    return room;
}

bool qsi_journal_has_room(const struct qsi_journal *journal, uint64_t bytes, uint64_t entry_bytes)
{
    uint64_t pending = journal->appended_lsn - journal->written_lsn;

    if (entry_bytes < journal->entry_bytes_max) {
        entry_bytes = journal->entry_bytes_max;
    }
    return pending + bytes + QSI_JOURNAL_SLACK_BYTES <= room_in_all(journal, entry_bytes);
}

uint32_t qsi_journal_spare_count(struct qsi_journal *journal)
{
    uint32_t count;

    lock(journal);
    count = journal->spares.count + journal->taken.count;
    unlock(journal);
    return count;
}

bool qsi_journal_wants_spare(const struct qsi_journal *journal)
{
    return journal->spares.count == 0 && journal->taken.count == 0;
}

/* ---- spares ---- */

uint32_t qsi_journal_take_number(struct qsi_journal *journal)
{
    return __atomic_fetch_add(&journal->next_number, 1, __ATOMIC_RELAXED);
}

/* bytes_max is no more than a wish: what has to fit comes first. */
static uint64_t spare_bytes(const struct qsi_journal *journal, uint64_t grows_from, uint64_t bytes,
                            uint64_t entry_bytes, uint64_t bytes_max)
{
    uint64_t size = grows_from * GROWTH;
    uint64_t least = 2 * entry_bytes +
                     (bytes < journal->options.file_bytes / 2 ? bytes : entry_bytes) +
                     2 * QSI_JOURNAL_SLACK_BYTES;

    if (size > journal->options.file_bytes) {
        size = journal->options.file_bytes;
    }
    while (size > bytes_max && size > QSI_JOURNAL_FILE_BYTES_MIN) {
        size /= GROWTH;
    }
    return size >= least ? size : qsi_round_up(least, QSI_JOURNAL_FILE_BYTES_MIN);
}

static bool grows_fast(struct qsi_journal *journal)
{
    uint64_t now = journal->env->monotonic_ns(journal->env);
    uint64_t elapsed_ms = (now - journal->last_spare_ns) / 1000000 + 1;
    uint64_t grown = journal->appended_lsn - journal->last_spare_lsn;

    journal->last_spare_ns = now;
    journal->last_spare_lsn = journal->appended_lsn;
    return grown / elapsed_ms > FAST_BYTES_PER_MS;
}

void qsi_journal_spare_begin(struct qsi_journal *journal, struct qsi_spare *spare_out,
                             uint64_t bytes, uint64_t entry_bytes, uint64_t bytes_max, bool hurried)
{
    if (entry_bytes < journal->entry_bytes_max) {
        entry_bytes = journal->entry_bytes_max;
    }
    spare_out->file = NULL;
    spare_out->bytes =
        spare_bytes(journal, journal->last_spare_bytes, bytes, entry_bytes, bytes_max);
    spare_out->number = journal->making = qsi_journal_take_number(journal);
    spare_out->fill = grows_fast(journal) || hurried ? QSI_FILL_RESERVE : QSI_FILL_ZEROS;
}

qs_status qsi_journal_spare_make(struct qsi_journal *journal, struct qsi_spare *spare,
                                 qs_error *error)
{
    char name[QSI_JOURNAL_NAME_BYTES];
    qs_status status;

    qsi_journal_name(name, spare->number);
    status = qsi_file_create(journal->env, journal->dir, name, spare->bytes, spare->fill,
                             &spare->file, error);
    if (status != QS_OK) {
        qsi_error_prefix(error, "journal/%s of %llu bytes", name, (unsigned long long)spare->bytes);
    }
    return status;
}

/* REQUIRES capacity. */
static void insert_spare(struct qsi_spares *spares, const struct qsi_spare *spare)
{
    uint32_t at = spares->count++;

    for (; at > 0 && spares->items[at - 1].number > spare->number; at--) {
        spares->items[at] = spares->items[at - 1];
    }
    spares->items[at] = *spare;
}

static qs_status push_spare(struct qsi_spares *spares, const struct qsi_spare *spare,
                            uint32_t room_for)
{
    uint32_t needed = spares->count + room_for;

    if (needed > spares->capacity) {
        struct qsi_spare *grown = qsi_realloc(spares->items, needed * sizeof *grown);
        if (grown == NULL) {
            return QS_ENOMEM;
        }
        spares->items = grown;
        spares->capacity = needed;
    }
    insert_spare(spares, spare);
    return QS_OK;
}

qs_status qsi_journal_spare_finish(struct qsi_journal *journal, struct qsi_spare *spare)
{
    /* Room for those the leader holds as well: return_spares cannot fail. */
    qs_status status = push_spare(&journal->spares, spare, journal->taken.count + 1);

    journal->making = 0;
    if (status != QS_OK) {
        journal->env->close(journal->env,
                            spare->file); /* the file stays, and the next open makes use of it */
        return status;
    }
    if (spare->bytes <= journal->options.file_bytes) {
        journal->last_spare_bytes = spare->bytes;
    }
    return QS_OK;
}

/* Takes the next spare that lies behind the current file; one with a lower number was overtaken by a file that a leader
 * had to make itself, and serves nobody. */
static bool next_spare(struct qsi_journal *journal, struct qsi_spare *spare_out)
{
    const struct qsi_spares *taken = &journal->taken;

    while (journal->taken_used < taken->count) {
        *spare_out = taken->items[journal->taken_used++];
        if (spare_out->number > journal->header.number) {
            return true;
        }
        journal->env->close(journal->env, spare_out->file);
    }
    return false;
}

/* No larger than need be where space is short. */
static qs_status make_next(struct qsi_journal *journal, struct qsi_spare *spare_out,
                           uint64_t entry_bytes, qs_error *error)
{
    qs_status status = QS_ENOSPC;

    for (uint64_t bytes_max = UINT64_MAX;; bytes_max = 0) {
        *spare_out = (struct qsi_spare){
            .bytes = spare_bytes(journal, journal->grows_from, entry_bytes, entry_bytes, bytes_max),
            .number = qsi_journal_take_number(journal),
            .fill = QSI_FILL_RESERVE,
        };
        status = qsi_journal_spare_make(journal, spare_out, error);
        if (status != QS_ENOSPC || bytes_max == 0) {
            return status;
        }
    }
}

qs_status qsi_journal_next_file(struct qsi_journal *journal, struct qsi_spare *spare_out,
                                uint64_t entry_bytes, qs_error *error)
{
    if (next_spare(journal, spare_out)) {
        return QS_OK;
    }
    return make_next(journal, spare_out, entry_bytes, error);
}

void qsi_journal_return_spares(struct qsi_journal *journal)
{
    struct qsi_spares *taken = &journal->taken;
    struct qsi_spares *spares = &journal->spares;

    taken->count -= journal->taken_used;
    if (taken->count > 0) {
        memmove(taken->items, taken->items + journal->taken_used,
                taken->count * sizeof *taken->items);
    }
    journal->taken_used = 0;
    if (spares->count == 0) {
        struct qsi_spares swap = *spares;
        *spares = *taken;
        *taken = swap;
        return;
    }
    QS_ASSERT(taken->count + spares->count <= spares->capacity);
    for (uint32_t i = 0; i < taken->count; i++) {
        insert_spare(spares, &taken->items[i]);
    }
    taken->count = 0;
}

static void close_spares(struct qsi_journal *journal, struct qsi_spares *spares, uint32_t first)
{
    for (uint32_t i = first; i < spares->count; i++) {
        journal->env->close(journal->env, spares->items[i].file);
    }
    qsi_free(spares->items);
    *spares = (struct qsi_spares){NULL, 0, 0};
}

void qsi_journal_close_spares(struct qsi_journal *journal)
{
    close_spares(journal, &journal->spares, 0);
    close_spares(journal, &journal->taken, journal->taken_used);
    journal->taken_used = 0;
}

/* ---- giving files back ---- */

struct old_file {
    uint64_t bytes; /* that it offers as a spare; 0: it is of no use as one */
    uint32_t number;
};

struct release {
    struct old_file *files; /* the most useful ones first */
    uint32_t count;
    struct qsi_spares fresh; /* of those that will be used again */
    uint32_t below_number;
    uint32_t making;  /* a spare in the making: somebody else is writing to it */
    uint32_t reusing; /* this many at most */
};

qs_status qsi_journal_remove(struct qsi_journal *journal, uint32_t number, qs_error *error)
{
    char name[QSI_JOURNAL_NAME_BYTES];
    qs_status status;

    qsi_journal_name(name, number);
    status = qsi_env_remove(journal->env, journal->dir, name, error);
    return status == QS_ENOENT ? QS_OK : status;
}

/* Nothing begins at a file that goes, and a spare that was overtaken goes with the files around it. */
static void forget_below(struct qsi_journal *journal, uint32_t below_number)
{
    struct qsi_spares *spares = &journal->spares;
    struct qsi_starts *files = &journal->files;
    uint32_t gone = 0;

    while (gone < spares->count && spares->items[gone].number < below_number) {
        journal->env->close(journal->env, spares->items[gone++].file);
    }
    if (gone > 0) {
        spares->count -= gone;
        memmove(spares->items, spares->items + gone, spares->count * sizeof *spares->items);
    }
    gone = 0;
    while (gone < files->count && files->items[gone].first_file < below_number) {
        gone += 1;
    }
    if (gone > 0) {
        files->count -= gone;
        memmove(files->items, files->items + gone, files->count * sizeof *files->items);
    }
}

static void begin_release(struct qsi_journal *journal, struct release *release, uint32_t keep)
{
    uint32_t spare_count;

    lock(journal);
    forget_below(journal, release->below_number);
    spare_count = journal->spares.count + journal->taken.count;
    release->making = journal->making;
    release->reusing = keep > spare_count ? keep - spare_count : 0;
    unlock(journal);
}

/* What cannot even be opened is no spare, and goes. */
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

/* Which files go, and which of them are of use again. */
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
        release->reusing -= 1;
    }
    return QS_OK;
}

/* Gives a file a fresh number.  It is in nobody's way there, stale bytes and all: its header and blocks tell the old number, and
 * salts that nobody expects any more. */
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
    status = qsi_file_sync(journal->env, spare.file, error); /* its size may be news to the disk */
    if (status != QS_OK) {
        qsi_error_prefix(error, "journal/%s, %s before", to, from);
    }
    return status;
}

/* No file is used before its new name is durable: a crash would take what was written to it back to a number that is dead. */
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

/* The first failure is the one to report.  The directory is not synced: a file whose removal a crash undoes has a number below
 * those of the first session, which nobody reads, and goes with the next open or release. */
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

/* Nobody has them yet: they go like the others. */
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

    lock(journal);
    while (status == QS_OK && handed < release->fresh.count) {
        status =
            push_spare(&journal->spares, &release->fresh.items[handed], journal->taken.count + 1);
        handed += status == QS_OK;
    }
    unlock(journal);
    drop_fresh(journal, release, handed);
    return status == QS_OK ? QS_OK : qsi_fail(error, status, "spare journal files");
}

/* A spare that is more than is to be kept, and than is needed for what was accepted; the last one.  False: there is none. */
static bool take_excess(struct qsi_journal *journal, uint32_t keep, struct qsi_spare *spare_out)
{
    struct qsi_spares *spares = &journal->spares;
    bool found = false;

    lock(journal);
    if (spares->count > 0 && spares->count + journal->taken.count > keep) {
        *spare_out = spares->items[--spares->count];
        found = qsi_journal_has_room(journal, 0, 0);
        spares->count += found ? 0 : 1;
    }
    unlock(journal);
    return found;
}

/* What the journal grew to while it was busy is given back when it is not. */
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
