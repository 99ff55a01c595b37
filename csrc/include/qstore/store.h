/* A store: one directory with one owner.  What every other header builds on.
 *
 * Rules for every function of store.h, channel.h, batch.h, events.h, stream.h and admin.h:
 *   - Handles are not NULL unless said otherwise; *_close takes NULL.
 *   - Names and bodies are slices: bytes without a terminator, read during the call and not kept.
 *   - qs_error *error may be NULL; it is written only on failure.
 *   - An AMQP error (QS_ACCESS_REFUSED ... QS_NOT_IMPLEMENTED) closes the channel it happened on,
 *     as a broker would: later calls on it answer QS_ECHANNEL_CLOSED.  One of 500 or more closes
 *     all channels of its connection.
 *   - A store may be used from any thread.  A channel serves one thread at a time.
 *   - After fork() every call in the child answers QS_EFORKED; only the closes may be called there,
 *     and they free nothing but memory.
 *
 * The comment of a function has these lines where they apply:
 *   Returns:  the statuses that are its own.  Any may answer QS_ENOMEM, QS_EFORKED and
 *             QS_ESTORE_CLOSED, any on a channel or a connection QS_ECHANNEL_CLOSED, any that
 *             changes something QS_ESTORE_FAILED and QS_ESTORE_READ_ONLY, and any that takes a
 *             name, a table of arguments or a limit QS_EINVAL.
 *   Blocks:   what it may wait for besides the store's lock, which every call may wait for.  A call
 *             on a channel or a connection removes, before it returns, messages that must leave
 *             their queues (expired, one too many, rejected): unless it has QS_NO_WAIT, it may read
 *             bodies for that, of up to 256 dead letters, and wait for room in the journal and in
 *             memory.
 *   Durable:  when what it did survives a power cut.
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
    /* Bytes that messages and what is kept of them may take in memory; 256 MiB. */
    uint64_t memory_budget;
    /* Properties and a body of together fewer bytes stay in the journal; 0: never; 4096. */
    uint64_t embed_below;
    /* Power of two, 64 KiB at least; 64 MiB. */
    uint64_t journal_file_bytes;
    /* Power of two, 64 KiB to 16 GiB; 64 MiB. */
    uint64_t message_file_bytes;
    /* A larger body is refused; 128 MiB. */
    uint64_t body_bytes_max;
    /* Power of two, fixed at creation; 0: as it was created, 16384 when new. */
    uint32_t segment_entries;
    /* Of journal after which a checkpoint is made, or 32 MiB where nothing came for a second; 0:
     * only when asked for; 256 MiB. */
    uint64_t checkpoint_bytes;
    /* A checkpoint is made at the latest after this time; 0: by size alone; 60 s.  After sixteen
     * times that, where many small queues make it long and little was journalled since the last. */
    uint32_t checkpoint_interval_ms;
    /* Wait this long for a larger group of messages to commit; 0. */
    uint32_t commit_delay_us;
    /* QS_SYNC_*.  QS_SYNC_NONE syncs nothing: nothing is durable. */
    uint32_t sync;
    /* QS_RECOVERY_*.  QS_RECOVERY_SALVAGE passes over damage, and counts what is lost. */
    uint32_t recovery;
    /* Make the store when there is none; true. */
    bool create;
    /* Nothing is written: no channels; what is there can be listed and browsed; false. */
    bool read_only;
    /* false: no threads; callers that wait commit (deterministic tests); true. */
    bool background;
    /* Called now and then while the journal is replayed: bytes of files that were read, and that
     * there are.  NULL: there are no reports. */
    void (*progress)(void *context, uint64_t bytes_done, uint64_t bytes_total);
    void *progress_context;
    /* Called with what no call tells, level being a QS_NOTE_*: a commit that has waited for the
     * disk for 30 s (while it waits), a clock that was set, that the disk is full and that it is no
     * longer, that no checkpoint can be made and that one can, each checkpoint, that the store has
     * failed.  From a thread of the store that holds no lock, never from one that others wait for;
     * until qs_store_close has returned, and only with background.  NULL: there are no reports. */
    void (*note)(void *context, uint32_t level, const char *text);
    void *note_context;
} qs_options;

