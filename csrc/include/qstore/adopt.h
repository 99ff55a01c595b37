/* Staged files, and their adoption.
 *
 * A process that has no store, as a task of a job that runs on many machines, writes record batches
 * to files of its own.  A store then adopts all files of the job at once, under a transaction's
 * key: a stream that all rows lead to gets the files themselves, by a hard link, and no body is
 * copied; what leads elsewhere is published from the files in one transaction. */
#ifndef QSTORE_ADOPT_H
#define QSTORE_ADOPT_H

#include "qstore/arrow.h"
#include "qstore/env.h"
#include "qstore/store.h"

/* ---- writing ---- */

typedef struct qs_staged_writer qs_staged_writer;

typedef struct qs_staged_options {
    /* As those of a qs_batch.  The columns CC and BCC are not for staged files, nor is "due"; the
     * headers in properties are strings. */
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
    uint32_t routes;     /* distinct (exchange, routing key); 0: too many to be told */
} qs_staged_info;

/* qs_staged_writer_open - begin the file name in the directory folder, which is there.
 *
 * What is written is name.NUMBER.tmp until close, which no other writer uses; that of a writer that
 * died stays, and counts for nothing.
 * In:      options  copied
 *          env      NULL: qs_env_posix()
 * Returns: QS_ENOENT (no such directory), QS_EEXIST (name is there), QS_EINVAL
 * Owns:    *writer_out: qs_staged_writer_close
 * Threads: one at a time has a writer */
QS_API QS_MUST_CHECK qs_status qs_staged_writer_open(qs_staged_writer **writer_out,
                                                     const char *folder, const char *name,
                                                     const qs_staged_options *options, qs_env *env,
                                                     qs_error *error);

/* qs_staged_writer_put - write all rows of a record batch, or none.
 *
 * Every row is checked as publishing it would be.  Memory is that of about one batch.
 * Returns: QS_EINVAL, QS_PRECONDITION_FAILED (the column or the row is named; the writer goes on),
 *          QS_ENOSPC and QS_EIO (only close is left)
 * Blocks:  to write */
QS_API QS_MUST_CHECK qs_status qs_staged_writer_put(qs_staged_writer *writer,
                                                    const struct ArrowSchema *schema,
                                                    const struct ArrowArray *array,
                                                    qs_error *error);

/* qs_staged_writer_close - finish the file, or, with keep false, remove it; free the writer.
 *
 * Without rows there is no file.  Of several writers of one name the first that finishes has it,
 * and the others get QS_EEXIST.
 * Out:     info_out  NULL is fine
 * Returns: QS_ENOSPC and QS_EIO (the file is removed, as far as that can be done)
 * Blocks:  to write and sync
 * Durable: the file under its name, when it returns QS_OK */
QS_API QS_MUST_CHECK qs_status qs_staged_writer_close(qs_staged_writer *writer, bool keep,
                                                      qs_staged_info *info_out, qs_error *error);

/* ---- reading ---- */

typedef struct qs_staged_reader qs_staged_reader;

/* qs_staged_reader_open - open the file name in the directory folder.
 *
 * Returns: QS_ENOENT, QS_ECORRUPT (it is not whole)
 * Owns:    *reader_out: qs_staged_reader_close */
QS_API QS_MUST_CHECK qs_status qs_staged_reader_open(qs_staged_reader **reader_out,
                                                     const char *folder, const char *name,
                                                     qs_env *env, qs_error *error);
/* qs_staged_reader_info - what the file has, as it says itself. */
QS_API void qs_staged_reader_info(const qs_staged_reader *reader, qs_staged_info *info_out);

/* qs_staged_reader_next - the next record batch, every checksum of it checked.
 *
 * Its columns are those of what is received (docs/ARROW.md); the tag is the row's number.
 * Returns: QS_EEMPTY at the end, QS_ECORRUPT (the call after it gives what lies behind)
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
    uint64_t unroutable; /* of those: that lead nowhere, and are dropped, or, with an error, why */
    uint32_t files;      /* with rows */
    uint32_t linked;     /* of those: that a stream has now */
    bool excluded;       /* of a request: a key of unless was committed before, and nothing
                            changed */
} qs_adoption;

