/* The settlement of delivered messages. */
#ifndef QSI_SETTLE_RECORD_H
#define QSI_SETTLE_RECORD_H

#include "qstore/status.h"

#include <stdbool.h>
#include <stdint.h>

#define QSI_SETTLE_BYTES 32
#define QSI_SETTLE_BYTES_MAX 40
enum qsi_settle_kind {
    QSI_SETTLE_ACK = 1,
    QSI_SETTLE_REQUEUE = 2,     /* counts a delivery */
    QSI_SETTLE_REQUEUE_DUE = 3, /* requeued, to be delivered later; counts a delivery */
    QSI_SETTLE_DUE = 4,         /* like REQUEUE_DUE, without counting a delivery */
    QSI_SETTLE_DELIVER = 5,     /* counts a delivery, before a client gets the message */
    QSI_SETTLE_TAKE_BACK = 6,   /* no client got the message: counts one delivery less */
};
struct qsi_settle {
    uint64_t queue_id;
    uint64_t first_seq;
    uint32_t count;
    uint8_t kind;
    uint64_t due_us; /* 0 for kinds without a due time */
};
static inline bool qsi_settle_has_due(uint8_t kind)
{
    return kind == QSI_SETTLE_REQUEUE_DUE || kind == QSI_SETTLE_DUE;
}
static inline bool qsi_settle_requeues(uint8_t kind)
{
    return kind == QSI_SETTLE_REQUEUE || kind == QSI_SETTLE_REQUEUE_DUE;
}
static inline uint32_t qsi_settle_record_bytes(uint8_t kind)
{
    return qsi_settle_has_due(kind) ? QSI_SETTLE_BYTES_MAX : QSI_SETTLE_BYTES;
}
/* Writes qsi_settle_record_bytes() bytes. */
void qsi_settle_encode(uint8_t *record_out, const struct qsi_settle *settle);
qs_status qsi_settle_decode(struct qsi_settle *settle_out, const uint8_t *record,
                            qs_error *error) QS_MUST_CHECK;

#endif
