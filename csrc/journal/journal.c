/* The journal writer.  Invariant: block_lsn counts what was written, durable_lsn what was synced, appended_lsn what
 * was accepted; durable_lsn <= block_lsn <= appended_lsn, and the three meet when the journal is idle. */
#include "journal.h"

#include "alloc.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"

#include <string.h>

#define FIRST_FILE_BYTES (1u << 20) /* a session begins small and its files grow fourfold */
#define GROWTH 4
#define COMMIT_BYTES (2u << 20)
#define PAYLOAD_BYTES_MAX (256u << 20) /* of a block that holds more than one entry */
#define FAST_BYTES_PER_MS (64u << 10)  /* some 64 MB/s: commits are hundreds of KiB then */
#define SLACK_BYTES (4 * (uint64_t)QSI_BLOCK_ALIGN)

static const uint8_t zeros[QSI_BLOCK_ALIGN];

struct entry { /* whole records, next to each other in one chunk */
    struct qsi_chunk *chunk;
    uint64_t from;
    uint64_t bytes;
    uint32_t record_count;
    bool more;
};

struct entries {
    struct entry *items;
    qs_part *parts; /* room for a block made of all of them */
    uint32_t count;
    uint32_t capacity;
    uint64_t bytes;
};

struct spares {
    struct qsi_spare *items;
    uint32_t count;
    uint32_t capacity;
};

struct qsi_journal {
    qs_env *env;
    qs_dir *root;
    qs_dir *dir;
    struct qsi_journal_options options;

    /* under the lock */
    struct entries open;
    struct spares spares; /* ascending numbers */
    uint64_t appended_lsn;
    uint64_t durable_lsn;
    uint64_t room_bytes;      /* usable for what comes after durable_lsn */
    uint64_t entry_bytes_max; /* of the appends since durable_lsn */
    uint64_t last_spare_bytes;
    uint64_t last_spare_ns; /* when it was begun, and where the journal was */
    uint64_t last_spare_lsn;
    struct spares
        taken; /* by the leader, who counts in taken_used and changes nothing here before finish */
    struct qsi_journal_counts counts;

    uint32_t next_number; /* atomic: a leader that finds no spare makes its own */

    /* the leader's, between seal and finish */
    struct entries sealed;
    uint32_t taken_used;
    uint64_t grows_from; /* last_spare_bytes at seal */
    qs_file *file;
    struct qsi_journal_header header;
    bool header_written;
    uint64_t file_bytes;
    uint64_t write_at;
    uint64_t block_lsn;
    uint64_t durable_upto;
    struct qsi_journal_counts written; /* since seal */
};

/* ---- room ---- */

/* What a file offers for sure, when a block may leave one entry's worth of it unused. */
static uint64_t usable(uint64_t room, uint64_t entry_bytes)
{
    uint64_t waste = entry_bytes + 2 * (uint64_t)QSI_BLOCK_ALIGN;

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
    uint64_t pending = journal->appended_lsn - journal->durable_lsn;

    if (entry_bytes < journal->entry_bytes_max) {
        entry_bytes = journal->entry_bytes_max;
    }
    return pending + bytes + SLACK_BYTES <= room_in_all(journal, entry_bytes);
}

bool qsi_journal_wants_spare(const struct qsi_journal *journal)
{
    return journal->spares.count == 0 && journal->taken.count == 0;
}

/* ---- appending ---- */

