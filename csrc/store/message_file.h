/* Inside the store floor: the table of message files and their handles. */
#ifndef QSI_MESSAGE_FILE_H
#define QSI_MESSAGE_FILE_H

#include "qstore/env.h"
#include "qstore/status.h"

#include "buf.h"
#include "file_head.h"
#include "list.h"
#include "lock.h"
#include "map.h"
#include "message_counts.h"
#include "message_store.h"
#include "thread_safety.h"

QSI_LOCK_CLASS(qsi_message_store_mutex); /* struct qsi_message_store.mutex */
#define GUARDED QSI_GUARDED_BY(qsi_message_store_mutex)

/* A file is unsettled from its creation by this session until it is synced and truncated to its
 * size: its handle stays open and it may be current, next, full, or made for one large record.
 * Every other file is settled: its handle is opened for reading when needed and closed when
 * others need theirs.
 *
 * Dead is a file that nobody refers to or will: it stays, readable, until a checkpoint that does
 * not name it is durable.  Sealed is what was dead when the checkpoint under way was taken.
 *
 * Everything but id is the store's mutex's; handle and header may be read without it by who
 * holds a reference. */
struct qsi_message_file {
    struct qsi_message_id id;
    uint32_t refs GUARDED; /* reads, places, and one for being dirty and one for being in a set */
    uint32_t place_count GUARDED;
    uint32_t next_slot GUARDED;       /* of files of earlier sessions: behind the last known one */
    uint64_t end GUARDED;             /* where the next record goes or would; 0: not known */
    uint64_t bytes GUARDED;           /* the file's size; known while handle is open */
    struct qsi_message_header header; /* likewise */
    qs_file *handle;                  /* NULL: not open */
    struct qsi_message_counts counts GUARDED;
    struct qsi_buf encoded GUARDED; /* its record in checkpoints, while is_encoded */
    uint64_t named_salt GUARDED;    /* while is_named */
    uint32_t pack_marks GUARDED;    /* packs marked so far, and how many of these are synced */
    uint32_t pack_syncs GUARDED;
    bool is_encoded GUARDED;
    bool is_present GUARDED;    /* has a name in the directory */
    bool is_named GUARDED;      /* by the checkpoint that recovery began with */
    bool is_final GUARDED;      /* synced, and truncated for good */
    bool is_kept GUARDED;       /* salvage: stays although nobody refers to it */
    bool is_sealed GUARDED;     /* goes when the checkpoint under way is durable */
    bool is_going GUARDED;      /* its name is being removed */
    bool is_replaced GUARDED;   /* by the next generation: in store->replaced, not in the table */
    bool is_compacting GUARDED; /* a job reads it */
    bool is_hopeless GUARDED;   /* compaction could make nothing of it */
    bool is_dirty GUARDED;      /* in store->dirty */
    bool is_taken GUARDED;      /* in the set that is out */
    bool is_too_long GUARDED;   /* there is something behind its last record */
    struct qsi_list in_idle GUARDED;      /* of open, settled files without references */
    struct qsi_list in_unsettled GUARDED; /* empty: settled */
    struct qsi_list in_replaced GUARDED;
    struct qsi_message_file *next_going; /* of who took the sealed files */
    struct qsi_message_file *next_dirty GUARDED;
    struct qsi_message_file *next_taken; /* of who has the set */
    struct qsi_mutex write_mutex;        /* an env lets one thread write a file at a time */
};

#define QSI_MESSAGE_FILE_BYTES_MIN 65536u

struct qsi_message_store {
    qs_env *env;
    qs_dir *dir;
    uint8_t uuid[QSI_UUID_BYTES];
    struct qsi_message_store_options options;
    struct qsi_mutex mutex;
    struct qsi_cond created;  /* is_creating went false */
    bool is_creating GUARDED; /* some thread is making a file, without the mutex */
    bool is_failed GUARDED;   /* a sync failed */
    bool set_is_out GUARDED;
    bool keeps_files GUARDED;      /* salvage: nothing that was there is removed or truncated */
    uint32_t open_count GUARDED;   /* handles of settled files */
    uint64_t next_number GUARDED;  /* of the next file; past UINT32_MAX: none left */
    struct qsi_map files GUARDED;  /* number -> qsi_message_file */
    struct qsi_map strays GUARDED; /* until trim: qsi_message_id of names that belong to no file */
    struct qsi_list replaced GUARDED;         /* earlier generations that a checkpoint may name */
    struct qsi_list idle GUARDED;             /* least recently used first */
    struct qsi_list unsettled GUARDED;        /* by number */
    struct qsi_message_file *current GUARDED; /* takes the next record; NULL: none has been made */
    struct qsi_message_file *next GUARDED;    /* made ahead; NULL: not yet */
    struct qsi_message_file *dirty GUARDED;
    uint64_t bytes_written GUARDED;
    /* of the next one: less than the options say while space is short */
    uint64_t file_bytes GUARDED;
    uint64_t leave_free; /* atomic: of the disk, when a file is made */
};

#undef GUARDED

static inline void qsi_message_store_lock(struct qsi_message_store *store)
    QSI_ACQUIRES(qsi_message_store_mutex) QSI_UNCHECKED
{
    qsi_mutex_lock(&store->mutex);
}

static inline void qsi_message_store_unlock(struct qsi_message_store *store)
    QSI_RELEASES(qsi_message_store_mutex) QSI_UNCHECKED
{
    qsi_mutex_unlock(&store->mutex);
}

/* No other thread knows of the store, which is being opened, recovered or closed; or of the file,
 * which is not in its table. */
static inline void qsi_message_store_is_private(const struct qsi_message_store *store)
    QSI_ASSUMES(qsi_message_store_mutex, qsi_store_mutex)
{
    (void)store;
}

