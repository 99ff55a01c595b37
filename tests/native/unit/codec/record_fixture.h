/* Records, made by hand, in memory of exactly their size. */
#ifndef RECORD_FIXTURE_H
#define RECORD_FIXTURE_H

#include "qs_test.h"
#include "record.h"

struct sample {
    uint32_t rows, routes, destinations;
    uint8_t flags;
    uint32_t stored_every; /* with HAS_STORED */
};

static inline bool is_stored(const struct sample *sample, uint32_t row)
{
    return (sample->flags & QSI_MESSAGES_HAS_STORED) != 0 && row % sample->stored_every == 0;
}

/* What row, route and destination i hold, the same each time. */
static inline uint32_t body_bytes(const struct sample *sample, uint32_t row)
{
    return is_stored(sample, row) ? QSI_BODY_REF_BYTES : row * 7 % 23;
}

static inline uint32_t blob_bytes(const struct sample *sample, uint32_t row)
{
    return (sample->flags & QSI_MESSAGES_PROPERTIES_PER_ROW) != 0 ? row % 5 : 11;
}

static inline uint32_t route_destinations(const struct sample *sample, uint32_t route)
{
    return sample->destinations == 0 ? 0 : route % (sample->destinations + 1);
}

static inline uint32_t row_route(const struct sample *sample, uint32_t row)
{
    return row * 13 % sample->routes;
}

static inline void fill(uint8_t *out, uint32_t bytes, uint32_t salt)
{
    for (uint32_t i = 0; i < bytes; i++) {
        out[i] = (uint8_t)(salt * 31 + i);
    }
}

static inline struct qsi_messages_layout lay_out(const struct sample *sample)
{
    struct qsi_messages_layout layout = {
        .row_count = sample->rows,
        .route_count = sample->routes,
        .destination_count = sample->destinations,
        .flags = sample->flags,
    };

    for (uint32_t route = 0; route < sample->routes; route++) {
        layout.routes_bytes +=
            qsi_route_bytes(route % 3, route % 256, route_destinations(sample, route));
    }
    for (uint32_t row = 0; row < sample->rows; row++) {
        if ((sample->flags & QSI_MESSAGES_PROPERTIES_PER_ROW) != 0) {
            layout.properties_bytes += blob_bytes(sample, row);
        }
        layout.bodies_bytes += body_bytes(sample, row);
    }
    if ((sample->flags & QSI_MESSAGES_PROPERTIES_PER_ROW) == 0) {
        layout.properties_bytes = blob_bytes(sample, 0);
    }
    QS_CHECK_OK(qsi_messages_layout(&layout, QS_ERROR));
    return layout;
}

static inline void put_routes(const struct sample *sample, const struct qsi_messages_layout *layout,
                              uint8_t *record)
{
    QS_TEST_FREED uint32_t *codes =
        malloc(((size_t)sample->rows + sample->destinations + 1) * sizeof *codes);
    uint8_t names[512];
    uint64_t at = 0;

    QS_CHECK(codes != NULL);
    for (uint32_t i = 0; i < sample->destinations; i++) {
        codes[i] = sample->destinations - 1 - i;
        qsi_messages_put_destination(record, i, 1000 + i, UINT64_C(5000000000) * i, i + 1);
    }
    for (uint32_t route = 0; route < sample->routes; route++) {
        fill(names, 512, route);
        qsi_messages_put_route(record, layout, route, &at, qsi_slice_make(names, route % 3),
                               qsi_slice_make(names + 3, route % 256), codes,
                               route_destinations(sample, route));
    }
    QS_CHECK(at == layout->routes_bytes);
    for (uint32_t row = 0; row < sample->rows; row++) {
        codes[row] = row_route(sample, row);
    }
    qsi_messages_put_row_routes(record, layout, codes);
}

/* Every fourth row has none of its own. */
static inline uint32_t expiration_ms(uint32_t row)
{
    return row % 4 == 3 ? QSI_NO_EXPIRATION : row * 1000000007u % QSI_NO_EXPIRATION;
}

static inline uint64_t due_us(uint32_t row)
{
    return row % 3 == 1 ? 0 : row * UINT64_C(1000000000039);
}

static inline void put_rows(const struct sample *sample, const struct qsi_messages_layout *layout,
                            uint8_t *record)
{
    uint8_t *properties = qsi_messages_properties_place(record, layout);
    uint8_t *offsets = qsi_messages_body_offsets_place(record, layout);
    uint8_t *bodies = qsi_messages_bodies_place(record, layout);
    bool per_row = (sample->flags & QSI_MESSAGES_PROPERTIES_PER_ROW) != 0;
    uint32_t blob_at = 0, body_at = 0;

    if (!per_row) {
        qsi_put_u32(properties, blob_bytes(sample, 0));
        fill(properties + 4, blob_bytes(sample, 0), 99);
    }
    for (uint32_t row = 0; row < sample->rows; row++) {
        if (per_row) {
            qsi_put_u32(properties + 4 * (size_t)row, blob_at);
            fill(properties + 4 * ((size_t)sample->rows + 1) + blob_at, blob_bytes(sample, row),
                 row + 1);
            blob_at += blob_bytes(sample, row);
        }
        if ((sample->flags & QSI_MESSAGES_HAS_EXPIRATION) != 0) {
            qsi_messages_put_expiration(record, layout, row, expiration_ms(row));
        }
        if ((sample->flags & QSI_MESSAGES_HAS_DUE) != 0) {
            qsi_messages_put_due(record, layout, row, due_us(row));
        }
        if (is_stored(sample, row)) {
            qsi_messages_stored_place(record, layout)[row / 8] |= (uint8_t)(1u << row % 8);
        }
        qsi_put_u32(offsets + 4 * (size_t)row, body_at);
        fill(bodies + body_at, body_bytes(sample, row), row + 2);
        body_at += body_bytes(sample, row);
    }
    if (per_row) {
        qsi_put_u32(properties + 4 * (size_t)sample->rows, blob_at);
    }
    qsi_put_u32(offsets + 4 * (size_t)sample->rows, body_at);
}

/* A record in memory of its own; the caller frees it. */
static inline uint8_t *make_record(const struct sample *sample)
{
    struct qsi_messages_layout layout = lay_out(sample);
    uint8_t *record = malloc(layout.record_bytes);

    QS_CHECK(record != NULL);
    memset(record, 0xee, layout.record_bytes);
    qsi_messages_begin(record, &layout);
    put_routes(sample, &layout, record);
    put_rows(sample, &layout, record);
    QS_CHECK(qsi_messages_time(record) == 0);
    qsi_messages_put_time(record, UINT64_C(1234567890123456));
    QS_CHECK(qsi_record_type(record) == QSI_RECORD_MESSAGES);
    QS_CHECK(qsi_record_length(record) == layout.record_bytes);
    QS_CHECK(qsi_record_fits(record, layout.record_bytes));
    QS_CHECK(!qsi_record_fits(record, layout.record_bytes - 1));
    return record;
}

static inline void check_refused(const uint8_t *record)
{
    QS_CHECK_STATUS(QS_ECORRUPT, qsi_messages_check(record, QS_ERROR));
    QS_CHECK(strncmp(QS_ERROR->text, "message record: ", 16) == 0);
    QS_CHECK(qsi_messages_check(record, NULL) == QS_ECORRUPT);
}

#endif
