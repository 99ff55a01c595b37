/* The shard of a key among n equal shards, the same in every process: a hash of its bytes, and the
 * consistent hash by which x-consistent-hash exchanges distribute it. */
#ifndef QSI_SHARD_H
#define QSI_SHARD_H

#include "qstore/codec.h"

#include <stdint.h>

/* The finisher of splitmix64: checksums of similar keys differ in few bits. */
static inline uint64_t qsi_shard_hash(const void *data, uint64_t bytes)
{
    uint64_t hash = qs_crc32c(0, data, bytes) + UINT64_C(0x9e3779b97f4a7c15);

    hash = (hash ^ (hash >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    hash = (hash ^ (hash >> 27)) * UINT64_C(0x94d049bb133111eb);
    return hash ^ (hash >> 31);
}

/* "A Fast, Minimal Memory, Consistent Hash Algorithm", Lamping and Veach, 2014. */
static inline uint64_t qsi_shard_jump(uint64_t hash, uint64_t bucket_count)
{
    uint64_t bucket = 0, next = 0;

    while (next < bucket_count) {
        bucket = next;
        hash = hash * UINT64_C(2862933555777941757) + 1;
        next = (uint64_t)((double)(bucket + 1) *
                          ((double)(UINT64_C(1) << 31) / (double)((hash >> 33) + 1)));
    }
    return bucket;
}

#endif
