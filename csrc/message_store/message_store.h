/* The shared message store: bodies too large to embed, one copy each, in append-only files.
 *
 * A body is found only by its reference: records without references are dead space, whatever their
 * bytes.  So a failed or unfinished write does no harm, and the order of syncs is simple: the file
 * of a body is synced before, or in the same commit as, the journal record that names it.
 *
 * Life of a body:
 *
 *   reserve   under the owner's lock: a place (file, slot, offset); places are in offset order
 *   write     without it: checksum and one gathered write; any number of threads at once
 *   mark      under it, before the journal record that names the body is appended; or abandon
 *   count     under it: references are added before mark, and dropped one by one
 *   take      under it, by the leader of a commit: the files marked since the last take
 *   sync      without it: durable when this returns QS_OK
 *   read      any time after write, from any thread
 *
 * The message store has its own lock for its table of files.  It is held briefly, and never during
 * input or output, so the owner's lock is needed only for the order above.  It may be taken while
 * the owner's is held, but not the other way round.
 *
 * A file belongs to the session that created it: after a reopen new bodies go to new files, so
 * nothing is written after a tail that a crash left. */
#ifndef QSI_MESSAGE_STORE_H
#define QSI_MESSAGE_STORE_H

#include "qstore/env.h"
#include "qstore/status.h"

#include "buf.h"
#include "file_head.h"
#include "message_format.h"
#include "slice.h"
#include "thread_safety.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QSI_BODY_PARTS_MAX 15 /* parts of one write at most */

struct qsi_message_store; /* opaque */
struct qsi_message_file;  /* opaque */
struct qsi_compaction;    /* opaque */

struct qsi_message_store_options {
    /* 64 KiB at least; a larger record gets a file of its own.  If space is short, files are
     * smaller */
    uint64_t file_bytes;
    uint32_t handle_max; /* files held open for reading; 1 at least */
};
#define QSI_MESSAGE_STORE_OPTIONS_DEFAULT \
    ((struct qsi_message_store_options){64u * 1024 * 1024, 64})

/* A reserved place; it keeps its file open, and ends with mark or abandon. */
struct qsi_place {
    struct qsi_message_file *file;
    uint64_t offset;
    uint64_t bytes;      /* padding included */
    uint32_t slot;       /* the first one */
    uint32_t slot_count; /* 1, or the bodies of a pack */
    uint32_t envelope_bytes;
    uint32_t body_bytes;
    bool is_pack;
};

/* Files with written bodies that are not synced. */
struct qsi_dirty_set {
    struct qsi_message_file *first; /* NULL: nothing to sync */
    uint32_t count;
};

/* Lists the files in dir, and opens none.  The caller owns dir and env, which outlive the message
 * store; uuid is the identity of the whole store, and part of each file. */
qs_status qsi_message_store_open(struct qsi_message_store **messages_out, qs_env *env, qs_dir *dir,
                                 const uint8_t uuid[QSI_UUID_BYTES],
                                 const struct qsi_message_store_options *options,
                                 qs_error *error) QS_MUST_CHECK;
/* Closes handles and frees; does not write, truncate or remove anything.  Marked bodies that were
 * not synced stay so.  REQUIRES that there is no place, set or running read.  NULL is fine. */
void qsi_message_store_close(struct qsi_message_store *messages);

/* Sets the bytes of the disk that stay free when files are created for new bodies: other parts of
 * the store need them. */
void qsi_message_store_leave_free(struct qsi_message_store *messages, uint64_t bytes);

/* ---- recovery ---- */

/* QS_ECORRUPT unless the file exists and is large enough for the record.  Call it before allocating
 * memory for a reference that was read from a file. */
qs_status qsi_message_store_locate(struct qsi_message_store *messages,
                                   const struct qsi_body_ref *ref, qs_error *error) QS_MUST_CHECK;
/* Verifies the whole record like a read, in bounded memory. */
qs_status qsi_message_store_check(struct qsi_message_store *messages,
                                  const struct qsi_body_ref *ref, qs_error *error) QS_MUST_CHECK;

