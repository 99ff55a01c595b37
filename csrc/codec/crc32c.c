/* CRC-32C with what this processor has for it: wide carry-less products, the checksum instruction,
 * or tables.
 *
 * Which code runs is asked on each call (some loads from what the start-up code found out), so
 * that there is no state here.  This file defines qs_crc32c and nothing else: a test may put its
 * own in place of it. */
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
