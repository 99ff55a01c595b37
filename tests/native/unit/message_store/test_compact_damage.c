/* What compaction makes of garbage and damage: it leaves out what is damaged, and believes no
 * header and no table that is not whole. */
#include "compact_fixture.h"

/* Places that were abandoned: never written, or with a header that promises too much. */
MESSAGES_TEST(test_garbage_between_records_does_not_hide_them)
{
    struct checkpoint checkpoint = {0};
    struct qsi_body_ref refs[4];
    struct qsi_place places[2];
    struct qsi_body_ref fake;
    uint8_t header[QSI_BODY_HEADER_BYTES];
    uint8_t file_header[QSI_MESSAGE_HEADER_BYTES];
    struct qsi_message_header parsed;
    qs_file *file;
    size_t read;

    refs[0] = put_counted(fixture, 3000, 0, 1);
    QS_CHECK(qsi_message_store_reserve(fixture->messages, 0, 20000, &places[0], NULL) == QS_OK);
    refs[1] = put_counted(fixture, 3000, 1, 1);
    QS_CHECK(qsi_message_store_reserve(fixture->messages, 0, 20000, &places[1], NULL) == QS_OK);
    refs[2] = put_counted(fixture, 3000, 2, 1);
    refs[3] = put_counted(fixture, 5, 3, 1);
    QS_CHECK(fixture->env->open(fixture->env, fixture->dir, first_name, QS_OPEN_READ, &file,
                                NULL) == QS_OK);
    QS_CHECK(fixture->env->read(fixture->env, file, file_header, sizeof file_header, 0, &read,
                                NULL) == QS_OK);
    fixture->env->close(fixture->env, file);
    QS_CHECK_OK(qsi_message_header_check(file_header, (struct qsi_message_id){1, 0}, test_uuid,
                                         &parsed, QS_ERROR));
    /* A dead slot that would reach over body 2, and a live one that is not it. */
    fake = (struct qsi_body_ref){.slot = places[1].slot, .body_bytes = 23000};
    qsi_body_header_encode(header, &fake, parsed.salt);
    overwrite(fixture, first_name, places[1].offset, header, sizeof header);
    fake = (struct qsi_body_ref){.slot = refs[1].slot, .body_bytes = 25000};
    qsi_body_header_encode(header, &fake, parsed.salt);
    overwrite(fixture, first_name, places[0].offset + 512, header, sizeof header);
    overwrite(fixture, first_name, places[0].offset + 8, header, sizeof header);
    for (int i = 0; i < 2; i++) {
        qsi_message_store_abandon(fixture->messages, &places[i]);
    }
    settle_all(fixture);
    QS_CHECK(compact(fixture));
    take_checkpoint(fixture, &checkpoint);
    recover_from(fixture, &checkpoint);
    for (uint32_t i = 0; i < 4; i++) {
        QS_CHECK_OK(get(fixture, &refs[i], i, QS_ERROR));
    }
    qsi_buf_fini(&checkpoint.records);
}

/* Every 8 bytes a header of a live body that is never right: it ends, and the file is left
 * alone. */
MESSAGES_TEST(test_file_full_of_false_headers_is_given_up)
{
    struct qsi_body_ref ref;
    struct qsi_place place;
    struct qsi_body_ref fake = {.slot = 1, .body_bytes = 20000};
    static uint8_t garbage[40000];
    uint8_t file_header[QSI_MESSAGE_HEADER_BYTES];
    struct qsi_message_header parsed;
    struct qsi_compaction *job;
    qs_file *file;
    size_t read;

    QS_CHECK(qsi_message_store_reserve(fixture->messages, 0, 50000, &place, NULL) == QS_OK);
    ref = put_counted(fixture, 100, 1, 1);
    QS_CHECK(fixture->env->open(fixture->env, fixture->dir, first_name, QS_OPEN_READ, &file,
                                NULL) == QS_OK);
    QS_CHECK(fixture->env->read(fixture->env, file, file_header, sizeof file_header, 0, &read,
                                NULL) == QS_OK);
    fixture->env->close(fixture->env, file);
    QS_CHECK_OK(qsi_message_header_check(file_header, (struct qsi_message_id){1, 0}, test_uuid,
                                         &parsed, QS_ERROR));
    for (size_t at = 0; at + 32 <= sizeof garbage; at += 32) {
        qsi_body_header_encode(garbage + at, &fake, parsed.salt);
    }
    overwrite(fixture, first_name, place.offset, garbage, sizeof garbage);
    qsi_message_store_abandon(fixture->messages, &place);
    settle_all(fixture);
    QS_CHECK_OK(qsi_message_store_compact_begin(fixture->messages, &job, QS_ERROR));
    QS_CHECK_STATUS(QS_ECORRUPT, qsi_message_store_compact_run(fixture->messages, job, QS_ERROR));
    qsi_message_store_compact_end(fixture->messages, job, true);
    QS_CHECK(!has_name(fixture, second_name));
    QS_CHECK_OK(get(fixture, &ref, 1, QS_ERROR));
    QS_CHECK(!compact(fixture));
}

