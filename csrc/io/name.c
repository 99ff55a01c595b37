/* Checks of names and flags.  A name that passes cannot leave its directory. */
#include "name.h"

#include "error.h"

#include <string.h>

qs_status qsi_name_check(const char *name, qs_error *error)
{
    size_t bytes = strlen(name);

    if (bytes == 0 || bytes > QS_NAME_BYTES_MAX) {
        return qsi_fail(error, QS_EINVAL, "file name '%s' must have 1 to %d bytes", name,
                        QS_NAME_BYTES_MAX);
    }
    if (strchr(name, '/') != NULL || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        return qsi_fail(error, QS_EINVAL, "file name '%s' would leave its directory", name);
    }
    return QS_OK;
}

qs_status qsi_open_flags_check(uint32_t flags, const char *name, qs_error *error)
{
    switch (flags) {
    case QS_OPEN_READ:
    case QS_OPEN_READ | QS_OPEN_LINKED:
    case QS_OPEN_WRITE:
    case QS_OPEN_WRITE | QS_OPEN_READ:
    case QS_OPEN_WRITE | QS_OPEN_CREATE_NEW:
    case QS_OPEN_WRITE | QS_OPEN_READ | QS_OPEN_CREATE_NEW:
        return QS_OK;
    default:
        return qsi_fail(error, QS_EINVAL, "open '%s': flags %#x make no sense", name,
                        (unsigned)flags);
    }
}

bool qsi_name_number(const char *name, const char *ending, uint64_t *number_out)
{
    uint64_t number = 0;

    for (int i = 0; i < 10; i++) {
        if (name[i] < '0' || name[i] > '9') {
            return false;
        }
        number = number * 10 + (uint64_t)(name[i] - '0');
    }
    *number_out = number;
    return number <= UINT32_MAX && strcmp(name + 10, ending) == 0;
}

const char *qsi_name_hex(const char *at, uint64_t *value_out)
{
    uint64_t value = 0;

    for (int i = 0; i < 16; i++, at++) {
        if (*at >= '0' && *at <= '9') {
            value = value << 4 | (uint64_t)(*at - '0');
        } else if (*at >= 'a' && *at <= 'f') {
            value = value << 4 | (uint64_t)(*at - 'a' + 10);
        } else {
            break;
        }
    }
    *value_out = value;
    return at;
}
