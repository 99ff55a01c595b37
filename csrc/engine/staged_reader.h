/* A staged file that is open: for its readers, and for adopting it. */
#ifndef QSI_STAGED_READER_H
#define QSI_STAGED_READER_H

#include "qstore/adopt.h"

#include "block_read.h"
#include "buf.h"
#include "staged_file.h"

struct qs_staged_reader {
    qs_env *env;
    qs_dir *dir; /* NULL: the caller's */
    char name[QS_NAME_BYTES_MAX + 1];
    struct qsi_block_dir *blocks;
    struct qsi_block_reader *reader;
    struct qsi_staged staged;
    struct qsi_buf routes; /* qsi_staged_next_route */
    struct qsi_block_entry *entries;
    uint32_t next; /* of the entries */
};

/* The caller keeps dir, open. */
qs_status qsi_staged_reader_open_in(struct qs_staged_reader **reader_out, qs_env *env, qs_dir *dir,
                                    const char *name, qs_error *error) QS_MUST_CHECK;

/* ---- to be published ---- */

/* The rows of a block.  Properties that all of them have in common are separate, not columns. */
struct qsi_staged_batch {
    struct ArrowSchema schema;
    struct ArrowArray array;
    struct qsi_buf properties; /* encoded; empty: rows have their own, or none */
    /* the columns for publishing: without one that it does not know */
    struct ArrowSchema shown_schema;
    struct ArrowArray shown_array;
};

/* The next block.  REQUIRES an empty batch: zeroed, or cleared.  QS_EEMPTY: there is no other. */
qs_status qsi_staged_reader_next_batch(qs_staged_reader *reader, struct qsi_staged_batch *batch,
                                       qs_error *error) QS_MUST_CHECK;
void qsi_staged_batch_clear(struct qsi_staged_batch *batch);
void qsi_staged_batch_fini(struct qsi_staged_batch *batch); /* an empty one is fine */

#endif
