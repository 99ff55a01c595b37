/* Long operations on a container's files: jobs, and the snapshot of a checkpoint.
 *
 * A job has three steps:
 *
 *   begin   under the engine's lock: records the work, and keeps what it needs
 *   run     without it: input and output
 *   end     under it: uses the result, as far as it is still valid, and frees the job
 *
 * A snapshot is made under the lock, too, and describes the container at that moment.  Then:
 *
 *   jobs    in order, each run and ended: they write what the checkpoint needs on the disk
 *   sync    without the lock, file by file
 *   encode  without it: the records that the checkpoint has of the container
 *   end     under it: the checkpoint is valid, or was given up
 *
 * The container exists until all of this has ended.  A kind begins its own structures with struct
 * qsi_job and struct qsi_snapshot. */
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
    uint64_t message_count; /* messages that it wrote; set by a successful run */
    bool made_file;         /* it created a file; set by a successful run */
};

struct qsi_job_kind {
    void (*refresh)(struct qsi_job *job); /* NULL: does nothing */
    qs_status (*run)(struct qsi_job *job, qs_error *error);
    qs_status (*leave_file)(struct qsi_job *job); /* NULL: files are never left */
    void (*end)(struct qsi_job *job, bool done);
};

/* Call it under the lock before run, if another job of the container ended since begin. */
static inline void qsi_job_refresh(struct qsi_job *job) QSI_REQUIRES(qsi_store_mutex)
{
    if (job->kind->refresh != NULL) {
        job->kind->refresh(job);
    }
}
/* Does the input and output, without the lock.  QS_ECORRUPT: the file to write to is damaged or
 * missing. */
static inline QS_MUST_CHECK qs_status qsi_job_run(struct qsi_job *job, qs_error *error)
{
    return job->kind->run(job, error);
}
/* Call it under the lock after run returned QS_ECORRUPT.  QS_OK: the container continues in another
 * file, and run may be tried again. */
static inline QS_MUST_CHECK qs_status qsi_job_leave_file(struct qsi_job *job)
    QSI_REQUIRES(qsi_store_mutex)
{
    return job->kind->leave_file != NULL ? job->kind->leave_file(job) : QS_ECORRUPT;
}
/* Ends the job under the lock, and frees it.  done: run succeeded.  It may end the part of the
 * container that the job was about, such as a segment. */
static inline void qsi_job_end(struct qsi_job *job, bool done) QSI_REQUIRES(qsi_store_mutex)
{
    job->kind->end(job, done);
}

/* ---- snapshots ---- */

struct qsi_record_build;

/* Messages in the checkpoint's own file, which no other file has yet, of all containers. */
struct qsi_carried {
    uint64_t bytes, bytes_max; /* of messages */
    /* Of containers with at most small_max bytes, which are too small for files of their own. */
    uint64_t small_bytes, small_bytes_max, small_max;
    struct qsi_record_build *build; /* created by the first user; the checkpoint frees it */
    struct qsi_buf records;
    uint32_t record_count;
    bool counts_only; /* the next jobs only count their records */
};

/* Takes room for carried bytes, if there is some.  Small amounts are always carried, as long as
 * memory has them all: files of their own would take more space, and a sync each. */
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

/* The steps of a snapshot's jobs.  All flushes, of all containers, succeed before the others are
 * run. */
enum qsi_snapshot_step {
    /* Each depends on the previous one: after a failure the next are not run. */
    QSI_SNAPSHOT_FLUSHES,
    QSI_SNAPSHOT_OTHERS, /* independent of each other: states, and carried messages of streams */
    /* Independent of each other, and run twice.  First all of them count; then the checkpoint's
     * file is begun, and they encode.  So the file is written while it is encoded. */
    QSI_SNAPSHOT_CARRIES,
    QSI_SNAPSHOT_STEPS
};

/* Bytes of a file's path: directory, name and a NUL. */
#define QSI_CONTAINER_PATH_BYTES (QS_NAME_BYTES_MAX + 17u)

struct qsi_snapshot_kind;
struct qsi_snapshot {
    const struct qsi_snapshot_kind *kind;
    struct qsi_container *container;
    struct qsi_buf jobs[QSI_SNAPSHOT_STEPS]; /* struct qsi_job *; NULL: it has ended */
    uint32_t file_count;                     /* sync must be called for each */
};

struct qsi_snapshot_kind {
    qs_status (*sync)(struct qsi_snapshot *snapshot, uint32_t file, bool reaches_disk,
                      qs_error *error);
    /* NULL: files are never left. */
    qs_status (*leave_file)(struct qsi_snapshot *snapshot, uint32_t file);
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
/* For a kind, under the lock: makes room for one more job, before the job is begun. */
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

/* Syncs a file, without the lock, after all jobs succeeded.  The part that the checkpoint names is
 * durable, or, if the store does not sync, the file exists.  QS_OK at once for a file without
 * changes.  QS_ECORRUPT: it is damaged or missing.  Any other failure fails the store. */
static inline QS_MUST_CHECK qs_status qsi_snapshot_sync(struct qsi_snapshot *snapshot,
                                                        uint32_t file, bool reaches_disk,
                                                        qs_error *error)
{
    return snapshot->kind->sync(snapshot, file, reaches_disk, error);
}
/* Call it under the lock after sync returned QS_ECORRUPT.  QS_OK: memory has the file's content,
 * the container continues in another file, and a new checkpoint will record that. */
static inline QS_MUST_CHECK qs_status qsi_snapshot_leave_file(struct qsi_snapshot *snapshot,
                                                              uint32_t file)
    QSI_REQUIRES(qsi_store_mutex)
{
    return snapshot->kind->leave_file != NULL ? snapshot->kind->leave_file(snapshot, file)
                                              : QS_ECORRUPT;
}
/* The path, in the store's directory, of some file that was written for the checkpoint; false:
 * there is none.  Call it without the lock, after the syncs. */
static inline bool qsi_snapshot_written_path(const struct qsi_snapshot *snapshot,
                                             char path_out[QSI_CONTAINER_PATH_BYTES])
{
    return snapshot->kind->written_path(snapshot, path_out);
}
/* Encodes the records, without the lock, after the syncs.  Each record has the container's id in
 * bytes 8 to 16.  QS_ENOMEM. */
static inline QS_MUST_CHECK qs_status qsi_snapshot_encode(const struct qsi_snapshot *snapshot,
                                                          struct qsi_buf *out,
                                                          uint32_t *record_count_io)
{
    return snapshot->kind->encode(snapshot, out, record_count_io);
}
/* Ends and frees the snapshot, under the lock.  counts: the checkpoint is valid; otherwise the next
 * one must sync the same parts.  REQUIRES that its jobs have ended. */
static inline void qsi_snapshot_end(struct qsi_snapshot *snapshot, bool counts)
    QSI_REQUIRES(qsi_store_mutex)
{
    snapshot->kind->end(snapshot, counts);
}

#endif