static qs_status reserve_entries(struct entries *entries, uint32_t count)
{
    uint32_t needed = entries->count + count;
    uint32_t capacity = entries->capacity < 16 ? 16 : entries->capacity;
    struct entry *items;
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

static void clear_entries(struct entries *entries)
{
    for (uint32_t i = 0; i < entries->count; i++) {
        qsi_chunk_unref(entries->items[i].chunk);
    }
    entries->count = 0;
    entries->bytes = 0;
}

static void fini_entries(struct entries *entries)
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
static bool extends_last(const struct entries *open, const struct qsi_chunk *chunk, uint64_t from,
                         bool more)
{
    const struct entry *last;

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
    struct entries *open = &journal->open;
    struct entry *entry;

    QS_ASSERT(bytes > 0 && from + bytes <= chunk->used);
    if (extends_last(open, chunk, from, more)) {
        entry = &open->items[open->count - 1];
        entry->bytes += bytes;
        entry->record_count += record_count;
    } else {
        QS_ASSERT(open->count < open->capacity);
        entry = &open->items[open->count++];
        *entry = (struct entry){qsi_chunk_ref(chunk), from, bytes, record_count, more};
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
static uint32_t commit_count(const struct entries *open)
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
    struct entries *sealed = &journal->sealed;
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

bool qsi_journal_seal(struct qsi_journal *journal)
{
    struct entries sealed = journal->sealed;

    QS_ASSERT(sealed.count == 0 && journal->taken.count == 0);
    if (journal->open.count == 0) {
        return false;
    }
    QS_ASSERT(!journal->open.items[journal->open.count - 1].more);
    journal->sealed = journal->open;
    journal->open = sealed;
    unseal_rest(journal, commit_count(&journal->sealed));
    journal->durable_upto = journal->durable_lsn;
    struct spares taken = journal->taken;
    journal->taken = journal->spares;
    journal->spares = taken;
    journal->taken_used = 0;
    journal->grows_from = journal->last_spare_bytes;
    return true;
}

/* Spares that the leader did not need go back in front of those made meanwhile. */
static void return_spares(struct qsi_journal *journal)
{
    struct spares *taken = &journal->taken;
    struct spares *spares = &journal->spares;

    taken->count -= journal->taken_used;
    if (taken->count > 0) {
        memmove(taken->items, taken->items + journal->taken_used,
                taken->count * sizeof *taken->items);
    }
    journal->taken_used = 0;
    if (spares->count == 0) {
        struct spares swap = *spares;
        *spares = *taken;
        *taken = swap;
        return;
    }
    QS_ASSERT(taken->count + spares->count <= spares->capacity);
    memmove(spares->items + taken->count, spares->items, spares->count * sizeof *spares->items);
    if (taken->count > 0) {
        memcpy(spares->items, taken->items, taken->count * sizeof *taken->items);
    }
    spares->count += taken->count;
    taken->count = 0;
}

void qsi_journal_finish(struct qsi_journal *journal)
{
    journal->durable_lsn += journal->sealed.bytes;
    QS_ASSERT(journal->durable_lsn == journal->block_lsn);
    clear_entries(&journal->sealed);
    return_spares(journal);
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

/* ---- spares ---- */

static uint32_t take_number(struct qsi_journal *journal)
{
    return __atomic_fetch_add(&journal->next_number, 1, __ATOMIC_RELAXED);
}

static uint64_t spare_bytes(const struct qsi_journal *journal, uint64_t grows_from, uint64_t bytes,
                            uint64_t entry_bytes)
{
    uint64_t size = grows_from * GROWTH;
    uint64_t least = 2 * entry_bytes +
                     (bytes < journal->options.file_bytes / 2 ? bytes : entry_bytes) +
                     2 * SLACK_BYTES;

    if (size > journal->options.file_bytes) {
        size = journal->options.file_bytes;
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
                             uint64_t bytes, uint64_t entry_bytes, bool hurried)
{
    if (entry_bytes < journal->entry_bytes_max) {
        entry_bytes = journal->entry_bytes_max;
    }
    spare_out->file = NULL;
    spare_out->bytes = spare_bytes(journal, journal->last_spare_bytes, bytes, entry_bytes);
    spare_out->number = take_number(journal);
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
        qsi_error_prefix(error, "journal file %s of %llu bytes", name,
                         (unsigned long long)spare->bytes);
    }
    return status;
}

static qs_status push_spare(struct spares *spares, const struct qsi_spare *spare, uint32_t room_for)
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
    spares->items[spares->count++] = *spare;
    return QS_OK;
}

qs_status qsi_journal_spare_finish(struct qsi_journal *journal, struct qsi_spare *spare)
{
    /* Room for those the leader holds as well: return_spares cannot fail. */
    qs_status status = push_spare(&journal->spares, spare, journal->taken.count + 1);

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

/* ---- writing ---- */

static qs_status sync_file(struct qsi_journal *journal, qs_error *error)
{
    if (!journal->options.sync) {
        return QS_OK;
    }
    journal->written.fdatasyncs += 1;
    return qsi_file_sync(journal->env, journal->file, error);
}

/* Takes the next spare that lies behind the current file; one with a lower number was overtaken by a file that a leader
 * had to make itself, and serves nobody. */
static bool next_spare(struct qsi_journal *journal, struct qsi_spare *spare_out)
{
    const struct spares *taken = &journal->taken;

    while (journal->taken_used < taken->count) {
        *spare_out = taken->items[journal->taken_used++];
        if (spare_out->number > journal->header.number) {
            return true;
        }
        journal->env->close(journal->env, spare_out->file);
    }
    return false;
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
    if (!next_spare(journal, &spare)) {
        spare = (struct qsi_spare){
            .bytes = spare_bytes(journal, journal->grows_from, entry_bytes, entry_bytes),
            .number = take_number(journal),
            .fill = QSI_FILL_RESERVE,
        };
        QS_TRY(qsi_journal_spare_make(journal, &spare, error));
    }
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
static struct span unit_at(const struct entries *sealed, uint32_t index)
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
        const struct entry *entry = &journal->sealed.items[unit->first + span.count];
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
    const struct entries *sealed = &journal->sealed;
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
        const struct entry *entry = &journal->sealed.items[span->first + i];
        parts[count++] = (qs_part){entry->chunk->data + entry->from, entry->bytes};
    }
    qsi_block_encode(block_header, &block, parts + count - span->count, span->count);
    parts[count++] = (qs_part){zeros, block_bytes - QSI_BLOCK_HEADER_BYTES - span->bytes};
    QS_TRY(qsi_file_write(journal->env, journal->file, parts, count, at, error));
    journal->written.bytes_written += journal->write_at + block_bytes - at;
    journal->written.blocks += 1;
    journal->header_written = true;
    journal->write_at += block_bytes;
    journal->block_lsn += span->bytes;
    return QS_OK;
}

qs_status qsi_journal_write(struct qsi_journal *journal, qs_error *error)
{
    uint32_t first = 0;

    while (first < journal->sealed.count) {
        struct span span = next_span(journal, first);
        if (span.count == 0) {
            QS_TRY(roll(journal, journal->sealed.items[first].bytes, error));
            continue;
        }
        QS_TRY(write_block(journal, &span, error));
        first += span.count;
    }
    return QS_OK;
}

qs_status qsi_journal_sync(struct qsi_journal *journal, qs_error *error)
{
    return sync_file(journal, error);
}

/* ---- open and close ---- */

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
        spare.number = take_number(journal);
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

static void close_spares(struct qsi_journal *journal, struct spares *spares, uint32_t first)
{
    for (uint32_t i = first; i < spares->count; i++) {
        journal->env->close(journal->env, spares->items[i].file);
    }
    qsi_free(spares->items);
}

void qsi_journal_close(struct qsi_journal *journal)
{
    if (journal == NULL) {
        return;
    }
    fini_entries(&journal->open);
    fini_entries(&journal->sealed);
    close_spares(journal, &journal->spares, 0);
    close_spares(journal, &journal->taken, journal->taken_used);
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
