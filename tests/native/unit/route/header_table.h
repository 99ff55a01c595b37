/* Header tables for tests, entry by entry. */
#ifndef HEADER_TABLE_H
#define HEADER_TABLE_H

#include "route_fixture.h"

struct table {
    uint8_t bytes[1024];
    uint32_t used;
};

static inline struct qsi_slice slice_of(const struct table *table)
{
    return qsi_slice_make(table->bytes, table->used);
}

static inline void put(struct table *table, const void *data, size_t bytes)
{
    QS_CHECK(table->used + bytes <= sizeof table->bytes);
    memcpy(table->bytes + table->used, data, bytes);
    table->used += (uint32_t)bytes;
}

/* value: the bytes as they are encoded, after the type. */
static inline void put_field(struct table *table, const char *name, char type, const void *value,
                             size_t bytes)
{
    uint8_t name_bytes = (uint8_t)strlen(name);

    put(table, &name_bytes, 1);
    put(table, name, name_bytes);
    put(table, &type, 1);
    put(table, value, bytes);
}

static inline void put_text(struct table *table, const char *name, const char *value)
{
    uint8_t encoded[256] = {0, 0, 0, (uint8_t)strlen(value)};

    memcpy(encoded + 4, value, strlen(value));
    put_field(table, name, 'S', encoded, 4 + strlen(value));
}

static inline void put_void(struct table *table, const char *name)
{
    put_field(table, name, 'V', "", 0);
}

/* "a=1 b x-match=any": texts, and voids where there is no value. */
static inline struct table table_of(const char *fields)
{
    struct table table = {.used = 0};
    char copy[256];
    char *rest = NULL;

    snprintf(copy, sizeof copy, "%s", fields);
    for (char *field = strtok_r(copy, " ", &rest); field != NULL;
         field = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(field, '=');

        if (value == NULL) {
            put_void(&table, field);
        } else {
            *value = 0;
            put_text(&table, field, value + 1);
        }
    }
    return table;
}

#endif
