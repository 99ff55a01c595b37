/* What readers share.
 *
 * Three shelves, of blocks, of indexes and of open files; each finds an item by its key and gives
 * up the one that was used longest ago when it holds too much, first of those that were asked for
 * once.  Invariants: an item that is being read is on its shelf and is not given up; whoever waits
 * for it looks it up anew; a chunk among the spare ones has no other reference. */
#include "block_cache.h"

#include "alloc.h"
#include "block_dir.h"
#include "check.h"
#include "error.h"
#include "le.h"
#include "list.h"
#include "lock.h"
#include "map.h"

#include <string.h>

#define BYTES_MAX_DEFAULT (UINT64_C(32) << 20)
#define INDEX_BYTES_MAX_DEFAULT (UINT64_C(4) << 20)
#define HANDLES_DEFAULT 32u
#define KEY_BYTES 32u
#define SPARE_COUNT 4u
#define PASSING_PART 8u /* of the cache are blocks that were asked for once */

enum shelf_kind { BLOCKS, INDEXES, HANDLES, SHELF_COUNT };

struct item {
    struct qsi_list in_shelf; /* in `items` or `passing` */
    uint8_t key[KEY_BYTES];
    uint64_t weight; /* bytes; of a handle 1 */
    uint32_t users;  /* of a handle: reads under way */
    bool is_loading;
    bool is_passing;   /* nobody asked for it again */
    bool is_forgotten; /* not on the shelf any more: its last user frees it */
    struct qsi_block_view view;
    struct qsi_block_index *index;
    qs_file *handle;
};

/* What was asked for once is given up sooner: a reader that is alone comes by each block once, and
 * a few chunks that it fills again and again stay in the processor's cache. */
struct shelf {
    struct qsi_map map;             /* key to item */
    struct qsi_list items, passing; /* of each the one used longest ago first */
    uint64_t weight, weight_max;
    uint64_t passing_weight, passing_max; /* of those in `passing` */
};

struct qsi_block_cache {
    struct qsi_block_dir *blocks;
    struct qsi_budget *budget;
    struct qsi_mutex mutex;
    struct qsi_cond loaded; /* some item was read, or could not be */
    struct shelf shelves[SHELF_COUNT];
    struct qsi_chunk *spare[SPARE_COUNT]; /* or NULL */
    struct qsi_block_cache_counts counts;
};

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
    for (int kind = 0; kind < SHELF_COUNT; kind++) {
        qsi_list_init(&cache->shelves[kind].items);
        qsi_list_init(&cache->shelves[kind].passing);
        cache->shelves[kind].passing_max = UINT64_MAX;
    }
    cache->shelves[BLOCKS].weight_max =
        options->bytes_max != 0 ? options->bytes_max : BYTES_MAX_DEFAULT;
    cache->shelves[BLOCKS].passing_max = cache->shelves[BLOCKS].weight_max / PASSING_PART;
    cache->shelves[INDEXES].weight_max =
        options->index_bytes_max != 0 ? options->index_bytes_max : INDEX_BYTES_MAX_DEFAULT;
    cache->shelves[HANDLES].weight_max =
        options->handle_max != 0 ? options->handle_max : HANDLES_DEFAULT;
    return QS_OK;
}

/* ---- items ---- */

static void make_key(uint8_t key_out[KEY_BYTES], const struct qsi_block_file *file, uint64_t what)
{
    qsi_put_u64(key_out, file->owner);
    qsi_put_u64(key_out + 8, file->number);
    qsi_put_u64(key_out + 16, file->salt);
    qsi_put_u64(key_out + 24, what);
}

/* A chunk that nobody else has may serve for the next block: the kernel has made its pages. */
static void keep_spare(struct qsi_block_cache *cache, struct qsi_chunk *chunk)
{
    if (__atomic_load_n(&chunk->refs, __ATOMIC_ACQUIRE) == 1) {
        for (uint32_t i = 0; i < SPARE_COUNT; i++) {
            if (cache->spare[i] == NULL) {
                cache->spare[i] = chunk;
                return;
            }
        }
    }
    qsi_chunk_unref(chunk);
}

static struct qsi_chunk *take_spare(struct qsi_block_cache *cache, size_t bytes)
{
    for (uint32_t i = 0; i < SPARE_COUNT; i++) {
        struct qsi_chunk *chunk = cache->spare[i];
        if (chunk != NULL && chunk->capacity >= bytes && chunk->capacity / 2 <= bytes) {
            cache->spare[i] = NULL;
            return chunk;
        }
    }
    return NULL;
}

static void drop_spares(struct qsi_block_cache *cache)
{
    for (uint32_t i = 0; i < SPARE_COUNT; i++) {
        qsi_chunk_unref(cache->spare[i]);
        cache->spare[i] = NULL;
    }
}

