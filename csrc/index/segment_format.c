/* Encoding and checking of the structures in segment_format.h.  Pure functions of bytes. */
#include "segment_format.h"

#include "check.h"
#include "error.h"
#include "file_head.h"
#include "name.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define STATE_MAGIC "QSSEGST\n"
#define MAGIC_BYTES 8u
#define FLAG_PACKED 1u
#define QSI_STATE_COLUMNS \
    (QSI_STATE_DELIVERIES | QSI_STATE_EXPIRIES | QSI_STATE_SIZES | QSI_STATE_DUES)

static const struct qsi_file_kind file_kind = {"QSSEGMT\n", "a segment file", 3};

/* Offsets in the file header. */
enum {
    AT_UUID = 16,
    AT_QUEUE = 32,
    AT_NUMBER = 40,
    AT_GENERATION = 48,
    AT_ENTRIES = 52,
    AT_SLOT_COUNT = 56,
    AT_FLAGS = 60,
    AT_SALT = 64,
};

/* Offsets in the head of a state area. */
enum {
    AT_STATE_MAGIC = 0,
    AT_STATE_FLAGS = 8,
    AT_STATE_GENERATION = 12,
    AT_STATE_QUEUE = 16,
    AT_STATE_NUMBER = 24,
    AT_STATE_SALT = 32,
    AT_STATE_CRC = 60,
};

/* -- names ------------------------------------------------------------------------------------ */

void qsi_segment_name(char name_out[QSI_SEGMENT_NAME_BYTES], const struct qsi_segment_file *file)
{
    snprintf(name_out, QSI_SEGMENT_NAME_BYTES, "%016" PRIx64 "-%012" PRIx64 "-%08" PRIx32 ".seg",
             file->queue_id, file->number, file->generation);
}

void qsi_segment_path(char path_out[QSI_SEGMENT_PATH_BYTES], const struct qsi_segment_file *file)
{
    char name[QSI_SEGMENT_NAME_BYTES];

    qsi_segment_name(name, file);
    snprintf(path_out, QSI_SEGMENT_PATH_BYTES, "index/%s", name);
}

bool qsi_segment_name_parse(struct qsi_segment_file *file_out, const char *name)
{
    char canonical[QSI_SEGMENT_NAME_BYTES];
    const char *at = name;
    uint64_t values[3] = {0};

    for (int i = 0; i < 3; i++) {
        at = qsi_name_hex(at, &values[i]);
        if (*at == '-') {
            at++;
        }
    }
    *file_out = (struct qsi_segment_file){
        .queue_id = values[0], .number = values[1], .generation = (uint32_t)values[2]};
    /* Each name has only one form. */
    qsi_segment_name(canonical, file_out);
    return strcmp(canonical, name) == 0;
}

/* -- bitmaps ---------------------------------------------------------------------------------- */

static void encode_bitmap(uint8_t *bytes_out, const uint64_t *bits, uint32_t words)
{
    for (uint32_t i = 0; i < words; i++) {
        qsi_put_u64(bytes_out + 8 * (size_t)i, bits[i]);
    }
}

void qsi_bitmap_decode(uint64_t *bits_out, const uint8_t *bytes, uint32_t words)
{
    for (uint32_t i = 0; i < words; i++) {
        bits_out[i] = qsi_get_u64(bytes + 8 * (size_t)i);
    }
}

/* -- header ----------------------------------------------------------------------------------- */

void qsi_segment_header_encode(uint8_t *bytes_out, const struct qsi_segment_file *file,
                               uint32_t entries, const uint8_t uuid[QSI_UUID_BYTES],
                               const uint64_t *present)
{
    size_t crc_at = (size_t)qsi_segment_header_bytes(entries) - 4;

    QS_ASSERT((present != NULL) == file->packed);
    QS_ASSERT(file->slot_count <= entries && (file->packed || file->slot_count == entries));
    memset(bytes_out, 0, crc_at);
    qsi_file_head_encode(bytes_out, &file_kind);
    memcpy(bytes_out + AT_UUID, uuid, QSI_UUID_BYTES);
    qsi_put_u64(bytes_out + AT_QUEUE, file->queue_id);
    qsi_put_u64(bytes_out + AT_NUMBER, file->number);
    qsi_put_u32(bytes_out + AT_GENERATION, file->generation);
    qsi_put_u32(bytes_out + AT_ENTRIES, entries);
    qsi_put_u32(bytes_out + AT_SLOT_COUNT, file->slot_count);
    qsi_put_u32(bytes_out + AT_FLAGS, file->packed ? FLAG_PACKED : 0);
    qsi_put_u64(bytes_out + AT_SALT, file->salt);
    if (present != NULL) {
        encode_bitmap(bytes_out + QSI_SEGMENT_PRESENT_AT, present, qsi_bitmap_words(entries));
    }
    qsi_put_u32(bytes_out + crc_at, qs_crc32c(0, bytes_out, crc_at));
}

