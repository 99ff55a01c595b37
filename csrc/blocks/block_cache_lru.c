/* The LRU lists of the cache: finding items, and evicting the least recently used ones.
 *
 * Invariants: an item that is being loaded is in its list and is not evicted; a waiting thread
 * searches for it again; a spare chunk has no other reference. */
#include "block_cache_lru.h"

#include "alloc.h"
#include "block_dir.h"
#include "check.h"

#include <string.h>

/* Keeps a chunk without other references for the next block: its pages are allocated already.  The
 * budget counts spare chunks like others, so their sum is limited to a part of the cache: large
 * bodies make blocks that are larger than the cache. */
static void keep_spare(struct qsi_block_cache *cache, struct qsi_chunk *chunk)
    QSI_REQUIRES(qsi_block_cache_mutex)
{
    uint64_t bytes_max = cache->lrus[QSI_LRU_BLOCKS].weight_max / QSI_CACHE_SPARE_PART;

    if (__atomic_load_n(&chunk->refs, __ATOMIC_ACQUIRE) == 1 &&
        chunk->capacity <= bytes_max / QSI_CACHE_SPARES) {
        for (uint32_t i = 0; i < QSI_CACHE_SPARES; i++) {
            if (cache->spare[i] == NULL) {
                cache->spare[i] = chunk;
                return;
            }
        }
    }
    qsi_chunk_unref(chunk);
}

struct qsi_chunk *qsi_cache_take_spare(struct qsi_block_cache *cache, size_t bytes)
{
    for (uint32_t i = 0; i < QSI_CACHE_SPARES; i++) {
        struct qsi_chunk *chunk = cache->spare[i];
        if (chunk != NULL && chunk->capacity >= bytes && chunk->capacity / 2 <= bytes) {
            cache->spare[i] = NULL;
            return chunk;
        }
    }
    return NULL;
}

void qsi_cache_drop_spares(struct qsi_block_cache *cache)
{
    for (uint32_t i = 0; i < QSI_CACHE_SPARES; i++) {
        qsi_chunk_unref(cache->spare[i]);
        cache->spare[i] = NULL;
    }
}

void qsi_cache_free_item(struct qsi_block_cache *cache, struct qsi_cached_item *item)
{
    QS_DCHECK(item->users == 0);
    if (item->view.chunk != NULL) {
        keep_spare(cache, item->view.chunk);
    }
    qsi_block_index_unref(item->index);
    cache->blocks->env->close(cache->blocks->env, item->handle);
    qsi_free(item);
}

/* Removes an item from its list; it is freed now, or by its last user. */
static void remove_item(struct qsi_block_cache *cache, enum qsi_cache_lru_kind kind,
                        struct qsi_cached_item *item) QSI_REQUIRES(qsi_block_cache_mutex)
{
    struct qsi_cache_lru *lru = &cache->lrus[kind];

    qsi_map_remove(&lru->map, item->key, QSI_CACHE_KEY_BYTES);
    qsi_list_remove(&item->in_lru);
    QS_ASSERT(lru->weight >= item->weight && !item->is_forgotten);
    lru->weight -= item->weight;
    QS_DCHECK(!item->is_passing || lru->passing_weight >= item->weight);
    lru->passing_weight -= item->is_passing ? item->weight : 0;
    item->is_forgotten = true;
    if (item->users == 0) {
        qsi_cache_free_item(cache, item);
    }
}

static void evict(struct qsi_block_cache *cache, enum qsi_cache_lru_kind kind,
                  struct qsi_list *items, const uint64_t *weight, uint64_t weight_max)
    QSI_REQUIRES(qsi_block_cache_mutex)
{
    struct qsi_list *node = items->next;

    while (*weight > weight_max && node != items) {
        struct qsi_cached_item *item = QSI_LIST_OWNER(node, struct qsi_cached_item, in_lru);
        node = node->next;
        if (!item->is_loading && item->users == 0) {
            remove_item(cache, kind, item);
        }
    }
}

