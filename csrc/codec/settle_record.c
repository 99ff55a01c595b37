/* Settle records. */
#include "settle_record.h"

#include "check.h"
#include "error.h"
#include "le.h"
#include "record_head.h"

void qsi_settle_encode(uint8_t *record_out, const struct qsi_settle *settle)
{
    QS_DCHECK(settle->first_seq + settle->count >= settle->first_seq); /* checked by decoding */
    qsi_record_put_head(record_out, QSI_SETTLE_BYTES, QSI_RECORD_SETTLE, settle->kind);
    qsi_put_u64(record_out + 8, settle->queue_id);
    qsi_put_u64(record_out + 16, settle->first_seq);
    qsi_put_u32(record_out + 24, settle->count);
    qsi_put_u32(record_out + 28, 0);
    QS_DCHECK(settle->due_us == 0 || qsi_settle_has_due(settle->kind));
    if (QS_UNLIKELY(qsi_settle_has_due(settle->kind))) {
        qsi_put_u32(record_out, QSI_SETTLE_BYTES_MAX);
        qsi_put_u64(record_out + 32, settle->due_us);
    }
}

qs_status qsi_settle_decode(struct qsi_settle *settle_out, const uint8_t *record, qs_error *error)
{
    if (record[5] < QSI_SETTLE_ACK || record[5] > QSI_SETTLE_TAKE_BACK) {
        return qsi_fail(error, QS_ECORRUPT, "settle record of kind %u", record[5]);
    }
    if (qsi_record_length(record) != qsi_settle_record_bytes(record[5])) {
        return qsi_fail(error, QS_ECORRUPT, "settle record of %u bytes", qsi_record_length(record));
    }
    *settle_out = (struct qsi_settle){
        .queue_id = qsi_get_u64(record + 8),
        .first_seq = qsi_get_u64(record + 16),
        .count = qsi_get_u32(record + 24),
        .kind = record[5],
        .due_us = qsi_settle_has_due(record[5]) ? qsi_get_u64(record + 32) : 0,
    };
    if (settle_out->first_seq + settle_out->count < settle_out->first_seq) {
        return qsi_fail(error, QS_ECORRUPT, "settle record past the last sequence");
    }
    return QS_OK;
}
