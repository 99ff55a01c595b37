/* Commit block headers: round trips, and every bit of damage found. */
#include "block.h"
#include "qs_test.h"

#define PAYLOAD_BYTES 200

static const struct qsi_block sample = {
    .lsn = UINT64_C(0x0102030405060708),
    .durable_upto = UINT64_C(0x0102030405060000),
    .salt = UINT64_C(0xfedcba9876543210),
    .file_number = 77,
    .payload_bytes = PAYLOAD_BYTES,
    .record_count = 5,
    .flags = QSI_BLOCK_MORE,
};

static void fill(uint8_t payload[PAYLOAD_BYTES])
{
    for (int i = 0; i < PAYLOAD_BYTES; i++) {
        payload[i] = (uint8_t)(i * 37);
    }
}

static void encode(uint8_t header[QSI_BLOCK_HEADER_BYTES], const uint8_t payload[PAYLOAD_BYTES])
{
    qs_part part = {payload, PAYLOAD_BYTES};

    qsi_block_encode(header, &sample, &part, 1);
}

QS_TEST(test_block_round_trips)
{
    uint8_t header[QSI_BLOCK_HEADER_BYTES], payload[PAYLOAD_BYTES];
    struct qsi_block block;

    fill(payload);
    encode(header, payload);
    QS_CHECK(qsi_block_decode(&block, header, sample.salt));
    QS_CHECK(block.lsn == sample.lsn && block.durable_upto == sample.durable_upto &&
             block.salt == sample.salt && block.file_number == sample.file_number &&
             block.payload_bytes == sample.payload_bytes &&
             block.record_count == sample.record_count && block.flags == sample.flags);
    QS_CHECK(qsi_block_check(header, payload, PAYLOAD_BYTES));
}

QS_TEST(test_parts_make_the_same_block_however_they_are_cut)
{
    uint8_t whole[QSI_BLOCK_HEADER_BYTES], header[QSI_BLOCK_HEADER_BYTES], payload[PAYLOAD_BYTES];

    fill(payload);
    encode(whole, payload);
    for (size_t cut = 0; cut <= PAYLOAD_BYTES; cut++) {
        qs_part parts[3] = {{payload, cut}, {NULL, 0}, {payload + cut, PAYLOAD_BYTES - cut}};

        qsi_block_encode(header, &sample, parts, 3);
        QS_CHECK(memcmp(whole, header, sizeof header) == 0);
    }
}

QS_TEST(test_every_flipped_bit_is_found)
{
    uint8_t header[QSI_BLOCK_HEADER_BYTES], payload[PAYLOAD_BYTES];
    struct qsi_block block;

    fill(payload);
    encode(header, payload);
    for (int bit = 0; bit < 8 * QSI_BLOCK_HEADER_BYTES; bit++) {
        header[bit / 8] ^= (uint8_t)(1 << bit % 8);
        QS_CHECK(!qsi_block_check(header, payload, PAYLOAD_BYTES));
        if (bit < 32 || (bit >= 24 * 8 && bit < 32 * 8)) { /* magic, salt */
            QS_CHECK(!qsi_block_decode(&block, header, sample.salt));
        }
        header[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (int bit = 0; bit < 8 * PAYLOAD_BYTES; bit++) {
        payload[bit / 8] ^= (uint8_t)(1 << bit % 8);
        QS_CHECK(!qsi_block_check(header, payload, PAYLOAD_BYTES));
        payload[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    QS_CHECK(qsi_block_check(header, payload, PAYLOAD_BYTES));
}

QS_TEST(test_every_shorter_payload_is_found)
{
    uint8_t header[QSI_BLOCK_HEADER_BYTES], payload[PAYLOAD_BYTES];

    fill(payload);
    encode(header, payload);
    for (uint32_t bytes = 0; bytes < PAYLOAD_BYTES; bytes++) {
        QS_CHECK(!qsi_block_check(header, payload, bytes));
    }
}

QS_TEST(test_zeros_and_other_generations_are_no_block)
{
    uint8_t header[QSI_BLOCK_HEADER_BYTES] = {0}, payload[PAYLOAD_BYTES];
    struct qsi_block block;

    QS_CHECK(!qsi_block_decode(&block, header, 0));
    fill(payload);
    encode(header, payload);
    QS_CHECK(!qsi_block_decode(&block, header, sample.salt + 1));
    QS_CHECK(!qsi_block_decode(&block, header, 0));
}

QS_TEST(test_blocks_take_whole_pages)
{
    QS_CHECK(qsi_block_bytes(0) == QSI_BLOCK_ALIGN);
    QS_CHECK(qsi_block_bytes(QSI_BLOCK_ALIGN - QSI_BLOCK_HEADER_BYTES) == QSI_BLOCK_ALIGN);
    QS_CHECK(qsi_block_bytes(QSI_BLOCK_ALIGN - QSI_BLOCK_HEADER_BYTES + 1) == 2 * QSI_BLOCK_ALIGN);
    QS_CHECK(qsi_block_bytes(UINT32_MAX) % QSI_BLOCK_ALIGN == 0);
    QS_CHECK(qsi_block_bytes(UINT32_MAX) > UINT32_MAX);
}
