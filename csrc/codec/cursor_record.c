/* head | stream id u64 | offset u64 | bytes of the group u32 | own bytes u32 | group | own */
#include "cursor_record.h"

#include "check.h"
#include "error.h"
#include "record_head.h"

#include <string.h>

#define CURSOR_FIXED_BYTES (QSI_RECORD_HEAD_BYTES + 24u)

static bool has_head(const uint8_t *record)
{
    return qsi_record_type(record) == QSI_RECORD_CURSOR && record[5] == 0 &&
           qsi_get_u16(record + 6) == 0;
}

uint64_t qsi_cursor_record_bytes(const struct qsi_cursor_record *cursor)
{
    return qsi_record_align(CURSOR_FIXED_BYTES + (uint64_t)cursor->group.bytes + cursor->own.bytes);
}

void qsi_cursor_record_encode(uint8_t *record_out, const struct qsi_cursor_record *cursor)
{
    uint64_t bytes = qsi_cursor_record_bytes(cursor);
    uint8_t *at = record_out + CURSOR_FIXED_BYTES;

    QS_ASSERT(cursor->group.bytes >= 1 && cursor->group.bytes <= QSI_CURSOR_GROUP_BYTES_MAX);
    QS_ASSERT(cursor->own.bytes <= QSI_CURSOR_OWN_BYTES_MAX);
    memset(record_out, 0, bytes);
    qsi_record_put_head(record_out, (uint32_t)bytes, QSI_RECORD_CURSOR, 0);
    qsi_put_u64(record_out + 8, cursor->stream_id);
    qsi_put_u64(record_out + 16, cursor->offset);
    qsi_put_u32(record_out + 24, cursor->group.bytes);
    qsi_put_u32(record_out + 28, cursor->own.bytes);
    qsi_slice_put(qsi_slice_put(at, cursor->group), cursor->own);
}

qs_status qsi_cursor_record_decode(struct qsi_cursor_record *cursor_out, const uint8_t *record,
                                   qs_error *error)
{
    uint64_t bytes = qsi_record_length(record);
    uint32_t group_bytes, own_bytes;

    if (bytes < CURSOR_FIXED_BYTES || !has_head(record)) {
        return qsi_fail(error, QS_ECORRUPT, "cursor record of %llu bytes",
                        (unsigned long long)bytes);
    }
    group_bytes = qsi_get_u32(record + 24);
    own_bytes = qsi_get_u32(record + 28);
    if (group_bytes < 1 || group_bytes > QSI_CURSOR_GROUP_BYTES_MAX ||
        own_bytes > QSI_CURSOR_OWN_BYTES_MAX ||
        bytes != qsi_record_align(CURSOR_FIXED_BYTES + (uint64_t)group_bytes + own_bytes)) {
        return qsi_fail(error, QS_ECORRUPT, "cursor record: a group of %u bytes, %u of its own",
                        group_bytes, own_bytes);
    }
    *cursor_out = (struct qsi_cursor_record){
        .stream_id = qsi_get_u64(record + 8),
        .offset = qsi_get_u64(record + 16),
        .group = qsi_slice_make(record + CURSOR_FIXED_BYTES, group_bytes),
        .own = qsi_slice_make(record + CURSOR_FIXED_BYTES + group_bytes, own_bytes),
    };
    return QS_OK;
}
