#include "envelope.h"

#include "check.h"
#include "le.h"

#include <string.h>

uint32_t qsi_envelope_bytes(struct qsi_slice exchange, struct qsi_slice key,
                            struct qsi_slice properties)
{
    return 6 + exchange.bytes + key.bytes + properties.bytes;
}

void qsi_envelope_encode(uint8_t *out, struct qsi_slice exchange, struct qsi_slice key,
                         struct qsi_slice properties)
{
    QS_DCHECK(exchange.bytes <= UINT8_MAX && key.bytes <= UINT8_MAX);
    *out++ = (uint8_t)exchange.bytes;
    out = qsi_slice_put(out, exchange);
    *out++ = (uint8_t)key.bytes;
    out = qsi_slice_put(out, key);
    qsi_put_u32(out, properties.bytes);
    qsi_slice_put(out + 4, properties);
}

static bool take_bytes(const uint8_t **at, const uint8_t *end, uint32_t bytes,
                       struct qsi_slice *out)
{
    QS_DCHECK(*at <= end);
    if ((uint64_t)(end - *at) < bytes) {
        return false;
    }
    *out = qsi_slice_make(*at, bytes);
    *at += bytes;
    return true;
}

bool qsi_envelope_decode(const uint8_t *data, uint32_t bytes, struct qsi_slice *exchange,
                         struct qsi_slice *key, struct qsi_slice *properties)
{
    const uint8_t *at = data;
    const uint8_t *end = data + bytes;
    struct qsi_slice length;

    return take_bytes(&at, end, 1, &length) && take_bytes(&at, end, length.data[0], exchange) &&
           take_bytes(&at, end, 1, &length) && take_bytes(&at, end, length.data[0], key) &&
           take_bytes(&at, end, 4, &length) &&
           take_bytes(&at, end, qsi_get_u32(length.data), properties) && at == end;
}
