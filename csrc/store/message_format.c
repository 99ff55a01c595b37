/* Encoding and checking what message_format.h describes.  Pure: bytes in, bytes out. */
#include "message_format.h"

#include "qstore/codec.h"

#include "error.h"
#include "le.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FILE_MAGIC "QSMESSG\n"
#define FILE_MAGIC_BYTES 8u
#define FILE_VERSION 1u
#define RECORD_MAGIC 0x44425351u /* "QSBD" */

/* Offsets in the file header. */
enum {
    AT_MAGIC = 0,
    AT_VERSION = 8,
    AT_FEATURES = 12,
    AT_NUMBER = 16,
    AT_GENERATION = 20,
    AT_UUID = 24,
    AT_SALT = 40,
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

void qsi_message_name(char name_out[QSI_MESSAGE_NAME_BYTES], uint32_t number)
{
    snprintf(name_out, QSI_MESSAGE_NAME_BYTES, "%010" PRIu32 ".msg", number);
}

void qsi_message_path(char path_out[QSI_MESSAGE_PATH_BYTES], uint32_t number)
{
    snprintf(path_out, QSI_MESSAGE_PATH_BYTES, "messages/%010" PRIu32 ".msg", number);
}

bool qsi_message_name_parse(uint32_t *number_out, const char *name)
{
    uint64_t number = 0;
    size_t digits = strspn(name, "0123456789");

    if (digits != 10 || strcmp(name + digits, ".msg") != 0) {
        return false;
    }
    for (size_t i = 0; i < digits; i++) {
        number = number * 10 + (uint64_t)(name[i] - '0');
    }
    *number_out = (uint32_t)number;
    return number > 0 && number <= UINT32_MAX;
}

/* -- the file header -------------------------------------------------------------------------- */

void qsi_message_header_encode(uint8_t *bytes_out, uint32_t number,
                               const uint8_t uuid[QSI_UUID_BYTES], uint64_t salt)
{
    memset(bytes_out, 0, QSI_MESSAGE_HEADER_BYTES);
    memcpy(bytes_out + AT_MAGIC, FILE_MAGIC, FILE_MAGIC_BYTES);
    qsi_put_u32(bytes_out + AT_VERSION, FILE_VERSION);
    qsi_put_u32(bytes_out + AT_NUMBER, number);
    memcpy(bytes_out + AT_UUID, uuid, QSI_UUID_BYTES);
    qsi_put_u64(bytes_out + AT_SALT, salt);
    qsi_put_u32(bytes_out + AT_CRC, qs_crc32c(0, bytes_out, AT_CRC));
}

/* Magic and checksum first: nothing else means anything before them. */
static qs_status check_whole(const uint8_t *bytes, const char *path, qs_error *error)
{
    if (memcmp(bytes + AT_MAGIC, FILE_MAGIC, FILE_MAGIC_BYTES) != 0) {
        return qsi_fail_corrupt(error, path, AT_MAGIC, "not a message file");
    }
    if (qs_crc32c(0, bytes, AT_CRC) != qsi_get_u32(bytes + AT_CRC)) {
        return qsi_fail_corrupt(error, path, 0, "file header: checksum mismatch");
    }
    return QS_OK;
}

static qs_status check_readable(const uint8_t *bytes, const char *path, qs_error *error)
{
    uint32_t version = qsi_get_u32(bytes + AT_VERSION);
    uint32_t features = qsi_get_u32(bytes + AT_FEATURES);
    uint32_t generation = qsi_get_u32(bytes + AT_GENERATION);

    if (version != FILE_VERSION || features != 0 || generation != 0) {
        return qsi_fail(error, QS_EVERSION,
                        "%s: version %u, features %#x, generation %u; this build reads 1, 0, 0",
                        path, version, features, generation);
    }
    return QS_OK;
}

qs_status qsi_message_header_check(const uint8_t *bytes, uint32_t number,
                                   const uint8_t uuid[QSI_UUID_BYTES], uint64_t *salt_out,
                                   qs_error *error)
{
    char path[QSI_MESSAGE_PATH_BYTES];

    qsi_message_path(path, number);
    QS_TRY(check_whole(bytes, path, error));
    QS_TRY(check_readable(bytes, path, error));
    if (qsi_get_u32(bytes + AT_NUMBER) != number) {
        return qsi_fail_corrupt(error, path, AT_NUMBER, "file header: number %u",
                                qsi_get_u32(bytes + AT_NUMBER));
    }
    if (memcmp(bytes + AT_UUID, uuid, QSI_UUID_BYTES) != 0) {
        return qsi_fail_corrupt(error, path, AT_UUID, "file header: of another store");
    }
    *salt_out = qsi_get_u64(bytes + AT_SALT);
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
