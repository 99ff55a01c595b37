#include "file_head.h"

#include "qstore/codec.h"

#include "check.h"
#include "error.h"
#include "le.h"

#include <string.h>

enum { AT_VERSION = 8, AT_FEATURES = 12 };

void qsi_file_head_encode(uint8_t *bytes_out, const struct qsi_file_kind *kind)
{
    QS_DCHECK(kind->version > 0);
    memcpy(bytes_out, kind->magic, QSI_FILE_MAGIC_BYTES);
    qsi_put_u32(bytes_out + AT_VERSION, kind->version);
    qsi_put_u32(bytes_out + AT_FEATURES, 0);
}

static qs_status check_magic(const struct qsi_file_kind *kind, const uint8_t *bytes,
                             const char *path, qs_error *error)
{
    return memcmp(bytes, kind->magic, QSI_FILE_MAGIC_BYTES) == 0
               ? QS_OK
               : qsi_fail_corrupt(error, path, 0, "not %s", kind->name);
}

static qs_status check_version(const struct qsi_file_kind *kind, const uint8_t *bytes,
                               const char *path, qs_error *error)
{
    uint32_t version = qsi_get_u32(bytes + AT_VERSION);
    uint32_t features = qsi_get_u32(bytes + AT_FEATURES);

    return version == kind->version && features == 0
               ? QS_OK
               : qsi_fail(error, QS_EVERSION,
                          "%s: version %u, features %#x; this build reads version %u without any",
                          path, version, features, kind->version);
}

qs_status qsi_file_head_check(const struct qsi_file_kind *kind, const uint8_t *bytes,
                              const char *path, qs_error *error)
{
    QS_TRY(check_magic(kind, bytes, path, error));
    return check_version(kind, bytes, path, error);
}

qs_status qsi_file_header_check(const struct qsi_file_kind *kind, const uint8_t *bytes,
                                size_t crc_at, const char *path, qs_error *error)
{
    QS_DCHECK(crc_at >= AT_FEATURES + 4);
    QS_TRY(check_magic(kind, bytes, path, error));
    if (qs_crc32c(0, bytes, crc_at) != qsi_get_u32(bytes + crc_at)) {
        return qsi_fail_corrupt(error, path, 0, "file header: checksum mismatch");
    }
    return check_version(kind, bytes, path, error);
}
