/* Every malformed record is refused.
 *
 * Records lie in memory of exactly their size, so that a sanitizer sees each byte that is read
 * past the end.  The random part writes nonsense into good records: whatever check lets through
 * must be readable.  Its seed is printed and is the first argument. */
#include "qs_test_records.h"
#include "record_fixture.h"

/* The columns are where the header says they are, and that is no place for aligned ones. */
QS_TEST(test_columns_that_are_not_aligned_are_refused)
{
    struct sample sample = {9, 3, 2, QSI_MESSAGES_ALIGNED, 2};
    QS_TEST_FREED uint8_t *record = make_record(&sample);

    for (size_t at = 24; at <= 32; at += 4) {
        uint32_t good = qsi_get_u32(record + at);
        for (uint32_t more = 1; more < 64; more++) {
            qsi_put_u32(record + at, good + more);
            QS_CHECK_STATUS(QS_ECORRUPT, qsi_messages_check(record, QS_ERROR));
        }
        qsi_put_u32(record + at, good);
    }
    QS_CHECK_OK(qsi_messages_check(record, QS_ERROR));
}

QS_TEST(test_flags_of_a_later_version_are_refused_as_such)
{
    struct sample sample = {9, 3, 2, 0, 2};
    QS_TEST_FREED uint8_t *record = make_record(&sample);

    for (uint8_t flag = 64; flag != 0; flag = (uint8_t)(flag << 1)) {
        record[5] = flag;
        QS_CHECK_STATUS(QS_EVERSION, qsi_messages_check(record, QS_ERROR));
    }
}

/* ---- malformed ---- */

static const struct sample small = {
    9, 3, 2,
    QSI_MESSAGES_PROPERTIES_PER_ROW | QSI_MESSAGES_HAS_STORED | QSI_MESSAGES_HAS_EXPIRATION, 2};

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

QS_TEST(test_every_header_field_is_checked)
{
    QS_TEST_FREED uint8_t *record = make_record(&small);

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
}

/* The bodies of rows 0, 2, 4 ... are elsewhere; each takes 28 bytes. */
QS_TEST(test_a_body_reference_of_another_length_is_refused)
{
    QS_TEST_FREED uint8_t *record = make_record(&small);
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
}

QS_TEST(test_short_records_are_refused)
{
    QS_TEST_FREED uint8_t *record = make_record(&small);
    uint32_t bytes = qsi_record_length(record);

    for (uint32_t shorter = 0; shorter < bytes; shorter += 8) {
        QS_TEST_FREED uint8_t *cut =
            malloc(bytes); /* check reads the header whatever its length says */
        struct qsi_messages_layout layout = lay_out(&small);

        QS_CHECK(cut != NULL);
        memcpy(cut, record, bytes);
        qsi_put_u32(cut, shorter);
        if (shorter < layout.bodies_at + 60) {
            check_refused(cut);
        }
    }
}

QS_TEST(test_routes_are_checked)
{
    QS_TEST_FREED uint8_t *record = make_record(&small);
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
}

QS_TEST(test_offsets_are_checked)
{
    QS_TEST_FREED uint8_t *record = make_record(&small);
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
}

QS_TEST(test_shared_properties_are_checked)
{
    struct sample sample = {3, 1, 1, 0, 1};
    QS_TEST_FREED uint8_t *record = make_record(&sample);
    struct qsi_messages_layout layout = lay_out(&sample);

    qsi_put_u32(record + layout.properties_at, 12);
    check_refused(record);
    qsi_put_u32(record + layout.properties_at, UINT32_MAX);
    check_refused(record);
    qsi_put_u32(record + layout.properties_at, 11);
    QS_CHECK_OK(qsi_messages_check(record, QS_ERROR));
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

QS_SEED_TEST(test_what_check_lets_through_is_readable)
{
    volatile uint64_t sum = 0;
    uint32_t let_through = 0;

    for (int turn = 0; turn < 20000; turn++) {
        struct sample sample = {
            1 + (uint32_t)random_next(&seed) % 20, 1 + (uint32_t)random_next(&seed) % 4,
            (uint32_t)random_next(&seed) % 4, (uint8_t)(random_next(&seed) % 64), 2};
        QS_TEST_FREED uint8_t *record = make_record(&sample);
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
    }
    QS_CHECK(let_through > 100);
}

QS_TEST(test_impossible_lengths_do_not_fit)
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

/* Rows are looked at in groups: one bad row is seen wherever it is, and no good one is taken for
 * it. */
QS_TEST(test_one_bad_row_is_seen_in_every_place)
{
    static const uint32_t key_counts[] = {2, 3, 127, 128, 129, 200, 255, 256, 300};

    for (uint32_t i = 0; i < sizeof key_counts / sizeof key_counts[0]; i++) {
        const struct qs_test_records kind = {.body_bytes_max = 9, .key_count = key_counts[i]};
        const uint32_t count = 37;
        struct qsi_chunk *chunk = qs_test_record_chunk(&kind, 0, 0, count, 1, 0, 1);
        struct qsi_messages view;
        qsi_messages_view(&view, chunk->data);
        for (uint32_t row = 0; row < count; row++) {
            uint8_t *code = (uint8_t *)(uintptr_t)view.row_routes + row * view.row_route_width;
            uint8_t *offset = (uint8_t *)(uintptr_t)view.body_offsets + 4 * (size_t)(row + 1);
            uint32_t was_code = qsi_messages_row_route(&view, row), was = qsi_get_u32(offset);
            for (uint32_t wrong = 0; wrong < 256 && view.row_route_width == 1; wrong++) {
                *code = (uint8_t)wrong;
                QS_CHECK((qsi_messages_check(chunk->data, NULL) == QS_OK) ==
                         (wrong < key_counts[i]));
            }
            *code = view.row_route_width == 1 ? (uint8_t)was_code : *code;
            qsi_put_u32(offset, UINT32_MAX);
            QS_CHECK_STATUS(QS_ECORRUPT, qsi_messages_check(chunk->data, QS_ERROR));
            qsi_put_u32(offset, qsi_get_u32(offset - 4) - 1);
            QS_CHECK_STATUS(QS_ECORRUPT, qsi_messages_check(chunk->data, QS_ERROR));
            qsi_put_u32(offset, was);
            QS_CHECK_OK(qsi_messages_check(chunk->data, QS_ERROR));
        }
        qsi_chunk_unref(chunk);
    }
}