/* qs_store_adopt - publish all rows of staged files at once, in order.
 *
 * Each distinct (exchange, routing key) is looked up once, before anything changes.  Where all of
 * them lead to one stream and nothing else, it gets the files by hard links.  Else, and where links
 * cannot be made, the rows are published from the files in one transaction, which memory must hold.
 * The files stay as they are, and are the caller's to remove.
 * In:      paths  of files, in order
 *          key    of the transaction: one that was committed before is not committed again
 *          flags  QS_MANDATORY: rows that lead to no queue are an error
 * Returns: QS_PRECONDITION_FAILED (QS_MANDATORY, and the text names routes), QS_NOT_FOUND (an
 *          exchange), QS_ECORRUPT (a file is damaged), QS_ENOENT (one is missing), QS_ESTORE_FULL
 * Blocks:  for a commit
 * Durable: everything, key included, when it returns QS_OK; nothing changed when it does not, but
 *          for QS_ESTORE_FAILED, after which the key tells */
QS_API QS_MUST_CHECK qs_status qs_store_adopt(qs_store *store, const char *const *paths,
                                              size_t path_count, qs_slice key, uint32_t flags,
                                              qs_adoption *adoption_out, qs_error *error);

/* ---- asking an owner to adopt ---- */

/* A process that cannot open a store, because another one has it, leaves a manifest in its inbox.
 * A thread of the owner does what qs_store_adopt does, and answers.  Both are files of the store's
 * directory, which the processes share, with their user. */
typedef struct qs_request qs_request;

typedef struct qs_ask {
    const char *const *paths; /* from the root */
    size_t path_count;
    qs_slice key;
    const qs_slice *unless; /* keys: where one was committed before, nothing is adopted */
    size_t unless_count;
    const qs_slice *forget; /* keys to forget afterwards, when no repeat can need them any more; an
                               owner that dies right then leaves them known */
    size_t forget_count;
    uint32_t flags;      /* QS_MANDATORY */
    uint64_t timeout_ns; /* by the clock, no owner begins with it later */
} qs_ask;

/* qs_request_open - leave a manifest in the inbox of the store in the directory path.
 *
 * In:      ask  copied
 *          env  NULL: qs_env_posix()
 * Returns: QS_ENOENT (there is no store, or none that was ever open to write with its threads),
 *          QS_EINVAL (a path, a key), QS_ENOSPC, QS_EIO; nothing was left then
 * Blocks:  to write and sync
 * Owns:    *request_out: qs_request_close
 * Durable: the manifest, when it returns QS_OK
 * Threads: one at a time has a request */
QS_API QS_MUST_CHECK qs_status qs_request_open(qs_request **request_out, const char *path,
                                               const qs_ask *ask, qs_env *env, qs_error *error);

/* qs_request_look - is there an answer?
 *
 * Out:     answered_out  true: what is returned is what qs_store_adopt returned to the owner, and
 *                        *adoption_out goes with it; the request is over.  An owner that died
 *                        between the commit and its answer leaves it to the next one, to which the
 *                        key was committed before: committed is false
 * Returns: QS_ETIMEDOUT, with *answered_out (its time was over before an owner had begun with it;
 *          nothing changed); QS_ESTORE_FAILED, with it (whether it was adopted is not known, and
 *          the key tells: its answer was kept for a day, and is gone, or the manifest was damaged
 *          after an owner had begun with it); without it an error of the look: look again
 * Blocks:  to sync, for an answer
 * Durable: that nothing changed, with an error that says so */
QS_API QS_MUST_CHECK qs_status qs_request_look(qs_request *request, bool *answered_out,
                                               qs_adoption *adoption_out, qs_error *error);

/* qs_request_take_back - see to it that nothing is adopted.
 *
 * Returns: QS_EWOULDBLOCK (an owner began with it, so there will be an answer, or there is one),
 *          QS_EIO
 * Blocks:  to sync
 * Durable: nothing was, and nothing will be adopted, when it returns QS_OK */
QS_API QS_MUST_CHECK qs_status qs_request_take_back(qs_request *request, qs_error *error);

/* qs_request_close - free the request; the manifest stays.  NULL is fine. */
QS_API void qs_request_close(qs_request *request);

/* qs_store_take_in - adopt what lies in the store's inbox, and answer it: for a store without
 * threads, and for tests.
 *
 * The inbox is made if it is missing.
 * Out:     answered_out  how many were
 * Returns: QS_EINVAL (a thread of the store does it), QS_ESTORE_FAILED, QS_EIO
 * Blocks:  for a commit
 * Threads: one at a time takes in */
QS_API QS_MUST_CHECK qs_status qs_store_take_in(qs_store *store, uint32_t *answered_out,
                                                qs_error *error);

#endif
