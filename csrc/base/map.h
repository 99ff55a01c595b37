/* A hash table from byte strings to pointers.  Keys are copied.  Zeroed memory is an empty one. */
#ifndef QSI_MAP_H
#define QSI_MAP_H

#include "qstore/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qsi_map_entry;
struct qsi_map {
    struct qsi_map_entry **buckets;
    size_t bucket_count; /* 0 or a power of two */
    size_t count;
};
void qsi_map_fini(struct qsi_map *map); /* frees keys and table, not the values */
void *qsi_map_get(const struct qsi_map *map, const void *key, size_t key_bytes); /* NULL: absent */

/* Replaces; value is not NULL.  QS_ENOMEM leaves the map unchanged. */
qs_status qsi_map_put(struct qsi_map *map, const void *key, size_t key_bytes,
                      void *value) QS_MUST_CHECK;

/* The old value, or NULL. */
void *qsi_map_remove(struct qsi_map *map, const void *key, size_t key_bytes);

/* Walks in no order; the table must not change meanwhile, except that the current entry may be
 * removed. */
struct qsi_map_cursor {
    size_t bucket;
    struct qsi_map_entry *next;
    const void *key;
    size_t key_bytes;
    void *value;
};
struct qsi_map_cursor qsi_map_begin(const struct qsi_map *map);
bool qsi_map_next(const struct qsi_map *map, struct qsi_map_cursor *cursor); /* false at the end */

/* The same in every process of one build, and for memory only: not a format. */
uint64_t qsi_hash(const void *key, size_t key_bytes);

#endif
