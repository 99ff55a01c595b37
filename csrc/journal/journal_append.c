/* The journal under the lock: appending, sealing, finishing. */
#include "alloc.h"
#include "check.h"
#include "journal_internal.h"

#include <string.h>

#define COMMIT_BYTES (2u << 20)

/* ---- appending ---- */

static qs_status reserve_entries(struct qsi_entries *entries, uint32_t count)
{
    uint32_t needed = entries->count + count;
    uint32_t capacity = entries->capacity < 16 ? 16 : entries->capacity;
    struct qsi_entry *items;
    qs_part *parts;

    if (needed <= entries->capacity) {
        return QS_OK;
    }
    while (capacity < needed) {
        capacity *= 2;
    }
    items = qsi_realloc(entries->items, capacity * sizeof *items);
    if (items == NULL) {
        return QS_ENOMEM;
    }
    entries->items = items;
    /* Two more: block header, padding. */
    parts = qsi_realloc(entries->parts, (capacity + 2) * sizeof *parts);
    if (parts == NULL) {
        return QS_ENOMEM;
    }
    entries->parts = parts;
    entries->capacity = capacity;
    return QS_OK;
}

static void clear_entries(struct qsi_entries *entries)
{
    QS_DCHECK(entries->count <= entries->capacity);
    for (uint32_t i = 0; i < entries->count; i++) {
        qsi_chunk_unref(entries->items[i].chunk);
    }
    entries->count = 0;
    entries->bytes = 0;
}

void qsi_entries_fini(struct qsi_entries *entries)
{
    clear_entries(entries);
    qsi_free(entries->items);
    qsi_free(entries->parts);
}

qs_status qsi_journal_reserve(struct qsi_journal *journal, uint32_t entry_count)
{
    return reserve_entries(&journal->open, entry_count);
}

/* Whether small adjacent records in a chunk can share an entry, which is one part of the write.  An
 * entry does not continue across the end of a commit, which takes whole entries. */
static bool extends_last(const struct qsi_entries *open, const struct qsi_chunk *chunk,
                         uint64_t from, bool more, bool is_commit_begin)
{
    const struct qsi_entry *last;

    if (open->count == 0 || more || is_commit_begin) {
        return false;
    }
    last = &open->items[open->count - 1];
    return last->chunk == chunk && last->from + last->bytes == from && !last->more &&
           (open->count == 1 || !open->items[open->count - 2].more);
}

/* Begins a commit: the next appended records belong to it, in agreement with commit_count. */
static void begin_commit(struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex)
{
    journal->commits.open += 1;
    journal->open_commit_bytes = 0;
}

uint64_t qsi_journal_append(struct qsi_journal *journal, struct qsi_chunk *chunk, uint64_t from,
                            uint64_t bytes, uint32_t record_count, bool more)
{
    struct qsi_entries *open = &journal->open;
    struct qsi_entry *entry;

    QS_DCHECK(record_count > 0 && open->bytes <= journal->appended_lsn - journal->written_lsn);
    QS_ASSERT(bytes > 0 && from + bytes <= chunk->used);
    if (extends_last(open, chunk, from, more, journal->open_commit_bytes == 0)) {
        entry = &open->items[open->count - 1];
        entry->bytes += bytes;
        entry->record_count += record_count;
    } else {
        QS_ASSERT(open->count < open->capacity);
        entry = &open->items[open->count++];
        journal->last_entry += 1;
        *entry = (struct qsi_entry){qsi_chunk_ref(chunk), from, bytes, record_count, more};
    }
    if (entry->bytes > journal->entry_bytes_max) {
        journal->entry_bytes_max = entry->bytes;
    }
    open->bytes += bytes;
    journal->appended_lsn += bytes;
    journal->open_commit_bytes += bytes;
    if (journal->open_commit_bytes >= COMMIT_BYTES && !more) {
        begin_commit(journal);
    }
    return journal->appended_lsn;
}

uint64_t qsi_journal_appended_lsn(const struct qsi_journal *journal)
{
    return journal->appended_lsn;
}

uint64_t qsi_journal_durable_lsn(const struct qsi_journal *journal)
{
    return journal->durable_lsn;
}

