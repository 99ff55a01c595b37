/* Commit block headers.
 *
 *  0 magic u32 | 4 flags u32 | 8 lsn u64 | 16 durable_upto u64 | 24 salt u64 | 32 file_number u32
 * 36 payload_bytes u32 | 40 record_count u32 | 44 next_file u32 | 48 reserved, 12 bytes of zeros
 * 60 crc32c u32 of all before and the payload */
#include "block.h"

#include "qstore/codec.h"

#include "check.h"
#include "le.h"

#include <string.h>

#define BLOCK_MAGIC 0x424a5351u /* "QSJB" */
#define CRC_AT 60

void qsi_block_encode(uint8_t header_out[QSI_BLOCK_HEADER_BYTES], const struct qsi_block *block,
                      const qs_part *payload, size_t payload_count)
{
    uint32_t crc;
    uint64_t bytes = 0;

    QS_DCHECK(block->file_number > 0);
    QS_DCHECK(block->durable_upto <= block->lsn);
    memset(header_out, 0, QSI_BLOCK_HEADER_BYTES);
    qsi_put_u32(header_out, BLOCK_MAGIC);
    qsi_put_u32(header_out + 4, block->flags);
    qsi_put_u64(header_out + 8, block->lsn);
    qsi_put_u64(header_out + 16, block->durable_upto);
    qsi_put_u64(header_out + 24, block->salt);
    qsi_put_u32(header_out + 32, block->file_number);
    qsi_put_u32(header_out + 36, block->payload_bytes);
    qsi_put_u32(header_out + 40, block->record_count);
    qsi_put_u32(header_out + 44, block->next_file);
    crc = qs_crc32c(0, header_out, CRC_AT);
    for (size_t i = 0; i < payload_count; i++) {
        crc = qs_crc32c(crc, payload[i].data, payload[i].bytes);
        bytes += payload[i].bytes;
    }
    QS_ASSERT(bytes == block->payload_bytes);
    qsi_put_u32(header_out + CRC_AT, crc);
}

bool qsi_block_decode(struct qsi_block *block_out, const uint8_t header[QSI_BLOCK_HEADER_BYTES],
                      uint64_t salt)
{
    *block_out = (struct qsi_block){
        .flags = qsi_get_u32(header + 4),
        .lsn = qsi_get_u64(header + 8),
        .durable_upto = qsi_get_u64(header + 16),
        .salt = qsi_get_u64(header + 24),
        .file_number = qsi_get_u32(header + 32),
        .payload_bytes = qsi_get_u32(header + 36),
        .record_count = qsi_get_u32(header + 40),
        .next_file = qsi_get_u32(header + 44),
    };
    return qsi_get_u32(header) == BLOCK_MAGIC && block_out->salt == salt;
}

bool qsi_block_check(const uint8_t header[QSI_BLOCK_HEADER_BYTES], const uint8_t *payload,
                     uint32_t payload_bytes)
{
    uint32_t crc = qs_crc32c(qs_crc32c(0, header, CRC_AT), payload, payload_bytes);

    return crc == qsi_get_u32(header + CRC_AT);
}
