/* The tail of staged files. */
#include "staged_file.h"

#include "qstore/codec.h"

#include "alloc.h"
#include "block_dir.h"
#include "block_index.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "le.h"

#include <string.h>

#define TAIL_MAGIC UINT32_C(0x54535351) /* "QSST" */
#define ROUTE_HEAD_BYTES 10u
#define ROUTES_BYTES_MAX (QSI_STAGED_ROUTES_MAX * (ROUTE_HEAD_BYTES + 2 * 255u))

/* Offsets in the tail. */
enum {
    AT_SALT = 0,
    AT_END = 8,
    AT_ROWS = 16,
    AT_BODY_BYTES = 24,
    AT_ROUTES_BYTES = 32,
    AT_ROUTE_COUNT = 36,
    AT_BLOCKS = 40,
    AT_ROUTES_CRC = 44,
    AT_BODY_LONGEST = 48,
    AT_PROPERTIES_LONGEST = 52,
    AT_CRC = 56,
    AT_MAGIC = 60,
};

/* ---- routes ---- */

qs_status qsi_staged_put_route(struct qsi_buf *routes, const struct qsi_staged_route *route)
{
    uint8_t *at;

    QS_ASSERT(route->exchange.bytes <= 255 && route->key.bytes <= 255);
    QS_TRY(
        qsi_buf_reserve(routes, ROUTE_HEAD_BYTES + route->exchange.bytes + route->key.bytes, &at));
    qsi_put_u64(at, route->rows);
    at[8] = (uint8_t)route->exchange.bytes;
    at[9] = (uint8_t)route->key.bytes;
    if (route->exchange.bytes > 0) {
        memcpy(at + ROUTE_HEAD_BYTES, route->exchange.data, route->exchange.bytes);
    }
    if (route->key.bytes > 0) {
        memcpy(at + ROUTE_HEAD_BYTES + route->exchange.bytes, route->key.data, route->key.bytes);
    }
    routes->bytes += ROUTE_HEAD_BYTES + route->exchange.bytes + route->key.bytes;
    return QS_OK;
}

bool qsi_staged_next_route(const struct qsi_buf *routes, size_t *at_io,
                           struct qsi_staged_route *route_out)
{
    const uint8_t *at = routes->data + *at_io;
    size_t left = routes->bytes - *at_io;

    if (left < ROUTE_HEAD_BYTES || left - ROUTE_HEAD_BYTES < (size_t)at[8] + at[9]) {
        return false;
    }
    *route_out = (struct qsi_staged_route){
        .rows = qsi_get_u64(at),
        .exchange = qsi_slice_make(at + ROUTE_HEAD_BYTES, at[8]),
        .key = qsi_slice_make(at + ROUTE_HEAD_BYTES + at[8], at[9]),
    };
    *at_io += ROUTE_HEAD_BYTES + (size_t)at[8] + at[9];
    return true;
}

/* Checks that there are as many routes as the tail says, with all rows. */
static bool routes_are_possible(const struct qsi_staged *staged, const struct qsi_buf *routes)
{
    struct qsi_staged_route route;
    uint64_t rows = 0;
    uint32_t count = 0;
    size_t at = 0;

    while (qsi_staged_next_route(routes, &at, &route)) {
        if (route.rows == 0 || route.rows > staged->rows - rows) {
            return false;
        }
        rows += route.rows;
        count += 1;
    }
    return at == routes->bytes && count == staged->route_count &&
           (count == 0 || rows == staged->rows);
}

uint64_t *qsi_staged_know_route(struct qsi_map *routes, struct qsi_slice exchange,
                                struct qsi_slice key)
{
    uint8_t names[1 + 2 * 255];
    size_t bytes = 1 + (size_t)exchange.bytes + key.bytes;
    uint64_t *known;

    QS_ASSERT(exchange.bytes <= 255 && key.bytes <= 255);
    names[0] = (uint8_t)exchange.bytes; /* the begin of the key */
    if (exchange.bytes > 0) {
        memcpy(names + 1, exchange.data, exchange.bytes);
    }
    if (key.bytes > 0) {
        memcpy(names + 1 + exchange.bytes, key.data, key.bytes);
    }
    known = qsi_map_get(routes, names, bytes);
    if (known == NULL) {
        known = qsi_zalloc(sizeof *known);
        if (known != NULL && qsi_map_put(routes, names, bytes, known) != QS_OK) {
            qsi_free(known);
            known = NULL;
        }
    }
    return known;
}

