/* The cache shared by readers.
 *
 * There are three LRU lists: blocks, indexes and open files.  Each finds items by key, and evicts
 * the least recently used ones when it is too large, first those requested once.  The mutex is not
 * held during input. */
#include "block_cache.h"

#include "alloc.h"
#include "block_cache_lru.h"
#include "block_dir.h"
#include "block_load.h"
#include "check.h"
#include "error.h"

#include <string.h>

#define BYTES_MAX_DEFAULT (UINT64_C(32) << 20)
#define INDEX_BYTES_MAX_DEFAULT (UINT64_C(4) << 20)
#define HANDLES_DEFAULT 32u
#define PASSING_PART 8u /* part of the cache for blocks requested once */

qs_status qsi_block_cache_create(struct qsi_block_cache **cache_out, struct qsi_block_dir *blocks,
                                 const struct qsi_block_cache_options *options, qs_error *error)
{
    struct qsi_block_cache *cache = qsi_zalloc(sizeof *cache);

    *cache_out = cache;
    if (cache == NULL) {
        return qsi_fail(error, QS_ENOMEM, "cache of blocks");
    }
    cache->blocks = blocks;
    cache->budget = options->budget != NULL ? qsi_budget_ref(options->budget) : NULL;
    qsi_mutex_init(&cache->mutex);
    qsi_cond_init(&cache->loaded);
    for (int kind = 0; kind < QSI_LRU_COUNT; kind++) {
        qsi_list_init(&cache->lrus[kind].items);
        qsi_list_init(&cache->lrus[kind].passing);
        cache->lrus[kind].passing_max = UINT64_MAX;
    }
    cache->lrus[QSI_LRU_BLOCKS].weight_max =
        options->bytes_max != 0 ? options->bytes_max : BYTES_MAX_DEFAULT;
    cache->lrus[QSI_LRU_BLOCKS].passing_max = cache->lrus[QSI_LRU_BLOCKS].weight_max / PASSING_PART;
    cache->lrus[QSI_LRU_INDEXES].weight_max =
        options->index_bytes_max != 0 ? options->index_bytes_max : INDEX_BYTES_MAX_DEFAULT;
    cache->lrus[QSI_LRU_HANDLES].weight_max =
        options->handle_max != 0 ? options->handle_max : HANDLES_DEFAULT;
    return QS_OK;
}

void qsi_block_cache_destroy(struct qsi_block_cache *cache)
{
    if (cache == NULL) {
        return;
    }
    qsi_block_cache_is_private(cache);
    for (int kind = 0; kind < QSI_LRU_COUNT; kind++) {
        qsi_cache_shrink(cache, (enum qsi_cache_lru_kind)kind, 0);
        QS_ASSERT(qsi_list_is_empty(&cache->lrus[kind].items) &&
                  qsi_list_is_empty(&cache->lrus[kind].passing));
        QS_DCHECK(cache->lrus[kind].weight == 0);
        qsi_map_fini(&cache->lrus[kind].map);
    }
    qsi_cache_drop_spares(cache);
    qsi_cond_fini(&cache->loaded);
    qsi_mutex_fini(&cache->mutex);
    qsi_budget_unref(cache->budget);
    qsi_free(cache);
}

/* ---- open files ---- */

/* REQUIRES the mutex, which is released meanwhile.  Several threads may use one handle at the same
 * time. */
static qs_status take_handle(struct qsi_block_cache *cache, const struct qsi_block_file *file,
                             struct qsi_cached_item **item_out, qs_error *error)
    QSI_REQUIRES(qsi_block_cache_mutex)
{
    uint8_t key[QSI_CACHE_KEY_BYTES];
    struct qsi_cached_item *item;
    qs_file *handle;
    qs_status status;
    bool is_new;

    qsi_cache_key(key, file, 0);
    *item_out = NULL;
    item = qsi_cache_find(cache, QSI_LRU_HANDLES, key, &is_new);
    if (item == NULL) {
        return qsi_block_fail(error, qsi_fail(error, QS_ENOMEM, "open files"), cache->blocks, file);
    }
    if (!is_new) {
        item->users += 1;
        *item_out = item;
        return QS_OK;
    }
    qsi_block_cache_unlock(cache);
    status = qsi_block_open(cache->blocks, file, QS_OPEN_READ, &handle, error);
    qsi_block_cache_lock(cache);
    QS_DCHECK(item->is_loading && item->users > 0);
    item->handle = handle;
    item->users += status == QS_OK ? 1 : 0; /* the caller, besides the loading thread */
    qsi_cache_end_loading(cache, QSI_LRU_HANDLES, item, 1, status == QS_OK);
    *item_out = status == QS_OK ? item : NULL;
    return status;
}