qs_status qsi_segment_header_check(const uint8_t *bytes, const struct qsi_segment_file *file,
                                   uint32_t entries, const uint8_t uuid[QSI_UUID_BYTES],
                                   qs_error *error)
{
    char path[QSI_SEGMENT_PATH_BYTES];

    qsi_segment_path(path, file);
    QS_TRY(qsi_file_header_check(&file_kind, bytes, (size_t)qsi_segment_header_bytes(entries) - 4,
                                 path, error));
    if (memcmp(bytes + AT_UUID, uuid, QSI_UUID_BYTES) != 0) {
        return qsi_fail_corrupt(error, path, AT_UUID, "file header: of another store");
    }
    if (qsi_get_u64(bytes + AT_QUEUE) != file->queue_id ||
        qsi_get_u64(bytes + AT_NUMBER) != file->number ||
        qsi_get_u32(bytes + AT_GENERATION) != file->generation) {
        return qsi_fail_corrupt(error, path, AT_QUEUE, "file header: of another segment");
    }
    if (qsi_get_u64(bytes + AT_SALT) != file->salt) {
        return qsi_fail_corrupt(error, path, AT_SALT, "file header: not the salt expected");
    }
    if (qsi_get_u32(bytes + AT_ENTRIES) != entries ||
        qsi_get_u32(bytes + AT_SLOT_COUNT) != file->slot_count ||
        qsi_get_u32(bytes + AT_FLAGS) != (file->packed ? FLAG_PACKED : 0)) {
        return qsi_fail_corrupt(error, path, AT_ENTRIES, "file header: not the slots expected");
    }
    return QS_OK;
}

/* -- state ------------------------------------------------------------------------------------ */

static void encode_state_head(uint8_t *head_out, const struct qsi_segment_file *file,
                              uint32_t columns)
{
    memset(head_out, 0, QSI_SEGMENT_STATE_HEAD_BYTES);
    memcpy(head_out + AT_STATE_MAGIC, STATE_MAGIC, MAGIC_BYTES);
    qsi_put_u32(head_out + AT_STATE_FLAGS, columns);
    qsi_put_u32(head_out + AT_STATE_GENERATION, file->generation);
    qsi_put_u64(head_out + AT_STATE_QUEUE, file->queue_id);
    qsi_put_u64(head_out + AT_STATE_NUMBER, file->number);
    qsi_put_u64(head_out + AT_STATE_SALT, file->salt);
}

uint64_t qsi_segment_state_used(uint32_t entries, uint32_t columns)
{
    QS_DCHECK((columns | QSI_STATE_COLUMNS) == QSI_STATE_COLUMNS);
    return QSI_SEGMENT_STATE_HEAD_BYTES + qsi_segment_bitmaps_bytes(entries) +
           ((columns & QSI_STATE_DELIVERIES) != 0 ? entries : 0) +
           ((columns & QSI_STATE_EXPIRIES) != 0 ? 8 * (uint64_t)entries : 0) +
           ((columns & QSI_STATE_SIZES) != 0 ? 4 * (uint64_t)entries : 0) +
           ((columns & QSI_STATE_DUES) != 0 ? 8 * (uint64_t)entries : 0);
}

uint32_t qsi_segment_state_columns(const uint8_t *head)
{
    return qsi_get_u32(head + AT_STATE_FLAGS) & QSI_STATE_COLUMNS;
}

static uint32_t state_crc(const uint8_t *area, uint64_t bytes)
{
    QS_DCHECK(bytes >= QSI_SEGMENT_STATE_HEAD_BYTES);
    return qs_crc32c(qs_crc32c(0, area, AT_STATE_CRC), area + QSI_SEGMENT_STATE_HEAD_BYTES,
                     (size_t)bytes - QSI_SEGMENT_STATE_HEAD_BYTES);
}

