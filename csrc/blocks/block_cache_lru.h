/* The LRU lists of the cache: items by key and by age.  Everything REQUIRES the cache's mutex. */
#ifndef QSI_BLOCK_CACHE_LRU_H
#define QSI_BLOCK_CACHE_LRU_H

#include "block_index.h"
#include "block_view.h"
#include "budget.h"
#include "le.h"
#include "list.h"
#include "lock.h"
#include "map.h"
#include "thread_safety.h"

#define QSI_CACHE_KEY_BYTES 32u
#define QSI_CACHE_SPARES 4u
#define QSI_CACHE_SPARE_PART 4u /* part of the cache that spare chunks may take in addition */

enum qsi_cache_lru_kind { QSI_LRU_BLOCKS, QSI_LRU_INDEXES, QSI_LRU_HANDLES, QSI_LRU_COUNT };

QSI_LOCK_CLASS(qsi_block_cache_mutex); /* struct qsi_block_cache.mutex */
#define GUARDED QSI_GUARDED_BY(qsi_block_cache_mutex)

/* A cached item.  Its content does not change after loading, and its users read it without the
 * mutex. */
struct qsi_cached_item {
    struct qsi_list in_lru GUARDED; /* in `items` or `passing` */
    uint8_t key[QSI_CACHE_KEY_BYTES];
    uint64_t weight GUARDED; /* bytes; for a handle 1 */
    uint32_t users GUARDED;  /* threads that load or use it */
    bool is_loading GUARDED;
    bool is_passing GUARDED;   /* it was requested once */
    bool is_forgotten GUARDED; /* not in the list any more: its last user frees it */
    struct qsi_block_view view;
    struct qsi_block_index *index;
    qs_file *handle;
};

/* An LRU list.  Items requested once are evicted first: a lone reader requests each block once, and
 * reusing a few chunks keeps them in the processor's cache. */
struct qsi_cache_lru {
    struct qsi_map map GUARDED;                     /* key to item */
    struct qsi_list items GUARDED, passing GUARDED; /* both in order of use, least recent first */
    uint64_t weight GUARDED, weight_max;
    uint64_t passing_weight GUARDED, passing_max; /* of the items in `passing` */
};

struct qsi_block_cache {
    struct qsi_block_dir *blocks;
    struct qsi_budget *budget;
    struct qsi_mutex mutex;
    struct qsi_cond loaded; /* an item was loaded, or could not be */
    struct qsi_cache_lru lrus[QSI_LRU_COUNT];
    struct qsi_chunk *spare[QSI_CACHE_SPARES] GUARDED;    /* chunks to reuse, or NULL */
    uint64_t hits GUARDED, misses GUARDED, waits GUARDED; /* of blocks */
    uint64_t read_bytes GUARDED;
};
#undef GUARDED

static inline void qsi_block_cache_lock(struct qsi_block_cache *cache)
    QSI_ACQUIRES(qsi_block_cache_mutex) QSI_UNCHECKED
{
    qsi_mutex_lock(&cache->mutex);
}

static inline void qsi_block_cache_unlock(struct qsi_block_cache *cache)
    QSI_RELEASES(qsi_block_cache_mutex) QSI_UNCHECKED
{
    qsi_mutex_unlock(&cache->mutex);
}

/* Declares that the mutex is not needed: no other thread knows the cache, which is being created or
 * destroyed. */
static inline void qsi_block_cache_is_private(const struct qsi_block_cache *cache)
    QSI_ASSUMES(qsi_block_cache_mutex)
{
    (void)cache;
}

/* The key of an object at a place in a file. */
static inline void qsi_cache_key(uint8_t key_out[QSI_CACHE_KEY_BYTES],
                                 const struct qsi_block_file *file, uint64_t what)
{
    qsi_put_u64(key_out, file->owner);
    qsi_put_u64(key_out + 8, file->number);
    qsi_put_u64(key_out + 16, file->salt);
    qsi_put_u64(key_out + 24, what);
}

/* Finds an item, or creates a new one, which the caller must load: *is_new_out.  NULL: out of
 * memory.  The mutex is released while another thread loads it. */
struct qsi_cached_item *qsi_cache_find(struct qsi_block_cache *cache, enum qsi_cache_lru_kind kind,
                                       const uint8_t key[QSI_CACHE_KEY_BYTES], bool *is_new_out)
    QSI_REQUIRES(qsi_block_cache_mutex);
/* Called by the thread that loaded the item; a failure removes it from its list.  Waiting threads
 * search again.  The item may be freed by this call. */
void qsi_cache_end_loading(struct qsi_block_cache *cache, enum qsi_cache_lru_kind kind,
                           struct qsi_cached_item *item, uint64_t weight, bool done)
    QSI_REQUIRES(qsi_block_cache_mutex);
/* REQUIRES that the item is in no list and has no user. */
void qsi_cache_free_item(struct qsi_block_cache *cache, struct qsi_cached_item *item)
    QSI_REQUIRES(qsi_block_cache_mutex);
/* Evicts the least recently used items, first those in `passing`, until the list has at most
 * weight_max; items in use stay.  Returns the evicted weight. */
uint64_t qsi_cache_shrink(struct qsi_block_cache *cache, enum qsi_cache_lru_kind kind,
                          uint64_t weight_max) QSI_REQUIRES(qsi_block_cache_mutex);
/* Evicts all items of the key's file, from all lists. */
void qsi_cache_forget(struct qsi_block_cache *cache, const uint8_t key[QSI_CACHE_KEY_BYTES])
    QSI_REQUIRES(qsi_block_cache_mutex);

/* Takes an unused chunk of about that size; NULL: there is none. */
struct qsi_chunk *qsi_cache_take_spare(struct qsi_block_cache *cache, size_t bytes)
    QSI_REQUIRES(qsi_block_cache_mutex);
void qsi_cache_drop_spares(struct qsi_block_cache *cache) QSI_REQUIRES(qsi_block_cache_mutex);

#endif
