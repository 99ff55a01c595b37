/* Stateless functions over bytes: the part of the file formats that tools and workers need without
 * a store.
 *
 * Nothing here allocates, blocks or keeps a pointer.  Sizes follow their pointer; a pointer may be
 * NULL only when its size is 0.
 * Threads: any.  Fork: no state, so both sides may go on. */
#ifndef QSTORE_CODEC_H
#define QSTORE_CODEC_H

#include "qstore/status.h"

#include <stddef.h>
#include <stdint.h>

/* qs_crc32c - the CRC-32C (Castagnoli) checksum of all records.
 *
 * In:      seed   0, or the result for the bytes before these: checksums chain
 * Returns: the checksum; seed itself when data_bytes is 0
 */
QS_API uint32_t qs_crc32c(uint32_t seed, const void *data, size_t data_bytes);

/* qs_properties_check - whether bytes are well-formed message properties.
 *
 * In:      blob   AMQP 0-9-1 property flags and values, nested header tables included; empty is
 *          well formed
 * Returns: QS_OK        every length, type and string is in order, to the last byte
 *          QS_ECORRUPT  they are not; error tells which property
 */
QS_API QS_MUST_CHECK qs_status qs_properties_check(const void *blob, size_t blob_bytes,
                                                   qs_error *error);

#endif
