/* CRC-32C eight bytes at a time from tables ("slicing by 8"): about 1.5 bytes a cycle on any
 * machine. */
#include "crc32c_portable.h"

#include "le.h"

#define QSI_CRC32C_TABLE_BYTES
#include "crc32c_table.h"

static uint32_t eight_bytes(uint32_t crc, const uint8_t *p)
{
    uint32_t low = crc ^ qsi_get_u32(p);
    uint32_t high = qsi_get_u32(p + 4);

    return crc32c_bytes[7][low & 0xff] ^ crc32c_bytes[6][low >> 8 & 0xff] ^
           crc32c_bytes[5][low >> 16 & 0xff] ^ crc32c_bytes[4][low >> 24] ^
           crc32c_bytes[3][high & 0xff] ^ crc32c_bytes[2][high >> 8 & 0xff] ^
           crc32c_bytes[1][high >> 16 & 0xff] ^ crc32c_bytes[0][high >> 24];
}

uint32_t qsi_crc32c_portable(uint32_t seed, const void *data, size_t data_bytes)
{
    const uint8_t *p = data;
    uint32_t crc = ~seed;

    for (; data_bytes >= 8; data_bytes -= 8, p += 8) {
        crc = eight_bytes(crc, p);
    }
    for (; data_bytes > 0; data_bytes--, p++) {
        crc = crc >> 8 ^ crc32c_bytes[0][(crc ^ *p) & 0xff];
    }
    return ~crc;
}
