/* Readers of one file, and checking all of it. */
#include "block_read.h"

#include "alloc.h"
#include "block_dir.h"
#include "block_index.h"
#include "block_load.h"
#include "error.h"

struct qsi_block_reader {
    struct qsi_block_dir *blocks;
    struct qsi_block_file file;
    qs_file *handle;
};

qs_status qsi_block_reader_open(struct qsi_block_reader **reader_out, struct qsi_block_dir *blocks,
                                const struct qsi_block_file *file, qs_error *error)
{
    struct qsi_block_reader *reader = qsi_alloc(sizeof *reader);
    qs_status status;

    *reader_out = NULL;
    if (reader == NULL) {
        return qsi_block_fail(error, qsi_fail(error, QS_ENOMEM, "reader of blocks"), blocks, file);
    }
    *reader = (struct qsi_block_reader){.blocks = blocks, .file = *file};
    status = qsi_block_open(blocks, file, QS_OPEN_READ, &reader->handle, error);
    if (status != QS_OK) {
        qsi_free(reader);
        return status;
    }
    *reader_out = reader;
    return QS_OK;
}

void qsi_block_reader_close(struct qsi_block_reader *reader)
{
    if (reader != NULL) {
        reader->blocks->env->close(reader->blocks->env, reader->handle);
        qsi_free(reader);
    }
}

qs_status qsi_block_reader_read(struct qsi_block_reader *reader,
                                const struct qsi_block_entry *entry, struct qsi_chunk *room,
                                struct qsi_block_view *view_out, qs_error *error)
{
    return qsi_block_load(reader->blocks, &reader->file, reader->handle, entry, room, view_out,
                          error);
}

qs_status qsi_block_reader_read_dictionary(struct qsi_block_reader *reader,
                                           const struct qsi_block_entry *entry,
                                           struct qsi_block_dictionary *dictionary_out,
                                           qs_error *error)
{
    return qsi_block_load_dictionary(reader->blocks, &reader->file, reader->handle, entry,
                                     dictionary_out, error);
}

qs_status qsi_block_reader_read_index(struct qsi_block_reader *reader,
                                      struct qsi_block_entry **entries_out, qs_error *error)
{
    struct qsi_block_entry *entries;
    qs_status status;

    *entries_out = NULL;
    QS_TRY(qsi_block_check_count(reader->blocks, &reader->file, error));
    entries = qsi_alloc(reader->file.block_count * sizeof *entries);
    if (entries == NULL) {
        return qsi_block_fail(error, qsi_fail(error, QS_ENOMEM, "index of blocks"), reader->blocks,
                              &reader->file);
    }
    status = qsi_block_load_index(reader->blocks, &reader->file, reader->handle, entries, error);
    if (status != QS_OK) {
        qsi_free(entries);
        return status;
    }
    *entries_out = entries;
    return QS_OK;
}

/* ---- the whole file ---- */

/* A row whose body was damaged before the block was written. */
static qs_status find_lost(const struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                           const struct qsi_block_entry *entry, const struct qsi_block_view *view,
                           qs_error *error)
{
    for (uint32_t row = 0; view->messages.stored != NULL && row < view->rows; row++) {
        if (qsi_messages_is_stored(&view->messages, row)) {
            return qsi_block_damaged(error, blocks, file, entry->at,
                                     "a message of the block was damaged before it was written");
        }
    }
    return QS_OK;
}

qs_status qsi_block_file_check(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                               qsi_block_visitor *visit, void *context, qs_error *error)
{
    struct qsi_block_reader *reader;
    struct qsi_block_entry *entries = NULL;
    qs_status status;

    QS_TRY(qsi_block_reader_open(&reader, blocks, file, error));
    status = qsi_block_reader_read_index(reader, &entries, error);
    for (uint32_t i = 0; entries != NULL && i < file->block_count; i++) {
        struct qsi_block_view view;
        qs_error this_error = {0};
        qs_status read = qsi_block_reader_read(reader, &entries[i], NULL, &view, &this_error);
        if (read == QS_OK) {
            read = find_lost(blocks, file, &entries[i], &view, &this_error);
        }
        qsi_block_view_fini(&view);
        visit(context, &entries[i], read != QS_OK ? &this_error : NULL);
        if (read != QS_OK && status == QS_OK) {
            status = read;
            if (error != NULL) {
                *error = this_error;
            }
        }
    }
    qsi_free(entries);
    qsi_block_reader_close(reader);
    return status;
}
