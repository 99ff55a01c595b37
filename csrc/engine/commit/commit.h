/* Group commit, and room in the journal. */
#ifndef QSI_COMMIT_H
#define QSI_COMMIT_H

#include "block_write.h"
#include "space.h"
#include "thread_safety.h"

qs_status qsi_commit_start_threads(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
void qsi_commit_join_threads(struct qs_store *store); /* without the lock, when it closes */
/* May release the lock meanwhile.  Returns when durable up to lsn; QS_ETIMEDOUT,
 * QS_ESTORE_FAILED. */
qs_status qsi_commit_wait(struct qs_store *store, uint64_t lsn, uint64_t timeout_ns,
                          qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* On the way out of a call that did something, or found it done: waits until lsn is durable.  With
 * QS_NO_SYNC among flags it returns at once, and with QS_NO_WAIT, too: then the channel is
 * notified.  May release the lock. */
qs_status qsi_commit_complete(struct qs_channel *channel, uint64_t lsn, uint32_t flags,
                              qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* The same for written entries: they survive the process, and not a power cut. */
qs_status qsi_commit_write(struct qs_store *store, uint64_t lsn, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* The store becomes quiet: its last commit gets a proof of its own.  REQUIRES that no thread leads,
 * no failure, and something unmarked; releases the lock meanwhile. */
void qsi_commit_mark(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Writes some zeros ahead of the journal.  REQUIRES that no thread leads, and no failure; releases
 * the lock meanwhile. */
void qsi_commit_fill(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* A file that is synced before the next append counts as durable; bytes were written to it.  The
 * commit then owns the file.  REQUIRES qsi_commit_reserve_blocks (QS_ENOMEM) in the same hold of
 * the lock. */
qs_status qsi_commit_reserve_blocks(struct qs_store *store)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
void qsi_commit_add_blocks(struct qs_store *store, struct qsi_block_unsynced *unsynced,
                           uint64_t bytes) QSI_REQUIRES(qsi_store_mutex);
void qsi_commit_forget_blocks(struct qs_store *store)
    QSI_REQUIRES(qsi_store_mutex); /* at the end */
/* The bytes that are in such files and not synced. */
static inline uint64_t qsi_commit_block_bytes(const struct qs_store *store)
    QSI_REQUIRES(qsi_store_mutex)
{
    return store->commit.dirty_blocks.bytes + store->commit.syncing_bytes;
}
/* And the number of such files, which are open. */
static inline size_t qsi_commit_block_files(const struct qs_store *store)
    QSI_REQUIRES(qsi_store_mutex)
{
    return store->commit.dirty_blocks.files.bytes / sizeof(struct qsi_block_unsynced);
}
/* The most bytes that wait to be written or synced. */
uint64_t qsi_commit_unsynced_max(const struct qs_store *store);
/* May release the lock meanwhile, and reports that.  Ensures that bytes more can be accepted. */
qs_status qsi_commit_make_room(struct qs_store *store, uint64_t bytes, uint64_t entry_bytes,
                               enum qsi_room_use use, bool *released_out, enum qsi_wait wait,
                               qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* A place for a record of bytes in the open chunk of small records. */
qs_status qsi_arena_place(struct qs_store *store, bool journalled, uint64_t bytes,
                          struct qsi_chunk **chunk_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* No record is added to this one any more: the next place is in a new one.  Its unused rest is
 * given back. */
void qsi_arena_leave(struct qs_store *store, struct qsi_chunk **arena)
    QSI_REQUIRES(qsi_store_mutex);
/* REQUIRES qsi_journal_reserve.  Appends a record and notes when the batch began. */
uint64_t qsi_store_append(struct qs_store *store, struct qsi_chunk *chunk, uint64_t from,
                          uint64_t bytes, uint32_t record_count, bool more)
    QSI_REQUIRES(qsi_store_mutex);

/* Whether a commit is needed that no thread leads and that is likely to end soon. */
bool qsi_commit_will_be_short(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* REQUIRES that no thread leads; releases it meanwhile. */
void qsi_commit_lead(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

#endif