uint64_t qsi_journal_written_lsn(const struct qsi_journal *journal)
{
    return journal->written_lsn;
}

struct qsi_journal_commits qsi_journal_commits(const struct qsi_journal *journal)
{
    return journal->commits;
}

uint64_t qsi_journal_unsealed_bytes(const struct qsi_journal *journal)
{
    return journal->open.bytes;
}

struct qsi_journal_counts qsi_journal_counts(const struct qsi_journal *journal)
{
    return journal->counts;
}

/* ---- seal and finish ---- */

/* The number of open entries for one commit: whole groups, and a limited number of bytes.  A larger
 * write would delay the sync, and with it the confirms of the entries that were written first. */
static uint32_t commit_count(const struct qsi_entries *open)
{
    uint64_t bytes = 0;
    uint32_t count = 0;

    QS_DCHECK(open->count > 0 && !open->items[open->count - 1].more);
    while (count < open->count && bytes < COMMIT_BYTES) {
        bytes += open->items[count].bytes;
        while (open->items[count].more) {
            bytes += open->items[++count].bytes;
        }
        QS_DCHECK(count < open->count);
        count += 1;
    }
    return count;
}

/* Makes the entries after the first keep_count open again.  REQUIRES that none is open.  Without
 * memory for that all of them stay sealed. */
static void unseal_rest(struct qsi_journal *journal, uint32_t keep_count)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_entries *sealed = &journal->sealed;
    uint32_t count = sealed->count - keep_count;

    QS_DCHECK(keep_count > 0);
    QS_DCHECK(keep_count <= sealed->count && journal->open.count == 0);
    if (count == 0 || reserve_entries(&journal->open, count) != QS_OK) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        journal->open.items[i] = sealed->items[keep_count + i];
        journal->open.bytes += journal->open.items[i].bytes;
    }
    journal->open.count = count;
    sealed->count = keep_count;
    QS_DCHECK(sealed->bytes >= journal->open.bytes);
    sealed->bytes -= journal->open.bytes;
}

void qsi_starts_add(struct qsi_starts *starts, const struct qsi_session *start)
{
    QS_DCHECK(starts->count == 0 || starts->items[starts->count - 1].base_lsn <= start->base_lsn);
    if (starts->count == starts->capacity) {
        struct qsi_session *grown = qsi_grow(starts->items, &starts->capacity, 16, sizeof *grown);
        if (grown == NULL) {
            return;
        }
        starts->items = grown;
    }
    starts->items[starts->count++] = *start;
}

/* Numbers the sealed entries: they are one commit, or everything that was appended. */
static void number_sealed(struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex)
{
    if (journal->open.count > 0) {
        journal->commits.sealed += 1;
    } else {
        if (journal->open_commit_bytes > 0) {
            begin_commit(journal);
        }
        journal->commits.sealed = journal->commits.open;
    }
    QS_DCHECK(journal->commits.sealed <= journal->commits.open);
}

bool qsi_journal_seal(struct qsi_journal *journal)
{
    struct qsi_entries sealed = journal->sealed;

    QS_ASSERT(sealed.count == 0 && journal->taken.count == 0);
    if (journal->open.count == 0) {
        return false;
    }
    QS_ASSERT(!journal->open.items[journal->open.count - 1].more);
    QS_DCHECK(journal->open.bytes == journal->appended_lsn - journal->written_lsn);
    journal->sealed = journal->open;
    journal->open = sealed;
    unseal_rest(journal, commit_count(&journal->sealed));
    number_sealed(journal);
    journal->durable_upto = journal->durable_lsn;
    struct qsi_spares taken = journal->taken;
    journal->taken = journal->spares;
    journal->spares = taken;
    QS_DCHECK(journal->sealed.bytes + journal->open.bytes ==
              journal->appended_lsn - journal->written_lsn);
    journal->taken_used = 0;
    journal->sealed_done = 0;
    journal->grows_from = journal->last_spare_bytes;
    return true;
}

uint64_t qsi_journal_last_entry(const struct qsi_journal *journal)
{
    return journal->last_entry;
}

