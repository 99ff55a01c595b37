/* Adopting: finding the files, and where their rows lead. */
#include "adopt_files.h"

#include "check.h"
#include "env_call.h"
#include "error.h"
#include "publish_counts.h"
#include "queue_life.h"

#include <stdio.h>
#include <string.h>

/* ---- files ---- */

static qs_status add_routes(struct qsi_adoption *adoption, const struct qsi_buf *routes,
                            qs_error *error)
{
    struct qsi_staged_route route;
    size_t at = 0;

    while (adoption->tells_routes && qsi_staged_next_route(routes, &at, &route)) {
        uint64_t *rows = qsi_staged_know_route(&adoption->routes, route.exchange, route.key);
        if (rows == NULL) {
            return qsi_fail(error, QS_ENOMEM, "routes of staged files");
        }
        *rows += route.rows;
        adoption->tells_routes = adoption->routes.count <= QSI_STAGED_ROUTES_MAX;
    }
    return QS_OK;
}

static uint32_t larger(uint32_t one, uint32_t other)
{
    return one > other ? one : other;
}

static qs_status load_file(struct qsi_adoption *adoption, struct qsi_staged_folder *folder,
                           struct qsi_adopted_file *file, struct qsi_buf *routes, qs_error *error)
{
    qs_env *env = adoption->store->env;
    struct qsi_block_dir *blocks;
    qs_status status;

    QS_TRY(qsi_staged_folder_open(folder, env, file->folder, error));
    QS_TRY(qsi_block_dir_open_one(&blocks, env, folder->dir, file->name, error));
    status = qsi_staged_load(&file->staged, routes, blocks, error);
    qsi_block_dir_close(blocks);
    QS_TRY(status);
    QS_DCHECK(file->staged.rows > 0 && file->staged.file.sealed);
    adoption->rows += file->staged.rows;
    adoption->body_longest = larger(adoption->body_longest, file->staged.body_longest);
    adoption->properties_longest =
        larger(adoption->properties_longest, file->staged.properties_longest);
    adoption->tells_routes = adoption->tells_routes && file->staged.route_count > 0;
    QS_TRY(add_routes(adoption, routes, error));
    return qsi_buf_append(&adoption->files, file, sizeof *file) == QS_OK
               ? QS_OK
               : qsi_fail(error, QS_ENOMEM, "staged files");
}

/* For a path that the adoption owns, which is divided in place. */
static struct qsi_adopted_file cut_path(char *path)
{
    char *slash = strrchr(path, '/');

    if (slash == NULL) {
        return (struct qsi_adopted_file){.folder = ".", .name = path};
    }
    *slash = '\0';
    return (struct qsi_adopted_file){.folder = slash == path ? "/" : path, .name = slash + 1};
}

/* The caller's array may end with the call, so names are copied. */
static qs_status keep_names(struct qsi_adoption *adoption, const char *const *paths, size_t count,
                            qs_error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (qsi_buf_append(&adoption->names, paths[i], strlen(paths[i]) + 1) != QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "staged files");
        }
    }
    return QS_OK;
}

qs_status qsi_adoption_check_stop(const struct qsi_adoption *adoption, qs_error *error)
{
    struct qs_store *store = adoption->store;
    bool stops;

    QS_ASSERT_NOT_HELD(&store->mutex);
    if (!adoption->is_asked) {
        return QS_OK;
    }
    qsi_store_lock(store);
    stops = store->inbox.stops;
    qsi_store_unlock(store);
    return stops ? qsi_fail(error, QS_ESTORE_CLOSED, "the store is being closed") : QS_OK;
}

qs_status qsi_adoption_open(struct qsi_adoption *adoption, const char *const *paths, size_t count,
                            qs_error *error)
{
    struct qsi_staged_folder folder = {.dir = NULL};
    qs_status status = QS_OK;
    char *path;

    adoption->tells_routes = true;
    QS_TRY(keep_names(adoption, paths, count, error));
    path = (char *)adoption->names.data;
    for (size_t i = 0; status == QS_OK && i < count; i++) {
        struct qsi_adopted_file file = cut_path(path);
        struct qsi_buf routes = {0};
        status = qsi_adoption_check_stop(adoption, error);
        if (status == QS_OK) {
            status = load_file(adoption, &folder, &file, &routes, error);
        }
        if (status != QS_OK) {
            qsi_error_prefix(error, "staged file '%s'", paths[i]);
        }
        qsi_buf_fini(&routes);
        path += strlen(paths[i]) + 1;
    }
    qsi_staged_folder_close(&folder, adoption->store->env);
    return status;
}

