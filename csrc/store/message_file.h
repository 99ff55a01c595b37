/* Inside the store floor: the table of message files and their handles. */
#ifndef QSI_MESSAGE_FILE_H
#define QSI_MESSAGE_FILE_H

#include "qstore/env.h"
#include "qstore/status.h"

#include "list.h"
#include "lock.h"
#include "map.h"
#include "message_store.h"

/* A file is unsettled from its creation by this session until it is synced and cut to size: its
 * handle stays open and it may be current, next, full, or made for one large record.  Every
 * other file is settled: its handle is opened for reading when needed and closed when others
 * need theirs.
 *
 * Everything but number is the store's mutex's; handle and salt may be read without it by who
 * holds a reference. */
struct qsi_message_file {
    uint32_t number;
    uint32_t refs; /* reads, places, and one for being dirty and one for being in a set */
    uint32_t place_count;
    uint32_t next_slot;
    uint64_t end;                 /* unsettled: where the next record goes */
    uint64_t bytes;               /* the file's size; known while handle is open */
    uint64_t salt;                /* likewise */
    qs_file *handle;              /* NULL: not open */
    bool is_dirty;                /* in store->dirty */
    bool is_taken;                /* in the set that is out */
    uint64_t retained_end;        /* since qsi_message_store_retain: 0 if nothing names the file */
    bool is_too_long;             /* there is something behind retained_end */
    struct qsi_list in_idle;      /* of open, settled files without references */
    struct qsi_list in_unsettled; /* empty: settled */
    struct qsi_message_file *next_dirty;
    struct qsi_message_file *next_taken;
    struct qsi_mutex write_mutex; /* an env lets one thread write a file at a time */
};

struct qsi_message_store {
    qs_env *env;
    qs_dir *dir;
    uint8_t uuid[QSI_UUID_BYTES];
    struct qsi_message_store_options options;
    struct qsi_mutex mutex;
    struct qsi_cond created; /* is_creating went false */
    bool is_creating;        /* some thread is making a file, without the mutex */
    bool is_failed;          /* a sync failed */
    bool set_is_out;
    uint32_t open_count;              /* handles of settled files */
    uint64_t next_number;             /* of the next file; past UINT32_MAX: none left */
    struct qsi_map files;             /* number -> qsi_message_file */
    struct qsi_list idle;             /* least recently used first */
    struct qsi_list unsettled;        /* by number */
    struct qsi_message_file *current; /* takes the next record; NULL: none has been made */
    struct qsi_message_file *next;    /* made ahead; NULL: not yet */
    struct qsi_message_file *dirty;
    uint64_t bytes_written;
};

/* What a reader needs of a file, taken together under the mutex. */
struct qsi_message_view {
    struct qsi_message_file *file;
    qs_file *handle;
    uint64_t bytes;
    uint64_t salt;
};

/* Opens an existing file and checks its header. */
qs_status qsi_message_file_open(struct qsi_message_store *store, uint32_t number, uint32_t flags,
                                qs_file **handle_out, uint64_t *bytes_out, uint64_t *salt_out,
                                qs_error *error) QS_MUST_CHECK;
/* A new unsettled file of this size.  REQUIRES the mutex, which is let go meanwhile, and that no
 * other thread is making one: so numbers enter store->unsettled in order. */
qs_status qsi_message_file_make(struct qsi_message_store *store, uint64_t bytes,
                                struct qsi_message_file **file_out, qs_error *error) QS_MUST_CHECK;
/* An entry for a file that exists, settled.  NULL: out of memory. */
struct qsi_message_file *qsi_message_file_describe(uint32_t number);
/* Closes and frees; not in the table any more.  NULL is fine. */
void qsi_message_file_destroy(struct qsi_message_store *store, struct qsi_message_file *file);
/* Removes the name and destroys; for a file that nothing refers to. */
void qsi_message_file_discard(struct qsi_message_store *store, struct qsi_message_file *file);

/* REQUIRES the mutex for these four. */
qs_status qsi_message_table_add(struct qsi_message_store *store,
                                struct qsi_message_file *file) QS_MUST_CHECK;
void qsi_message_table_remove(struct qsi_message_store *store, struct qsi_message_file *file);
struct qsi_message_file *qsi_message_table_find(struct qsi_message_store *store, uint32_t number);
/* Drops a reference; the handle that has to be closed for it, outside the mutex, or NULL. */
qs_file *qsi_message_file_unref(struct qsi_message_store *store, struct qsi_message_file *file);

/* A reference to a file for reading, its handle open.  QS_ECORRUPT when there is no such file or
 * its header is damaged. */
qs_status qsi_message_file_acquire(struct qsi_message_store *store, uint32_t number,
                                   struct qsi_message_view *view_out,
                                   qs_error *error) QS_MUST_CHECK;
void qsi_message_file_release(struct qsi_message_store *store, struct qsi_message_file *file);

/* fdatasync, once: a failure is remembered and final. */
qs_status qsi_message_file_sync(struct qsi_message_store *store, uint32_t number, qs_file *handle,
                                qs_error *error) QS_MUST_CHECK;
/* "message file '0000000001.msg': " in front; a full disk becomes QS_ESTORE_FULL. */
qs_status qsi_message_file_fail(qs_error *error, qs_status status, uint32_t number);

#endif
