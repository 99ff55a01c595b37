/* A store is a directory that one process owns.  All other headers build on this one.
 *
 * Rules for every function of store.h, channel.h, batch.h, events.h, stream.h and admin.h:
 *   - Handles are not NULL unless said otherwise; *_close takes NULL.
 *   - Names and bodies are slices: bytes without a terminator, read during the call and not kept.
 *   - qs_error *error may be NULL; it is written only on failure.
 *   - An AMQP error (QS_ACCESS_REFUSED ... QS_NOT_IMPLEMENTED) closes the channel on which it
 *     happened, as a broker would: later calls on that channel answer QS_ECHANNEL_CLOSED.  An error
 *     of 500 or more closes all channels of the connection.
 *   - Any thread may use a store.  A channel serves one thread at a time.
 *   - After fork() every call in the child answers QS_EFORKED.  Only the close functions may be
 *     called there; they free memory and nothing else.
 *
 * The comment of a function has these lines where they apply:
 *   Returns:  the statuses of this function.  Common ones are not repeated: every function may
 *             answer QS_ENOMEM, QS_EFORKED and QS_ESTORE_CLOSED, one on a channel or a connection
 *             QS_ECHANNEL_CLOSED, one that changes something QS_ESTORE_FAILED and
 *             QS_ESTORE_READ_ONLY, and one that takes a name, a table of arguments or a limit
 *             QS_EINVAL.
 *   Blocks:   what the call may wait for besides the store's lock, which every call may wait for.
 *             Before a call on a channel or a connection returns, it removes messages that must
 *             leave their queues (expired, beyond a limit, rejected).  For that it may read the
 *             bodies of up to 256 dead letters and wait for room in the journal and in memory,
 *             unless it has QS_NO_WAIT.
 *   Durable:  when the effect survives a power cut.
 *   Owns:     what the caller must release, and how. */
#ifndef QSTORE_STORE_H
#define QSTORE_STORE_H

#include "qstore/env.h"
#include "qstore/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct qs_store qs_store;

typedef struct qs_slice {
    const void *data; /* may be NULL when bytes is 0 */
    size_t bytes;
} qs_slice;

#define QS_FOREVER UINT64_MAX /* a timeout_ns */

enum { QS_SYNC_FDATASYNC = 0, QS_SYNC_NONE = 1 };
enum { QS_RECOVERY_STRICT = 0, QS_RECOVERY_SALVAGE = 1 };
enum { QS_NOTE_DEBUG = 10, QS_NOTE_INFO = 20, QS_NOTE_WARNING = 30, QS_NOTE_ERROR = 40 };

typedef struct qs_options {
    /* Memory for messages and the records about them, in bytes; 256 MiB. */
    uint64_t memory_budget;
    /* A message whose properties and body have fewer bytes together stays in the journal; 0: none
     * does; 4096. */
    uint64_t embed_below;
    /* Size of a journal file: a power of two, 64 KiB at least; 64 MiB. */
    uint64_t journal_file_bytes;
    /* Size of a message file: a power of two, 64 KiB to 16 GiB; 64 MiB. */
    uint64_t message_file_bytes;
    /* The largest body accepted; 128 MiB. */
    uint64_t body_bytes_max;
    /* Messages of a segment: a power of two, fixed at creation; 0: as the store was created, 16384
     * for a new one. */
    uint32_t segment_entries;
    /* A checkpoint is made after this many bytes of journal, or after 32 MiB if nothing came for a
     * second; 0: only when asked for; 256 MiB. */
    uint64_t checkpoint_bytes;
    /* A checkpoint is made after this time at the latest; 0: by size alone; 60 s.  The time is
     * sixteen times as long if many small queues make the checkpoint long and little was journalled
     * since the last one. */
    uint32_t checkpoint_interval_ms;
    /* A commit waits this long for more messages; 0. */
    uint32_t commit_delay_us;
    /* QS_SYNC_*.  With QS_SYNC_NONE nothing is synced, and nothing is durable. */
    uint32_t sync;
    /* QS_RECOVERY_*.  QS_RECOVERY_SALVAGE passes over damage, and counts what is lost. */
    uint32_t recovery;
    /* Create the store if there is none; true. */
    bool create;
    /* Nothing is written.  The store has no channels, but can be listed and browsed; false. */
    bool read_only;
    /* The store has threads; true.  Without them the callers that wait make the commits, for
     * deterministic tests. */
    bool background;
    /* Called now and then while the journal is replayed, with the bytes read and the bytes of all
     * files.  NULL: no reports. */
    void (*progress)(void *context, uint64_t bytes_done, uint64_t bytes_total);
    void *progress_context;
    /* Called for events that no call reports, with a level QS_NOTE_*: a commit has waited 30 s for
     * the disk (the call comes while it still waits), the clock was set, the disk became full or
     * has space again, checkpoints began to fail or succeed again, a checkpoint was made, the store
     * failed.  The calling thread belongs to the store and holds no lock, and no other thread waits
     * for it.  Calls come until qs_store_close has returned, and only with background.  NULL: no
     * reports. */
    void (*note)(void *context, uint32_t level, const char *text);
    void *note_context;
} qs_options;

