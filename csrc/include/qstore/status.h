/* Status codes and error detail, for every function of this library.
 *
 * A function that can fail returns a qs_status.  Its last parameter is an optional qs_error, owned
 * by the caller.  QS_OK leaves the qs_error untouched.  Expected outcomes (empty, timed out) are
 * codes without detail.  Each layer may put its own words in front of the text of the layer
 * below. */
#ifndef QSTORE_STATUS_H
#define QSTORE_STATUS_H

#include <stdint.h>

#define QS_API __attribute__((visibility("default")))
#define QS_MUST_CHECK __attribute__((warn_unused_result))

typedef enum qs_status {
#define QS_STATUS(name, number, text) name = number,
#include "qstore/status.def"
#undef QS_STATUS
} qs_status;

#define QS_ERROR_TEXT_BYTES 512
#define QS_ERROR_PATH_BYTES 256

typedef struct qs_error {
    qs_status status;
    int os_errno;                   /* errno of the system call that failed, or 0 */
    uint64_t offset;                /* of the damage in path; meaningful for QS_ECORRUPT */
    uint64_t pid;                   /* QS_ESTORE_LOCKED: the owner's process, 0 if not known */
    char path[QS_ERROR_PATH_BYTES]; /* the file the error is about, relative to the store, or "" */
    char text[QS_ERROR_TEXT_BYTES]; /* for people: what, where and what to do; NUL-terminated */
} qs_error;

/* qs_status_name - the enumerator as text, "QS_EIO"; never NULL. */
QS_API const char *qs_status_name(qs_status status);
/* qs_status_text - one short English sentence; never NULL. */
QS_API const char *qs_status_text(qs_status status);

#endif
