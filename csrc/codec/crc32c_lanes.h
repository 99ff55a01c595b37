/* The checksum with the processor's instruction for it.  REQUIRES HAVE_HARDWARE; there is none
 * where no processor has it. */
#ifndef QSI_CRC32C_LANES_H
#define QSI_CRC32C_LANES_H

#include <stddef.h>
#include <stdint.h>

uint32_t qsi_crc32c_lanes(uint32_t seed, const uint8_t *p, size_t bytes);
/* The registers of three neighbouring lanes of so many words each, as one. */
uint32_t qsi_crc32c_join_lanes(uint32_t sum, uint32_t sum1, uint32_t sum2, size_t words);

#endif
