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
 *   count     under it: references are added before mark, and dropped one by one
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

#include "buf.h"
#include "file_head.h"
#include "message_format.h"
#include "slice.h"
#include "thread_safety.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QSI_BODY_PARTS_MAX 15 /* of one write */

struct qsi_message_store; /* opaque */
struct qsi_message_file;  /* opaque */
struct qsi_compaction;    /* opaque */

struct qsi_message_store_options {
    /* 64 KiB at least; a larger record gets a file of its own.  Where space is short files are
     * smaller */
    uint64_t file_bytes;
    uint32_t handle_max; /* files held open for reading; 1 at least */
};
#define QSI_MESSAGE_STORE_OPTIONS_DEFAULT \
    ((struct qsi_message_store_options){64u * 1024 * 1024, 64})

/* A reserved place; lasts until mark or abandon and keeps its file open. */
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

/* So much of the disk is to stay free when files are made for new bodies: for what others of the
 * store must be able to do. */
void qsi_message_store_leave_free(struct qsi_message_store *store, uint64_t bytes);

/* ---- recovery ---- */

/* QS_ECORRUPT unless the file is there and large enough for the record: call it before memory is
 * allocated for a reference that came from a file. */
qs_status qsi_message_store_locate(struct qsi_message_store *store, const struct qsi_body_ref *ref,
                                   qs_error *error) QS_MUST_CHECK;
/* Verifies the whole record as a read does, in bounded memory. */
qs_status qsi_message_store_check(struct qsi_message_store *store, const struct qsi_body_ref *ref,
                                  qs_error *error) QS_MUST_CHECK;

/* ---- reference counts ----
 *
 * Each body has two counts: of the references from durable queues, which checkpoints record and
 * the journal behind them repeats, and of those from queues that end with the process.  A body
 * without references is garbage; a file without any is dead (see qsi_message_store_snapshot). */

/* The most references that a body may have of either kind.  A count that would pass it stays where
 * it is for good: such a body is never given back, and never lost. */
#define QSI_BODY_REFS_MAX 65534u

/* Neither can fail: room for a body's counts is made when its place is
 * reserved, or by note.  A reference to a file that is gone, or to file 0, is ignored. */
void qsi_message_store_add_refs(struct qsi_message_store *store, const struct qsi_body_ref *ref,
                                uint32_t durable, uint32_t transient) QSI_REQUIRES(qsi_store_mutex);
void qsi_message_store_drop_ref(struct qsi_message_store *store, const struct qsi_body_ref *ref,
                                bool transient);
/* Recovery, for every reference that the journal brings, before it is added: makes room for its
 * counts and remembers how far its file reaches.  The file may be missing: only retain_counted
 * knows whether anybody needs it.  QS_ENOMEM, or what looking at the file's size came to. */
qs_status qsi_message_store_note(struct qsi_message_store *store, const struct qsi_body_ref *ref,
                                 qs_error *error) QS_MUST_CHECK;

/* ---- checkpoints ----
 *
 * A checkpoint holds the durable counts as of a position in the journal.  A file that nobody
 * refers to any more, and a generation that compaction replaced, stay until a checkpoint that does
 * not name them is durable: before that, recovery may need them.  So:
 *
 *   snapshot   under the owner's lock: the records, and what is dead at this moment is sealed
 *   unseal     without it, when the checkpoint is durable: what was sealed is removed
 *
 *   restore, note, retain_counted, trim_counted: at the next open, in this order */

/* REQUIRES that nothing is sealed.  Appends a record of type
 * QSI_RECORD_MESSAGE_FILE for each file with durable references, and adds their number to
 * *record_count_io.  QS_ENOMEM: nothing was appended and nothing sealed. */
