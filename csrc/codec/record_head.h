/* The head of records (docs/FORMAT.md, "Records").
 *
 * Every record begins with {bytes u32, type u8, flags u8, u16}, and its size is a multiple of 8
 * bytes. */
#ifndef QSI_RECORD_HEAD_H
#define QSI_RECORD_HEAD_H

#include "le.h"

#include <stdbool.h>
#include <stdint.h>

enum qsi_record_type {
    QSI_RECORD_MESSAGES = 1,
    QSI_RECORD_SETTLE = 2,
    QSI_RECORD_EXCHANGE_DECLARE = 3,
    QSI_RECORD_EXCHANGE_DELETE = 4,
    QSI_RECORD_QUEUE_DECLARE = 5,
    QSI_RECORD_QUEUE_DELETE = 6,
    QSI_RECORD_BIND = 7,
    QSI_RECORD_UNBIND = 8,
    QSI_RECORD_TRANSACTION = 9,
    QSI_RECORD_QUEUE_MODE = 10,
    QSI_RECORD_EXCHANGE_BIND = 11, /* exchange to exchange */
    QSI_RECORD_EXCHANGE_UNBIND = 12,
    QSI_RECORD_PRIORITY_QUEUE_DECLARE = 13, /* of a queue with priorities */
    QSI_RECORD_TRANSACTION_FORGET = 14,
    QSI_RECORD_STREAM_DECLARE = 15,
    /* in checkpoints only */
    QSI_RECORD_MESSAGE_FILE = 16,
    QSI_RECORD_QUEUE_STATE = 17,
    QSI_RECORD_STORE_STATE = 18,
    QSI_RECORD_KEY_FILE = 19,
    QSI_RECORD_FORMER_FILE = 20,
    /* of streams, in the journal as well */
    QSI_RECORD_CURSOR = 21,      /* cursor_record.h */
    QSI_RECORD_STREAM_TRIM = 22, /* stream_record.h */
    /* in checkpoints only */
    QSI_RECORD_STREAM_STATE = 23, /* stream_record.h */
    /* in the journal only */
    QSI_RECORD_STREAM_WRITTEN = 24, /* stream_record.h */
    QSI_RECORD_STREAM_ADOPTED = 25, /* as a stream written */
    /* of work queues over a stream: work_record.h.  The numbers between are unused */
    QSI_RECORD_WORK_QUEUE_DECLARE = 40, /* in the journal as well */
    QSI_RECORD_WORK_STATE = 41,         /* only in checkpoints, like the next one */
    QSI_RECORD_WORK_SEGMENT = 42,       /* only in checkpoints */
};

#define QSI_RECORD_ALIGN 8
#define QSI_RECORD_HEAD_BYTES 8

static inline uint64_t qsi_record_align(uint64_t bytes)
{
    return (bytes + QSI_RECORD_ALIGN - 1) & ~(uint64_t)(QSI_RECORD_ALIGN - 1);
}
static inline uint32_t qsi_record_length(const uint8_t *record)
{
    return qsi_get_u32(record);
}
static inline uint8_t qsi_record_type(const uint8_t *record)
{
    return record[4];
}
/* Whether the record at the start of at[0, bytes) has a possible length. */
bool qsi_record_fits(const uint8_t *at, uint64_t bytes);
static inline void qsi_record_put_head(uint8_t *record, uint32_t bytes, uint8_t type, uint8_t flags)
{
    qsi_put_u32(record, bytes);
    record[4] = type;
    record[5] = flags;
    qsi_put_u16(record + 6, 0);
}

#endif
