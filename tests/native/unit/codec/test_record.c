/* Records: every layout read back, every malformed one refused.
 *
 * Records lie in memory of exactly their size, so that a sanitizer sees each byte that is read
 * past the end.  The random part writes nonsense into good records: whatever check lets through
 * must be readable.  Its seed is printed and is the first argument. */
#include "qs_test.h"
#include "record.h"

#include <stdlib.h>

struct sample {
    uint32_t rows, routes, destinations;
    uint8_t flags;
    uint32_t stored_every; /* with HAS_STORED */
};

static bool is_stored(const struct sample *sample, uint32_t row)
{
    return (sample->flags & QSI_MESSAGES_HAS_STORED) != 0 && row % sample->stored_every == 0;
}

/* What row, route and destination i hold, the same each time. */
static uint32_t body_bytes(const struct sample *sample, uint32_t row)
{
    return is_stored(sample, row) ? QSI_BODY_REF_BYTES : row * 7 % 23;
}

static uint32_t blob_bytes(const struct sample *sample, uint32_t row)
{
    return (sample->flags & QSI_MESSAGES_PROPERTIES_PER_ROW) != 0 ? row % 5 : 11;
}

static uint32_t route_destinations(const struct sample *sample, uint32_t route)
{
    return sample->destinations == 0 ? 0 : route % (sample->destinations + 1);
}

static uint32_t row_route(const struct sample *sample, uint32_t row)
{
    return row * 13 % sample->routes;
}

static void fill(uint8_t *out, uint32_t bytes, uint32_t salt)
{
    for (uint32_t i = 0; i < bytes; i++) {
        out[i] = (uint8_t)(salt * 31 + i);
    }
}

static void check_bytes(struct qsi_slice slice, uint32_t bytes, uint32_t salt)
{
    QS_CHECK(slice.bytes == bytes);
    for (uint32_t i = 0; i < bytes; i++) {
        QS_CHECK(slice.data[i] == (uint8_t)(salt * 31 + i));
    }
}

static struct qsi_messages_layout lay_out(const struct sample *sample)
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

static void put_routes(const struct sample *sample, const struct qsi_messages_layout *layout,
                       uint8_t *record)
{
    uint32_t *codes = malloc(((size_t)sample->rows + sample->destinations + 1) * sizeof *codes);
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
    free(codes);
}

/* Every fourth row has none of its own. */
static uint32_t expiration_ms(uint32_t row)
{
    return row % 4 == 3 ? QSI_NO_EXPIRATION : row * 1000000007u % QSI_NO_EXPIRATION;
}

static uint64_t due_us(uint32_t row)
{
    return row % 3 == 1 ? 0 : row * UINT64_C(1000000000039);
}

