/* A hash table from byte strings to pointers.  Keys are copied.  Zeroed memory is an empty one.
 *
 * Strings are hashed with a key of the process, so they may come from anybody.  A table whose keys
 * are numbers that the store gives itself is asked with the functions that end in _number: they
 * take a tenth of the time.  One table is asked in one of these ways only. */
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
    struct qsi_map_entry *first, *last; /* in order of their puts */
};
void qsi_map_fini(struct qsi_map *map); /* frees keys and table, not the values */
void *qsi_map_get(const struct qsi_map *map, const void *key, size_t key_bytes); /* NULL: absent */

/* Replaces; value is not NULL.  QS_ENOMEM leaves the map unchanged. */
qs_status qsi_map_put(struct qsi_map *map, const void *key, size_t key_bytes,
                      void *value) QS_MUST_CHECK;

/* The old value, or NULL. */
void *qsi_map_remove(struct qsi_map *map, const void *key, size_t key_bytes);

/* The same with a number for a key. */
void *qsi_map_get_number(const struct qsi_map *map, uint64_t number);
qs_status qsi_map_put_number(struct qsi_map *map, uint64_t number, void *value) QS_MUST_CHECK;
void *qsi_map_remove_number(struct qsi_map *map, uint64_t number);

/* Walks in the order of the puts, so nothing that is seen depends on the hash; who replaces a value
 * stays in place.  The table must not change meanwhile, except that the current entry may be
 * removed. */
struct qsi_map_cursor {
    struct qsi_map_entry *next;
    const void *key;
    size_t key_bytes;
    void *value;
};
struct qsi_map_cursor qsi_map_begin(const struct qsi_map *map);
bool qsi_map_next(const struct qsi_map *map, struct qsi_map_cursor *cursor); /* false at the end */

#endif
