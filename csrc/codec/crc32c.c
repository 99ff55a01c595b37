/* CRC-32C with the fastest code for this processor: wide carry-less products, the checksum
 * instruction, or tables.
 *
 * Each call selects the code by a few loads of the results of the start-up code, so this file has
 * no state.  It defines only qs_crc32c, so a test can replace it. */
#include "qstore/codec.h"

#include "crc32c_hardware.h"
#include "crc32c_lanes.h"
#include "crc32c_portable.h"
#include "crc32c_wide.h"

uint32_t qs_crc32c(uint32_t seed, const void *data, size_t data_bytes)
{
#ifdef WIDE
    if (data_bytes >= QSI_CRC32C_WIDE_BYTES_MIN && HAVE_WIDE) {
        return qsi_crc32c_wide(seed, data, data_bytes);
    }
#endif
#ifdef HARDWARE
    if (HAVE_HARDWARE) {
        return qsi_crc32c_lanes(seed, data, data_bytes);
    }
#endif
    return qsi_crc32c_portable(seed, data, data_bytes);
}
