/* Inside the message store: the table of message files and their handles. */
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
 * size.  The handle of an unsettled file stays open; the file is current, next, full, or made for
 * one large record.  Every other file is settled: its handle is opened for reading when needed, and
 * closed when other files need a handle.
 *
 * A file without references now and in future is dead: it stays, readable, until a checkpoint that
 * does not name it is durable.  Sealed files were dead when the running checkpoint was taken.
 *
 * All members but id are under the message store's mutex; a thread with a reference may read handle
 * and header without it. */
struct qsi_message_file {
    struct qsi_message_id id;
    /* One for each read and each place, one while dirty, one while in a set. */
    uint32_t refs GUARDED;
    uint32_t place_count GUARDED;
    uint32_t next_slot GUARDED; /* in files of earlier sessions: after the last known slot */
    /* Offset at which a next record would begin: the rounded end of the last one; 0: not known. */
    uint64_t end GUARDED;
    uint64_t bytes GUARDED;           /* the file's size; known while handle is open */
    struct qsi_message_header header; /* known while handle is open */
    qs_file *handle;                  /* NULL: not open */
    struct qsi_message_counts counts GUARDED;
    uint64_t doomed_bytes GUARDED;  /* its part of messages->doomed_bytes */
    struct qsi_buf encoded GUARDED; /* its record for checkpoints, while is_encoded */
    uint64_t named_salt GUARDED;    /* salt that the checkpoint named, while is_named */
    uint32_t pack_marks GUARDED;    /* number of marked packs, and how many of these are synced */
    uint32_t pack_syncs GUARDED;
    bool is_encoded GUARDED;
    bool is_present GUARDED; /* it has a name in the directory */
    bool is_named GUARDED;   /* the checkpoint with which recovery began names it */
    bool is_final GUARDED;   /* synced, and truncated to its final size */
    bool is_kept GUARDED;    /* salvage: stays even without references */
    bool is_sealed GUARDED;  /* removed when the running checkpoint is durable */
    bool is_going GUARDED;   /* its name is being removed */
    /* Replaced by the next generation: in messages->replaced, not in the table. */
    bool is_replaced GUARDED;
    bool is_compacting GUARDED; /* a job reads it */
    bool is_hopeless GUARDED;   /* compaction failed, and is not tried again */
    bool is_dirty GUARDED;      /* in messages->dirty */
    bool is_taken GUARDED;      /* in the set that was taken */
    bool is_too_long GUARDED;   /* there are bytes after its last record */
    /* In the list of open, settled files without references. */
    struct qsi_list in_idle GUARDED;
    struct qsi_list in_unsettled GUARDED; /* empty: settled */
    struct qsi_list in_replaced GUARDED;
    struct qsi_message_file *next_going; /* in the list of the thread that took the sealed files */
    struct qsi_message_file *next_dirty GUARDED;
    struct qsi_message_file *next_taken; /* in the set, of the thread that took it */
    struct qsi_mutex write_mutex;        /* an env lets only one thread at a time write a file */
};

#define QSI_MESSAGE_FILE_BYTES_MIN 65536u

struct qsi_message_store {
    qs_env *env;
    qs_dir *dir;
    uint8_t uuid[QSI_UUID_BYTES];
    struct qsi_message_store_options options;
    struct qsi_mutex mutex;
    struct qsi_cond created;  /* is_creating became false */
    bool is_creating GUARDED; /* a thread is making a file, without the mutex */
    bool is_failed GUARDED;   /* a sync failed */
    bool set_is_out GUARDED;
    bool keeps_files GUARDED;    /* salvage: no existing file is removed or truncated */
    uint32_t open_count GUARDED; /* handles of settled files */
    /* Of the next file; above UINT32_MAX: there are no more numbers. */
    uint64_t next_number GUARDED;
    struct qsi_map files GUARDED;  /* number -> qsi_message_file */
    struct qsi_map strays GUARDED; /* qsi_message_id of names that belong to no file; until trim */
    struct qsi_list replaced GUARDED;         /* earlier generations that a checkpoint may name */
    struct qsi_list idle GUARDED;             /* least recently used first */
    struct qsi_list unsettled GUARDED;        /* by number */
    struct qsi_message_file *current GUARDED; /* takes the next record; NULL: not created yet */
    struct qsi_message_file *next GUARDED;    /* created ahead; NULL: not created yet */
    struct qsi_message_file *dirty GUARDED;
    uint64_t bytes_written GUARDED;
    /* The sum of the files' doomed_bytes; atomic: changed under the mutex, read without it. */
    uint64_t doomed_bytes;
    /* size of the next file: less than the option says while space is short */
    uint64_t file_bytes GUARDED;
    uint64_t leave_free; /* atomic: bytes of the disk that stay free when a file is created */
};

