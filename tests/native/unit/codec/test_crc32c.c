/* The checksum against published vectors, against the polynomial bit by bit, and each fast way that
 * this processor has against the portable one over all small lengths and alignments. */
#include "qstore/codec.h"

#include "crc32c_hardware.h"
#include "crc32c_lanes.h"
#include "crc32c_portable.h"
#include "crc32c_wide.h"
#include "qs_test.h"

#include <stdint.h>

#define QSI_CRC32C_TABLE_BYTES
#define QSI_CRC32C_TABLE_SHIFTS
#include "crc32c_table.h"

#define POLYNOMIAL 0x82f63b78u
#define LENGTH_MAX 4200
#define STRETCH_BYTES 14240 /* from so many bytes on the widest way takes whole stretches */

static uint8_t noise[3 * STRETCH_BYTES + LENGTH_MAX];

static uint32_t times_x(uint32_t value)
{
    return value >> 1 ^ ((value & 1) != 0 ? POLYNOMIAL : 0);
}

QS_TEST(test_tables_follow_from_the_polynomial)
{
    uint32_t power = 0x80000000u; /* x^0 */

    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;

        for (int zeros = 0; zeros < 8; zeros++) {
            for (int bit = 0; bit < 8; bit++) {
                crc = times_x(crc);
            }
            QS_CHECK(crc32c_bytes[zeros][byte] == crc);
        }
    }
    for (uint32_t exponent = 1; exponent <= 64 * 2 * QSI_CRC32C_LANE_WORDS_MAX - 33; exponent++) {
        power = times_x(power);
        if ((exponent + 33) % 64 == 0) {
            QS_CHECK(crc32c_shifts[(exponent + 33) / 64] == power);
        }
    }
}

/* RFC 3720, B.4. */
QS_TEST(test_published_vectors)
{
    uint8_t bytes[32] = {0};
    static const uint8_t read_command[48] = {
        0x01, 0xc0, 0, 0, 0, 0, 0,    0, 0,    0, 0, 0,    0, 0, 0, 0,
        0x14, 0,    0, 0, 0, 0, 0x04, 0, 0,    0, 0, 0x14, 0, 0, 0, 0x18,
        0x28, 0,    0, 0, 0, 0, 0,    0, 0x02, 0, 0, 0,    0, 0, 0, 0};

    QS_CHECK(qs_crc32c(0, bytes, 32) == 0x8a9136aau);
    memset(bytes, 0xff, 32);
    QS_CHECK(qs_crc32c(0, bytes, 32) == 0x62a8ab43u);
    for (int i = 0; i < 32; i++) {
        bytes[i] = (uint8_t)i;
    }
    QS_CHECK(qs_crc32c(0, bytes, 32) == 0x46dd794eu);
    for (int i = 0; i < 32; i++) {
        bytes[i] = (uint8_t)(31 - i);
    }
    QS_CHECK(qs_crc32c(0, bytes, 32) == 0x113fdb5cu);
    QS_CHECK(qs_crc32c(0, read_command, 48) == 0xd9963a56u);
    QS_CHECK(qs_crc32c(0, "123456789", 9) == 0xe3069283u);
}

QS_TEST(test_nothing_leaves_the_seed)
{
    QS_CHECK(qs_crc32c(0, NULL, 0) == 0);
    QS_CHECK(qs_crc32c(0x12345678, NULL, 0) == 0x12345678);
    QS_CHECK(qsi_crc32c_portable(0x12345678, NULL, 0) == 0x12345678);
}

static uint32_t whichever(uint32_t seed, const uint8_t *data, size_t bytes)
{
    return qs_crc32c(seed, data, bytes);
}

struct way {
    uint32_t (*sum)(uint32_t seed, const uint8_t *data, size_t bytes);
    size_t bytes_min;
};

/* Of this processor, up to three. */
static size_t find_ways(struct way ways_out[3])
{
    size_t count = 0;

    ways_out[count++] = (struct way){whichever, 0};
#ifdef HARDWARE
    if (HAVE_HARDWARE) {
        ways_out[count++] = (struct way){qsi_crc32c_lanes, 0};
    }
#endif
#ifdef WIDE
    if (HAVE_WIDE) {
        ways_out[count++] = (struct way){qsi_crc32c_wide, QSI_CRC32C_WIDE_BYTES_MIN};
    }
#endif
    return count;
}