static void put_rows(const struct sample *sample, const struct qsi_messages_layout *layout,
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
static uint8_t *make_record(const struct sample *sample)
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

static void check_record(const struct sample *sample, const uint8_t *record)
{
    bool per_row = (sample->flags & QSI_MESSAGES_PROPERTIES_PER_ROW) != 0;
    bool expires = (sample->flags & QSI_MESSAGES_HAS_EXPIRATION) != 0;
    bool is_delayed = (sample->flags & QSI_MESSAGES_HAS_DUE) != 0;
    struct qsi_messages view;

    QS_CHECK_OK(qsi_messages_check(record, QS_ERROR));
    qsi_messages_view(&view, record);
    QS_CHECK(qsi_messages_time(record) == UINT64_C(1234567890123456));
    QS_CHECK(qsi_messages_has_expiration(record) == expires);
    QS_CHECK(view.row_count == sample->rows && view.route_count == sample->routes &&
             view.destination_count == sample->destinations &&
             (view.flags & ~QSI_MESSAGES_ALIGNED) == (sample->flags & ~QSI_MESSAGES_ALIGNED));
    for (uint32_t i = 0; i < sample->destinations; i++) {
        QS_CHECK(qsi_messages_destination_queue(&view, i) == 1000 + i);
        QS_CHECK(qsi_messages_destination_seq(&view, i) == UINT64_C(5000000000) * i);
        QS_CHECK(qsi_messages_destination_rows(&view, i) == i + 1);
    }
    for (uint32_t i = 0; i < sample->routes; i++) {
        struct qsi_route_view route = qsi_messages_route(&view, i);

        QS_CHECK(route.destination_count == route_destinations(sample, i));
        for (uint32_t k = 0; k < route.destination_count; k++) {
            QS_CHECK(qsi_get_u32(route.destinations + 4 * (size_t)k) ==
                     sample->destinations - 1 - k);
        }
        check_bytes(route.exchange, i % 3, i);
        QS_CHECK(route.key.bytes == i % 256);
        QS_CHECK(route.key.bytes == 0 || route.key.data[0] == (uint8_t)(i * 31 + 3));
    }
    for (uint32_t row = 0; row < sample->rows; row++) {
        QS_CHECK(qsi_messages_row_route(&view, row) == row_route(sample, row));
        check_bytes(qsi_messages_properties(&view, row), blob_bytes(sample, row),
                    per_row ? row + 1 : 99);
        check_bytes(qsi_messages_body(&view, row), body_bytes(sample, row), row + 2);
        QS_CHECK(qsi_messages_expiration(&view, row) ==
                 (expires ? expiration_ms(row) : QSI_NO_EXPIRATION));
        QS_CHECK(qsi_messages_due(&view, row) == (is_delayed ? due_us(row) : 0));
        QS_CHECK(qsi_messages_is_stored(&view, row) == is_stored(sample, row));
    }
}

static void test_messages_round_trip_in_every_layout(void)
{
    static const uint32_t routes[] = {1, 2, 255, 256, 257, 300, 65536, 65537, 70000};
    static const uint32_t widths[] = {0, 1, 1, 1, 2, 2, 2, 4, 4};
    static const uint32_t rows[] = {1, 2, 7, 8, 9, 64, 500};

    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
            for (uint8_t flags = 0; flags <= QSI_MESSAGES_FLAGS; flags++) {
                struct sample sample = {rows[k], routes[i], 0, flags, 3};
                uint8_t *record;

                if (routes[i] > 300 && (k % 3 != 0 || flags % 3 != 0)) {
                    continue; /* slow, and no different */
                }
                sample.destinations = flags % 4 == 3 ? 0 : 1 + (uint32_t)(i + k) % 5;
                record = make_record(&sample);
                QS_CHECK(record[6] == widths[i]);
                check_record(&sample, record);
                free(record);
            }
        }
    }
}

/* An Arrow array of binary: offsets from 0, each aligned as a 32-bit integer is and more, cells
 * without gaps. */
static void check_is_arrow(const uint8_t *record, const struct qsi_messages *view)
{
    const uint8_t *columns[] = {view->row_routes, view->expirations,  view->dues,  view->properties,
                                view->stored,     view->body_offsets, view->bodies};
    uint32_t total = 0;

    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        QS_CHECK(columns[i] == NULL || (columns[i] - record) % 64 == 0);
    }
    for (uint32_t row = 0; row < view->row_count; row++) {
        QS_CHECK(qsi_get_u32(view->body_offsets + 4 * (size_t)row) == total);
        total += qsi_messages_body(view, row).bytes;
    }
    QS_CHECK(qsi_get_u32(view->body_offsets + 4 * (size_t)view->row_count) == total);
    QS_CHECK((uint64_t)(view->bodies - record) + total <= qsi_record_length(record));
}

static void check_gap(const uint8_t *from, const uint8_t *to)
{
    QS_CHECK(from <= to && to - from < 64);
    for (; from < to; from++) {
        QS_CHECK(*from == 0);
    }
}

static void test_aligned_columns_are_arrow_arrays_in_place_and_gaps_are_zeros(void)
{
    for (uint8_t flags = 0; flags < QSI_MESSAGES_ALIGNED; flags++) {
        struct sample sample = {37, 300, 3, (uint8_t)(flags | QSI_MESSAGES_ALIGNED), 3};
        uint8_t *record = make_record(&sample);
        struct qsi_messages view;
        const uint8_t *end;

        qsi_messages_view(&view, record);
        QS_CHECK((view.flags & QSI_MESSAGES_ALIGNED) != 0);
        check_is_arrow(record, &view);
        check_gap(view.row_routes + 2 * 37, view.expirations != NULL ? view.expirations
                                            : view.dues != NULL      ? view.dues
                                                                     : view.properties);
        if (view.expirations != NULL) {
            check_gap(view.expirations + 4 * 37, view.dues != NULL ? view.dues : view.properties);
        }
        if (view.dues != NULL) {
            check_gap(view.dues + 8 * 37, view.properties);
        }
        end = qsi_messages_properties(&view, 36).data + qsi_messages_properties(&view, 36).bytes;
        check_gap(end, view.stored != NULL ? view.stored : view.body_offsets);
        if (view.stored != NULL) {
            check_gap(view.stored + 5, view.body_offsets);
        }
        check_gap(view.body_offsets + 4 * 38, view.bodies);
        free(record);
    }
}

