/* The journal writer: what is appended, sealed, written and finished. */
#include "alloc.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "journal_internal.h"

#include <string.h>

#define COMMIT_BYTES (2u << 20)
#define STREAM_BYTES_MIN (1u << 20)
#define STREAM_PART_BYTES_MIN (16u << 10)
#define PAYLOAD_BYTES_MAX (256u << 20) /* of a block that holds more than one entry */

static const uint8_t zeros[QSI_BLOCK_ALIGN];

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
    parts = qsi_realloc(entries->parts,
                        (capacity + 3) * sizeof *parts); /* file header, block header, padding */
    if (parts == NULL) {
        return QS_ENOMEM;
    }
    entries->parts = parts;
    entries->capacity = capacity;
    return QS_OK;
}

static void clear_entries(struct qsi_entries *entries)
{
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

/* Small records that follow each other in a chunk are one entry: one part of the write. */
static bool extends_last(const struct qsi_entries *open, const struct qsi_chunk *chunk,
                         uint64_t from, bool more)
{
    const struct qsi_entry *last;

    if (open->count == 0 || more) {
        return false;
    }
    last = &open->items[open->count - 1];
    return last->chunk == chunk && last->from + last->bytes == from && !last->more &&
           (open->count == 1 || !open->items[open->count - 2].more);
}

uint64_t qsi_journal_append(struct qsi_journal *journal, struct qsi_chunk *chunk, uint64_t from,
                            uint64_t bytes, uint32_t record_count, bool more)
{
    struct qsi_entries *open = &journal->open;
    struct qsi_entry *entry;

    QS_ASSERT(bytes > 0 && from + bytes <= chunk->used);
    if (extends_last(open, chunk, from, more)) {
        entry = &open->items[open->count - 1];
        entry->bytes += bytes;
        entry->record_count += record_count;
    } else {
        QS_ASSERT(open->count < open->capacity);
        entry = &open->items[open->count++];
        *entry = (struct qsi_entry){qsi_chunk_ref(chunk), from, bytes, record_count, more};
    }
    if (entry->bytes > journal->entry_bytes_max) {
        journal->entry_bytes_max = entry->bytes;
    }
    open->bytes += bytes;
    journal->appended_lsn += bytes;
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

uint64_t qsi_journal_unsealed_bytes(const struct qsi_journal *journal)
{
    return journal->open.bytes;
}

struct qsi_journal_counts qsi_journal_counts(const struct qsi_journal *journal)
{
    return journal->counts;
}

/* ---- seal and finish ---- */

/* How many of the open entries one commit takes: whole groups, and no more bytes than the disk likes at a time.  Writing
 * much at once only delays the sync, and with it the confirms of what was written first. */
static uint32_t commit_count(const struct qsi_entries *open)
{
    uint64_t bytes = 0;
    uint32_t count = 0;

    while (count < open->count && bytes < COMMIT_BYTES) {
        bytes += open->items[count].bytes;
        while (open->items[count].more) {
            bytes += open->items[++count].bytes;
        }
        count += 1;
    }
    return count;
}

/* Puts the entries behind the first keep_count back into the open end.  Without memory for that they all stay sealed. */
static void unseal_rest(struct qsi_journal *journal, uint32_t keep_count)
{
    struct qsi_entries *sealed = &journal->sealed;
    uint32_t count = sealed->count - keep_count;

    if (count == 0 || reserve_entries(&journal->open, count) != QS_OK) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        journal->open.items[i] = sealed->items[keep_count + i];
        journal->open.bytes += journal->open.items[i].bytes;
    }
    journal->open.count = count;
    sealed->count = keep_count;
    sealed->bytes -= journal->open.bytes;
}

/* Without memory the file is left out: reading then begins at an earlier one, which is right as well. */
static void note_start(struct qsi_starts *starts, const struct qsi_session *start)
{
    if (starts->count == starts->capacity) {
        uint32_t capacity = starts->capacity == 0 ? 16 : starts->capacity * 2;
        struct qsi_session *grown = qsi_realloc(starts->items, capacity * sizeof *grown);
        if (grown == NULL) {
            return;
        }
        starts->items = grown;
        starts->capacity = capacity;
    }
    starts->items[starts->count++] = *start;
}

bool qsi_journal_seal(struct qsi_journal *journal)
{
    struct qsi_entries sealed = journal->sealed;

    QS_ASSERT(sealed.count == 0 && journal->taken.count == 0);
    if (journal->open.count == 0) {
        return false;
    }
    QS_ASSERT(!journal->open.items[journal->open.count - 1].more);
    journal->sealed = journal->open;
    journal->open = sealed;
    unseal_rest(journal, commit_count(&journal->sealed));
    journal->durable_upto = journal->durable_lsn;
    struct qsi_spares taken = journal->taken;
    journal->taken = journal->spares;
    journal->spares = taken;
    journal->taken_used = 0;
    journal->sealed_done = 0;
    journal->grows_from = journal->last_spare_bytes;
    return true;
}

void qsi_journal_finish(struct qsi_journal *journal)
{
    journal->durable_lsn += journal->sealed.bytes;
    QS_ASSERT(journal->durable_lsn == journal->block_lsn);
    clear_entries(&journal->sealed);
    qsi_journal_return_spares(journal);
    for (uint32_t i = 0; i < journal->begun.count; i++) {
        note_start(&journal->files, &journal->begun.items[i]);
    }
    journal->begun.count = 0;
    journal->room_bytes = journal->file_bytes - journal->write_at;
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

/* ---- writing ---- */

/* "journal/0000000001.jnl: " in front.  Returns status. */
static qs_status name_file(const struct qsi_journal *journal, qs_status status, qs_error *error)
{
    char path[QSI_JOURNAL_PATH_BYTES];

    if (status != QS_OK) {
        qsi_journal_path(path, journal->header.number);
        qsi_error_prefix(error, "%s", path);
    }
    return status;
}

static qs_status sync_file(struct qsi_journal *journal, qs_error *error)
{
    if (!journal->options.sync) {
        return QS_OK;
    }
    journal->written.fdatasyncs += 1;
    return name_file(journal, qsi_file_sync(journal->env, journal->file, error), error);
}

/* Goes on in the next file.  The old one is synced first: a file with a header proves that the ones before it are whole. */
static qs_status roll(struct qsi_journal *journal, uint64_t entry_bytes, qs_error *error)
{
    struct qsi_spare spare;
    uint64_t next_salt;

    if (journal->header_written) {
        QS_TRY(sync_file(journal, error));
    }
    QS_TRY(qsi_env_random(journal->env, &next_salt, sizeof next_salt, error));
    journal->wants_file = true;
    QS_TRY(qsi_journal_next_file(journal, &spare, entry_bytes, error));
    journal->wants_file = false;
    journal->env->close(journal->env, journal->file);
    journal->file = spare.file;
    journal->file_bytes = spare.bytes;
    journal->write_at = QSI_JOURNAL_HEADER_BYTES;
    journal->header.number = spare.number;
    if (journal
            ->header_written) { /* else the file was too small, and its successor takes its place */
        journal->header.salt = journal->header.next_salt;
        journal->header.next_salt = next_salt;
        journal->header.base_lsn = journal->block_lsn;
        journal->header_written = false;
    }
    return QS_OK;
}

/* The entries of one block: [first, first + count). */
struct span {
    uint32_t first;
    uint32_t count;
    uint64_t bytes;
    uint32_t record_count;
    bool more; /* the block ends inside an atomic group */
};

static bool fits(const struct qsi_journal *journal, uint64_t payload_bytes)
{
    return journal->write_at + qsi_block_bytes(payload_bytes) <= journal->file_bytes;
}

/* The rest of the group that entry index is in, itself alone if it is in none. */
static struct span unit_at(const struct qsi_entries *sealed, uint32_t index)
{
    struct span unit = {.first = index};

    for (uint32_t i = index; i < sealed->count; i++) {
        unit.count += 1;
        unit.bytes += sealed->items[i].bytes;
        unit.record_count += sealed->items[i].record_count;
        if (!sealed->items[i].more) {
            break;
        }
    }
    return unit;
}

static void span_add(struct span *span, const struct span *unit)
{
    span->count += unit->count;
    span->bytes += unit->bytes;
    span->record_count += unit->record_count;
}

/* A group that fits nowhere whole is a chain of blocks that hold nothing else. */
static struct span chain_link(const struct qsi_journal *journal, const struct span *unit)
{
    struct span span = {.first = unit->first, .more = true};

    while (span.count < unit->count) {
        const struct qsi_entry *entry = &journal->sealed.items[unit->first + span.count];
        if (!fits(journal, span.bytes + entry->bytes)) {
            break;
        }
        span.count += 1;
        span.bytes += entry->bytes;
        span.record_count += entry->record_count;
    }
    return span;
}

/* The next block from entry first on; count 0 when not even one entry fits into the file. */
static struct span next_span(const struct qsi_journal *journal, uint32_t first)
{
    const struct qsi_entries *sealed = &journal->sealed;
    struct span span = {.first = first};

    while (first + span.count < sealed->count) {
        struct span unit = unit_at(sealed, first + span.count);
        if (!fits(journal, span.bytes + unit.bytes) ||
            (span.count > 0 && span.bytes + unit.bytes > PAYLOAD_BYTES_MAX)) {
            return span.count > 0 || unit.count == 1 ? span : chain_link(journal, &unit);
        }
        span_add(&span, &unit);
    }
    return span;
}

static void note_begun(struct qsi_journal *journal)
{
    struct qsi_session start = {
        .salt = journal->header.salt,
        .base_lsn = journal->header.base_lsn,
        .first_file = journal->header.number,
    };

    note_start(&journal->begun, &start);
    journal->header_written = true;
}

/* A long block of long records is on its way to the device while its rest is copied; small ones go in one call. */
static qs_status write_parts(const struct qsi_journal *journal, const qs_part *parts, size_t count,
                             uint64_t at, uint64_t bytes, qs_error *error)
{
    bool streams = journal->options.sync && bytes >= STREAM_BYTES_MIN &&
                   bytes / count >= STREAM_PART_BYTES_MIN;

    return streams ? qsi_file_stream(journal->env, journal->file, parts, count, at, error)
                   : qsi_file_write(journal->env, journal->file, parts, count, at, error);
}

static qs_status write_block(struct qsi_journal *journal, const struct span *span, qs_error *error)
{
    uint8_t file_header[QSI_JOURNAL_HEADER_BYTES];
    uint8_t block_header[QSI_BLOCK_HEADER_BYTES];
    struct qsi_block block = {
        .lsn = journal->block_lsn,
        .durable_upto = journal->durable_upto,
        .salt = journal->header.salt,
        .file_number = journal->header.number,
        .payload_bytes = (uint32_t)span->bytes,
        .record_count = span->record_count,
        .flags = span->more ? QSI_BLOCK_MORE : 0,
    };
    qs_part *parts = journal->sealed.parts;
    uint64_t at = journal->write_at;
    uint64_t block_bytes = qsi_block_bytes(span->bytes);
    size_t count = 0;

    if (!journal->header_written) {
        journal->header.pages = (uint32_t)(journal->file_bytes / QSI_BLOCK_ALIGN);
        qsi_journal_header_encode(file_header, &journal->header);
        parts[count++] = (qs_part){file_header, sizeof file_header};
        at = 0;
    }
    parts[count++] = (qs_part){block_header, sizeof block_header};
    for (uint32_t i = 0; i < span->count; i++) {
        const struct qsi_entry *entry = &journal->sealed.items[span->first + i];
        parts[count++] = (qs_part){entry->chunk->data + entry->from, entry->bytes};
    }
    qsi_block_encode(block_header, &block, parts + count - span->count, span->count);
    parts[count++] = (qs_part){zeros, block_bytes - QSI_BLOCK_HEADER_BYTES - span->bytes};
    QS_TRY(name_file(journal, write_parts(journal, parts, count, at, block_bytes, error), error));
    journal->written.bytes_written += journal->write_at + block_bytes - at;
    journal->written.blocks += 1;
    if (!journal->header_written) {
        note_begun(journal);
    }
    journal->write_at += block_bytes;
    journal->block_lsn += span->bytes;
    return QS_OK;
}

qs_status qsi_journal_write(struct qsi_journal *journal, qs_error *error)
{
    journal->wants_file = false;
    while (journal->sealed_done < journal->sealed.count) {
        struct span span = next_span(journal, journal->sealed_done);
        if (span.count == 0) {
            QS_TRY(roll(journal, journal->sealed.items[journal->sealed_done].bytes, error));
            continue;
        }
        QS_TRY(write_block(journal, &span, error));
        journal->sealed_done += span.count;
    }
    return QS_OK;
}

qs_status qsi_journal_sync(struct qsi_journal *journal, qs_error *error)
{
    return sync_file(journal, error);
}

bool qsi_journal_wants_file(const struct qsi_journal *journal)
{
    return journal->wants_file;
}
