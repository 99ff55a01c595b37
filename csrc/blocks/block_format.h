/* The bytes of a block file (docs/FORMAT.md, "Block file").  Pure: bytes in, bytes out.  All
 * integers are little-endian.
 *
 *   header             4096 bytes
 *     0  magic         8   "QSBLOCK\n"
 *     8  version       4   1
 *    12  features      4   0: a reader refuses bits it does not know
 *    16  uuid         16   of the store
 *    32  owner         8   the container of its rows; 0: each block has its own
 *    40  number        8   with owner, its name; of a stream the offset of its first row
 *    48  salt          8   random, of this file
 *    56  zeros
 *  4092  crc32c        4   of all before it
 *
 *   block              begins at a multiple of 64
 *     0  magic         4   "QSBK"
 *     4  codec         1   0: the content is as it is
 *     5  time_kind     1   0 one time, 1 runs, 2 one for each row
 *     6  zeros         2
 *     8  salt          8   the file's
 *    16  owner         8
 *    24  first_offset  8
 *    32  first_time    8   us since 1970
 *    40  last_time     8
 *    48  at            8   its own offset in the file
 *    56  previous      8   offset of the previous block; 0: it is the first
 *    64  content       4   bytes behind this header, as they are in the file
 *    68  raw           4   the same with codec 0
 *    72  rows          4
 *    76  record        4   bytes of the record
 *    80  times         4   number of times after the record
 *    84  dictionary    4   bytes of the record that have its destination and its routes
 *    88  crc32c        4   of the dictionary
 *    92  crc32c        4   of the content
 *    96  zeros        28
 *   124  crc32c        4   of the 124 bytes before it
 *   128  record            messages, with one destination: owner, first_offset, rows
 *        times             kind 1: row u32, us since first_time u32; kind 2: the latter alone
 *
 *   footer             of a sealed file, begins at a multiple of 64
 *        entries          32 bytes for each block: first offset 8, first time 8, place 8, bytes of
 *                         header and content 4, rows 4
 *     0  trailer      64   salt 8, owner 8, place of the entries 8, rows 8, first offset 8, last
 *                          time 8, blocks 4, zeros 4, crc32c 4 of entries and the 56 bytes before
 *                          it, magic 4 "QSBF"
 *
 * A block's header identifies its file by the salt and its place by at, so no block can replace
 * another one.  From the block that the checkpoint names, previous leads back through all blocks,
 * whatever else is in the file. */
#ifndef QSI_BLOCK_FORMAT_H
#define QSI_BLOCK_FORMAT_H

#include "qstore/env.h"
#include "qstore/status.h"

#include "check.h"
#include "file_head.h"

#include <stdbool.h>
#include <stdint.h>

#define QSI_BLOCK_FILE_HEADER_BYTES 4096u /* offset of the first block */
#define QSI_BLOCK_ROWS_MAX 65536u
/* A block of small rows is filled up to this size. */
#define QSI_BLOCK_TARGET_BYTES (1u << 20)
/* Limit of a block, which then has one large row. */
#define QSI_BLOCK_CONTENT_MAX UINT32_C(0xfff00000)
#define QSI_BLOCK_HEAD_BYTES 128u
#define QSI_BLOCK_UNIT 64u   /* blocks begin at multiples of this */
#define QSI_BLOCK_PAGE 4096u /* after an end that a checkpoint names, at multiples of this */
#define QSI_BLOCK_ENTRY_BYTES 32u
#define QSI_BLOCK_TRAILER_BYTES 64u

enum qsi_block_time_kind {
    QSI_BLOCK_ONE_TIME = 0,
    QSI_BLOCK_TIME_RUNS = 1,
    QSI_BLOCK_ROW_TIMES = 2,
};
#define QSI_BLOCK_TIME_RUN_BYTES 8u
#define QSI_BLOCK_ROW_TIME_BYTES 4u

/* The description of a block file, in memory and in checkpoints. */
struct qsi_block_file {
    /* The container of its rows; 0: the rows have several, and each block names its container. */
    uint64_t owner;
    uint64_t number; /* with owner, its name; of a stream the offset of its first row */
    uint64_t salt;   /* random; part of each checksum in the file */
    /* End of the blocks, or of a sealed file's footer; 0: the file does not exist yet. */
    uint64_t end;
    uint64_t last_at; /* offset of the last block, 0: none; of a sealed file that of the footer */
    uint32_t block_count;
    bool sealed;  /* it has a footer, and gets no more blocks */
    bool adopted; /* it was a staged file: owner, offsets and times in it are not the real ones */
    uint64_t time_us; /* adopted: publication time of its rows */
};

/* The data of a block in the index: 32 bytes, also in the footer. */
struct qsi_block_entry {
    uint64_t first_offset;
    uint64_t first_time_us;
    uint64_t at;    /* offset in the file */
    uint32_t bytes; /* header and content, without padding */
    uint32_t rows;  /* consecutive offsets */
};

