/* Staged files, and their adoption.
 *
 * A process without a store, such as a task of a job on many machines, writes record batches to
 * files of its own.  A store then adopts all files of the job at once, under the key of a
 * transaction.  If all rows are routed to one stream, the stream gets the files themselves by hard
 * links, and no body is copied; otherwise the rows are published from the files in one
 * transaction. */
#ifndef QSTORE_ADOPT_H
#define QSTORE_ADOPT_H

#include "qstore/arrow.h"
#include "qstore/env.h"
#include "qstore/store.h"

/* ---- writing ---- */

typedef struct qs_staged_writer qs_staged_writer;

typedef struct qs_staged_options {
    /* As the members of qs_batch.  Staged files have no columns CC, BCC and "due"; headers in
     * properties are strings. */
    const char *body_column; /* NULL: "body" */
    qs_slice exchange;
    qs_slice routing_key;
    qs_slice properties;
    uint64_t body_bytes_max; /* of a message; 0: 128 MiB */
    int64_t (*utc_of)(int64_t shown_s);
} qs_staged_options;

typedef struct qs_staged_info {
    uint64_t rows;
    uint64_t bytes;      /* of the file */
    uint64_t body_bytes; /* of all messages */
    uint32_t routes;     /* distinct (exchange, routing key); 0: too many to count */
} qs_staged_info;

/* qs_staged_writer_open - begin the file name in the existing directory folder.
 *
 * Until it is closed, the file is called name.NUMBER.tmp, a name that no other writer uses.  The
 * temporary file of a writer that died stays, and is ignored.
 * In:      options  copied
 *          env      NULL: qs_env_posix()
 * Returns: QS_ENOENT (no such directory), QS_EEXIST (name is there), QS_EINVAL
 * Owns:    *writer_out: qs_staged_writer_close
 * Threads: a writer serves one thread at a time */
QS_API QS_MUST_CHECK qs_status qs_staged_writer_open(qs_staged_writer **writer_out,
                                                     const char *folder, const char *name,
                                                     const qs_staged_options *options, qs_env *env,
                                                     qs_error *error);

/* qs_staged_writer_put - write all rows of a record batch, or none.
 *
 * Every row is checked as a publish would check it.  The writer uses the memory of about one batch.
 * Returns: QS_EINVAL, QS_PRECONDITION_FAILED (the column or the row is named; the writer goes on),
 *          QS_ENOSPC and QS_EIO (only close is left)
 * Blocks:  to write */
QS_API QS_MUST_CHECK qs_status qs_staged_writer_put(qs_staged_writer *writer,
                                                    const struct ArrowSchema *schema,
                                                    const struct ArrowArray *array,
                                                    qs_error *error);

/* qs_staged_writer_close - finish the file, or, with keep false, remove it; free the writer.
 *
 * A writer without rows makes no file.  If several writers have one name, the first that finishes
 * gets it, and the others get QS_EEXIST.
 * Out:     info_out  NULL is fine
 * Returns: QS_ENOSPC and QS_EIO (the file is removed, if possible)
 * Blocks:  to write and sync
 * Durable: the file under its name, when it returns QS_OK */
QS_API QS_MUST_CHECK qs_status qs_staged_writer_close(qs_staged_writer *writer, bool keep,
                                                      qs_staged_info *info_out, qs_error *error);

/* ---- reading ---- */

typedef struct qs_staged_reader qs_staged_reader;

/* qs_staged_reader_open - open the file name in the directory folder.
 *
 * Returns: QS_ENOENT, QS_ECORRUPT (the file is not whole)
 * Owns:    *reader_out: qs_staged_reader_close */
QS_API QS_MUST_CHECK qs_status qs_staged_reader_open(qs_staged_reader **reader_out,
                                                     const char *folder, const char *name,
                                                     qs_env *env, qs_error *error);
/* qs_staged_reader_info - the contents of the file, by its own account. */
QS_API void qs_staged_reader_info(const qs_staged_reader *reader, qs_staged_info *info_out);

/* qs_staged_reader_next - return the next record batch, with all its checksums verified.
 *
 * The columns are those of received batches (docs/ARROW.md); the delivery tag is the row's number.
 * Returns: QS_EEMPTY (the end), QS_ECORRUPT (the next call returns what lies behind the damage)
 * Owns:    *schema_out and *array_out: their own release callbacks */
QS_API QS_MUST_CHECK qs_status qs_staged_reader_next(qs_staged_reader *reader,
                                                     struct ArrowSchema *schema_out,
                                                     struct ArrowArray *array_out, qs_error *error);
/* qs_staged_reader_close - close the file, and free the reader; NULL is fine. */
QS_API void qs_staged_reader_close(qs_staged_reader *reader);

/* ---- adopting ---- */

typedef struct qs_adoption {
    bool committed;      /* false: the key was committed before, and nothing changed */
    uint64_t rows;       /* of all files */
    uint64_t unroutable; /* of those: routed nowhere: dropped, or the cause of an error */
    uint32_t files;      /* with rows */
    uint32_t linked;     /* of those: linked into a stream */
    bool excluded;       /* of a request: a key of unless was committed before, and nothing
                            changed */
} qs_adoption;

