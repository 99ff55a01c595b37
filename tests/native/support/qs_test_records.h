/* Messages records whose rows are known by a number each: what a message with that number holds is
 * the same each time, so a test compares any row, wherever it went, with its number. */
#ifndef QS_TEST_RECORDS_H
#define QS_TEST_RECORDS_H

#include "buf.h"
#include "chunk.h"
#include "messages_record.h"
#include "messages_write.h"
#include "qs_test.h"

#define QS_TEST_NAME_BYTES 8u

enum {                          /* of a record */
       QS_TEST_PER_ROW = 1,     /* properties */
       QS_TEST_STORED = 2,      /* every third body is in the message store */
       QS_TEST_EXPIRATIONS = 4, /* of every second row */
       QS_TEST_DUES = 8,        /* of every fourth row */
       QS_TEST_ALIGNED = 16,
       QS_TEST_ONE_ROUTE = 32,
};

struct qs_test_records {
    uint32_t body_bytes_max; /* bodies are shorter than that; 0: they are empty */
    uint32_t key_count;      /* of different routing keys */
};

static inline uint32_t qs_test_mix(uint32_t number)
{
    number = (number ^ number >> 16) * 0x7feb352du;
    number = (number ^ number >> 15) * 0x846ca68bu;
    return number ^ number >> 16;
}

static inline bool qs_test_is_stored(uint32_t flags, uint32_t number)
{
    return (flags & QS_TEST_STORED) != 0 && number % 3 == 0;
}

static inline uint32_t qs_test_body_bytes(const struct qs_test_records *kind, uint32_t number)
{
    return kind->body_bytes_max == 0 ? 0 : qs_test_mix(number) % kind->body_bytes_max;
}

static inline void qs_test_fill(uint8_t *out, uint32_t bytes, uint32_t number)
{
    for (uint32_t i = 0; i < bytes; i++) {
        out[i] = (uint8_t)(number * 31 + i * 7 + (i >> 8));
    }
}

/* Rows of one record without PER_ROW have those of row 0. */
static inline uint32_t qs_test_property_bytes(uint32_t number)
{
    return qs_test_mix(number + 77) % 20;
}

static inline uint32_t qs_test_key(const struct qs_test_records *kind, uint32_t flags,
                                   uint32_t number)
{
    return (flags & QS_TEST_ONE_ROUTE) != 0 ? 0 : qs_test_mix(number + 5) % kind->key_count;
}

static inline struct qsi_slice qs_test_key_text(uint32_t key, char out[QS_TEST_NAME_BYTES])
{
    return qsi_slice_make(out, (uint32_t)snprintf(out, QS_TEST_NAME_BYTES, "k%u", (unsigned)key));
}

static inline struct qsi_slice qs_test_exchange(uint32_t key)
{
    return key % 2 == 0 ? QSI_SLICE_LITERAL("orders") : QSI_SLICE_LITERAL("");
}

static inline uint32_t qs_test_expiration(uint32_t flags, uint32_t number)
{
    return (flags & QS_TEST_EXPIRATIONS) != 0 && number % 2 == 0 ? number * 10 : QSI_NO_EXPIRATION;
}

static inline uint64_t qs_test_due(uint32_t flags, uint32_t number)
{
    return (flags & QS_TEST_DUES) != 0 && number % 4 == 0 ? 1000 + (uint64_t)number : 0;
}

static inline struct qsi_body_ref qs_test_ref(const struct qs_test_records *kind, uint32_t number)
{
    return (struct qsi_body_ref){.file = 1,
                                 .slot = number,
                                 .offset = 4096 + 512 * (uint64_t)number,
                                 .envelope_bytes = 10,
                                 .body_bytes = qs_test_body_bytes(kind, number),
                                 .crc = number};
}

