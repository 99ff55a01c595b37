/* CRC-32C with the processor's checksum instruction.
 *
 * The instruction takes eight bytes, but its result is available only after three cycles, so a
 * single chain uses a third of the processor.  Three adjacent lanes are summed in parallel and
 * joined with carry-less products: the register of a lane is moved over the bytes of the lanes
 * after it. */
#include "crc32c_lanes.h"

#include "crc32c_hardware.h"
#include "le.h"

#ifdef HARDWARE
#define QSI_CRC32C_TABLE_SHIFTS
#include "check.h"
#include "crc32c_table.h"

/* Below this, one lane alone is faster than three that must be joined. */
#define LANE_WORDS_MIN 2

HARDWARE uint32_t qsi_crc32c_join_lanes(uint32_t sum, uint32_t sum1, uint32_t sum2, size_t words)
{
    QS_DCHECK(words <= QSI_CRC32C_LANE_WORDS_MAX);
    return sum2 ^ step_u64(0, multiply(sum, crc32c_shifts[2 * words]) ^
                                  multiply(sum1, crc32c_shifts[words]));
}

HARDWARE static uint32_t three_lanes(uint32_t crc, const uint8_t *p, size_t words)
{
    const uint8_t *p1 = p + 8 * words;
    const uint8_t *p2 = p1 + 8 * words;
    uint32_t crc1 = 0;
    uint32_t crc2 = 0;

    QS_DCHECK(words >= LANE_WORDS_MIN && words <= QSI_CRC32C_LANE_WORDS_MAX);
    for (size_t at = 0; at < 8 * words; at += 8) {
        crc = step_u64(crc, qsi_get_u64(p + at));
        crc1 = step_u64(crc1, qsi_get_u64(p1 + at));
        crc2 = step_u64(crc2, qsi_get_u64(p2 + at));
    }
    return qsi_crc32c_join_lanes(crc, crc1, crc2, words);
}

HARDWARE uint32_t qsi_crc32c_lanes(uint32_t seed, const uint8_t *p, size_t bytes)
{
    uint32_t crc = ~seed;

    while (bytes >= 24 * LANE_WORDS_MIN) {
        size_t words = bytes / 24;

        if (words > QSI_CRC32C_LANE_WORDS_MAX) {
            words = QSI_CRC32C_LANE_WORDS_MAX;
        }
        crc = three_lanes(crc, p, words);
        p += 24 * words;
        bytes -= 24 * words;
    }
    for (; bytes >= 8; bytes -= 8, p += 8) {
        crc = step_u64(crc, qsi_get_u64(p));
    }
    if (bytes >= 4) {
        crc = step_u32(crc, qsi_get_u32(p));
        bytes -= 4;
        p += 4;
    }
    for (; bytes > 0; bytes--, p++) {
        crc = step_u8(crc, *p);
    }
    return ~crc;
}

#endif
