/* The bytes before a stored message's body: exchange and routing key, each with a length byte, and
 * properties with a length of four bytes.  They make a record of the message store, or an entry of
 * an index segment, readable without the journal. */
#ifndef QSI_ENVELOPE_H
#define QSI_ENVELOPE_H

#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

uint32_t qsi_envelope_bytes(struct qsi_slice exchange, struct qsi_slice key,
                            struct qsi_slice properties);
/* Writes qsi_envelope_bytes() bytes.  REQUIRES names of at most 255 bytes. */
void qsi_envelope_encode(uint8_t *out, struct qsi_slice exchange, struct qsi_slice key,
                         struct qsi_slice properties);
/* False: malformed.  The slices point into data. */
bool qsi_envelope_decode(const uint8_t *data, uint32_t bytes, struct qsi_slice *exchange,
                         struct qsi_slice *key, struct qsi_slice *properties);

#endif
