/* SplitMix64: random enough for tests, and the same on every machine for the same seed. */
#ifndef QSI_SPLITMIX_H
#define QSI_SPLITMIX_H

#include <stdint.h>

static inline uint64_t qsi_splitmix_next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* 0 to limit - 1; the bias for small limits is far below what a test could see. */
static inline uint64_t qsi_splitmix_below(uint64_t *state, uint64_t limit)
{
    return qsi_splitmix_next(state) % limit;
}

#endif
