/* The growable byte buffer.
 *
 * Invariant: bytes <= capacity, and a failed growth leaves contents and capacity unchanged. */
#include "buf.h"

#include "alloc.h"
#include "check.h"

#include <string.h>

#define CAPACITY_MIN 64

void qsi_buf_fini(struct qsi_buf *buf)
{
    if (buf == NULL) {
        return;
    }
    qsi_free(buf->data);
    *buf = (struct qsi_buf){0};
}

/* Doubling makes n appends cost O(n). */
static size_t grown_capacity(size_t capacity, size_t needed)
{
    size_t doubled = capacity <= SIZE_MAX / 2 ? capacity * 2 : SIZE_MAX;
    size_t grown = doubled > needed ? doubled : needed;

    return grown > CAPACITY_MIN ? grown : CAPACITY_MIN;
}

static qs_status grow(struct qsi_buf *buf, size_t needed)
{
    size_t capacity = grown_capacity(buf->capacity, needed);
    uint8_t *data = qsi_realloc(buf->data, capacity);

    QS_DCHECK(needed > buf->capacity || buf->data == NULL);
    if (data == NULL) {
        return QS_ENOMEM;
    }
    buf->data = data;
    buf->capacity = capacity;
    return QS_OK;
}

qs_status qsi_buf_reserve(struct qsi_buf *buf, size_t bytes, uint8_t **room_out)
{
    QS_DCHECK(buf->bytes <= buf->capacity);
    if (bytes > SIZE_MAX - buf->bytes) {
        return QS_ENOMEM;
    }
    /* A buffer that was never grown has no memory to point to, even for 0 bytes. */
    if (bytes > buf->capacity - buf->bytes || buf->data == NULL) {
        QS_TRY(grow(buf, buf->bytes + bytes));
    }
    *room_out = buf->data + buf->bytes;
    return QS_OK;
}

qs_status qsi_buf_append(struct qsi_buf *buf, const void *data, size_t bytes)
{
    uint8_t *room;

    if (bytes == 0) {
        return QS_OK; /* data may be NULL then, which memcpy does not allow */
    }
    QS_TRY(qsi_buf_reserve(buf, bytes, &room));
    memcpy(room, data, bytes);
    buf->bytes += bytes;
    return QS_OK;
}
