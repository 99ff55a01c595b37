/* Four registers of 512 bits each hold what is left of the bytes so far, as polynomials.  A step
 * moves each over the 256 bytes ahead (two carry-less products for each 128 bits) and adds those.
 * What is left in the end has the checksum of all that went in: it is folded up to 128 bits, over
 * which the checksum instruction goes.
 *
 * A polynomial of 128 bits, lower half first, is moved by n words of 64 bits with the constants
 * that move a register over n + 1 words (the lower half) and over n (the upper one). */
#include "crc32c_wide.h"

#ifdef WIDE
#include "crc32c_lanes.h"

#include <immintrin.h>

#define QSI_CRC32C_TABLE_SHIFTS
#include "check.h"
#include "crc32c_table.h"

#define STRIDE 256u /* of a step: four registers */

WIDE static inline __m512i shift_by(uint32_t words)
{
    return _mm512_broadcast_i32x4(
        _mm_set_epi64x((int64_t)crc32c_shifts[words], (int64_t)crc32c_shifts[words + 1]));
}

/* Moves each 128 bits of a, and adds b. */
WIDE static inline __m512i fold(__m512i a, __m512i shift, __m512i b)
{
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, shift, 0x00),
                                     _mm512_clmulepi64_epi128(a, shift, 0x11), b, 0x96);
}

WIDE static inline __m512i load(const uint8_t *data)
{
    return _mm512_loadu_si512(data);
}

/* The four parts of a are 128 bits apart. */
WIDE static inline __m128i join_parts(__m512i a)
{
    __m512i shifts = _mm512_set_epi64(0, 0, crc32c_shifts[2], crc32c_shifts[3], crc32c_shifts[4],
                                      crc32c_shifts[5], crc32c_shifts[6], crc32c_shifts[7]);
    __m512i moved = fold(a, shifts, _mm512_setzero_si512());
    __m128i low = _mm_xor_si128(_mm512_castsi512_si128(moved), _mm512_extracti32x4_epi32(moved, 1));

    return _mm_xor_si128(
        low, _mm_xor_si128(_mm512_extracti32x4_epi32(moved, 2), _mm512_extracti32x4_epi32(a, 3)));
}

WIDE uint32_t qsi_crc32c_wide(uint32_t seed, const uint8_t *data, size_t bytes)
{
    const __m512i by_stride = shift_by(STRIDE / 8), by_register = shift_by(8);
    __m512i a = _mm512_xor_si512(load(data), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~seed)));
    __m512i b = load(data + 64), c = load(data + 128), d = load(data + 192);
    size_t at = STRIDE;
    __m128i left;
    uint64_t sum;

    QS_DCHECK(bytes >= QSI_CRC32C_WIDE_BYTES_MIN);
    for (; bytes - at >= STRIDE; at += STRIDE) {
        a = fold(a, by_stride, load(data + at));
        b = fold(b, by_stride, load(data + at + 64));
        c = fold(c, by_stride, load(data + at + 128));
        d = fold(d, by_stride, load(data + at + 192));
    }
    a = fold(fold(fold(a, by_register, b), by_register, c), by_register, d);
    for (; bytes - at >= 64; at += 64) {
        a = fold(a, by_register, load(data + at));
    }
    QS_DCHECK(bytes - at < 64);
    left = join_parts(a);
    sum = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(left));
    sum = _mm_crc32_u64(sum, (uint64_t)_mm_extract_epi64(left, 1));
    return qsi_crc32c_lanes(~(uint32_t)sum, data + at, bytes - at);
}

#endif