static void drop_handle(struct qsi_block_cache *cache, struct qsi_cached_item *item)
    QSI_REQUIRES(qsi_block_cache_mutex)
{
    QS_ASSERT(item->users > 0);
    item->users -= 1;
    if (item->is_forgotten && item->users == 0) {
        qsi_cache_free_item(cache, item);
    } else if (!item->is_forgotten) {
        qsi_cache_shrink(cache, QSI_LRU_HANDLES, cache->lrus[QSI_LRU_HANDLES].weight_max);
    }
}

/* ---- blocks ---- */

/* REQUIRES the mutex, which is released meanwhile. */
static qs_status load_block(struct qsi_block_cache *cache, const struct qsi_block_file *file,
                            const struct qsi_block_entry *entry, struct qsi_block_view *view_out,
                            qs_error *error) QSI_REQUIRES(qsi_block_cache_mutex)
{
    struct qsi_chunk *room = qsi_cache_take_spare(cache, qsi_block_chunk_bytes(entry->bytes));
    struct qsi_cached_item *handle;
    qs_status status = take_handle(cache, file, &handle, error);

    memset(view_out, 0, sizeof *view_out);
    if (status != QS_OK) {
        qsi_chunk_unref(room);
        return status;
    }
    qsi_block_cache_unlock(cache);
    status = qsi_block_load(cache->blocks, file, handle->handle, entry, room, view_out, error);
    if (status == QS_OK && cache->budget != NULL && view_out->chunk->budget == NULL) {
        qsi_chunk_charge(view_out->chunk, cache->budget);
    }
    qsi_block_cache_lock(cache);
    QS_DCHECK(handle->users > 0);
    drop_handle(cache, handle);
    cache->misses += 1;
    cache->read_bytes += status == QS_OK ? entry->bytes : 0;
    return status;
}

qs_status qsi_block_cache_read(struct qsi_block_cache *cache, const struct qsi_block_file *file,
                               const struct qsi_block_entry *entry, struct qsi_block_view *view_out,
                               qs_error *error)
{
    uint8_t key[QSI_CACHE_KEY_BYTES];
    struct qsi_cached_item *item;
    qs_status status = QS_OK;
    bool is_new;

    qsi_cache_key(key, file, entry->at);
    qsi_block_cache_lock(cache);
    item = qsi_cache_find(cache, QSI_LRU_BLOCKS, key, &is_new);
    if (item == NULL) { /* read without the cache */
        status = load_block(cache, file, entry, view_out, error);
    } else if (!is_new) {
        QS_DCHECK(item->view.chunk != NULL && item->view.first_offset == entry->first_offset);
        cache->hits += 1;
        *view_out = qsi_block_view_ref(&item->view);
    } else {
        status = load_block(cache, file, entry, view_out, error);
        if (status == QS_OK) {
            item->view = qsi_block_view_ref(view_out);
        }
        qsi_cache_end_loading(cache, QSI_LRU_BLOCKS, item,
                              status == QS_OK ? view_out->chunk->capacity : 0, status == QS_OK);
    }
    qsi_block_cache_unlock(cache);
    return status;
}

static void fill_dictionary(struct qsi_block_dictionary *dictionary,
                            const struct qsi_block_view *view)
{
    QS_DCHECK(view->chunk != NULL && view->rows > 0);
    *dictionary = (struct qsi_block_dictionary){
        .chunk = qsi_chunk_ref(view->chunk),
        .first_offset = view->first_offset,
        .first_time_us = view->first_time_us,
        .last_time_us = view->last_time_us,
        .rows = view->rows,
        .messages = view->messages,
    };
}

