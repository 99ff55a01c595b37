/* The checksum without special instructions: the fallback of qs_crc32c(), and the reference for
 * tests. */
#ifndef QSI_CRC32C_PORTABLE_H
#define QSI_CRC32C_PORTABLE_H

#include <stddef.h>
#include <stdint.h>

uint32_t qsi_crc32c_portable(uint32_t seed, const void *data, size_t data_bytes);

#endif
