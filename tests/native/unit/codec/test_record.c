/* Records: every layout read back.  What is malformed is in test_record_refused.c.
 *
 * Records lie in memory of exactly their size, so that a sanitizer sees each byte that is read
 * past the end. */
#include "record_fixture.h"

static void check_bytes(struct qsi_slice slice, uint32_t bytes, uint32_t salt)
{
    QS_CHECK(slice.bytes == bytes);
    for (uint32_t i = 0; i < bytes; i++) {
        QS_CHECK(slice.data[i] == (uint8_t)(salt * 31 + i));
    }
}

/* The rows once more, by the writer: put_rows above knows the format, the writer has to. */
static void write_rows(const struct sample *sample, const struct qsi_messages_layout *layout,
                       uint8_t *record)
{
    struct qsi_messages_writer writer;
    uint8_t bytes[64];

    QS_CHECK(blob_bytes(sample, 0) < sizeof bytes);
    if ((sample->flags & QSI_MESSAGES_PROPERTIES_PER_ROW) == 0) {
        fill(bytes, blob_bytes(sample, 0), 99);
        qsi_messages_put_properties(record, layout, qsi_slice_make(bytes, blob_bytes(sample, 0)));
    }
    qsi_messages_writer_begin(&writer, record, layout);
    for (uint32_t row = 0; row < sample->rows; row++) {
        struct qsi_body body;
        if ((sample->flags & QSI_MESSAGES_PROPERTIES_PER_ROW) != 0) {
            fill(qsi_messages_write_properties(&writer, blob_bytes(sample, row)),
                 blob_bytes(sample, row), row + 1);
        }
        fill(bytes, body_bytes(sample, row), row + 2);
        if (is_stored(sample, row)) {
            qsi_body_decode(&body, qsi_slice_make(bytes, QSI_BODY_REF_BYTES));
            qsi_messages_write_ref(&writer, &body.ref);
        } else {
            qsi_messages_write_body(&writer, qsi_slice_make(bytes, body_bytes(sample, row)));
        }
    }
}

