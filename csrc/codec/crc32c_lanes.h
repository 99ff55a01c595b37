/* The checksum with the processor's instruction for it.  REQUIRES HAVE_HARDWARE; there is none
 * where no processor has it. */
#ifndef QSI_CRC32C_LANES_H
#define QSI_CRC32C_LANES_H

#include <stddef.h>
#include <stdint.h>

uint32_t qsi_crc32c_lanes(uint32_t seed, const uint8_t *p, size_t bytes);

#endif