static void free_item(struct qsi_block_cache *cache, struct item *item)
{
    if (item->view.chunk != NULL) {
        keep_spare(cache, item->view.chunk);
    }
    qsi_block_index_unref(item->index);
    cache->blocks->env->close(cache->blocks->env, item->handle);
    qsi_free(item);
}

/* Off its shelf; it is freed now, or by its last user. */
static void remove_item(struct qsi_block_cache *cache, enum shelf_kind kind, struct item *item)
{
    struct shelf *shelf = &cache->shelves[kind];

    qsi_map_remove(&shelf->map, item->key, KEY_BYTES);
    qsi_list_remove(&item->in_shelf);
    shelf->weight -= item->weight;
    shelf->passing_weight -= item->is_passing ? item->weight : 0;
    item->is_forgotten = true;
    if (item->users == 0) {
        free_item(cache, item);
    }
}

static void give_up(struct qsi_block_cache *cache, enum shelf_kind kind, struct qsi_list *items,
                    const uint64_t *weight, uint64_t weight_max)
{
    struct qsi_list *node = items->next;

    while (*weight > weight_max && node != items) {
        struct item *item = QSI_LIST_OWNER(node, struct item, in_shelf);
        node = node->next;
        if (!item->is_loading && item->users == 0) {
            remove_item(cache, kind, item);
        }
    }
}

/* Gives up what was used longest ago until the shelf holds weight_max at most, first of what is
 * passing; what is in use stays.  Returns how much went. */
static uint64_t shrink(struct qsi_block_cache *cache, enum shelf_kind kind, uint64_t weight_max)
{
    struct shelf *shelf = &cache->shelves[kind];
    uint64_t before = shelf->weight;

    give_up(cache, kind, &shelf->passing, &shelf->passing_weight, shelf->passing_max);
    give_up(cache, kind, &shelf->passing, &shelf->weight, weight_max);
    give_up(cache, kind, &shelf->items, &shelf->weight, weight_max);
    return before - shelf->weight;
}

static void use_again(struct shelf *shelf, struct item *item)
{
    if (item->is_passing) {
        item->is_passing = false;
        shelf->passing_weight -= item->weight;
    }
    qsi_list_remove(&item->in_shelf);
    qsi_list_push_back(&shelf->items, &item->in_shelf);
}

/* An item that is there, or a new one, which this caller is to load: *is_new_out.  NULL: out of
 * memory. */
static struct item *find_item(struct qsi_block_cache *cache, enum shelf_kind kind,
                              const uint8_t key[KEY_BYTES], bool *is_new_out)
{
    struct shelf *shelf = &cache->shelves[kind];
    struct item *item;

    *is_new_out = false;
    for (;;) {
        item = qsi_map_get(&shelf->map, key, KEY_BYTES);
        if (item == NULL) {
            break;
        }
        if (!item->is_loading) {
            use_again(shelf, item);
            return item;
        }
        cache->counts.waits += kind == BLOCKS ? 1 : 0;
        (void)qsi_cond_wait(&cache->loaded, &cache->mutex, QSI_WAIT_FOREVER);
    }
    item = qsi_zalloc(sizeof *item);
    if (item == NULL) {
        return NULL;
    }
    memcpy(item->key, key, KEY_BYTES);
    item->is_loading = true;
    item->is_passing = true;
    item->users = 1; /* who loads it */
    if (qsi_map_put(&shelf->map, item->key, KEY_BYTES, item) != QS_OK) {
        qsi_free(item);
        return NULL;
    }
    qsi_list_push_back(&shelf->passing, &item->in_shelf);
    *is_new_out = true;
    return item;
}

/* By who loaded it; a failure takes it off its shelf.  Whoever waits looks again.  The item may be
 * gone afterwards. */
static void end_loading(struct qsi_block_cache *cache, enum shelf_kind kind, struct item *item,
                        uint64_t weight, bool done)
{
    struct shelf *shelf = &cache->shelves[kind];

    item->is_loading = false;
    item->users -= 1;
    if (item->is_forgotten) {
        if (item->users == 0) {
            free_item(cache, item);
        }
    } else if (!done) {
        remove_item(cache, kind, item);
    } else {
        item->weight = weight;
        shelf->weight += weight;
        shelf->passing_weight += item->is_passing ? weight : 0;
        item->users += 1; /* it is needed still */
        shrink(cache, kind, shelf->weight_max);
        item->users -= 1;
    }
    qsi_cond_broadcast(&cache->loaded);
}

