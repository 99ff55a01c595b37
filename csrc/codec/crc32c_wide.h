/* CRC-32C with the 512-bit carry-less products of newer x86 processors: 256 bytes at a time, at the
 * speed of the processor's cache.  WIDE marks functions that use them, HAVE_WIDE tests whether this
 * processor has them; neither is defined for other architectures. */
#ifndef QSI_CRC32C_WIDE_H
#define QSI_CRC32C_WIDE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)

/* Below this, joining the lanes takes longer than it saves. */
#define QSI_CRC32C_WIDE_BYTES_MIN 512u

#define WIDE __attribute__((target("sse4.2,crc32,pclmul,avx512f,avx512vl,vpclmulqdq")))
#define HAVE_WIDE                                                               \
    (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && \
     __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("sse4.2"))

/* REQUIRES HAVE_WIDE, and QSI_CRC32C_WIDE_BYTES_MIN bytes. */
uint32_t qsi_crc32c_wide(uint32_t seed, const uint8_t *data, size_t bytes);

#endif
#endif
