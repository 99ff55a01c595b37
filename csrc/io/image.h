/* The contents of one file in RAM.  Copies share their pages until one of them writes, and pages of
 * zeros take no memory: copying a file costs the same whatever its size.  Zeroed memory is an empty
 * file.
 *
 * Threads: images that share pages may be used by different threads, one image by one thread at a
 * time. */
#ifndef QSI_IMAGE_H
#define QSI_IMAGE_H

#include "qstore/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QSI_IMAGE_PAGE 4096u

struct qsi_image_table;
struct qsi_image {
    struct qsi_image_table *table; /* NULL: all zeros */
    uint64_t bytes;
};
void qsi_image_fini(struct qsi_image *image);

/* Makes image equal to source; never fails. */
void qsi_image_assign(struct qsi_image *image, const struct qsi_image *source);

/* data NULL writes zeros.  Extends the image where needed; after QS_ENOMEM a part may be
 * written. */
qs_status qsi_image_write(struct qsi_image *image, const void *data, size_t bytes,
                          uint64_t offset) QS_MUST_CHECK;

/* How many bytes there were to read: fewer than asked for at the end. */
size_t qsi_image_read(const struct qsi_image *image, void *data, size_t bytes, uint64_t offset);

/* Pages from the one with the byte `first` on that hold anything but zeros. */
uint64_t qsi_image_pages(const struct qsi_image *image, uint64_t first);

/* New bytes are zeros.  Unchanged on QS_ENOMEM. */
qs_status qsi_image_resize(struct qsi_image *image, uint64_t bytes) QS_MUST_CHECK;
bool qsi_is_zero(const void *data, size_t bytes);

#endif
