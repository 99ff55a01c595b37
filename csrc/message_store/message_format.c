/* Encoding and checking of the structures in message_format.h.  Pure functions of bytes. */
#include "message_format.h"

#include "qstore/codec.h"

#include "check.h"
#include "error.h"
#include "file_head.h"
#include "le.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NUMBER_DIGITS 10u
#define GENERATION_DIGITS 4u
#define RECORD_MAGIC 0x44425351u /* "QSBD" */

static const struct qsi_file_kind file_kind = {"QSMESSG\n", "a message file", 1};

/* Offsets in the file header. */
enum {
    AT_NUMBER = 16,
    AT_GENERATION = 20,
    AT_UUID = 24,
    AT_SALT = 40,
    AT_TABLE = 48,
    AT_TABLE_SLOTS = 56,
    AT_CRC = 4092,
};

/* Offsets in the record header. */
enum {
    AT_RECORD_MAGIC = 0,
    AT_RECORD_SLOT = 4,
    AT_RECORD_SALT = 8,
    AT_RECORD_ENVELOPE = 16,
    AT_RECORD_BODY = 20,
    AT_RECORD_FLAGS = 24,
    AT_RECORD_CRC = 28,
};

/* -- names ------------------------------------------------------------------------------------ */

void qsi_message_name(char name_out[QSI_MESSAGE_NAME_BYTES], struct qsi_message_id id)
{
    QS_ASSERT(id.generation <= QSI_MESSAGE_GENERATION_MAX);
    if (id.generation == 0) {
        snprintf(name_out, QSI_MESSAGE_NAME_BYTES, "%010" PRIu32 ".msg", id.number);
    } else {
        snprintf(name_out, QSI_MESSAGE_NAME_BYTES, "%010" PRIu32 "-%04u.msg", id.number,
                 (unsigned)(id.generation % (QSI_MESSAGE_GENERATION_MAX + 1)));
    }
}

void qsi_message_path(char path_out[QSI_MESSAGE_PATH_BYTES], struct qsi_message_id id)
{
    char name[QSI_MESSAGE_NAME_BYTES];

    qsi_message_name(name, id);
    snprintf(path_out, QSI_MESSAGE_PATH_BYTES, "messages/%s", name);
}

/* Parses exactly this number of decimal digits. */
static bool parse_digits(uint64_t *value_out, const char *text, size_t digits)
{
    *value_out = 0;
    if (strspn(text, "0123456789") != digits) {
        return false;
    }
    for (size_t i = 0; i < digits; i++) {
        *value_out = *value_out * 10 + (uint64_t)(text[i] - '0');
    }
    return true;
}

bool qsi_message_name_parse(struct qsi_message_id *id_out, const char *name)
{
    uint64_t number;
    uint64_t generation = 0;

    if (!parse_digits(&number, name, NUMBER_DIGITS) || number == 0 || number > UINT32_MAX) {
        return false;
    }
    name += NUMBER_DIGITS;
    if (*name == '-') {
        if (!parse_digits(&generation, name + 1, GENERATION_DIGITS) || generation == 0) {
            return false;
        }
        name += 1 + GENERATION_DIGITS;
    }
    *id_out = (struct qsi_message_id){(uint32_t)number, (uint32_t)generation};
    return strcmp(name, ".msg") == 0;
}

/* -- the file header -------------------------------------------------------------------------- */

void qsi_message_header_encode(uint8_t *bytes_out, uint32_t number,
                               const uint8_t uuid[QSI_UUID_BYTES], uint64_t salt)
{
    memset(bytes_out, 0, QSI_MESSAGE_HEADER_BYTES);
    qsi_file_head_encode(bytes_out, &file_kind);
    qsi_put_u32(bytes_out + AT_NUMBER, number);
    memcpy(bytes_out + AT_UUID, uuid, QSI_UUID_BYTES);
    qsi_put_u64(bytes_out + AT_SALT, salt);
    qsi_put_u32(bytes_out + AT_CRC, qs_crc32c(0, bytes_out, AT_CRC));
}

void qsi_message_header_encode_table(uint8_t *bytes_out, struct qsi_message_id id,
                                     const uint8_t uuid[QSI_UUID_BYTES],
                                     const struct qsi_message_header *header)
{
    qsi_message_header_encode(bytes_out, id.number, uuid, header->salt);
    qsi_put_u32(bytes_out + AT_GENERATION, id.generation);
    qsi_put_u64(bytes_out + AT_TABLE, header->table_offset);
    qsi_put_u32(bytes_out + AT_TABLE_SLOTS, header->table_slots);
    qsi_put_u32(bytes_out + AT_CRC, qs_crc32c(0, bytes_out, AT_CRC));
}

