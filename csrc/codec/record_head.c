/* Framing of records. */
#include "record_head.h"

bool qsi_record_fits(const uint8_t *at, uint64_t bytes)
{
    uint32_t record_bytes;

    if (bytes < QSI_RECORD_HEAD_BYTES) {
        return false;
    }
    record_bytes = qsi_record_length(at);
    return record_bytes >= QSI_RECORD_HEAD_BYTES && record_bytes <= bytes &&
           record_bytes % QSI_RECORD_ALIGN == 0;
}
