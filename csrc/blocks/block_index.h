/* The index of a block file: where its blocks are, and which rows they have. */
#ifndef QSI_BLOCK_INDEX_H
#define QSI_BLOCK_INDEX_H

#include "block_file.h"

/* An index is immutable, and shared by reference. */
struct qsi_block_index {
    uint32_t refs; /* accessed only with atomics */
    uint32_t count;
    struct qsi_block_entry entries[];
};
struct qsi_block_index *qsi_block_index_ref(struct qsi_block_index *index);
void qsi_block_index_unref(struct qsi_block_index *index); /* NULL is fine */
/* Creates an index of count entries, for the caller to fill in; NULL: out of memory. */
struct qsi_block_index *qsi_block_index_create(uint32_t count);

/* The entry with the offset, or, in a gap, the first one after it; count if there is none. */
uint32_t qsi_block_entries_find(const struct qsi_block_entry *entries, uint32_t count,
                                uint64_t offset);
/* The entry with the first row at or after time_us, or the entry just before that row: the last one
 * that begins before time_us, or 0. */
uint32_t qsi_block_entries_find_time(const struct qsi_block_entry *entries, uint32_t count,
                                     uint64_t time_us);

/* ---- inside the floor ---- */

/* Reads block_count entries. */
qs_status qsi_block_load_index(const struct qsi_block_dir *blocks,
                               const struct qsi_block_file *file, qs_file *handle,
                               struct qsi_block_entry *entries_out, qs_error *error) QS_MUST_CHECK;
/* QS_ECORRUPT unless a file can have that many blocks.  Call it before allocating memory for
 * them. */
qs_status qsi_block_check_count(const struct qsi_block_dir *blocks,
                                const struct qsi_block_file *file, qs_error *error) QS_MUST_CHECK;

#endif
