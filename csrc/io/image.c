/* File content as a shared table of shared 4 KiB pages, both copied on write.
 *
 * Invariants: a table or page with more than one reference is never written; bytes of a page after
 * the end of the image are zeros, so extending an image only changes its size.  Only the holder of
 * a reference can add another one, so a count of 1 seen by its holder stays 1. */
#include "image.h"

#include "alloc.h"
#include "check.h"

#include <string.h>

#define PAGE_BYTES QSI_IMAGE_PAGE
#define PAGE_COUNT_MIN 4

struct image_page {
    uint32_t refs;
    uint8_t data[PAGE_BYTES];
};

struct qsi_image_table {
    uint32_t refs;
    size_t page_count;
    struct image_page *pages[]; /* NULL: zeros */
};

static void add_ref(uint32_t *refs)
{
    QS_DCHECK(__atomic_load_n(refs, __ATOMIC_RELAXED) > 0);
    __atomic_fetch_add(refs, 1, __ATOMIC_RELAXED);
}

static bool drop_ref(uint32_t *refs)
{
    QS_DCHECK(__atomic_load_n(refs, __ATOMIC_RELAXED) > 0);
    return __atomic_fetch_sub(refs, 1, __ATOMIC_ACQ_REL) == 1;
}

static bool is_shared(const uint32_t *refs)
{
    QS_DCHECK(__atomic_load_n(refs, __ATOMIC_RELAXED) > 0);
    return __atomic_load_n(refs, __ATOMIC_ACQUIRE) != 1;
}

static void unref_page(struct image_page *page)
{
    if (page != NULL && drop_ref(&page->refs)) {
        qsi_free(page);
    }
}

static void unref_table(struct qsi_image_table *table)
{
    if (table == NULL || !drop_ref(&table->refs)) {
        return;
    }
    for (size_t i = 0; i < table->page_count; i++) {
        unref_page(table->pages[i]);
    }
    qsi_free(table);
}

void qsi_image_fini(struct qsi_image *image)
{
    unref_table(image->table);
    *image = (struct qsi_image){0};
}

void qsi_image_assign(struct qsi_image *image, const struct qsi_image *source)
{
    if (source->table != NULL) {
        add_ref(&source->table->refs);
    }
    unref_table(image->table);
    *image = *source;
}

/* Gives the image a table of its own with room for page_count pages. */
static qs_status own_table(struct qsi_image *image, size_t page_count)
{
    struct qsi_image_table *old = image->table;
    struct qsi_image_table *table;
    size_t old_count = old != NULL ? old->page_count : 0;

    if (old != NULL && page_count <= old_count && !is_shared(&old->refs)) {
        return QS_OK;
    }
    if (page_count <= old_count) {
        page_count = old_count;
    } else if (page_count < old_count + old_count / 2 + PAGE_COUNT_MIN) {
        page_count = old_count + old_count / 2 + PAGE_COUNT_MIN; /* room for further appends */
    }
    if (page_count > (SIZE_MAX - sizeof *table) / sizeof table->pages[0]) {
        return QS_ENOMEM;
    }
    table = qsi_zalloc(sizeof *table + page_count * sizeof table->pages[0]);
    if (table == NULL) {
        return QS_ENOMEM;
    }
    QS_DCHECK(page_count >= old_count);
    table->refs = 1;
    table->page_count = page_count;
    for (size_t i = 0; i < old_count; i++) {
        table->pages[i] = old->pages[i];
        if (table->pages[i] != NULL) {
            add_ref(&table->pages[i]->refs);
        }
    }
    unref_table(old);
    image->table = table;
    return QS_OK;
}

/* Gives the table a page of its own, for writing.  REQUIRES that the image owns the table. */
static qs_status own_page(struct qsi_image_table *table, size_t index, uint8_t **data_out)
{
    struct image_page *old = table->pages[index];
    struct image_page *page = old;

    QS_DCHECK(index < table->page_count && !is_shared(&table->refs));
    if (old == NULL || is_shared(&old->refs)) {
        page = qsi_alloc(sizeof *page);
        if (page == NULL) {
            return QS_ENOMEM;
        }
        page->refs = 1;
        if (old != NULL) {
            memcpy(page->data, old->data, PAGE_BYTES);
        } else {
            memset(page->data, 0, PAGE_BYTES);
        }
        unref_page(old);
        table->pages[index] = page;
    }
    QS_DCHECK(!is_shared(&page->refs));
    *data_out = page->data;
    return QS_OK;
}

/* A comparison of memory with itself, shifted by one byte, is a fast test whether all bytes equal
 * the first. */
bool qsi_is_zero(const void *data, size_t bytes)
{
    const uint8_t *first = data;

    return bytes == 0 || (first[0] == 0 && memcmp(first, first + 1, bytes - 1) == 0);
}

