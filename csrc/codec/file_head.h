/* The begin of a store's files: magic, 8 bytes | version u32 | features u32; the rest of their
 * headers differs.  A reader refuses another version, and unknown features. */
#ifndef QSI_FILE_HEAD_H
#define QSI_FILE_HEAD_H

#include "qstore/status.h"

#include "check.h"

#include <stddef.h>
#include <stdint.h>

#define QSI_UUID_BYTES 16 /* of the store's uuid, which its files have */
#define QSI_FILE_MAGIC_BYTES 8u

struct qsi_file_kind {
    const char *magic; /* of QSI_FILE_MAGIC_BYTES */
    const char *name;  /* "a segment file": for error texts */
    uint32_t version;
};

/* Writes magic and version, and features 0. */
void qsi_file_head_encode(uint8_t *bytes_out, const struct qsi_file_kind *kind);
/* Checks magic and version.  path: for error texts. */
qs_status qsi_file_head_check(const struct qsi_file_kind *kind, const uint8_t *bytes,
                              const char *path, qs_error *error) QS_MUST_CHECK;
/* The same for a header with a checksum at crc_at over all bytes before it, which is checked first:
 * without it the header means nothing. */
qs_status qsi_file_header_check(const struct qsi_file_kind *kind, const uint8_t *bytes,
                                size_t crc_at, const char *path, qs_error *error) QS_MUST_CHECK;

#endif
