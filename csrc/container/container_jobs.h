/* What takes time with a container's files: jobs, and the snapshot of a checkpoint.
 *
 * A job has three steps:
 *
 *   begin   under the engine's lock: notes what is to be done, and holds on to what that needs
 *   run     without it: input and output
 *   end     under it: takes the result over, as far as it still holds, and frees the job
 *
 * A snapshot is made under the lock too, and says what the container is at that moment.  Then:
 *
 *   jobs    in order, each run and ended: what the checkpoint needs on the disk is written
 *   sync    without the lock, file by file
 *   encode  without it: the records that the checkpoint has of the container
 *   end     under it: the checkpoint counts, or came to nothing
 *
 * The container stays until all that was begun has ended.  A kind puts struct qsi_job and struct
 * qsi_snapshot first into structures of its own. */
#ifndef QSI_CONTAINER_JOBS_H
#define QSI_CONTAINER_JOBS_H

#include "qstore/env.h"
#include "qstore/status.h"

#include "buf.h"
#include "check.h"
#include "thread_safety.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qsi_container;

/* ---- jobs ---- */

struct qsi_job_kind;
struct qsi_job {
    const struct qsi_job_kind *kind;
    struct qsi_container *container;
    uint64_t message_count; /* that it wrote; set by a run that went well */
    bool made_file;         /* likewise */
};

struct qsi_job_kind {
    void (*refresh)(struct qsi_job *job); /* NULL: there is nothing to do */
    qs_status (*run)(struct qsi_job *job, qs_error *error);
    qs_status (*leave_file)(struct qsi_job *job); /* NULL: a file is never left */
    void (*end)(struct qsi_job *job, bool done);
};

/* Under the lock, before run, if another job of the container ended since begin. */
static inline void qsi_job_refresh(struct qsi_job *job) QSI_REQUIRES(qsi_store_mutex)
{
    if (job->kind->refresh != NULL) {
        job->kind->refresh(job);
    }
}
/* Without the lock.  QS_ECORRUPT: the file that it was to add to is damaged or gone. */
static inline QS_MUST_CHECK qs_status qsi_job_run(struct qsi_job *job, qs_error *error)
{
    return job->kind->run(job, error);
}
/* Under the lock, after run returned QS_ECORRUPT.  QS_OK: the container goes on in another file,
 * and run may be tried again. */
static inline QS_MUST_CHECK qs_status qsi_job_leave_file(struct qsi_job *job)
    QSI_REQUIRES(qsi_store_mutex)
{
    return job->kind->leave_file != NULL ? job->kind->leave_file(job) : QS_ECORRUPT;
}
/* Under the lock.  done: run went well.  May end what the job was about; frees the job. */
static inline void qsi_job_end(struct qsi_job *job, bool done) QSI_REQUIRES(qsi_store_mutex)
{
    job->kind->end(job, done);
}

/* ---- snapshots ---- */

struct qsi_record_build;

/* What a checkpoint carries itself: messages that no other file has yet, of all containers. */
struct qsi_carried {
    uint64_t bytes, bytes_max; /* of messages */
    /* of containers with small_max at most, which are not worth files of their own */
    uint64_t small_bytes, small_bytes_max, small_max;
    struct qsi_record_build *build; /* made by the first that needs it; the checkpoint's to free */
    struct qsi_buf records;
    uint32_t record_count;
    bool counts_only; /* the next jobs count their records, and encode nothing */
};

/* Takes the room for it, if there is some.  Little is always carried, as long as memory holds it
 * all: a file of its own would take more, and each a sync. */
static inline bool qsi_carried_take_room(struct qsi_carried *carried, uint64_t bytes)
{
    if (bytes <= carried->small_max && carried->small_bytes + bytes <= carried->small_bytes_max) {
        carried->small_bytes += bytes;
        return true;
    }
    if (carried->bytes + bytes <= carried->bytes_max) {
        carried->bytes += bytes;
        return true;
    }
    return false;
}

/* The jobs of a snapshot.  All flushes, of all containers, go well before the others are run. */
enum qsi_snapshot_step {
    QSI_SNAPSHOT_FLUSHES, /* one builds on the other: where one fails the next are not run */
    QSI_SNAPSHOT_OTHERS,  /* each for itself: states, and what is carried of streams */
    /* Each for itself, and twice: first all of them count, then, when the checkpoint's file is
     * begun, they encode.  So the file is written as it is encoded. */
    QSI_SNAPSHOT_CARRIES,
    QSI_SNAPSHOT_STEPS
};