static qs_status check_identity(const uint8_t *bytes, struct qsi_message_id id, const char *path,
                                const uint8_t uuid[QSI_UUID_BYTES], qs_error *error)
{
    if (qsi_get_u32(bytes + AT_NUMBER) != id.number) {
        return qsi_fail_corrupt(error, path, AT_NUMBER, "file header: number %u",
                                qsi_get_u32(bytes + AT_NUMBER));
    }
    if (qsi_get_u32(bytes + AT_GENERATION) != id.generation) {
        return qsi_fail_corrupt(error, path, AT_GENERATION, "file header: generation %u",
                                qsi_get_u32(bytes + AT_GENERATION));
    }
    if (memcmp(bytes + AT_UUID, uuid, QSI_UUID_BYTES) != 0) {
        return qsi_fail_corrupt(error, path, AT_UUID, "file header: of another store");
    }
    return QS_OK;
}

qs_status qsi_message_header_check(const uint8_t *bytes, struct qsi_message_id id,
                                   const uint8_t uuid[QSI_UUID_BYTES],
                                   struct qsi_message_header *header_out, qs_error *error)
{
    char path[QSI_MESSAGE_PATH_BYTES];

    qsi_message_path(path, id);
    QS_TRY(qsi_file_header_check(&file_kind, bytes, AT_CRC, path, error));
    QS_TRY(check_identity(bytes, id, path, uuid, error));
    *header_out = (struct qsi_message_header){
        .salt = qsi_get_u64(bytes + AT_SALT),
        .table_offset = qsi_get_u64(bytes + AT_TABLE),
        .table_slots = qsi_get_u32(bytes + AT_TABLE_SLOTS),
    };
    if ((id.generation == 0) != (header_out->table_offset == 0) ||
        (id.generation == 0 && header_out->table_slots != 0) ||
        header_out->table_offset % QSI_BODY_PACKED_ALIGNMENT != 0 ||
        (id.generation > 0 && header_out->table_offset < QSI_MESSAGE_HEADER_BYTES)) {
        return qsi_fail_corrupt(error, path, AT_TABLE,
                                "file header: no table of slots can be at %llu",
                                (unsigned long long)header_out->table_offset);
    }
    return QS_OK;
}

/* -- the record header ------------------------------------------------------------------------ */

void qsi_body_header_encode(uint8_t *bytes_out, const struct qsi_body_ref *ref, uint64_t salt)
{
    qsi_put_u32(bytes_out + AT_RECORD_MAGIC, RECORD_MAGIC);
    qsi_put_u32(bytes_out + AT_RECORD_SLOT, ref->slot);
    qsi_put_u64(bytes_out + AT_RECORD_SALT, salt);
    qsi_put_u32(bytes_out + AT_RECORD_ENVELOPE, ref->envelope_bytes);
    qsi_put_u32(bytes_out + AT_RECORD_BODY, ref->body_bytes);
    qsi_put_u32(bytes_out + AT_RECORD_FLAGS, 0);
    qsi_put_u32(bytes_out + AT_RECORD_CRC, ref->crc);
}

uint32_t qsi_body_header_crc(const uint8_t *bytes)
{
    return qs_crc32c(0, bytes, AT_RECORD_CRC);
}

bool qsi_body_header_parse(struct qsi_body_ref *ref_out, const uint8_t *bytes, uint64_t salt)
{
    if (qsi_get_u32(bytes + AT_RECORD_MAGIC) != RECORD_MAGIC ||
        qsi_get_u64(bytes + AT_RECORD_SALT) != salt || qsi_get_u32(bytes + AT_RECORD_FLAGS) != 0) {
        return false;
    }
    *ref_out = (struct qsi_body_ref){
        .slot = qsi_get_u32(bytes + AT_RECORD_SLOT),
        .envelope_bytes = qsi_get_u32(bytes + AT_RECORD_ENVELOPE),
        .body_bytes = qsi_get_u32(bytes + AT_RECORD_BODY),
        .crc = qsi_get_u32(bytes + AT_RECORD_CRC),
    };
    return true;
}
