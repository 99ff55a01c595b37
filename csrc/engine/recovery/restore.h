/* The checkpoint at open. */
#ifndef QSI_RESTORE_H
#define QSI_RESTORE_H

#include "checkpoint_format.h"
#include "store.h"
#include "thread_safety.h"

/* Loads the checkpoint that the manifest names, if it does. */
qs_status qsi_restore(struct qs_store *store, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
    QSI_REQUIRES(qsi_manifest_mutex) QS_MUST_CHECK;
/* Files that an earlier session left behind. */
struct qsi_leftovers {
    struct qsi_buf segments; /* of queues: struct qsi_segment_file */
    struct qsi_buf blocks;   /* of streams: struct qsi_block_file */
};
/* The files of queues and streams that the checkpoint does not name.  Called right after it was
 * restored. */
qs_status qsi_list_leftovers(struct qs_store *store, struct qsi_leftovers *leftovers_out,
                             qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Removes those that were not made again meanwhile, checkpoints that are not valid, and transient
 * files; salvage removes only the last. */
qs_status qsi_remove_leftovers(struct qs_store *store, const struct qsi_leftovers *leftovers,
                               qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* The bytes of the checkpoint that the manifest names, with the right checksum and header; the
 * caller frees them with qsi_free.  REQUIRES that it names one. */
qs_status qsi_checkpoint_load(qs_env *env, qs_dir *dir, const struct qsi_manifest *manifest,
                              struct qsi_checkpoint_header *header_out, uint8_t **data_out,
                              size_t *bytes_out, qs_error *error) QS_MUST_CHECK;

#endif
