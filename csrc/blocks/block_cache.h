/* Blocks, open files and indexes that readers share: of readers near each other one reads, and the
 * others wait for it and take what it read.
 *
 * A block is found by its file's owner, number and salt and by its place in it, so nothing stale is
 * ever found.  What the cache holds is counted in the budget (each chunk until its last reader is
 * done with it) and given up from the one that was used longest ago.  Blocks that were asked for
 * once have an eighth of the cache, so that a reader that is alone leaves the others theirs.
 *
 * Threads: any; it has a lock of its own, which is not held during input. */
#ifndef QSI_BLOCK_CACHE_H
#define QSI_BLOCK_CACHE_H

#include "qstore/status.h"

#include "block_read.h"
#include "budget.h"

#include <stdint.h>

struct qsi_block_cache; /* opaque */

struct qsi_block_cache_options {
    uint64_t bytes_max;        /* of blocks; 0: 32 MiB */
    uint32_t handle_max;       /* open files; 0: 32 */
    uint64_t index_bytes_max;  /* of indexes; 0: 4 MiB */
    struct qsi_budget *budget; /* NULL: nobody counts */
};
/* blocks is the caller's and outlives the cache. */
qs_status qsi_block_cache_create(struct qsi_block_cache **cache_out, struct qsi_block_dir *blocks,
                                 const struct qsi_block_cache_options *options,
                                 qs_error *error) QS_MUST_CHECK;
/* REQUIRES no call under way.  Views outlive it. */
void qsi_block_cache_destroy(struct qsi_block_cache *cache); /* NULL is fine */

qs_status qsi_block_cache_read(struct qsi_block_cache *cache, const struct qsi_block_file *file,
                               const struct qsi_block_entry *entry, struct qsi_block_view *view_out,
                               qs_error *error) QS_MUST_CHECK;
/* From the block, if it is here, else from the file. */
qs_status qsi_block_cache_read_dictionary(struct qsi_block_cache *cache,
                                          const struct qsi_block_file *file,
                                          const struct qsi_block_entry *entry,
                                          struct qsi_block_dictionary *dictionary_out,
                                          qs_error *error) QS_MUST_CHECK;

/* The index of a file: immutable, and the caller's reference. */
struct qsi_block_index {
    uint32_t refs; /* touched with atomics only */
    uint32_t count;
    struct qsi_block_entry entries[];
};
qs_status qsi_block_cache_read_index(struct qsi_block_cache *cache,
                                     const struct qsi_block_file *file,
                                     struct qsi_block_index **index_out,
                                     qs_error *error) QS_MUST_CHECK;
struct qsi_block_index *qsi_block_index_ref(struct qsi_block_index *index);
void qsi_block_index_unref(struct qsi_block_index *index); /* NULL is fine */
/* Of count entries, for the caller to fill in; NULL: out of memory. */
struct qsi_block_index *qsi_block_index_create(uint32_t count);

/* The file is about to be removed: its blocks, its index and its handle go. */
void qsi_block_cache_forget(struct qsi_block_cache *cache, const struct qsi_block_file *file);

struct qsi_block_cache_counts {
    uint64_t hits, misses, waits; /* of blocks */
    uint64_t read_bytes;
    uint64_t bytes; /* that are here now */
};
void qsi_block_cache_counts(struct qsi_block_cache *cache, struct qsi_block_cache_counts *out);

#endif
