/* How the files of a store begin: magic, 8 bytes | version u32 | features u32, and what else is in
 * their header.  A reader refuses another version, and features that it does not know. */
#ifndef QSI_FILE_HEAD_H
#define QSI_FILE_HEAD_H

#include "qstore/status.h"

#include "check.h"

#include <stddef.h>
#include <stdint.h>

#define QSI_UUID_BYTES 16 /* of a store's, which its files name */
#define QSI_FILE_MAGIC_BYTES 8u

struct qsi_file_kind {
    const char *magic; /* of QSI_FILE_MAGIC_BYTES */
    const char *name;  /* "a segment file": in messages */
    uint32_t version;
};

/* Features: none. */
void qsi_file_head_encode(uint8_t *bytes_out, const struct qsi_file_kind *kind);
/* Magic and version.  path: in messages. */
qs_status qsi_file_head_check(const struct qsi_file_kind *kind, const uint8_t *bytes,
                              const char *path, qs_error *error) QS_MUST_CHECK;
/* The same of a header with a checksum at crc_at, of all before it: nothing else in it means
 * anything before that is right. */
qs_status qsi_file_header_check(const struct qsi_file_kind *kind, const uint8_t *bytes,
                                size_t crc_at, const char *path, qs_error *error) QS_MUST_CHECK;

#endif