void qsi_block_cache_destroy(struct qsi_block_cache *cache)
{
    if (cache == NULL) {
        return;
    }
    for (int kind = 0; kind < SHELF_COUNT; kind++) {
        shrink(cache, (enum shelf_kind)kind, 0);
        QS_ASSERT(qsi_list_is_empty(&cache->shelves[kind].items) &&
                  qsi_list_is_empty(&cache->shelves[kind].passing));
        qsi_map_fini(&cache->shelves[kind].map);
    }
    drop_spares(cache);
    qsi_cond_fini(&cache->loaded);
    qsi_mutex_fini(&cache->mutex);
    qsi_budget_unref(cache->budget);
    qsi_free(cache);
}

/* ---- open files ---- */

/* REQUIRES the mutex, which is released meanwhile.  Several threads use one handle at once. */
static qs_status take_handle(struct qsi_block_cache *cache, const struct qsi_block_file *file,
                             struct item **item_out, qs_error *error)
{
    uint8_t key[KEY_BYTES];
    struct item *item;
    qs_file *handle;
    qs_status status;
    bool is_new;

    make_key(key, file, 0);
    *item_out = NULL;
    item = find_item(cache, HANDLES, key, &is_new);
    if (item == NULL) {
        return qsi_block_fail(error, qsi_fail(error, QS_ENOMEM, "open files"), cache->blocks, file);
    }
    if (!is_new) {
        item->users += 1;
        *item_out = item;
        return QS_OK;
    }
    qsi_mutex_unlock(&cache->mutex);
    status = qsi_block_open(cache->blocks, file, QS_OPEN_READ, &handle, error);
    qsi_mutex_lock(&cache->mutex);
    item->handle = handle;
    item->users += status == QS_OK ? 1 : 0; /* the caller, besides who loads it */
    end_loading(cache, HANDLES, item, 1, status == QS_OK);
    *item_out = status == QS_OK ? item : NULL;
    return status;
}

static void drop_handle(struct qsi_block_cache *cache, struct item *item)
{
    item->users -= 1;
    if (item->is_forgotten && item->users == 0) {
        free_item(cache, item);
    } else if (!item->is_forgotten) {
        shrink(cache, HANDLES, cache->shelves[HANDLES].weight_max);
    }
}

/* ---- blocks ---- */

/* REQUIRES the mutex, which is released meanwhile. */
static qs_status load_block(struct qsi_block_cache *cache, const struct qsi_block_file *file,
                            const struct qsi_block_entry *entry, struct qsi_block_view *view_out,
                            qs_error *error)
{
    struct qsi_chunk *room = take_spare(cache, qsi_block_chunk_bytes(entry->bytes));
    struct item *handle;
    qs_status status = take_handle(cache, file, &handle, error);

    memset(view_out, 0, sizeof *view_out);
    if (status != QS_OK) {
        qsi_chunk_unref(room);
        return status;
    }
    qsi_mutex_unlock(&cache->mutex);
    status = qsi_block_load(cache->blocks, file, handle->handle, entry, room, view_out, error);
    if (status == QS_OK && cache->budget != NULL && view_out->chunk->budget == NULL) {
        qsi_chunk_charge(view_out->chunk, cache->budget);
    }
    qsi_mutex_lock(&cache->mutex);
    drop_handle(cache, handle);
    cache->counts.misses += 1;
    cache->counts.read_bytes += status == QS_OK ? entry->bytes : 0;
    return status;
}

qs_status qsi_block_cache_read(struct qsi_block_cache *cache, const struct qsi_block_file *file,
                               const struct qsi_block_entry *entry, struct qsi_block_view *view_out,
                               qs_error *error)
{
    uint8_t key[KEY_BYTES];
    struct item *item;
    qs_status status = QS_OK;
    bool is_new;

    make_key(key, file, entry->at);
    qsi_mutex_lock(&cache->mutex);
    item = find_item(cache, BLOCKS, key, &is_new);
    if (item == NULL) { /* without the shelf, then */
        status = load_block(cache, file, entry, view_out, error);
    } else if (!is_new) {
        cache->counts.hits += 1;
        *view_out = qsi_block_view_ref(&item->view);
    } else {
        status = load_block(cache, file, entry, view_out, error);
        if (status == QS_OK) {
            item->view = qsi_block_view_ref(view_out);
        }
        end_loading(cache, BLOCKS, item, status == QS_OK ? view_out->chunk->capacity : 0,
                    status == QS_OK);
    }
    qsi_mutex_unlock(&cache->mutex);
    return status;
}

static void fill_dictionary(struct qsi_block_dictionary *dictionary,
                            const struct qsi_block_view *view)
{
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
    uint8_t key[KEY_BYTES];
    struct item *item, *handle;
    qs_status status;

    make_key(key, file, entry->at);
    qsi_mutex_lock(&cache->mutex);
    item = qsi_map_get(&cache->shelves[BLOCKS].map, key, KEY_BYTES);
    if (item != NULL && !item->is_loading) {
        fill_dictionary(dictionary_out, &item->view);
        qsi_mutex_unlock(&cache->mutex);
        return QS_OK;
    }
    status = take_handle(cache, file, &handle, error);
    if (status == QS_OK) {
        qsi_mutex_unlock(&cache->mutex);
        status = qsi_block_load_dictionary(cache->blocks, file, handle->handle, entry,
                                           dictionary_out, error);
        qsi_mutex_lock(&cache->mutex);
        drop_handle(cache, handle);
    } else {
        memset(dictionary_out, 0, sizeof *dictionary_out);
    }
    qsi_mutex_unlock(&cache->mutex);
    return status;
}