/* ---- reference counts ----
 *
 * Each body has two counts: references from durable queues, which checkpoints record and the
 * journal after them repeats, and references from queues that end with the process.  A body without
 * references is garbage; a file without any references is dead (see qsi_message_store_snapshot). */

/* The most references of either kind to a body.  A count that would exceed it stays there for good:
 * such a body is never freed, and never lost. */
#define QSI_BODY_REFS_MAX 65534u

/* Add and drop references.  Both cannot fail, because room for a body's counts is made when its
 * place is reserved, or by note.  A reference to a missing file, or to file 0, is ignored. */
void qsi_message_store_add_refs(struct qsi_message_store *messages, const struct qsi_body_ref *ref,
                                uint32_t durable, uint32_t transient) QSI_REQUIRES(qsi_store_mutex);
void qsi_message_store_drop_ref(struct qsi_message_store *messages, const struct qsi_body_ref *ref,
                                bool transient);
/* Recovery calls this for every reference in the journal, before it is added: it makes room for the
 * counts, and records the end of the body.  The file may be missing: retain_counted checks whether
 * it is needed.  QS_ENOMEM, or an error of reading the file's size. */
qs_status qsi_message_store_add_reference(struct qsi_message_store *messages,
                                          const struct qsi_body_ref *ref,
                                          qs_error *error) QS_MUST_CHECK;

/* ---- checkpoints ----
 *
 * A checkpoint has the durable counts as of a position in the journal.  A file without references,
 * and a generation that compaction replaced, stay until a checkpoint that does not name them is
 * durable: before that, recovery may need them.  So:
 *
 *   snapshot   under the owner's lock: encodes the records, and seals the files that are dead now
 *   unseal     without it, when the checkpoint is durable: removes the sealed files
 *
 *   restore, note, retain_counted, trim_counted: at the next open, in this order */

/* Appends a record of type QSI_RECORD_MESSAGE_FILE for each file with durable references, and adds
 * their number to *record_count_io.  REQUIRES that nothing is sealed.  QS_ENOMEM: nothing was
 * appended and nothing sealed. */
