/* What a stored message has in front of its body: exchange and routing key with a length byte
 * each, properties with four.  It makes a record of the message store, or an entry of an index
 * segment, readable without the journal. */
#ifndef QSI_ENVELOPE_H
#define QSI_ENVELOPE_H

#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

uint32_t qsi_envelope_bytes(struct qsi_slice exchange, struct qsi_slice key,
                            struct qsi_slice properties);
/* qsi_envelope_bytes() bytes.  REQUIRES names of 255 bytes at most. */
void qsi_envelope_encode(uint8_t *out, struct qsi_slice exchange, struct qsi_slice key,
                         struct qsi_slice properties);
/* False: malformed.  The slices point into data. */
bool qsi_envelope_decode(const uint8_t *data, uint32_t bytes, struct qsi_slice *exchange,
                         struct qsi_slice *key, struct qsi_slice *properties);

#endif
