/* Records built of rows of others: every combination of columns, rows in any order, limits, and
 * memory that runs out at any place.
 *
 * Messages are known by numbers (qs_test_records.h): each row of what was built is compared with
 * its number, and each record must pass the check that records from files pass. */

#include "check.h"
#include "qs_test_alloc.h"
#include "qs_test_records.h"
#include "record.h"
#include "record_build.h"

#define ALL_FLAGS 63u
#define ROWS_MAX 4000u

static const struct qs_test_records kind = {.body_bytes_max = 60, .key_count = 9};

/* What the message store would give of message number, in place of the reference. */
static qs_status read_stored(void *context, const struct qsi_body *stored, struct qsi_buf *out,
                             struct qsi_stored_content *content_out, qs_error *error)
{
    uint32_t number = stored->ref.slot;
    uint8_t *room;

    (void)error;
    *(uint32_t *)context += 1;
    QS_CHECK(stored->kind == QSI_BODY_STORED && stored->ref.crc == number);
    *content_out = (struct qsi_stored_content){
        .properties_at = out->bytes,
        .properties_bytes = qs_test_property_bytes(number),
        .body_at = out->bytes + qs_test_property_bytes(number),
        .body_bytes = stored->ref.body_bytes,
    };
    QS_TRY(qsi_buf_reserve(out, content_out->properties_bytes + content_out->body_bytes, &room));
    qs_test_fill(room, content_out->properties_bytes, number + 1);
    qs_test_fill(room + content_out->properties_bytes, content_out->body_bytes, number);
    out->bytes += content_out->properties_bytes + content_out->body_bytes;
    return QS_OK;
}

/* One row that is expected. */
struct expected {
    uint32_t flags, first, number;
};

struct built {
    uint8_t *record;
    struct qsi_messages view;
    uint32_t dictionary_bytes;
};

static qs_status finish(struct qsi_record_build *build, struct built *built)
{
    uint64_t bytes;

    QS_TRY(qsi_record_build_measure(build, &bytes, QS_ERROR));
    built->record = malloc(bytes);
    memset(built->record, 0xee, bytes);
    qsi_record_build_write(build, built->record, 42, 1000, 777, &built->dictionary_bytes);
    QS_CHECK(qsi_record_length(built->record) == bytes);
    QS_CHECK_OK(qsi_messages_check(built->record, QS_ERROR));
    QS_CHECK_OK(qsi_messages_check_routes(built->record, built->dictionary_bytes, QS_ERROR));
    qsi_messages_view(&built->view, built->record);
    QS_CHECK(built->view.destination_count == 1 && qsi_messages_time(built->record) == 777);
    QS_CHECK(qsi_messages_destination_queue(&built->view, 0) == 42);
    QS_CHECK(qsi_messages_destination_seq(&built->view, 0) == 1000);
    QS_CHECK(qsi_messages_destination_rows(&built->view, 0) == built->view.row_count);
    return QS_OK;
}

static void check_built(const struct built *built, const struct expected *expected, uint32_t count,
                        uint32_t options)
{
    QS_CHECK(built->view.row_count == count);
    for (uint32_t row = 0; row < count; row++) {
        const struct expected *one = &expected[row];
        qs_test_check_row(&built->view, row, &kind, one->flags, one->first, one->number);
        QS_CHECK(qsi_messages_expiration(&built->view, row) ==
                 ((options & QSI_BUILD_EXPIRATIONS) != 0
                      ? qs_test_expiration(one->flags, one->number)
                      : QSI_NO_EXPIRATION));
        QS_CHECK(qsi_messages_due(&built->view, row) ==
                 ((options & QSI_BUILD_DUES) != 0 ? qs_test_due(one->flags, one->number) : 0));
    }
}