MESSAGES_TEST(test_damaged_body_is_left_out)
{
    struct checkpoint checkpoint = {0};
    struct qsi_body_ref refs[6];

    make_sparse(fixture, refs);
    overwrite(fixture, first_name, refs[4].offset + 5000, "damage", 6);
    QS_CHECK(compact(fixture));
    QS_CHECK_OK(get(fixture, &refs[1], 1, QS_ERROR));
    QS_CHECK_STATUS(QS_ECORRUPT, get(fixture, &refs[4], 4, QS_ERROR));
    QS_CHECK(strcmp(qs_test_error.path, "messages/0000000001-0001.msg") == 0);
    take_checkpoint(fixture, &checkpoint);
    recover_from(fixture, &checkpoint);
    QS_CHECK_STATUS(QS_ECORRUPT, get(fixture, &refs[4], 4, QS_ERROR));
    qsi_buf_fini(&checkpoint.records);
}

/* A table that is damaged hides no record from the next compaction; one that is whole says what is
 * lost for good. */
QS_BOOL_TEST(test_next_compaction_believes_only_a_whole_table, table_is_damaged)
{
    enum { COUNT = 40, FIRST = 26, SECOND = 36, HIT = 38 };
    static const uint8_t zeros[8];
    qs_env *env = qsi_env_mem_create(1);
    struct fixture fixture;
    struct qsi_body_ref refs[COUNT];
    uint64_t table = QSI_MESSAGE_HEADER_BYTES;

    start(&fixture, env);
    for (uint32_t i = 0; i < COUNT; i++) {
        refs[i] = put_counted(&fixture, 1390, i, 1);
        table += i >= FIRST ? qsi_body_packed_bytes(&refs[i]) : 0;
    }
    settle_all(&fixture);
    for (uint32_t i = 0; i < FIRST; i++) {
        drop(&fixture, &refs[i]);
    }
    if (!table_is_damaged) {
        overwrite(&fixture, first_name, refs[HIT].offset + 700, "damage", 6);
    }
    QS_CHECK(compact(&fixture));
    if (table_is_damaged) {
        overwrite(&fixture, second_name, table + 8 * HIT, zeros, sizeof zeros);
    }
    QS_CHECK_STATUS(QS_ECORRUPT, get(&fixture, &refs[HIT], HIT, QS_ERROR));
    for (uint32_t i = FIRST; i < SECOND; i++) {
        drop(&fixture, &refs[i]);
    }
    QS_CHECK(compact(&fixture));
    QS_CHECK(has_name(&fixture, "0000000001-0002.msg"));
    for (uint32_t i = SECOND; i < COUNT; i++) {
        qs_status status = get(&fixture, &refs[i], i, NULL);

        QS_CHECK(status == (i == HIT && !table_is_damaged ? QS_ECORRUPT : QS_OK));
    }
    stop(&fixture);
    qsi_env_mem_destroy(env);
}

MESSAGES_TEST(test_every_damaged_byte_of_a_compacted_file_is_detected)
{
    struct checkpoint checkpoint = {0};
    struct qsi_body_ref refs[6];
    static uint8_t data[RECORD_BYTES_MAX];
    qs_file *file;
    size_t bytes;

    make_sparse(fixture, refs);
    QS_CHECK(compact(fixture));
    take_checkpoint(fixture, &checkpoint);
    QS_CHECK(fixture->env->open(fixture->env, fixture->dir, second_name, QS_OPEN_READ, &file,
                                NULL) == QS_OK);
    QS_CHECK(fixture->env->read(fixture->env, file, data, sizeof data, 0, &bytes, NULL) == QS_OK);
    fixture->env->close(fixture->env, file);
    for (size_t at = 0; at < bytes; at += at < 100 || at > bytes - 100 ? 1 : 61) {
        uint8_t flipped = (uint8_t)(data[at] ^ 64);
        int good = 0;

        overwrite(fixture, second_name, at, &flipped, 1);
        restart(fixture);
        QS_CHECK_OK(try_restore(fixture, &checkpoint, QS_ERROR));
        for (uint32_t i = 0; i < 6; i++) {
            qs_status status = get(fixture, &refs[i], i, NULL);

            QS_CHECK(status == QS_OK || status == QS_ECORRUPT);
            QS_CHECK(status == QS_ECORRUPT || i == 1 || i == 4);
            good += status == QS_OK;
        }
        QS_CHECK(good <= 2 && (at >= 4096 || good == 0));
        overwrite(fixture, second_name, at, &data[at], 1);
    }
    restart(fixture);
    QS_CHECK_OK(try_restore(fixture, &checkpoint, QS_ERROR));
    check_sparse(fixture, refs);
    qsi_buf_fini(&checkpoint.records);
}
