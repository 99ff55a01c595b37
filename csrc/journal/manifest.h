/* MANIFEST: what a store is and where its journal begins (docs/FORMAT.md, "MANIFEST").
 *
 * Each open of a store writes its journal under a session of its own, with a new salt and in a new
 * file.  The manifest lists the sessions, so the salt that a reader expects of a file is not
 * that file's own word, and the end of a session that was cut off is written down, once, before
 * anything is journalled behind it.
 *
 * Sessions are counted: a journal file tells the number of its session, so that a MANIFEST which is
 * older than the journal shows (scan.h).  A store whose creation is under way has a MANIFEST
 * without sessions: with no MANIFEST at all there was never a file.
 *
 * It also names the checkpoint: what the journal says up to the checkpoint's LSN is in other files,
 * and the sessions begin at the journal file in which that LSN lies.  A checkpoint counts from when
 * a manifest that names it is durable. */
#ifndef QSI_MANIFEST_H
#define QSI_MANIFEST_H

#include "qstore/env.h"
#include "qstore/status.h"

#include "file_head.h"

#include <stdbool.h>
#include <stdint.h>

struct qsi_session {
    uint64_t salt;       /* of its first file */
    uint64_t base_lsn;   /* where it begins, and so where the one before it ends */
    uint32_t first_file; /* durable, with its header, before a manifest names the session */
    bool after_crash; /* the session before it was not closed: what it had delivered nobody knows */
};

struct qsi_manifest {
    uint8_t uuid[QSI_UUID_BYTES];
    uint32_t segment_entries; /* fixed at creation */
    uint32_t read_features; /* of a later version, which a reader may ignore and a writer may not */
    /* written by a build that knows streams: their directory was durable before */
    bool has_streams;
    uint64_t clock_us; /* what time it was, by the store's clock; 0: not known */
    bool clean;        /* closed in order: the journal ends at end_lsn and not before */
    /* a commit failed behind end_lsn: the journal ends there, whatever else can be read */
    bool failed;
    uint64_t end_lsn;
    uint64_t checkpoint_number; /* 0: there is none, and the next three say nothing */
    uint64_t checkpoint_lsn;    /* what the journal says before it is in the checkpoint */
    uint64_t checkpoint_bytes;  /* of the checkpoint's file, and their checksum */
    uint32_t checkpoint_crc;
    uint64_t session_number; /* of the last session: how often the store was opened */
    struct qsi_session *sessions;
    uint32_t session_count; /* 0: the store is being created */
};

/* Does the manifest say where the last session ends? */
static inline bool qsi_manifest_is_ended(const struct qsi_manifest *manifest)
{
    return manifest->clean || manifest->failed;
}

/* Before it nothing of the journal is needed. */
static inline uint64_t qsi_manifest_needed_from(const struct qsi_manifest *manifest)
{
    return manifest->checkpoint_number != 0 ? manifest->checkpoint_lsn : 0;
}

void qsi_manifest_fini(struct qsi_manifest *manifest);
/* QS_ENOENT: no MANIFEST.  QS_EVERSION, QS_ECORRUPT. */
qs_status qsi_manifest_load(struct qsi_manifest *manifest_out, qs_env *env, qs_dir *root,
                            qs_error *error) QS_MUST_CHECK;
/* Durable when it returns QS_OK; otherwise the old one or the new one stands. */
qs_status qsi_manifest_store(const struct qsi_manifest *manifest, qs_env *env, qs_dir *root,
                             qs_error *error) QS_MUST_CHECK;
/* Adds a session behind the others; its number is the caller's affair. */
qs_status qsi_manifest_add_session(struct qsi_manifest *manifest,
                                   const struct qsi_session *session) QS_MUST_CHECK;
/* Makes start, a later place in the last session, the place at which the journal begins: what
 * lies before it is not needed any more.  REQUIRES a session. */
void qsi_manifest_begin_at(struct qsi_manifest *manifest, const struct qsi_session *start);

#endif
