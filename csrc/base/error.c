/* Text of a qs_error.
 *
 * Invariant: text and path are NUL-terminated for all arguments; text that does not fit is cut at
 * its end.  New text is built in a separate buffer first, because an argument may point into the
 * error itself. */
#undef _GNU_SOURCE /* for POSIX's strerror_r */
#define _POSIX_C_SOURCE 200809L
#include "error.h"

#include "check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Longest strerror text in any locale, with room to spare. */
#define ERRNO_TEXT_BYTES 128

static void set_error(qs_error *error, qs_status status, int os_errno, const char *text)
{
    error->status = status;
    error->os_errno = os_errno;
    error->offset = 0;
    error->pid = 0;
    error->path[0] = '\0';
    memcpy(error->text, text, strlen(text) + 1);
}

/* Appends to text, which is an array of QS_ERROR_TEXT_BYTES. */
static void append_text(char *text, const char *more)
{
    size_t bytes = strlen(text);

    snprintf(text + bytes, QS_ERROR_TEXT_BYTES - bytes, "%s", more);
}

qs_status qsi_fail(qs_error *error, qs_status status, const char *format, ...)
{
    char text[QS_ERROR_TEXT_BYTES];
    va_list arguments;

    QS_ASSERT(status != QS_OK);
    if (error == NULL) {
        return status;
    }
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    set_error(error, status, 0, text);
    return status;
}

qs_status qsi_fail_owned(qs_error *error, uint64_t pid, const char *path, const char *advice)
{
    char process[32] = "another process";

    if (pid != 0) {
        snprintf(process, sizeof process, "process %" PRIu64, pid);
    }
    qsi_fail(error, QS_ESTORE_LOCKED, "%s is open in %s: %s", path, process, advice);
    if (error != NULL) {
        error->pid = pid;
    }
    return QS_ESTORE_LOCKED;
}

qs_status qsi_fail_errno(qs_error *error, qs_status status, int os_errno, const char *format, ...)
{
    char text[QS_ERROR_TEXT_BYTES];
    char reason[ERRNO_TEXT_BYTES];
    va_list arguments;

    QS_ASSERT(status != QS_OK);
    if (error == NULL) {
        return status;
    }
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (strerror_r(os_errno, reason, sizeof reason) != 0) {
        snprintf(reason, sizeof reason, "errno %d", os_errno);
    }
    append_text(text, ": ");
    append_text(text, reason);
    set_error(error, status, os_errno, text);
    return status;
}

qs_status qsi_fail_corrupt(qs_error *error, const char *path, uint64_t offset, const char *format,
                           ...)
{
    char file[QS_ERROR_PATH_BYTES];
    char words[QS_ERROR_TEXT_BYTES];
    char text[QS_ERROR_TEXT_BYTES];
    va_list arguments;

    if (error == NULL) {
        return QS_ECORRUPT;
    }
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    snprintf(file, sizeof file, "%s", path);
    /* The offset comes first, so that a long text cannot cut it off. */
    snprintf(text, sizeof text, "'%s' at offset %" PRIu64 ": ", file, offset);
    append_text(text, words);
    set_error(error, QS_ECORRUPT, 0, text);
    memcpy(error->path, file, strlen(file) + 1);
    error->offset = offset;
    return QS_ECORRUPT;
}

qs_status qsi_fail_unread(qs_error *error, qs_status status, const char *path)
{
    if (status != QS_EIO) {
        return status;
    }
    if (error != NULL) {
        error->status = QS_ECORRUPT;
        qsi_error_set_path(error, path);
    }
    return QS_ECORRUPT;
}

qs_status qsi_fail_file(qs_error *error, qs_status status, const char *path)
{
    qsi_error_prefix(error, "%s", path);
    if (status != QS_ENOSPC) {
        return status;
    }
    if (error != NULL) {
        error->status = QS_ESTORE_FULL;
    }
    return QS_ESTORE_FULL;
}

void qsi_error_set_path(qs_error *error, const char *path)
{
    if (error != NULL) {
        snprintf(error->path, sizeof error->path, "%s", path);
    }
}

void qsi_error_prefix(qs_error *error, const char *format, ...)
{
    char text[QS_ERROR_TEXT_BYTES];
    va_list arguments;

    if (error == NULL) {
        return;
    }
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    append_text(text, ": ");
    append_text(text, error->text);
    memcpy(error->text, text, strlen(text) + 1);
}
