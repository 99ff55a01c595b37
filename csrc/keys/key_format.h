/* The bytes of a key file (docs/FORMAT.md, "Key file"): keys of committed transactions, sorted, in
 * pages that each can be checked.
 *
 *   header             4096 bytes
 *     0  magic         8   "QSKEYSF\n"
 *     8  version       4   1
 *    12  features      4   0: a reader refuses bits it does not know
 *    16  uuid         16   of the store
 *    32  number        8   the one in the file's name
 *    40  salt          8   random, of this file
 *    48  key count     8
 *    56  page count    8
 *    64  filter bytes  8   a power of two
 *    72  filter CRC    4
 *        zeros
 *  4092  crc32c        4   of all before it
 *
 *   filter                 padded with zeros to a multiple of 4096
 *
 *   pages              4096 bytes each
 *     0  crc32c        4   of what follows
 *     4  entry count   4
 *     8  salt          8   the file's
 *    16  page number   8   from 0
 *    24  used bytes    4   with this head
 *    28  zeros         4
 *    32  entries           ascending by hash, then by length and bytes of the key
 *     0  hash          8   SipHash-2-4 of the key, with the store's UUID as the key of the hash
 *     8  time          8   of the commit, us since 1970
 *    16  key bytes     2
 *    18  flags         2   bit 0: forgotten since
 *    20  zeros         4
 *    24  key               padded with zeros to a multiple of 8
 *
 * The checkpoint has the valid files and the CRC of each header; if two files have a key, the later
 * one is valid. */
#ifndef QSI_KEY_FORMAT_H
#define QSI_KEY_FORMAT_H

#include "qstore/status.h"

#include "buf.h"
#include "file_head.h"
#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

#define QSI_KEY_BYTES_MAX 1024u /* of a key */
#define QSI_KEY_PAGE_BYTES 4096u
#define QSI_KEY_NAME_BYTES 16 /* "0000000001.key" and a NUL */
#define QSI_KEY_PATH_BYTES 26 /* "checkpoint/0000000001.key", the path in errors */

struct qsi_key {
    uint64_t hash;
    uint64_t time_us;
    struct qsi_slice bytes;
    bool forgotten;
};

/* The content of a finished file's header. */
struct qsi_key_header {
    uint64_t number, salt, key_count, page_count, filter_bytes;
    uint32_t filter_crc;
};

void qsi_key_file_name(char name_out[QSI_KEY_NAME_BYTES], uint64_t number);
void qsi_key_file_path(char path_out[QSI_KEY_PATH_BYTES], uint64_t number);
/* Whether it is the name of a key file. */
bool qsi_key_file_number(const char *name, uint64_t *number_out);

uint64_t qsi_key_hash(const uint8_t uuid[QSI_UUID_BYTES], struct qsi_slice key);
/* Compares in the order of a file: less than 0, 0, more than 0. */
int qsi_key_compare(const struct qsi_key *left, const struct qsi_key *right);

/* Returns the header's CRC. */
uint32_t qsi_key_header_encode(uint8_t out[QSI_KEY_PAGE_BYTES], const struct qsi_key_header *header,
                               const uint8_t uuid[QSI_UUID_BYTES]);
/* Decodes and checks a header; header_crc and number are those in the checkpoint.  QS_ECORRUPT,
 * QS_EVERSION. */
qs_status qsi_key_header_decode(struct qsi_key_header *header_out, const uint8_t *in,
                                uint64_t number, uint32_t header_crc,
                                const uint8_t uuid[QSI_UUID_BYTES], qs_error *error) QS_MUST_CHECK;
uint64_t qsi_key_pages_at(uint64_t filter_bytes);
static inline uint64_t qsi_key_file_bytes(const struct qsi_key_header *header)
{
    return qsi_key_pages_at(header->filter_bytes) + header->page_count * QSI_KEY_PAGE_BYTES;
}

/* The record that a checkpoint has of a file. */
struct qsi_key_file_entry {
    uint64_t number;
    uint64_t key_count;
    uint64_t bytes; /* of the file */
    uint32_t header_crc;
};
qs_status qsi_key_file_encode(struct qsi_buf *out,
                              const struct qsi_key_file_entry *entry) QS_MUST_CHECK;
qs_status qsi_key_file_decode(struct qsi_key_file_entry *entry_out, const uint8_t *record,
                              qs_error *error) QS_MUST_CHECK;

/* ---- pages ---- */

/* Begins an empty page for keys. */
void qsi_key_page_begin(uint8_t page[QSI_KEY_PAGE_BYTES]);
/* False: the page is full. */
bool qsi_key_page_add(uint8_t page[QSI_KEY_PAGE_BYTES], const struct qsi_key *key);
void qsi_key_page_end(uint8_t page[QSI_KEY_PAGE_BYTES], uint64_t salt, uint64_t number);

/* Whether a page is whole, belongs to this file and place, and has at least one entry, in order. */
bool qsi_key_page_check(const uint8_t page[QSI_KEY_PAGE_BYTES], uint64_t salt, uint64_t number);
/* Iterates over the entries of a checked page: *at_io begins at 0; false after the last entry. */
bool qsi_key_page_next(const uint8_t page[QSI_KEY_PAGE_BYTES], uint32_t *at_io,
                       struct qsi_key *key_out);

/* ---- the filter of hashes ---- */

void qsi_key_filter_add(uint8_t *filter, uint64_t filter_bytes, uint64_t hash);
bool qsi_key_filter_may_have(const uint8_t *filter, uint64_t filter_bytes, uint64_t hash);

#endif
