/* The header x-stream-offset of messages delivered from a stream. */
#ifndef QSI_STREAM_OFFSET_H
#define QSI_STREAM_OFFSET_H

#include "slice.h"

#include <stdint.h>

/* The most bytes that the header adds to properties. */
#define QSI_STREAM_OFFSET_BYTES_MAX 31u

/* Copies well-formed properties and adds the header, a long, after all others; an existing one is
 * dropped.  REQUIRES room for the properties and QSI_STREAM_OFFSET_BYTES_MAX more bytes.  Returns
 * the number of bytes written. */
uint32_t qsi_stream_offset_put(uint8_t *properties_out, struct qsi_slice properties,
                               uint64_t offset);

#endif