/* qs_options_default - fill in the default of each option, named last in the comments above. */
QS_API void qs_options_default(qs_options *options_out);

#define QS_PATH_MEMORY ":memory:"
/* qs_store_open - open or create the store in the directory path and recover it.
 *
 * In:      path     QS_PATH_MEMORY without an env: a new store in memory, which makes no files and
 *                   is gone when it is closed
 *          options  NULL: the defaults
 *          env      NULL: qs_env_posix()
 * Returns: QS_ESTORE_NOT_FOUND (there is no store and options->create is false, the parent
 *          directory is missing, or path contains something else), QS_ESTORE_LOCKED (error->pid),
 *          QS_ECORRUPT (error->path, error->offset), QS_EVERSION, QS_EIO, QS_ENOSPC, QS_EMFILE,
 *          QS_EINVAL
 * Blocks:  for the recovery, in proportion to the journal since the last checkpoint
 * Durable: a new store, when the call returns
 * Owns:    *store_out: qs_store_close */
QS_API QS_MUST_CHECK qs_status qs_store_open(qs_store **store_out, const char *path,
                                             const qs_options *options, qs_env *env,
                                             qs_error *error);

/* qs_store_close - requeue what channels hold, make everything durable, release the lock, free.
 *
 * This closes the channels; their memory stays until qs_channel_close.  No other thread may be in a
 * call, except one that waits on a channel: that call answers QS_ESTORE_CLOSED.  The handle is
 * freed whatever is returned.
 * Returns: QS_ESTORE_FAILED (published messages could not be made durable), QS_ESTORE_FULL or
 *          QS_ENOSPC (everything is durable, but there was no space to record the end of the
 *          journal: the next open recovers, as after a crash)
 * Blocks:  for commits and for the store's threads
 * Durable: everything, when it returns QS_OK */
QS_API qs_status qs_store_close(qs_store *store, qs_error *error);

/* qs_store_sync - return when everything published so far, by any channel, is durable.
 *
 * Returns: QS_OK, or the common statuses
 * Blocks:  for a commit
 * Durable: when it returns QS_OK */
QS_API QS_MUST_CHECK qs_status qs_store_sync(qs_store *store, qs_error *error);

/* qs_store_failure - why the store failed, if it did.
 *
 * Returns: QS_OK (it did not fail), QS_ESTORE_FAILED with the cause, or the common statuses */
QS_API QS_MUST_CHECK qs_status qs_store_failure(qs_store *store, qs_error *error);

/* qs_store_checkpoint - write the state of the store to files of its own.  The journal before the
 * checkpoint is not needed any more, and its files are used again.  Publishers and consumers go on
 * meanwhile.
 *
 * Returns: QS_ESTORE_FULL: there is no space; the journal still has everything
 * Blocks:  to flush and sync the messages published since the last checkpoint
 * Durable: when it returns QS_OK */
QS_API QS_MUST_CHECK qs_status qs_store_checkpoint(qs_store *store, qs_error *error);

/* The parts of a copy of a store. */
typedef struct qs_copied {
    uint64_t files;  /* all of them */
    uint64_t linked; /* of these, immutable files of the store, which got one more name */
    uint64_t bytes;  /* bytes copied, without holes */
} qs_copied;

/* qs_store_copy asks this function now and then, without the store's lock; false ends the copy with
 * QS_EINTR.  Commits wait for the answer, so the function must not wait for anything, nor call into
 * a store. */
typedef bool (*qs_copy_goes_on)(void *context);

