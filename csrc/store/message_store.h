/* The shared message store: bodies too large to embed, one copy each, in append-only files.
 *
 * A body is found by its reference and by nothing else: records that no reference names are dead
 * space, whatever their bytes.  So a write that failed or was never finished harms nobody, and
 * the order of syncs is simple: the file of a body is synced before, or in the same commit as,
 * the journal record that names it.
 *
 * Life of a body:
 *
 *   reserve   under the owner's lock: a place (file, slot, offset); places are in offset order
 *   write     without it: checksum and one gathered write; any number of threads at once
 *   mark      under it, before the journal record that names the body is appended; or abandon
 *   take      under it, by the leader of a commit: the files marked since the last take
 *   sync      without it: durable when this returns QS_OK
 *   read      any time after write, from any thread
 *
 * The store has a lock of its own around its table of files, held for moments and never during
 * input or output, so the owner's lock is needed only for the order above.  It is taken inside
 * the owner's.
 *
 * A file belongs to the session that made it: after a reopen new bodies go to new files, so the
 * tail that a crash left is never written behind. */
#ifndef QSI_MESSAGE_STORE_H
#define QSI_MESSAGE_STORE_H

#include "qstore/env.h"
#include "qstore/status.h"

#include "message_format.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QSI_BODY_PARTS_MAX 15 /* of one write */

struct qsi_message_store; /* opaque */
struct qsi_message_file;  /* opaque */

struct qsi_message_store_options {
    uint64_t file_bytes; /* 64 KiB at least; a larger record gets a file of its own */
    uint32_t handle_max; /* files held open for reading; 1 at least */
};
#define QSI_MESSAGE_STORE_OPTIONS_DEFAULT \
    ((struct qsi_message_store_options){64u * 1024 * 1024, 64})

/* A reserved place; lasts until mark or abandon and keeps its file open. */
struct qsi_place {
    struct qsi_message_file *file;
    uint64_t offset;
    uint32_t slot;
    uint32_t envelope_bytes;
    uint32_t body_bytes;
};

/* Files with bodies that are written and not synced. */
struct qsi_dirty_set {
    struct qsi_message_file *first; /* NULL: nothing to sync */
    uint32_t count;
};

/* Lists the files in dir and opens none.  dir and env stay the caller's and outlive the store;
 * uuid is the store's identity, which each file repeats. */
qs_status qsi_message_store_open(struct qsi_message_store **store_out, qs_env *env, qs_dir *dir,
                                 const uint8_t uuid[QSI_UUID_BYTES],
                                 const struct qsi_message_store_options *options,
                                 qs_error *error) QS_MUST_CHECK;
/* Closes handles and frees; writes, truncates and removes nothing.  What was marked and not
 * synced stays so.  REQUIRES no place, set or read under way.  NULL is fine. */
void qsi_message_store_close(struct qsi_message_store *store);

/* ---- recovery ---- */

/* QS_ECORRUPT unless the file is there and large enough for the record: call it before memory is
 * allocated for a reference that came from a file. */
qs_status qsi_message_store_locate(struct qsi_message_store *store, const struct qsi_body_ref *ref,
                                   qs_error *error) QS_MUST_CHECK;
/* Verifies the whole record as a read does, in bounded memory. */
qs_status qsi_message_store_check(struct qsi_message_store *store, const struct qsi_body_ref *ref,
                                  qs_error *error) QS_MUST_CHECK;

/* A file that holds live records. */
struct qsi_retained {
    uint32_t file;
    uint64_t end; /* the largest qsi_body_ref_end() of the references to it */
};

/* Takes note of the references found by recovery and syncs the files that they name, from
 * settled_below on, because what recovery read may have been in the page cache only.  Nothing is
 * removed: until it is written down what recovery found, the next one must find it again.  Files in
 * any order; of one named twice the larger end counts.  settled_below: what
 * qsi_message_store_settled_below said at the last checkpoint, or 0.  QS_ECORRUPT when a named file
 * is missing or shorter than its end.  REQUIRES nothing reserved yet. */
qs_status qsi_message_store_retain(struct qsi_message_store *store,
                                   const struct qsi_retained *files, size_t file_count,
                                   uint32_t settled_below, qs_error *error) QS_MUST_CHECK;