/* qs_options_default - the values that stand behind each option above. */
QS_API void qs_options_default(qs_options *options_out);

#define QS_PATH_MEMORY ":memory:"
/* qs_store_open - open or create the store in the directory path and recover it.
 *
 * In:      path     QS_PATH_MEMORY without an env: a new store in memory, which makes no files and
 *                   ends when it is closed
 *          options  NULL: the defaults
 *          env      NULL: qs_env_posix()
 * Returns: QS_ESTORE_NOT_FOUND (there is none and options->create is false, the parent directory is
 *          missing, or path has other things in it), QS_ESTORE_LOCKED (error->pid), QS_ECORRUPT
 *          (error->path, error->offset), QS_EVERSION, QS_EIO, QS_ENOSPC, QS_EMFILE, QS_EINVAL
 * Blocks:  for the recovery: time in proportion to the journal since the last checkpoint
 * Durable: a new store, when this returns
 * Owns:    *store_out: qs_store_close */
QS_API QS_MUST_CHECK qs_status qs_store_open(qs_store **store_out, const char *path,
                                             const qs_options *options, qs_env *env,
                                             qs_error *error);

/* qs_store_close - requeue what channels hold, make everything durable, release the lock, free.
 *
 * Channels are closed with it, but their memory stays until qs_channel_close.  No call may be under
 * way in another thread, except on channels that wait: those answer QS_ESTORE_CLOSED.  The handle
 * is freed whatever is returned.
 * Returns: QS_ESTORE_FAILED when something published could not be made durable; QS_ESTORE_FULL or
 *          QS_ENOSPC when all of it is durable and there was no space to note that the journal ends
 *          there: the next open recovers, as after a crash
 * Blocks:  for commits and for the store's threads
 * Durable: everything, when it returns QS_OK */
QS_API qs_status qs_store_close(qs_store *store, qs_error *error);

/* qs_store_sync - return when everything published so far, by any channel, is durable.
 *
 * Returns: QS_OK, or the common statuses
 * Blocks:  for a commit
 * Durable: when it returns QS_OK */
QS_API QS_MUST_CHECK qs_status qs_store_sync(qs_store *store, qs_error *error);

/* qs_store_failure - why the store failed, if it has.
 *
 * Returns: QS_OK (it has not), QS_ESTORE_FAILED with its cause, or the common statuses */
QS_API QS_MUST_CHECK qs_status qs_store_failure(qs_store *store, qs_error *error);

/* qs_store_checkpoint - write the state of the store to files of its own, so that the journal
 * before it is not needed any more and its files are used again.  Publishers and consumers go on
 * meanwhile.
 *
 * Returns: QS_ESTORE_FULL: no space; the journal still has everything
 * Blocks:  for the flushing and syncing of what was published since the last one
 * Durable: when it returns QS_OK */
QS_API QS_MUST_CHECK qs_status qs_store_checkpoint(qs_store *store, qs_error *error);

/* What a copy of a store is made of. */
typedef struct qs_copied {
    uint64_t files;  /* all of them */
    uint64_t linked; /* of these, files of the store that never change: they have one more name */
    uint64_t bytes;  /* that were copied, without holes */
} qs_copied;

/* Asked now and then by qs_store_copy, without the store's lock; false: it ends with QS_EINTR.
 * Commits wait for the answer: it must not wait for anything, nor call into a store. */
typedef bool (*qs_copy_goes_on)(void *context);

/* qs_store_copy - make another store at path, as a crash of this one could leave it.
 *
 * What was durable when this was called is in it.  A checkpoint is made; then commits wait while
 * the journal is copied, and other checkpoints while the rest is.  Block files of streams that
 * never change are linked if path can have links to them.  On failure what was made stays at path:
 * without MANIFEST, which comes last, it is no store.
 *
 * In:      path     a new directory or an empty one, of the store's environment
 *          goes_on  may be NULL
 * Returns: QS_EEXIST (something is in it), QS_ENOENT (what it would lie in is missing), QS_EINTR,
 *          QS_ENOSPC and QS_EIO of files of the copy; those of qs_store_checkpoint
 * Blocks:  for its turn to make a checkpoint, which comes in the order of asking, and for the disk
 * Durable: when it returns QS_OK */