static inline void qs_test_put_routes(uint8_t *record, const struct qsi_messages_layout *layout,
                                      const struct qs_test_records *kind, uint32_t flags,
                                      uint32_t first, uint32_t count)
{
    static const uint32_t destination = 0;
    uint32_t *codes = malloc((count + 1) * sizeof *codes);
    uint64_t at = 0;

    for (uint32_t key = 0; key < layout->route_count; key++) {
        char text[QS_TEST_NAME_BYTES];
        qsi_messages_put_route(record, layout, key, &at, qs_test_exchange(key),
                               qs_test_key_text(key, text), &destination, 1);
    }
    for (uint32_t row = 0; row < count; row++) {
        codes[row] = qs_test_key(kind, flags, first + row);
    }
    qsi_messages_put_row_routes(record, layout, codes);
    free(codes);
}

static inline struct qsi_messages_layout
qs_test_lay_out(const struct qs_test_records *kind, uint32_t flags, uint32_t first, uint32_t count)
{
    struct qsi_messages_layout layout = {
        .row_count = count,
        .route_count = (flags & QS_TEST_ONE_ROUTE) != 0 ? 1 : kind->key_count,
        .destination_count = 1,
        .properties_bytes = (flags & QS_TEST_PER_ROW) != 0 ? 0 : qs_test_property_bytes(first),
        .flags = (uint8_t)(((flags & QS_TEST_PER_ROW) != 0 ? QSI_MESSAGES_PROPERTIES_PER_ROW : 0) |
                           ((flags & QS_TEST_STORED) != 0 ? QSI_MESSAGES_HAS_STORED : 0) |
                           ((flags & QS_TEST_EXPIRATIONS) != 0 ? QSI_MESSAGES_HAS_EXPIRATION : 0) |
                           ((flags & QS_TEST_DUES) != 0 ? QSI_MESSAGES_HAS_DUE : 0) |
                           ((flags & QS_TEST_ALIGNED) != 0 ? QSI_MESSAGES_ALIGNED : 0)),
    };

    for (uint32_t key = 0; key < layout.route_count; key++) {
        char text[QS_TEST_NAME_BYTES];
        layout.routes_bytes +=
            qsi_route_bytes(qs_test_exchange(key).bytes, qs_test_key_text(key, text).bytes, 1);
    }
    for (uint32_t row = 0; row < count; row++) {
        bool stored = qs_test_is_stored(flags, first + row);
        layout.bodies_bytes += stored ? QSI_BODY_REF_BYTES : qs_test_body_bytes(kind, first + row);
        if ((flags & QS_TEST_PER_ROW) != 0 && !stored) {
            layout.properties_bytes += qs_test_property_bytes(first + row);
        }
    }
    QS_CHECK_OK(qsi_messages_layout(&layout, QS_ERROR));
    return layout;
}

static inline void qs_test_put_rows(uint8_t *record, const struct qsi_messages_layout *layout,
                                    const struct qs_test_records *kind, uint32_t flags,
                                    uint32_t first, uint32_t count)
{
    uint8_t *properties = qsi_messages_properties_place(record, layout);
    uint8_t *blobs = properties + 4 * ((size_t)count + 1);
    uint8_t *offsets = qsi_messages_body_offsets_place(record, layout);
    uint8_t *bodies = qsi_messages_bodies_place(record, layout);
    uint32_t body_at = 0, blob_at = 0;

    if ((flags & QS_TEST_PER_ROW) == 0) {
        qsi_put_u32(properties, qs_test_property_bytes(first));
        qs_test_fill(properties + 4, qs_test_property_bytes(first), first + 1);
    }
    for (uint32_t row = 0; row <= count; row++) {
        uint32_t number = first + row;
        bool stored = qs_test_is_stored(flags, number);
        qsi_put_u32(offsets + 4 * (size_t)row, body_at);
        if ((flags & QS_TEST_PER_ROW) != 0) {
            qsi_put_u32(properties + 4 * (size_t)row, blob_at);
        }
        if (row == count) {
            break;
        }
        if ((flags & QS_TEST_PER_ROW) != 0 && !stored) {
            qs_test_fill(blobs + blob_at, qs_test_property_bytes(number), number + 1);
            blob_at += qs_test_property_bytes(number);
        }
        if (stored) {
            struct qsi_body_ref ref = qs_test_ref(kind, number);
            qsi_messages_stored_place(record, layout)[row / 8] |= (uint8_t)(1u << row % 8);
            qsi_body_ref_encode(bodies + body_at, &ref);
            body_at += QSI_BODY_REF_BYTES;
        } else {
            qs_test_fill(bodies + body_at, qs_test_body_bytes(kind, number), number);
            body_at += qs_test_body_bytes(kind, number);
        }
        if ((flags & QS_TEST_EXPIRATIONS) != 0) {
            qsi_messages_put_expiration(record, layout, row, qs_test_expiration(flags, number));
        }
        if ((flags & QS_TEST_DUES) != 0) {
            qsi_messages_put_due(record, layout, row, qs_test_due(flags, number));
        }
    }
}

