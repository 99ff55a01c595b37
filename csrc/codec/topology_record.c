/* Records of topology and transactions:
 * header | flags u32 | lengths of the strings u32 x 4 | u32 0 | number u64 | strings */
#include "topology_record.h"

#include "check.h"
#include "error.h"
#include "le.h"
#include "record_head.h"

#include <string.h>

#define TOPOLOGY_FIXED_BYTES (QSI_RECORD_HEAD_BYTES + 4 + 4 * QSI_TOPOLOGY_STRINGS + 4 + 8)

uint64_t qsi_topology_bytes(const struct qsi_topology *topology)
{
    uint64_t bytes = TOPOLOGY_FIXED_BYTES;

    for (int i = 0; i < QSI_TOPOLOGY_STRINGS; i++) {
        bytes += topology->strings[i].bytes;
    }
    QS_DCHECK(bytes >= TOPOLOGY_FIXED_BYTES);
    return qsi_record_align(bytes);
}

void qsi_topology_encode(uint8_t *record_out, const struct qsi_topology *topology)
{
    uint64_t bytes = qsi_topology_bytes(topology);
    uint8_t *at = record_out + TOPOLOGY_FIXED_BYTES;

    QS_ASSERT(bytes <= UINT32_MAX);
    memset(record_out, 0, bytes);
    qsi_record_put_head(record_out, (uint32_t)bytes, topology->type, 0);
    qsi_put_u32(record_out + 8, topology->flags);
    qsi_put_u64(record_out + 32, topology->number);
    for (int i = 0; i < QSI_TOPOLOGY_STRINGS; i++) {
        qsi_put_u32(record_out + 12 + 4 * i, topology->strings[i].bytes);
        if (topology->strings[i].bytes > 0) {
            memcpy(at, topology->strings[i].data, topology->strings[i].bytes);
            at += topology->strings[i].bytes;
            QS_DCHECK(at <= record_out + bytes);
        }
    }
}

qs_status qsi_topology_decode(struct qsi_topology *topology_out, const uint8_t *record,
                              qs_error *error)
{
    uint64_t left = qsi_record_length(record);
    const uint8_t *at = record + TOPOLOGY_FIXED_BYTES;

    if (left < TOPOLOGY_FIXED_BYTES) {
        return qsi_fail(error, QS_ECORRUPT, "topology record of %llu bytes",
                        (unsigned long long)left);
    }
    left -= TOPOLOGY_FIXED_BYTES;
    *topology_out = (struct qsi_topology){
        .type = qsi_record_type(record),
        .flags = qsi_get_u32(record + 8),
        .number = qsi_get_u64(record + 32),
    };
    for (int i = 0; i < QSI_TOPOLOGY_STRINGS; i++) {
        uint32_t bytes = qsi_get_u32(record + 12 + 4 * i);
        if (bytes > left) {
            return qsi_fail(error, QS_ECORRUPT, "topology record: string %d leaves the record", i);
        }
        topology_out->strings[i] = qsi_slice_make(at, bytes);
        at += bytes;
        left -= bytes;
        QS_DCHECK(at + left == record + qsi_record_length(record));
    }
    return QS_OK;
}
