/* The leader's part of the journal: blocks, file after file, marks, zeros ahead. */
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "journal_internal.h"

#define STREAM_BYTES_MIN (1u << 20)
#define STREAM_PART_BYTES_MIN (16u << 10)
#define PAYLOAD_BYTES_MAX (256u << 20) /* of a block with more than one entry */
#define MARK_NS 10000000u              /* between marks in a file, during a series of commits */

static const uint8_t zeros[QSI_BLOCK_ALIGN];

/* ---- writing ---- */

/* Puts "journal/0000000001.jnl: " in front of the text.  Returns status. */
static qs_status name_file(uint32_t number, qs_status status, qs_error *error)
{
    char path[QSI_JOURNAL_PATH_BYTES];

    if (status != QS_OK) {
        qsi_journal_path(path, number);
        qsi_error_prefix(error, "%s", path);
    }
    return status;
}

static qs_status sync_file(struct qsi_journal *journal, qs_file *file, uint32_t number,
                           qs_error *error)
{
    if (!journal->options.sync) {
        return QS_OK;
    }
    journal->written.fdatasyncs += 1;
    return name_file(number, qsi_file_sync(journal->env, file, error), error);
}

/* Writes data at the begin of a page, and zeros after it. */
static qs_status write_page(struct qsi_journal *journal, qs_file *file, uint32_t number,
                            const void *data, size_t bytes, uint64_t at, qs_error *error)
{
    const qs_part parts[2] = {{data, bytes}, {zeros, QSI_JOURNAL_PAGE_BYTES - bytes}};

    QS_DCHECK(bytes <= QSI_JOURNAL_PAGE_BYTES && at % QSI_JOURNAL_PAGE_BYTES == 0);
    journal->written.bytes_written += QSI_JOURNAL_PAGE_BYTES;
    return name_file(number, qsi_file_write(journal->env, file, parts, 2, at, error), error);
}

/* ---- from file to file ---- */

qs_status qsi_journal_begin_file(struct qsi_journal *journal, qs_error *error)
{
    uint8_t header[QSI_JOURNAL_FIELD_BYTES];

    QS_DCHECK(journal->file_bytes % QSI_BLOCK_ALIGN == 0 &&
              journal->file_bytes > QSI_JOURNAL_HEADER_BYTES);
    journal->header.pages = (uint32_t)(journal->file_bytes / QSI_BLOCK_ALIGN);
    qsi_journal_header_encode(header, &journal->header);
    journal->write_at = QSI_JOURNAL_HEADER_BYTES;
    journal->marked_upto = journal->header.base_lsn;
    journal->mark_count = 0;
    QS_TRY(write_page(journal, journal->file, journal->header.number, header, sizeof header, 0,
                      error));
    return sync_file(journal, journal->file, journal->header.number, error);
}

/* The end block of a file.  It vouches for no block of its own commit: the disk may get it before
 * them. */
static qs_status end_file(struct qsi_journal *journal, qs_file *file, const struct qsi_block *end,
                          uint64_t at, qs_error *error)
{
    uint8_t header[QSI_BLOCK_HEADER_BYTES];

    QS_DCHECK((end->flags & QSI_BLOCK_LAST) != 0 && end->next_file > end->file_number);
    qsi_block_encode(header, end, NULL, 0);
    QS_TRY(write_page(journal, file, end->file_number, header, sizeof header, at, error));
    return sync_file(journal, file, end->file_number, error);
}

static void record_begun(struct qsi_journal *journal)
{
    struct qsi_session start = {
        .salt = journal->header.salt,
        .base_lsn = journal->header.base_lsn,
        .first_file = journal->header.number,
    };

    QS_DCHECK(journal->header.base_lsn == journal->block_lsn);
    qsi_starts_add(&journal->begun, &start);
}

/* Goes on in the next file.  Its header is durable before the end block of the old one names it;
 * and that is durable, along with all blocks before it, before a block is written to the new file.
 * So no crash leaves an end block without the file that it names, or a block behind a file that is
 * not whole. */