/* Of a file, with its directory and a NUL. */
#define QSI_CONTAINER_PATH_BYTES (QS_NAME_BYTES_MAX + 17u)

struct qsi_snapshot_kind;
struct qsi_snapshot {
    const struct qsi_snapshot_kind *kind;
    struct qsi_container *container;
    struct qsi_buf jobs[QSI_SNAPSHOT_STEPS]; /* struct qsi_job *; NULL: it has ended */
    uint32_t file_count;                     /* that sync is to be called for */
};

struct qsi_snapshot_kind {
    qs_status (*sync)(struct qsi_snapshot *snapshot, uint32_t file, bool reaches_disk,
                      qs_error *error);
    qs_status (*leave_file)(struct qsi_snapshot *snapshot, uint32_t file); /* NULL: never */
    bool (*written_path)(const struct qsi_snapshot *snapshot,
                         char path_out[QSI_CONTAINER_PATH_BYTES]);
    qs_status (*encode)(const struct qsi_snapshot *snapshot, struct qsi_buf *out,
                        uint32_t *record_count_io);
    void (*end)(struct qsi_snapshot *snapshot, bool counts);
};

static inline uint32_t qsi_snapshot_job_count(const struct qsi_snapshot *snapshot,
                                              enum qsi_snapshot_step step)
{
    return (uint32_t)(snapshot->jobs[step].bytes / sizeof(struct qsi_job *));
}
static inline struct qsi_job **qsi_snapshot_job(struct qsi_snapshot *snapshot,
                                                enum qsi_snapshot_step step, uint32_t index)
{
    return &((struct qsi_job **)(void *)snapshot->jobs[step].data)[index];
}
/* For a kind, under the lock: room for one more job first, so that what was begun is noted. */
static inline QS_MUST_CHECK qs_status qsi_snapshot_reserve_job(struct qsi_snapshot *snapshot,
                                                               enum qsi_snapshot_step step)
{
    uint8_t *room;

    return qsi_buf_reserve(&snapshot->jobs[step], sizeof(struct qsi_job *), &room);
}
/* REQUIRES that room. */
static inline void qsi_snapshot_add_job(struct qsi_snapshot *snapshot, enum qsi_snapshot_step step,
                                        struct qsi_job *job)
{
    QS_ASSERT(qsi_buf_append(&snapshot->jobs[step], &job, sizeof job) == QS_OK);
}

/* Without the lock, after all jobs went well.  What the checkpoint names in file is durable, or,
 * where nobody syncs, the file is there.  QS_OK at once for one in which nothing is new.
 * QS_ECORRUPT: it is damaged or gone.  Any other failure is the end of the store. */
static inline QS_MUST_CHECK qs_status qsi_snapshot_sync(struct qsi_snapshot *snapshot,
                                                        uint32_t file, bool reaches_disk,
                                                        qs_error *error)
{
    return snapshot->kind->sync(snapshot, file, reaches_disk, error);
}
/* Under the lock, after sync returned QS_ECORRUPT.  QS_OK: memory has what was in the file, the
 * container goes on in another one, and a new checkpoint tells of that. */
static inline QS_MUST_CHECK qs_status qsi_snapshot_leave_file(struct qsi_snapshot *snapshot,
                                                              uint32_t file)
    QSI_REQUIRES(qsi_store_mutex)
{
    return snapshot->kind->leave_file != NULL ? snapshot->kind->leave_file(snapshot, file)
                                              : QS_ECORRUPT;
}
/* Without the lock, after the syncs.  The path of some file that was written for the checkpoint,
 * below the store's directory; false: there is none. */
static inline bool qsi_snapshot_written_path(const struct qsi_snapshot *snapshot,
                                             char path_out[QSI_CONTAINER_PATH_BYTES])
{
    return snapshot->kind->written_path(snapshot, path_out);
}
/* Without the lock, after the syncs.  Each record has the container's id in bytes 8 to 16.
 * QS_ENOMEM. */
static inline QS_MUST_CHECK qs_status qsi_snapshot_encode(const struct qsi_snapshot *snapshot,
                                                          struct qsi_buf *out,
                                                          uint32_t *record_count_io)
{
    return snapshot->kind->encode(snapshot, out, record_count_io);
}
/* Under the lock; frees it.  counts: the checkpoint is the store's from now on.  If not, what it
 * was to sync the next one is to.  REQUIRES that its jobs have ended. */
static inline void qsi_snapshot_end(struct qsi_snapshot *snapshot, bool counts)
    QSI_REQUIRES(qsi_store_mutex)
{
    snapshot->kind->end(snapshot, counts);
}

#endif
