/* The header x-stream-offset, which a message that is delivered from a stream has. */
#ifndef QSI_STREAM_OFFSET_H
#define QSI_STREAM_OFFSET_H

#include "slice.h"

#include <stdint.h>

/* So many bytes more than the properties it is added to, at most. */
#define QSI_STREAM_OFFSET_BYTES_MAX 31u

/* Copies well-formed properties with that header, a long, behind all others; one of that name goes.
 * REQUIRES room for as many bytes as they have, and QSI_STREAM_OFFSET_BYTES_MAX more.  Returns how
 * many bytes it wrote. */
uint32_t qsi_stream_offset_put(uint8_t *properties_out, struct qsi_slice properties,
                               uint64_t offset);

#endif