static qs_status roll(struct qsi_journal *journal, uint64_t entry_bytes, qs_error *error)
{
    struct qsi_block end = {
        .lsn = journal->block_lsn,
        .durable_upto = journal->durable_upto,
        .salt = journal->header.salt,
        .file_number = journal->header.number,
        .flags = QSI_BLOCK_LAST,
    };
    uint64_t end_at = journal->write_at;
    qs_file *old_file = journal->file;
    struct qsi_spare spare;
    uint64_t next_salt;
    qs_status status;

    QS_ASSERT(end_at + QSI_BLOCK_ALIGN <= journal->file_bytes);
    QS_TRY(qsi_env_random(journal->env, &next_salt, sizeof next_salt, error));
    journal->wants_file = true;
    QS_TRY(qsi_journal_next_file(journal, &spare, entry_bytes, error));
    journal->wants_file = false;
    QS_DCHECK(spare.file != NULL && spare.number > journal->header.number);
    end.next_file = spare.number;
    journal->file = spare.file;
    journal->file_bytes = spare.bytes;
    journal->filled_upto = spare.fill == QSI_FILL_RESERVE ? 0 : spare.bytes;
    journal->header.number = spare.number;
    journal->header.index += 1;
    journal->header.salt = journal->header.next_salt;
    journal->header.next_salt = next_salt;
    journal->header.base_lsn = journal->block_lsn;
    status = qsi_journal_begin_file(journal, error);
    if (status == QS_OK) {
        status = end_file(journal, old_file, &end, end_at, error);
    }
    journal->env->close(journal->env, old_file);
    record_begun(journal);
    return status;
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
    return journal->write_at + qsi_block_bytes(payload_bytes) + QSI_BLOCK_ALIGN <=
           journal->file_bytes; /* the end block always has room */
}

/* The rest of the group of entry index; the entry alone if it is in no group. */
static struct span unit_at(const struct qsi_entries *sealed, uint32_t index)
{
    struct span unit = {.first = index};

    QS_DCHECK(index < sealed->count);
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

/* The first part of a group that does not fit into a file: such a group becomes a chain of blocks
 * without other entries. */
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

/* The next block, from entry first on; count 0: not even one entry fits into the file. */
static struct span next_span(const struct qsi_journal *journal, uint32_t first)
{
    const struct qsi_entries *sealed = &journal->sealed;
    struct span span = {.first = first};

    QS_DCHECK(first < sealed->count);
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

/* Writes a block.  The device receives the beginning of a long block of long records while the rest
 * is copied; smaller blocks are written in one call. */
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
    uint64_t block_bytes = qsi_block_bytes(span->bytes);
    size_t count = 0;