static void test_long_records_of_several_rows_are_aligned_and_no_others(void)
{
    for (uint64_t bytes = 16000; bytes < 17000; bytes++) {
        struct qsi_messages_layout one = {.row_count = 1, .route_count = 1, .bodies_bytes = bytes};
        struct qsi_messages_layout two = one, forced = one;

        two.row_count = 2;
        forced.flags = QSI_MESSAGES_ALIGNED;
        forced.bodies_bytes = 1;
        QS_CHECK_OK(qsi_messages_layout(&one, QS_ERROR));
        QS_CHECK_OK(qsi_messages_layout(&two, QS_ERROR));
        QS_CHECK_OK(qsi_messages_layout(&forced, QS_ERROR));
        QS_CHECK(one.flags == 0 && forced.flags == QSI_MESSAGES_ALIGNED);
        QS_CHECK((two.flags == 0) == (two.record_bytes < QSI_MESSAGES_ALIGN_FROM));
        QS_CHECK(two.record_bytes < one.record_bytes + 8 + 7 * 64);
    }
}

/* The columns are where the header says they are, and that is no place for aligned ones. */
static void test_columns_that_are_not_aligned_are_refused(void)
{
    struct sample sample = {9, 3, 2, QSI_MESSAGES_ALIGNED, 2};
    uint8_t *record = make_record(&sample);

    for (size_t at = 24; at <= 32; at += 4) {
        uint32_t good = qsi_get_u32(record + at);
        for (uint32_t more = 1; more < 64; more++) {
            qsi_put_u32(record + at, good + more);
            QS_CHECK_STATUS(QS_ECORRUPT, qsi_messages_check(record, QS_ERROR));
        }
        qsi_put_u32(record + at, good);
    }
    QS_CHECK_OK(qsi_messages_check(record, QS_ERROR));
    free(record);
}

static void test_flags_of_a_later_version_are_refused_as_such(void)
{
    struct sample sample = {9, 3, 2, 0, 2};
    uint8_t *record = make_record(&sample);

    for (uint8_t flag = 64; flag != 0; flag = (uint8_t)(flag << 1)) {
        record[5] = flag;
        QS_CHECK_STATUS(QS_EVERSION, qsi_messages_check(record, QS_ERROR));
    }
    free(record);
}

static void test_a_record_is_no_longer_than_four_gigabytes(void)
{
    struct qsi_messages_layout layout = {
        .row_count = 1, .route_count = 1, .bodies_bytes = UINT32_MAX - 100};

    QS_CHECK_OK(qsi_messages_layout(&layout, QS_ERROR));
    layout.bodies_bytes = UINT32_MAX;
    QS_CHECK_STATUS(QS_EINVAL, qsi_messages_layout(&layout, QS_ERROR));
    layout.bodies_bytes = UINT64_C(1) << 40;
    QS_CHECK_STATUS(QS_EINVAL, qsi_messages_layout(&layout, QS_ERROR));
}

/* ---- malformed ---- */

static const struct sample small = {
    9, 3, 2,
    QSI_MESSAGES_PROPERTIES_PER_ROW | QSI_MESSAGES_HAS_STORED | QSI_MESSAGES_HAS_EXPIRATION, 2};

static void check_refused(const uint8_t *record)
{
    QS_CHECK_STATUS(QS_ECORRUPT, qsi_messages_check(record, QS_ERROR));
    QS_CHECK(strncmp(QS_ERROR->text, "message record: ", 16) == 0);
    QS_CHECK(qsi_messages_check(record, NULL) == QS_ECORRUPT);
}

/* The u32 at this place, one more, one less, and far away. */
static void check_refuses_others(uint8_t *record, size_t at)
{
    uint32_t good = qsi_get_u32(record + at);
    const uint32_t others[] = {good + 1,   good - 1,       good + 8,      0,
                               UINT32_MAX, UINT32_MAX / 2, UINT32_MAX - 7};

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (others[i] == good) {
            continue;
        }
        qsi_put_u32(record + at, others[i]);
        check_refused(record);
    }
    qsi_put_u32(record + at, good);
    QS_CHECK_OK(qsi_messages_check(record, QS_ERROR));
}

