/* Inside the floor: reading blocks of an open file. */
#ifndef QSI_BLOCK_LOAD_H
#define QSI_BLOCK_LOAD_H

#include "block_file.h"
#include "block_view.h"

/* As qsi_block_reader_read and qsi_block_reader_read_dictionary. */
qs_status qsi_block_load(const struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                         qs_file *handle, const struct qsi_block_entry *entry,
                         struct qsi_chunk *room, struct qsi_block_view *view_out,
                         qs_error *error) QS_MUST_CHECK;
qs_status qsi_block_load_dictionary(const struct qsi_block_dir *blocks,
                                    const struct qsi_block_file *file, qs_file *handle,
                                    const struct qsi_block_entry *entry,
                                    struct qsi_block_dictionary *dictionary_out,
                                    qs_error *error) QS_MUST_CHECK;

#endif
