/* MANIFEST: the identity of a store, and where its journal begins (docs/FORMAT.md, "MANIFEST").
 *
 * Each open of a store writes its journal in a new session, with a new salt and in a new file.  The
 * manifest lists the sessions, so the expected salt of a file does not come from the file itself.
 * The end of a session that was cut off is recorded once, before anything is journalled after it.
 *
 * Sessions are numbered, and a journal file has the number of its session, so a MANIFEST that is
 * older than the journal is detected (scan.h).  A store whose creation is not finished has a
 * MANIFEST without sessions: without a MANIFEST there never was a file.
 *
 * The manifest also names the checkpoint.  The content of the journal before the checkpoint's LSN
 * is in other files, and the first session begins at the journal file with that LSN.  A checkpoint
 * is valid once a manifest that names it is durable. */
#ifndef QSI_MANIFEST_H
#define QSI_MANIFEST_H

#include "qstore/env.h"
#include "qstore/status.h"

#include "file_head.h"

#include <stdbool.h>
#include <stdint.h>

struct qsi_session {
    uint64_t salt;       /* of its first file */
    uint64_t base_lsn;   /* where it begins, which is the end of the previous session */
    uint32_t first_file; /* durable, with its header, before a manifest names the session */
    bool after_crash;    /* the previous session was not closed, so its deliveries are not known */
};

struct qsi_manifest {
    uint8_t uuid[QSI_UUID_BYTES];
    uint32_t segment_entries; /* fixed at creation */
    uint32_t read_features;   /* of a later version: a reader may ignore them, a writer may not */
    /* Written by a build with streams: their directory was durable before. */
    bool has_streams;
    uint64_t clock_us; /* the store's clock; 0: not known */
    bool clean;        /* closed in order: the journal ends exactly at end_lsn */
    /* A commit after end_lsn failed: the journal ends there, even if later bytes can be read. */
    bool failed;
    uint64_t end_lsn;
    uint64_t checkpoint_number; /* 0: there is none, and the next three are not set */
    uint64_t checkpoint_lsn;    /* the checkpoint has the content of the journal before this */
    uint64_t checkpoint_bytes;  /* of the checkpoint's file, and their checksum */
    uint32_t checkpoint_crc;
    uint64_t session_number; /* of the last session: the number of opens of the store */
    struct qsi_session *sessions;
    uint32_t session_count; /* 0: the store is being created */
};

/* Whether the manifest has the end of the last session. */
static inline bool qsi_manifest_is_ended(const struct qsi_manifest *manifest)
{
    return manifest->clean || manifest->failed;
}

/* The journal before this LSN is not needed. */
static inline uint64_t qsi_manifest_needed_from(const struct qsi_manifest *manifest)
{
    return manifest->checkpoint_number != 0 ? manifest->checkpoint_lsn : 0;
}

void qsi_manifest_fini(struct qsi_manifest *manifest);
/* QS_ENOENT: no MANIFEST.  QS_EVERSION, QS_ECORRUPT. */
qs_status qsi_manifest_load(struct qsi_manifest *manifest_out, qs_env *env, qs_dir *root,
                            qs_error *error) QS_MUST_CHECK;
/* Durable when it returns QS_OK; otherwise either the old or the new MANIFEST exists. */
qs_status qsi_manifest_store(const struct qsi_manifest *manifest, qs_env *env, qs_dir *root,
                             qs_error *error) QS_MUST_CHECK;
/* Appends a session; the caller sets its number. */
qs_status qsi_manifest_add_session(struct qsi_manifest *manifest,
                                   const struct qsi_session *session) QS_MUST_CHECK;
/* Makes start, a later place in the last session, the begin of the journal: what is before it is
 * not needed any more.  REQUIRES a session. */
void qsi_manifest_begin_at(struct qsi_manifest *manifest, const struct qsi_session *start);

#endif
