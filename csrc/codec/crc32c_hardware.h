/* The processor's checksum instruction.  HARDWARE marks functions that use it, HAVE_HARDWARE tests
 * whether this processor has it.  Neither is defined for architectures without one. */
#ifndef QSI_CRC32C_HARDWARE_H
#define QSI_CRC32C_HARDWARE_H

#include <stdint.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#include <wmmintrin.h>

#define HARDWARE __attribute__((target("sse4.2,crc32,pclmul")))
#define HAVE_HARDWARE (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"))

HARDWARE static inline uint32_t step_u64(uint32_t crc, uint64_t word)
{
    return (uint32_t)_mm_crc32_u64(crc, word);
}

HARDWARE static inline uint32_t step_u32(uint32_t crc, uint32_t word)
{
    return _mm_crc32_u32(crc, word);
}

HARDWARE static inline uint32_t step_u8(uint32_t crc, uint8_t byte)
{
    return _mm_crc32_u8(crc, byte);
}

HARDWARE static inline uint64_t multiply(uint32_t a, uint32_t b)
{
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)a), _mm_cvtsi32_si128((int)b), 0);

    return (uint64_t)_mm_cvtsi128_si64(product);
}

#elif defined(__aarch64__) && defined(__linux__) && defined(__ARM_NEON) && !defined(__AARCH64EB__)
#include <arm_neon.h>
#include <sys/auxv.h>

/* From the kernel's <asm/hwcap.h>. */
#define HARDWARE_CAPS ((1ul << 7 /* crc32 */) | (1ul << 4 /* pmull */))
#define HAVE_HARDWARE ((getauxval(AT_HWCAP) & HARDWARE_CAPS) == HARDWARE_CAPS)

/* <arm_acle.h> declares its functions only if the whole file is compiled with +crc, so the builtins
 * are used. */
#if defined(__clang__)
#define HARDWARE __attribute__((target("crc,aes")))
#define CRC32C_U64 __builtin_arm_crc32cd
#define CRC32C_U32 __builtin_arm_crc32cw
#define CRC32C_U8 __builtin_arm_crc32cb
#else
#define HARDWARE __attribute__((target("+crc+crypto")))
#define CRC32C_U64 __builtin_aarch64_crc32cx
#define CRC32C_U32 __builtin_aarch64_crc32cw
#define CRC32C_U8 __builtin_aarch64_crc32cb
#endif

HARDWARE static inline uint32_t step_u64(uint32_t crc, uint64_t word)
{
    return CRC32C_U64(crc, word);
}

HARDWARE static inline uint32_t step_u32(uint32_t crc, uint32_t word)
{
    return CRC32C_U32(crc, word);
}

HARDWARE static inline uint32_t step_u8(uint32_t crc, uint8_t byte)
{
    return CRC32C_U8(crc, byte);
}

HARDWARE static inline uint64_t multiply(uint32_t a, uint32_t b)
{
    return (uint64_t)vmull_p64(a, b);
}

#endif

#endif
