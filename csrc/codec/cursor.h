/* Inside the codec floor: reading and writing AMQP's strings.  Invariant: a cursor's `at` is never
 * above its `end`, and every length is compared with the remaining bytes before it is used. */
#ifndef QSI_CURSOR_H
#define QSI_CURSOR_H

#include "check.h"
#include "le.h"
#include "slice.h"

#include <stdbool.h>
#include <string.h>

struct qsi_cursor {
    const uint8_t *at;
    const uint8_t *end;
};

static inline size_t qsi_cursor_left(const struct qsi_cursor *cursor)
{
    return (size_t)(cursor->end - cursor->at);
}

/* The next bytes; NULL: there are fewer. */
static inline const uint8_t *qsi_take(struct qsi_cursor *cursor, size_t bytes)
{
    const uint8_t *taken = cursor->at;

    if (qsi_cursor_left(cursor) < bytes) {
        return NULL;
    }
    cursor->at += bytes;
    return taken;
}

static inline bool qsi_take_short_string(struct qsi_cursor *cursor, struct qsi_slice *string_out)
{
    const uint8_t *length = qsi_take(cursor, 1);
    const uint8_t *data = length == NULL ? NULL : qsi_take(cursor, *length);

    if (data == NULL) {
        return false;
    }
    *string_out = qsi_slice_make(data, *length);
    return true;
}

/* The bytes after a 32-bit length: long strings, tables, arrays. */
static inline bool qsi_take_long_string(struct qsi_cursor *cursor, struct qsi_slice *string_out)
{
    const uint8_t *length = qsi_take(cursor, 4);
    const uint8_t *data = length == NULL ? NULL : qsi_take(cursor, qsi_get_be32(length));

    if (data == NULL) {
        return false;
    }
    *string_out = qsi_slice_make(data, qsi_get_be32(length));
    return true;
}

static inline uint8_t *qsi_put_bytes(uint8_t *out, struct qsi_slice bytes)
{
    qsi_copy_short(out, bytes.data, bytes.bytes);
    return out + bytes.bytes;
}

static inline uint8_t *qsi_put_short_string(uint8_t *out, struct qsi_slice string)
{
    QS_ASSERT(string.bytes <= UINT8_MAX);
    *out = (uint8_t)string.bytes;
    return qsi_put_bytes(out + 1, string);
}

#endif