static void check_way(const struct way *way)
{
    for (size_t bytes = way->bytes_min; bytes <= LENGTH_MAX; bytes++) {
        const uint8_t *at = noise + bytes % 64;

        QS_CHECK(way->sum((uint32_t)bytes, at, bytes) ==
                 qsi_crc32c_portable((uint32_t)bytes, at, bytes));
    }
    for (size_t offset = 0; offset < 64; offset++) {
        for (size_t bytes = way->bytes_min; bytes <= way->bytes_min + 300; bytes++) {
            QS_CHECK(way->sum(7, noise + offset, bytes) ==
                     qsi_crc32c_portable(7, noise + offset, bytes));
        }
        QS_CHECK(way->sum(7, noise + offset, sizeof noise - 64) ==
                 qsi_crc32c_portable(7, noise + offset, sizeof noise - 64));
    }
}

QS_TEST(test_fast_equals_portable)
{
    struct way ways[3];
    size_t count = find_ways(ways);

    for (size_t i = 0; i < count; i++) {
        check_way(&ways[i]);
    }
}

/* By lengths that leave all remainders: up to a place, and from there on. */
QS_TEST(test_fast_equals_portable_over_long_stretches)
{
    struct way ways[3];
    size_t count = find_ways(ways);
    uint32_t right = qsi_crc32c_portable(9, noise, LENGTH_MAX);

    for (size_t bytes = LENGTH_MAX; bytes + 61 <= sizeof noise; bytes += 61) {
        uint32_t rest = qsi_crc32c_portable(9, noise + bytes, sizeof noise - bytes);

        for (size_t i = 0; i < count; i++) {
            QS_CHECK(ways[i].sum(9, noise, bytes) == right);
            if (sizeof noise - bytes >= ways[i].bytes_min) {
                QS_CHECK(ways[i].sum(9, noise + bytes, sizeof noise - bytes) == rest);
            }
        }
        right = qsi_crc32c_portable(right, noise + bytes, 61);
    }
}

/* What is so long that it comes from memory goes another way. */
QS_TEST(test_fast_equals_portable_beyond_the_cache)
{
    const size_t cached = 8u << 20, bytes = cached + 2 * STRETCH_BYTES;
    QS_TEST_FREED uint8_t *data = malloc(bytes);
    struct way ways[3];
    size_t count = find_ways(ways);

    QS_CHECK(data != NULL);
    for (size_t at = 0; at < bytes; at++) {
        data[at] = noise[at % (sizeof noise - 1)] ^ (uint8_t)(at >> 16);
    }
    for (size_t i = 0; i < count; i++) {
        QS_CHECK(ways[i].sum(9, data, cached) == qsi_crc32c_portable(9, data, cached));
        QS_CHECK(ways[i].sum(9, data, cached + 1) == qsi_crc32c_portable(9, data, cached + 1));
        QS_CHECK(ways[i].sum(9, data, bytes) == qsi_crc32c_portable(9, data, bytes));
    }
}

static void check_ends(const struct way *way, size_t from)
{
    for (size_t bytes = from; bytes <= from + 600; bytes++) {
        QS_TEST_FREED uint8_t *copy = malloc(bytes + (bytes == 0));

        QS_CHECK(copy != NULL);
        memcpy(copy, noise, bytes);
        QS_CHECK(way->sum(0, copy, bytes) == qsi_crc32c_portable(0, noise, bytes));
    }
}

/* In memory that ends where they end: a sanitizer sees one byte too many. */
QS_TEST(test_reads_no_byte_more)
{
    struct way ways[3];
    size_t count = find_ways(ways);

    for (size_t i = 0; i < count; i++) {
        check_ends(&ways[i], ways[i].bytes_min);
        check_ends(&ways[i], STRETCH_BYTES - 300);
    }
}

/* Each of many bits, alone: a checksum that left some byte out would not tell. */
QS_TEST(test_every_bit_counts)
{
    uint32_t right = qs_crc32c(0, noise, LENGTH_MAX);

    for (size_t bit = 0; bit < 8 * (size_t)LENGTH_MAX; bit++) {
        noise[bit / 8] ^= (uint8_t)(1u << bit % 8);
        QS_CHECK(qs_crc32c(0, noise, LENGTH_MAX) != right);
        noise[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

QS_TEST(test_checksums_chain)
{
    uint32_t whole = qs_crc32c(0, noise, LENGTH_MAX);

    for (size_t cut = 0; cut <= LENGTH_MAX; cut += 13) {
        uint32_t front = qs_crc32c(0, noise, cut);

        QS_CHECK(qs_crc32c(front, noise + cut, LENGTH_MAX - cut) == whole);
    }
}

int main(void)
{
    uint32_t state = 1;

    for (size_t i = 0; i < sizeof noise; i++) {
        state = state * 1664525u + 1013904223u;
        noise[i] = (uint8_t)(state >> 24);
    }
    qs_test_run_all();
    return 0;
}
