/* The hash table: chains in a power-of-two array of buckets.
 *
 * Invariant: every entry is in the chain of hash & (bucket_count - 1).  The array doubles when
 * there are as many entries as buckets; when memory for that is missing the chains just grow
 * longer, so a put fails only for want of its own entry (or of the very first array). */
#include "map.h"

#include "alloc.h"
#include "check.h"

#include <string.h>

#define BUCKET_COUNT_MIN 16

struct qsi_map_entry {
    struct qsi_map_entry *next;
    uint64_t hash;
    void *value;
    size_t key_bytes;
    uint8_t key[];
};

/* Each round is a bijection of the state for a given word, so no input bit is lost on the way. */
static uint64_t hash_round(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 29);
}

/* Buckets use the low bits: the last steps spread every input bit over them (MurmurHash3's end). */
static uint64_t hash_finish(uint64_t hash)
{
    hash ^= hash >> 33;
    hash *= UINT64_C(0xff51afd7ed558ccd);
    hash ^= hash >> 33;
    hash *= UINT64_C(0xc4ceb9fe1a85ec53);
    return hash ^ (hash >> 33);
}

uint64_t qsi_hash(const void *key, size_t key_bytes)
{
    const uint8_t *bytes = key;
    uint64_t hash = hash_round(UINT64_C(0x243f6a8885a308d3), key_bytes);
    uint64_t word;

    for (; key_bytes >= sizeof word; key_bytes -= sizeof word, bytes += sizeof word) {
        memcpy(&word, bytes, sizeof word);
        hash = hash_round(hash, word);
    }
    if (key_bytes > 0) {
        word = 0;
        memcpy(&word, bytes, key_bytes);
        hash = hash_round(hash, word);
    }
    return hash_finish(hash);
}

static struct qsi_map_entry **bucket_of(const struct qsi_map *map, uint64_t hash)
{
    return &map->buckets[hash & (map->bucket_count - 1)];
}

/* The link that points to the entry, or the NULL at the end of its chain. */
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

static void move_entries(struct qsi_map *to, const struct qsi_map *from)
{
    for (size_t i = 0; i < from->bucket_count; i++) {
        struct qsi_map_entry *entry = from->buckets[i];

        while (entry != NULL) {
            struct qsi_map_entry *next = entry->next;
            struct qsi_map_entry **bucket = bucket_of(to, entry->hash);

            entry->next = *bucket;
            *bucket = entry;
            entry = next;
        }
    }
}

static qs_status grow(struct qsi_map *map)
{
    size_t bucket_count = map->bucket_count != 0 ? map->bucket_count * 2 : BUCKET_COUNT_MIN;
    struct qsi_map grown = {.bucket_count = bucket_count, .count = map->count};

    if (bucket_count > SIZE_MAX / sizeof *grown.buckets) {
        return QS_ENOMEM;
    }
    grown.buckets = qsi_zalloc(bucket_count * sizeof *grown.buckets);
    if (grown.buckets == NULL) {
        return QS_ENOMEM;
    }
    move_entries(&grown, map);
    qsi_free(map->buckets);
    *map = grown;
    return QS_OK;
}

void qsi_map_fini(struct qsi_map *map)
{
    struct qsi_map_cursor cursor;

    if (map == NULL) {
        return;
    }
    cursor = qsi_map_begin(map);
    while (qsi_map_next(map, &cursor)) {
        qsi_map_remove(map, cursor.key, cursor.key_bytes);
    }
    QS_ASSERT(map->count == 0);
    qsi_free(map->buckets);
    *map = (struct qsi_map){0};
}

void *qsi_map_get(const struct qsi_map *map, const void *key, size_t key_bytes)
{
    const struct qsi_map_entry *entry;

    if (map->count == 0) {
        return NULL;
    }
    entry = *find_link(map, qsi_hash(key, key_bytes), key, key_bytes);
    return entry != NULL ? entry->value : NULL;
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

qs_status qsi_map_put(struct qsi_map *map, const void *key, size_t key_bytes, void *value)
{
    uint64_t hash = qsi_hash(key, key_bytes);
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
    map->count++;
    return QS_OK;
}

void *qsi_map_remove(struct qsi_map *map, const void *key, size_t key_bytes)
{
    struct qsi_map_entry **link;
    struct qsi_map_entry *entry;
    void *value;

    if (map->count == 0) {
        return NULL;
    }
    link = find_link(map, qsi_hash(key, key_bytes), key, key_bytes);
    entry = *link;
    if (entry == NULL) {
        return NULL;
    }
    *link = entry->next;
    map->count--;
    value = entry->value;
    qsi_free(entry);
    return value;
}

struct qsi_map_cursor qsi_map_begin(const struct qsi_map *map)
{
    (void)map;
    return (struct qsi_map_cursor){0};
}

/* The cursor holds the entry after the current one, so the current one may go. */
bool qsi_map_next(const struct qsi_map *map, struct qsi_map_cursor *cursor)
{
    struct qsi_map_entry *entry = cursor->next;

    while (entry == NULL && cursor->bucket < map->bucket_count) {
        entry = map->buckets[cursor->bucket++];
    }
    if (entry == NULL) {
        return false;
    }
    cursor->next = entry->next;
    cursor->key = entry->key;
    cursor->key_bytes = entry->key_bytes;
    cursor->value = entry->value;
    return true;
}
