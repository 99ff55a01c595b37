/* How files begin: every bit of damage is found, and another version is refused as one. */
#include "qstore/codec.h"

#include "file_head.h"
#include "le.h"
#include "qs_test.h"

#define CRC_AT 60u

static const struct qsi_file_kind kind = {"QSTESTF\n", "a test file", 7};

static void encode(uint8_t header[CRC_AT + 4])
{
    memset(header, 0xaa, CRC_AT + 4);
    qsi_file_head_encode(header, &kind);
    qsi_put_u32(header + CRC_AT, qs_crc32c(0, header, CRC_AT));
}

static qs_status check(const uint8_t *header, qs_error *error)
{
    return qsi_file_header_check(&kind, header, CRC_AT, "dir/f", error);
}

QS_TEST(test_head_is_what_was_written)
{
    uint8_t header[CRC_AT + 4];

    encode(header);
    QS_CHECK(memcmp(header, "QSTESTF\n", 8) == 0);
    QS_CHECK(qsi_get_u32(header + 8) == 7 && qsi_get_u32(header + 12) == 0);
    QS_CHECK_OK(check(header, QS_ERROR));
    QS_CHECK_OK(qsi_file_head_check(&kind, header, "dir/f", QS_ERROR));
}

QS_TEST(test_damage_is_told_from_another_version)
{
    uint8_t header[CRC_AT + 4];
    qs_error error;

    for (uint32_t bit = 0; bit < 8 * (CRC_AT + 4); bit++) {
        encode(header);
        header[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        QS_CHECK_STATUS(QS_ECORRUPT, check(header, &error));
        QS_CHECK(strcmp(error.path, "dir/f") == 0 && error.offset == 0);
        QS_CHECK((bit < 64) == (strstr(error.text, "not a test file") != NULL));
    }
    for (uint32_t at = 8; at < 16; at += 4) { /* version, features */
        encode(header);
        qsi_put_u32(header + at, 9);
        qsi_put_u32(header + CRC_AT, qs_crc32c(0, header, CRC_AT));
        QS_CHECK_STATUS(QS_EVERSION, check(header, &error));
        QS_CHECK_STATUS(QS_EVERSION, qsi_file_head_check(&kind, header, "dir/f", &error));
        QS_CHECK(strstr(error.text, "this build reads version 7") != NULL);
    }
}
