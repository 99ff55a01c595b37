/* Reading key files.
 *
 * Invariant: a page is used only after its checksum, its salt and its number were checked. */
#include "key_file.h"

#include "qstore/codec.h"

#include "alloc.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"

#include <string.h>

#define PAGES 8u /* read at once */
#define INTERPOLATIONS 6

static qs_status blame(uint64_t number, qs_status status, qs_error *error)
{
    char path[QSI_KEY_PATH_BYTES];

    qsi_key_file_path(path, number);
    if (status != QS_ECORRUPT) {
        qsi_error_prefix(error, "%s", path);
    }
    return status;
}

static qs_status fail_damaged(uint64_t number, uint64_t offset, const char *what, qs_error *error)
{
    char path[QSI_KEY_PATH_BYTES];

    qsi_key_file_path(path, number);
    return qsi_fail_corrupt(error, path, offset, "%s", what);
}

static qs_status open_file(const struct qsi_key_dir *dir, uint64_t number, qs_file **handle_out,
                           qs_error *error)
{
    char name[QSI_KEY_NAME_BYTES];
    qs_status status;

    qsi_key_file_name(name, number);
    status = qsi_env_open(dir->env, dir->dir, name, QS_OPEN_READ, handle_out, error);
    if (status == QS_ENOENT) {
        return fail_damaged(number, 0, "the file is missing", error);
    }
    return status == QS_OK ? QS_OK : blame(number, status, error);
}

static qs_status read_bytes(const struct qsi_key_dir *dir, uint64_t number, qs_file *handle,
                            void *data, size_t bytes, uint64_t offset, qs_error *error)
{
    size_t read = 0;
    qs_status status = qsi_file_read(dir->env, handle, data, bytes, offset, &read, error);

    if (status != QS_OK) {
        return blame(number, status, error);
    }
    return read == bytes
               ? QS_OK
               : fail_damaged(number, offset + read, "the file ends before its last page", error);
}

/* ---- opening ---- */

/* Loads the file's filter, folded to the size in memory: a bit is set if any of the file's bits
 * that fall on it is.  Probes are taken modulo the size, so this is correct. */
static qs_status load_filter(struct qsi_key_file *file, const struct qsi_key_dir *dir,
                             qs_file *handle, qs_error *error)
{
    uint64_t whole = file->header.filter_bytes;
    uint8_t piece[QSI_KEY_PAGE_BYTES];
    uint32_t crc = 0;

    QS_DCHECK(whole > 0 && (whole & (whole - 1)) == 0); /* the header was checked */
    file->filter_bytes = whole < dir->filter_bytes_max ? whole : dir->filter_bytes_max;
    QS_ASSERT((file->filter_bytes & (file->filter_bytes - 1)) == 0);
    file->filter = qsi_zalloc(file->filter_bytes);
    if (file->filter == NULL) {
        return qsi_fail(error, QS_ENOMEM, "filter of transaction keys");
    }
    for (uint64_t at = 0; at < whole; at += sizeof piece) {
        size_t bytes = whole - at < sizeof piece ? (size_t)(whole - at) : sizeof piece;
        QS_TRY(read_bytes(dir, file->header.number, handle, piece, bytes, QSI_KEY_PAGE_BYTES + at,
                          error));
        crc = qs_crc32c(crc, piece, bytes);
        for (size_t i = 0; i < bytes; i++) {
            file->filter[(at + i) & (file->filter_bytes - 1)] |= piece[i];
        }
    }
    return crc == file->header.filter_crc ? QS_OK
                                          : fail_damaged(file->header.number, QSI_KEY_PAGE_BYTES,
                                                         "the filter's checksum is wrong", error);
}

