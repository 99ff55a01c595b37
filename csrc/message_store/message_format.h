/* The bytes of a message file (docs/FORMAT.md, message files) and of a reference to a body.  All
 * integers are little-endian.
 *
 * NNNNNNNNNN.msg, ten decimal digits from 0000000001; NNNNNNNNNN-GGGG.msg in generation GGGG,
 * four decimal digits from 0001:
 *
 *   file header        4096 bytes
 *     0  magic         8   "QSMESSG\n"
 *     8  version       4   1
 *    12  features      4   0: a reader refuses bits it does not know
 *    16  number        4   the one in the name
 *    20  generation    4   0; compaction rewrites a file under the next one
 *    24  uuid         16   of the store
 *    40  salt          8   random, of this file
 *    48  table_offset  8   0 in generation 0
 *    56  table_slots   4   0 in generation 0
 *    60  zeros      4032
 *  4092  crc32c        4   of the 4092 bytes before it
 *
 *   records            each at a multiple of 512, or of 8 after others that were written with it or
 *                      moved: no write touches a sector of an earlier write's record
 *     0  magic         4   "QSBD"
 *     4  slot          4   counts the records of a file from 0
 *     8  salt          8   the file's
 *    16  envelope      4   bytes
 *    20  body          4   bytes
 *    24  flags         4   0
 *    28  crc32c        4   of the 28 bytes before it, the envelope and the body
 *    32  envelope, body; then any bytes up to the next record
 *
 *   table              in generations from 1, at table_offset, a multiple of 8
 *     0  offsets       8   each, by slot; 0: the record was dropped
 *        crc32c        4   of the offsets
 *        zeros         4
 *
 * A reference has (file, slot) and the offset, a shortcut that is valid for generation 0.  A later
 * generation keeps the salt of its number, so records move byte for byte and no reference changes.
 *
 * The checksum in the reference is that of the record.  It covers slot and salt, so bytes of
 * another record or of an earlier file cannot replace the right ones. */
#ifndef QSI_MESSAGE_FORMAT_H
#define QSI_MESSAGE_FORMAT_H

#include "qstore/env.h"
#include "qstore/status.h"

#include "body_ref.h"
#include "check.h"
#include "file_head.h"

#include <stdbool.h>
#include <stdint.h>

#define QSI_MESSAGE_HEADER_BYTES 4096u
#define QSI_BODY_HEADER_BYTES 32u
#define QSI_BODY_ALIGNMENT 512u /* a torn or garbled sector is so as a whole */
#define QSI_BODY_PACKED_ALIGNMENT 8u
#define QSI_MESSAGE_GENERATION_MAX 9999u

/* The identity of a file: its number, which references name, and the number of its rewrites. */
struct qsi_message_id {
    uint32_t number;
    uint32_t generation;
};

/* Bytes of header, envelope and body, without padding. */
static inline uint64_t qsi_body_record_bytes(const struct qsi_body_ref *ref)
{
    return (uint64_t)QSI_BODY_HEADER_BYTES + ref->envelope_bytes + ref->body_bytes;
}

/* Bytes of a record in a packed file, which is the result of compaction. */
static inline uint64_t qsi_body_packed_bytes(const struct qsi_body_ref *ref)
{
    return qsi_round_up(qsi_body_record_bytes(ref), QSI_BODY_PACKED_ALIGNMENT);
}

/* The least end, in a file of generation 0, of the write that wrote the record.  REQUIRES a
 * reference that was located or written. */
static inline uint64_t qsi_body_ref_end(const struct qsi_body_ref *ref)
{
    return qsi_round_up(ref->offset + qsi_body_record_bytes(ref), QSI_BODY_ALIGNMENT);
}

/* Writes a file's name, "0000000007.msg" or "0000000007-0001.msg", and its path in errors,
 * "messages/0000000007.msg". */
#define QSI_MESSAGE_NAME_BYTES 20u
#define QSI_MESSAGE_PATH_BYTES 29u
void qsi_message_name(char name_out[QSI_MESSAGE_NAME_BYTES], struct qsi_message_id id);
void qsi_message_path(char path_out[QSI_MESSAGE_PATH_BYTES], struct qsi_message_id id);
/* False: it is not the name of a message file. */
bool qsi_message_name_parse(struct qsi_message_id *id_out, const char *name);

/* The content of a file's header, except the store's uuid and what the file's name has as well. */
struct qsi_message_header {
    uint64_t salt;
    uint64_t table_offset; /* 0 in generation 0 */
    uint32_t table_slots;
};
static inline uint64_t qsi_message_table_bytes(uint32_t slots)
{
    return (uint64_t)slots * 8 + 8;
}

/* Encodes the header of a new file in QSI_MESSAGE_HEADER_BYTES bytes. */
void qsi_message_header_encode(uint8_t *bytes_out, uint32_t number,
                               const uint8_t uuid[QSI_UUID_BYTES], uint64_t salt);
/* Encodes the header of a later generation. */
void qsi_message_header_encode_table(uint8_t *bytes_out, struct qsi_message_id id,
                                     const uint8_t uuid[QSI_UUID_BYTES],
                                     const struct qsi_message_header *header);
/* Checks that bytes are the header of this file of this store.  QS_ECORRUPT; QS_EVERSION: a whole
 * header of a later version.  The end of the table is not checked. */
qs_status qsi_message_header_check(const uint8_t *bytes, struct qsi_message_id id,
                                   const uint8_t uuid[QSI_UUID_BYTES],
                                   struct qsi_message_header *header_out,
                                   qs_error *error) QS_MUST_CHECK;

/* Encodes the header of the record that ref names, ref->crc included, in QSI_BODY_HEADER_BYTES
 * bytes. */
void qsi_body_header_encode(uint8_t *bytes_out, const struct qsi_body_ref *ref, uint64_t salt);
/* The checksum of a record's header, to be continued over envelope and body. */
uint32_t qsi_body_header_crc(const uint8_t *bytes);
/* Decodes a record's header of the file with this salt; file and offset of ref_out are not set.
 * False: the bytes are no such header. */
bool qsi_body_header_parse(struct qsi_body_ref *ref_out, const uint8_t *bytes, uint64_t salt);

#endif
