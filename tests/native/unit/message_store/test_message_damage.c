/* Damage to message files: each flipped bit is detected, and no reference leads beyond its file.
 * It is done to the files behind the store's back. */
#include "counts_fixture.h"

#include <pthread.h>

MESSAGES_TEST(test_every_flipped_bit_of_a_record_is_detected)
{
    struct qsi_body_ref ref;
    uint8_t record[256];
    size_t bytes;

    put(fixture, 77, 1);
    ref = put(fixture, 50, 2);
    put(fixture, 77, 3);
    QS_CHECK(commit(fixture, NULL) == QS_OK);
    bytes = (size_t)qsi_body_record_bytes(&ref);
    QS_CHECK(qsi_message_store_read(fixture->messages, &ref, record, NULL) == QS_OK);
    for (size_t bit = 0; bit < bytes * 8; bit++) {
        uint8_t flipped = (uint8_t)(record[bit / 8] ^ (1u << (bit % 8)));
        qs_error error = {.status = QS_OK};

        overwrite(fixture, "0000000001.msg", ref.offset + bit / 8, &flipped, 1);
        QS_CHECK(get(fixture, &ref, 2, &error) == QS_ECORRUPT);
        QS_CHECK(error.offset == ref.offset);
        QS_CHECK(qsi_message_store_check(fixture->messages, &ref, NULL) == QS_ECORRUPT);
        overwrite(fixture, "0000000001.msg", ref.offset + bit / 8, &record[bit / 8], 1);
    }
    QS_CHECK(get(fixture, &ref, 2, NULL) == QS_OK);
}

MESSAGES_TEST(test_every_flipped_bit_of_a_file_header_is_detected)
{
    static uint8_t header[QSI_MESSAGE_HEADER_BYTES];
    qs_file *file;
    size_t read;
    struct qsi_body_ref ref = put(fixture, 50, 1);

    QS_CHECK(commit(fixture, NULL) == QS_OK);
    QS_CHECK(fixture->env->open(fixture->env, fixture->dir, "0000000001.msg", QS_OPEN_READ, &file,
                                NULL) == QS_OK);
    QS_CHECK(fixture->env->read(fixture->env, file, header, sizeof header, 0, &read, NULL) ==
             QS_OK);
    fixture->env->close(fixture->env, file);
    for (size_t bit = 0; bit < sizeof header * 8; bit += bit < 640 || bit > 32700 ? 1 : 97) {
        uint8_t flipped = (uint8_t)(header[bit / 8] ^ (1u << (bit % 8)));

        overwrite(fixture, "0000000001.msg", bit / 8, &flipped, 1);
        restart(fixture);
        QS_CHECK(get(fixture, &ref, 1, NULL) == QS_ECORRUPT);
        overwrite(fixture, "0000000001.msg", bit / 8, &header[bit / 8], 1);
    }
    restart(fixture);
    QS_CHECK(get(fixture, &ref, 1, NULL) == QS_OK);
}

/* Whole and well-formed headers that are not this file's, this store's or this version's. */
MESSAGES_TEST(test_foreign_file_headers_are_refused)
{
    uint8_t header[QSI_MESSAGE_HEADER_BYTES];
    static const uint8_t other_uuid[QSI_UUID_BYTES] = "another uuid...";
    struct qsi_body_ref ref = put(fixture, 50, 1);

    QS_CHECK(commit(fixture, NULL) == QS_OK);
    for (int round = 0; round < 3; round++) {
        qsi_message_header_encode(header, round == 0 ? 2 : 1, round == 1 ? other_uuid : test_uuid,
                                  4711);
        overwrite(fixture, "0000000001.msg", 0, header, sizeof header);
        restart(fixture);
        QS_CHECK(get(fixture, &ref, 1, NULL) == QS_ECORRUPT); /* the last one: another salt */
    }
}

QS_TEST(test_any_reference_ends_in_an_error_without_reading_beyond_the_file)
{
    qs_env *env = qsi_env_mem_create(1);
    struct fixture fixture;
    struct qsi_body_ref good;
    uint8_t data[256];

    srand(3);
    start(&fixture, env);
    good = put(&fixture, 50, 1);
    put(&fixture, 50, 2);
    QS_CHECK(commit(&fixture, NULL) == QS_OK);
    for (int round = 0; round < 200000; round++) {
        struct qsi_body_ref ref;
        struct qsi_body stored;
        uint8_t bytes[QSI_BODY_REF_BYTES];
        int at = rand() % (int)QSI_BODY_REF_BYTES;

        qsi_body_ref_encode(bytes, &good);
        bytes[at] = (uint8_t)(bytes[at] ^ (1 + rand() % 255));
        qsi_body_decode(&stored, qsi_slice_make(bytes, sizeof bytes));
        QS_CHECK(stored.kind == QSI_BODY_STORED);
        ref = stored.ref;
        if (qsi_message_store_locate(fixture.messages, &ref, NULL) == QS_OK) {
            QS_CHECK(ref.offset + qsi_body_record_bytes(&ref) <= 65536);
            QS_CHECK(qsi_message_store_check(fixture.messages, &ref, NULL) == QS_ECORRUPT);
        }
        if (qsi_body_record_bytes(&ref) <= sizeof data) {
            QS_CHECK(qsi_message_store_read(fixture.messages, &ref, data, NULL) == QS_ECORRUPT);
        }
    }
    stop(&fixture);
    qsi_env_mem_destroy(env);
}
