/* Writing staged files: record batches become blocks, in a process that has no store.
 *
 * Invariants: the file gets its name when all of it is durable, and not before; until then it has a
 * name that no other writer uses; a batch that is refused leaves nothing. */
#include "qstore/adopt.h"

#include "alloc.h"
#include "batch.h"
#include "block_format.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "field_table.h"
#include "file.h"
#include "message_rules.h"
#include "publish.h"
#include "staged_file.h"

#include <stdio.h>
#include <string.h>

#define TMP_SUFFIX ".0123456789abcdef.tmp"

struct qs_staged_writer {
    qs_env *env;
    qs_dir *dir;
    char name[QS_NAME_BYTES_MAX + 1], tmp_name[QS_NAME_BYTES_MAX + sizeof TMP_SUFFIX];
    struct qsi_block_dir *blocks;
    struct qsi_budget *budget;
    struct qsi_block_writer *writer; /* NULL: there were no rows yet */
    struct qsi_staged staged;
    struct qsi_buf entries; /* struct qsi_block_entry */
    struct qsi_map routes;  /* as of qsi_staged_know_route */
    bool has_many_routes;   /* too many to be listed */
    bool has_name;          /* its own, which no other file has */
    qs_status broken;       /* why the contents of the file are unknown, if they are */
    qs_batch defaults;
    uint8_t *texts; /* of the defaults */
    uint64_t body_bytes_max, time_us;
};

/* ---- opening ---- */

static qs_slice keep_text(uint8_t **at_io, qs_slice text)
{
    qs_slice kept = {*at_io, text.bytes};

    QS_DCHECK(text.data != NULL || text.bytes == 0);
    if (text.bytes > 0) {
        memcpy(*at_io, text.data, text.bytes);
    }
    *at_io += text.bytes;
    return kept;
}

static qs_status keep_options(struct qs_staged_writer *writer, const qs_staged_options *options,
                              qs_error *error)
{
    const char *column = options->body_column != NULL ? options->body_column : "body";
    size_t column_bytes = strlen(column) + 1;
    uint8_t *at;

    QS_DCHECK(writer->texts == NULL);
    QS_TRY(qsi_check_names(options->exchange.bytes, options->routing_key.bytes, error));
    writer->texts = at = qsi_alloc(column_bytes + options->exchange.bytes +
                                   options->routing_key.bytes + options->properties.bytes);
    if (at == NULL) {
        return qsi_fail(error, QS_ENOMEM, "staged file");
    }
    memcpy(at, column, column_bytes);
    writer->defaults.body_column = (const char *)at;
    at += column_bytes;
    writer->defaults.exchange = keep_text(&at, options->exchange);
    writer->defaults.routing_key = keep_text(&at, options->routing_key);
    writer->defaults.properties = keep_text(&at, options->properties);
    writer->defaults.utc_of = options->utc_of;
    writer->body_bytes_max =
        options->body_bytes_max != 0 ? options->body_bytes_max : QSI_BODY_BYTES_MAX;
    return QS_OK;
}

/* Another writer of the name may be at work: its file stays. */
static qs_status keep_name(struct qs_staged_writer *writer, const char *name, qs_error *error)
{
    uint64_t number;

    if (strlen(name) + sizeof TMP_SUFFIX > sizeof writer->name) {
        return qsi_fail(error, QS_EINVAL, "a staged file's name of %zu bytes: %zu at most",
                        strlen(name), sizeof writer->name - sizeof TMP_SUFFIX);
    }
    snprintf(writer->name, sizeof writer->name, "%s", name);
    QS_TRY(writer->env->random(writer->env, &number, sizeof number, error));
    snprintf(writer->tmp_name, sizeof writer->tmp_name, "%s.%016llx.tmp", name,
             (unsigned long long)number);
    return QS_OK;
}

