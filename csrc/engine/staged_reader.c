/* Reading staged files back, block by block, as record batches. */
#include "staged_reader.h"

#include "qstore/adopt.h"

#include "alloc.h"
#include "block_read.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "taken.h"

#include <string.h>

qs_status qsi_staged_reader_open_in(struct qs_staged_reader **reader_out, qs_env *env, qs_dir *dir,
                                    const char *name, qs_error *error)
{
    struct qs_staged_reader *reader = qsi_zalloc(sizeof *reader);
    qs_status status;

    *reader_out = NULL;
    if (reader == NULL || strlen(name) >= sizeof reader->name) {
        qsi_free(reader);
        return qsi_fail(error, reader == NULL ? QS_ENOMEM : QS_EINVAL, "staged file '%s'", name);
    }
    reader->env = env;
    memcpy(reader->name, name, strlen(name) + 1);
    status = qsi_block_dir_open_one(&reader->blocks, env, dir, reader->name, error);
    if (status == QS_OK) {
        status = qsi_staged_load(&reader->staged, &reader->routes, reader->blocks, error);
    }
    if (status == QS_OK) {
        status =
            qsi_block_reader_open(&reader->reader, reader->blocks, &reader->staged.file, error);
    }
    if (status == QS_OK) {
        status = qsi_block_reader_read_index(reader->reader, &reader->entries, error);
    }
    if (status != QS_OK) {
        qs_staged_reader_close(reader);
        return status;
    }
    *reader_out = reader;
    return QS_OK;
}

qs_status qs_staged_reader_open(qs_staged_reader **reader_out, const char *folder, const char *name,
                                qs_env *env, qs_error *error)
{
    qs_dir *dir;
    bool created;
    qs_status status;

    *reader_out = NULL;
    env = env != NULL ? env : qs_env_posix();
    QS_TRY(qsi_env_dir_open_root(env, folder, false, &dir, &created, error));
    status = qsi_staged_reader_open_in(reader_out, env, dir, name, error);
    if (status != QS_OK) {
        env->dir_close(env, dir);
        return status;
    }
    (*reader_out)->dir = dir;
    return QS_OK;
}

void qs_staged_reader_info(const qs_staged_reader *reader, qs_staged_info *info_out)
{
    const struct qsi_staged *staged = &reader->staged;

    QS_DCHECK(staged->rows > 0 && staged->file.sealed);
    *info_out = (qs_staged_info){
        .rows = staged->rows,
        .bytes = staged->file.end + reader->routes.bytes + QSI_STAGED_TAIL_BYTES,
        .body_bytes = staged->body_bytes,
        .routes = staged->route_count,
    };
}

/* columns: those of QSI_ARROW_STREAM */
static qs_status build(const struct qsi_block_view *view, enum qsi_arrow_shape shape,
                       uint32_t columns, struct ArrowSchema *schema_out,
                       struct ArrowArray *array_out, qs_error *error)
{
    struct qsi_taken_batch batch = {
        .message_count = view->rows,
        .columns = columns,
        .lender = QSI_ARROW_LENDS ? view->chunk : NULL,
        .shape = shape,
    };
    const struct qsi_taken rows = {
        .record = view->messages.record, .count = view->rows, .first_tag = view->first_offset};
    uint64_t bad_tag;
    qs_status status;

    QS_DCHECK(view->rows > 0 && view->messages.stored == NULL);
    batch.body_bytes = qsi_get_u32(view->messages.body_offsets + 4 * (size_t)view->rows);
    if (batch.body_bytes > QSI_ARROW_BODY_BYTES_MAX) {
        return qsi_fail(error, QS_EINVAL, "a block with bodies of %llu bytes is more than Arrow's",
                        (unsigned long long)batch.body_bytes);
    }
    status = qsi_buf_append(&batch.taken, &rows, sizeof rows) == QS_OK
                 ? qsi_taken_build(NULL, &batch, &bad_tag, schema_out, array_out, error)
                 : qsi_fail(error, QS_ENOMEM, "batch");
    qsi_buf_fini(&batch.taken);
    return status;
}

