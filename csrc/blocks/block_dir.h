/* Inside the floor: the directory of block files, and one open file. */
#ifndef QSI_BLOCK_DIR_H
#define QSI_BLOCK_DIR_H

#include "block_format.h"
#include "file_head.h"

#include <stdatomic.h>
#include <stdint.h>

struct qsi_block_dir {
    qs_env *env;
    qs_dir *dir;
    uint8_t uuid[QSI_UUID_BYTES];
    const char *label, *suffix;
    const char *name; /* NULL: names consist of owner and number */
    /* There are names created after the last sync of the directory, or perhaps before the open. */
    atomic_bool has_new_names;
    bool sync_failed; /* atomic: the kernel may report an error to one handle only */
};

void qsi_block_dir_name(char name_out[QSI_BLOCK_NAME_BYTES], const struct qsi_block_dir *blocks,
                        const struct qsi_block_file *file);

/* Calls fdatasync.  QS_EIO, too, after an earlier failure for any file: the lost bytes may be in
 * this one, and a second sync would not report that. */
qs_status qsi_block_sync_handle(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                                qs_file *handle, qs_error *error) QS_MUST_CHECK;

/* Puts the file's name in front of the text; a full disk becomes QS_ESTORE_FULL, a missing file
 * damage. */
qs_status qsi_block_fail(qs_error *error, qs_status status, const struct qsi_block_dir *blocks,
                         const struct qsi_block_file *file);
/* QS_ECORRUPT at an offset of the file. */
qs_status qsi_block_damaged(qs_error *error, const struct qsi_block_dir *blocks,
                            const struct qsi_block_file *file, uint64_t at, const char *what);

/* Opens an existing file, and checks its header and length.  flags: those of qs_env.open. */
qs_status qsi_block_open(const struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                         uint32_t flags, qs_file **handle_out, qs_error *error) QS_MUST_CHECK;

/* Reads exactly bytes; QS_ECORRUPT: the file ends before. */
qs_status qsi_block_read_at(const struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                            qs_file *handle, void *data, size_t bytes, uint64_t at,
                            qs_error *error) QS_MUST_CHECK;

#endif
