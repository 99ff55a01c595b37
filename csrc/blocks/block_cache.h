/* Blocks, open files and indexes shared by readers: of several readers at one place one reads from
 * the disk, and the others wait and share the result.
 *
 * The key of a block is its file's owner, number and salt and its place in the file, so a stale
 * block is never found.  The budget counts the cache's chunks, each until its last reader releases
 * it; the least recently used ones are evicted.  Blocks requested only once get an eighth of the
 * cache, so that a lone reader does not evict the blocks of others.
 *
 * Threads: any; the cache has its own lock, which is not held during input. */
#ifndef QSI_BLOCK_CACHE_H
#define QSI_BLOCK_CACHE_H

#include "qstore/status.h"

#include "block_index.h"
#include "block_view.h"
#include "budget.h"

#include <stdint.h>

struct qsi_block_cache; /* opaque */

struct qsi_block_cache_options {
    uint64_t bytes_max;        /* of blocks; 0: 32 MiB */
    uint32_t handle_max;       /* open files; 0: 32 */
    uint64_t index_bytes_max;  /* of indexes; 0: 4 MiB */
    struct qsi_budget *budget; /* NULL: not counted */
};
/* The caller owns blocks, which outlives the cache. */
qs_status qsi_block_cache_create(struct qsi_block_cache **cache_out, struct qsi_block_dir *blocks,
                                 const struct qsi_block_cache_options *options,
                                 qs_error *error) QS_MUST_CHECK;
/* REQUIRES that no call is running.  Views outlive the cache. */
void qsi_block_cache_destroy(struct qsi_block_cache *cache); /* NULL is fine */

qs_status qsi_block_cache_read(struct qsi_block_cache *cache, const struct qsi_block_file *file,
                               const struct qsi_block_entry *entry, struct qsi_block_view *view_out,
                               qs_error *error) QS_MUST_CHECK;
/* From the cached block, or else from the file. */
qs_status qsi_block_cache_read_dictionary(struct qsi_block_cache *cache,
                                          const struct qsi_block_file *file,
                                          const struct qsi_block_entry *entry,
                                          struct qsi_block_dictionary *dictionary_out,
                                          qs_error *error) QS_MUST_CHECK;

/* The caller gets a reference. */
qs_status qsi_block_cache_read_index(struct qsi_block_cache *cache,
                                     const struct qsi_block_file *file,
                                     struct qsi_block_index **index_out,
                                     qs_error *error) QS_MUST_CHECK;

/* Evicts the blocks, the index and the handle of a file that is about to be removed. */
void qsi_block_cache_forget(struct qsi_block_cache *cache, const struct qsi_block_file *file);

struct qsi_block_cache_counts {
    uint64_t hits, misses, waits; /* of blocks */
    uint64_t read_bytes;
    uint64_t bytes; /* in the cache now */
};
void qsi_block_cache_counts(struct qsi_block_cache *cache, struct qsi_block_cache_counts *out);

#endif