void qsi_adoption_fini(struct qsi_adoption *adoption)
{
    QS_DCHECK(adoption->store != NULL);
    qsi_staged_forget_routes(&adoption->routes);
    qsi_buf_fini(&adoption->names);
    qsi_buf_fini(&adoption->files);
    qsi_buf_fini(&adoption->notes.notes);
}

/* ---- where rows lead ---- */

struct looking {
    struct qsi_adoption *adoption;
    bool is_one_stream; /* so far */
    uint32_t unrouted_count;
    char unrouted[QS_ERROR_TEXT_BYTES / 2]; /* the first ones, in words */
};

static void record_unrouted(struct looking *looking, const struct qsi_staged_route *route)
{
    size_t used = strlen(looking->unrouted);

    QS_DCHECK(used < sizeof looking->unrouted);
    if (looking->unrouted_count++ < QSI_ADOPTION_UNROUTED_TOLD) {
        snprintf(looking->unrouted + used, sizeof looking->unrouted - used,
                 "%sexchange '%.*s', routing key '%.*s'", used > 0 ? "; " : "",
                 (int)route->exchange.bytes, (const char *)route->exchange.data,
                 (int)route->key.bytes, (const char *)route->key.data);
    }
    looking->adoption->unroutable += route->rows;
}

static qs_status record_stream(struct qsi_adoption *adoption, const struct qsi_staged_route *route,
                               qs_error *error)
{
    uint64_t *ids;

    QS_DCHECK(adoption->stream_id != 0);
    if (qsi_published_note_begin(&adoption->notes, 1, &ids) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "staged files");
    }
    ids[0] = adoption->stream_id;
    qsi_published_note_end(&adoption->notes, route->exchange, 1, route->rows, adoption->mandatory);
    return QS_OK;
}

static qs_status look_up(struct looking *looking, const struct qsi_staged_route *route,
                         qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_adoption *adoption = looking->adoption;
    const struct qsi_routing routing = {.key = route->key, .headers = QSI_SLICE_NULL};
    const struct qsi_store_queue *queue;
    const struct qsi_route *found;

    QS_ASSERT_HELD(&adoption->store->mutex);
    QS_TRY(qsi_router_lookup(&adoption->store->router, route->exchange, &routing, &found, error));
    if (found->by_headers || found->by_properties != 0) { /* each row by itself */
        looking->is_one_stream = false;
        return QS_OK;
    }
    if (found->count == 0) {
        record_unrouted(looking, route);
        return QS_OK;
    }
    queue = qsi_queue_of(found->destinations[0]);
    if (found->count > 1 || !qsi_container_is_direct(queue->messages) ||
        (adoption->stream_id != 0 && adoption->stream_id != queue->container.id)) {
        looking->is_one_stream = false;
        return QS_OK;
    }
    adoption->stream_id = queue->container.id;
    return record_stream(adoption, route, error);
}

qs_status qsi_adoption_look_up(struct qsi_adoption *adoption, qs_error *error)
{
    struct looking looking = {.adoption = adoption, .is_one_stream = adoption->tells_routes};
    struct qsi_map_cursor cursor = qsi_map_begin(&adoption->routes);

    QS_ASSERT_HELD(&adoption->store->mutex);
    qsi_router_trim(&adoption->store->router);
    while (adoption->tells_routes && qsi_map_next(&adoption->routes, &cursor)) {
        const struct qsi_staged_route route = qsi_staged_known_route(&cursor);
        QS_TRY(look_up(&looking, &route, error));
    }
    if (adoption->mandatory && adoption->unroutable > 0) {
        return qsi_fail(error, QS_PRECONDITION_FAILED,
                        "no queue would take %llu of %llu messages: %s",
                        (unsigned long long)adoption->unroutable,
                        (unsigned long long)adoption->rows, looking.unrouted);
    }
    if (!looking.is_one_stream || adoption->unroutable > 0) {
        adoption->stream_id = 0;
    }
    return QS_OK;
}
