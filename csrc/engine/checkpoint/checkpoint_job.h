/* What the files of making a checkpoint share: checkpoint.c makes the steps,
 * checkpoint_snapshot.c says what the store is, checkpoint_write.c writes it. */
#ifndef QSI_CHECKPOINT_JOB_H
#define QSI_CHECKPOINT_JOB_H

#include "checkpoint_format.h"
#include "error.h"
#include "paging.h"
#include "store.h"
#include "thread_safety.h"

struct carried_queue { /* and its entries */
    struct qsi_queue_state state;
    uint32_t first_entry;
};

struct flush_job {
    struct qsi_flush flush;
    struct store_queue *queue;
    uint32_t entry;
    bool begun;
};

struct state_job {
    struct qsi_state_write write;
    struct store_queue *queue;
    uint32_t entry;
    bool begun;
};

/* What a segment's file is to be synced for. */
struct entry_sync {
    bool is_wanted;
    bool has_content; /* messages that are in no synced file, and not a state alone */
};

struct former_entry {
    struct qsi_segment_file file;
    uint32_t end;
    bool is_dirty;
};

struct checkpoint {
    struct qs_store *store;
    uint64_t number;
    uint64_t lsn;
    struct qsi_buf records; /* topology, keys, counts, then what is carried */
    uint32_t record_count;
    struct qsi_buf queues;  /* struct carried_queue */
    struct qsi_buf entries; /* struct qsi_segment_entry */
    struct qsi_buf syncs;   /* struct entry_sync by entry */
    struct qsi_buf formers; /* struct former_entry */
    struct qsi_buf flushes; /* struct flush_job */
    struct qsi_buf carried; /* struct flush_job, encoded instead */
    struct qsi_buf states;  /* struct state_job */
    uint64_t carried_bytes;
    uint64_t unjournalled; /* settles in memory alone that it tells of */
    uint32_t epoch;        /* of the readers before the snapshot */
    bool sealed;
    bool left_file; /* a segment goes on in another file since: to be tried again at once */
};

#define ITEMS(buf, type) ((type *)(void *)(buf).data)
#define COUNT(buf, type) ((uint32_t)((buf).bytes / sizeof(type)))

/* ---- checkpoint_snapshot.c ---- */

/* How many bytes of messages a checkpoint may carry itself. */
uint64_t qsi_checkpoint_carried_max(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Does not release the lock: this is the moment that the checkpoint tells of. */
qs_status qsi_take_snapshot(struct checkpoint *checkpoint, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Sealed: the checkpoint that is made does not name these files any more. */
void qsi_seal_dead_files(struct qs_store *store, bool sealed) QSI_REQUIRES(qsi_store_mutex);

/* ---- checkpoint_write.c ---- */

/* Releases the lock.  Everything but naming the checkpoint: when it returns, all is synced. */
qs_status qsi_write_snapshot(struct checkpoint *checkpoint, uint64_t *bytes_out, uint32_t *crc_out,
                             qs_error *error) QSI_REQUIRES(qsi_store_mutex)
    QSI_RELEASES(qsi_store_mutex) QS_MUST_CHECK;
/* Without the lock.  Ends the jobs that were begun and not done. */
void qsi_checkpoint_end_jobs(struct checkpoint *checkpoint);
/* MANIFEST names the checkpoint.  start_out: where the journal begins from now on. */
qs_status qsi_name_checkpoint(struct checkpoint *checkpoint, uint64_t bytes, uint32_t crc,
                              struct qsi_session *start_out, qs_error *error) QS_MUST_CHECK;
/* Releases the lock meanwhile.  What only the last one needed goes. */
qs_status qsi_checkpoint_clean_up(struct checkpoint *checkpoint, const struct qsi_session *start,
                                  uint64_t last_number, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* ---- checkpoint_sync.c ---- */

/* Without the lock.  A failed sync may have lost anything: the store has failed; after a
 * shortage, or where a file was not there to be synced, it has not.  Returns status. */
qs_status qsi_checkpoint_sync_failed(struct qs_store *store, qs_status status,
                                     const qs_error *error) QS_MUST_CHECK;
/* Without the lock.  QS_ECORRUPT: a file is damaged or gone, and only the journal has its
 * messages. */
qs_status qsi_checkpoint_sync_files(struct checkpoint *checkpoint, qs_error *error) QS_MUST_CHECK;
/* Will the next open find the checkpoint's file? */
qs_status qsi_checkpoint_check_file(struct qs_store *store, const char *name,
                                    qs_error *error) QS_MUST_CHECK;
/* The checkpoint came to nothing: what it was to sync the next one is to. */
void qsi_checkpoint_want_syncs(struct checkpoint *checkpoint) QSI_REQUIRES(qsi_store_mutex);
/* It counts. */
void qsi_checkpoint_note_synced(struct checkpoint *checkpoint) QSI_REQUIRES(qsi_store_mutex);
/* How a checkpoint ended: with QS_ECORRUPT the journal grows until another one goes well. */
qs_status qsi_checkpoint_fail_held(const struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
void qsi_checkpoint_note_held(struct qs_store *store, qs_status status, const qs_error *error)
    QSI_REQUIRES(qsi_store_mutex);

static inline qs_status qsi_checkpoint_no_memory(qs_error *error)
{
    return qsi_fail(error, QS_ENOMEM, "checkpoint");
}

#endif