/* QS_EEMPTY: there is no other. */
static qs_status read_block(struct qs_staged_reader *reader, struct qsi_block_view *view_out,
                            qs_error *error)
{
    const struct qsi_block_entry *entry;

    QS_ASSERT(reader->next <= reader->staged.file.block_count);
    if (reader->next == reader->staged.file.block_count) {
        return QS_EEMPTY;
    }
    entry = &reader->entries[reader->next++];
    QS_TRY(qsi_block_reader_read(reader->reader, entry, NULL, view_out, error));
    if (view_out->messages.stored != NULL) {
        qsi_block_view_fini(view_out);
        return qsi_fail_corrupt(error, reader->name, entry->at,
                                "a staged file has its bodies elsewhere");
    }
    return QS_OK;
}

qs_status qs_staged_reader_next(qs_staged_reader *reader, struct ArrowSchema *schema_out,
                                struct ArrowArray *array_out, qs_error *error)
{
    struct qsi_block_view view;
    qs_status status;

    QS_TRY(read_block(reader, &view, error));
    status = build(&view, QSI_ARROW_DELIVERED, 0, schema_out, array_out, error);
    qsi_block_view_fini(&view);
    return status;
}

/* The columns of a stream begin with the offset, which is not published. */
static void hide_offset(struct qsi_staged_batch *batch)
{
    QS_DCHECK(batch->array.n_children == batch->schema.n_children && batch->array.n_children > 1);
    batch->shown_schema.children += 1;
    batch->shown_schema.n_children -= 1;
    batch->shown_array.children += 1;
    batch->shown_array.n_children -= 1;
}

qs_status qsi_staged_reader_next_batch(qs_staged_reader *reader, struct qsi_staged_batch *batch,
                                       qs_error *error)
{
    const uint32_t plain =
        QS_STREAM_COLUMN_EXCHANGE | QS_STREAM_COLUMN_ROUTING_KEY | QS_STREAM_COLUMN_BODY;
    struct qsi_slice common = {NULL, 0};
    struct qsi_block_view view;
    bool per_row;
    qs_status status;

    QS_ASSERT(batch->array.release == NULL && batch->properties.bytes == 0);
    QS_TRY(read_block(reader, &view, error));
    per_row = (view.messages.flags & QSI_MESSAGES_PROPERTIES_PER_ROW) != 0;
    if (!per_row) {
        common = qsi_messages_properties(&view.messages, 0);
    }
    status = qsi_buf_append(&batch->properties, common.data, common.bytes) != QS_OK
                 ? qsi_fail(error, QS_ENOMEM, "batch")
                 : build(&view, per_row ? QSI_ARROW_DELIVERED : QSI_ARROW_STREAM, plain,
                         &batch->schema, &batch->array, error);
    qsi_block_view_fini(&view);
    if (status == QS_OK) {
        batch->shown_schema = batch->schema;
        batch->shown_array = batch->array;
        if (!per_row) {
            hide_offset(batch);
        }
    }
    return status;
}

void qsi_staged_batch_clear(struct qsi_staged_batch *batch)
{
    if (batch->array.release != NULL) {
        batch->schema.release(&batch->schema);
        batch->array.release(&batch->array);
    }
    qsi_buf_clear(&batch->properties);
}

void qsi_staged_batch_fini(struct qsi_staged_batch *batch)
{
    qsi_staged_batch_clear(batch);
    qsi_buf_fini(&batch->properties);
}

void qs_staged_reader_close(qs_staged_reader *reader)
{
    if (reader == NULL) {
        return;
    }
    qsi_block_reader_close(reader->reader);
    qsi_block_dir_close(reader->blocks);
    qsi_free(reader->entries);
    qsi_buf_fini(&reader->routes);
    if (reader->dir != NULL) {
        reader->env->dir_close(reader->env, reader->dir);
    }
    qsi_free(reader);
}
