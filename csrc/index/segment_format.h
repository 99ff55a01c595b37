/* The bytes of a segment file (docs/FORMAT.md, "Index segment").  All integers are little-endian.
 *
 * QQQQQQQQQQQQQQQQ-NNNNNNNNNNNN-GGGGGGGG.seg: queue id, number and generation in lower-case
 * hexadecimal.
 *
 *   header             H bytes: 128 + entries / 8 + 4, rounded up to 4096
 *     0  magic         8   "QSSEGMT\n"
 *     8  version       4   3
 *    12  features      4   0: a reader refuses bits it does not know
 *    16  uuid         16   of the store
 *    32  queue_id      8
 *    40  number        8   covers sequences [number * entries, (number + 1) * entries)
 *    48  generation    4
 *    52  entries       4
 *    56  slot_count    4   dense: entries; packed: the bits of the bitmap
 *    60  flags         4   bit 0: packed
 *    64  salt          8   random, of this file
 *    72  zeros        56
 *   128  present           bitmap of entries bits, the present slots of a packed file; zeros in a
 *                          dense one
 *        zeros
 *   H-4  crc32c        4   of all before it
 *
 *   two state areas    S bytes each: 64 + 2 * bitmap + 21 * entries, rounded up to 4096
 *     0  magic         8   "QSSEGST\n"
 *     8  flags         4   bit 0: has deliveries, bit 1: expiries, bit 2: sizes, bit 3: dues
 *    12  generation    4   this and the next three: the file's
 *    16  queue_id      8
 *    24  number        8
 *    32  salt          8
 *    40  zeros        20
 *    60  crc32c        4   of the 60 bytes before it and of what follows
 *    64  settled           bitmap in words of 8 bytes, as the next
 *        seen
 *        deliveries        entries bytes, with the flag only, as the next
 *        expiries          entries words of 8 bytes: us since 1970, all ones: never
 *        sizes             entries words of 4 bytes: bytes of the bodies
 *        dues              entries words of 8 bytes: us since 1970, 0: not delayed
 *
 *   slots              32 bytes each; dense: slot i at 32 * i, packed: at 32 * (its rank among
 *   those present)
 *     0  kind          1   0 none, 1 embedded, 2 stored
 *     1  flags         1   0
 *     2  zeros         2
 *     4  crc32c        4   embedded: of the slot's identity, envelope and body; stored: the
 *     reference's
 *     8  where         8   embedded: offset of the body; stored: file (4), slot (4)
 *    16  back          4   embedded: from the body back to its envelope; stored: offset / 8
 *    20  envelope      4   bytes
 *    24  body          4   bytes
 *    28  check         4   CRC of the slot's identity and the 28 bytes before it
 *
 *   heap               envelopes and bodies; dense: from the next multiple of 4096, packed:
 *   right behind the slots
 *
 * A slot's identity is salt, queue id and sequence, 8 bytes each, so no slot and no body can
 * replace another one.  A file does not determine how much of it is read: the checkpoint has
 * heap_end and the state's area. */
#ifndef QSI_SEGMENT_FORMAT_H
#define QSI_SEGMENT_FORMAT_H

#include "qstore/codec.h"
#include "qstore/status.h"

#include "check.h"
#include "file_head.h"
#include "le.h"
#include "segment.h"

#include <stdbool.h>
#include <stdint.h>

#define QSI_SEGMENT_PAGE 4096u
#define QSI_SEGMENT_HEADER_BYTES_MAX 12288u /* of 65536 entries */
#define QSI_SEGMENT_PRESENT_AT 128u
#define QSI_SEGMENT_STATE_HEAD_BYTES 64u

/* A message that is alone in a record must leave room for the rest of the record (4 GiB at
 * most). */
#define QSI_SEGMENT_MESSAGE_BYTES_MAX (UINT32_MAX - (16u << 20))

/* -- offsets ---------------------------------------------------------------------------------- */

static inline uint64_t qsi_segment_header_bytes(uint32_t entries)
{
    return qsi_round_up(QSI_SEGMENT_PRESENT_AT + entries / 8 + 4, QSI_SEGMENT_PAGE);
}

static inline uint64_t qsi_segment_bitmaps_bytes(uint32_t entries)
{
    return 2 * 8 * (uint64_t)qsi_bitmap_words(entries);
}

/* Bytes of one state area. */
static inline uint64_t qsi_segment_state_bytes(uint32_t entries)
{
    return qsi_round_up(QSI_SEGMENT_STATE_HEAD_BYTES + qsi_segment_bitmaps_bytes(entries) +
                            21 * (uint64_t)entries,
                        QSI_SEGMENT_PAGE);
}

/* Offset of a state area; area: 1 or 2. */
static inline uint64_t qsi_segment_state_at(uint32_t entries, uint32_t area)
{
    return qsi_segment_header_bytes(entries) + (area - 1) * qsi_segment_state_bytes(entries);
}

static inline uint64_t qsi_segment_slots_at(uint32_t entries)
{
    return qsi_segment_header_bytes(entries) + 2 * qsi_segment_state_bytes(entries);
}

static inline uint64_t qsi_segment_heap_at(uint32_t entries, bool packed, uint32_t slot_count)
{
    uint64_t slots_end = qsi_segment_slots_at(entries) + (uint64_t)slot_count * QSI_SLOT_BYTES;

    return packed ? slots_end : qsi_round_up(slots_end, QSI_SEGMENT_PAGE);
}

/* -- names ------------------------------------------------------------------------------------ */