static qs_status load(struct qsi_key_file *file, const struct qsi_key_dir *dir, uint64_t number,
                      qs_file *handle, qs_error *error)
{
    uint8_t head[QSI_KEY_PAGE_BYTES];
    uint64_t bytes = 0;
    qs_status status;

    QS_TRY(read_bytes(dir, number, handle, head, sizeof head, 0, error));
    QS_TRY(qsi_key_header_decode(&file->header, head, number, file->header_crc, dir->uuid, error));
    status = qsi_env_size(dir->env, handle, &bytes, error);
    if (status != QS_OK) {
        return blame(number, status, error);
    }
    if (bytes != qsi_key_file_bytes(&file->header)) {
        return fail_damaged(number, bytes, "the file has another size than its header says", error);
    }
    return load_filter(file, dir, handle, error);
}

qs_status qsi_key_file_load(struct qsi_key_file *file_out, const struct qsi_key_dir *dir,
                            uint64_t number, uint32_t header_crc, qs_error *error)
{
    qs_file *handle = NULL;
    qs_status status;

    *file_out = (struct qsi_key_file){.header_crc = header_crc};
    QS_TRY(open_file(dir, number, &handle, error));
    status = load(file_out, dir, number, handle, error);
    dir->env->close(dir->env, handle);
    if (status != QS_OK) {
        qsi_key_file_fini(file_out);
    }
    return status;
}

void qsi_key_file_fini(struct qsi_key_file *file)
{
    qsi_free(file->filter);
    file->filter = NULL;
}

/* ---- one key ---- */

static qs_status read_page(const struct qsi_key_file *file, const struct qsi_key_dir *dir,
                           qs_file *handle, uint64_t number, uint8_t page[QSI_KEY_PAGE_BYTES],
                           qs_error *error)
{
    uint64_t offset = qsi_key_pages_at(file->header.filter_bytes) + number * QSI_KEY_PAGE_BYTES;

    QS_DCHECK(number < file->header.page_count);
    QS_TRY(read_bytes(dir, file->header.number, handle, page, QSI_KEY_PAGE_BYTES, offset, error));
    return qsi_key_page_check(page, file->header.salt, number)
               ? QS_OK
               : fail_damaged(file->header.number, offset, "a page of keys is damaged", error);
}

/* The position of the key: before the page (-1), after it (1), or in it, if anywhere (0). */
static int look_into(const uint8_t *page, const struct qsi_key *key, bool *has_out,
                     struct qsi_key *found_out, uint64_t *edge_out)
{
    struct qsi_key each;
    uint32_t at = 0, count = 0;
    int order = 1;

    while (qsi_key_page_next(page, &at, &each)) {
        order = qsi_key_compare(key, &each);
        *edge_out = each.hash;
        if (order == 0) {
            *has_out = true;
            *found_out = each;
            found_out->bytes = key->bytes;
            return 0;
        }
        if (order < 0) {
            return count == 0 ? -1 : 0;
        }
        count += 1;
    }
    QS_DCHECK(count > 0 && *edge_out <= key->hash); /* a checked page is not empty */
    return 1;
}

/* Guesses the page by interpolation: hashes are distributed evenly.  Adversarial keys cost no more
 * than a binary search. */
static uint64_t guess(uint64_t low, uint64_t high, uint64_t low_hash, uint64_t high_hash,
                      uint64_t hash, int turn)
{
    QS_DCHECK(low < high);
    double share;
    uint64_t page;

    if (turn >= INTERPOLATIONS || hash <= low_hash || hash >= high_hash) {
        return low + (high - low) / 2;
    }
    share = (double)(hash - low_hash) / (double)(high_hash - low_hash);
    page = low + (uint64_t)(share * (double)(high - low));
    QS_DCHECK(page >= low);
    return page < high ? page : high - 1;
}

static qs_status search(const struct qsi_key_file *file, const struct qsi_key_dir *dir,
                        qs_file *handle, const struct qsi_key *key, bool *has_out,
                        struct qsi_key *found_out, qs_error *error)
{
    uint64_t low = 0, high = file->header.page_count;
    uint64_t low_hash = 0, high_hash = UINT64_MAX;
    uint8_t page[QSI_KEY_PAGE_BYTES];

