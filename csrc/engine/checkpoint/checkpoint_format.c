#include "checkpoint_format.h"

#include "check.h"
#include "error.h"
#include "file_head.h"
#include "le.h"
#include "name.h"

#include <stdio.h>
#include <string.h>

static const struct qsi_file_kind file_kind = {"QSCHECK1", "a checkpoint", 3};

#define STORE_STATE_BYTES 16u

void qsi_checkpoint_name(char name_out[QSI_CHECKPOINT_NAME_BYTES], uint64_t number)
{
    snprintf(name_out, QSI_CHECKPOINT_NAME_BYTES, "%010u.ckp", (uint32_t)number);
}

void qsi_checkpoint_path(char path_out[QSI_CHECKPOINT_PATH_BYTES], uint64_t number)
{
    snprintf(path_out, QSI_CHECKPOINT_PATH_BYTES, "checkpoint/%010u.ckp", (uint32_t)number);
}

bool qsi_checkpoint_number(const char *name, uint64_t *number_out)
{
    return qsi_name_number(name, ".ckp", number_out);
}

void qsi_checkpoint_header_encode(uint8_t out[QSI_CHECKPOINT_HEADER_BYTES],
                                  const struct qsi_checkpoint_header *header)
{
    QS_ASSERT(header->number > 0 && header->record_count > 0);
    memset(out, 0, QSI_CHECKPOINT_HEADER_BYTES);
    qsi_file_head_encode(out, &file_kind);
    memcpy(out + 16, header->uuid, QSI_UUID_BYTES);
    qsi_put_u64(out + 32, header->number);
    qsi_put_u64(out + 40, header->lsn);
    qsi_put_u32(out + 48, header->record_count);
}

qs_status qsi_checkpoint_header_decode(struct qsi_checkpoint_header *header_out, const uint8_t *in,
                                       const char *path, const uint8_t uuid[QSI_UUID_BYTES],
                                       uint64_t number, qs_error *error)
{
    QS_TRY(qsi_file_head_check(&file_kind, in, path, error));
    if (memcmp(in + 16, uuid, QSI_UUID_BYTES) != 0 || qsi_get_u64(in + 32) != number) {
        return qsi_fail_corrupt(error, path, 16, "another checkpoint, or of another store");
    }
    memcpy(header_out->uuid, uuid, QSI_UUID_BYTES);
    header_out->number = number;
    header_out->lsn = qsi_get_u64(in + 40);
    header_out->record_count = qsi_get_u32(in + 48);
    return QS_OK;
}

qs_status qsi_store_state_encode(struct qsi_buf *out, uint64_t next_queue_id)
{
    uint8_t *at;

    QS_DCHECK(next_queue_id > 0);
    QS_TRY(qsi_buf_reserve(out, STORE_STATE_BYTES, &at));
    out->bytes += STORE_STATE_BYTES;
    qsi_record_put_head(at, STORE_STATE_BYTES, QSI_RECORD_STORE_STATE, 0);
    qsi_put_u64(at + 8, next_queue_id);
    return QS_OK;
}

qs_status qsi_store_state_decode(uint64_t *next_queue_id_out, const uint8_t *record,
                                 qs_error *error)
{
    if (qsi_record_length(record) != STORE_STATE_BYTES) {
        return qsi_fail(error, QS_ECORRUPT, "store state of %u bytes", qsi_record_length(record));
    }
    *next_queue_id_out = qsi_get_u64(record + 8);
    return QS_OK;
}