QS_TEST(test_all_combinations_of_columns)
{
    for (uint32_t flags = 0; flags <= ALL_FLAGS; flags++) {
        for (uint32_t options = 0; options < 8; options++) {
            uint32_t read_count = 0, taken, expected_reads = 0;
            struct qsi_record_build *build =
                qsi_record_build_create(options, read_stored, &read_count);
            struct expected expected[250];
            struct built built;
            struct qsi_buf a = {0}, b = {0};
            qs_test_append_record(&a, &kind, flags, 100, 200, 1, 1, 5);
            qs_test_append_record(&b, &kind, ALL_FLAGS - flags, 900, 50, 1, 1, 6);
            for (uint32_t i = 0; i < 250; i++) {
                expected[i] = i < 200 ? (struct expected){flags, 100, 100 + i}
                                      : (struct expected){ALL_FLAGS - flags, 900, 900 + i - 200};
                expected_reads += qs_test_is_stored(expected[i].flags, expected[i].number);
            }
            QS_CHECK(build != NULL);
            QS_CHECK_OK(qsi_record_build_add(build, &(struct qsi_row_stretch){a.data, 0, 130},
                                             UINT32_MAX, UINT32_MAX, &taken, QS_ERROR));
            QS_CHECK(taken == 130);
            QS_CHECK_OK(qsi_record_build_add(build, &(struct qsi_row_stretch){a.data, 130, 70},
                                             UINT32_MAX, UINT32_MAX, &taken, QS_ERROR));
            QS_CHECK_OK(qsi_record_build_add(build, &(struct qsi_row_stretch){b.data, 0, 50},
                                             UINT32_MAX, UINT32_MAX, &taken, QS_ERROR));
            QS_CHECK(taken == 50 && qsi_record_build_rows(build) == 250);
            QS_CHECK_OK(finish(build, &built));
            check_built(&built, expected, 250, options);
            QS_CHECK(read_count == expected_reads);
            QS_CHECK(built.view.route_count <= kind.key_count);
            if ((options & QSI_BUILD_ALIGNED) != 0) {
                QS_CHECK((built.view.flags & QSI_MESSAGES_ALIGNED) != 0);
                QS_CHECK((size_t)(built.view.bodies - built.record) % QSI_MESSAGES_ALIGN_TO == 0);
            }
            free(built.record);
            qsi_record_build_destroy(build);
            qsi_buf_fini(&a);
            qsi_buf_fini(&b);
        }
    }
}

/* What a checkpoint carries of a queue: references stay what they are. */
QS_TEST(test_stored_bodies_stay_references_if_asked)
{
    struct qsi_record_build *build = qsi_record_build_create(QSI_BUILD_KEEP_STORED, NULL, NULL);
    struct qsi_buf source = {0};
    struct qsi_messages from;
    struct built built;
    uint32_t taken;

    qs_test_append_record(&source, &kind, QS_TEST_STORED | QS_TEST_PER_ROW, 0, 100, 1, 1, 0);
    qsi_messages_view(&from, source.data);
    QS_CHECK_OK(qsi_record_build_add(build, &(struct qsi_row_stretch){source.data, 10, 90},
                                     UINT32_MAX, UINT32_MAX, &taken, QS_ERROR));
    QS_CHECK_OK(finish(build, &built));
    for (uint32_t row = 0; row < 90; row++) {
        struct qsi_slice body = qsi_messages_body(&built.view, row);
        QS_CHECK(qsi_messages_is_stored(&built.view, row) ==
                 qsi_messages_is_stored(&from, row + 10));
        QS_CHECK(qsi_slice_compare(body, qsi_messages_body(&from, row + 10)) == 0);
    }
    free(built.record);
    qsi_record_build_destroy(build);
    qsi_buf_fini(&source);
}

QS_TEST(test_limits)
{
    struct qsi_record_build *build = qsi_record_build_create(QSI_BUILD_ALIGNED, NULL, NULL);
    struct qsi_buf source = {0};
    uint32_t taken, next = 0;

    qs_test_append_record(&source, &kind, 0, 0, ROWS_MAX, 1, 1, 0);
    while (next < ROWS_MAX) { /* every row once, in records that keep to the limit, about */
        struct built built;
        struct qsi_row_stretch rest = {source.data, next, ROWS_MAX - next};
        qsi_record_build_clear(build);
        QS_CHECK_OK(qsi_record_build_add(build, &rest, 1000, 8192, &taken, QS_ERROR));
        QS_CHECK(taken > 0);
        QS_CHECK_OK(finish(build, &built));
        QS_CHECK(qsi_record_length(built.record) <= 8192 + 1024);
        for (uint32_t i = 0; i < taken; i++) {
            qs_test_check_row(&built.view, i, &kind, 0, 0, next + i);
        }
        free(built.record);
        next += taken;
    }
    qsi_record_build_clear(build);
    QS_CHECK_OK(qsi_record_build_add(build, &(struct qsi_row_stretch){source.data, 0, 10}, 3,
                                     UINT32_MAX, &taken, QS_ERROR));
    QS_CHECK(taken == 3);
    QS_CHECK_OK(qsi_record_build_add(build, &(struct qsi_row_stretch){source.data, 3, 7}, 3,
                                     UINT32_MAX, &taken, QS_ERROR));
    QS_CHECK(taken == 0 && qsi_record_build_rows(build) == 3);
    qsi_record_build_clear(build);
    QS_CHECK_OK(qsi_record_build_add(build, &(struct qsi_row_stretch){source.data, 0, 10}, 1, 0,
                                     &taken, QS_ERROR));
    QS_CHECK(taken == 1); /* one in any case */
    qsi_record_build_destroy(build);
    qsi_buf_fini(&source);
}