    for (int turn = 0; low < high; turn++) {
        uint64_t middle = guess(low, high, low_hash, high_hash, key->hash, turn);
        uint64_t edge = 0;
        int order;
        QS_TRY(read_page(file, dir, handle, middle, page, error));
        QS_DCHECK(low <= middle && middle < high);
        order = look_into(page, key, has_out, found_out, &edge);
        if (order == 0) {
            return QS_OK;
        }
        if (order < 0) {
            high = middle;
            high_hash = edge;
        } else {
            low = middle + 1;
            low_hash = edge;
        }
    }
    return QS_OK;
}

qs_status qsi_key_file_find(const struct qsi_key_file *file, const struct qsi_key_dir *dir,
                            const struct qsi_key *key, bool *has_out, struct qsi_key *found_out,
                            qs_error *error)
{
    qs_file *handle = NULL;
    qs_status status;

    QS_DCHECK(key->bytes.bytes <= QSI_KEY_BYTES_MAX);
    *has_out = false;
    QS_TRY(open_file(dir, file->header.number, &handle, error));
    status = search(file, dir, handle, key, has_out, found_out, error);
    dir->env->close(dir->env, handle);
    return status;
}

/* ---- all of them ---- */

static qs_status read_next(struct qsi_key_reader *reader, qs_error *error);

qs_status qsi_key_reader_begin(struct qsi_key_reader *reader, const struct qsi_key_dir *dir,
                               const struct qsi_key_file *file, qs_error *error)
{
    qs_status status;

    *reader = (struct qsi_key_reader){.dir = dir, .file = file};
    reader->pages = qsi_alloc((size_t)PAGES * QSI_KEY_PAGE_BYTES);
    if (reader->pages == NULL) {
        return qsi_fail(error, QS_ENOMEM, "pages of transaction keys");
    }
    status = open_file(dir, file->header.number, &reader->handle, error);
    if (status == QS_OK) {
        status = read_next(reader, error);
    }
    if (status != QS_OK) {
        qsi_key_reader_fini(reader);
    }
    return status;
}

static qs_status fill(struct qsi_key_reader *reader, uint64_t first_page, qs_error *error)
{
    const struct qsi_key_header *header = &reader->file->header;
    uint64_t left = header->page_count - first_page;
    uint64_t offset = qsi_key_pages_at(header->filter_bytes) + first_page * QSI_KEY_PAGE_BYTES;
    uint32_t count = left < PAGES ? (uint32_t)left : PAGES;

    QS_DCHECK(first_page < header->page_count && reader->page == reader->page_count);
    QS_TRY(read_bytes(reader->dir, header->number, reader->handle, reader->pages,
                      (size_t)count * QSI_KEY_PAGE_BYTES, offset, error));
    for (uint32_t i = 0; i < count; i++) {
        if (!qsi_key_page_check(reader->pages + (size_t)i * QSI_KEY_PAGE_BYTES, header->salt,
                                first_page + i)) {
            return fail_damaged(header->number, offset + (uint64_t)i * QSI_KEY_PAGE_BYTES,
                                "a page of keys is damaged", error);
        }
    }
    reader->first_page = first_page;
    reader->page_count = count;
    reader->page = reader->at = 0;
    return QS_OK;
}

/* Each page is sorted; this one begins before the end of the previous page. */
static qs_status fail_order(const struct qsi_key_reader *reader, qs_error *error)
{
    const struct qsi_key_header *header = &reader->file->header;
    uint64_t page = reader->first_page + reader->page;

    return fail_damaged(header->number,
                        qsi_key_pages_at(header->filter_bytes) + page * QSI_KEY_PAGE_BYTES,
                        "pages of keys are not in order", error);
}