/* qs_store_adopt - publish all rows of staged files at once, in order.
 *
 * Each distinct (exchange, routing key) is looked up once, before anything changes.  If all of them
 * are routed to one stream and nothing else, the stream gets the files by hard links.  Otherwise,
 * and where links cannot be made, the rows are published from the files in one transaction, which
 * must fit in memory.  The files stay as they are; the caller removes them.
 * In:      paths  of files, in order
 *          key    of the transaction; a key that was committed before is not committed again
 *          flags  QS_MANDATORY: rows that are routed to no queue are an error
 * Returns: QS_PRECONDITION_FAILED (QS_MANDATORY, and the text names routes), QS_NOT_FOUND (an
 *          exchange), QS_ECORRUPT (a file is damaged), QS_ENOENT (one is missing), QS_ESTORE_FULL
 * Blocks:  for a commit
 * Durable: everything, key included, when it returns QS_OK.  After any other status nothing
 *          changed, except after QS_ESTORE_FAILED: then qs_store_transaction_known tells */
QS_API QS_MUST_CHECK qs_status qs_store_adopt(qs_store *store, const char *const *paths,
                                              size_t path_count, qs_slice key, uint32_t flags,
                                              qs_adoption *adoption_out, qs_error *error);

/* ---- asking an owner to adopt ---- */

/* A process that cannot open a store, because another process owns it, leaves a manifest in the
 * store's inbox.  A thread of the owner then adopts the files as qs_store_adopt does, and answers.
 * Manifest and answer are files in the store's directory; both processes run as the same user. */
typedef struct qs_request qs_request;

typedef struct qs_ask {
    const char *const *paths; /* from the root */
    size_t path_count;
    qs_slice key;
    const qs_slice *unless; /* keys: if one was committed before, nothing is adopted */
    size_t unless_count;
    const qs_slice *forget; /* keys to forget afterwards, when no repeat can need them any more; an
                               owner that dies right then leaves them known */
    size_t forget_count;
    uint32_t flags;      /* QS_MANDATORY */
    uint64_t timeout_ns; /* no owner begins with the request after this time, by the clock */
} qs_ask;

/* qs_request_open - leave a manifest in the inbox of the store in the directory path.
 *
 * In:      ask  copied
 *          env  NULL: qs_env_posix()
 * Returns: QS_ENOENT (there is no store, or it was never open for writing with its threads),
 *          QS_EINVAL (a path, a key), QS_ENOSPC, QS_EIO; nothing is left behind after an error
 * Blocks:  to write and sync
 * Owns:    *request_out: qs_request_close
 * Durable: the manifest, when it returns QS_OK
 * Threads: a request serves one thread at a time */
QS_API QS_MUST_CHECK qs_status qs_request_open(qs_request **request_out, const char *path,
                                               const qs_ask *ask, qs_env *env, qs_error *error);

/* qs_request_look - look for the answer to a request.
 *
 * Out:     answered_out  true: the request is over; the status is the one that qs_store_adopt
 *                        returned to the owner, and *adoption_out belongs to it.  If an owner dies
 *                        between the commit and its answer, the next owner answers; for it the key
 *                        was committed before, so committed is false
 * Returns: QS_ETIMEDOUT, with *answered_out (its time was over before an owner began with it;
 *          nothing changed); QS_ESTORE_FAILED, with *answered_out (it is not known whether the
 *          files were adopted; the key tells.  The answer, which is kept for a day, is gone, or the
 *          manifest was damaged after an owner began with it).  Without *answered_out the look
 *          itself failed: look again
 * Blocks:  to sync, for an answer
 * Durable: that nothing changed, with an error that says so */
QS_API QS_MUST_CHECK qs_status qs_request_look(qs_request *request, bool *answered_out,
                                               qs_adoption *adoption_out, qs_error *error);

/* qs_request_take_back - withdraw a request, so that nothing is adopted.
 *
 * Returns: QS_EWOULDBLOCK (an owner has begun with it: an answer exists or will come), QS_EIO
 * Blocks:  to sync
 * Durable: when it returns QS_OK: nothing was adopted or will be */
QS_API QS_MUST_CHECK qs_status qs_request_take_back(qs_request *request, qs_error *error);

/* qs_request_close - free the request; the manifest stays.  NULL is fine. */
QS_API void qs_request_close(qs_request *request);

/* qs_store_take_in - adopt the requests in the store's inbox and answer them: for a store without
 * threads, and for tests.
 *
 * A missing inbox is made.
 * Out:     answered_out  number of requests answered
 * Returns: QS_EINVAL (a thread of the store does this), QS_ESTORE_FAILED, QS_EIO
 * Blocks:  for a commit
 * Threads: one thread at a time may call this */
QS_API QS_MUST_CHECK qs_status qs_store_take_in(qs_store *store, uint32_t *answered_out,
                                                qs_error *error);

#endif