qs_status qsi_block_cache_read_dictionary(struct qsi_block_cache *cache,
                                          const struct qsi_block_file *file,
                                          const struct qsi_block_entry *entry,
                                          struct qsi_block_dictionary *dictionary_out,
                                          qs_error *error)
{
    uint8_t key[QSI_CACHE_KEY_BYTES];
    struct qsi_cached_item *item, *handle;
    qs_status status;

    qsi_cache_key(key, file, entry->at);
    qsi_block_cache_lock(cache);
    item = qsi_map_get(&cache->lrus[QSI_LRU_BLOCKS].map, key, QSI_CACHE_KEY_BYTES);
    if (item != NULL && !item->is_loading) {
        fill_dictionary(dictionary_out, &item->view);
        qsi_block_cache_unlock(cache);
        return QS_OK;
    }
    status = take_handle(cache, file, &handle, error);
    if (status == QS_OK) {
        qsi_block_cache_unlock(cache);
        status = qsi_block_load_dictionary(cache->blocks, file, handle->handle, entry,
                                           dictionary_out, error);
        qsi_block_cache_lock(cache);
        drop_handle(cache, handle);
    } else {
        memset(dictionary_out, 0, sizeof *dictionary_out);
    }
    qsi_block_cache_unlock(cache);
    return status;
}

/* ---- indexes ---- */

static uint64_t index_bytes(const struct qsi_block_index *index)
{
    return sizeof *index + (uint64_t)index->count * sizeof index->entries[0];
}

/* REQUIRES the mutex, which is released meanwhile. */
static qs_status load_index(struct qsi_block_cache *cache, const struct qsi_block_file *file,
                            struct qsi_block_index **index_out, qs_error *error)
    QSI_REQUIRES(qsi_block_cache_mutex)
{
    struct qsi_cached_item *handle;
    qs_status status;

    QS_ASSERT_HELD(&cache->mutex);
    *index_out = NULL;
    QS_TRY(take_handle(cache, file, &handle, error));
    qsi_block_cache_unlock(cache);
    status = qsi_block_check_count(cache->blocks, file, error);
    if (status == QS_OK) {
        *index_out = qsi_block_index_create(file->block_count);
        status = *index_out != NULL
                     ? qsi_block_load_index(cache->blocks, file, handle->handle,
                                            (*index_out)->entries, error)
                     : qsi_block_fail(error, qsi_fail(error, QS_ENOMEM, "index of blocks"),
                                      cache->blocks, file);
    }
    if (status != QS_OK) {
        qsi_block_index_unref(*index_out);
        *index_out = NULL;
    }
    qsi_block_cache_lock(cache);
    drop_handle(cache, handle);
    return status;
}

qs_status qsi_block_cache_read_index(struct qsi_block_cache *cache,
                                     const struct qsi_block_file *file,
                                     struct qsi_block_index **index_out, qs_error *error)
{
    uint8_t key[QSI_CACHE_KEY_BYTES];
    struct qsi_cached_item *item;
    qs_status status = QS_OK;
    bool is_new;

    qsi_cache_key(key, file, file->last_at); /* this changes when the file grows */
    qsi_block_cache_lock(cache);
    item = qsi_cache_find(cache, QSI_LRU_INDEXES, key, &is_new);
    if (item == NULL) {
        status = load_index(cache, file, index_out, error);
    } else if (!is_new) {
        *index_out = qsi_block_index_ref(item->index);
    } else {
        status = load_index(cache, file, index_out, error);
        if (status == QS_OK) {
            item->index = qsi_block_index_ref(*index_out);
        }
        qsi_cache_end_loading(cache, QSI_LRU_INDEXES, item,
                              status == QS_OK ? index_bytes(*index_out) : 0, status == QS_OK);
    }
    qsi_block_cache_unlock(cache);
    return status;
}

/* ---- the whole cache ---- */

void qsi_block_cache_forget(struct qsi_block_cache *cache, const struct qsi_block_file *file)
{
    uint8_t key[QSI_CACHE_KEY_BYTES];

    qsi_cache_key(key, file, 0);
    qsi_block_cache_lock(cache);
    qsi_cache_forget(cache, key);
    qsi_block_cache_unlock(cache);
}

void qsi_block_cache_counts(struct qsi_block_cache *cache, struct qsi_block_cache_counts *out)
{
    qsi_block_cache_lock(cache);
    *out = (struct qsi_block_cache_counts){
        .hits = cache->hits,
        .misses = cache->misses,
        .waits = cache->waits,
        .read_bytes = cache->read_bytes,
        .bytes = cache->lrus[QSI_LRU_BLOCKS].weight,
    };
    qsi_block_cache_unlock(cache);
}
