/* Files of a store, read and written whole, whose checksums are made right after a change: so that
 * the change reaches the decoders behind them. */
#ifndef MENDED_FILES_H
#define MENDED_FILES_H

#include "qstore/codec.h"

#include "block.h"
#include "crash_run.h"
#include "journal_file.h"
#include "le.h"
#include "message_format.h"
#include "qs_test_dirs.h"
#include "segment_format.h"

#define FILES_MAX 256
#define FILE_BYTES_MAX (1u << 20)
#define SEGMENT_ENTRIES 16

struct target_file {
    const char *dir;
    char name[QS_NAME_BYTES_MAX + 1];
};

struct store_image {
    qs_env *mem;
    struct target_file files[FILES_MAX];
    uint32_t file_count;
};

/* Reads or writes a whole file; returns its size. */
static inline size_t transfer(qs_env *env, const struct target_file *file, uint8_t *data,
                              size_t bytes, bool writes)
{
    qs_dir *dir = qs_test_open_dir(env, CRASH_PATH, file->dir);

    if (writes) {
        qs_test_truncate_file(env, dir, file->name, bytes);
        qs_test_write_file(env, dir, file->name, 0, data, bytes);
    } else {
        bytes = qs_test_read_file(env, dir, file->name, 0, data, bytes);
    }
    env->dir_close(env, dir);
    return bytes;
}

/* ---- checksums ---- */

static inline void mend_journal(uint8_t *data, size_t bytes)
{
    if (bytes >= QSI_JOURNAL_HEADER_BYTES) {
        qsi_put_u32(data + 60, qs_crc32c(0, data, 60));
    }
    for (size_t at = QSI_JOURNAL_HEADER_BYTES; at + QSI_BLOCK_HEADER_BYTES <= bytes;
         at += QSI_BLOCK_ALIGN) {
        uint32_t payload_bytes = qsi_get_u32(data + at + 36);

        if (memcmp(data + at, "QSJB", 4) == 0 &&
            payload_bytes <= bytes - at - QSI_BLOCK_HEADER_BYTES) {
            uint32_t crc = qs_crc32c(0, data + at, 60);

            qsi_put_u32(data + at + 60,
                        qs_crc32c(crc, data + at + QSI_BLOCK_HEADER_BYTES, payload_bytes));
        }
    }
}

/* Slots in places, with the sequences that these stand for. */
static inline void mend_slot(uint8_t *data, size_t bytes, uint64_t at, uint32_t identity)
{
    uint64_t where = qsi_get_u64(data + at + 8);
    uint32_t back = qsi_get_u32(data + at + 16);
    uint32_t envelope_bytes = qsi_get_u32(data + at + 20);
    uint32_t body_bytes = qsi_get_u32(data + at + 24);

    if (data[at] == QSI_SLOT_EMBEDDED && where <= bytes && body_bytes <= bytes - where &&
        back <= where && envelope_bytes <= bytes - (where - back)) {
        uint32_t crc = qs_crc32c(identity, data + (where - back), envelope_bytes);

        qsi_put_u32(data + at + 4, qs_crc32c(crc, data + where, body_bytes));
    }
    qsi_put_u32(data + at + 28, qs_crc32c(identity, data + at, 28));
}

static inline void mend_slots(const struct qsi_segment_file *file, uint8_t *data, size_t bytes)
{
    uint64_t present = qsi_get_u64(data + QSI_SEGMENT_PRESENT_AT);
    uint64_t at = qsi_segment_slots_at(SEGMENT_ENTRIES);
    bool is_packed = data[60] != 0;

    for (uint32_t slot = 0; slot < SEGMENT_ENTRIES && at + QSI_SLOT_BYTES <= bytes; slot++) {
        uint64_t sequence = file->number * SEGMENT_ENTRIES + slot;

        if (is_packed && (present >> slot & 1) == 0) {
            continue;
        }
        if (data[at] != 0) {
            mend_slot(data, bytes, at, qsi_slot_identity(qsi_slot_seed(file), sequence));
        }
        at += QSI_SLOT_BYTES;
    }
}

