/* Journal files created ahead, and their room.
 *
 * While a store is open no number is used twice, and each is higher than those of all files at the
 * open.  So a reused file never has the number that is in its old header and blocks. */
#include "alloc.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "journal_internal.h"

#include <string.h>

/* Each file of a session is four times as large as the last. */
#define GROWTH 4
#define FAST_BYTES_PER_MS (64u << 10) /* about 64 MB/s, where commits have hundreds of KiB */

/* ---- room ---- */

/* The certain room of a file: a block may leave room for one entry unused, and the end block needs
 * a page. */
static uint64_t usable(uint64_t room, uint64_t entry_bytes)
{
    uint64_t waste = entry_bytes + 3 * (uint64_t)QSI_BLOCK_ALIGN;

    return room > waste ? room - waste : 0;
}

static uint64_t room_in_all(const struct qsi_journal *journal, uint64_t entry_bytes)
    QSI_REQUIRES(qsi_store_mutex)
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

uint64_t qsi_journal_excess_bytes(const struct qsi_journal *journal, uint64_t lsn)
{
    const struct qsi_starts *files = &journal->files;
    uint64_t in_use = files->count > 0 ? files->items[files->count - 1].base_lsn : 0;
    uint64_t bytes = in_use > lsn ? in_use - lsn : 0;

    for (uint32_t i = 0; i < journal->spares.count; i++) {
        bytes += journal->spares.items[i].bytes;
    }
    for (uint32_t i = 0; i < journal->taken.count; i++) {
        bytes += journal->taken.items[i].bytes;
    }
    return bytes;
}

