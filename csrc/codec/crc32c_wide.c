/* Four registers of 512 bits have the remainder of the bytes so far, as polynomials.  A step moves
 * each over the next 256 bytes (two carry-less products for each 128 bits) and adds those.  The
 * final remainder has the checksum of all bytes: it is folded to 128 bits, which the checksum
 * instruction reduces.
 *
 * The products use one unit of the processor and the checksum instruction another, so a long
 * stretch uses both at once: the registers go over its front, three lanes over its back.  Then the
 * registers are moved over the lanes, whose sum is added to the next bytes.
 *
 * A polynomial of 128 bits, lower half first, is moved by n words of 64 bits with the constants
 * that move a register over n + 1 words (the lower half) and over n words (the upper half). */
#include "crc32c_wide.h"

#ifdef WIDE
#include "crc32c_lanes.h"

#include <immintrin.h>

#define QSI_CRC32C_TABLE_SHIFTS
#include "check.h"
#include "crc32c_table.h"
#include "le.h"

#define STRIDE 256u /* bytes of a step: four registers */

/* A stretch: bytes of a step for the registers and words for each lane, so that both finish at the
 * same time.  The shifts extend over the lanes and a step. */
#define LANE_STEP_WORDS 4u
#define STEPS 39u
#define LANE_BYTES (8 * LANE_STEP_WORDS * STEPS)
#define FRONT_BYTES (STRIDE * STEPS)
#define BACK_BYTES (3 * LANE_BYTES)
#define CACHED_BYTES_MAX (8u << 20) /* longer input comes from memory: in one piece it is faster */

_Static_assert((BACK_BYTES + STRIDE) / 8 + 1 <= 2 * QSI_CRC32C_LANE_WORDS_MAX, "in the table");

struct registers {
    __m512i a, b, c, d;
};

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

/* Joins the four parts of a, each 128 bits. */
WIDE static inline __m128i join_parts(__m512i a)
{
    __m512i shifts = _mm512_set_epi64(0, 0, crc32c_shifts[2], crc32c_shifts[3], crc32c_shifts[4],
                                      crc32c_shifts[5], crc32c_shifts[6], crc32c_shifts[7]);
    __m512i moved = fold(a, shifts, _mm512_setzero_si512());
    __m128i low = _mm_xor_si128(_mm512_castsi512_si128(moved), _mm512_extracti32x4_epi32(moved, 1));

    return _mm_xor_si128(
        low, _mm_xor_si128(_mm512_extracti32x4_epi32(moved, 2), _mm512_extracti32x4_epi32(a, 3)));
}

WIDE static inline void fold_step(struct registers *r, __m512i shift, const uint8_t *data)
{
    r->a = fold(r->a, shift, load(data));
    r->b = fold(r->b, shift, load(data + 64));
    r->c = fold(r->c, shift, load(data + 128));
    r->d = fold(r->d, shift, load(data + 192));
}

/* Sums the words of a lane for one step. */
WIDE static inline uint64_t sum_lane(uint64_t sum, const uint8_t *lane)
{
    sum = _mm_crc32_u64(sum, qsi_get_u64(lane));
    sum = _mm_crc32_u64(sum, qsi_get_u64(lane + 8));
    sum = _mm_crc32_u64(sum, qsi_get_u64(lane + 16));
    return _mm_crc32_u64(sum, qsi_get_u64(lane + 24));
}

/* Folds the front of a stretch and returns the sum of its back. */
WIDE static inline uint32_t fold_front(struct registers *r, __m512i by_stride, const uint8_t *data)
{
    const uint8_t *lane = data + FRONT_BYTES;
    uint64_t sum = 0, sum1 = 0, sum2 = 0;

    for (uint32_t step = 0; step < STEPS; step++) {
        fold_step(r, by_stride, data);
        sum = sum_lane(sum, lane);
        sum1 = sum_lane(sum1, lane + LANE_BYTES);
        sum2 = sum_lane(sum2, lane + 2 * LANE_BYTES);
        data += STRIDE;
        lane += 8 * LANE_STEP_WORDS;
    }
    return qsi_crc32c_join_lanes((uint32_t)sum, (uint32_t)sum1, (uint32_t)sum2, LANE_BYTES / 8);
}

/* Adds a sum to the next bytes. */
WIDE static inline __m512i add_sum(__m512i next, uint32_t sum)
{
    return _mm512_xor_si512(next, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)sum)));
}

WIDE uint32_t qsi_crc32c_wide(uint32_t seed, const uint8_t *data, size_t bytes)
{
    const __m512i by_stride = shift_by(STRIDE / 8), by_register = shift_by(8);
    struct registers r = {add_sum(load(data), ~seed), load(data + 64), load(data + 128),
                          load(data + 192)};
    size_t at = STRIDE;
    __m128i left;
    uint64_t sum;

    QS_DCHECK(bytes >= QSI_CRC32C_WIDE_BYTES_MIN);
    while (bytes <= CACHED_BYTES_MAX && bytes - at >= FRONT_BYTES + BACK_BYTES + STRIDE) {
        uint32_t back = fold_front(&r, by_stride, data + at);
        at += FRONT_BYTES + BACK_BYTES;
        fold_step(&r, shift_by((BACK_BYTES + STRIDE) / 8), data + at);
        r.a = add_sum(r.a, back);
        at += STRIDE;
    }
    for (; bytes - at >= STRIDE; at += STRIDE) {
        fold_step(&r, by_stride, data + at);
    }
    r.a = fold(fold(fold(r.a, by_register, r.b), by_register, r.c), by_register, r.d);
    for (; bytes - at >= 64; at += 64) {
        r.a = fold(r.a, by_register, load(data + at));
    }
    QS_DCHECK(bytes - at < 64);
    left = join_parts(r.a);
    sum = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(left));
    sum = _mm_crc32_u64(sum, (uint64_t)_mm_extract_epi64(left, 1));
    return qsi_crc32c_lanes(~(uint32_t)sum, data + at, bytes - at);
}

#endif
