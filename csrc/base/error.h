/* Setting a qs_error.  Every function accepts error == NULL. */
#ifndef QSI_ERROR_H
#define QSI_ERROR_H

#include "qstore/status.h"

#include <stdbool.h>

/* Memory, space or descriptors were short: the failed call did nothing, and may succeed later. */
static inline bool qsi_is_shortage(qs_status status)
{
    return status == QS_ENOMEM || status == QS_ENOSPC || status == QS_ESTORE_FULL ||
           status == QS_EMFILE;
}

static inline bool qsi_is_full(qs_status status)
{
    return status == QS_ENOSPC || status == QS_ESTORE_FULL;
}

/* For a call that reads: the data is damaged, or the disk cannot read it.  Readers get the error,
 * and other data can still be read. */
static inline bool qsi_is_unreadable(qs_status status)
{
    return status == QS_ECORRUPT || status == QS_EIO;
}

/* A file is damaged, missing, or of another version: a new one may replace it. */
static inline bool qsi_is_damage(qs_status status)
{
    return status == QS_ECORRUPT || status == QS_EVERSION;
}

/* Sets status, text (printf style), clears path, offset and errno; returns status. */
qs_status qsi_fail(qs_error *error, qs_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for a failed system call: keeps os_errno and appends strerror. */
qs_status qsi_fail_errno(qs_error *error, qs_status status, int os_errno, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* QS_ECORRUPT with the file's name and the offset of the damage, which are in the text, too. */
qs_status qsi_fail_corrupt(qs_error *error, const char *path, uint64_t offset, const char *format,
                           ...) __attribute__((format(printf, 4, 5)));

/* QS_ESTORE_LOCKED: the process that has the store at path open, if known, and advice. */
qs_status qsi_fail_owned(qs_error *error, uint64_t pid, const char *path, const char *advice);

/* For jobs that write: changes QS_EIO of a read to QS_ECORRUPT, with the file's name, so that
 * QS_EIO is only for writes and syncs.  Other statuses do not change. */
qs_status qsi_fail_unread(qs_error *error, qs_status status, const char *path);

/* For a file that could not be created, written or opened: puts its name in front of the text, and
 * changes QS_ENOSPC to QS_ESTORE_FULL.  Returns the status. */
qs_status qsi_fail_file(qs_error *error, qs_status status, const char *path);

/* Puts "words: " in front of the text; status, errno, path and offset do not change. */
void qsi_error_prefix(qs_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Sets the path of the error; the text does not change. */
void qsi_error_set_path(qs_error *error, const char *path);

#endif
