/* The bytes of a message file (docs/FORMAT.md, message files) and of a reference to a body.  All
 * integers are little-endian.
 *
 * NNNNNNNNNN.msg, ten decimal digits from 0000000001:
 *
 *   file header        4096 bytes
 *     0  magic         8   "QSMESSG\n"
 *     8  version       4   1
 *    12  features      4   0: a reader refuses bits it does not know
 *    16  number        4   the one in the name
 *    20  generation    4   0; compaction will rewrite a file under the next one
 *    24  uuid         16   of the store
 *    40  salt          8   random, of this file
 *    48  table_offset  8   0 in generation 0
 *    56  table_slots   4   0 in generation 0
 *    60  zeros      4032
 *  4092  crc32c        4   of the 4092 bytes before it
 *
 *   records            each at a multiple of 512: no write touches a sector of another record
 *     0  magic         4   "QSBD"
 *     4  slot          4   counts the records of a file from 0
 *     8  salt          8   the file's
 *    16  envelope      4   bytes
 *    20  body          4   bytes
 *    24  flags         4   0
 *    28  crc32c        4   of the 28 bytes before it, the envelope and the body
 *    32  envelope, body; then anything up to the next multiple of 512
 *
 * What a reference says is (file, slot) and, as a shortcut that holds for generation 0, the
 * offset.  A file of a later generation will carry, at table_offset, a table of table_slots
 * offsets (u64 by slot, 0: no longer there) with its own checksum.  It keeps the salt of its
 * number, so records move byte for byte and no reference changes.
 *
 * The checksum in the reference is the record's own.  As it covers slot and salt, bytes of
 * another record or of an earlier file cannot stand in for the ones that were meant. */
#ifndef QSI_MESSAGE_FORMAT_H
#define QSI_MESSAGE_FORMAT_H

#include "qstore/env.h"
#include "qstore/status.h"

#include "body_ref.h"
#include "check.h"

#include <stdbool.h>
#include <stdint.h>

#define QSI_UUID_BYTES 16
#define QSI_MESSAGE_HEADER_BYTES 4096u
#define QSI_BODY_HEADER_BYTES 32u
#define QSI_BODY_ALIGNMENT 512u /* a sector that is torn or garbled is so as a whole */

/* Header, envelope and body, without padding. */
static inline uint64_t qsi_body_record_bytes(const struct qsi_body_ref *ref)
{
    return (uint64_t)QSI_BODY_HEADER_BYTES + ref->envelope_bytes + ref->body_bytes;
}

/* Where the next record may begin.  REQUIRES a reference that was located or written. */
static inline uint64_t qsi_body_ref_end(const struct qsi_body_ref *ref)
{
    return qsi_round_up(ref->offset + qsi_body_record_bytes(ref), QSI_BODY_ALIGNMENT);
}

/* A file's name, "0000000007.msg", and what errors call it, "messages/0000000007.msg". */
#define QSI_MESSAGE_NAME_BYTES 15u
#define QSI_MESSAGE_PATH_BYTES 24u
void qsi_message_name(char name_out[QSI_MESSAGE_NAME_BYTES], uint32_t number);
void qsi_message_path(char path_out[QSI_MESSAGE_PATH_BYTES], uint32_t number);
/* False when it is not the name of a message file. */
bool qsi_message_name_parse(uint32_t *number_out, const char *name);

/* QSI_MESSAGE_HEADER_BYTES bytes: the header of a new file. */
void qsi_message_header_encode(uint8_t *bytes_out, uint32_t number,
                               const uint8_t uuid[QSI_UUID_BYTES], uint64_t salt);
/* Whether bytes are the header of this file of this store.  QS_ECORRUPT; QS_EVERSION: from a
 * later version, and whole. */
qs_status qsi_message_header_check(const uint8_t *bytes, uint32_t number,
                                   const uint8_t uuid[QSI_UUID_BYTES], uint64_t *salt_out,
                                   qs_error *error) QS_MUST_CHECK;

/* QSI_BODY_HEADER_BYTES bytes: the header of the record that ref names, ref->crc included. */
void qsi_body_header_encode(uint8_t *bytes_out, const struct qsi_body_ref *ref, uint64_t salt);
/* The checksum of a record's header, to be continued over envelope and body. */
uint32_t qsi_body_header_crc(const uint8_t *bytes);

#endif
