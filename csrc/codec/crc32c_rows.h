/* Checking many short checksums: several at a time, for each step of one waits for the step before
 * it. */
#ifndef QSI_CRC32C_ROWS_H
#define QSI_CRC32C_ROWS_H

#include <stdbool.h>
#include <stdint.h>

struct qsi_crc32c_row {
    uint32_t end;  /* of its bytes; they begin where those of the row before it end */
    uint32_t crc;  /* as it should be */
    uint32_t seed; /* what it begins with */
};

/* Whether the checksum of each row, of prefix and its own bytes, is as it should be.  begin: where
 * the first row's bytes begin in data. */
bool qsi_crc32c_rows_match(const struct qsi_crc32c_row *rows, uint32_t count, const uint8_t *prefix,
                           uint32_t prefix_bytes, const uint8_t *data, uint32_t begin);

#define QSI_CRC32C_CELL_BYTES 32u
/* Cells that end with their checksum, which begins with the cell's number: with
 * qs_crc32c(seed, number in 8 bytes), which seeds_out gets.  How many match, up to the first that
 * does not. */
uint32_t qsi_crc32c_cells_match(const uint8_t *cells, uint32_t count, uint32_t seed,
                                uint64_t first_number, uint32_t *seeds_out);

#endif