static void check_writer(const struct sample *sample, const uint8_t *expected)
{
    struct qsi_messages_layout layout = lay_out(sample);
    QS_TEST_FREED uint8_t *record = malloc(layout.record_bytes);
    uint64_t rows_at = layout.bodies_at;

    QS_CHECK(record != NULL);
    memset(record, 0xee, layout.record_bytes);
    qsi_messages_begin(record, &layout);
    write_rows(sample, &layout, record);
    QS_CHECK(memcmp(record + layout.properties_at, expected + layout.properties_at,
                    4 + layout.properties_bytes) == 0);
    QS_CHECK(memcmp(record + rows_at, expected + rows_at, layout.record_bytes - rows_at) == 0);
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

QS_TEST(test_messages_round_trip_in_every_layout)
{
    static const uint32_t routes[] = {1, 2, 255, 256, 257, 300, 65536, 65537, 70000};
    static const uint32_t widths[] = {0, 1, 1, 1, 2, 2, 2, 4, 4};
    static const uint32_t rows[] = {1, 2, 7, 8, 9, 64, 500};

    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
            for (uint8_t flags = 0; flags <= QSI_MESSAGES_FLAGS; flags++) {
                struct sample sample = {rows[k], routes[i], 0, flags, 3};
                uint8_t *record;

                if (routes[i] > 300 && (k % 3 != 0 || (flags != 0 && flags % 16 != 15))) {
                    continue; /* slow, and no different */
                }
                sample.destinations = flags % 4 == 3 ? 0 : 1 + (uint32_t)(i + k) % 5;
                record = make_record(&sample);
                QS_CHECK(record[6] == widths[i]);
                check_record(&sample, record);
                check_writer(&sample, record);
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

QS_TEST(test_aligned_columns_are_arrow_arrays_in_place_and_gaps_are_zeros)
{
    for (uint8_t flags = 0; flags < QSI_MESSAGES_ALIGNED; flags++) {
        struct sample sample = {37, 300, 3, (uint8_t)(flags | QSI_MESSAGES_ALIGNED), 3};
        QS_TEST_FREED uint8_t *record = make_record(&sample);
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
    }
}

QS_TEST(test_long_records_of_several_rows_are_aligned_and_no_others)
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

QS_TEST(test_a_record_is_no_longer_than_four_gigabytes)
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

/* Each kind of body is told by its kind; a record with a damaged one never comes from a file. */
QS_TEST(test_a_body_is_embedded_or_stored_or_damaged)
{
    const struct qsi_body_ref ref = {.file = 3, .slot = 4, .offset = 5, .body_bytes = 1000};
    const struct qsi_body_damage damage = {.queue_id = 6, .number = 7, .generation = 8, .slot = 9};
    struct qsi_messages_layout layout = {
        .row_count = 4,
        .route_count = 1,
        .destination_count = 1,
        .routes_bytes = qsi_route_bytes(0, 0, 1),
        /* an embedded body as long as the cell of a damaged one */
        .bodies_bytes = QSI_BODY_DAMAGE_BYTES + QSI_BODY_REF_BYTES + QSI_BODY_DAMAGE_BYTES,
        .flags = QSI_MESSAGES_HAS_STORED,
    };
    struct qsi_messages_writer writer;
    struct qsi_messages view;
    struct qsi_body body;
    uint8_t bytes[QSI_BODY_DAMAGE_BYTES];
    uint64_t at = 0;
    uint8_t *record;

    QS_CHECK_OK(qsi_messages_layout(&layout, QS_ERROR));
    record = malloc(layout.record_bytes);
    QS_CHECK(record != NULL);
    qsi_messages_begin(record, &layout);
    qsi_messages_put_route(record, &layout, 0, &at, qsi_slice_make("", 0), qsi_slice_make("", 0),
                           NULL, 1);
    qsi_messages_put_properties(record, &layout, qsi_slice_make("", 0));
    qsi_messages_put_destination(record, 0, 1, 1, 4);
    fill(bytes, sizeof bytes, 1);
    qsi_messages_writer_begin(&writer, record, &layout);
    qsi_messages_write_body(&writer, qsi_slice_make(bytes, sizeof bytes));
    qsi_messages_write_ref(&writer, &ref);
    qsi_messages_write_damage(&writer, &damage);
    qsi_messages_write_body(&writer, qsi_slice_make("", 0));
    qsi_messages_view(&view, record);
    qsi_messages_read_body(&view, 0, &body);
    QS_CHECK(body.kind == QSI_BODY_EMBEDDED);
    check_bytes(body.bytes, sizeof bytes, 1);
    qsi_messages_read_body(&view, 1, &body);
    QS_CHECK(body.kind == QSI_BODY_STORED && body.ref.file == 3 && body.ref.offset == 5);
    QS_CHECK(qsi_messages_body_bytes(&view, 1) == 1000);
    qsi_messages_read_body(&view, 2, &body);
    QS_CHECK(body.kind == QSI_BODY_DAMAGED && body.damage.queue_id == 6 && body.damage.slot == 9);
    QS_CHECK(qsi_messages_body_bytes(&view, 2) == 0);
    qsi_messages_read_body(&view, 3, &body);
    QS_CHECK(body.kind == QSI_BODY_EMBEDDED && body.bytes.bytes == 0);
    check_refused(record);
    free(record);
}

/* ---- settle and topology ---- */

static void check_settle(uint8_t kind)
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

QS_TEST(test_settle_round_trips_and_is_checked)
{
    for (uint8_t kind = QSI_SETTLE_ACK; kind <= QSI_SETTLE_DUE; kind++) {
        check_settle(kind);
    }
}

QS_TEST(test_settles_of_another_kind_are_refused)
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

QS_TEST(test_topology_round_trips_and_is_checked)
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