static void test_every_header_field_is_checked(void)
{
    uint8_t *record = make_record(&small);

    check_refuses_others(record, 8);  /* rows */
    check_refuses_others(record, 16); /* destinations */
    check_refuses_others(record, 20); /* where routes begin */
    check_refuses_others(record, 24); /* row routes */
    check_refuses_others(record, 28); /* properties */
    check_refuses_others(record, 32); /* bodies */
    qsi_put_u32(record + 12, 0);      /* routes */
    check_refused(record);
    qsi_put_u32(record + 12, 1);
    check_refused(record);
    qsi_put_u32(record + 12, 300);
    check_refused(record);
    qsi_put_u32(record + 12, UINT32_MAX);
    check_refused(record);
    qsi_put_u32(record + 12, small.routes);
    record[5] ^=
        QSI_MESSAGES_HAS_EXPIRATION; /* a column that is not there, or one that nobody knows of */
    check_refused(record);
    record[5] ^= QSI_MESSAGES_HAS_EXPIRATION;
    for (int width = 0; width < 256; width++) {
        record[6] = (uint8_t)width;
        QS_CHECK((qsi_messages_check(record, NULL) == QS_OK) == (width == 1));
    }
    free(record);
}

/* The bodies of rows 0, 2, 4 ... are elsewhere; each takes 28 bytes. */
static void test_a_body_reference_of_another_length_is_refused(void)
{
    uint8_t *record = make_record(&small);
    struct qsi_messages view;
    uint8_t *offsets;

    qsi_messages_view(&view, record);
    offsets = record + (view.body_offsets - record);
    QS_CHECK(qsi_messages_body(&view, 2).bytes == QSI_BODY_REF_BYTES);
    for (uint32_t less = 1; less <= 4; less++) { /* 4: as long as what tells of damage */
        uint32_t end = qsi_get_u32(offsets + 4 * 3);
        qsi_put_u32(offsets + 4 * 3, less == 4 ? end + 4 : end - less);
        check_refused(record);
        qsi_put_u32(offsets + 4 * 3, end);
    }
    QS_CHECK_OK(qsi_messages_check(record, QS_ERROR));
    free(record);
}

static void test_short_records_are_refused(void)
{
    uint8_t *record = make_record(&small);
    uint32_t bytes = qsi_record_length(record);

    for (uint32_t shorter = 0; shorter < bytes; shorter += 8) {
        uint8_t *cut = malloc(bytes); /* check reads the header whatever its length says */
        struct qsi_messages_layout layout = lay_out(&small);

        QS_CHECK(cut != NULL);
        memcpy(cut, record, bytes);
        qsi_put_u32(cut, shorter);
        if (shorter < layout.bodies_at + 60) {
            check_refused(cut);
        }
        free(cut);
    }
    free(record);
}

static void test_routes_are_checked(void)
{
    uint8_t *record = make_record(&small);
    struct qsi_messages_layout layout = lay_out(&small);
    uint32_t first = qsi_get_u32(record + layout.routes_at);
    uint32_t last = qsi_get_u32(record + layout.routes_at + 8);

    qsi_put_u32(record + layout.routes_at, (uint32_t)layout.row_routes_at - 7);
    check_refused(record);
    qsi_put_u32(record + layout.routes_at, UINT32_MAX);
    check_refused(record);
    qsi_put_u32(record + layout.routes_at, first);
    qsi_put_u32(record + last, 3); /* destinations of the last route: one too many */
    check_refused(record);
    qsi_put_u32(record + last, UINT32_MAX);
    check_refused(record);
    qsi_put_u32(record + last, 2);
    record[last + 5] += 1; /* its key ends behind its section */
    check_refused(record);
    record[last + 5] -= 1;
    qsi_put_u32(record + last + 8, 2); /* leads to a destination that is not there */
    check_refused(record);
    qsi_put_u32(record + last + 8, 1);
    QS_CHECK_OK(qsi_messages_check(record, QS_ERROR));
    record[layout.row_routes_at + 4] = 3; /* a row's route is not there */
    check_refused(record);
    free(record);
}

static void test_offsets_are_checked(void)
{
    uint8_t *record = make_record(&small);
    struct qsi_messages_layout layout = lay_out(&small);
    uint8_t *places[2] = {record + layout.properties_at,
                          qsi_messages_body_offsets_place(record, &layout)};

    for (int i = 0; i < 2; i++) {
        uint8_t *first = places[i], *middle = places[i] + 16, *last = places[i] + 4 * 9;
        uint32_t good = qsi_get_u32(middle);

        qsi_put_u32(first, 1);
        check_refused(record);
        qsi_put_u32(first, 0);
        qsi_put_u32(middle, qsi_get_u32(middle + 4) + 1);
        check_refused(record);
        qsi_put_u32(middle, UINT32_MAX);
        check_refused(record);
        qsi_put_u32(middle, good);
        good = qsi_get_u32(last);
        qsi_put_u32(last, good + 9); /* padding is less than 8 bytes */
        check_refused(record);
        qsi_put_u32(last, UINT32_MAX);
        check_refused(record);
        qsi_put_u32(last, good);
        QS_CHECK_OK(qsi_messages_check(record, QS_ERROR));
    }
    free(record);
}