qs_status qsi_message_store_snapshot(struct qsi_message_store *messages, struct qsi_buf *out,
                                     uint32_t *record_count_io, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Ends the seal, without the owner's lock.  durable: removes the sealed files.  Files that are
 * being read or synced, and files that could not be removed, wait for the next checkpoint; the
 * first failure is returned.  Otherwise the checkpoint was given up, and nothing is removed. */
qs_status qsi_message_store_unseal(struct qsi_message_store *messages, bool durable,
                                   qs_error *error) QS_MUST_CHECK;

/* Restores one record of the checkpoint.  QS_ECORRUPT: the record is invalid; a missing file is not
 * checked here.  REQUIRES a whole record: qsi_record_fits. */
qs_status qsi_message_store_restore(struct qsi_message_store *messages, const uint8_t *record,
                                    qs_error *error) QS_MUST_CHECK;
/* Checks the files after the replay.  QS_ECORRUPT unless files with live bodies exist, are those
 * that the checkpoint names, and reach their end.  Files that the checkpoint did not name as
 * settled are synced, because the bytes that recovery read may have been only in the page cache.
 * RETAIN_JUDGE: the same checks, without writing or syncing.  RETAIN_SALVAGE: no checks, and
 * existing files stay for this session.  REQUIRES that nothing is reserved yet. */
enum qsi_retain { QSI_RETAIN, QSI_RETAIN_JUDGE, QSI_RETAIN_SALVAGE };
qs_status qsi_message_store_retain_counted(struct qsi_message_store *messages, enum qsi_retain how,
                                           qs_error *error) QS_MUST_CHECK;
/* Removes unneeded data, when the end of the journal is recorded: files without live bodies and
 * stray generations are removed, and unsettled files are truncated to their end.  REQUIRES
 * retain_counted, and nothing reserved since.  After a salvage it does nothing. */
qs_status qsi_message_store_trim_counted(struct qsi_message_store *messages,
                                         qs_error *error) QS_MUST_CHECK;

/* ---- compaction ----
 *
 * A file with much garbage is rewritten as its next generation, with live records only.  References
 * stay valid: they name a slot, and a table in the new file has the slot's offset.  There is at
 * most one job for a file, and any number of readers meanwhile. */

/* Begins a job for the file with the most gain: settled, more than half garbage, in no other job.
 * *job_out NULL: there is none.  The job must end in compact_end. */
qs_status qsi_message_store_compact_begin(struct qsi_message_store *messages,
                                          struct qsi_compaction **job_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Writes the new generation, and syncs it and its name, without the lock.  Records are verified; a
 * damaged or missing record is left out, and its readers get QS_ECORRUPT as before.  A failure
 * changes nothing; after QS_ECORRUPT the file is not tried again. */
qs_status qsi_message_store_compact_run(struct qsi_message_store *messages,
                                        struct qsi_compaction *job, qs_error *error) QS_MUST_CHECK;
/* Ends the job and frees it; NULL is fine.  If done and run returned QS_OK, the new generation
 * takes over; running readers continue with the old one, which is removed after the next
 * checkpoint.  Otherwise the new file is removed. */
void qsi_message_store_compact_end(struct qsi_message_store *messages, struct qsi_compaction *job,
                                   bool done) QSI_REQUIRES(qsi_store_mutex);

/* ---- writing ---- */

/* Reserves a place.  Blocks for the creation of a file if none was created ahead.  QS_ESTORE_FULL:
 * no space, nothing changed; QS_EIO, QS_ENOMEM: likewise nothing changed. */
qs_status qsi_message_store_reserve(struct qsi_message_store *messages, uint32_t envelope_bytes,
                                    uint32_t body_bytes, struct qsi_place *place_out,
                                    qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Writes the envelope followed by the body: envelope_bytes + body_bytes in all, in at most
 * QSI_BODY_PARTS_MAX parts.  Other threads may change them meanwhile: each byte is read once, and
 * the checksum is that of the written bytes.  A failure (QS_ESTORE_FULL, QS_EIO, QS_ENOMEM) leaves
 * the place undefined: abandon it. */
qs_status qsi_message_store_write(struct qsi_message_store *messages, const struct qsi_place *place,
                                  const qs_part *parts, size_t part_count,
                                  struct qsi_body_ref *ref_out, qs_error *error) QS_MUST_CHECK;
/* The same for parts that do not change meanwhile: they are written in place, without a copy. */
qs_status qsi_message_store_write_constant(struct qsi_message_store *messages,
                                           const struct qsi_place *place, const qs_part *parts,
                                           size_t part_count, struct qsi_body_ref *ref_out,
                                           qs_error *error) QS_MUST_CHECK;
/* Ends a written place that a journal record will name: its file becomes part of the next set. */
void qsi_message_store_mark(struct qsi_message_store *messages, struct qsi_place *place);
/* Ends a place that no record will name; a zeroed or ended place is fine. */
void qsi_message_store_abandon(struct qsi_message_store *messages, struct qsi_place *place);

/* ---- packs: small bodies, many at a time ---- */

struct qsi_pack_body {
    struct qsi_slice exchange; /* 255 bytes at most; so is key */
    struct qsi_slice key;
    struct qsi_slice properties;
    struct qsi_slice body;
};

/* Writes count bodies, at least 1 and about 1 MiB together, with their envelopes, in one write and
 * without the owner's lock.  References are not counted: the owner, under its lock, adds them and
 * then marks the place, or abandons it.  QS_ENOMEM, QS_ESTORE_FULL, QS_EIO: there is no place. */
qs_status qsi_message_store_write_pack(struct qsi_message_store *messages,
                                       const struct qsi_pack_body *bodies, uint32_t count,
                                       struct qsi_body_ref *refs_out, struct qsi_place *place_out,
                                       qs_error *error) QS_MUST_CHECK;
/* The name of the file for the next record; false: there is none. */
bool qsi_message_store_written_name(struct qsi_message_store *messages,
                                    char name_out[QSI_MESSAGE_NAME_BYTES]);
/* Calls fdatasync for each file with marked packs that are not synced, without the owner's lock.
 * Packs are in no commit's set, so call this before a checkpoint names them, and before settle.  A
 * failure is final; QS_ECORRUPT: a file with packs has no name any more. */
qs_status qsi_message_store_sync_packs(struct qsi_message_store *messages,
                                       qs_error *error) QS_MUST_CHECK;

/* Whether there are bodies to sync for the next set. */
bool qsi_message_store_is_dirty(struct qsi_message_store *messages);
/* Takes the files to sync.  REQUIRES that no other set is taken.  set_out must end in sync or
 * release. */
void qsi_message_store_dirty_take(struct qsi_message_store *messages, struct qsi_dirty_set *set_out)
    QSI_REQUIRES(qsi_store_mutex);
/* Calls fdatasync for each file of the set, which is empty afterwards.  A failure is final: lost
 * bodies may still read as valid, so every later call returns QS_ESTORE_FAILED. */
qs_status qsi_message_store_sync(struct qsi_message_store *messages, struct qsi_dirty_set *set,
                                 qs_error *error) QS_MUST_CHECK;
/* Gives the set back unsynced, for a store that does not sync or has failed. */
void qsi_message_store_release(struct qsi_message_store *messages, struct qsi_dirty_set *set);

/* ---- reading ---- */

/* Reads one record into data, which has room for qsi_body_record_bytes(ref): the envelope begins at
 * data + QSI_BODY_HEADER_BYTES, and the body follows it.  The record is checked completely.
 * QS_ECORRUPT has file and offset, and data is then undefined.  Threads: any, without the owner's
 * lock. */
qs_status qsi_message_store_read(struct qsi_message_store *messages, const struct qsi_body_ref *ref,
                                 void *data, qs_error *error) QS_MUST_CHECK;

/* The same for a body that may be dead: also searches generations that compaction replaced and no
 * checkpoint has removed yet. */
qs_status qsi_message_store_read_dead(struct qsi_message_store *messages,
                                      const struct qsi_body_ref *ref, void *data,
                                      qs_error *error) QS_MUST_CHECK;

/* ---- space ---- */

/* Whether qsi_message_store_maintain would do something. */
bool qsi_message_store_needs_maintenance(struct qsi_message_store *messages);
/* For a background thread, without the owner's lock: creates the next file before it is needed, and
 * truncates full ones.  It does nothing before the first body.  After a failure everything stays
 * usable; try again later.  Threads: one at a time in this and in settle. */
qs_status qsi_message_store_maintain(struct qsi_message_store *messages,
                                     qs_error *error) QS_MUST_CHECK;
/* For an orderly close, after the last sync: also truncates the current file, and removes an unused
 * next one.  A later reserve starts a new file. */
qs_status qsi_message_store_settle(struct qsi_message_store *messages,
                                   qs_error *error) QS_MUST_CHECK;
struct qsi_message_space {
    uint64_t file_count;   /* files that are not doomed */
    uint64_t live_bytes;   /* of bodies with references */
    uint64_t total_bytes;  /* of the files */
    uint64_t doomed_bytes; /* of dead files and replaced generations: not in the other counts */
};
/* Looks at each file. */
void qsi_message_store_space(struct qsi_message_store *messages, struct qsi_message_space *out);
/* The space's doomed_bytes, which are kept: for each publish. */
uint64_t qsi_message_store_doomed_bytes(const struct qsi_message_store *messages);
/* Whether a file is settled, so that a checkpoint which names it says that recovery need not sync
 * it.  False, too: there is no such file. */
bool qsi_message_store_has_settled(struct qsi_message_store *messages, struct qsi_message_id id);
/* Bytes of records written by this session, headers and padding included. */
uint64_t qsi_message_store_bytes_written(struct qsi_message_store *messages);

/* Debug builds: asserts, with or without the owner's lock, that reference counts, files and lists
 * agree.  Release builds do nothing. */
#ifdef NDEBUG
#define qsi_message_store_check_counts(messages) ((void)(messages))
#else
void qsi_message_store_check_counts(struct qsi_message_store *messages);
#endif

#endif