/* qs_store_copy - make another store at path, in a state that a crash of this one could leave.
 *
 * The copy has everything that was durable at the call.  The store makes a checkpoint; then commits
 * wait while the journal is copied, and other checkpoints wait while the remaining files are
 * copied.  Immutable block files of streams are linked if path can have links to them.  On failure
 * the files made so far stay at path; without MANIFEST, which is written last, they are no store.
 *
 * In:      path     a new directory or an empty one, of the store's environment
 *          goes_on  may be NULL
 * Returns: QS_EEXIST (path is not empty), QS_ENOENT (the parent directory is missing), QS_EINTR,
 *          QS_ENOSPC and QS_EIO of files of the copy; those of qs_store_checkpoint
 * Blocks:  for its turn to make a checkpoint, in the order of asking, and for the disk
 * Durable: when it returns QS_OK */
QS_API QS_MUST_CHECK qs_status qs_store_copy(qs_store *store, const char *path,
                                             qs_copy_goes_on goes_on, void *context,
                                             qs_copied *copied_out, qs_error *error);

/* The state of the journal, for a reader of its files while the store is at work. */
typedef struct qs_kept {
    uint64_t lsn;         /* the journal is kept from here on */
    uint64_t durable_lsn; /* the journal is durable up to here */
    uint64_t file_salt;   /* of the journal file in which lsn lies */
    uint64_t file_lsn;    /* the first LSN of that file */
    uint32_t file;        /* the number of that file */
    bool is_lost;         /* nothing is kept any more */
} qs_kept;

/* qs_store_keep - keep the journal from now on, and the bodies that it names.
 *
 * Checkpoints then free no journal file and no message file that the journal from kept_out->lsn on
 * needs.  Every published message goes into the journal or into message files: large batches for
 * streams are not written directly into the streams' files, and staged files are published, not
 * adopted.  Keeping ends, and is_lost is set, when a checkpoint finds that more than bytes_max
 * would be kept, or that the disk is full.
 *
 * Returns: QS_EEXIST (the journal is kept already)
 * Blocks:  for running writes into files of streams, and for a commit
 * Durable: everything published before, when it returns QS_OK */
QS_API QS_MUST_CHECK qs_status qs_store_keep(qs_store *store, uint64_t bytes_max, qs_kept *kept_out,
                                             qs_error *error);

/* qs_store_keep_from - tell the store that the journal before lsn has been read.
 *
 * In:      lsn  durable, and not less than in the last call
 * Returns: QS_EINVAL; kept_out is filled in even if nothing is kept any more */
QS_API QS_MUST_CHECK qs_status qs_store_keep_from(qs_store *store, uint64_t lsn, qs_kept *kept_out,
                                                  qs_error *error);

/* qs_store_keep_end - end keeping the journal. */
QS_API void qs_store_keep_end(qs_store *store);

/* qs_store_read_body - read a record of a message file that the journal names.
 *
 * In:      reference  28 bytes, from a record of the journal
 *          data       data_bytes: 32 and the bytes of envelope and body
 * Returns: QS_ECORRUPT (the record is damaged, or gone), QS_EINVAL (data_bytes)
 * Blocks:  for the disk */
QS_API QS_MUST_CHECK qs_status qs_store_read_body(qs_store *store, const void *reference,
                                                  void *data, size_t data_bytes, qs_error *error);

/* qs_store_wait_durable - return when the journal is durable up to lsn, a position from a receipt.
 *
 * Returns: QS_ETIMEDOUT
 * Blocks:  for a commit, which the caller leads itself when no other thread does
 * Durable: everything before lsn, when it returns QS_OK */
QS_API QS_MUST_CHECK qs_status qs_store_wait_durable(qs_store *store, uint64_t lsn,
                                                     uint64_t timeout_ns, qs_error *error);

/* qs_store_durable_lsn - the journal position up to which everything is durable; 0 for a store that
 * is closed or was opened for reading only. */
QS_API uint64_t qs_store_durable_lsn(qs_store *store);

/* qs_store_topology - a number that differs after each change of queues, exchanges and bindings; 0
 * for a closed store. */
QS_API uint64_t qs_store_topology(qs_store *store);

/* qs_store_set_place - set the text that follows names of queues and exchanges in error texts,
 * where RabbitMQ names the virtual host: " in vhost '/'".  The default is " in this store".
 *
 * In:      place  copied; 271 bytes at most
 * Returns: QS_EINVAL (place is longer) */
QS_API QS_MUST_CHECK qs_status qs_store_set_place(qs_store *store, const char *place,
                                                  qs_error *error);

/* qs_store_options - the options in force, with the segment_entries of the store's creation. */
QS_API void qs_store_options(qs_store *store, qs_options *options_out);

#endif