uint32_t qsi_segment_state_encode(uint8_t *area_out, uint64_t *bytes_out,
                                  const struct qsi_segment_file *file, uint32_t entries,
                                  const struct qsi_segment_state *state)
{
    uint32_t columns = (state->deliveries != NULL ? QSI_STATE_DELIVERIES : 0) |
                       (state->expiries != NULL ? QSI_STATE_EXPIRIES : 0) |
                       (state->sizes != NULL ? QSI_STATE_SIZES : 0) |
                       (state->dues != NULL ? QSI_STATE_DUES : 0);
    uint32_t words = qsi_bitmap_words(entries);
    uint8_t *at = area_out + QSI_SEGMENT_STATE_HEAD_BYTES;
    uint32_t crc;

    encode_state_head(area_out, file, columns);
    encode_bitmap(at, state->settled, words);
    encode_bitmap(at + 8 * (size_t)words, state->seen, words);
    at += 16 * (size_t)words;
    if (state->deliveries != NULL) {
        memcpy(at, state->deliveries, entries);
        at += entries;
    }
    for (uint32_t i = 0; state->expiries != NULL && i < entries; i++, at += 8) {
        qsi_put_u64(at, state->expiries[i]);
    }
    for (uint32_t i = 0; state->sizes != NULL && i < entries; i++, at += 4) {
        qsi_put_u32(at, state->sizes[i]);
    }
    for (uint32_t i = 0; state->dues != NULL && i < entries; i++, at += 8) {
        qsi_put_u64(at, state->dues[i]);
    }
    *bytes_out = qsi_segment_state_used(entries, columns);
    QS_ASSERT((uint64_t)(at - area_out) == *bytes_out);
    crc = state_crc(area_out, *bytes_out);
    qsi_put_u32(area_out + AT_STATE_CRC, crc);
    return crc;
}

qs_status qsi_segment_state_check(const uint8_t *area, const struct qsi_segment_file *file,
                                  uint32_t entries, qs_error *error)
{
    uint32_t columns = qsi_segment_state_columns(area);
    uint64_t at = qsi_segment_state_at(entries, file->state_area);
    uint8_t expected[QSI_SEGMENT_STATE_HEAD_BYTES];
    char path[QSI_SEGMENT_PATH_BYTES];

    qsi_segment_path(path, file);
    encode_state_head(expected, file, columns);
    if (memcmp(area, expected, AT_STATE_CRC) != 0) {
        return qsi_fail_corrupt(error, path, at, "state area: not the head expected");
    }
    if (qsi_get_u32(area + AT_STATE_CRC) != file->state_crc ||
        state_crc(area, qsi_segment_state_used(entries, columns)) != file->state_crc) {
        return qsi_fail_corrupt(error, path, at, "state area: checksum mismatch");
    }
    return QS_OK;
}

void qsi_segment_state_decode(const uint8_t *area, uint32_t entries,
                              struct qsi_segment_state *state)
{
    uint32_t columns = qsi_segment_state_columns(area);
    uint32_t words = qsi_bitmap_words(entries);
    const uint8_t *at = area + QSI_SEGMENT_STATE_HEAD_BYTES;

    qsi_bitmap_decode(state->settled, at, words);
    qsi_bitmap_decode(state->seen, at + 8 * (size_t)words, words);
    at += 16 * (size_t)words;
    if ((columns & QSI_STATE_DELIVERIES) != 0) {
        if (state->deliveries != NULL) {
            memcpy(state->deliveries, at, entries);
        }
        at += entries;
    }
    if ((columns & QSI_STATE_EXPIRIES) != 0) {
        for (uint32_t i = 0; state->expiries != NULL && i < entries; i++) {
            state->expiries[i] = qsi_get_u64(at + 8 * (size_t)i);
        }
        at += 8 * (size_t)entries;
    }
    if ((columns & QSI_STATE_SIZES) != 0) {
        for (uint32_t i = 0; state->sizes != NULL && i < entries; i++) {
            state->sizes[i] = qsi_get_u32(at + 4 * (size_t)i);
        }
        at += 4 * (size_t)entries;
    }
    for (uint32_t i = 0; (columns & QSI_STATE_DUES) != 0 && state->dues != NULL && i < entries;
         i++) {
        state->dues[i] = qsi_get_u64(at + 8 * (size_t)i);
    }
}

/* -- slots ------------------------------------------------------------------------------------ */

uint32_t qsi_slot_seed(const struct qsi_segment_file *file)
{
    uint8_t bytes[16];

    qsi_put_u64(bytes, file->salt);
    qsi_put_u64(bytes + 8, file->queue_id);
    return qs_crc32c(0, bytes, sizeof bytes);
}
