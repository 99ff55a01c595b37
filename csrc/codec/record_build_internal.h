/* Building a record: declarations shared by adding rows and writing them. */
#ifndef QSI_RECORD_BUILD_INTERNAL_H
#define QSI_RECORD_BUILD_INTERNAL_H

#include "messages_write.h"
#include "record_build.h"

#define QSI_NO_PLACE SIZE_MAX

/* A route of the rows so far; each (exchange, routing key) has one. */
struct qsi_build_route {
    struct qsi_slice exchange, key;
    uint64_t hash;
};

struct qsi_record_build {
    uint32_t options;
    qsi_stored_reader *reader;
    void *context;

    struct qsi_buf stretches; /* struct qsi_row_stretch */
    struct qsi_buf codes;     /* uint32_t by row */
    struct qsi_buf routes;    /* struct qsi_build_route */
    struct qsi_buf contents;  /* struct qsi_stored_content */
    struct qsi_buf stored;    /* the content of stored messages */
    uint32_t *slots;          /* hash table of codes; slot_count is a power of two */
    uint32_t slot_count;

    /* The record of the last stretch; record_codes has the codes of its routes. */
    const uint8_t *record;
    struct qsi_buf record_codes;

    struct qsi_slice properties; /* of the first row, if all have the same */
    size_t stored_properties_at; /* the place of properties in stored, or QSI_NO_PLACE */
    bool properties_differ, has_expiration, has_due, has_stored;
    uint32_t row_count, route_count;
    uint64_t routes_bytes, properties_bytes, bodies_bytes;
    struct qsi_messages_layout layout; /* valid after measure */
};

static inline struct qsi_build_route *qsi_build_routes(const struct qsi_record_build *build)
{
    return (struct qsi_build_route *)(void *)build->routes.data;
}

static inline bool qsi_build_reads_row(const struct qsi_record_build *build,
                                       const struct qsi_messages *view, uint32_t row)
{
    return (build->options & QSI_BUILD_KEEP_STORED) == 0 && qsi_messages_is_stored(view, row);
}

static inline struct qsi_slice qsi_build_first_properties(const struct qsi_record_build *build)
{
    return build->stored_properties_at == QSI_NO_PLACE
               ? build->properties
               : qsi_slice_make(build->stored.data + build->stored_properties_at,
                                build->properties.bytes);
}

#endif