/* A record of the messages first, first + 1, ... for one destination, at the end of out; returns
 * where it begins. */
static inline size_t qs_test_append_record(struct qsi_buf *out, const struct qs_test_records *kind,
                                           uint32_t flags, uint32_t first, uint32_t count,
                                           uint64_t destination, uint64_t first_seq,
                                           uint64_t time_us)
{
    struct qsi_messages_layout layout = qs_test_lay_out(kind, flags, first, count);
    size_t at = out->bytes;
    uint8_t *record;

    QS_CHECK_OK(qsi_buf_reserve(out, layout.record_bytes, &record));
    memset(record, 0xa5, layout.record_bytes);
    out->bytes += layout.record_bytes;
    qsi_messages_begin(record, &layout);
    qsi_messages_put_time(record, time_us);
    qsi_messages_put_destination(record, 0, destination, first_seq, count);
    qs_test_put_routes(record, &layout, kind, flags, first, count);
    qs_test_put_rows(record, &layout, kind, flags, first, count);
    QS_CHECK_OK(qsi_messages_check(record, QS_ERROR));
    return at;
}

/* The same alone in a chunk. */
static inline struct qsi_chunk *qs_test_record_chunk(const struct qs_test_records *kind,
                                                     uint32_t flags, uint32_t first, uint32_t count,
                                                     uint64_t destination, uint64_t first_seq,
                                                     uint64_t time_us)
{
    struct qsi_buf out = {0};
    struct qsi_chunk *chunk;

    qs_test_append_record(&out, kind, flags, first, count, destination, first_seq, time_us);
    chunk = qsi_chunk_create(out.bytes);
    QS_CHECK(chunk != NULL);
    memcpy(chunk->data, out.data, out.bytes);
    chunk->used = out.bytes;
    qsi_buf_fini(&out);
    return chunk;
}

static inline void qs_test_check_bytes(struct qsi_slice slice, uint32_t bytes, uint32_t number)
{
    QS_CHECK(slice.bytes == bytes);
    for (uint32_t i = 0; i < bytes; i++) {
        QS_CHECK(slice.data[i] == (uint8_t)(number * 31 + i * 7 + (i >> 8)));
    }
}

/* Whether the row is message number, which came from a record with these flags whose first row was
 * message first.  The body is inline. */
static inline void qs_test_check_row(const struct qsi_messages *view, uint32_t row,
                                     const struct qs_test_records *kind, uint32_t flags,
                                     uint32_t first, uint32_t number)
{
    struct qsi_route_view route = qsi_messages_route(view, qsi_messages_row_route(view, row));
    uint32_t key = qs_test_key(kind, flags, number);
    bool own = (flags & QS_TEST_PER_ROW) != 0 || qs_test_is_stored(flags, number);
    char text[QS_TEST_NAME_BYTES];

    QS_CHECK(!qsi_messages_is_stored(view, row));
    qs_test_check_bytes(qsi_messages_body(view, row), qs_test_body_bytes(kind, number), number);
    qs_test_check_bytes(qsi_messages_properties(view, row),
                        qs_test_property_bytes(own ? number : first), (own ? number : first) + 1);
    QS_CHECK(qsi_slice_compare(route.key, qs_test_key_text(key, text)) == 0);
    QS_CHECK(qsi_slice_compare(route.exchange, qs_test_exchange(key)) == 0);
}

#endif
