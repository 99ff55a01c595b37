/* Journal file header, little-endian, in a page of its own:
 *
 *  0 magic "QSJOURN1" | 8 version u32 | 12 number u32 | 16 uuid 16 bytes | 32 salt u64 | 40
 *  next_salt u64 48 base_lsn u64 | 56 pages u32 | 60 index u32 | 64 session u64 | 72 zero u32 76
 *  crc32c u32 of the 76 bytes before; the rest of the page is zeros
 *
 * Marks, each at the begin of a page of its own:
 *
 *  0 magic "QSJMARK1" | 8 salt u64 | 16 durable_upto u64 | 24 zero u32 | 28 crc32c u32 of the 28
 *  bytes before */
#include "journal_file.h"

#include "qstore/codec.h"

#include "alloc.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "le.h"
#include "name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAGIC "QSJOURN1"
#define FILE_VERSION 3
#define CRC_AT 76
#define MARK_MAGIC "QSJMARK1"
#define MARK_CRC_AT 28

void qsi_journal_name(char name_out[QSI_JOURNAL_NAME_BYTES], uint32_t number)
{
    snprintf(name_out, QSI_JOURNAL_NAME_BYTES, "%010u.jnl", number);
}

void qsi_journal_path(char path_out[QSI_JOURNAL_PATH_BYTES], uint32_t number)
{
    snprintf(path_out, QSI_JOURNAL_PATH_BYTES, "journal/%010u.jnl", number);
}

bool qsi_journal_number(const char *name, uint32_t *number_out)
{
    uint64_t number;

    if (!qsi_name_number(name, ".jnl", &number)) {
        return false;
    }
    *number_out = (uint32_t)number;
    return number > 0 && number < UINT32_MAX;
}

struct listing {
    struct qsi_journal_numbers *numbers;
    bool out_of_memory;
};

static bool visit_name(void *context, const char *name)
{
    struct listing *listing = context;
    struct qsi_journal_numbers *numbers = listing->numbers;
    uint32_t number;

    if (!qsi_journal_number(name, &number)) {
        return true;
    }
    if (numbers->count == numbers->capacity) {
        uint32_t *grown = qsi_grow(numbers->items, &numbers->capacity, 64, sizeof *grown);
        if (grown == NULL) {
            listing->out_of_memory = true;
            return false;
        }
        numbers->items = grown;
    }
    numbers->items[numbers->count++] = number;
    return true;
}

static int compare_numbers(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

qs_status qsi_journal_list(struct qsi_journal_numbers *numbers_out, qs_env *env, qs_dir *dir,
                           qs_error *error)
{
    struct listing listing = {.numbers = numbers_out};
    qs_status status;

    memset(numbers_out, 0, sizeof *numbers_out);
    status = qsi_env_dir_list(env, dir, visit_name, &listing, error);
    if (status == QS_OK && listing.out_of_memory) {
        status = qsi_fail(error, QS_ENOMEM, "list of journal files");
    }
    if (status != QS_OK) {
        qsi_journal_numbers_fini(numbers_out);
        return status;
    }
    if (numbers_out->count > 0) {
        qsort(numbers_out->items, numbers_out->count, sizeof *numbers_out->items, compare_numbers);
    }
    return QS_OK;
}

void qsi_journal_numbers_fini(struct qsi_journal_numbers *numbers)
{
    qsi_free(numbers->items);
    memset(numbers, 0, sizeof *numbers);
}

void qsi_journal_header_encode(uint8_t out[QSI_JOURNAL_FIELD_BYTES],
                               const struct qsi_journal_header *header)
{
    memset(out, 0, QSI_JOURNAL_FIELD_BYTES);
    memcpy(out, FILE_MAGIC, 8);
    qsi_put_u32(out + 8, FILE_VERSION);
    qsi_put_u32(out + 12, header->number);
    memcpy(out + 16, header->uuid, QSI_UUID_BYTES);
    qsi_put_u64(out + 32, header->salt);
    qsi_put_u64(out + 40, header->next_salt);
    qsi_put_u64(out + 48, header->base_lsn);
    qsi_put_u32(out + 56, header->pages);
    qsi_put_u32(out + 60, header->index);
    qsi_put_u64(out + 64, header->session);
    qsi_put_u32(out + CRC_AT, qs_crc32c(0, out, CRC_AT));
}

uint64_t qsi_journal_header_salt(const uint8_t in[QSI_JOURNAL_FIELD_BYTES])
{
    return qsi_get_u64(in + 32);
}

bool qsi_journal_header_decode(struct qsi_journal_header *header_out,
                               const uint8_t in[QSI_JOURNAL_FIELD_BYTES],
                               const uint8_t uuid[QSI_UUID_BYTES], uint32_t number, uint64_t salt)
{
    memset(header_out, 0, sizeof *header_out);
    memcpy(header_out->uuid, in + 16, QSI_UUID_BYTES);
    header_out->number = qsi_get_u32(in + 12);
    header_out->salt = qsi_get_u64(in + 32);
    header_out->next_salt = qsi_get_u64(in + 40);
    header_out->base_lsn = qsi_get_u64(in + 48);
    header_out->pages = qsi_get_u32(in + 56);
    header_out->index = qsi_get_u32(in + 60);
    header_out->session = qsi_get_u64(in + 64);
    return memcmp(in, FILE_MAGIC, 8) == 0 && qsi_get_u32(in + 8) == FILE_VERSION &&
           qs_crc32c(0, in, CRC_AT) == qsi_get_u32(in + CRC_AT) &&
           memcmp(header_out->uuid, uuid, QSI_UUID_BYTES) == 0 && header_out->number == number &&
           header_out->salt == salt;
}

void qsi_journal_mark_encode(uint8_t out[QSI_JOURNAL_MARK_BYTES], uint64_t salt,
                             uint64_t durable_upto)
{
    memset(out, 0, QSI_JOURNAL_MARK_BYTES);
    memcpy(out, MARK_MAGIC, 8);
    qsi_put_u64(out + 8, salt);
    qsi_put_u64(out + 16, durable_upto);
    qsi_put_u32(out + MARK_CRC_AT, qs_crc32c(0, out, MARK_CRC_AT));
}

uint64_t qsi_journal_mark_decode(const uint8_t in[QSI_JOURNAL_MARK_BYTES], uint64_t salt)
{
    return memcmp(in, MARK_MAGIC, 8) == 0 && qsi_get_u64(in + 8) == salt &&
                   qs_crc32c(0, in, MARK_CRC_AT) == qsi_get_u32(in + MARK_CRC_AT)
               ? qsi_get_u64(in + 16)
               : 0;
}
