/* Borrowed bytes.  A null slice (data NULL) is "absent"; an empty one has data and no bytes. */
#ifndef QSI_SLICE_H
#define QSI_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct qsi_slice {
    const uint8_t *data;
    uint32_t bytes;
};

#define QSI_SLICE_NULL ((struct qsi_slice){NULL, 0})

/* The bytes of a string literal. */
#define QSI_SLICE_LITERAL(text) ((struct qsi_slice){(const uint8_t *)(text), sizeof(text) - 1})

static inline struct qsi_slice qsi_slice_make(const void *data, uint32_t bytes)
{
    return (struct qsi_slice){data, bytes};
}

static inline bool qsi_slice_is_null(struct qsi_slice slice)
{
    return slice.data == NULL;
}

/* memcpy for short strings.  If GCC knows that a size is at most a few hundred bytes, it turns
 * memcpy into "rep movs", whose start alone takes longer than this copy.  The last piece overlaps
 * the one before. */
static inline void qsi_copy_short(uint8_t *out, const uint8_t *data, uint32_t bytes)
{
    if (bytes >= 16) {
        for (uint32_t at = 0; at < bytes - 16; at += 16) {
            memcpy(out + at, data + at, 16);
        }
        memcpy(out + bytes - 16, data + bytes - 16, 16);
    } else if (bytes >= 8) {
        memcpy(out, data, 8);
        memcpy(out + bytes - 8, data + bytes - 8, 8);
    } else if (bytes >= 4) {
        memcpy(out, data, 4);
        memcpy(out + bytes - 4, data + bytes - 4, 4);
    } else {
        for (uint32_t at = 0; at < bytes; at++) {
            out[at] = data[at];
        }
    }
}

/* Writes the bytes at out; returns their end. */
static inline uint8_t *qsi_slice_put(uint8_t *out, struct qsi_slice slice)
{
    if (slice.bytes > 0) {
        memcpy(out, slice.data, slice.bytes);
    }
    return out + slice.bytes;
}

/* Orders by bytes; a prefix comes first. */
static inline int qsi_slice_compare(struct qsi_slice a, struct qsi_slice b)
{
    uint32_t shorter = a.bytes < b.bytes ? a.bytes : b.bytes;
    int order = shorter > 0 ? memcmp(a.data, b.data, shorter) : 0;

    return order != 0 ? order : (a.bytes > b.bytes) - (a.bytes < b.bytes);
}

/* Byte-wise equality; a null slice equals only a null slice. */
static inline bool qsi_slice_equals(struct qsi_slice a, struct qsi_slice b)
{
    if (a.data == NULL || b.data == NULL) {
        return a.data == b.data;
    }
    return a.bytes == b.bytes && memcmp(a.data, b.data, a.bytes) == 0;
}

#endif
