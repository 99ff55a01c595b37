/* The content of one file in memory.  Copies share their pages until one of them writes, and pages
 * of zeros take no memory, so copying a file costs the same for every size.  Zeroed memory is an
 * empty file.
 *
 * Threads: images that share pages may be used by different threads, but each image by one thread
 * at a time. */
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

/* Writes data; NULL writes zeros.  Extends the image if needed; after QS_ENOMEM a part may be
 * written. */
qs_status qsi_image_write(struct qsi_image *image, const void *data, size_t bytes,
                          uint64_t offset) QS_MUST_CHECK;

/* Returns the number of bytes read: less than bytes at the end of the file. */
size_t qsi_image_read(const struct qsi_image *image, void *data, size_t bytes, uint64_t offset);

/* The number of pages that are not only zeros, from the page of the byte `first` on. */
uint64_t qsi_image_pages(const struct qsi_image *image, uint64_t first);

/* Sets the size; new bytes are zeros.  QS_ENOMEM: nothing changed. */
qs_status qsi_image_resize(struct qsi_image *image, uint64_t bytes) QS_MUST_CHECK;
bool qsi_is_zero(const void *data, size_t bytes);

#endif
