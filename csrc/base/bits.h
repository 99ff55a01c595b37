/* Words of 64 bits. */
#ifndef QSI_BITS_H
#define QSI_BITS_H

#include <stdint.h>

#define QSI_WORD_BITS 64

/* Without the instruction in the compiler's target, __builtin_popcountll is a function call, and
 * most words have only one bit. */
static inline uint32_t qsi_popcount(uint64_t word)
{
    if ((word & (word - 1)) == 0) {
        return word != 0 ? 1 : 0;
    }
    return (uint32_t)__builtin_popcountll(word);
}

/* The lowest count bits. */
static inline uint64_t qsi_low_bits(uint64_t count)
{
    return count >= QSI_WORD_BITS ? ~UINT64_C(0) : (UINT64_C(1) << count) - 1;
}

/* The length of the run of ones that begins at bit. */
static inline uint32_t qsi_ones_from(uint64_t word, uint32_t bit)
{
    uint64_t rest = ~(word >> bit);

    return rest == 0 ? QSI_WORD_BITS : (uint32_t)__builtin_ctzll(rest);
}

/* The n-th one of word, from 0, as a mask.  REQUIRES that there is one. */
static inline uint64_t qsi_nth_one(uint64_t word, uint32_t n)
{
    uint64_t first = word & -word;

    if ((word & (word + first)) == 0) { /* a single run of ones, which is usual */
        return first << n;
    }
    for (; n > 0; n--) {
        word &= word - 1;
    }
    return word & -word;
}

#endif