static qs_status fail_taken(const struct qs_staged_writer *writer, qs_error *error)
{
    return qsi_fail(error, QS_EEXIST, "staged file '%s' is there already", writer->name);
}

static qs_status refuse_taken(const struct qs_staged_writer *writer, qs_error *error)
{
    qs_file *handle;
    qs_status status = qsi_env_open(writer->env, writer->dir, writer->name,
                                    QS_OPEN_READ | QS_OPEN_LINKED, &handle, NULL);

    if (status != QS_OK) {
        return QS_OK; /* whatever it is, making the file finds out */
    }
    writer->env->close(writer->env, handle);
    return fail_taken(writer, error);
}

static void free_writer(struct qs_staged_writer *writer)
{
    qsi_staged_forget_routes(&writer->routes);
    qsi_buf_fini(&writer->entries);
    qsi_block_writer_close(writer->writer);
    qsi_block_dir_close(writer->blocks);
    qsi_budget_close(writer->budget);
    writer->env->dir_close(writer->env, writer->dir);
    qsi_free(writer->texts);
    qsi_free(writer);
}

static qs_status open_writer(struct qs_staged_writer *writer, const char *folder, const char *name,
                             const qs_staged_options *options, qs_error *error)
{
    bool created;

    QS_DCHECK(writer->writer == NULL && writer->dir == NULL);
    QS_TRY(keep_name(writer, name, error));
    QS_TRY(keep_options(writer, options, error));
    QS_TRY(qsi_env_dir_open_root(writer->env, folder, false, &writer->dir, &created, error));
    QS_TRY(refuse_taken(writer, error));
    writer->budget = qsi_budget_create();
    if (writer->budget == NULL) {
        return qsi_fail(error, QS_ENOMEM, "staged file");
    }
    writer->staged.file = qsi_staged_new_file();
    writer->time_us = writer->env->wall_us(writer->env);
    return qsi_block_dir_open_one(&writer->blocks, writer->env, writer->dir, writer->tmp_name,
                                  error);
}

qs_status qs_staged_writer_open(qs_staged_writer **writer_out, const char *folder, const char *name,
                                const qs_staged_options *options, qs_env *env, qs_error *error)
{
    struct qs_staged_writer *writer = qsi_zalloc(sizeof *writer);
    qs_status status;

    *writer_out = NULL;
    if (writer == NULL) {
        return qsi_fail(error, QS_ENOMEM, "staged file");
    }
    writer->env = env != NULL ? env : qs_env_posix();
    status = open_writer(writer, folder, name, options, error);
    if (status != QS_OK) {
        free_writer(writer);
        return status;
    }
    *writer_out = writer;
    return QS_OK;
}

/* ---- one batch ---- */

/* Carbon copies have other destinations than the key, and headers that are not strings are read
 * back as text. */
static qs_status check_defaults(const struct qsi_batch *batch, qs_error *error)
{
    struct qsi_slice headers = qsi_properties_text(&batch->defaults, QSI_PROPERTY_HEADERS);
    struct qsi_slice expiration = qsi_properties_text(&batch->defaults, QSI_PROPERTY_EXPIRATION);
    struct qsi_field_walk walk = qsi_table_walk(headers);
    struct qsi_field field;

    if (batch->copies.count > 0 || batch->copies.properties != NULL ||
        !qsi_slice_is_null(batch->copies.bad_name)) {
        return qsi_fail(error, QS_EINVAL, "headers CC and BCC: a staged file has no carbon copies");
    }
    if (qsi_properties_has(&batch->defaults, QSI_PROPERTY_CLUSTER_ID)) {
        return qsi_fail(error, QS_EINVAL, "cluster_id: a staged file has no column for it");
    }
    if (expiration.bytes > 1 && expiration.data[0] == '0') {
        return qsi_fail(error, QS_EINVAL,
                        "expiration '%.*s': that of a staged file is a number, without leading "
                        "zeros",
                        (int)expiration.bytes, (const char *)expiration.data);
    }
    while (headers.data != NULL && qsi_field_next(&walk, &field)) {
        if (field.type != 'S') {
            return qsi_fail(error, QS_EINVAL, "header '%.*s': those of a staged file are strings",
                            (int)field.name.bytes, (const char *)field.name.data);
        }
    }
    return QS_OK;
}

