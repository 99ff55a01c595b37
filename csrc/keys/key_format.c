#include "key_format.h"

#include "qstore/codec.h"

#include "check.h"
#include "error.h"
#include "file_head.h"
#include "le.h"
#include "name.h"
#include "record.h"

#include <stdio.h>
#include <string.h>

#define KEY_FILE_BYTES 40u /* of the record */
#define PAGE_HEAD_BYTES 32u
#define ENTRY_HEAD_BYTES 24u
#define FILTER_PROBES 4u
/* No filter is so large, and sums with this do not overflow. */
#define FILTER_BYTES_MAX (UINT64_C(1) << 40)
#define PAGES_MAX (UINT64_C(1) << 40)

static const struct qsi_file_kind file_kind = {"QSKEYSF\n", "a key file", 1};

enum { ENTRY_FORGOTTEN = 1 };

/* ---- names ---- */

void qsi_key_file_name(char name_out[QSI_KEY_NAME_BYTES], uint64_t number)
{
    snprintf(name_out, QSI_KEY_NAME_BYTES, "%010u.key", (uint32_t)number);
}

void qsi_key_file_path(char path_out[QSI_KEY_PATH_BYTES], uint64_t number)
{
    snprintf(path_out, QSI_KEY_PATH_BYTES, "checkpoint/%010u.key", (uint32_t)number);
}

bool qsi_key_file_number(const char *name, uint64_t *number_out)
{
    return qsi_name_number(name, ".key", number_out);
}

/* ---- the hash: SipHash-2-4 ---- */

static uint64_t rotate(uint64_t word, int bits)
{
    return word << bits | word >> (64 - bits);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[0] = rotate(v[0], 32);
    v[2] += v[3];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[2] = rotate(v[2], 32);
}

static void sip_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    sip_round(v);
    v[0] ^= word;
}