static inline void qsi_message_file_is_private(const struct qsi_message_file *file)
    QSI_ASSUMES(qsi_message_store_mutex)
{
    (void)file;
}

/* What a reader needs of a file, taken together under the mutex. */
struct qsi_message_view {
    struct qsi_message_file *file;
    qs_file *handle;
    uint64_t bytes;
    struct qsi_message_header header;
};

/* Opens an existing file and checks its header; fills in all of view_out but file. */
qs_status qsi_message_file_open(struct qsi_message_store *store, struct qsi_message_id id,
                                uint32_t flags, struct qsi_message_view *view_out,
                                qs_error *error) QS_MUST_CHECK;
/* A new unsettled file of this size.  Releases the lock meanwhile, and that no
 * other thread is making one: so numbers enter store->unsettled in order. */
qs_status qsi_message_file_make(struct qsi_message_store *store, uint64_t bytes,
                                struct qsi_message_file **file_out, qs_error *error)
    QSI_REQUIRES(qsi_message_store_mutex) QS_MUST_CHECK;
/* After one of these bytes found no space: the next one is smaller.  False: it cannot be. */
bool qsi_message_file_shrink(struct qsi_message_store *store, uint64_t bytes, uint64_t least)
    QSI_REQUIRES(qsi_message_store_mutex);
/* An entry for a file that exists, settled.  NULL: out of memory. */
struct qsi_message_file *qsi_message_file_describe(struct qsi_message_id id);
/* Closes and frees; not in the table any more.  NULL is fine. */
void qsi_message_file_destroy(struct qsi_message_store *store, struct qsi_message_file *file);
/* Removes the name and destroys; for a file that nothing refers to. */
void qsi_message_file_discard(struct qsi_message_store *store, struct qsi_message_file *file);

/* REQUIRES the mutex for these. */
qs_status qsi_message_table_add(struct qsi_message_store *store, struct qsi_message_file *file)
    QSI_REQUIRES(qsi_message_store_mutex) QS_MUST_CHECK;
void qsi_message_table_remove(struct qsi_message_store *store, struct qsi_message_file *file)
    QSI_REQUIRES(qsi_message_store_mutex);
struct qsi_message_file *qsi_message_table_find(struct qsi_message_store *store, uint32_t number);
/* Drops a reference; the handle that has to be closed for it, outside the mutex, or NULL. */
qs_file *qsi_message_file_unref(struct qsi_message_store *store, struct qsi_message_file *file)
    QSI_REQUIRES(qsi_message_store_mutex);

/* A reference to a file for reading, its handle open.  QS_ECORRUPT when there is no such file or
 * its header is damaged. */
qs_status qsi_message_file_acquire(struct qsi_message_store *store, uint32_t number,
                                   struct qsi_message_view *view_out,
                                   qs_error *error) QS_MUST_CHECK;
/* The same of generations that compaction replaced and that are there still, in the order in which
 * that happened, index from 0.  QS_EEMPTY: there are no more. */
qs_status qsi_message_file_acquire_replaced(struct qsi_message_store *store, uint32_t number,
                                            uint32_t index, struct qsi_message_view *view_out,
                                            qs_error *error) QS_MUST_CHECK;
void qsi_message_file_release(struct qsi_message_store *store, struct qsi_message_file *file);

/* Gives a place of place->bytes and place->slot_count its file, offset and first slot. */
qs_status qsi_message_place_take(struct qsi_message_store *store, struct qsi_place *place,
                                 qs_error *error) QS_MUST_CHECK;
/* fdatasync, once: a failure is remembered and final. */
qs_status qsi_message_file_sync(struct qsi_message_store *store, struct qsi_message_id id,
                                qs_file *handle, qs_error *error) QS_MUST_CHECK;
/* Truncates a file, durably. */
qs_status qsi_message_file_truncate(struct qsi_message_store *store, struct qsi_message_id id,
                                    qs_file *handle, uint64_t bytes, qs_error *error) QS_MUST_CHECK;
/* Removes the name of a file, if it is there. */
qs_status qsi_message_file_remove_name(struct qsi_message_store *store, struct qsi_message_id id,
                                       qs_error *error) QS_MUST_CHECK;
/* A name that belongs to no file of the table.  QS_ENOMEM. */
qs_status qsi_message_strays_add(struct qsi_message_store *store,
                                 struct qsi_message_id id) QS_MUST_CHECK;
/* Whether this was one; it is not any more. */
bool qsi_message_strays_take(struct qsi_message_store *store, struct qsi_message_id id);
/* Removes the strays from the directory and forgets them. */
qs_status qsi_message_strays_remove(struct qsi_message_store *store, bool *removed_out,
                                    qs_error *error) QS_MUST_CHECK;
/* "messages/0000000001.msg: " in front; a full disk becomes QS_ESTORE_FULL. */
qs_status qsi_message_file_fail(qs_error *error, qs_status status, struct qsi_message_id id);
/* QS_ECORRUPT: there is no such file. */
/* A job that writes could not read what is there: qsi_fail_unread. */
qs_status qsi_message_file_fail_unread(qs_error *error, qs_status status, struct qsi_message_id id);
qs_status qsi_message_file_fail_missing(qs_error *error, struct qsi_message_id id);
/* Nobody refers to the file and nobody will. */
bool qsi_message_file_is_dead(const struct qsi_message_store *store,
                              const struct qsi_message_file *file)
    QSI_REQUIRES(qsi_message_store_mutex);
static inline bool qsi_message_file_is_settled(const struct qsi_message_file *file)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    return qsi_list_is_empty(&file->in_unsettled);
}

#endif