static void test_shared_properties_are_checked(void)
{
    struct sample sample = {3, 1, 1, 0, 1};
    uint8_t *record = make_record(&sample);
    struct qsi_messages_layout layout = lay_out(&sample);

    qsi_put_u32(record + layout.properties_at, 12);
    check_refused(record);
    qsi_put_u32(record + layout.properties_at, UINT32_MAX);
    check_refused(record);
    qsi_put_u32(record + layout.properties_at, 11);
    QS_CHECK_OK(qsi_messages_check(record, QS_ERROR));
    free(record);
}

/* Reads all that a record offers: a sanitizer tells if that leaves it. */
static uint64_t read_all(const uint8_t *record)
{
    struct qsi_messages view;
    uint64_t sum = 0;

    qsi_messages_view(&view, record);
    for (uint32_t i = 0; i < view.destination_count; i++) {
        sum += qsi_messages_destination_queue(&view, i) + qsi_messages_destination_rows(&view, i);
    }
    for (uint32_t row = 0; row < view.row_count; row++) {
        struct qsi_route_view route = qsi_messages_route(&view, qsi_messages_row_route(&view, row));
        struct qsi_slice slices[] = {route.exchange, route.key, qsi_messages_properties(&view, row),
                                     qsi_messages_body(&view, row)};

        for (size_t i = 0; i < 4; i++) {
            for (uint32_t k = 0; k < slices[i].bytes; k++) {
                sum += slices[i].data[k];
            }
        }
        for (uint32_t i = 0; i < route.destination_count; i++) {
            sum += qsi_get_u32(route.destinations + 4 * (size_t)i);
        }
        sum += qsi_messages_is_stored(&view, row);
    }
    return sum;
}

static uint64_t random_next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static void test_what_check_lets_through_is_readable(uint64_t seed)
{
    volatile uint64_t sum = 0;
    uint32_t let_through = 0;

    for (int turn = 0; turn < 20000; turn++) {
        struct sample sample = {
            1 + (uint32_t)random_next(&seed) % 20, 1 + (uint32_t)random_next(&seed) % 4,
            (uint32_t)random_next(&seed) % 4, (uint8_t)(random_next(&seed) % 64), 2};
        uint8_t *record = make_record(&sample);
        uint32_t bytes = qsi_record_length(record);
        uint32_t count = 1 + (uint32_t)random_next(&seed) % 3;

        for (uint32_t i = 0; i < count; i++) {
            uint32_t at = 4 + (uint32_t)random_next(&seed) % (bytes - 4);

            record[at] = (uint8_t)random_next(&seed);
        }
        if (qsi_messages_check(record, NULL) == QS_OK) {
            sum += read_all(record);
            let_through += 1;
        }
        free(record);
    }
    QS_CHECK(let_through > 100);
}

static void test_impossible_lengths_do_not_fit(void)
{
    uint8_t record[32] = {0};

    for (uint32_t bytes = 0; bytes < 8; bytes++) {
        QS_CHECK(!qsi_record_fits(record, bytes));
    }
    for (uint32_t length = 0; length < 64; length++) {
        qsi_put_u32(record, length);
        QS_CHECK(qsi_record_fits(record, 32) == (length >= 8 && length <= 32 && length % 8 == 0));
    }
    qsi_put_u32(record, UINT32_MAX - 7);
    QS_CHECK(!qsi_record_fits(record, 32));
}

/* ---- settle and topology ---- */

