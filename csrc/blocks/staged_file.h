/* Staged files: block files that were written without a store, for one that adopts them.
 *
 * A sealed block file with the owner QSI_BLOCK_STAGED_OWNER, and after its footer:
 *
 *        routes           the distinct (exchange, routing key) of all rows; for each: rows u64,
 *                         bytes of the exchange u8, of the key u8, the exchange, the key
 *     0  tail         64  salt 8, end of the footer 8, rows 8, bytes of bodies 8, bytes of the
 *                         routes 4, how many 4, blocks 4, crc32c of the routes 4, longest body 4,
 *                         longest properties 4 (0: unknown), crc32c of the 56 bytes before it 4,
 *                         magic 4 "QSST"
 *
 * A file without a whole tail was not finished.  With more than QSI_STAGED_ROUTES_MAX routes the
 * file has none. */
#ifndef QSI_STAGED_FILE_H
#define QSI_STAGED_FILE_H

#include "qstore/status.h"

#include "block_file.h"
#include "block_write.h"
#include "map.h"
#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

#define QSI_STAGED_ROUTES_MAX 65536u
#define QSI_STAGED_TAIL_BYTES 64u

struct qsi_staged {
    struct qsi_block_file file; /* sealed */
    uint64_t rows, body_bytes;
    uint32_t body_longest, properties_longest; /* properties_longest 0: unknown */
    uint32_t route_count;                      /* 0: unknown */
};
struct qsi_staged_route {
    uint64_t rows;
    struct qsi_slice exchange, key;
};

/* ---- routes by name: a map with the number of rows ---- */

/* The number of rows of the route, for the caller to change; 0 for a new route.  NULL: out of
 * memory. */
uint64_t *qsi_staged_know_route(struct qsi_map *routes, struct qsi_slice exchange,
                                struct qsi_slice key);
struct qsi_staged_route qsi_staged_known_route(const struct qsi_map_cursor *cursor);
void qsi_staged_forget_routes(struct qsi_map *routes);

/* ---- one open directory at a time, opened by path ---- */

struct qsi_staged_folder {
    qs_dir *dir;      /* NULL: none */
    const char *path; /* owned by the caller */
};
/* Opens the directory, and closes the one that is open. */
qs_status qsi_staged_folder_open(struct qsi_staged_folder *folder, qs_env *env, const char *path,
                                 qs_error *error) QS_MUST_CHECK;
void qsi_staged_folder_close(struct qsi_staged_folder *folder, qs_env *env);

/* ---- files ---- */

/* A new file for qsi_block_writer_begin, which creates it. */
static inline struct qsi_block_file qsi_staged_new_file(void)
{
    return (struct qsi_block_file){.owner = UINT64_MAX};
}

/* Appends a route.  QS_ENOMEM. */
qs_status qsi_staged_put_route(struct qsi_buf *routes,
                               const struct qsi_staged_route *route) QS_MUST_CHECK;
/* Returns the next route; false at the end.  REQUIRES routes from qsi_staged_load. */
bool qsi_staged_next_route(const struct qsi_buf *routes, size_t *at_io,
                           struct qsi_staged_route *route_out);

/* Writes the routes and the tail.  REQUIRES a sealed file. */
qs_status qsi_staged_finish(struct qsi_block_writer *writer, const struct qsi_staged *staged,
                            const struct qsi_buf *routes, qs_error *error) QS_MUST_CHECK;
/* Reads the file of such a directory (qsi_block_dir_open_one): tail, header, routes and footer are
 * checked, blocks are not read.  QS_ECORRUPT, QS_ENOENT. */
qs_status qsi_staged_load(struct qsi_staged *staged_out, struct qsi_buf *routes_out,
                          struct qsi_block_dir *blocks, qs_error *error) QS_MUST_CHECK;

#endif
