/* Creating a key file: pages in order, then the filter and the header, which make the file
 * valid. */
#include "qstore/codec.h"

#include "alloc.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "key_file.h"

#include <string.h>

#define PAGES 8u              /* written at once */
#define FILTER_BYTES_MIN 512u /* a filter has 8 to 16 bits for each key */

static qs_status blame(const struct qsi_key_writer *writer, qs_status status, qs_error *error)
{
    char path[QSI_KEY_PATH_BYTES];

    qsi_key_file_path(path, writer->made.header.number);
    qsi_error_prefix(error, "%s", path);
    return status;
}

static uint64_t filter_bytes(const struct qsi_key_dir *dir, uint64_t keys)
{
    uint64_t bytes = FILTER_BYTES_MIN;

    while (bytes < keys && bytes < dir->filter_bytes_max) {
        bytes *= 2;
    }
    QS_DCHECK((bytes & (bytes - 1)) == 0);
    return bytes;
}

static uint8_t *page_at(const struct qsi_key_writer *writer)
{
    QS_DCHECK(writer->page < PAGES);
    return writer->pages + (size_t)writer->page * QSI_KEY_PAGE_BYTES;
}

static qs_status make_file(struct qsi_key_writer *writer, qs_error *error)
{
    const struct qsi_key_dir *dir = writer->dir;
    char name[QSI_KEY_NAME_BYTES];
    qs_status status;

    QS_ASSERT(writer->handle == NULL && !writer->has_name);
    qsi_key_file_name(name, writer->made.header.number);
    /* A file that was begun and never finished may have the name. */
    status = qsi_env_remove(dir->env, dir->dir, name, error);
    if (status != QS_OK && status != QS_ENOENT) {
        return blame(writer, status, error);
    }
    status = qsi_env_open(dir->env, dir->dir, name, QS_OPEN_WRITE | QS_OPEN_CREATE_NEW,
                          &writer->handle, error);
    if (status == QS_ENOENT) {
        char path[QSI_KEY_PATH_BYTES];
        qsi_key_file_path(path, writer->made.header.number);
        return qsi_fail_corrupt(error, path, 0, "it cannot be made: the directory is missing");
    }
    if (status != QS_OK) {
        return blame(writer, status, error);
    }
    writer->has_name = true;
    return QS_OK;
}

qs_status qsi_key_writer_begin(struct qsi_key_writer *writer, const struct qsi_key_dir *dir,
                               uint64_t number, uint64_t keys_max, qs_error *error)
{
    struct qsi_key_header *header = &writer->made.header;
    qs_status status;

    QS_ASSERT(number > 0 && number <= UINT32_MAX); /* its name has ten digits */
    *writer = (struct qsi_key_writer){.dir = dir};
    header->number = number;
    header->filter_bytes = writer->made.filter_bytes = filter_bytes(dir, keys_max);
    writer->made.filter = qsi_zalloc(writer->made.filter_bytes);
    writer->pages = qsi_alloc((size_t)PAGES * QSI_KEY_PAGE_BYTES);
    if (writer->made.filter == NULL || writer->pages == NULL) {
        qsi_key_writer_fini(writer);
        return qsi_fail(error, QS_ENOMEM, "file of transaction keys");
    }
    qsi_key_page_begin(writer->pages);
    status = qsi_env_random(dir->env, &header->salt, sizeof header->salt, error);
    if (status == QS_OK) {
        status = make_file(writer, error);
    }
    if (status != QS_OK) {
        qsi_key_writer_fini(writer);
    }
    return status;
}

