/* The writing side of the shared journal: append, seal, write, sync, finish.
 *
 * Records lie in chunks; the journal gathers references to them and never copies a byte.  A
 * commit has three parts: seal and finish are short and run under the engine's lock; write and
 * sync in between run without it, in one thread at a time (the leader), while the next batch is
 * appended.  One commit is in flight at most: a block on disk therefore proves that all before
 * its durable_upto was durable.
 *
 * Files are made ahead (spare_*) and are zero-filled, so that a commit is one write into blocks
 * that exist.  Any error from write or sync is final: the journal must not be used again (fsync
 * is never retried). */
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
    /* use no file again: some may carry headers of a session that ended in front of them */
    bool anew;
    bool salvage; /* remove no file that a session may have used */
    /* The lock that is meant below, for release, which takes it by itself.  NULL: only one
     * thread uses the journal. */
    void (*lock)(void *context);
    void (*unlock)(void *context);
    void *lock_context;
};

/* Begins a session in a new file: makes or recycles the file and writes manifest, which gains
 * the session (the caller's copy too), before anything can be appended.  used_upto is the
 * highest file number that holds earlier sessions; end_lsn is where they end. */
qs_status qsi_journal_open(struct qsi_journal **journal_out, qs_env *env, qs_dir *root, qs_dir *dir,
                           const struct qsi_journal_options *options, struct qsi_manifest *manifest,
                           uint32_t used_upto, uint64_t end_lsn, qs_error *error) QS_MUST_CHECK;
/* Closes files and frees; whatever was not finished is dropped. */
void qsi_journal_close(struct qsi_journal *journal);
/* After everything is finished: writes down in the manifest where the journal ends and gives the
 * unused tail back. */
qs_status qsi_journal_close_clean(struct qsi_journal *journal, struct qsi_manifest *manifest,
                                  qs_error *error) QS_MUST_CHECK;

/* ---- under the lock ---- */

uint64_t qsi_journal_appended_lsn(const struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);
/* The number of the file that the journal is in. */
uint32_t qsi_journal_last_file(const struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);
uint64_t qsi_journal_durable_lsn(const struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);
/* What was written survives the process, what is durable a power cut as well. */
uint64_t qsi_journal_written_lsn(const struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);
uint64_t qsi_journal_unsealed_bytes(const struct qsi_journal *journal)
    QSI_REQUIRES(qsi_store_mutex); /* appended since the last seal */

/* Numbers of commits.  What is appended next is part of commit open, or of an earlier one; the
 * commits before durable are. */
struct qsi_journal_commits {
    uint64_t open, sealed, durable;
};
struct qsi_journal_commits qsi_journal_commits(const struct qsi_journal *journal)
    QSI_REQUIRES(qsi_store_mutex);

/* The entry that ends with what was appended last.  What is in one entry is in one block, which is
 * there after a crash or is not. */
uint64_t qsi_journal_last_entry(const struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);

/* Is there room on disk, made already, for bytes more in entries of up to entry_bytes? */
bool qsi_journal_has_room(const struct qsi_journal *journal, uint64_t bytes, uint64_t entry_bytes)
    QSI_REQUIRES(qsi_store_mutex);
/* Should a spare be made ahead? */
bool qsi_journal_wants_spare(const struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);

/* Room in memory for entry_count appends: they cannot fail then. */
qs_status qsi_journal_reserve(struct qsi_journal *journal, uint32_t entry_count) QS_MUST_CHECK;
/* Appends the records in chunk->data[from, from + bytes), which end at the returned LSN.  Takes
 * a reference of its own.  more: the next append belongs to the same atomic group; the caller
 * appends it before it unlocks. */
uint64_t qsi_journal_append(struct qsi_journal *journal, struct qsi_chunk *chunk, uint64_t from,
                            uint64_t bytes, uint32_t record_count, bool more)
    QSI_REQUIRES(qsi_store_mutex);

/* Takes what was appended, or the front of it, for the next write; false when there is nothing. */
bool qsi_journal_seal(struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);
/* After write went well, and no sync followed: what was sealed will be durable with the next
 * sync. */
void qsi_journal_finish_write(struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);
/* After write and sync went well: everything sealed, and written before, is durable. */
void qsi_journal_finish(struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);

/* Where reading must begin for all records from lsn on.  REQUIRES that lsn is durable, lies
 * between two atomic groups, and not before the session or before what was released. */
void qsi_journal_session_at(const struct qsi_journal *journal, uint64_t lsn,
                            struct qsi_session *start_out) QSI_REQUIRES(qsi_store_mutex);

struct qsi_journal_counts {
    uint64_t bytes_written, fdatasyncs, blocks;
};
struct qsi_journal_counts qsi_journal_counts(const struct qsi_journal *journal)
    QSI_REQUIRES(qsi_store_mutex);