void qsi_journal_finish(struct qsi_journal *journal)
{
    QS_DCHECK(journal->block_lsn >= journal->durable_lsn);
    qsi_journal_finish_write(journal);
    QS_DCHECK(journal->durable_lsn <= journal->written_lsn);
    journal->durable_lsn = journal->written_lsn;
    journal->commits.durable = journal->commits.sealed;
    for (uint32_t i = 0; i < journal->begun.count; i++) {
        qsi_starts_add(&journal->files, &journal->begun.items[i]);
    }
    journal->begun.count = 0;
}

void qsi_journal_finish_write(struct qsi_journal *journal)
{
    QS_DCHECK(journal->sealed.count == 0 || journal->sealed_done == journal->sealed.count);
    journal->written_lsn += journal->sealed.bytes;
    QS_ASSERT(journal->written_lsn == journal->block_lsn);
    QS_DCHECK(journal->durable_lsn <= journal->written_lsn);
    QS_DCHECK(journal->written_lsn + journal->open.bytes == journal->appended_lsn);
    clear_entries(&journal->sealed);
    qsi_journal_return_spares(journal);
    QS_DCHECK(journal->write_at <= journal->file_bytes);
    journal->room_bytes = journal->file_bytes - journal->write_at;
    qsi_journal_record_fill(journal);
    journal->entry_bytes_max = 0;
    for (uint32_t i = 0; i < journal->open.count; i++) {
        if (journal->open.items[i].bytes > journal->entry_bytes_max) {
            journal->entry_bytes_max = journal->open.items[i].bytes;
        }
    }
    journal->counts.bytes_written += journal->written.bytes_written;
    journal->counts.fdatasyncs += journal->written.fdatasyncs;
    journal->counts.blocks += journal->written.blocks;
    memset(&journal->written, 0, sizeof journal->written);
}

void qsi_journal_record_fill(struct qsi_journal *journal)
{
    uint64_t upto =
        journal->filled_upto > journal->write_at ? journal->filled_upto : journal->write_at;

    QS_DCHECK(upto <= journal->file_bytes);
    journal->fill_left = journal->options.sync ? journal->file_bytes - upto : 0;
}

bool qsi_journal_wants_fill(const struct qsi_journal *journal)
{
    return journal->fill_left > 0;
}

/* ---- debug builds ---- */

#ifndef NDEBUG
static uint64_t check_entries(const struct qsi_entries *entries)
{
    uint64_t bytes = 0;

    QS_DCHECK(entries->count <= entries->capacity);
    for (uint32_t i = 0; i < entries->count; i++) {
        const struct qsi_entry *entry = &entries->items[i];
        QS_DCHECK(entry->bytes > 0 && entry->record_count > 0);
        QS_DCHECK(entry->from + entry->bytes <= entry->chunk->used);
        bytes += entry->bytes;
    }
    QS_DCHECK(entries->bytes == bytes);
    return bytes;
}

void qsi_journal_check(const struct qsi_journal *journal)
{
    uint64_t open = check_entries(&journal->open);

    QS_DCHECK(journal->durable_lsn <= journal->written_lsn);
    QS_DCHECK(journal->written_lsn <= journal->appended_lsn);
    QS_DCHECK(journal->commits.durable <= journal->commits.sealed);
    QS_DCHECK(journal->commits.sealed <= journal->commits.open);
    QS_DCHECK(
        journal->durable_lsn < journal->appended_lsn ||
        (journal->commits.durable == journal->commits.open && journal->open_commit_bytes == 0));
    QS_DCHECK(open <= journal->appended_lsn - journal->written_lsn);
    QS_DCHECK(journal->open.count == 0 || !journal->open.items[journal->open.count - 1].more);
    for (uint32_t i = 1; i < journal->spares.count; i++) {
        QS_DCHECK(journal->spares.items[i - 1].number < journal->spares.items[i].number);
    }
    for (uint32_t i = 0; i < journal->files.count; i++) {
        QS_DCHECK(journal->files.items[i].base_lsn <= journal->durable_lsn);
        QS_DCHECK(i == 0 ||
                  journal->files.items[i - 1].base_lsn <= journal->files.items[i].base_lsn);
    }
}
#endif
