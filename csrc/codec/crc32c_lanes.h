/* The checksum with the processor's instruction for it.  REQUIRES HAVE_HARDWARE; not defined for
 * architectures without the instruction. */
#ifndef QSI_CRC32C_LANES_H
#define QSI_CRC32C_LANES_H

#include <stddef.h>
#include <stdint.h>

uint32_t qsi_crc32c_lanes(uint32_t seed, const uint8_t *p, size_t bytes);
/* Joins the sums of three adjacent lanes of that many words each into one. */
uint32_t qsi_crc32c_join_lanes(uint32_t sum, uint32_t sum1, uint32_t sum2, size_t words);

#endif
