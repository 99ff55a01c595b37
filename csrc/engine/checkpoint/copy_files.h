/* The files of a copy of a store: how they are copied, in which order, and made durable.
 *
 * MANIFEST comes last, when all others are durable: a directory without it is no store. */
#ifndef QSI_COPY_FILES_H
#define QSI_COPY_FILES_H

#include "qstore/store.h"

#include "manifest.h"
#include "store.h"

enum qsi_copy_folder {
    QSI_COPY_JOURNAL,
    QSI_COPY_CHECKPOINT,
    QSI_COPY_INDEX,
    QSI_COPY_MESSAGES,
    QSI_COPY_STREAMS,
    QSI_COPY_TRANSIENT, /* stays empty */
    QSI_COPY_FOLDERS
};

/* The name of a file: for a block file its owner and number, for a message file its number and
 * generation. */
struct qsi_copy_sealed {
    uint64_t folder;
    uint64_t major;
    uint64_t minor;
};

struct qsi_copy {
    struct qs_store *store;
    const char *path;
    qs_copy_goes_on goes_on; /* NULL: it does */
    void *context;
    qs_dir *root;
    qs_dir *from[QSI_COPY_FOLDERS]; /* the store's own */
    qs_dir *to[QSI_COPY_FOLDERS];
    uint8_t *piece;
    struct qsi_copy_sealed *sealed; /* ascending */
    uint32_t sealed_count, sealed_capacity;
    struct qsi_manifest manifest;
    qs_copied copied;
};

/* All of them without the store's lock, in this order.  After a failure the files made so far
 * stay. */

/* Makes the directories.  QS_EEXIST: the directory at path is not empty. */
qs_status qsi_copy_begin(struct qsi_copy *copy, qs_error *error) QS_MUST_CHECK;
/* Notes which block files and message files never change any more.  The next checkpoint names them
 * as sealed, or settled, if at all, so no store writes to a file that two stores have. */
qs_status qsi_copy_sealed(struct qsi_copy *copy, qs_error *error) QS_MUST_CHECK;
/* Copies MANIFEST, in memory, and the journal from the file that it names to last. */
qs_status qsi_copy_journal(struct qsi_copy *copy, uint32_t last, qs_error *error) QS_MUST_CHECK;
/* Copies the checkpoint and the files that it names, which no other checkpoint replaces meanwhile.
 * Noted files are linked, and not before: the earlier checkpoint may name a file as growing that
 * was sealed since, and recovery from it writes to that file, which must not have a second name
 * then. */
qs_status qsi_copy_rest(struct qsi_copy *copy, qs_error *error) QS_MUST_CHECK;
/* When it returns QS_OK, everything is durable, and a store. */
qs_status qsi_copy_end(struct qsi_copy *copy, qs_error *error) QS_MUST_CHECK;
void qsi_copy_fini(struct qsi_copy *copy);

#endif
