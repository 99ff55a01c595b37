/* The hash table: chains in a power-of-two array of buckets, and a list of all entries.
 *
 * Invariant: every entry is in the chain of hash & (bucket_count - 1), and in the list, which has
 * the order of puts.  The array doubles when there are as many entries as buckets.  Without memory
 * for that the chains grow longer, so a put fails only without memory for its own entry, or for the
 * first array. */
#include "map.h"

#include "alloc.h"
#include "check.h"
#include "hash.h"

#include <string.h>

#define BUCKET_COUNT_MIN 16

struct qsi_map_entry {
    struct qsi_map_entry *next;            /* in its chain */
    struct qsi_map_entry *before, *behind; /* in the list */
    uint64_t hash;
    void *value;
    size_t key_bytes;
    uint8_t key[];
};

/* Numbers that the store assigns itself, in sequence, are not chosen by clients, so no key is
 * needed. */
static uint64_t hash_number(uint64_t number)
{
    number *= UINT64_C(0x9e3779b97f4a7c15);
    return number ^ number >> 32;
}

static struct qsi_map_entry **bucket_of(const struct qsi_map *map, uint64_t hash)
{
    QS_DCHECK(map->bucket_count > 0 && (map->bucket_count & (map->bucket_count - 1)) == 0);
    return &map->buckets[hash & (map->bucket_count - 1)];
}

/* The link to the entry, or the NULL at the end of its chain. */
static struct qsi_map_entry **find_link(const struct qsi_map *map, uint64_t hash, const void *key,
                                        size_t key_bytes)
{
    struct qsi_map_entry **link = bucket_of(map, hash);

    for (; *link != NULL; link = &(*link)->next) {
        const struct qsi_map_entry *entry = *link;

        if (entry->hash == hash && entry->key_bytes == key_bytes &&
            (key_bytes == 0 || memcmp(entry->key, key, key_bytes) == 0)) {
            break;
        }
    }
    return link;
}

static void add_to_buckets(struct qsi_map *map)
{
    for (struct qsi_map_entry *entry = map->first; entry != NULL; entry = entry->behind) {
        struct qsi_map_entry **bucket = bucket_of(map, entry->hash);

        entry->next = *bucket;
        *bucket = entry;
    }
}

static qs_status grow(struct qsi_map *map)
{
    size_t bucket_count = map->bucket_count != 0 ? map->bucket_count * 2 : BUCKET_COUNT_MIN;
    struct qsi_map grown = *map;

    QS_DCHECK(map->count >= map->bucket_count);
    if (bucket_count > SIZE_MAX / sizeof *grown.buckets) {
        return QS_ENOMEM;
    }
    grown.bucket_count = bucket_count;
    grown.buckets = qsi_zalloc(bucket_count * sizeof *grown.buckets);
    if (grown.buckets == NULL) {
        return QS_ENOMEM;
    }
    add_to_buckets(&grown);
    qsi_free(map->buckets);
    *map = grown;
    return QS_OK;
}

void qsi_map_fini(struct qsi_map *map)
{
    struct qsi_map_entry *entry;

    if (map == NULL) {
        return;
    }
    entry = map->first;
    while (entry != NULL) {
        struct qsi_map_entry *behind = entry->behind;

        qsi_free(entry);
        entry = behind;
    }
    qsi_free(map->buckets);
    *map = (struct qsi_map){0};
}

static void *get(const struct qsi_map *map, uint64_t hash, const void *key, size_t key_bytes)
{
    const struct qsi_map_entry *entry = *find_link(map, hash, key, key_bytes);

    return entry != NULL ? entry->value : NULL;
}

void *qsi_map_get(const struct qsi_map *map, const void *key, size_t key_bytes)
{
    return map->count > 0 ? get(map, qsi_hash(key, key_bytes), key, key_bytes) : NULL;
}

void *qsi_map_get_number(const struct qsi_map *map, uint64_t number)
{
    return map->count > 0 ? get(map, hash_number(number), &number, sizeof number) : NULL;
}

static struct qsi_map_entry *create_entry(uint64_t hash, const void *key, size_t key_bytes,
                                          void *value)
{
    struct qsi_map_entry *entry;

    if (key_bytes > SIZE_MAX - sizeof *entry) {
        return NULL;
    }
    entry = qsi_alloc(sizeof *entry + key_bytes);
    if (entry == NULL) {
        return NULL;
    }
    entry->next = NULL;
    entry->hash = hash;
    entry->value = value;
    entry->key_bytes = key_bytes;
    if (key_bytes > 0) {
        memcpy(entry->key, key, key_bytes);
    }
    return entry;
}

static void add_to_list(struct qsi_map *map, struct qsi_map_entry *entry)
{
    entry->before = map->last;
    entry->behind = NULL;
    *(map->last != NULL ? &map->last->behind : &map->first) = entry;
    map->last = entry;
    map->count++;
}

static void remove_from_list(struct qsi_map *map, struct qsi_map_entry *entry)
{
    QS_DCHECK(map->count > 0);
    *(entry->before != NULL ? &entry->before->behind : &map->first) = entry->behind;
    *(entry->behind != NULL ? &entry->behind->before : &map->last) = entry->before;
    map->count--;
}

static qs_status put(struct qsi_map *map, uint64_t hash, const void *key, size_t key_bytes,
                     void *value)
{
    struct qsi_map_entry **link;

    QS_ASSERT(value != NULL);
    if (map->count >= map->bucket_count && grow(map) != QS_OK && map->bucket_count == 0) {
        return QS_ENOMEM;
    }
    link = find_link(map, hash, key, key_bytes);
    if (*link != NULL) {
        (*link)->value = value;
        return QS_OK;
    }
    *link = create_entry(hash, key, key_bytes, value);
    if (*link == NULL) {
        return QS_ENOMEM;
    }
    add_to_list(map, *link);
    return QS_OK;
}

qs_status qsi_map_put(struct qsi_map *map, const void *key, size_t key_bytes, void *value)
{
    return put(map, qsi_hash(key, key_bytes), key, key_bytes, value);
}

qs_status qsi_map_put_number(struct qsi_map *map, uint64_t number, void *value)
{
    return put(map, hash_number(number), &number, sizeof number, value);
}

static void *remove_entry(struct qsi_map *map, uint64_t hash, const void *key, size_t key_bytes)
{
    struct qsi_map_entry **link, *entry;
    void *value;

    if (map->count == 0) {
        return NULL;
    }
    link = find_link(map, hash, key, key_bytes);
    entry = *link;
    if (entry == NULL) {
        return NULL;
    }
    *link = entry->next;
    remove_from_list(map, entry);
    value = entry->value;
    qsi_free(entry);
    return value;
}

void *qsi_map_remove(struct qsi_map *map, const void *key, size_t key_bytes)
{
    return remove_entry(map, qsi_hash(key, key_bytes), key, key_bytes);
}

void *qsi_map_remove_number(struct qsi_map *map, uint64_t number)
{
    return remove_entry(map, hash_number(number), &number, sizeof number);
}

struct qsi_map_cursor qsi_map_begin(const struct qsi_map *map)
{
    return (struct qsi_map_cursor){.next = map->first};
}

/* The cursor has the entry after the current one, so the current one may be removed. */
bool qsi_map_next(const struct qsi_map *map, struct qsi_map_cursor *cursor)
{
    struct qsi_map_entry *entry = cursor->next;

    (void)map;
    if (entry == NULL) {
        return false;
    }
    cursor->next = entry->behind;
    cursor->key = entry->key;
    cursor->key_bytes = entry->key_bytes;
    cursor->value = entry->value;
    return true;
}
