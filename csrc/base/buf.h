/* A growable byte buffer.  Zeroed memory is an empty one. */
#ifndef QSI_BUF_H
#define QSI_BUF_H

#include "qstore/status.h"

#include <stddef.h>
#include <stdint.h>

struct qsi_buf {
    uint8_t *data;
    size_t bytes;    /* in use */
    size_t capacity; /* allocated */
};
void qsi_buf_fini(struct qsi_buf *buf);

/* Makes room for bytes more after the used ones; *room_out points to it, buf->bytes is
 * unchanged. */
qs_status qsi_buf_reserve(struct qsi_buf *buf, size_t bytes, uint8_t **room_out) QS_MUST_CHECK;
qs_status qsi_buf_append(struct qsi_buf *buf, const void *data, size_t bytes) QS_MUST_CHECK;
static inline void qsi_buf_clear(struct qsi_buf *buf)
{
    buf->bytes = 0;
}

#endif