qs_status qsi_message_store_snapshot(struct qsi_message_store *store, struct qsi_buf *out,
                                     uint32_t *record_count_io, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Without the owner's lock.  durable: removes what was sealed, except files that are being read or
 * synced at this moment, which wait for the next checkpoint; so does what could not be removed,
 * and the first failure is the one reported.  Else the checkpoint was given up, and nothing is
 * removed. */
qs_status qsi_message_store_unseal(struct qsi_message_store *store, bool durable,
                                   qs_error *error) QS_MUST_CHECK;

/* One record of the checkpoint.  QS_ECORRUPT when it makes no sense; a missing file is no error
 * yet.  REQUIRES a whole record: qsi_record_fits. */
qs_status qsi_message_store_restore(struct qsi_message_store *store, const uint8_t *record,
                                    qs_error *error) QS_MUST_CHECK;
/* After the replay: files with live bodies are there, are those that the checkpoint names, and
 * reach their end, else QS_ECORRUPT; those that the checkpoint did not call settled are synced,
 * because what recovery read may have been in the page cache only.  RETAIN_JUDGE: the same checks,
 * and nothing is written or synced.  RETAIN_SALVAGE: nothing is checked, and what is there stays
 * there for this session.  REQUIRES nothing reserved yet. */
enum qsi_retain { QSI_RETAIN, QSI_RETAIN_JUDGE, QSI_RETAIN_SALVAGE };
qs_status qsi_message_store_retain_counted(struct qsi_message_store *store, enum qsi_retain how,
                                           qs_error *error) QS_MUST_CHECK;
/* When it is written down where the journal ends: files without live bodies and generations that
 * do not count are removed, those that were not settled lose what is behind their end.  REQUIRES
 * retain_counted, and nothing reserved since.  After a salvage: does nothing. */
qs_status qsi_message_store_trim_counted(struct qsi_message_store *store,
                                         qs_error *error) QS_MUST_CHECK;

/* ---- compaction ----
 *
 * A file with much garbage is written anew, live records only, as its next generation.  References
 * hold: they name a slot, which a table in the new file leads to.  One job at a time per file, any
 * number of readers meanwhile. */

/* A job for the file that it is worth most for: settled, more than half
 * garbage, in no other job.  *job_out NULL: none is.  It must end in compact_end. */
qs_status qsi_message_store_compact_begin(struct qsi_message_store *store,
                                          struct qsi_compaction **job_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Without it: writes the new generation, and syncs it and its name.  Records are verified; one that
 * is damaged or not found is left out, and readers of it get QS_ECORRUPT as before.  A failure
 * leaves all as it was; after QS_ECORRUPT the file is not tried again. */
qs_status qsi_message_store_compact_run(struct qsi_message_store *store, struct qsi_compaction *job,
                                        qs_error *error) QS_MUST_CHECK;
/* Done, and run answered QS_OK: the new generation takes over, readers
 * under way go on with the old one, and that one goes with the next checkpoint.  Else the new file
 * is removed.  Frees the job; NULL is fine. */
void qsi_message_store_compact_end(struct qsi_message_store *store, struct qsi_compaction *job,
                                   bool done) QSI_REQUIRES(qsi_store_mutex);

/* ---- writing ---- */

/* Blocks for the creation of a file when none was made ahead.
 * QS_ESTORE_FULL: no space, nothing changed; QS_EIO, QS_ENOMEM: likewise nothing changed. */
qs_status qsi_message_store_reserve(struct qsi_message_store *store, uint32_t envelope_bytes,
                                    uint32_t body_bytes, struct qsi_place *place_out,
                                    qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* parts: the envelope followed by the body, envelope_bytes + body_bytes in all, in at most
 * QSI_BODY_PARTS_MAX parts.  Others may change them meanwhile: each byte is read once, and what is
 * written is what was checksummed.  A failure (QS_ESTORE_FULL, QS_EIO, QS_ENOMEM) leaves the place
 * undefined: abandon it. */
qs_status qsi_message_store_write(struct qsi_message_store *store, const struct qsi_place *place,
                                  const qs_part *parts, size_t part_count,
                                  struct qsi_body_ref *ref_out, qs_error *error) QS_MUST_CHECK;
/* The same for parts that nobody changes meanwhile: they are written from where they lie. */
qs_status qsi_message_store_write_constant(struct qsi_message_store *store,
                                           const struct qsi_place *place, const qs_part *parts,
                                           size_t part_count, struct qsi_body_ref *ref_out,
                                           qs_error *error) QS_MUST_CHECK;
/* The place is written and about to be named: its file is in the next set.  Ends the place. */
void qsi_message_store_mark(struct qsi_message_store *store, struct qsi_place *place);
/* Nothing will name the place.  Ends it; a zeroed or ended place is fine. */
void qsi_message_store_abandon(struct qsi_message_store *store, struct qsi_place *place);

/* ---- packs: small bodies, many at a time ---- */

struct qsi_pack_body {
    struct qsi_slice exchange; /* 255 bytes at most; so is key */
    struct qsi_slice key;
    struct qsi_slice properties;
    struct qsi_slice body;
};

/* Without the owner's lock.  Writes count bodies, 1 or more and about 1 MiB together, with their
 * envelopes behind each other, with one write.  No counts yet: the owner, under its lock, adds the
 * references and then marks the place, or abandons it.  QS_ENOMEM, QS_ESTORE_FULL, QS_EIO: there is
 * no place. */
qs_status qsi_message_store_write_pack(struct qsi_message_store *store,
                                       const struct qsi_pack_body *bodies, uint32_t count,
                                       struct qsi_body_ref *refs_out, struct qsi_place *place_out,
                                       qs_error *error) QS_MUST_CHECK;
/* The name of the file that takes the next record; false: there is none. */
bool qsi_message_store_written_name(struct qsi_message_store *store,
                                    char name_out[QSI_MESSAGE_NAME_BYTES]);
/* Without the owner's lock: fdatasync of each file with packs that were marked and not synced.  No
 * commit's set has them, so before a checkpoint names them, and before settle, this is to be
 * called.  A failure is final; QS_ECORRUPT: a file with packs has no name any more. */
qs_status qsi_message_store_sync_packs(struct qsi_message_store *store,
                                       qs_error *error) QS_MUST_CHECK;

/* Is there a body that the next set has to sync? */
bool qsi_message_store_is_dirty(struct qsi_message_store *store);
/* REQUIRES that no other set is out.  set_out must end in sync or release. */
void qsi_message_store_dirty_take(struct qsi_message_store *store, struct qsi_dirty_set *set_out)
    QSI_REQUIRES(qsi_store_mutex);
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

/* The same of a body that may be dead: generations that compaction replaced, and that no checkpoint
 * has removed yet, are looked into as well. */
qs_status qsi_message_store_read_dead(struct qsi_message_store *store,
                                      const struct qsi_body_ref *ref, void *data,
                                      qs_error *error) QS_MUST_CHECK;

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
struct qsi_message_space {
    uint64_t file_count;   /* files that are not doomed */
    uint64_t live_bytes;   /* of bodies with references */
    uint64_t total_bytes;  /* of the files */
    uint64_t doomed_bytes; /* of dead files and replaced generations: in neither of the others */
};
void qsi_message_store_space(struct qsi_message_store *store, struct qsi_message_space *out);
/* Nobody writes to this file any more, and a checkpoint from now on, where it names the file, says
 * that recovery need not either.  False, too: there is no such file. */
bool qsi_message_store_has_settled(struct qsi_message_store *store, struct qsi_message_id id);
/* Bytes of records written by this session, headers and padding included. */
uint64_t qsi_message_store_bytes_written(struct qsi_message_store *store);

/* Debug builds: asserts, without the owner's lock or with it, that reference counts, files and
 * lists agree.  In release builds it is nothing. */
#ifdef NDEBUG
#define qsi_message_store_check_counts(store) ((void)(store))
#else
void qsi_message_store_check_counts(struct qsi_message_store *store);
#endif

#endif