uint64_t qsi_cache_shrink(struct qsi_block_cache *cache, enum qsi_cache_lru_kind kind,
                          uint64_t weight_max)
{
    struct qsi_cache_lru *lru = &cache->lrus[kind];
    uint64_t before = lru->weight;

    evict(cache, kind, &lru->passing, &lru->passing_weight, lru->passing_max);
    evict(cache, kind, &lru->passing, &lru->weight, weight_max);
    evict(cache, kind, &lru->items, &lru->weight, weight_max);
    QS_DCHECK(lru->weight <= before && lru->passing_weight <= lru->weight);
    return before - lru->weight;
}

static void use_again(struct qsi_cache_lru *lru, struct qsi_cached_item *item)
    QSI_REQUIRES(qsi_block_cache_mutex)
{
    if (item->is_passing) {
        item->is_passing = false;
        QS_DCHECK(lru->passing_weight >= item->weight);
        lru->passing_weight -= item->weight;
    }
    qsi_list_remove(&item->in_lru);
    qsi_list_push_back(&lru->items, &item->in_lru);
}

struct qsi_cached_item *qsi_cache_find(struct qsi_block_cache *cache, enum qsi_cache_lru_kind kind,
                                       const uint8_t key[QSI_CACHE_KEY_BYTES], bool *is_new_out)
{
    struct qsi_cache_lru *lru = &cache->lrus[kind];
    struct qsi_cached_item *item;

    QS_ASSERT_HELD(&cache->mutex);
    *is_new_out = false;
    for (;;) {
        item = qsi_map_get(&lru->map, key, QSI_CACHE_KEY_BYTES);
        if (item == NULL) {
            break;
        }
        if (!item->is_loading) {
            use_again(lru, item);
            return item;
        }
        cache->waits += kind == QSI_LRU_BLOCKS ? 1 : 0;
        (void)qsi_cond_wait(&cache->loaded, &cache->mutex, QSI_WAIT_FOREVER);
    }
    item = qsi_zalloc(sizeof *item);
    if (item == NULL) {
        return NULL;
    }
    memcpy(item->key, key, QSI_CACHE_KEY_BYTES);
    item->is_loading = true;
    item->is_passing = true;
    item->users = 1; /* the loading thread */
    if (qsi_map_put(&lru->map, item->key, QSI_CACHE_KEY_BYTES, item) != QS_OK) {
        qsi_free(item);
        return NULL;
    }
    qsi_list_push_back(&lru->passing, &item->in_lru);
    *is_new_out = true;
    return item;
}

void qsi_cache_end_loading(struct qsi_block_cache *cache, enum qsi_cache_lru_kind kind,
                           struct qsi_cached_item *item, uint64_t weight, bool done)
{
    struct qsi_cache_lru *lru = &cache->lrus[kind];

    QS_ASSERT(item->is_loading && item->users > 0);
    item->is_loading = false;
    item->users -= 1;
    if (item->is_forgotten) {
        if (item->users == 0) {
            qsi_cache_free_item(cache, item);
        }
    } else if (!done) {
        remove_item(cache, kind, item);
    } else {
        item->weight = weight;
        lru->weight += weight;
        lru->passing_weight += item->is_passing ? weight : 0;
        item->users += 1; /* it is still needed */
        qsi_cache_shrink(cache, kind, lru->weight_max);
        item->users -= 1;
    }
    qsi_cond_broadcast(&cache->loaded);
}

static void forget(struct qsi_block_cache *cache, enum qsi_cache_lru_kind kind,
                   struct qsi_list *items, const uint8_t key[QSI_CACHE_KEY_BYTES])
    QSI_REQUIRES(qsi_block_cache_mutex)
{
    struct qsi_list *node = items->next;

    while (node != items) {
        struct qsi_cached_item *item = QSI_LIST_OWNER(node, struct qsi_cached_item, in_lru);
        node = node->next;
        QS_DCHECK(!item->is_forgotten);
        if (memcmp(item->key, key, QSI_CACHE_KEY_BYTES - 8) == 0 && !item->is_loading) {
            remove_item(cache, kind, item);
        }
    }
}

void qsi_cache_forget(struct qsi_block_cache *cache, const uint8_t key[QSI_CACHE_KEY_BYTES])
{
    for (int kind = 0; kind < QSI_LRU_COUNT; kind++) {
        forget(cache, (enum qsi_cache_lru_kind)kind, &cache->lrus[kind].items, key);
        forget(cache, (enum qsi_cache_lru_kind)kind, &cache->lrus[kind].passing, key);
    }
}