uint32_t qsi_journal_spare_count(struct qsi_journal *journal)
{
    uint32_t count;

    qsi_journal_lock(journal);
    count = journal->spares.count + journal->taken.count;
    qsi_journal_unlock(journal);
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

/* The size of a spare.  bytes_max is only a wish: the needed size has precedence. */
static uint64_t spare_bytes(const struct qsi_journal *journal, uint64_t grows_from, uint64_t bytes,
                            uint64_t entry_bytes, uint64_t bytes_max)
{
    uint64_t size = grows_from * GROWTH;
    uint64_t least = 2 * entry_bytes +
                     (bytes < journal->options.file_bytes / 2 ? bytes : entry_bytes) +
                     2 * QSI_JOURNAL_SLACK_BYTES;

    QS_DCHECK(grows_from > 0);
    if (size > journal->options.file_bytes) {
        size = journal->options.file_bytes;
    }
    while (size > bytes_max && size > QSI_JOURNAL_FILE_BYTES_MIN) {
        size /= GROWTH;
    }
    return size >= least ? size : qsi_round_up(least, QSI_JOURNAL_FILE_BYTES_MIN);
}

static bool grows_fast(struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t now = journal->env->monotonic_ns(journal->env);
    uint64_t elapsed_ms = (now - journal->last_spare_ns) / 1000000 + 1;
    uint64_t grown = journal->appended_lsn - journal->last_spare_lsn;

    QS_DCHECK(now >= journal->last_spare_ns && journal->appended_lsn >= journal->last_spare_lsn);
    journal->last_spare_ns = now;
    journal->last_spare_lsn = journal->appended_lsn;
    return grown / elapsed_ms > FAST_BYTES_PER_MS;
}

void qsi_journal_spare_begin(struct qsi_journal *journal, struct qsi_spare *spare_out,
                             uint64_t bytes, uint64_t entry_bytes, uint64_t bytes_max,
                             bool is_awaited)
{
    if (entry_bytes < journal->entry_bytes_max) {
        entry_bytes = journal->entry_bytes_max;
    }
    spare_out->file = NULL;
    spare_out->bytes =
        spare_bytes(journal, journal->last_spare_bytes, bytes, entry_bytes, bytes_max);
    spare_out->number = journal->making = qsi_journal_take_number(journal);
    spare_out->fill = grows_fast(journal) || is_awaited ? QSI_FILL_RESERVE : QSI_FILL_ZEROS;
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

    QS_DCHECK(spares->count <= spares->capacity);
    for (; at > 0 && spares->items[at - 1].number > spare->number; at--) {
        spares->items[at] = spares->items[at - 1];
    }
    spares->items[at] = *spare;
}

/* Makes room for count more. */
static qs_status reserve_spares(struct qsi_spares *spares, uint32_t count)
{
    uint32_t needed = spares->count + count;

    if (needed > spares->capacity) {
        struct qsi_spare *grown = qsi_realloc(spares->items, needed * sizeof *grown);
        if (grown == NULL) {
            return QS_ENOMEM;
        }
        spares->items = grown;
        spares->capacity = needed;
    }
    return QS_OK;
}

qs_status qsi_spares_push(struct qsi_spares *spares, const struct qsi_spare *spare,
                          uint32_t room_for)
{
    QS_DCHECK(room_for > 0 && spare->file != NULL);
    QS_TRY(reserve_spares(spares, room_for));
    insert_spare(spares, spare);
    return QS_OK;
}

void qsi_journal_drop_spares_below(struct qsi_journal *journal, uint32_t number)
{
    struct qsi_spares *spares = &journal->spares;
    uint32_t gone = 0;

    while (gone < spares->count && spares->items[gone].number < number) {
        journal->env->close(journal->env, spares->items[gone++].file);
    }
    if (gone > 0) {
        spares->count -= gone;
        memmove(spares->items, spares->items + gone, spares->count * sizeof *spares->items);
    }
}

qs_status qsi_journal_spare_finish(struct qsi_journal *journal, struct qsi_spare *spare)
{
    /* Also makes room for the leader's spares, so that return_spares cannot fail. */
    qs_status status = qsi_spares_push(&journal->spares, spare, journal->taken.count + 1);

    journal->making = 0;
    if (status != QS_OK) {
        journal->env->close(journal->env,
                            spare->file); /* the file stays, and the next open reuses it */
        return status;
    }
    if (spare->bytes <= journal->options.file_bytes) {
        journal->last_spare_bytes = spare->bytes;
    }
    if (journal->sealed.count == 0) { /* otherwise the leader's finish does this */
        qsi_journal_drop_spares_below(journal, journal->header.number);
    }
    return QS_OK;
}

/* Takes the next spare after the current file.  A spare with a lower number was overtaken by a file
 * that the leader created itself, and is not usable. */
static bool next_spare(struct qsi_journal *journal, struct qsi_spare *spare_out)
{
    const struct qsi_spares *taken = &journal->taken;

    QS_DCHECK(journal->taken_used <= taken->count);
    while (journal->taken_used < taken->count) {
        *spare_out = taken->items[journal->taken_used++];
        if (spare_out->number > journal->header.number) {
            return true;
        }
        journal->env->close(journal->env, spare_out->file);
    }
    return false;
}

/* Creates the next file; smaller, if space is short. */
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
    QS_DCHECK(entry_bytes > 0);
    if (next_spare(journal, spare_out)) {
        return QS_OK;
    }
    return make_next(journal, spare_out, entry_bytes, error);
}

void qsi_journal_take_spares(struct qsi_journal *journal)
{
    struct qsi_spares *taken = &journal->taken;
    struct qsi_spares *spares = &journal->spares;

    QS_ASSERT(journal->sealed.count > 0);
    /* An overtaken spare would be inserted before files that are in use. */
    qsi_journal_drop_spares_below(journal, journal->header.number);
    if (spares->count == 0 || reserve_spares(taken, spares->count) != QS_OK) {
        return; /* the leader tries again, or finish returns them */
    }
    for (uint32_t i = 0; i < spares->count; i++) {
        insert_spare(taken, &spares->items[i]);
    }
    spares->count = 0;
}

void qsi_journal_return_spares(struct qsi_journal *journal)
{
    struct qsi_spares *taken = &journal->taken;
    struct qsi_spares *spares = &journal->spares;

    QS_DCHECK(taken->count >= journal->taken_used);
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
    } else {
        QS_ASSERT(taken->count + spares->count <= spares->capacity);
        for (uint32_t i = 0; i < taken->count; i++) {
            insert_spare(spares, &taken->items[i]);
        }
        taken->count = 0;
    }
    /* They have no room for the journal. */
    qsi_journal_drop_spares_below(journal, journal->header.number);
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