/* Sixteen digits, a hyphen, twelve digits (more if the number needs them), a hyphen, eight digits,
 * ".seg". */
#define QSI_SEGMENT_NAME_BYTES 47u
void qsi_segment_name(char name_out[QSI_SEGMENT_NAME_BYTES], const struct qsi_segment_file *file);
/* Sets queue_id, number and generation, and the rest to zero.  False: it is not the name of a
 * segment file. */
bool qsi_segment_name_parse(struct qsi_segment_file *file_out, const char *name);

/* -- header ----------------------------------------------------------------------------------- */

/* Encodes qsi_segment_header_bytes() bytes.  present: of a packed file, otherwise NULL. */
void qsi_segment_header_encode(uint8_t *bytes_out, const struct qsi_segment_file *file,
                               uint32_t entries, const uint8_t uuid[QSI_UUID_BYTES],
                               const uint64_t *present);
/* Checks that bytes are the header of exactly this file.  QS_ECORRUPT; QS_EVERSION: a whole header
 * of a later version. */
qs_status qsi_segment_header_check(const uint8_t *bytes, const struct qsi_segment_file *file,
                                   uint32_t entries, const uint8_t uuid[QSI_UUID_BYTES],
                                   qs_error *error) QS_MUST_CHECK;

/* Decodes a bitmap.  State areas have whole words of 8 bytes; the header has entries / 8 bytes,
 * which are the same words. */
void qsi_bitmap_decode(uint64_t *bits_out, const uint8_t *bytes, uint32_t words);

/* -- state ------------------------------------------------------------------------------------ */

/* Encodes head, bitmaps and columns; *bytes_out is their size.  area_out has room for
 * qsi_segment_state_bytes().  Returns the checksum. */
uint32_t qsi_segment_state_encode(uint8_t *area_out, uint64_t *bytes_out,
                                  const struct qsi_segment_file *file, uint32_t entries,
                                  const struct qsi_segment_state *state);
/* The used bytes of an area with these columns. */
uint64_t qsi_segment_state_used(uint32_t entries, uint32_t columns);
/* The columns in the head of an area; the head need not be checked. */
uint32_t qsi_segment_state_columns(const uint8_t *head);
/* Checks an area.  area: the bytes that are used according to its head. */
qs_status qsi_segment_state_check(const uint8_t *area, const struct qsi_segment_file *file,
                                  uint32_t entries, qs_error *error) QS_MUST_CHECK;
/* Decodes a checked area: bitmaps, and the columns for which state has room. */
void qsi_segment_state_decode(const uint8_t *area, uint32_t entries,
                              struct qsi_segment_state *state);

/* -- slots ------------------------------------------------------------------------------------ */

enum qsi_slot_kind { QSI_SLOT_NONE = 0, QSI_SLOT_EMBEDDED = 1, QSI_SLOT_STORED = 2 };

struct qsi_slot {
    uint64_t where;
    uint32_t back;
    uint32_t envelope_bytes;
    uint32_t body_bytes;
    uint32_t crc;
    uint8_t kind;
};

/* The checksum of salt and queue id, with which all identities of a file begin. */
uint32_t qsi_slot_seed(const struct qsi_segment_file *file);

static inline uint32_t qsi_slot_identity(uint32_t seed, uint64_t sequence)
{
    uint8_t bytes[8];

    qsi_put_u64(bytes, sequence);
    return qs_crc32c(seed, bytes, sizeof bytes);
}

static inline void qsi_slot_encode(uint8_t bytes_out[QSI_SLOT_BYTES], const struct qsi_slot *slot,
                                   uint32_t identity)
{
    qsi_put_u32(bytes_out, slot->kind);
    qsi_put_u32(bytes_out + 4, slot->crc);
    qsi_put_u64(bytes_out + 8, slot->where);
    qsi_put_u32(bytes_out + 16, slot->back);
    qsi_put_u32(bytes_out + 20, slot->envelope_bytes);
    qsi_put_u32(bytes_out + 24, slot->body_bytes);
    qsi_put_u32(bytes_out + 28, qs_crc32c(identity, bytes_out, 28));
}

/* Decodes a slot without checking it.  If the first four bytes are no valid kind, the kind is
 * QSI_SLOT_NONE. */
static inline struct qsi_slot qsi_slot_fields(const uint8_t bytes[QSI_SLOT_BYTES])
{
    uint32_t head = qsi_get_u32(bytes);

    return (struct qsi_slot){
        .where = qsi_get_u64(bytes + 8),
        .back = qsi_get_u32(bytes + 16),
        .envelope_bytes = qsi_get_u32(bytes + 20),
        .body_bytes = qsi_get_u32(bytes + 24),
        .crc = qsi_get_u32(bytes + 4),
        .kind = head <= QSI_SLOT_STORED ? (uint8_t)head : QSI_SLOT_NONE,
    };
}

/* Decodes a slot.  False: the bytes are damaged, or of another slot.  The offset of the body is not
 * checked. */
static inline bool qsi_slot_decode(struct qsi_slot *slot_out, const uint8_t bytes[QSI_SLOT_BYTES],
                                   uint32_t identity)
{
    uint32_t head = qsi_get_u32(bytes);

    *slot_out = qsi_slot_fields(bytes);
    return (head == QSI_SLOT_EMBEDDED || head == QSI_SLOT_STORED) &&
           qs_crc32c(identity, bytes, 28) == qsi_get_u32(bytes + 28);
}

#endif
