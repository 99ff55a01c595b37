/* Checking many short checksums, several at a time: each step of one checksum waits for the step
 * before, so several are computed in parallel. */
#ifndef QSI_CRC32C_ROWS_H
#define QSI_CRC32C_ROWS_H

#include <stdbool.h>
#include <stdint.h>

struct qsi_crc32c_row {
    uint32_t end;  /* end of its bytes, which begin at the end of the previous row */
    uint32_t crc;  /* the expected checksum */
    uint32_t seed; /* the seed of the checksum */
};

/* Whether the checksum of each row, over prefix and its own bytes, is the expected one.  begin:
 * where the first row's bytes begin in data. */
bool qsi_crc32c_rows_match(const struct qsi_crc32c_row *rows, uint32_t count, const uint8_t *prefix,
                           uint32_t prefix_bytes, const uint8_t *data, uint32_t begin);

#define QSI_CRC32C_CELL_BYTES 32u
/* Checks cells that end with their checksum.  The checksum begins with the cell's number: its seed
 * is qs_crc32c(seed, number in 8 bytes), which is stored in seeds_out.  Returns the number of
 * matching cells before the first that does not match. */
uint32_t qsi_crc32c_cells_match(const uint8_t *cells, uint32_t count, uint32_t seed,
                                uint64_t first_number, uint32_t *seeds_out);

#endif