static qs_status check_columns(const struct qsi_batch *batch, qs_error *error)
{
    qs_status status;

    if (batch->arrays[0].due.present) {
        return qsi_fail(error, QS_EINVAL,
                        "column 'due': a staged file has no delayed messages; publish them");
    }
    status = qsi_batch_check_headers(batch, error);
    if (status != QS_OK && error != NULL) {
        error->status = QS_EINVAL; /* there is no channel to be closed */
    }
    return status != QS_OK ? QS_EINVAL : QS_OK;
}

static qs_status check_broken(const struct qs_staged_writer *writer, qs_error *error)
{
    return writer->broken != QS_OK
               ? qsi_fail(error, writer->broken, "staged file '%s': an earlier write failed",
                          writer->name)
               : QS_OK;
}

/* All rows lead to the file. */
static qs_status lead_routes(struct qsi_batch *batch, qs_error *error)
{
    const struct qsi_batch_destination here = {.queue_id = QSI_BLOCK_STAGED_OWNER,
                                               .durable = true,
                                               .keeps_all = true,
                                               .is_direct = true,
                                               .record_code = NO_CODE};
    uint32_t index;

    QS_DCHECK(batch->store == NULL && batch->destination_count == 0);
    QS_TRY(qsi_batch_add_destination(batch, &here, &index, error));
    for (uint32_t i = 0; i < batch->route_count; i++) {
        struct qsi_batch_route *route = &batch->routes[i];
        route->destinations = qsi_alloc(sizeof *route->destinations);
        if (route->destinations == NULL) {
            return qsi_batch_no_memory(error);
        }
        route->destinations[0] = index;
        route->destination_count = 1;
        route->durable = true;
    }
    return QS_OK;
}

/* Entries without rows are left out when the file is finished. */
static qs_status know_routes(struct qs_staged_writer *writer, const struct qsi_batch *batch,
                             qs_error *error)
{
    for (uint32_t i = 0; !writer->has_many_routes && i < batch->route_count; i++) {
        const struct qsi_batch_route *route = &batch->routes[i];
        if (qsi_staged_know_route(&writer->routes, route->exchange, route->key) == NULL) {
            return qsi_batch_no_memory(error);
        }
        if (writer->routes.count > QSI_STAGED_ROUTES_MAX) {
            qsi_staged_forget_routes(&writer->routes);
            writer->has_many_routes = true;
        }
    }
    return QS_OK;
}

static void count_routes(struct qs_staged_writer *writer, const struct qsi_batch *batch)
{
    for (uint32_t i = 0; !writer->has_many_routes && i < batch->route_count; i++) {
        const struct qsi_batch_route *route = &batch->routes[i];
        uint64_t *rows = qsi_staged_know_route(&writer->routes, route->exchange, route->key);
        QS_ASSERT(rows != NULL); /* know_routes made it */
        *rows += route->rows;
    }
}

static qs_status encode(struct qs_staged_writer *writer, struct qsi_batch *batch, qs_error *error)
{
    QS_TRY(qsi_batch_open(batch, error));
    QS_TRY(check_defaults(batch, error));
    QS_TRY(check_columns(batch, error));
    QS_TRY(lead_routes(batch, error));
    QS_TRY(qsi_batch_make_records(batch, error));
    return know_routes(writer, batch, error);
}