/* ---- without the lock, by the leader ---- */

qs_status qsi_journal_write(struct qsi_journal *journal, qs_error *error) QS_MUST_CHECK;
/* After a write that failed: did it only lack a file to go on in, for want of space, memory or
 * descriptors?  Then it can be repeated, and goes on where it was. */
bool qsi_journal_wants_file(const struct qsi_journal *journal);
qs_status qsi_journal_sync(struct qsi_journal *journal, qs_error *error) QS_MUST_CHECK;
/* QS_EIO when the file that was written last has been removed: nobody will ever find what is in it.
 */
qs_status qsi_journal_check_linked(struct qsi_journal *journal, qs_error *error) QS_MUST_CHECK;

/* A mark in the file tells how far it was durable, wherever its blocks are.  One is written along
 * with a commit, about the ones before it, when the last one was written some ms ago.  When the
 * journal goes quiet, mark says the same of the last commit: has_unmarked REQUIRES the lock and
 * that nobody leads, mark that nothing is sealed; a failure of it is final. */
bool qsi_journal_has_unmarked(const struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);
qs_status qsi_journal_mark(struct qsi_journal *journal, qs_error *error) QS_MUST_CHECK;

/* A file that was made in a hurry is reserved and not written: each commit into it has the file
 * system write down which blocks it has now.  fill writes zeros ahead of the blocks, some at a
 * time, when the journal is quiet; where nothing was written they are what is read anyway,
 * whatever a power cut leaves of them.  wants_fill and note_fill REQUIRE the lock, fill that
 * nothing is sealed.  A fill that fails was the file's last one, and harmless. */
bool qsi_journal_wants_fill(const struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);
qs_status qsi_journal_fill(struct qsi_journal *journal, uint64_t bytes,
                           qs_error *error) QS_MUST_CHECK;
void qsi_journal_note_fill(struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);

/* After write or sync failed: writes down in the manifest that the journal ends where it was
 * durable before.  The system may go on showing what it failed to write, and report later syncs
 * of it as done; so nothing behind that place must be read again. */
qs_status qsi_journal_give_up(const struct qsi_journal *journal, struct qsi_manifest *manifest,
                              qs_error *error);

/* ---- spares: begin and finish under the lock, make without it; one at a time ---- */

struct qsi_spare {
    qs_file *file;
    uint64_t bytes;
    uint32_t number;
    enum qsi_fill fill;
};
/* A spare with room for bytes in entries of entry_bytes at least, and no larger than bytes_max if
 * it need not be.  hurried: somebody waits for it.  It is written with zeros beforehand unless
 * it is hurried or the journal grows so fast that its commits are large: then zeros would cost
 * more of the disk than they save. */
void qsi_journal_spare_begin(struct qsi_journal *journal, struct qsi_spare *spare_out,
                             uint64_t bytes, uint64_t entry_bytes, uint64_t bytes_max, bool hurried)
    QSI_REQUIRES(qsi_store_mutex);
/* QS_ENOSPC changes nothing and may be tried again. */
qs_status qsi_journal_spare_make(struct qsi_journal *journal, struct qsi_spare *spare,
                                 qs_error *error) QS_MUST_CHECK;
qs_status qsi_journal_spare_finish(struct qsi_journal *journal, struct qsi_spare *spare)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* By the leader between seal and finish, under the lock: spares that were made since the seal are
 * its own, too.  For a write that wants a file. */
void qsi_journal_take_spares(struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);

/* ---- giving files back: without the lock, one thread at a time ---- */

/* The bytes of the files that are made ahead, and of what is behind lsn in files before the one in
 * use. */
uint64_t qsi_journal_excess_bytes(const struct qsi_journal *journal, uint64_t lsn)
    QSI_REQUIRES(qsi_store_mutex);
/* How many files are made ahead. */
uint32_t qsi_journal_spare_count(struct qsi_journal *journal);

/* Every journal file with a number below below_number becomes a spare, the largest ones first
 * and as long as there are fewer than keep, or is removed; so are spares that are more than
 * that.  keep 0: the next spares are as small as those of a new session.  REQUIRES a durable
 * manifest whose first session begins at below_number.  After a failure the journal goes on as
 * before, and some of the files are still there; the next call or open takes them.  But a failed
 * sync is a failed sync: it may have lost what others had written. */
qs_status qsi_journal_release(struct qsi_journal *journal, uint32_t below_number, uint32_t keep,
                              qs_error *error) QS_MUST_CHECK;

/* Debug builds: asserts, under the lock, that LSNs, entries and files agree.  In release builds it
 * is nothing. */
#ifdef NDEBUG
#define qsi_journal_check(journal) ((void)(journal))
#else
void qsi_journal_check(const struct qsi_journal *journal) QSI_REQUIRES(qsi_store_mutex);
#endif

#endif
