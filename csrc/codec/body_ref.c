#include "body_ref.h"

#include "check.h"
#include "le.h"

void qsi_body_ref_encode(uint8_t *bytes_out, const struct qsi_body_ref *ref)
{
    qsi_put_u32(bytes_out, ref->file);
    qsi_put_u32(bytes_out + 4, ref->slot);
    qsi_put_u64(bytes_out + 8, ref->offset);
    qsi_put_u32(bytes_out + 16, ref->envelope_bytes);
    qsi_put_u32(bytes_out + 20, ref->body_bytes);
    qsi_put_u32(bytes_out + 24, ref->crc);
}

void qsi_body_damage_encode(uint8_t *bytes_out, const struct qsi_body_damage *damage)
{
    qsi_put_u64(bytes_out, damage->queue_id);
    qsi_put_u64(bytes_out + 8, damage->number);
    qsi_put_u32(bytes_out + 16, damage->generation);
    qsi_put_u32(bytes_out + 20, damage->slot);
    qsi_put_u64(bytes_out + 24, damage->offset);
}

static struct qsi_body_ref decode_ref(const uint8_t *bytes)
{
    return (struct qsi_body_ref){
        .file = qsi_get_u32(bytes),
        .slot = qsi_get_u32(bytes + 4),
        .offset = qsi_get_u64(bytes + 8),
        .envelope_bytes = qsi_get_u32(bytes + 16),
        .body_bytes = qsi_get_u32(bytes + 20),
        .crc = qsi_get_u32(bytes + 24),
    };
}

static struct qsi_body_damage decode_damage(const uint8_t *bytes)
{
    return (struct qsi_body_damage){
        .queue_id = qsi_get_u64(bytes),
        .number = qsi_get_u64(bytes + 8),
        .generation = qsi_get_u32(bytes + 16),
        .slot = qsi_get_u32(bytes + 20),
        .offset = qsi_get_u64(bytes + 24),
    };
}

void qsi_body_decode(struct qsi_body *body_out, struct qsi_slice cell)
{
    if (cell.bytes == QSI_BODY_REF_BYTES) {
        body_out->kind = QSI_BODY_STORED;
        body_out->ref = decode_ref(cell.data);
        return;
    }
    QS_ASSERT(cell.bytes == QSI_BODY_DAMAGE_BYTES);
    body_out->kind = QSI_BODY_DAMAGED;
    body_out->damage = decode_damage(cell.data);
}