static qs_status put_record(struct qs_staged_writer *writer,
                            const struct qsi_pending_record *pending, qs_error *error)
{
    uint8_t *record = pending->chunk->data;
    const struct qsi_block_rows rows = {
        .owner = QSI_BLOCK_STAGED_OWNER,
        .first_offset = writer->staged.rows,
        .time_us = writer->time_us,
        .record = record,
        .rows = pending->row_count,
    };
    struct qsi_block_entry entry;
    uint32_t crc = 0;

    QS_ASSERT(pending->place_count == 0 && pending->row_count <= QSI_BLOCK_ROWS_MAX);
    record[5] &= (uint8_t)~QSI_MESSAGES_HAS_TRANSIENT; /* as in a stream's files */
    qsi_messages_put_destination(record, 0, rows.owner, rows.first_offset, rows.rows);
    qsi_messages_put_time(record, rows.time_us);
    QS_TRY(qsi_block_writer_put_rows(writer->writer, &rows, &entry, &crc, error));
    writer->staged.rows += rows.rows;
    return qsi_buf_append(&writer->entries, &entry, sizeof entry) == QS_OK
               ? QS_OK
               : qsi_fail(error, QS_ENOMEM, "blocks of a staged file");
}

static qs_status put_records(struct qs_staged_writer *writer, const struct qsi_batch *batch,
                             qs_error *error)
{
    const struct qsi_pending_records *records = &batch->pending_records;

    if (writer->writer == NULL && records->count > 0) {
        QS_TRY(qsi_block_writer_begin(&writer->writer, writer->blocks, &writer->staged.file, false,
                                      error));
    }
    for (uint32_t i = 0; i < records->count; i++) {
        QS_TRY(put_record(writer, &records->items[i], error));
    }
    return QS_OK;
}

static uint64_t body_bytes_of(const struct qsi_batch *batch)
{
    return batch->row_count > 0 ? qsi_arrow_body_total(&batch->arrays[0], 0, batch->arrays[0].rows)
                                : 0;
}

static void record_longest(struct qs_staged_writer *writer, const struct qsi_batch *batch)
{
    uint64_t row = 0;
    uint32_t longest = qsi_arrow_body_max(&batch->arrays[0], &row);
    uint64_t properties = batch->properties_longest; /* 0: no row has any of its own */

    if (properties == 0) {
        properties = batch->constant_bytes;
    }
    if (longest > writer->staged.body_longest) {
        writer->staged.body_longest = longest;
    }
    if (properties > writer->staged.properties_longest) {
        writer->staged.properties_longest = (uint32_t)properties;
    }
}

qs_status qs_staged_writer_put(qs_staged_writer *writer, const struct ArrowSchema *schema,
                               const struct ArrowArray *array, qs_error *error)
{
    qs_batch input = writer->defaults;
    struct qsi_batch batch = {
        .input = &input,
        .rules = {.body_bytes_max = writer->body_bytes_max,
                  .record_bytes_max = QSI_BATCH_RECORD_BYTES_MAX,
                  .stream_embed_below = UINT64_MAX,
                  .record_flags = QSI_MESSAGES_ALIGNED,
                  .budget = writer->budget},
        .record_rows_max = QSI_BLOCK_ROWS_MAX,
        .is_for_stream = true,
        .now_us = writer->time_us,
    };
    qs_status status;

    QS_TRY(check_broken(writer, error));
    QS_DCHECK(writer->staged.rows > 0 || writer->writer == NULL);
    input.schema = schema;
    input.arrays = &array;
    input.array_count = 1;
    qsi_list_init(&batch.returns);
    status = encode(writer, &batch, error);
    if (status == QS_OK) {
        status = put_records(writer, &batch, error);
        writer->broken = status;
    }
    if (status == QS_OK) {
        writer->staged.body_bytes += body_bytes_of(&batch);
        record_longest(writer, &batch);
        count_routes(writer, &batch);
    }
    qsi_batch_fini(&batch);
    return status;
}

/* ---- the end ---- */

