/* Fixed-width integers in memory of any alignment: little-endian for the store's files, big-endian
 * for AMQP. */
#ifndef QSI_LE_H
#define QSI_LE_H

#include <stdint.h>
#include <string.h>

/* memcpy makes unaligned access defined; compilers turn each of these into one instruction. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define QSI_LE16(v) (v)
#define QSI_LE32(v) (v)
#define QSI_LE64(v) (v)
#define QSI_BE16(v) __builtin_bswap16(v)
#define QSI_BE32(v) __builtin_bswap32(v)
#define QSI_BE64(v) __builtin_bswap64(v)
#elif __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define QSI_LE16(v) __builtin_bswap16(v)
#define QSI_LE32(v) __builtin_bswap32(v)
#define QSI_LE64(v) __builtin_bswap64(v)
#define QSI_BE16(v) (v)
#define QSI_BE32(v) (v)
#define QSI_BE64(v) (v)
#else
#error "neither little- nor big-endian"
#endif

static inline void qsi_put_u16(uint8_t *p, uint16_t value)
{
    value = QSI_LE16(value);
    memcpy(p, &value, sizeof value);
}

static inline void qsi_put_u32(uint8_t *p, uint32_t value)
{
    value = QSI_LE32(value);
    memcpy(p, &value, sizeof value);
}

static inline void qsi_put_u64(uint8_t *p, uint64_t value)
{
    value = QSI_LE64(value);
    memcpy(p, &value, sizeof value);
}

static inline uint16_t qsi_get_u16(const uint8_t *p)
{
    uint16_t value;

    memcpy(&value, p, sizeof value);
    return QSI_LE16(value);
}

static inline uint32_t qsi_get_u32(const uint8_t *p)
{
    uint32_t value;

    memcpy(&value, p, sizeof value);
    return QSI_LE32(value);
}

static inline uint64_t qsi_get_u64(const uint8_t *p)
{
    uint64_t value;

    memcpy(&value, p, sizeof value);
    return QSI_LE64(value);
}

static inline void qsi_put_be16(uint8_t *p, uint16_t value)
{
    value = QSI_BE16(value);
    memcpy(p, &value, sizeof value);
}

static inline void qsi_put_be32(uint8_t *p, uint32_t value)
{
    value = QSI_BE32(value);
    memcpy(p, &value, sizeof value);
}

static inline void qsi_put_be64(uint8_t *p, uint64_t value)
{
    value = QSI_BE64(value);
    memcpy(p, &value, sizeof value);
}

static inline uint16_t qsi_get_be16(const uint8_t *p)
{
    uint16_t value;

    memcpy(&value, p, sizeof value);
    return QSI_BE16(value);
}

static inline uint32_t qsi_get_be32(const uint8_t *p)
{
    uint32_t value;

    memcpy(&value, p, sizeof value);
    return QSI_BE32(value);
}

static inline uint64_t qsi_get_be64(const uint8_t *p)
{
    uint64_t value;

    memcpy(&value, p, sizeof value);
    return QSI_BE64(value);
}

#endif
