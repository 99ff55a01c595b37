/* Writing the shared journal: append, seal, write, sync, finish.
 *
 * Records are in chunks; the journal collects references to them and copies no byte.  A commit has
 * these parts: seal and finish are short and run under the engine's lock.  Write and sync run
 * between them without the lock, in one thread at a time (the leader), while the next batch is
 * appended.  At most one commit runs, so a block on the disk proves that everything before its
 * durable_upto was durable.
 *
 * Files are created ahead (spare_*) and filled with zeros, so that a commit is one write into
 * allocated blocks.  Any error of write or sync is final: the journal must not be used again,
 * because fsync is never retried. */
#ifndef QSI_JOURNAL_H
#define QSI_JOURNAL_H

#include "chunk.h"
#include "file.h"
#include "file_head.h"
#include "journal_file.h"
#include "thread_safety.h"

#include <stdbool.h>
#include <stdint.h>

struct qsi_journal;

struct qsi_journal_options {
    uint64_t file_bytes; /* size the files grow to */
    uint8_t uuid[QSI_UUID_BYTES];
    bool sync; /* false: no fdatasync (benchmarks) */
    /* Use no existing file again: some may have headers of a session that was ended at an LSN
     * before them. */
    bool anew;
    bool salvage; /* remove no file that a session may have used */
    /* The lock of the functions below, for release, which takes it itself.  NULL: only one thread
     * uses the journal. */
    void (*lock)(void *context);
    void (*unlock)(void *context);
    void *lock_context;
};

/* Begins a session in a new file.  Creates or recycles the file, and writes manifest, which gets
 * the session (the caller's copy, too), before anything can be appended.  used_upto: the highest
 * file number of earlier sessions; end_lsn: their end. */
qs_status qsi_journal_open(struct qsi_journal **journal_out, qs_env *env, qs_dir *root, qs_dir *dir,
                           const struct qsi_journal_options *options, struct qsi_manifest *manifest,
                           uint32_t used_upto, uint64_t end_lsn, qs_error *error) QS_MUST_CHECK;
/* Closes files and frees; unfinished entries are dropped. */
void qsi_journal_close(struct qsi_journal *journal);
/* Closes after everything is finished: records the journal's end in the manifest, and truncates the
 * unused end of the file. */
qs_status qsi_journal_close_clean(struct qsi_journal *journal, struct qsi_manifest *manifest,
                                  qs_error *error) QS_MUST_CHECK;

/* ---- under the lock ---- */

uint64_t qsi_journal_appended_lsn(const struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);
/* The number of the current file. */
uint32_t qsi_journal_last_file(const struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);
uint64_t qsi_journal_durable_lsn(const struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);
/* Written records survive the end of the process; durable ones survive a power cut, too. */
uint64_t qsi_journal_written_lsn(const struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);
uint64_t qsi_journal_unsealed_bytes(const struct qsi_journal *journal)
    QSI_REQUIRES(qsi_store_mutex); /* appended since the last seal */

/* Numbers of commits.  The next appended records are part of commit open, or of an earlier one;
 * commits before durable are durable. */
struct qsi_journal_commits {
    uint64_t open, sealed, durable;
};
struct qsi_journal_commits qsi_journal_commits(const struct qsi_journal *journal)
    QSI_REQUIRES(qsi_store_mutex);

/* The number of the entry with the last appended record.  An entry is in one block: after a crash
 * all of it exists, or nothing. */
uint64_t qsi_journal_last_entry(const struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);

/* Whether existing files have room for bytes more, in entries of up to entry_bytes. */
bool qsi_journal_has_room(const struct qsi_journal *journal, uint64_t bytes, uint64_t entry_bytes)
    QSI_REQUIRES(qsi_store_mutex);
/* Whether a spare should be created ahead. */
bool qsi_journal_wants_spare(const struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);

/* Makes room in memory for entry_count appends, which then cannot fail. */
qs_status qsi_journal_reserve(struct qsi_journal *journal, uint32_t entry_count) QS_MUST_CHECK;
/* Appends the records in chunk->data[from, from + bytes), which end at the returned LSN.  Takes a
 * reference of its own.  more: the next append belongs to the same atomic group; the caller makes
 * it before it unlocks. */
uint64_t qsi_journal_append(struct qsi_journal *journal, struct qsi_chunk *chunk, uint64_t from,
                            uint64_t bytes, uint32_t record_count, bool more)
    QSI_REQUIRES(qsi_store_mutex);

/* Takes the appended entries, or the first of them, for the next write; false: there are none. */
bool qsi_journal_seal(struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);
/* Call it after a successful write without a sync: the sealed entries will be durable with the next
 * sync. */
void qsi_journal_finish_write(struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);
/* Call it after a successful write and sync: everything sealed, and everything written before, is
 * durable. */
void qsi_journal_finish(struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);

/* Returns where a reader must begin to get all records from lsn on.  REQUIRES that lsn is durable,
 * is not inside an atomic group, and is not before the session or the released files. */