/* ---- indexes ---- */

void qsi_block_index_unref(struct qsi_block_index *index)
{
    if (index != NULL && __atomic_fetch_sub(&index->refs, 1, __ATOMIC_ACQ_REL) == 1) {
        qsi_free(index);
    }
}

struct qsi_block_index *qsi_block_index_ref(struct qsi_block_index *index)
{
    __atomic_fetch_add(&index->refs, 1, __ATOMIC_RELAXED);
    return index;
}

struct qsi_block_index *qsi_block_index_create(uint32_t count)
{
    struct qsi_block_index *index =
        qsi_alloc(sizeof *index + (size_t)count * sizeof index->entries[0]);

    if (index != NULL) {
        index->refs = 1;
        index->count = count;
    }
    return index;
}

static uint64_t index_bytes(const struct qsi_block_index *index)
{
    return sizeof *index + (uint64_t)index->count * sizeof index->entries[0];
}

/* REQUIRES the mutex, which is released meanwhile. */
static qs_status load_index(struct qsi_block_cache *cache, const struct qsi_block_file *file,
                            struct qsi_block_index **index_out, qs_error *error)
{
    struct item *handle;
    qs_status status;

    *index_out = NULL;
    QS_TRY(take_handle(cache, file, &handle, error));
    qsi_mutex_unlock(&cache->mutex);
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
    qsi_mutex_lock(&cache->mutex);
    drop_handle(cache, handle);
    return status;
}

qs_status qsi_block_cache_read_index(struct qsi_block_cache *cache,
                                     const struct qsi_block_file *file,
                                     struct qsi_block_index **index_out, qs_error *error)
{
    uint8_t key[KEY_BYTES];
    struct item *item;
    qs_status status = QS_OK;
    bool is_new;

    make_key(key, file, file->last_at); /* a file that grows has another one then */
    qsi_mutex_lock(&cache->mutex);
    item = find_item(cache, INDEXES, key, &is_new);
    if (item == NULL) {
        status = load_index(cache, file, index_out, error);
    } else if (!is_new) {
        *index_out = qsi_block_index_ref(item->index);
    } else {
        status = load_index(cache, file, index_out, error);
        if (status == QS_OK) {
            item->index = qsi_block_index_ref(*index_out);
        }
        end_loading(cache, INDEXES, item, status == QS_OK ? index_bytes(*index_out) : 0,
                    status == QS_OK);
    }
    qsi_mutex_unlock(&cache->mutex);
    return status;
}

/* ---- the whole cache ---- */

uint64_t qsi_block_cache_shrink(struct qsi_block_cache *cache, uint64_t bytes_max)
{
    uint64_t bytes;

    qsi_mutex_lock(&cache->mutex);
    bytes = shrink(cache, BLOCKS, bytes_max);
    drop_spares(cache);
    qsi_mutex_unlock(&cache->mutex);
    return bytes;
}

static void forget(struct qsi_block_cache *cache, enum shelf_kind kind, struct qsi_list *items,
                   const uint8_t key[KEY_BYTES])
{
    struct qsi_list *node = items->next;

    while (node != items) {
        struct item *item = QSI_LIST_OWNER(node, struct item, in_shelf);
        node = node->next;
        if (memcmp(item->key, key, KEY_BYTES - 8) == 0 && !item->is_loading) {
            remove_item(cache, kind, item);
        }
    }
}

void qsi_block_cache_forget(struct qsi_block_cache *cache, const struct qsi_block_file *file)
{
    uint8_t key[KEY_BYTES];

    make_key(key, file, 0);
    qsi_mutex_lock(&cache->mutex);
    for (int kind = 0; kind < SHELF_COUNT; kind++) {
        forget(cache, (enum shelf_kind)kind, &cache->shelves[kind].items, key);
        forget(cache, (enum shelf_kind)kind, &cache->shelves[kind].passing, key);
    }
    qsi_mutex_unlock(&cache->mutex);
}

void qsi_block_cache_counts(struct qsi_block_cache *cache, struct qsi_block_cache_counts *out)
{
    qsi_mutex_lock(&cache->mutex);
    *out = cache->counts;
    out->bytes = cache->shelves[BLOCKS].weight;
    qsi_mutex_unlock(&cache->mutex);
}
