/* MANIFEST, little-endian:
 *
 *  0 magic "QSMANIF1" | 8 version u32 | 12 incompatible features u32 | 16 compatible features
 *  u32 | 20 flags u32 24 uuid 16 bytes | 40 end_lsn u64 | 48 segment_entries u32 | 52
 *  session_count u32 56 checkpoint: number u64, lsn u64, bytes u64, crc32c u32, zero u32 88
 *  session_number u64 | 96 clock_us u64 104 sessions: salt u64, base_lsn u64, first_file u32,
 *  after_crash u32 | crc32c u32 of all before */
#include "manifest.h"

#include "qstore/codec.h"

#include "alloc.h"
#include "check.h"
#include "error.h"
#include "file.h"
#include "le.h"

#include <string.h>

#define MANIFEST_NAME "MANIFEST"
#define MANIFEST_MAGIC "QSMANIF1"
#define MANIFEST_VERSION 7
#define FEATURE_ALIGNED 1u /* message records may have aligned columns */
#define FEATURE_STREAMS 2u /* streams: their records, and a directory of their files */
#define FEATURE_WRITTEN 4u /* records of messages that are already in a stream's file */
#define FEATURE_ADOPTED 8u /* staged files in streams, and the record of their adoption */
#define FEATURES (FEATURE_ALIGNED | FEATURE_STREAMS | FEATURE_WRITTEN | FEATURE_ADOPTED)
#define FIXED_BYTES 104
#define SESSION_BYTES 24
#define CRC_BYTES 4
#define MANIFEST_BYTES_MAX (16u << 20)
#define LSN_MAX (UINT64_MAX / 4) /* no journal is so long, and sums with this do not overflow */
#define FLAG_CLEAN 1u
#define FLAG_FAILED 2u

void qsi_manifest_fini(struct qsi_manifest *manifest)
{
    qsi_free(manifest->sessions);
    memset(manifest, 0, sizeof *manifest);
}

qs_status qsi_manifest_add_session(struct qsi_manifest *manifest, const struct qsi_session *session)
{
    struct qsi_session *grown =
        qsi_realloc(manifest->sessions, (manifest->session_count + 1) * sizeof *grown);

    if (grown == NULL) {
        return QS_ENOMEM;
    }
    grown[manifest->session_count] = *session;
    manifest->sessions = grown;
    manifest->session_count += 1;
    return QS_OK;
}

void qsi_manifest_begin_at(struct qsi_manifest *manifest, const struct qsi_session *start)
{
    QS_ASSERT(manifest->session_count > 0);
    QS_ASSERT(start->base_lsn >= manifest->sessions[manifest->session_count - 1].base_lsn);
    manifest->sessions[0] = *start;
    manifest->session_count = 1;
}

/* REQUIRES the sessions.  The checkpoint must be within the journal, its end included. */
static qs_status decode_checkpoint(struct qsi_manifest *manifest, const uint8_t *data,
                                   qs_error *error)
{
    manifest->checkpoint_number = qsi_get_u64(data + 56);
    manifest->checkpoint_lsn = qsi_get_u64(data + 64);
    manifest->checkpoint_bytes = qsi_get_u64(data + 72);
    manifest->checkpoint_crc = qsi_get_u32(data + 80);
    if (manifest->checkpoint_lsn > LSN_MAX) {
        return qsi_fail_corrupt(error, MANIFEST_NAME, 64, "checkpoint at LSN %llu",
                                (unsigned long long)manifest->checkpoint_lsn);
    }
    if (manifest->checkpoint_number == 0) {
        return QS_OK;
    }
    if (manifest->session_count == 0) {
        return qsi_fail_corrupt(error, MANIFEST_NAME, 52, "a checkpoint, and no session");
    }
    if (manifest->checkpoint_lsn < manifest->sessions[0].base_lsn) {
        return qsi_fail_corrupt(error, MANIFEST_NAME, 64,
                                "checkpoint at LSN %llu; the journal begins behind it at %llu",
                                (unsigned long long)manifest->checkpoint_lsn,
                                (unsigned long long)manifest->sessions[0].base_lsn);
    }
    if (qsi_manifest_is_ended(manifest) && manifest->checkpoint_lsn > manifest->end_lsn) {
        return qsi_fail_corrupt(
            error, MANIFEST_NAME, 64, "checkpoint at LSN %llu; the journal ends before it at %llu",
            (unsigned long long)manifest->checkpoint_lsn, (unsigned long long)manifest->end_lsn);
    }
    return QS_OK;
}

