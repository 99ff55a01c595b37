/* Missing files, and what the other files say about them. */
#ifndef QSI_LOST_FILES_H
#define QSI_LOST_FILES_H

#include "store.h"

/* A new store begins in an empty directory.  QS_ESTORE_NOT_FOUND: there is no MANIFEST, and files
 * that are not a store's. */
qs_status qsi_check_nothing_else(qs_env *env, qs_dir *root, qs_error *error) QS_MUST_CHECK;
/* If there is no MANIFEST: QS_ECORRUPT if there was one. */
qs_status qsi_check_never_was(qs_env *env, qs_dir *root, qs_error *error) QS_MUST_CHECK;
/* The same; else QS_ESTORE_NOT_FOUND. */
qs_status qsi_fail_no_manifest(qs_env *env, qs_dir *root, qs_error *error) QS_MUST_CHECK;
/* MANIFEST has no session: QS_ESTORE_NOT_FOUND for an open that does not create. */
qs_status qsi_fail_not_created(qs_error *error) QS_MUST_CHECK;
/* A directory of a store that has a MANIFEST.  QS_ECORRUPT: it is missing. */
qs_status qsi_require_directory(qs_env *env, qs_dir *root, const char *name, qs_dir **dir_out,
                                qs_error *error) QS_MUST_CHECK;
/* Whether a checkpoint proves that MANIFEST is an older copy, or that the journal does not end at
 * end_lsn. */
qs_status qsi_check_checkpoints(qs_env *env, qs_dir *dir, const struct qsi_manifest *manifest,
                                uint64_t end_lsn, qs_error *error) QS_MUST_CHECK;

#endif
