/* Shared by the files that make a checkpoint: checkpoint.c makes the steps, checkpoint_snapshot.c
 * takes the state of the store, checkpoint_write.c writes it. */
#ifndef QSI_CHECKPOINT_JOB_H
#define QSI_CHECKPOINT_JOB_H

#include "checkpoint_format.h"
#include "container.h"
#include "error.h"
#include "failure.h"
#include "store.h"
#include "thread_safety.h"

/* A container's snapshot, and the queue, which exists until it ends. */
struct qsi_taken_snapshot {
    struct qsi_snapshot *snapshot;
    struct qsi_store_queue *queue;
};

struct qsi_checkpoint {
    struct qs_store *store;
    uint64_t number;
    uint64_t lsn;
    struct qsi_buf records; /* topology, keys, counts; then those of the snapshots */
    uint32_t record_count;
    struct qsi_buf snapshots; /* struct qsi_taken_snapshot */
    struct qsi_carried carried;
    uint64_t unjournalled;    /* settles that are only in memory and that it has */
    uint32_t epoch;           /* of the readers before the snapshot */
    size_t dead_stream_bytes; /* of the list of streams' dead files: those before the snapshot */
    bool sealed;
    bool left_file; /* a segment continues in another file since: to be tried again at once */
};

static inline uint32_t qsi_checkpoint_snapshot_count(const struct qsi_checkpoint *checkpoint)
{
    return (uint32_t)(checkpoint->snapshots.bytes / sizeof(struct qsi_taken_snapshot));
}
static inline struct qsi_taken_snapshot *
qsi_checkpoint_snapshot_at(const struct qsi_checkpoint *checkpoint, uint32_t index)
{
    return &((struct qsi_taken_snapshot *)(void *)checkpoint->snapshots.data)[index];
}

/* ---- checkpoint_snapshot.c ---- */

/* The bytes of messages that a checkpoint that begins now may carry itself. */
uint64_t qsi_checkpoint_carried_max(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* For one queue: with less in memory it is carried, however many queues there are. */
uint64_t qsi_checkpoint_small_max(const struct qs_store *store);
/* Does not release the lock: this is the moment of the checkpoint. */
qs_status qsi_take_snapshot(struct qsi_checkpoint *checkpoint, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* It is valid, or failed. */
void qsi_checkpoint_end_snapshots(struct qsi_checkpoint *checkpoint, bool counts)
    QSI_REQUIRES(qsi_store_mutex);
/* Sealed: the running checkpoint does not name these files any more. */
void qsi_seal_dead_files(struct qs_store *store, bool sealed) QSI_REQUIRES(qsi_store_mutex);

/* ---- checkpoint_write.c ---- */

/* Releases the lock.  Everything but naming the checkpoint: when it returns, all is synced. */
qs_status qsi_write_snapshot(struct qsi_checkpoint *checkpoint, uint64_t *bytes_out,
                             uint32_t *crc_out, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
    QSI_RELEASES(qsi_store_mutex) QS_MUST_CHECK;
/* Without the lock.  Ends the jobs that were begun and not done. */
void qsi_checkpoint_end_jobs(struct qsi_checkpoint *checkpoint);
/* MANIFEST names the checkpoint. start_out: the beginning of the journal from now on. */
qs_status qsi_name_checkpoint(struct qsi_checkpoint *checkpoint, uint64_t bytes, uint32_t crc,
                              struct qsi_session *start_out, qs_error *error) QS_MUST_CHECK;
/* Releases the lock meanwhile.  Removes files that only the last one needed. */
qs_status qsi_checkpoint_clean_up(struct qsi_checkpoint *checkpoint,
                                  const struct qsi_session *start, uint64_t last_number,
                                  qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* ---- checkpoint_sync.c ---- */

/* Without the lock.  After a sync or a rename: if it failed the store fails at once, not when the
 * checkpoint ends.  Returns status. */
qs_status qsi_checkpoint_record_failure(struct qs_store *store, qs_status status,
                                        const qs_error *error) QS_MUST_CHECK;
/* Without the lock.  QS_ECORRUPT: a file is damaged or gone, and only the journal has its
 * messages. */
qs_status qsi_checkpoint_sync_files(struct qsi_checkpoint *checkpoint,
                                    qs_error *error) QS_MUST_CHECK;
/* Whether the next open will find the checkpoint's file. */
qs_status qsi_checkpoint_check_file(struct qs_store *store, const char *name,
                                    qs_error *error) QS_MUST_CHECK;
/* How a checkpoint ended: held up by this error, the journal grows until another one goes well.
 * NULL: it was not held up. */
void qsi_checkpoint_record_held(struct qs_store *store, const qs_error *error)
    QSI_REQUIRES(qsi_store_mutex);

static inline qs_status qsi_checkpoint_no_memory(qs_error *error)
{
    return qsi_fail(error, QS_ENOMEM, "checkpoint");
}

#endif