struct qsi_staged_route qsi_staged_known_route(const struct qsi_map_cursor *cursor)
{
    const uint8_t *names = cursor->key;

    QS_DCHECK(cursor->key_bytes > names[0]);
    return (struct qsi_staged_route){
        .rows = *(const uint64_t *)cursor->value,
        .exchange = qsi_slice_make(names + 1, names[0]),
        .key = qsi_slice_make(names + 1 + names[0], (uint32_t)(cursor->key_bytes - 1 - names[0])),
    };
}

void qsi_staged_forget_routes(struct qsi_map *routes)
{
    struct qsi_map_cursor cursor = qsi_map_begin(routes);

    while (qsi_map_next(routes, &cursor)) {
        qsi_free(cursor.value);
    }
    qsi_map_fini(routes);
}

/* ---- directories ---- */

void qsi_staged_folder_close(struct qsi_staged_folder *folder, qs_env *env)
{
    env->dir_close(env, folder->dir);
    *folder = (struct qsi_staged_folder){.dir = NULL};
}

qs_status qsi_staged_folder_open(struct qsi_staged_folder *folder, qs_env *env, const char *path,
                                 qs_error *error)
{
    bool created;

    if (folder->dir != NULL && strcmp(folder->path, path) == 0) {
        return QS_OK;
    }
    qsi_staged_folder_close(folder, env);
    QS_TRY(qsi_env_dir_open_root(env, path, false, &folder->dir, &created, error));
    folder->path = path;
    return QS_OK;
}

/* ---- writing ---- */

qs_status qsi_staged_finish(struct qsi_block_writer *writer, const struct qsi_staged *staged,
                            const struct qsi_buf *routes, qs_error *error)
{
    uint8_t tail[QSI_STAGED_TAIL_BYTES] = {0};
    const struct qsi_block_file *file = &staged->file;
    const qs_part parts[2] = {{routes->data, routes->bytes}, {tail, sizeof tail}};

    QS_ASSERT(file->sealed && routes->bytes <= ROUTES_BYTES_MAX);
    qsi_put_u64(tail + AT_SALT, file->salt);
    qsi_put_u64(tail + AT_END, file->end);
    qsi_put_u64(tail + AT_ROWS, staged->rows);
    qsi_put_u64(tail + AT_BODY_BYTES, staged->body_bytes);
    qsi_put_u32(tail + AT_ROUTES_BYTES, (uint32_t)routes->bytes);
    qsi_put_u32(tail + AT_ROUTE_COUNT, staged->route_count);
    qsi_put_u32(tail + AT_BLOCKS, file->block_count);
    qsi_put_u32(tail + AT_ROUTES_CRC, qs_crc32c(0, routes->data, routes->bytes));
    qsi_put_u32(tail + AT_BODY_LONGEST, staged->body_longest);
    qsi_put_u32(tail + AT_PROPERTIES_LONGEST, staged->properties_longest);
    qsi_put_u32(tail + AT_CRC, qs_crc32c(0, tail, AT_CRC));
    qsi_put_u32(tail + AT_MAGIC, TAIL_MAGIC);
    return qsi_block_writer_append(writer, routes->bytes > 0 ? parts : parts + 1,
                                   routes->bytes > 0 ? 2 : 1, error);
}

/* ---- reading ---- */

static qs_status not_whole(qs_error *error, const struct qsi_block_dir *blocks, uint64_t at)
{
    const struct qsi_block_file file = {0};

    return qsi_block_damaged(error, blocks, &file, at,
                             "not a staged file, or one that was not finished");
}

static qs_status decode_tail(struct qsi_staged *staged_out, uint32_t *routes_bytes_out,
                             uint32_t *routes_crc_out, const uint8_t *tail, uint64_t bytes,
                             const struct qsi_block_dir *blocks, qs_error *error)
{
    uint64_t end = qsi_get_u64(tail + AT_END), at = bytes - QSI_STAGED_TAIL_BYTES;
    uint64_t footer = qsi_block_footer_bytes(qsi_get_u32(tail + AT_BLOCKS));

    *routes_bytes_out = qsi_get_u32(tail + AT_ROUTES_BYTES);
    *routes_crc_out = qsi_get_u32(tail + AT_ROUTES_CRC);
    if (qsi_get_u32(tail + AT_MAGIC) != TAIL_MAGIC ||
        qs_crc32c(0, tail, AT_CRC) != qsi_get_u32(tail + AT_CRC) || end > at ||
        at - end != *routes_bytes_out || *routes_bytes_out > ROUTES_BYTES_MAX || footer > end) {
        return not_whole(error, blocks, at);
    }
    *staged_out = (struct qsi_staged){
        .file = {.owner = QSI_BLOCK_STAGED_OWNER,
                 .salt = qsi_get_u64(tail + AT_SALT),
                 .end = end,
                 .last_at = end - footer,
                 .block_count = qsi_get_u32(tail + AT_BLOCKS),
                 .sealed = true},
        .rows = qsi_get_u64(tail + AT_ROWS),
        .body_bytes = qsi_get_u64(tail + AT_BODY_BYTES),
        .body_longest = qsi_get_u32(tail + AT_BODY_LONGEST),
        .properties_longest = qsi_get_u32(tail + AT_PROPERTIES_LONGEST),
        .route_count = qsi_get_u32(tail + AT_ROUTE_COUNT),
    };
    return qsi_block_check_count(blocks, &staged_out->file, error);
}

