/* Checksums of many rows at once against those of one at a time: rows of all lengths match, and
 * with any of them changed none of them is let through. */
#include "qstore/codec.h"

#include "crc32c_rows.h"
#include "le.h"
#include "qs_test.h"

#define ROWS_MAX 23u
#define BEGIN 5u

static uint8_t data[BEGIN + (ROWS_MAX * 20000u)];
static struct qsi_crc32c_row rows[ROWS_MAX];
static uint8_t prefix[64];

static uint64_t next(uint64_t *random)
{
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *random >> 24;
}

static void make_rows(uint64_t *random, uint32_t count, uint32_t bytes_most, uint32_t prefix_bytes)
{
    uint32_t at = BEGIN;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t bytes = (uint32_t)(next(random) % (bytes_most + 1));
        uint32_t seed = (uint32_t)next(random);
        rows[i].seed = seed;
        rows[i].crc = qs_crc32c(qs_crc32c(seed, prefix, prefix_bytes), data + at, bytes);
        rows[i].end = at += bytes;
    }
}

static void test_rows_match_unless_one_is_changed(uint64_t *random)
{
    static const uint32_t most[] = {0, 1, 9, 100, 1000, 20000};

    for (uint32_t round = 0; round < 600; round++) {
        uint32_t count = round % (ROWS_MAX + 1), prefix_bytes = round % sizeof prefix;
        make_rows(random, count, most[round % 6], prefix_bytes);
        QS_CHECK(qsi_crc32c_rows_match(rows, count, prefix, prefix_bytes, data, BEGIN));
        for (uint32_t i = 0; i < count; i++) {
            uint32_t begin = i > 0 ? rows[i - 1].end : BEGIN;
            rows[i].crc ^= 1;
            QS_CHECK(!qsi_crc32c_rows_match(rows, count, prefix, prefix_bytes, data, BEGIN));
            rows[i].crc ^= 1;
            if (rows[i].end > begin) {
                uint64_t bit = next(random) % (8 * (uint64_t)(rows[i].end - begin));
                data[begin + bit / 8] ^= (uint8_t)(1u << bit % 8);
                QS_CHECK(!qsi_crc32c_rows_match(rows, count, prefix, prefix_bytes, data, BEGIN));
                data[begin + bit / 8] ^= (uint8_t)(1u << bit % 8);
            }
        }
    }
}

static void test_cells_match_up_to_the_first_that_does_not(void)
{
    uint8_t cells[ROWS_MAX * QSI_CRC32C_CELL_BYTES];
    uint32_t seeds[ROWS_MAX];
    const uint64_t first = UINT64_C(0x123456789abcdef0);

    memcpy(cells, data, sizeof cells);
    for (uint32_t i = 0; i < ROWS_MAX; i++) {
        uint8_t *cell = cells + (size_t)i * QSI_CRC32C_CELL_BYTES, number[8];
        qsi_put_u64(number, first + i);
        qsi_put_u32(cell + 28, qs_crc32c(qs_crc32c(77, number, 8), cell, 28));
    }
    for (uint32_t count = 0; count <= ROWS_MAX; count++) {
        QS_CHECK(qsi_crc32c_cells_match(cells, count, 77, first, seeds) == count);
    }
    for (uint32_t i = 0; i < ROWS_MAX; i++) {
        uint8_t number[8];
        qsi_put_u64(number, first + i);
        QS_CHECK(seeds[i] == qs_crc32c(77, number, 8));
    }
    for (uint32_t bit = 0; bit < 8 * sizeof cells; bit++) {
        cells[bit / 8] ^= (uint8_t)(1u << bit % 8);
        QS_CHECK(qsi_crc32c_cells_match(cells, ROWS_MAX, 77, first, seeds) ==
                 bit / (8 * QSI_CRC32C_CELL_BYTES));
        cells[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    QS_CHECK(qsi_crc32c_cells_match(cells, 1, 77, first + 1, seeds) == 0);
}

int main(int argc, char **argv)
{
    uint64_t random = qs_test_seed(argc, argv);

    for (uint32_t i = 0; i < sizeof data; i++) {
        data[i] = (uint8_t)next(&random);
    }
    memcpy(prefix, data + 100, sizeof prefix);
    test_rows_match_unless_one_is_changed(&random);
    test_cells_match_up_to_the_first_that_does_not();
    return 0;
}