#undef GUARDED

static inline void qsi_message_store_lock(struct qsi_message_store *messages)
    QSI_ACQUIRES(qsi_message_store_mutex) QSI_UNCHECKED
{
    qsi_mutex_lock(&messages->mutex);
}

static inline void qsi_message_store_unlock(struct qsi_message_store *messages)
    QSI_RELEASES(qsi_message_store_mutex) QSI_UNCHECKED
{
    qsi_mutex_unlock(&messages->mutex);
}

/* Declares that the mutexes are not needed: no other thread knows the message store, which is being
 * opened, recovered or closed, or the file, which is not in the table. */
static inline void qsi_message_store_is_private(const struct qsi_message_store *messages)
    QSI_ASSUMES(qsi_message_store_mutex, qsi_store_mutex)
{
    (void)messages;
}

static inline void qsi_message_file_is_private(const struct qsi_message_file *file)
    QSI_ASSUMES(qsi_message_store_mutex)
{
    (void)file;
}

/* The data of a file that a reader needs, taken together under the mutex. */
struct qsi_message_view {
    struct qsi_message_file *file;
    qs_file *handle;
    uint64_t bytes;
    struct qsi_message_header header;
};

/* Opens an existing file and checks its header; fills in view_out except file.  flags:
 * QS_OPEN_LINKED where the file is only read, because copies of the store have hard links to full
 * files; a file that is written must have no other name. */
qs_status qsi_message_file_open(struct qsi_message_store *messages, struct qsi_message_id id,
                                uint32_t flags, struct qsi_message_view *view_out,
                                qs_error *error) QS_MUST_CHECK;
/* Creates a file of this size, durable with its name, and not in the table.  On failure its name is
 * removed again, if possible. */
qs_status qsi_message_file_create(struct qsi_message_store *messages, uint32_t number,
                                  uint64_t bytes, struct qsi_message_file **file_out,
                                  qs_error *error) QS_MUST_CHECK;
/* Adds a new, unsettled file of this size to the table.  Releases the lock meanwhile.  REQUIRES
 * that no other thread does so: then numbers enter messages->unsettled in order. */
qs_status qsi_message_file_make(struct qsi_message_store *messages, uint64_t bytes,
                                struct qsi_message_file **file_out, qs_error *error)
    QSI_REQUIRES(qsi_message_store_mutex) QS_MUST_CHECK;
/* Reduces the size of the next file, after there was no space for a file of that many bytes.
 * False: it cannot be smaller. */
bool qsi_message_file_shrink(struct qsi_message_store *messages, uint64_t bytes, uint64_t least)
    QSI_REQUIRES(qsi_message_store_mutex);
/* Allocates an entry for an existing file, settled.  NULL: out of memory. */
struct qsi_message_file *qsi_message_file_describe(struct qsi_message_id id);
/* Closes and frees a file that is not in the table any more.  NULL is fine. */
void qsi_message_file_destroy(struct qsi_message_store *messages, struct qsi_message_file *file);
/* Removes the name of a file without references, and destroys it. */
void qsi_message_file_discard(struct qsi_message_store *messages, struct qsi_message_file *file);

/* REQUIRES the mutex for these. */
qs_status qsi_message_table_add(struct qsi_message_store *messages, struct qsi_message_file *file)
    QSI_REQUIRES(qsi_message_store_mutex) QS_MUST_CHECK;
void qsi_message_table_remove(struct qsi_message_store *messages, struct qsi_message_file *file)
    QSI_REQUIRES(qsi_message_store_mutex);
struct qsi_message_file *qsi_message_table_find(struct qsi_message_store *messages,
                                                uint32_t number);
/* Drops a reference.  Returns a handle that the caller must close after releasing the mutex, or
 * NULL. */
