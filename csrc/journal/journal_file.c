/* Journal file header, little-endian, in a page of its own:
 *
 *  0 magic "QSJOURN1" | 8 version u32 | 12 number u32 | 16 uuid 16 bytes | 32 salt u64 | 40 next_salt u64
 * 48 base_lsn u64 | 56 pages u32 | 60 crc32c u32 of the 60 bytes before; the rest of the page is zeros */
#include "journal_file.h"

#include "qstore/codec.h"

#include "le.h"

#include <stdio.h>
#include <string.h>

#define FILE_MAGIC "QSJOURN1"
#define FILE_VERSION 1
#define CRC_AT 60
#define NUMBER_DIGITS 10

void qsi_journal_name(char name_out[QSI_JOURNAL_NAME_BYTES], uint32_t number)
{
    snprintf(name_out, QSI_JOURNAL_NAME_BYTES, "%010u.jnl", number);
}

bool qsi_journal_number(const char *name, uint32_t *number_out)
{
    uint64_t number = 0;

    if (strlen(name) != NUMBER_DIGITS + 4 || strcmp(name + NUMBER_DIGITS, ".jnl") != 0) {
        return false;
    }
    for (int i = 0; i < NUMBER_DIGITS; i++) {
        if (name[i] < '0' || name[i] > '9') {
            return false;
        }
        number = number * 10 + (uint64_t)(name[i] - '0');
    }
    *number_out = (uint32_t)number;
    return number > 0 && number < UINT32_MAX;
}

void qsi_journal_header_encode(uint8_t out[QSI_JOURNAL_HEADER_BYTES],
                               const struct qsi_journal_header *header)
{
    memset(out, 0, QSI_JOURNAL_HEADER_BYTES);
    memcpy(out, FILE_MAGIC, 8);
    qsi_put_u32(out + 8, FILE_VERSION);
    qsi_put_u32(out + 12, header->number);
    memcpy(out + 16, header->uuid, QSI_UUID_BYTES);
    qsi_put_u64(out + 32, header->salt);
    qsi_put_u64(out + 40, header->next_salt);
    qsi_put_u64(out + 48, header->base_lsn);
    qsi_put_u32(out + 56, header->pages);
    qsi_put_u32(out + CRC_AT, qs_crc32c(0, out, CRC_AT));
}

uint64_t qsi_journal_header_salt(const uint8_t in[QSI_JOURNAL_HEADER_BYTES])
{
    return qsi_get_u64(in + 32);
}

bool qsi_journal_header_is_begun(const uint8_t in[QSI_JOURNAL_HEADER_BYTES])
{
    return memcmp(in, FILE_MAGIC, 8) == 0;
}

bool qsi_journal_header_decode(struct qsi_journal_header *header_out,
                               const uint8_t in[QSI_JOURNAL_HEADER_BYTES],
                               const uint8_t uuid[QSI_UUID_BYTES], uint32_t number, uint64_t salt)
{
    memset(header_out, 0, sizeof *header_out);
    memcpy(header_out->uuid, in + 16, QSI_UUID_BYTES);
    header_out->number = qsi_get_u32(in + 12);
    header_out->salt = qsi_get_u64(in + 32);
    header_out->next_salt = qsi_get_u64(in + 40);
    header_out->base_lsn = qsi_get_u64(in + 48);
    header_out->pages = qsi_get_u32(in + 56);
    return qsi_journal_header_is_begun(in) && qsi_get_u32(in + 8) == FILE_VERSION &&
           qs_crc32c(0, in, CRC_AT) == qsi_get_u32(in + CRC_AT) &&
           memcmp(header_out->uuid, uuid, QSI_UUID_BYTES) == 0 && header_out->number == number &&
           header_out->salt == salt;
}