static qs_status decode(struct qsi_manifest *manifest, const uint8_t *data, size_t bytes,
                        qs_error *error)
{
    uint32_t session_count;

    if (bytes < FIXED_BYTES + CRC_BYTES || memcmp(data, MANIFEST_MAGIC, 8) != 0) {
        return qsi_fail_corrupt(error, MANIFEST_NAME, 0, "not a manifest");
    }
    if (qs_crc32c(0, data, bytes - CRC_BYTES) != qsi_get_u32(data + bytes - CRC_BYTES)) {
        return qsi_fail_corrupt(error, MANIFEST_NAME, 0, "checksum mismatch");
    }
    if (qsi_get_u32(data + 8) != MANIFEST_VERSION || (qsi_get_u32(data + 12) & ~FEATURES) != 0) {
        return qsi_fail(error, QS_EVERSION,
                        "MANIFEST: version %u, features %#x; this build reads version %d with "
                        "features %#x or some of them",
                        qsi_get_u32(data + 8), qsi_get_u32(data + 12), MANIFEST_VERSION, FEATURES);
    }
    session_count = qsi_get_u32(data + 52);
    if (bytes != FIXED_BYTES + (uint64_t)session_count * SESSION_BYTES + CRC_BYTES) {
        return qsi_fail_corrupt(error, MANIFEST_NAME, 52, "%u sessions in %zu bytes", session_count,
                                bytes);
    }
    manifest->clean = (qsi_get_u32(data + 20) & FLAG_CLEAN) != 0;
    manifest->failed = (qsi_get_u32(data + 20) & FLAG_FAILED) != 0;
    manifest->read_features = qsi_get_u32(data + 16);
    manifest->has_streams = (qsi_get_u32(data + 12) & FEATURE_STREAMS) != 0;
    manifest->clock_us = qsi_get_u64(data + 96);
    memcpy(manifest->uuid, data + 24, QSI_UUID_BYTES);
    manifest->end_lsn = qsi_get_u64(data + 40);
    manifest->segment_entries = qsi_get_u32(data + 48);
    manifest->session_number = qsi_get_u64(data + 88);
    if (manifest->session_number < session_count) {
        return qsi_fail_corrupt(error, MANIFEST_NAME, 88, "%u sessions, the last is number %llu",
                                session_count, (unsigned long long)manifest->session_number);
    }
    manifest->sessions = qsi_alloc((session_count + 1) * sizeof *manifest->sessions);
    if (manifest->sessions == NULL) {
        return qsi_fail(error, QS_ENOMEM, "%u sessions", session_count);
    }
    manifest->session_count = session_count;
    if (manifest->end_lsn > LSN_MAX) {
        return qsi_fail_corrupt(error, MANIFEST_NAME, 40, "LSN %llu",
                                (unsigned long long)manifest->end_lsn);
    }
    for (uint32_t i = 0; i < session_count; i++) {
        const uint8_t *at = data + FIXED_BYTES + (size_t)i * SESSION_BYTES;
        manifest->sessions[i] = (struct qsi_session){
            .salt = qsi_get_u64(at),
            .base_lsn = qsi_get_u64(at + 8),
            .first_file = qsi_get_u32(at + 16),
            .after_crash = qsi_get_u32(at + 20) != 0,
        };
        if (manifest->sessions[i].base_lsn > LSN_MAX) {
            return qsi_fail_corrupt(error, MANIFEST_NAME, (uint64_t)(at + 8 - data),
                                    "session %u: LSN %llu", i,
                                    (unsigned long long)manifest->sessions[i].base_lsn);
        }
    }
    return decode_checkpoint(manifest, data, error);
}

qs_status qsi_manifest_load(struct qsi_manifest *manifest_out, qs_env *env, qs_dir *root,
                            qs_error *error)
{
    uint8_t *data = NULL;
    size_t bytes = 0;
    qs_status status;

    memset(manifest_out, 0, sizeof *manifest_out);
    status = qsi_file_load(env, root, MANIFEST_NAME, MANIFEST_BYTES_MAX, &data, &bytes, error);
    if (status != QS_OK) {
        return status;
    }
    status = decode(manifest_out, data, bytes, error);
    if (status != QS_OK) {
        qsi_manifest_fini(manifest_out);
    }
    qsi_free(data);
    return status;
}

qs_status qsi_manifest_store(const struct qsi_manifest *manifest, qs_env *env, qs_dir *root,
                             qs_error *error)
{
    size_t bytes = FIXED_BYTES + (size_t)manifest->session_count * SESSION_BYTES + CRC_BYTES;
    uint8_t *data = qsi_zalloc(bytes);
    qs_status status;

    if (data == NULL) {
        return qsi_fail(error, QS_ENOMEM, "manifest of %zu bytes", bytes);
    }
    if (bytes > MANIFEST_BYTES_MAX) {
        qsi_free(data);
        return qsi_fail(error, QS_EINVAL, "the store was opened %u times without a checkpoint",
                        manifest->session_count);
    }
    memcpy(data, MANIFEST_MAGIC, 8);
    qsi_put_u32(data + 8, MANIFEST_VERSION);
    qsi_put_u32(data + 12, FEATURES); /* set before the first block that needs them is written */
    qsi_put_u32(data + 20,
                (manifest->clean ? FLAG_CLEAN : 0) | (manifest->failed ? FLAG_FAILED : 0));
    memcpy(data + 24, manifest->uuid, QSI_UUID_BYTES);
    qsi_put_u64(data + 40, manifest->end_lsn);
    qsi_put_u32(data + 48, manifest->segment_entries);
    qsi_put_u32(data + 52, manifest->session_count);
    qsi_put_u64(data + 56, manifest->checkpoint_number);
    qsi_put_u64(data + 64, manifest->checkpoint_lsn);
    qsi_put_u64(data + 72, manifest->checkpoint_bytes);
    qsi_put_u32(data + 80, manifest->checkpoint_crc);
    qsi_put_u64(data + 88, manifest->session_number);
    qsi_put_u64(data + 96, manifest->clock_us);
    for (uint32_t i = 0; i < manifest->session_count; i++) {
        uint8_t *at = data + FIXED_BYTES + (size_t)i * SESSION_BYTES;
        qsi_put_u64(at, manifest->sessions[i].salt);
        qsi_put_u64(at + 8, manifest->sessions[i].base_lsn);
        qsi_put_u32(at + 16, manifest->sessions[i].first_file);
        qsi_put_u32(at + 20, manifest->sessions[i].after_crash ? 1 : 0);
    }
    qsi_put_u32(data + bytes - CRC_BYTES, qs_crc32c(0, data, bytes - CRC_BYTES));
    status = qsi_file_replace(env, root, MANIFEST_NAME, data, bytes, error);
    qsi_free(data);
    return status;
}
