#include "body_ref.h"

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

void qsi_body_ref_decode(struct qsi_body_ref *ref_out, const uint8_t *bytes)
{
    ref_out->file = qsi_get_u32(bytes);
    ref_out->slot = qsi_get_u32(bytes + 4);
    ref_out->offset = qsi_get_u64(bytes + 8);
    ref_out->envelope_bytes = qsi_get_u32(bytes + 16);
    ref_out->body_bytes = qsi_get_u32(bytes + 20);
    ref_out->crc = qsi_get_u32(bytes + 24);
}