static qs_status read_next(struct qsi_key_reader *reader, qs_error *error)
{
    QS_DCHECK(!reader->at_end);
    for (;;) {
        uint64_t next = reader->first_page + reader->page_count;
        if (reader->page < reader->page_count) {
            const uint8_t *page = reader->pages + (size_t)reader->page * QSI_KEY_PAGE_BYTES;
            uint64_t last_hash = reader->key.hash;

            if (qsi_key_page_next(page, &reader->at, &reader->key)) {
                return reader->key.hash >= last_hash ? QS_OK : fail_order(reader, error);
            }
            reader->page += 1;
            reader->at = 0;
            continue;
        }
        QS_DCHECK(next <= reader->file->header.page_count);
        if (next == reader->file->header.page_count) {
            reader->at_end = true;
            return QS_OK;
        }
        QS_TRY(fill(reader, next, error));
    }
}

void qsi_key_reader_fini(struct qsi_key_reader *reader)
{
    if (reader->dir != NULL) {
        reader->dir->env->close(reader->dir->env, reader->handle);
    }
    qsi_free(reader->pages);
    *reader = (struct qsi_key_reader){0};
}

static qs_status read_all(const struct qsi_key_dir *dir, const struct qsi_key_file *file,
                          qs_error *error)
{
    struct qsi_key_reader reader;
    qs_status status = qsi_key_reader_begin(&reader, dir, file, error);
    uint64_t count = 0;

    while (status == QS_OK && !reader.at_end) {
        count += 1;
        status = read_next(&reader, error);
    }
    qsi_key_reader_fini(&reader);
    if (status == QS_OK && count != file->header.key_count) {
        return fail_damaged(file->header.number, 48, "not as many keys as its header says", error);
    }
    return status;
}

qs_status qsi_key_file_check(const struct qsi_key_dir *dir, uint64_t number, uint32_t header_crc,
                             qs_error *error)
{
    struct qsi_key_file file;
    qs_status status;

    QS_TRY(qsi_key_file_load(&file, dir, number, header_crc, error));
    status = read_all(dir, &file, error);
    qsi_key_file_fini(&file);
    return status;
}

/* ---- merging ---- */

static const struct qsi_key *least(const struct qsi_key_merge *merge)
{
    const struct qsi_key *chosen =
        merge->fresh_at < merge->fresh_count ? &merge->fresh[merge->fresh_at] : NULL;

    QS_DCHECK(merge->fresh_at <= merge->fresh_count);
    for (uint32_t i = 0; i < merge->reader_count; i++) {
        const struct qsi_key_reader *reader = &merge->readers[i];
        if (!reader->at_end && (chosen == NULL || qsi_key_compare(&reader->key, chosen) < 0)) {
            chosen = &reader->key;
        }
    }
    return chosen;
}

/* Advances all sources that are at key.  The keys of readers are in buffers, which the next read
 * overwrites. */
static qs_status pass(struct qsi_key_merge *merge, const struct qsi_key *key, qs_error *error)
{
    if (merge->fresh_at < merge->fresh_count &&
        qsi_key_compare(&merge->fresh[merge->fresh_at], key) == 0) {
        merge->fresh_at += 1;
    }
    for (uint32_t i = 0; i < merge->reader_count; i++) {
        struct qsi_key_reader *reader = &merge->readers[i];
        if (!reader->at_end && qsi_key_compare(&reader->key, key) == 0) {
            QS_TRY(read_next(reader, error));
        }
    }
    return QS_OK;
}

qs_status qsi_key_merge_next(struct qsi_key_merge *merge, qs_error *error)
{
    uint8_t bytes[QSI_KEY_BYTES_MAX];
    struct qsi_key last = merge->key;
    const struct qsi_key *next;

    QS_DCHECK(!merge->at_end);
    if (merge->key.bytes.data != NULL) { /* its bytes may be overwritten meanwhile */
        QS_ASSERT(last.bytes.bytes <= sizeof bytes);
        memcpy(bytes, last.bytes.data, last.bytes.bytes);
        last.bytes.data = bytes;
        QS_TRY(pass(merge, &last, error));
    }
    next = least(merge);
    QS_ASSERT(next == NULL || last.hash <= next->hash); /* readers refuse another order */
    merge->at_end = next == NULL;
    merge->key = next != NULL ? *next : (struct qsi_key){0};
    return QS_OK;
}
