/* Filling in a qs_error.  Every function takes error == NULL. */
#ifndef QSI_ERROR_H
#define QSI_ERROR_H

#include "qstore/status.h"

#include <stdbool.h>

/* Memory, space or descriptors were short: the call that says so did nothing, and may go well
 * another time. */
static inline bool qsi_is_shortage(qs_status status)
{
    return status == QS_ENOMEM || status == QS_ENOSPC || status == QS_ESTORE_FULL ||
           status == QS_EMFILE;
}

static inline bool qsi_is_full(qs_status status)
{
    return status == QS_ENOSPC || status == QS_ESTORE_FULL;
}

/* Of a call that read: what it wanted is damaged, or on a bad place of the disk.  Readers are told
 * of that, and whatever else can be read is not held up. */
static inline bool qsi_is_unreadable(qs_status status)
{
    return status == QS_ECORRUPT || status == QS_EIO;
}

/* A file is damaged, gone, or of another version: a new one may serve in its place. */
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

/* QS_ECORRUPT with the file's name and the offset of the damage; both also stand in the text. */
qs_status qsi_fail_corrupt(qs_error *error, const char *path, uint64_t offset, const char *format,
                           ...) __attribute__((format(printf, 4, 5)));

/* QS_ESTORE_LOCKED: who has the store at path open, if that is known, and what to do. */
qs_status qsi_fail_owned(qs_error *error, uint64_t pid, const char *path, const char *advice);

/* For jobs that write: what is there and cannot be read, QS_EIO, is damage to it, QS_ECORRUPT, with
 * the file's name.  So QS_EIO is left to writes and syncs.  Any other status stays. */
qs_status qsi_fail_unread(qs_error *error, qs_status status, const char *path);

/* Of a file that could not be made, written or opened: its name stands before the text, and
 * QS_ENOSPC becomes QS_ESTORE_FULL.  Returns the status. */
qs_status qsi_fail_file(qs_error *error, qs_status status, const char *path);

/* Puts "words: " before the text that is there; status, errno, path and offset stay. */
void qsi_error_prefix(qs_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Names the file that the error is about; the text stays. */
void qsi_error_set_path(qs_error *error, const char *path);

#endif