qs_file *qsi_message_file_unref(struct qsi_message_store *messages, struct qsi_message_file *file)
    QSI_REQUIRES(qsi_message_store_mutex);

/* Takes a reference to a file for reading, with its handle open.  QS_ECORRUPT: there is no such
 * file, or its header is damaged. */
qs_status qsi_message_file_acquire(struct qsi_message_store *messages, uint32_t number,
                                   struct qsi_message_view *view_out,
                                   qs_error *error) QS_MUST_CHECK;
/* The same for generations that compaction replaced and that still exist, in the order of their
 * replacement, index from 0.  QS_EEMPTY: there are no more. */
qs_status qsi_message_file_acquire_replaced(struct qsi_message_store *messages, uint32_t number,
                                            uint32_t index, struct qsi_message_view *view_out,
                                            qs_error *error) QS_MUST_CHECK;
void qsi_message_file_release(struct qsi_message_store *messages, struct qsi_message_file *file);

/* Assigns a place of place->bytes and place->slot_count: its file, offset and first slot. */
qs_status qsi_message_place_take(struct qsi_message_store *messages, struct qsi_place *place,
                                 qs_error *error) QS_MUST_CHECK;
/* Calls fdatasync once: a failure is recorded, and final. */
qs_status qsi_message_file_sync(struct qsi_message_store *messages, struct qsi_message_id id,
                                qs_file *handle, qs_error *error) QS_MUST_CHECK;
/* Truncates a file, durably. */
qs_status qsi_message_file_truncate(struct qsi_message_store *messages, struct qsi_message_id id,
                                    qs_file *handle, uint64_t bytes, qs_error *error) QS_MUST_CHECK;
/* Removes the name of a file, if it is there. */
qs_status qsi_message_file_remove_name(struct qsi_message_store *messages, struct qsi_message_id id,
                                       qs_error *error) QS_MUST_CHECK;
/* Adds a name that belongs to no file of the table.  QS_ENOMEM. */
qs_status qsi_message_strays_add(struct qsi_message_store *messages,
                                 struct qsi_message_id id) QS_MUST_CHECK;
/* Removes a stray from the set; false: it was none. */
bool qsi_message_strays_take(struct qsi_message_store *messages, struct qsi_message_id id);
/* Removes the strays from the directory and forgets them. */
qs_status qsi_message_strays_remove(struct qsi_message_store *messages, bool *removed_out,
                                    qs_error *error) QS_MUST_CHECK;
/* Puts "messages/0000000001.msg: " in front of the text; a full disk becomes QS_ESTORE_FULL. */
qs_status qsi_message_file_fail(qs_error *error, qs_status status, struct qsi_message_id id);
/* A job that writes could not read the file: qsi_fail_unread. */
qs_status qsi_message_file_fail_unread(qs_error *error, qs_status status, struct qsi_message_id id);
/* QS_ECORRUPT: there is no such file. */
qs_status qsi_message_file_fail_missing(qs_error *error, struct qsi_message_id id);
/* Whether the file has no references, and cannot get any. */
bool qsi_message_file_is_dead(const struct qsi_message_store *messages,
                              const struct qsi_message_file *file)
    QSI_REQUIRES(qsi_message_store_mutex);
static inline bool qsi_message_file_is_settled(const struct qsi_message_file *file)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    return qsi_list_is_empty(&file->in_unsettled);
}
static inline uint64_t qsi_message_file_size(const struct qsi_message_file *file)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    return qsi_message_file_is_settled(file) ? file->end : file->bytes;
}
/* Bytes that are free when a checkpoint does not name the file any more; 0: it is needed. */
static inline uint64_t qsi_message_file_doomed_bytes(const struct qsi_message_store *messages,
                                                     const struct qsi_message_file *file)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    return file->is_replaced || qsi_message_file_is_dead(messages, file)
               ? qsi_message_file_size(file)
               : 0;
}
/* Corrects the sum messages->doomed_bytes.  Called after each change that can make a file dead or
 * alive, or changes the size of a dead one; in recovery once for each file, when all references are
 * counted. */
void qsi_message_file_count_doomed(struct qsi_message_store *messages,
                                   struct qsi_message_file *file)
    QSI_REQUIRES(qsi_message_store_mutex);

#endif