static qs_status load_routes(const struct qsi_staged *staged, struct qsi_buf *routes_out,
                             uint32_t bytes, uint32_t crc, const struct qsi_block_dir *blocks,
                             qs_file *handle, qs_error *error)
{
    uint8_t *room;

    if (qsi_buf_reserve(routes_out, bytes + 1, &room) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "routes of a staged file");
    }
    QS_TRY(qsi_block_read_at(blocks, &staged->file, handle, room, bytes, staged->file.end, error));
    routes_out->bytes += bytes;
    if (qs_crc32c(0, room, bytes) != crc || !routes_are_possible(staged, routes_out)) {
        return qsi_block_damaged(error, blocks, &staged->file, staged->file.end,
                                 "the routes of a staged file: wrong checksum");
    }
    return QS_OK;
}

/* Checks the footer, and that its blocks have the rows of the tail, without a gap. */
static qs_status check_blocks(const struct qsi_staged *staged, const struct qsi_block_dir *blocks,
                              qs_file *handle, qs_error *error)
{
    const struct qsi_block_file *file = &staged->file;
    struct qsi_block_entry *entries = qsi_alloc(file->block_count * sizeof *entries);
    uint64_t rows = 0;
    bool follows = true;
    qs_status status;

    if (entries == NULL) {
        return qsi_fail(error, QS_ENOMEM, "index of a staged file");
    }
    status = qsi_block_load_index(blocks, file, handle, entries, error);
    for (uint32_t i = 0; status == QS_OK && i < file->block_count; i++) {
        follows = follows && entries[i].first_offset == rows;
        rows += entries[i].rows;
    }
    qsi_free(entries);
    if (status == QS_OK && (!follows || rows != staged->rows)) {
        status = qsi_block_damaged(error, blocks, file, file->last_at,
                                   "the blocks of a staged file do not have its rows");
    }
    return status;
}

static qs_status load(struct qsi_staged *staged_out, struct qsi_buf *routes_out,
                      struct qsi_block_dir *blocks, qs_file *handle, qs_error *error)
{
    uint8_t tail[QSI_STAGED_TAIL_BYTES];
    uint32_t routes_bytes, routes_crc;
    uint64_t bytes;

    QS_TRY(qsi_env_size(blocks->env, handle, &bytes, error));
    if (bytes < QSI_BLOCK_FILE_HEADER_BYTES + sizeof tail) {
        return not_whole(error, blocks, bytes);
    }
    QS_TRY(qsi_block_read_at(blocks, &staged_out->file, handle, tail, sizeof tail,
                             bytes - sizeof tail, error));
    QS_TRY(decode_tail(staged_out, &routes_bytes, &routes_crc, tail, bytes, blocks, error));
    QS_TRY(qsi_block_file_find(blocks, &staged_out->file, error));
    QS_TRY(check_blocks(staged_out, blocks, handle, error));
    return load_routes(staged_out, routes_out, routes_bytes, routes_crc, blocks, handle, error);
}

qs_status qsi_staged_load(struct qsi_staged *staged_out, struct qsi_buf *routes_out,
                          struct qsi_block_dir *blocks, qs_error *error)
{
    qs_file *handle;
    qs_status status;

    *staged_out = (struct qsi_staged){.rows = 0};
    QS_ASSERT(blocks->name != NULL && routes_out->bytes == 0);
    QS_TRY(qsi_env_open(blocks->env, blocks->dir, blocks->name, QS_OPEN_READ | QS_OPEN_LINKED,
                        &handle, error));
    status = load(staged_out, routes_out, blocks, handle, error);
    blocks->env->close(blocks->env, handle);
    return status;
}
