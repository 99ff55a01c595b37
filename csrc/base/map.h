/* A hash table from byte strings to pointers.  Keys are copied.  Zeroed memory is an empty table.
 *
 * Strings are hashed with a key of the process, so they may be untrusted.  The functions that end
 * in _number are for keys that the store assigns itself: they take a tenth of the time.  Use only
 * one of the two kinds with a table. */
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
    struct qsi_map_entry *first, *last; /* in the order of puts */
};
void qsi_map_fini(struct qsi_map *map); /* frees keys and table, not the values */
void *qsi_map_get(const struct qsi_map *map, const void *key, size_t key_bytes); /* NULL: absent */

/* Sets or replaces a value, which is not NULL.  QS_ENOMEM: the map is unchanged. */
qs_status qsi_map_put(struct qsi_map *map, const void *key, size_t key_bytes,
                      void *value) QS_MUST_CHECK;

/* Returns the old value, or NULL. */
void *qsi_map_remove(struct qsi_map *map, const void *key, size_t key_bytes);

/* The same with a number as key. */
void *qsi_map_get_number(const struct qsi_map *map, uint64_t number);
qs_status qsi_map_put_number(struct qsi_map *map, uint64_t number, void *value) QS_MUST_CHECK;
void *qsi_map_remove_number(struct qsi_map *map, uint64_t number);

/* Iterates in the order of puts, so results do not depend on the hash; replacing a value keeps its
 * place.  The table must not change meanwhile, except that the current entry may be removed. */
struct qsi_map_cursor {
    struct qsi_map_entry *next;
    const void *key;
    size_t key_bytes;
    void *value;
};
struct qsi_map_cursor qsi_map_begin(const struct qsi_map *map);
bool qsi_map_next(const struct qsi_map *map, struct qsi_map_cursor *cursor); /* false at the end */

#endif