void qsi_journal_session_at(const struct qsi_journal *journal, uint64_t lsn,
                            struct qsi_session *start_out) QSI_REQUIRES(qsi_store_mutex);

struct qsi_journal_counts {
    uint64_t bytes_written, fdatasyncs, blocks;
};
struct qsi_journal_counts qsi_journal_counts(const struct qsi_journal *journal)
    QSI_REQUIRES(qsi_store_mutex);

/* ---- without the lock, by the leader ---- */

qs_status qsi_journal_write(struct qsi_journal *journal, qs_error *error) QS_MUST_CHECK;
/* After a failed write: whether it only lacked a next file, because space, memory or descriptors
 * are short.  Then the write can be repeated, and continues where it ended. */
bool qsi_journal_wants_file(const struct qsi_journal *journal);
qs_status qsi_journal_sync(struct qsi_journal *journal, qs_error *error) QS_MUST_CHECK;
/* QS_EIO: the file that was written last has been removed, so its records would be lost. */
qs_status qsi_journal_check_linked(struct qsi_journal *journal, qs_error *error) QS_MUST_CHECK;

/* A mark in a file records how far the journal was durable, independent of the blocks.  One is
 * written with a commit, about the commits before it, if the last mark is some ms old.  When the
 * journal becomes idle, mark does this for the last commit.  has_unmarked REQUIRES the lock and
 * that no thread leads; mark REQUIRES that nothing is sealed, and its failure is final. */
bool qsi_journal_has_unmarked(const struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);
qs_status qsi_journal_mark(struct qsi_journal *journal, qs_error *error) QS_MUST_CHECK;

/* A file that was created while a thread waited for it is reserved and not written, so each commit
 * into it makes the file system record newly written blocks.  fill writes zeros after the blocks,
 * some at a time, while the journal is idle.  Reserved blocks read as zeros, too, so a power cut
 * during a fill changes nothing.  wants_fill and record_fill REQUIRE the lock; fill REQUIRES that
 * nothing is sealed.  After a failed fill, which is harmless, the file is not filled any more. */
bool qsi_journal_wants_fill(const struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);
qs_status qsi_journal_fill(struct qsi_journal *journal, uint64_t bytes,
                           qs_error *error) QS_MUST_CHECK;
void qsi_journal_record_fill(struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);

/* Call it after a failed write or sync: records in the manifest that the journal ends at its
 * durable LSN.  The system may still return the bytes that it failed to write, and report success
 * for later syncs, so no bytes after that LSN may be read again. */
qs_status qsi_journal_give_up(const struct qsi_journal *journal, struct qsi_manifest *manifest,
                              qs_error *error);

/* ---- spares: begin and finish under the lock, make without it; one at a time ---- */

struct qsi_spare {
    qs_file *file;
    uint64_t bytes;
    uint32_t number;
    enum qsi_fill fill;
};
/* Begins a spare with room for bytes in entries of at least entry_bytes, and not larger than
 * bytes_max unless that needs it.  is_awaited: a thread waits for the spare.  It is filled with
 * zeros, unless it is awaited or the journal grows so fast that its commits are large: then zeros
 * would cost more than they save. */
void qsi_journal_spare_begin(struct qsi_journal *journal, struct qsi_spare *spare_out,
                             uint64_t bytes, uint64_t entry_bytes, uint64_t bytes_max,
                             bool is_awaited) QSI_REQUIRES(qsi_store_mutex);
/* QS_ENOSPC changes nothing; try again later. */
qs_status qsi_journal_spare_make(struct qsi_journal *journal, struct qsi_spare *spare,
                                 qs_error *error) QS_MUST_CHECK;
qs_status qsi_journal_spare_finish(struct qsi_journal *journal, struct qsi_spare *spare)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Called by the leader between seal and finish, under the lock, for a write that wants a file:
 * takes spares that were created since the seal. */
void qsi_journal_take_spares(struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);

/* ---- removing files: without the lock, one thread at a time ---- */

/* The bytes of spares, and of the journal from lsn to the begin of the current file. */
uint64_t qsi_journal_excess_bytes(const struct qsi_journal *journal, uint64_t lsn)
    QSI_REQUIRES(qsi_store_mutex);
/* The number of spares. */
uint32_t qsi_journal_spare_count(struct qsi_journal *journal);

/* Makes every journal file with a number below below_number a spare, the largest ones first, while
 * there are fewer than keep; removes the others, and spares beyond keep.  keep 0: the next spares
 * are as small as those of a new session.  REQUIRES a durable manifest whose first session begins
 * at below_number.  After a failure the journal continues as before, and some of the files remain;
 * the next call or open removes them.  But a failed sync is final: it may have lost the writes of
 * other threads. */
qs_status qsi_journal_release(struct qsi_journal *journal, uint32_t below_number, uint32_t keep,
                              qs_error *error) QS_MUST_CHECK;

/* Debug builds: asserts, under the lock, that LSNs, entries and files agree.  Release builds do
 * nothing. */
#ifdef NDEBUG
#define qsi_journal_check(journal) ((void)(journal))
#else
void qsi_journal_check(const struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);
#endif

#endif