uint64_t qsi_key_hash(const uint8_t uuid[QSI_UUID_BYTES], struct qsi_slice key)
{
    uint64_t low = qsi_get_u64(uuid), high = qsi_get_u64(uuid + 8);
    uint64_t v[4] = {low ^ UINT64_C(0x736f6d6570736575), high ^ UINT64_C(0x646f72616e646f6d),
                     low ^ UINT64_C(0x6c7967656e657261), high ^ UINT64_C(0x7465646279746573)};
    uint8_t last[8] = {0};
    uint32_t whole = key.bytes & ~7u;

    for (uint32_t at = 0; at < whole; at += 8) {
        sip_word(v, qsi_get_u64(key.data + at));
    }
    if (key.bytes > whole) {
        memcpy(last, key.data + whole, key.bytes - whole);
    }
    last[7] = (uint8_t)key.bytes;
    sip_word(v, qsi_get_u64(last));
    v[2] ^= 0xff;
    for (int i = 0; i < 4; i++) {
        sip_round(v);
    }
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

int qsi_key_compare(const struct qsi_key *left, const struct qsi_key *right)
{
    if (left->hash != right->hash) {
        return left->hash < right->hash ? -1 : 1;
    }
    if (left->bytes.bytes != right->bytes.bytes) {
        return left->bytes.bytes < right->bytes.bytes ? -1 : 1;
    }
    return memcmp(left->bytes.data, right->bytes.data, left->bytes.bytes);
}

/* ---- the header ---- */

uint64_t qsi_key_pages_at(uint64_t filter_bytes)
{
    QS_DCHECK(filter_bytes > 0 && filter_bytes <= FILTER_BYTES_MAX);
    return QSI_KEY_PAGE_BYTES +
           (filter_bytes + QSI_KEY_PAGE_BYTES - 1) / QSI_KEY_PAGE_BYTES * QSI_KEY_PAGE_BYTES;
}

uint32_t qsi_key_header_encode(uint8_t out[QSI_KEY_PAGE_BYTES], const struct qsi_key_header *header,
                               const uint8_t uuid[QSI_UUID_BYTES])
{
    uint32_t crc;

    QS_ASSERT(header->page_count <= PAGES_MAX && header->filter_bytes <= FILTER_BYTES_MAX);
    QS_ASSERT(header->key_count >= header->page_count && header->page_count > 0);
    memset(out, 0, QSI_KEY_PAGE_BYTES);
    qsi_file_head_encode(out, &file_kind);
    memcpy(out + 16, uuid, QSI_UUID_BYTES);
    qsi_put_u64(out + 32, header->number);
    qsi_put_u64(out + 40, header->salt);
    qsi_put_u64(out + 48, header->key_count);
    qsi_put_u64(out + 56, header->page_count);
    qsi_put_u64(out + 64, header->filter_bytes);
    qsi_put_u32(out + 72, header->filter_crc);
    crc = qs_crc32c(0, out, QSI_KEY_PAGE_BYTES - 4);
    qsi_put_u32(out + QSI_KEY_PAGE_BYTES - 4, crc);
    return crc;
}

qs_status qsi_key_header_decode(struct qsi_key_header *header_out, const uint8_t *in,
                                uint64_t number, uint32_t header_crc,
                                const uint8_t uuid[QSI_UUID_BYTES], qs_error *error)
{
    char path[QSI_KEY_PATH_BYTES];

    qsi_key_file_path(path, number);
    if (qs_crc32c(0, in, QSI_KEY_PAGE_BYTES - 4) != header_crc ||
        qsi_get_u32(in + QSI_KEY_PAGE_BYTES - 4) != header_crc ||
        memcmp(in, file_kind.magic, QSI_FILE_MAGIC_BYTES) != 0) {
        return qsi_fail_corrupt(error, path, 0, "not the key file that the checkpoint names");
    }
    QS_TRY(qsi_file_head_check(&file_kind, in, path, error));
    *header_out = (struct qsi_key_header){
        .number = qsi_get_u64(in + 32),
        .salt = qsi_get_u64(in + 40),
        .key_count = qsi_get_u64(in + 48),
        .page_count = qsi_get_u64(in + 56),
        .filter_bytes = qsi_get_u64(in + 64),
        .filter_crc = qsi_get_u32(in + 72),
    };
    if (memcmp(in + 16, uuid, QSI_UUID_BYTES) != 0 || header_out->number != number) {
        return qsi_fail_corrupt(error, path, 16, "another key file, or of another store");
    }
    if (header_out->filter_bytes == 0 || header_out->filter_bytes > FILTER_BYTES_MAX ||
        (header_out->filter_bytes & (header_out->filter_bytes - 1)) != 0 ||
        header_out->page_count == 0 || header_out->page_count > PAGES_MAX ||
        header_out->key_count < header_out->page_count) {
        return qsi_fail_corrupt(error, path, 48, "impossible counts");
    }
    return QS_OK;
}

/* ---- pages ---- */

void qsi_key_page_begin(uint8_t page[QSI_KEY_PAGE_BYTES])
{
    memset(page, 0, QSI_KEY_PAGE_BYTES);
    qsi_put_u32(page + 24, PAGE_HEAD_BYTES);
}

static uint32_t entry_bytes(uint32_t key_bytes)
{
    QS_DCHECK(key_bytes <= QSI_KEY_BYTES_MAX);
    return ENTRY_HEAD_BYTES + ((key_bytes + 7) & ~7u);
}

bool qsi_key_page_add(uint8_t page[QSI_KEY_PAGE_BYTES], const struct qsi_key *key)
{
    uint32_t used = qsi_get_u32(page + 24);
    uint8_t *at = page + used;

    QS_DCHECK(used >= PAGE_HEAD_BYTES && used <= QSI_KEY_PAGE_BYTES);
    QS_ASSERT(key->bytes.bytes <= QSI_KEY_BYTES_MAX);
    if (used + entry_bytes(key->bytes.bytes) > QSI_KEY_PAGE_BYTES) {
        return false;
    }
    qsi_put_u64(at, key->hash);
    qsi_put_u64(at + 8, key->time_us);
    qsi_put_u16(at + 16, (uint16_t)key->bytes.bytes);
    qsi_put_u16(at + 18, key->forgotten ? ENTRY_FORGOTTEN : 0);
    memcpy(at + ENTRY_HEAD_BYTES, key->bytes.data, key->bytes.bytes);
    qsi_put_u32(page + 24, used + entry_bytes(key->bytes.bytes));
    qsi_put_u32(page + 4, qsi_get_u32(page + 4) + 1);
    return true;
}

void qsi_key_page_end(uint8_t page[QSI_KEY_PAGE_BYTES], uint64_t salt, uint64_t number)
{
    QS_DCHECK(qsi_get_u32(page + 4) > 0 && qsi_get_u32(page + 24) > PAGE_HEAD_BYTES);
    qsi_put_u64(page + 8, salt);
    qsi_put_u64(page + 16, number);
    qsi_put_u32(page, qs_crc32c(0, page + 4, QSI_KEY_PAGE_BYTES - 4));
    QS_DCHECK(qsi_key_page_check(page, salt, number)); /* checks the order, too */
}

bool qsi_key_page_next(const uint8_t page[QSI_KEY_PAGE_BYTES], uint32_t *at_io,
                       struct qsi_key *key_out)
{
    uint32_t at = *at_io == 0 ? PAGE_HEAD_BYTES : *at_io;
    uint32_t used = qsi_get_u32(page + 24);
    uint32_t key_bytes;

    if (at >= used || used - at < ENTRY_HEAD_BYTES) {
        return false;
    }
    key_bytes = qsi_get_u16(page + at + 16);
    if (key_bytes > QSI_KEY_BYTES_MAX || used - at < entry_bytes(key_bytes)) {
        return false;
    }
    *key_out = (struct qsi_key){
        .hash = qsi_get_u64(page + at),
        .time_us = qsi_get_u64(page + at + 8),
        .bytes = qsi_slice_make(page + at + ENTRY_HEAD_BYTES, key_bytes),
        .forgotten = (qsi_get_u16(page + at + 18) & ENTRY_FORGOTTEN) != 0,
    };
    *at_io = at + entry_bytes(key_bytes);
    return true;
}

bool qsi_key_page_check(const uint8_t page[QSI_KEY_PAGE_BYTES], uint64_t salt, uint64_t number)
{
    struct qsi_key key, last = {0};
    uint32_t count = 0, at = 0;
    uint32_t used = qsi_get_u32(page + 24);

    if (qsi_get_u32(page) != qs_crc32c(0, page + 4, QSI_KEY_PAGE_BYTES - 4) ||
        qsi_get_u64(page + 8) != salt || qsi_get_u64(page + 16) != number ||
        used > QSI_KEY_PAGE_BYTES) {
        return false;
    }
    while (qsi_key_page_next(page, &at, &key)) {
        if (count > 0 && qsi_key_compare(&last, &key) >= 0) {
            return false;
        }
        last = key;
        count += 1;
    }
    return count > 0 && count == qsi_get_u32(page + 4) && at == used;
}

/* ---- the filter ---- */

/* The step is odd, so the probes of one hash are different bits. */
static uint64_t probe(uint64_t hash, uint32_t index, uint64_t filter_bytes)
{
    QS_DCHECK((filter_bytes & (filter_bytes - 1)) == 0);
    return (hash + index * (rotate(hash, 32) | 1)) & (filter_bytes * 8 - 1);
}

void qsi_key_filter_add(uint8_t *filter, uint64_t filter_bytes, uint64_t hash)
{
    for (uint32_t i = 0; i < FILTER_PROBES; i++) {
        uint64_t bit = probe(hash, i, filter_bytes);
        filter[bit / 8] |= (uint8_t)(1u << bit % 8);
        QS_DCHECK(bit / 8 < filter_bytes);
    }
}

bool qsi_key_filter_may_have(const uint8_t *filter, uint64_t filter_bytes, uint64_t hash)
{
    for (uint32_t i = 0; i < FILTER_PROBES; i++) {
        uint64_t bit = probe(hash, i, filter_bytes);
        if ((filter[bit / 8] >> bit % 8 & 1) == 0) {
            return false;
        }
    }
    return true;
}

/* ---- in checkpoints ---- */

qs_status qsi_key_file_encode(struct qsi_buf *out, const struct qsi_key_file_entry *entry)
{
    uint8_t *at;

    QS_ASSERT(entry->key_count > 0);
    QS_ASSERT(entry->number > 0 && entry->number < UINT32_MAX);
    QS_TRY(qsi_buf_reserve(out, KEY_FILE_BYTES, &at));
    out->bytes += KEY_FILE_BYTES;
    qsi_record_put_head(at, KEY_FILE_BYTES, QSI_RECORD_KEY_FILE, 0);
    qsi_put_u64(at + 8, entry->number);
    qsi_put_u64(at + 16, entry->key_count);
    qsi_put_u64(at + 24, entry->bytes);
    qsi_put_u32(at + 32, entry->header_crc);
    qsi_put_u32(at + 36, 0);
    return QS_OK;
}

qs_status qsi_key_file_decode(struct qsi_key_file_entry *entry_out, const uint8_t *record,
                              qs_error *error)
{
    if (qsi_record_length(record) != KEY_FILE_BYTES) {
        return qsi_fail(error, QS_ECORRUPT, "key file in %u bytes", qsi_record_length(record));
    }
    *entry_out = (struct qsi_key_file_entry){
        .number = qsi_get_u64(record + 8),
        .key_count = qsi_get_u64(record + 16),
        .bytes = qsi_get_u64(record + 24),
        .header_crc = qsi_get_u32(record + 32),
    };
    return entry_out->number > 0 && entry_out->number < UINT32_MAX
               ? QS_OK
               : qsi_fail(error, QS_ECORRUPT, "key file %llu",
                          (unsigned long long)entry_out->number);
}