static void test_settle_round_trips_and_is_checked(uint8_t kind)
{
    struct qsi_settle settle = {UINT64_C(1) << 60, UINT64_MAX - 10, 10, kind,
                                qsi_settle_has_due(kind) ? UINT64_MAX - 5 : 0};
    struct qsi_settle got;
    uint8_t record[QSI_SETTLE_BYTES_MAX];
    uint32_t bytes = qsi_settle_record_bytes(kind);

    qsi_settle_encode(record, &settle);
    QS_CHECK(qsi_record_fits(record, bytes) && !qsi_record_fits(record, bytes - 1) &&
             qsi_record_type(record) == QSI_RECORD_SETTLE);
    QS_CHECK_OK(qsi_settle_decode(&got, record, QS_ERROR));
    QS_CHECK(got.queue_id == settle.queue_id && got.first_seq == settle.first_seq &&
             got.count == settle.count && got.kind == settle.kind && got.due_us == settle.due_us);
    qsi_put_u32(record + 24, 11); /* past the last sequence */
    QS_CHECK_STATUS(QS_ECORRUPT, qsi_settle_decode(&got, record, QS_ERROR));
    qsi_settle_encode(record, &settle);
    for (uint32_t length = 0; length < 100; length++) {
        qsi_put_u32(record, length);
        QS_CHECK((qsi_settle_decode(&got, record, NULL) == QS_OK) == (length == bytes));
    }
}

static void test_settles_of_another_kind_are_refused(void)
{
    struct qsi_settle settle = {1, 1, 1, QSI_SETTLE_ACK, 0}, got;
    uint8_t record[QSI_SETTLE_BYTES_MAX];

    for (int kind = 0; kind < 256; kind++) {
        settle.kind = (uint8_t)kind;
        qsi_settle_encode(record, &settle);
        QS_CHECK((qsi_settle_decode(&got, record, NULL) == QS_OK) ==
                 (kind >= QSI_SETTLE_ACK && kind <= QSI_SETTLE_TAKE_BACK));
    }
}

static void test_topology_round_trips_and_is_checked(void)
{
    for (uint32_t length = 0; length < 40; length++) {
        struct qsi_topology topology = {.type = QSI_RECORD_BIND, .flags = 10, .number = 1ull << 50};
        struct qsi_topology got, bad;
        uint8_t strings[4][64], *record;
        uint64_t bytes;

        for (uint32_t i = 0; i < 4; i++) {
            fill(strings[i], 64, i);
            topology.strings[i] = qsi_slice_make(strings[i], length * i % 37);
        }
        bytes = qsi_topology_bytes(&topology);
        record = malloc(bytes);
        QS_CHECK(record != NULL && bytes % QSI_RECORD_ALIGN == 0);
        qsi_topology_encode(record, &topology);
        QS_CHECK(qsi_record_fits(record, bytes) && qsi_record_type(record) == QSI_RECORD_BIND);
        QS_CHECK_OK(qsi_topology_decode(&got, record, QS_ERROR));
        QS_CHECK(got.type == topology.type && got.flags == topology.flags &&
                 got.number == topology.number);
        for (uint32_t i = 0; i < 4; i++) {
            check_bytes(got.strings[i], topology.strings[i].bytes, i);
            qsi_put_u32(record + 12 + 4 * i, (uint32_t)bytes); /* leaves the record */
            QS_CHECK_STATUS(QS_ECORRUPT, qsi_topology_decode(&bad, record, QS_ERROR));
            qsi_put_u32(record + 12 + 4 * i, UINT32_MAX);
            QS_CHECK_STATUS(QS_ECORRUPT, qsi_topology_decode(&bad, record, QS_ERROR));
            qsi_put_u32(record + 12 + 4 * i, topology.strings[i].bytes);
        }
        for (uint32_t shorter = 0; shorter < 40; shorter += 8) {
            qsi_put_u32(record, shorter);
            QS_CHECK_STATUS(QS_ECORRUPT, qsi_topology_decode(&bad, record, QS_ERROR));
        }
        free(record);
    }
}

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);

    test_messages_round_trip_in_every_layout();
    test_aligned_columns_are_arrow_arrays_in_place_and_gaps_are_zeros();
    test_long_records_of_several_rows_are_aligned_and_no_others();
    test_columns_that_are_not_aligned_are_refused();
    test_flags_of_a_later_version_are_refused_as_such();
    test_a_record_is_no_longer_than_four_gigabytes();
    test_every_header_field_is_checked();
    test_a_body_reference_of_another_length_is_refused();
    test_short_records_are_refused();
    test_routes_are_checked();
    test_offsets_are_checked();
    test_shared_properties_are_checked();
    test_what_check_lets_through_is_readable(seed);
    test_impossible_lengths_do_not_fit();
    for (uint8_t kind = QSI_SETTLE_ACK; kind <= QSI_SETTLE_DUE; kind++) {
        test_settle_round_trips_and_is_checked(kind);
    }
    test_settles_of_another_kind_are_refused();
    test_topology_round_trips_and_is_checked();
    return 0;
}