    QS_DCHECK(span->count > 0 && span->bytes > 0);
    QS_DCHECK(span->first + span->count <= journal->sealed.count);
    QS_DCHECK(fits(journal, span->bytes));
    parts[count++] = (qs_part){block_header, sizeof block_header};
    for (uint32_t i = 0; i < span->count; i++) {
        const struct qsi_entry *entry = &journal->sealed.items[span->first + i];
        parts[count++] = (qs_part){entry->chunk->data + entry->from, entry->bytes};
    }
    qsi_block_encode(block_header, &block, parts + count - span->count, span->count);
    parts[count++] = (qs_part){zeros, block_bytes - QSI_BLOCK_HEADER_BYTES - span->bytes};
    QS_TRY(name_file(journal->header.number,
                     write_parts(journal, parts, count, journal->write_at, block_bytes, error),
                     error));
    journal->written.bytes_written += block_bytes;
    journal->written.blocks += 1;
    journal->write_at += block_bytes;
    journal->block_lsn += span->bytes;
    QS_DCHECK(journal->write_at + QSI_BLOCK_ALIGN <= journal->file_bytes);
    return QS_OK;
}

/* ---- marks ---- */

static qs_status write_mark(struct qsi_journal *journal, uint64_t durable_upto, qs_error *error)
{
    uint8_t mark[QSI_JOURNAL_MARK_BYTES];

    QS_DCHECK(durable_upto >= journal->marked_upto && durable_upto <= journal->block_lsn);
    qsi_journal_mark_encode(mark, journal->header.salt, durable_upto);
    QS_TRY(write_page(journal, journal->file, journal->header.number, mark, sizeof mark,
                      qsi_journal_mark_at(journal->mark_count), error));
    journal->mark_count += 1;
    journal->marked_upto = durable_upto;
    return QS_OK;
}

/* Writes a mark if one is due.  The commit's sync, which follows, covers it. */
static qs_status mark_if_due(struct qsi_journal *journal, qs_error *error)
{
    uint64_t now;

    if (!journal->options.sync || journal->durable_upto <= journal->marked_upto) {
        return QS_OK;
    }
    now = journal->env->monotonic_ns(journal->env);
    if (now - journal->marked_ns < MARK_NS) {
        return QS_OK;
    }
    journal->marked_ns = now;
    return write_mark(journal, journal->durable_upto, error);
}

bool qsi_journal_has_unmarked(const struct qsi_journal *journal)
{
    return journal->options.sync && journal->durable_lsn > journal->marked_upto;
}

/* For the leader, without the lock: no other thread changes it. */
static uint64_t durable_lsn_as_leader(const struct qsi_journal *journal) QSI_UNCHECKED
{
    return journal->durable_lsn;
}

qs_status qsi_journal_mark(struct qsi_journal *journal, qs_error *error)
{
    uint64_t durable_lsn = durable_lsn_as_leader(journal);

    QS_ASSERT(journal->sealed.count == 0);
    QS_DCHECK(durable_lsn >= journal->marked_upto);
    QS_TRY(write_mark(journal, durable_lsn, error));
    return sync_file(journal, journal->file, journal->header.number, error);
}

/* ---- zeros ahead ---- */

qs_status qsi_journal_fill(struct qsi_journal *journal, uint64_t bytes, qs_error *error)
{
    uint64_t from =
        journal->filled_upto > journal->write_at ? journal->filled_upto : journal->write_at;
    qs_status status;

    QS_ASSERT(journal->sealed.count == 0);
    QS_DCHECK(from <= journal->file_bytes);
    bytes = bytes < journal->file_bytes - from ? bytes : journal->file_bytes - from;
    status = qsi_file_write_zeros(journal->env, journal->file, from, bytes, error);
    if (status == QS_OK && bytes > 0 && journal->env->begin_sync != NULL) {
        journal->env->begin_sync(journal->env, journal->file, from, bytes);
    }
    journal->filled_upto = status == QS_OK ? from + bytes : journal->file_bytes;
    return name_file(journal->header.number, status, error);
}

/* ---- a commit ---- */

qs_status qsi_journal_write(struct qsi_journal *journal, qs_error *error)
{
    QS_DCHECK(journal->sealed.count == 0 || journal->sealed_done <= journal->sealed.count);
    journal->wants_file = false;
    while (journal->sealed_done < journal->sealed.count) {
        struct span span = next_span(journal, journal->sealed_done);
        if (span.count == 0) {
            QS_TRY(roll(journal, journal->sealed.items[journal->sealed_done].bytes, error));
            continue;
        }
        QS_TRY(write_block(journal, &span, error));
        journal->sealed_done += span.count;
        QS_DCHECK(journal->sealed_done <= journal->sealed.count);
    }
    return mark_if_due(journal, error);
}

qs_status qsi_journal_sync(struct qsi_journal *journal, qs_error *error)
{
    QS_DCHECK(journal->sealed.count == 0 || journal->sealed_done == journal->sealed.count);
    return sync_file(journal, journal->file, journal->header.number, error);
}

qs_status qsi_journal_check_linked(struct qsi_journal *journal, qs_error *error)
{
    return name_file(journal->header.number,
                     qsi_env_check_linked(journal->env, journal->file, error), error);
}

bool qsi_journal_wants_file(const struct qsi_journal *journal)
{
    return journal->wants_file;
}