/* As many routes as rows: codes of four bytes, a table that grows. */
QS_TEST(test_every_row_has_a_route_of_its_own)
{
    const struct qs_test_records many = {.body_bytes_max = 8, .key_count = 70000};
    struct qsi_record_build *build = qsi_record_build_create(0, NULL, NULL);
    struct qsi_buf source = {0};
    struct built built;
    uint32_t taken;

    qs_test_append_record(&source, &many, 0, 0, 70000, 1, 1, 0);
    QS_CHECK_OK(qsi_record_build_add(build, &(struct qsi_row_stretch){source.data, 0, 70000},
                                     UINT32_MAX, UINT32_MAX, &taken, QS_ERROR));
    QS_CHECK_OK(finish(build, &built));
    for (uint32_t row = 0; row < 70000; row++) {
        qs_test_check_row(&built.view, row, &many, 0, 0, row);
    }
    free(built.record);
    qsi_record_build_destroy(build);
    qsi_buf_fini(&source);
}

QS_TEST(test_stretches_of_a_reference)
{
    uint32_t rows[] = {3, 4, 5, 9, 2, 3};
    struct qsi_chunk *chunk = qs_test_record_chunk(&kind, 0, 0, 20, 1, 1, 0);
    struct qsi_messages_ref ref = {.chunk = chunk, .rows = rows};
    struct qsi_row_stretch stretch = qsi_messages_ref_stretch(&ref, 0, 6);

    QS_CHECK(stretch.record == chunk->data && stretch.first_row == 3 && stretch.count == 3);
    stretch = qsi_messages_ref_stretch(&ref, 1, 2);
    QS_CHECK(stretch.first_row == 4 && stretch.count == 1);
    stretch = qsi_messages_ref_stretch(&ref, 3, 6);
    QS_CHECK(stretch.first_row == 9 && stretch.count == 1);
    ref = (struct qsi_messages_ref){.chunk = chunk, .first_row = 2};
    stretch = qsi_messages_ref_stretch(&ref, 5, 11);
    QS_CHECK(stretch.first_row == 7 && stretch.count == 6);
    qsi_chunk_unref(chunk);
}

/* Each allocation fails once: what was taken stays right, and the rest is taken the next time. */
QS_TEST(test_memory_runs_out)
{
    struct qs_test_alloc alloc;
    struct qsi_buf source = {0};
    bool failed = true;

    qs_test_append_record(&source, &kind, QS_TEST_STORED | QS_TEST_PER_ROW, 0, 600, 1, 1, 0);
    for (uint64_t n = 1; failed; n++) {
        uint32_t read_count = 0, next = 0, fails = 0;
        struct qsi_record_build *build;
        struct built built;
        qs_test_alloc_install(&alloc);
        qs_test_alloc_arm(&alloc, n, false);
        build = qsi_record_build_create(0, read_stored, &read_count);
        while (build != NULL && next < 600) {
            uint32_t taken;
            struct qsi_row_stretch rest = {source.data, next, 600 - next};
            qs_status status =
                qsi_record_build_add(build, &rest, UINT32_MAX, UINT32_MAX, &taken, QS_ERROR);
            QS_CHECK(status == QS_OK || (status == QS_ENOMEM && taken == 0 && fails++ == 0));
            next += taken;
        }
        failed = alloc.has_failed;
        if (build != NULL) {
            QS_CHECK_OK(finish(build, &built));
            for (uint32_t row = 0; row < 600; row++) {
                qs_test_check_row(&built.view, row, &kind, QS_TEST_STORED | QS_TEST_PER_ROW, 0,
                                  row);
            }
            free(built.record);
        }
        qsi_record_build_destroy(build);
        qs_test_alloc_end(&alloc);
    }
    qsi_buf_fini(&source);
}