/* Writes the finished pages of the buffer. */
static qs_status write_pages(struct qsi_key_writer *writer, qs_error *error)
{
    struct qsi_key_header *header = &writer->made.header;
    qs_part part = {writer->pages, (size_t)writer->page * QSI_KEY_PAGE_BYTES};
    uint64_t offset = qsi_key_pages_at(header->filter_bytes) +
                      (header->page_count - writer->page) * QSI_KEY_PAGE_BYTES;
    qs_status status;

    QS_ASSERT(writer->page <= PAGES && writer->page <= header->page_count);
    if (writer->page == 0) {
        return QS_OK;
    }
    status = qsi_file_write(writer->dir->env, writer->handle, &part, 1, offset, error);
    writer->page = 0;
    return status == QS_OK ? QS_OK : blame(writer, status, error);
}

static qs_status end_page(struct qsi_key_writer *writer, qs_error *error)
{
    struct qsi_key_header *header = &writer->made.header;

    QS_DCHECK(writer->page < PAGES);
    qsi_key_page_end(page_at(writer), header->salt, header->page_count);
    header->page_count += 1;
    writer->page += 1;
    return writer->page == PAGES ? write_pages(writer, error) : QS_OK;
}

qs_status qsi_key_writer_add(struct qsi_key_writer *writer, const struct qsi_key *key,
                             qs_error *error)
{
    QS_ASSERT(writer->made.header.key_count == 0 || writer->last_hash <= key->hash);
    if (!qsi_key_page_add(page_at(writer), key)) {
        QS_TRY(end_page(writer, error));
        qsi_key_page_begin(page_at(writer));
        if (!qsi_key_page_add(page_at(writer), key)) {
            QS_ASSERT(false); /* an empty page has room for any key */
        }
    }
    qsi_key_filter_add(writer->made.filter, writer->made.filter_bytes, key->hash);
    writer->made.header.key_count += 1;
    writer->last_hash = key->hash;
    return QS_OK;
}

static qs_status write_head(struct qsi_key_writer *writer, qs_error *error)
{
    static const uint8_t zeros[QSI_KEY_PAGE_BYTES];
    struct qsi_key_header *header = &writer->made.header;
    uint8_t head[QSI_KEY_PAGE_BYTES];
    size_t padding = (size_t)(qsi_key_pages_at(header->filter_bytes) - QSI_KEY_PAGE_BYTES -
                              header->filter_bytes);
    qs_part parts[3] = {
        {head, sizeof head}, {writer->made.filter, (size_t)header->filter_bytes}, {zeros, padding}};

    QS_DCHECK(writer->page == 0 && header->filter_bytes == writer->made.filter_bytes);
    header->filter_crc = qs_crc32c(0, writer->made.filter, (size_t)header->filter_bytes);
    writer->made.header_crc = qsi_key_header_encode(head, header, writer->dir->uuid);
    return qsi_file_write(writer->dir->env, writer->handle, parts, padding > 0 ? 3 : 2, 0, error);
}

qs_status qsi_key_writer_end(struct qsi_key_writer *writer, bool sync,
                             struct qsi_key_file *file_out, qs_error *error)
{
    qs_status status;

    QS_ASSERT(writer->made.header.key_count > 0);
    QS_TRY(end_page(writer, error));
    QS_TRY(write_pages(writer, error));
    status = write_head(writer, error);
    if (status == QS_OK && sync) {
        status = qsi_file_sync_new(writer->dir->env, writer->handle, error);
    }
    if (status != QS_OK) {
        return blame(writer, status, error);
    }
    writer->has_name = false;
    *file_out = writer->made;
    writer->made.filter = NULL;
    return QS_OK;
}

void qsi_key_writer_fini(struct qsi_key_writer *writer)
{
    const struct qsi_key_dir *dir = writer->dir;

    if (dir != NULL) {
        dir->env->close(dir->env, writer->handle);
        if (writer->has_name) {
            char name[QSI_KEY_NAME_BYTES];
            qsi_key_file_name(name, writer->made.header.number);
            /* Otherwise the next open removes it. */
            (void)!qsi_env_remove(dir->env, dir->dir, name, NULL);
        }
    }
    qsi_key_file_fini(&writer->made);
    qsi_free(writer->pages);
    *writer = (struct qsi_key_writer){0};
}