/* The checksum that the checkpoint is to tell; 0: there is no such area. */
static inline uint32_t mend_state(uint8_t *data, size_t bytes, uint32_t area)
{
    uint64_t at = qsi_segment_state_at(SEGMENT_ENTRIES, area);
    uint64_t used = QSI_SEGMENT_STATE_HEAD_BYTES + qsi_segment_bitmaps_bytes(SEGMENT_ENTRIES);
    uint32_t crc;

    if (at + qsi_segment_state_bytes(SEGMENT_ENTRIES) > bytes) {
        return 0;
    }
    used += data[at + 8] != 0 ? SEGMENT_ENTRIES : 0;
    crc = qs_crc32c(qs_crc32c(0, data + at, 60), data + at + QSI_SEGMENT_STATE_HEAD_BYTES,
                    (size_t)used - QSI_SEGMENT_STATE_HEAD_BYTES);
    qsi_put_u32(data + at + 60, crc);
    return crc;
}

static inline void mend_segment(const char *name, uint8_t *data, size_t bytes)
{
    uint64_t header_bytes = qsi_segment_header_bytes(SEGMENT_ENTRIES);
    struct qsi_segment_file file;

    if (bytes < header_bytes || !qsi_segment_name_parse(&file, name)) {
        return;
    }
    file.salt = qsi_get_u64(data + 64);
    mend_slots(&file, data, bytes);
    qsi_put_u32(data + header_bytes - 4, qs_crc32c(0, data, (size_t)header_bytes - 4));
}

/* MANIFEST tells the checksum of the checkpoint. */
static inline void mend_manifest(qs_env *env, const uint8_t *data, size_t bytes)
{
    struct qsi_manifest manifest;
    qs_dir *root = qs_test_open_dir(env, CRASH_PATH, "");

    QS_CHECK_OK(qsi_manifest_load(&manifest, env, root, QS_ERROR));
    manifest.checkpoint_bytes = bytes;
    manifest.checkpoint_crc = qs_crc32c(0, data, bytes);
    QS_CHECK_OK(qsi_manifest_store(&manifest, env, root, QS_ERROR));
    qsi_manifest_fini(&manifest);
    env->dir_close(env, root);
}

/* The checkpoint tells the checksum of a state area. */
static inline void mend_checkpoint_of(const struct store_image *image, qs_env *env,
                                      uint32_t old_crc, uint32_t new_crc)
{
    static uint8_t data[FILE_BYTES_MAX];

    for (uint32_t i = 0; i < image->file_count; i++) {
        const struct target_file *file = &image->files[i];
        size_t bytes;

        if (strcmp(file->dir, "checkpoint") != 0) {
            continue;
        }
        bytes = transfer(env, file, data, sizeof data, false);
        for (size_t at = 0; at + 4 <= bytes; at++) {
            if (qsi_get_u32(data + at) == old_crc) {
                qsi_put_u32(data + at, new_crc);
            }
        }
        (void)transfer(env, file, data, bytes, true);
        mend_manifest(env, data, bytes);
    }
}

static inline void mend_states(const struct store_image *image, qs_env *env,
                               const uint32_t old_crcs[2], uint8_t *data, size_t bytes)
{
    for (uint32_t area = 1; area <= 2; area++) {
        uint32_t crc = mend_state(data, bytes, area);

        if (old_crcs[area - 1] != 0 && crc != old_crcs[area - 1]) {
            mend_checkpoint_of(image, env, old_crcs[area - 1], crc);
        }
    }
}

static inline uint32_t state_crc_of(const uint8_t *data, size_t bytes, uint32_t area)
{
    uint64_t at = qsi_segment_state_at(SEGMENT_ENTRIES, area);

    return at + QSI_SEGMENT_STATE_HEAD_BYTES <= bytes ? qsi_get_u32(data + at + 60) : 0;
}

static inline void mend(const struct target_file *file, uint8_t *data, size_t bytes)
{
    if (strcmp(file->dir, "journal") == 0) {
        mend_journal(data, bytes);
    } else if (strcmp(file->dir, "messages") == 0) {
        if (bytes >= QSI_MESSAGE_HEADER_BYTES) {
            qsi_put_u32(data + QSI_MESSAGE_HEADER_BYTES - 4,
                        qs_crc32c(0, data, QSI_MESSAGE_HEADER_BYTES - 4));
        }
    } else if (strcmp(file->dir, "index") == 0) {
        mend_segment(file->name, data, bytes);
    } else if (strcmp(file->dir, "checkpoint") != 0 && bytes >= 4) {
        qsi_put_u32(data + bytes - 4, qs_crc32c(0, data, bytes - 4));
    }
}

#endif