static qs_status write_in_page(struct qsi_image_table *table, size_t index, const uint8_t *data,
                               size_t bytes, size_t start)
{
    uint8_t *page;

    QS_DCHECK(start + bytes <= PAGE_BYTES && index < table->page_count);
    if (table->pages[index] == NULL && (data == NULL || qsi_is_zero(data, bytes))) {
        return QS_OK;
    }
    if (data == NULL && bytes == PAGE_BYTES) {
        unref_page(table->pages[index]);
        table->pages[index] = NULL;
        return QS_OK;
    }
    QS_TRY(own_page(table, index, &page));
    if (data != NULL) {
        memcpy(page + start, data, bytes);
    } else {
        memset(page + start, 0, bytes);
    }
    return QS_OK;
}

/* Whether [first, end) has no pages: then writing zeros needs no table of its own. */
static bool is_hole(const struct qsi_image *image, uint64_t first, uint64_t end)
{
    uint64_t page_count = image->table != NULL ? image->table->page_count : 0;
    uint64_t end_page = end / PAGE_BYTES + (end % PAGE_BYTES != 0);

    QS_DCHECK(first <= end);
    if (end_page > page_count) {
        end_page = page_count;
    }
    for (uint64_t i = first / PAGE_BYTES; i < end_page; i++) {
        if (image->table->pages[i] != NULL) {
            return false;
        }
    }
    return true;
}

static qs_status write_pages(struct qsi_image *image, const uint8_t *data, size_t bytes,
                             uint64_t offset)
{
    QS_TRY(own_table(image, (size_t)((offset + bytes - 1) / PAGE_BYTES) + 1));
    while (bytes > 0) {
        size_t start = (size_t)(offset % PAGE_BYTES);
        size_t count = bytes < PAGE_BYTES - start ? bytes : PAGE_BYTES - start;

        QS_TRY(write_in_page(image->table, (size_t)(offset / PAGE_BYTES), data, count, start));
        data = data != NULL ? data + count : NULL;
        offset += count;
        bytes -= count;
    }
    return QS_OK;
}

qs_status qsi_image_write(struct qsi_image *image, const void *data, size_t bytes, uint64_t offset)
{
    uint64_t end;

    if (bytes == 0) {
        return QS_OK;
    }
    if (qsi_add_overflows(offset, bytes, &end)) {
        return QS_ENOMEM;
    }
    if (data != NULL || !is_hole(image, offset, end)) {
        QS_TRY(write_pages(image, data, bytes, offset));
    }
    if (end > image->bytes) {
        image->bytes = end;
    }
    return QS_OK;
}

/* REQUIRES that [offset, offset + bytes) is in one page. */
static void read_page(const struct qsi_image *image, uint8_t *data, size_t bytes, uint64_t offset)
{
    uint64_t index = offset / PAGE_BYTES;
    const struct image_page *page = NULL;

    QS_DCHECK(offset % PAGE_BYTES + bytes <= PAGE_BYTES);
    if (image->table != NULL && index < image->table->page_count) {
        page = image->table->pages[index];
    }
    if (page != NULL) {
        memcpy(data, page->data + offset % PAGE_BYTES, bytes);
    } else {
        memset(data, 0, bytes);
    }
}

size_t qsi_image_read(const struct qsi_image *image, void *data, size_t bytes, uint64_t offset)
{
    uint8_t *next = data;
    size_t left;

    if (offset >= image->bytes) {
        return 0;
    }
    if (bytes > image->bytes - offset) {
        bytes = (size_t)(image->bytes - offset);
    }
    for (left = bytes; left > 0;) {
        size_t room = PAGE_BYTES - (size_t)(offset % PAGE_BYTES);
        size_t count = left < room ? left : room;

        read_page(image, next, count, offset);
        next += count;
        offset += count;
        left -= count;
    }
    return bytes;
}

uint64_t qsi_image_pages(const struct qsi_image *image, uint64_t first)
{
    uint64_t count = 0;

    for (uint64_t i = first / PAGE_BYTES; image->table != NULL && i < image->table->page_count;
         i++) {
        count += image->table->pages[i] != NULL ? 1 : 0;
    }
    return count;
}

/* Zeros all bytes from bytes on, so that they are zeros if the image grows again. */
static qs_status clear_tail(struct qsi_image *image, uint64_t bytes)
{
    size_t start = (size_t)(bytes % PAGE_BYTES);
    size_t first = (size_t)(bytes / PAGE_BYTES);

    QS_DCHECK(bytes <= image->bytes);
    if (is_hole(image, bytes, UINT64_MAX)) {
        return QS_OK;
    }
    QS_TRY(own_table(image, 0));
    if (start != 0) {
        QS_TRY(write_in_page(image->table, first, NULL, PAGE_BYTES - start, start));
        first++;
    }
    for (size_t i = first; i < image->table->page_count; i++) {
        unref_page(image->table->pages[i]);
        image->table->pages[i] = NULL;
    }
    return QS_OK;
}

qs_status qsi_image_resize(struct qsi_image *image, uint64_t bytes)
{
    if (bytes < image->bytes) {
        QS_TRY(clear_tail(image, bytes));
    }
    image->bytes = bytes;
    return QS_OK;
}