/* Fits the directory to what retain was told: files that are not named go, the others lose what is
 * behind their end.  REQUIRES retain, and nothing reserved since. */
qs_status qsi_message_store_trim(struct qsi_message_store *store, qs_error *error) QS_MUST_CHECK;
/* Files with a lower number are synced and cut to size for good: for checkpoints to remember. */
uint32_t qsi_message_store_settled_below(struct qsi_message_store *store);

/* ---- writing ---- */

/* REQUIRES the owner's lock.  Blocks for the creation of a file when none was made ahead.
 * QS_ESTORE_FULL: no space, nothing changed; QS_EIO, QS_ENOMEM: likewise nothing changed. */
qs_status qsi_message_store_reserve(struct qsi_message_store *store, uint32_t envelope_bytes,
                                    uint32_t body_bytes, struct qsi_place *place_out,
                                    qs_error *error) QS_MUST_CHECK;
/* parts: the envelope followed by the body, envelope_bytes + body_bytes in all, in at most
 * QSI_BODY_PARTS_MAX parts.  A failure (QS_ESTORE_FULL, QS_EIO) leaves the place undefined:
 * abandon it. */
qs_status qsi_message_store_write(struct qsi_message_store *store, const struct qsi_place *place,
                                  const qs_part *parts, size_t part_count,
                                  struct qsi_body_ref *ref_out, qs_error *error) QS_MUST_CHECK;
/* The place is written and about to be named: its file is in the next set.  Ends the place. */
void qsi_message_store_mark(struct qsi_message_store *store, struct qsi_place *place);
/* Nothing will name the place.  Ends it; a zeroed or ended place is fine. */
void qsi_message_store_abandon(struct qsi_message_store *store, struct qsi_place *place);

/* REQUIRES the owner's lock, and that no other set is out.  set_out must end in sync or release. */
void qsi_message_store_dirty_take(struct qsi_message_store *store, struct qsi_dirty_set *set_out);
/* fdatasync of each file of the set, which is empty afterwards.  A failure is final: bodies may
 * be gone that look fine, so every later call answers QS_ESTORE_FAILED. */
qs_status qsi_message_store_sync(struct qsi_message_store *store, struct qsi_dirty_set *set,
                                 qs_error *error) QS_MUST_CHECK;
/* Gives the set back unsynced, for a store that does not sync or has failed. */
void qsi_message_store_release(struct qsi_message_store *store, struct qsi_dirty_set *set);

/* ---- reading ---- */

/* Reads one record into data, which has room for qsi_body_record_bytes(ref): the envelope begins
 * at data + QSI_BODY_HEADER_BYTES, the body follows it.  Checked in full: whatever does not fit
 * is QS_ECORRUPT with file and offset, and data is then undefined.  Threads: any, without the
 * owner's lock. */
qs_status qsi_message_store_read(struct qsi_message_store *store, const struct qsi_body_ref *ref,
                                 void *data, qs_error *error) QS_MUST_CHECK;

/* ---- space ---- */

/* Whether qsi_message_store_maintain would do something. */
bool qsi_message_store_needs_maintenance(struct qsi_message_store *store);
/* For a background thread, without the owner's lock: makes the next file before it is needed,
 * and gives back the unused ends of full ones.  Nothing before the first body.  A failure
 * leaves everything usable; try again later.  Threads: one at a time in this and in settle. */
qs_status qsi_message_store_maintain(struct qsi_message_store *store,
                                     qs_error *error) QS_MUST_CHECK;
/* For an orderly close, after the last sync: also gives back the end of the file in use and
 * removes an unused one.  A later reserve starts a new file. */
qs_status qsi_message_store_settle(struct qsi_message_store *store, qs_error *error) QS_MUST_CHECK;
/* Removes a file that no reference names any more, and makes that durable.  REQUIRES that it is
 * settled: below qsi_message_store_settled_below. */
qs_status qsi_message_store_remove(struct qsi_message_store *store, uint32_t file,
                                   qs_error *error) QS_MUST_CHECK;
/* Bytes of records written by this session, headers and padding included. */
uint64_t qsi_message_store_bytes_written(struct qsi_message_store *store);

#endif