struct qsi_block_head {
    uint64_t salt;
    uint64_t owner;
    uint64_t first_offset;
    uint64_t first_time_us, last_time_us;
    uint64_t at, previous;
    uint32_t content_bytes;
    uint32_t rows;
    uint32_t record_bytes;
    uint32_t time_count;
    uint32_t dictionary_bytes;
    uint32_t dictionary_crc, content_crc;
    uint8_t time_kind;
};

/* ---- names ---- */

#define QSI_BLOCK_NAME_BYTES (QS_NAME_BYTES_MAX + 1u)
void qsi_block_name(char name_out[QSI_BLOCK_NAME_BYTES], const struct qsi_block_file *file,
                    const char *suffix);
/* Sets owner and number, and the rest to zero.  False: it is not such a name. */
bool qsi_block_name_parse(struct qsi_block_file *file_out, const char *name, const char *suffix);

/* ---- staged files ----
 *
 * The writer of a staged file knows no store.  In the file, owner is QSI_BLOCK_STAGED_OWNER, number
 * is 0, the store's UUID is zeros, and offsets count from 0.  A stream that adopted the file gives
 * its rows other offsets, and one time.  Functions that encode and check get the file as the stream
 * describes it; decoded data is as in the file until one of these functions converts it. */

#define QSI_BLOCK_STAGED_OWNER UINT64_MAX
/* Convert to the stream's values; for other files they change nothing. */
void qsi_block_adopt_head(struct qsi_block_head *head, const struct qsi_block_file *file);
void qsi_block_adopt_entry(struct qsi_block_entry *entry, const struct qsi_block_file *file);

/* ---- the file's header: QSI_BLOCK_FILE_HEADER_BYTES ---- */

void qsi_block_file_header_encode(uint8_t *bytes_out, const struct qsi_block_file *file,
                                  const uint8_t uuid[QSI_UUID_BYTES]);
/* Checks that bytes are the header of exactly this file.  QS_ECORRUPT; QS_EVERSION: a whole header
 * of a later version.  path: of the file in errors. */
qs_status qsi_block_file_header_check(const uint8_t *bytes, const struct qsi_block_file *file,
                                      const uint8_t uuid[QSI_UUID_BYTES], const char *path,
                                      qs_error *error) QS_MUST_CHECK;

/* ---- a block's header ---- */

static inline uint64_t qsi_block_times_bytes(uint8_t kind, uint32_t count)
{
    return (uint64_t)count * (kind == QSI_BLOCK_TIME_RUNS   ? QSI_BLOCK_TIME_RUN_BYTES
                              : kind == QSI_BLOCK_ROW_TIMES ? QSI_BLOCK_ROW_TIME_BYTES
                                                            : 0);
}
void qsi_block_head_encode(uint8_t bytes_out[QSI_BLOCK_HEAD_BYTES],
                           const struct qsi_block_head *head);
/* Decodes the header of a block of file at this place, and checks that its sizes and counts are
 * consistent.  QS_ECORRUPT; QS_EVERSION: an unknown codec. */
qs_status qsi_block_head_decode(struct qsi_block_head *head_out,
                                const uint8_t bytes[QSI_BLOCK_HEAD_BYTES],
                                const struct qsi_block_file *file, uint64_t at, const char *path,
                                qs_error *error) QS_MUST_CHECK;
/* Checks the content, whose checksum is right, against the head: the record, its one destination,
 * and ascending times.  QS_ECORRUPT. */
qs_status qsi_block_content_check(const struct qsi_block_head *head, const uint8_t *content,
                                  const char *path, qs_error *error) QS_MUST_CHECK;
/* The same for the first dictionary_bytes of the content. */
qs_status qsi_block_dictionary_check(const struct qsi_block_head *head, const uint8_t *content,
                                     const char *path, qs_error *error) QS_MUST_CHECK;

/* ---- footer ---- */

static inline uint64_t qsi_block_footer_bytes(uint32_t block_count)
{
    return (uint64_t)block_count * QSI_BLOCK_ENTRY_BYTES + QSI_BLOCK_TRAILER_BYTES;
}
/* Encodes qsi_block_footer_bytes() bytes; at: the footer's offset. */
void qsi_block_footer_encode(uint8_t *bytes_out, const struct qsi_block_file *file,
                             const struct qsi_block_entry *entries, uint64_t last_time_us,
                             uint64_t at);
/* Checks that bytes are the footer of this file, at file->last_at, with ascending entries that do
 * not overlap.  QS_ECORRUPT. */
qs_status qsi_block_footer_check(const uint8_t *bytes, const struct qsi_block_file *file,
                                 const char *path, qs_error *error) QS_MUST_CHECK;
void qsi_block_entry_decode(struct qsi_block_entry *entry_out, const uint8_t *bytes);

#endif