QS_API QS_MUST_CHECK qs_status qs_store_copy(qs_store *store, const char *path,
                                             qs_copy_goes_on goes_on, void *context,
                                             qs_copied *copied_out, qs_error *error);

/* How far the journal is, for who reads it while the store is at work. */
typedef struct qs_kept {
    uint64_t lsn;         /* from which on the journal is kept */
    uint64_t durable_lsn; /* up to which it is durable */
    uint64_t file_salt;   /* of the journal file in which lsn lies */
    uint64_t file_lsn;    /* with which that file begins */
    uint32_t file;        /* its number */
    bool is_lost;         /* nothing is kept any more */
} qs_kept;

/* qs_store_keep - from now on, keep what the journal says, and the bodies that it names.
 *
 * Checkpoints then give back no journal file and no message file that the journal needs from
 * kept_out->lsn on, and everything that is published comes into the journal or into message files:
 * large batches for streams are not written into their files, and staged files are not adopted but
 * published.  When a checkpoint finds that more than bytes_max would be kept, or the disk full, all
 * of that ends, and is_lost tells.
 *
 * Returns: QS_EEXIST: it is kept already
 * Blocks:  for writes into files of streams that are under way, and for a commit
 * Durable: what was published before, when it returns QS_OK */
QS_API QS_MUST_CHECK qs_status qs_store_keep(qs_store *store, uint64_t bytes_max, qs_kept *kept_out,
                                             qs_error *error);

/* qs_store_keep_from - what the journal says before lsn has been read.
 *
 * In:      lsn  not before the last one, and durable
 * Returns: QS_EINVAL; kept_out is filled in if nothing is kept any more, too */
QS_API QS_MUST_CHECK qs_status qs_store_keep_from(qs_store *store, uint64_t lsn, qs_kept *kept_out,
                                                  qs_error *error);

/* qs_store_keep_end - nothing is kept any more. */
QS_API void qs_store_keep_end(qs_store *store);

/* qs_store_read_body - read a record of a message file that the journal names.
 *
 * In:      reference  of 28 bytes, from a record of the journal
 *          data       of data_bytes: 32 and the bytes of envelope and body
 * Returns: QS_ECORRUPT (it is damaged, or not there any more), QS_EINVAL (data_bytes)
 * Blocks:  for the disk */
QS_API QS_MUST_CHECK qs_status qs_store_read_body(qs_store *store, const void *reference,
                                                  void *data, size_t data_bytes, qs_error *error);

/* qs_store_wait_durable - return when the journal is durable up to lsn, a position from a receipt.
 *
 * Returns: QS_ETIMEDOUT
 * Blocks:  for a commit, which the caller leads itself when no other thread does
 * Durable: what lies before lsn, when it returns QS_OK */
QS_API QS_MUST_CHECK qs_status qs_store_wait_durable(qs_store *store, uint64_t lsn,
                                                     uint64_t timeout_ns, qs_error *error);

/* qs_store_durable_lsn - the journal position up to which everything is durable; 0 for a store that
 * is closed or was opened for reading only. */
QS_API uint64_t qs_store_durable_lsn(qs_store *store);

/* qs_store_topology - a number that is another one after each change of queues, exchanges and
 * bindings; 0 for a store that is closed. */
QS_API uint64_t qs_store_topology(qs_store *store);

/* qs_store_set_place - what stands behind the names of queues and exchanges in texts of errors,
 * where RabbitMQ names the virtual host: " in vhost '/'".  Until it is set: " in this store".
 *
 * In:      place  copied; 271 bytes at most
 * Returns: QS_EINVAL (it is longer) */
QS_API QS_MUST_CHECK qs_status qs_store_set_place(qs_store *store, const char *place,
                                                  qs_error *error);

/* qs_store_options - the options in force, with segment_entries as the store was made. */
QS_API void qs_store_options(qs_store *store, qs_options *options_out);

#endif