static qs_status list_routes(struct qs_staged_writer *writer, struct qsi_buf *routes_out,
                             qs_error *error)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&writer->routes);

    while (qsi_map_next(&writer->routes, &cursor)) {
        const struct qsi_staged_route route = qsi_staged_known_route(&cursor);
        if (route.rows == 0) {
            continue; /* of a batch that was refused */
        }
        if (qsi_staged_put_route(routes_out, &route) != QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "routes of a staged file");
        }
        writer->staged.route_count += 1;
    }
    return QS_OK;
}

static qs_status sync_file(struct qs_staged_writer *writer, qs_error *error)
{
    struct qsi_block_unsynced unsynced;
    qs_status status;

    QS_DCHECK(writer->staged.file.sealed);
    qsi_block_writer_leave(writer->writer, &unsynced);
    status = qsi_block_unsynced_sync(writer->blocks, &unsynced, error);
    qsi_block_unsynced_close(writer->blocks, &unsynced);
    return status;
}

/* If links are available, one of two writers gets the name, however close they are. */
static qs_status take_name(struct qs_staged_writer *writer, qs_error *error)
{
    qs_env *env = writer->env;
    qs_status status =
        qsi_env_link(env, writer->dir, writer->tmp_name, writer->dir, writer->name, error);

    QS_DCHECK(!writer->has_name);
    if (status == QS_EEXIST) {
        return fail_taken(writer, error);
    }
    if (status == QS_NOT_IMPLEMENTED) {
        QS_TRY(refuse_taken(writer, error));
        writer->has_name = true;
        return qsi_env_rename(env, writer->dir, writer->tmp_name, writer->name, error);
    }
    if (status == QS_OK) {
        writer->has_name = true;
        status = qsi_env_remove(env, writer->dir, writer->tmp_name, error);
    }
    return status;
}

static qs_status finish(struct qs_staged_writer *writer, struct qsi_buf *routes, qs_error *error)
{
    const struct qsi_block_entry *entries =
        (const struct qsi_block_entry *)(const void *)writer->entries.data;

    QS_ASSERT(writer->writer != NULL && writer->broken == QS_OK);
    QS_TRY(list_routes(writer, routes, error));
    QS_TRY(qsi_block_writer_seal(writer->writer, entries, writer->time_us, error));
    QS_TRY(qsi_staged_finish(writer->writer, &writer->staged, routes, error));
    QS_TRY(sync_file(writer, error));
    QS_TRY(take_name(writer, error));
    return qsi_dir_sync(writer->env, writer->dir, error);
}

static void remove_file(const struct qs_staged_writer *writer)
{
    if (writer->writer != NULL) { /* a file that stays is ignored */
        (void)qsi_env_remove(writer->env, writer->dir, writer->tmp_name, NULL);
    }
    if (writer->has_name) { /* else the file is another writer's, if there is one */
        (void)qsi_env_remove(writer->env, writer->dir, writer->name, NULL);
    }
}

static void report(const struct qsi_staged *staged, uint64_t bytes, qs_staged_info *info_out)
{
    if (info_out != NULL) {
        *info_out = (qs_staged_info){
            .rows = staged->rows,
            .bytes = bytes,
            .body_bytes = staged->body_bytes,
            .routes = staged->route_count,
        };
    }
}

qs_status qs_staged_writer_close(qs_staged_writer *writer, bool keep, qs_staged_info *info_out,
                                 qs_error *error)
{
    struct qsi_buf routes = {0};
    qs_status status = QS_OK;

    if (keep) {
        status = check_broken(writer, error);
    }
    if (keep && status == QS_OK && writer->writer != NULL) {
        status = finish(writer, &routes, error);
    }
    if (!keep || status != QS_OK) {
        remove_file(writer);
    }
    report(&writer->staged,
           writer->staged.rows > 0 ? writer->staged.file.end + routes.bytes + QSI_STAGED_TAIL_BYTES
                                   : 0,
           info_out);
    qsi_buf_fini(&routes);
    free_writer(writer);
    return status;
}
