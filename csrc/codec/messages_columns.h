/* The columns of a messages record, for its writer and its readers: the flags that say which
 * columns there are, and the columns' sizes. */
#ifndef QSI_MESSAGES_COLUMNS_H
#define QSI_MESSAGES_COLUMNS_H

#include "check.h"

#include <stdint.h>

enum {
    QSI_MESSAGES_PROPERTIES_PER_ROW = 1, /* otherwise one blob is for all rows */
    /* A bitmap has the rows whose body cell is a reference to the message store. */
    QSI_MESSAGES_HAS_STORED = 2,
    /* Some rows have delivery mode 1, and end with the process. */
    QSI_MESSAGES_HAS_TRANSIENT = 4,
    QSI_MESSAGES_HAS_EXPIRATION = 8, /* a column has the expiration of each row */
    QSI_MESSAGES_HAS_DUE = 16,       /* a column has the due time of each row */
    /* Columns begin at multiples of QSI_MESSAGES_ALIGN_TO, as Arrow recommends. */
    QSI_MESSAGES_ALIGNED = 32,
};
#define QSI_MESSAGES_FLAGS 63 /* all of them */
#define QSI_MESSAGES_ALIGN_TO 64u
/* A record of several rows of at least this size has aligned columns; the gaps take about a hundred
 * bytes. */
#define QSI_MESSAGES_ALIGN_FROM (16u << 10)

/* Bytes of a route in the record. */
static inline uint64_t qsi_route_bytes(uint32_t exchange_bytes, uint32_t key_bytes,
                                       uint32_t destination_count)
{
    return 8 + 4 * (uint64_t)destination_count + exchange_bytes + key_bytes;
}

static inline uint64_t qsi_offsets_bytes(uint32_t row_count)
{
    return 4 * ((uint64_t)row_count + 1);
}

/* Bytes of columns with the gap after them, so that the next column is aligned. */
static inline uint64_t qsi_column_bytes(uint8_t flags, uint64_t bytes)
{
    return QS_UNLIKELY((flags & QSI_MESSAGES_ALIGNED) != 0)
               ? (bytes + QSI_MESSAGES_ALIGN_TO - 1) & ~(uint64_t)(QSI_MESSAGES_ALIGN_TO - 1)
               : bytes;
}

static inline uint64_t qsi_stored_bytes(uint8_t flags, uint32_t row_count)
{
    return (flags & QSI_MESSAGES_HAS_STORED) != 0
               ? qsi_column_bytes(flags, ((uint64_t)row_count + 7) / 8)
               : 0;
}

static inline uint64_t qsi_body_offsets_bytes(uint8_t flags, uint32_t row_count)
{
    return qsi_column_bytes(flags, qsi_offsets_bytes(row_count));
}

static inline uint64_t qsi_expirations_bytes(uint8_t flags, uint32_t row_count)
{
    return (flags & QSI_MESSAGES_HAS_EXPIRATION) != 0
               ? qsi_column_bytes(flags, 4 * (uint64_t)row_count)
               : 0;
}

static inline uint64_t qsi_dues_bytes(uint8_t flags, uint32_t row_count)
{
    return (flags & QSI_MESSAGES_HAS_DUE) != 0 ? qsi_column_bytes(flags, 8 * (uint64_t)row_count)
                                               : 0;
}

/* Bytes of a code in the column of routes. */
static inline uint8_t qsi_code_width(uint32_t route_count)
{
    if (route_count <= 1) {
        return 0;
    }
    return route_count <= 0x100 ? 1 : route_count <= 0x10000 ? 2 : 4;
}

#endif
