/* Running a flush: the tail becomes blocks.
 *
 * Invariants: blocks are written after the contents that the stream's files had when the job began,
 * or in files that this job made; a run that fails leaves both as they were known, so it can be
 * tried again; the stream is not touched. */
#include "block_build.h"
#include "block_write.h"
#include "check.h"
#include "envelope.h"
#include "error.h"
#include "staged_file.h"
#include "stream_flush_job.h"

#include <string.h>

static uint32_t entry_count(const struct qsi_stream_flush_job *self)
{
    return (uint32_t)(self->entries.bytes / sizeof(struct qsi_block_entry));
}

/* The files as they are being written. */
struct flushing {
    struct qsi_stream_flush_job *job;
    struct qsi_stream_shared *shared;
    struct qsi_block_builder *builder;
    struct qsi_block_writer *writer;
    struct qsi_block_file file;
    uint64_t first_offset; /* of the block in the making */
};

/* The content of a stored message.  QS_ECORRUPT: out is unchanged. */
static qs_status read_whole(const struct flushing *flushing, const struct qsi_body *stored,
                            struct qsi_buf *out, struct qsi_stored_content *content_out,
                            qs_error *error)
{
    struct qsi_slice exchange, key, properties;
    const struct qsi_body_ref *ref = &stored->ref;
    size_t at = out->bytes;
    uint8_t *room;

    if (stored->kind != QSI_BODY_STORED || flushing->shared->messages == NULL) {
        return qsi_fail(error, QS_ECORRUPT, "stream: a message without its body");
    }
    QS_TRY(qsi_message_store_locate(flushing->shared->messages, ref, error)); /* it may be huge */
    if (qsi_buf_reserve(out, qsi_body_record_bytes(ref), &room) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "body of a message");
    }
    QS_TRY(qsi_message_store_read(flushing->shared->messages, ref, room, error));
    if (!qsi_envelope_decode(room + QSI_BODY_HEADER_BYTES, ref->envelope_bytes, &exchange, &key,
                             &properties)) {
        return qsi_fail(error, QS_ECORRUPT, "stream: a stored message has a malformed envelope");
    }
    out->bytes += qsi_body_record_bytes(ref);
    *content_out = (struct qsi_stored_content){
        .properties_at = at + (size_t)(properties.data - room),
        .properties_bytes = properties.bytes,
        .body_at = at + QSI_BODY_HEADER_BYTES + ref->envelope_bytes,
        .body_bytes = ref->body_bytes,
    };
    return QS_OK;
}

/* A damaged body costs only its message, which is marked as lost: the others are written. */
static qs_status put_damaged(const struct flushing *flushing, const struct qsi_body *stored,
                             struct qsi_buf *out, struct qsi_stored_content *content_out,
                             qs_error *error)
{
    struct qsi_body_damage damage = {
        .queue_id = flushing->job->job.container->id,
        .number = flushing->first_offset + qsi_block_builder_rows(flushing->builder),
        .generation = QSI_DAMAGE_OF_STREAM,
        .offset = 1 + (uint64_t)stored->ref.file,
    };
    size_t at = out->bytes;
    uint8_t *room;

    if (qsi_buf_reserve(out, QSI_BODY_DAMAGE_BYTES, &room) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "body of a message");
    }
    qsi_body_damage_encode(room, &damage);
    out->bytes += QSI_BODY_DAMAGE_BYTES;
    *content_out = (struct qsi_stored_content){
        .properties_at = at,
        .body_at = at,
        .body_bytes = QSI_BODY_DAMAGE_BYTES,
        .is_damaged = true,
    };
    return QS_OK;
}

static qs_status read_stored(void *context, const struct qsi_body *stored, struct qsi_buf *out,
                             struct qsi_stored_content *content_out, qs_error *error)
{
    const struct flushing *flushing = context;
    qs_error detail = {0};
    qs_status status = read_whole(flushing, stored, out, content_out, &detail);

    if (status == QS_ECORRUPT && stored->kind == QSI_BODY_STORED) {
        status = put_damaged(flushing, stored, out, content_out, error);
    } else if (status != QS_OK && error != NULL) {
        *error = detail;
    }
    return status;
}

/* For a file that was not read since the store was opened. */
static qs_status load_entries(struct flushing *flushing, qs_error *error)
{
    struct qsi_stream_flush_job *job = flushing->job;
    struct qsi_block_index *index = job->base_index;

    if (job->active.block_count == 0) {
        return QS_OK;
    }
    if (index == NULL) {
        struct qsi_block_file file = qsi_stream_file(job->job.container->id, &job->base);
        qs_status status =
            qsi_block_cache_read_index(flushing->shared->cache, &file, &index, error);
        job->cannot_read = qsi_is_damage(status);
        QS_TRY(status);
        job->base_index = index; /* the job's, like one that the stream had */
    }
    QS_ASSERT(index->count >= job->active.block_count);
    return qsi_buf_append(&job->entries, index->entries,
                          job->active.block_count * sizeof index->entries[0]);
}

static qs_status open_writer(struct flushing *flushing, uint64_t first_offset, qs_error *error)
{
    struct qsi_stream_flush_job *job = flushing->job;
    bool is_new = job->active.block_count == 0;
    qs_status status;

    if (flushing->writer != NULL) {
        return QS_OK;
    }
    if (is_new) {
        job->active = (struct qsi_stream_segment){.first = first_offset, .next = first_offset};
    }
    flushing->file = qsi_stream_file(job->job.container->id, &job->active);
    if (is_new && qsi_buf_append(&job->stray, &flushing->file, sizeof flushing->file) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "files of a stream");
    }
    status = qsi_block_writer_begin(&flushing->writer, flushing->shared->blocks, &flushing->file,
                                    job->page_aligned && !is_new && !job->has_written, error);
    job->cannot_read = qsi_is_damage(status) && !is_new;
    return status;
}

static qs_status seal(struct flushing *flushing, qs_error *error)
{
    struct qsi_stream_flush_job *job = flushing->job;

    QS_TRY(open_writer(flushing, job->active.first, error));
    QS_TRY(qsi_block_writer_seal(flushing->writer,
                                 (const struct qsi_block_entry *)(const void *)job->entries.data,
                                 job->active.last_time_us, error));
    qsi_block_writer_close(flushing->writer);
    flushing->writer = NULL;
    job->written_bytes += flushing->file.end - job->active.end;
    job->active.end = flushing->file.end;
    job->active.last_at = flushing->file.last_at;
    job->active.flags |= QSI_STREAM_SEALED;
    if (qsi_buf_append(&job->sealed, &job->active, sizeof job->active) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "segments of a stream");
    }
    job->active = (struct qsi_stream_segment){0};
    qsi_buf_clear(&job->entries);
    job->has_written = true;
    return QS_OK;
}

static void record_block(struct qsi_stream_flush_job *job, const struct qsi_block_file *file,
                         const struct qsi_built_block *block)
{
    struct qsi_stream_segment *active = &job->active;

    if (active->block_count == 0) {
        active->first_time_us = block->first_time_us;
    }
    job->written_bytes += file->end - active->end;
    active->next = block->first_offset + block->rows;
    active->end = file->end;
    active->last_at = file->last_at;
    active->last_time_us = block->last_time_us;
    active->salt = file->salt;
    active->block_count = file->block_count;
    job->last_time_us = block->last_time_us;
    job->has_written = true;
    job->job.message_count += block->rows;
}

/* The active file has its share of what the stream keeps: messages published then go to the next
 * one. */
static bool is_full(const struct qsi_stream_flush_job *job, uint64_t bytes, uint64_t time_us)
{
    const struct qsi_stream_segment *active = &job->active;
    const struct qsi_stream_limits *limits = &job->limits;

    if (active->block_count == 0) {
        return false;
    }
    if (active->end + bytes > limits->segment_bytes) {
        return true;
    }
    if (!limits->segments_follow) {
        return false;
    }
    QS_DCHECK(active->first < active->next);
    return (limits->max_messages > 0 && active->end >= QSI_STREAM_SEGMENT_LEAST &&
            active->next - active->first >= limits->max_messages / QSI_STREAM_SEGMENTS_KEPT) ||
           (limits->max_age_us > 0 && time_us > active->first_time_us &&
            time_us - active->first_time_us >= limits->max_age_us / QSI_STREAM_SEGMENTS_KEPT);
}

static qs_status put_block(struct flushing *flushing, qs_error *error)
{
    struct qsi_stream_flush_job *job = flushing->job;
    struct qsi_built_block block;
    struct qsi_block_entry entry;
    qs_status status;

    QS_TRY(qsi_block_builder_finish(flushing->builder, job->job.container->id,
                                    flushing->first_offset, &block, error));
    status = is_full(job, block.bytes, block.first_time_us) ? seal(flushing, error) : QS_OK;
    if (status == QS_OK) {
        status = open_writer(flushing, block.first_offset, error);
    }
    if (status == QS_OK) {
        status = qsi_block_writer_put(flushing->writer, &block, &entry, error);
    }
    if (status == QS_OK) {
        record_block(job, &flushing->file, &block);
        status = qsi_buf_append(&job->entries, &entry, sizeof entry);
    }
    qsi_chunk_unref(block.chunk);
    return status;
}

static qs_status put_piece(struct flushing *flushing, const struct qsi_stream_tail *piece,
                           qs_error *error)
{
    for (uint32_t i = 0; i < piece->count;) {
        struct qsi_row_stretch stretch =
            qsi_messages_ref_stretch(&piece->messages, i, piece->count);
        uint64_t offset = piece->first_offset + i;
        uint32_t rows = qsi_block_builder_rows(flushing->builder), taken = 0;
        if (rows == 0) {
            flushing->first_offset = offset;
        }
        if (flushing->first_offset + rows == offset) {
            QS_TRY(qsi_block_builder_add(flushing->builder, &stretch,
                                         qsi_stream_tail_time(piece, i), &taken, error));
        }
        if (taken < stretch.count) { /* the block is full, or there is a gap */
            QS_TRY(put_block(flushing, error));
        }
        i += taken;
    }
    return QS_OK;
}

static qs_status write_blocks(struct flushing *flushing, qs_error *error)
{
    struct qsi_stream_flush_job *job = flushing->job;

    QS_TRY(load_entries(flushing, error));
    for (uint32_t i = 0; i < qsi_stream_flush_piece_count(job); i++) {
        QS_TRY(put_piece(flushing, &qsi_stream_flush_pieces(job)[i], error));
    }
    return qsi_block_builder_rows(flushing->builder) > 0 ? put_block(flushing, error) : QS_OK;
}

/* ---- what is written directly ---- */

static qs_status sync_segment(const struct flushing *flushing,
                              const struct qsi_stream_segment *segment, qs_error *error)
{
    struct qsi_block_file file = qsi_stream_file(flushing->job->job.container->id, segment);

    return qsi_block_file_sync(flushing->shared->blocks, &file, error);
}

static qs_status sync_segments(const struct flushing *flushing, const struct qsi_buf *segments,
                               qs_error *error)
{
    const struct qsi_stream_segment *at =
        (const struct qsi_stream_segment *)(const void *)segments->data;

    for (size_t i = 0; i < segments->bytes / sizeof *at; i++) {
        QS_TRY(sync_segment(flushing, &at[i], error));
    }
    return QS_OK;
}

/* Everything that the journal will name except the blocks that are still to be written. */
static qs_status sync_others(const struct flushing *flushing, qs_error *error)
{
    const struct qsi_stream_flush_job *job = flushing->job;
    bool is_new = job->stray.bytes > 0;

    if (!job->direct->reaches_disk) {
        return QS_OK;
    }
    if (job->direct->has_unnamed || job->sealed.bytes > 0) {
        QS_TRY(sync_segments(flushing, &job->direct->unnamed, error));
        QS_TRY(sync_segments(flushing, &job->sealed, error));
        if (job->active.block_count > 0) {
            QS_TRY(sync_segment(flushing, &job->active, error));
        }
        is_new = true;
    }
    return is_new ? qsi_block_dir_sync_now(flushing->shared->blocks, error) : QS_OK;
}

static qs_status put_record(struct flushing *flushing,
                            const struct qsi_stream_direct_record *record, uint64_t offset,
                            qs_error *error)
{
    struct qsi_stream_flush_job *job = flushing->job;
    struct qsi_block_rows rows = {
        .owner = job->job.container->id,
        .first_offset = offset,
        .time_us = job->direct->time_us,
        .record = record->record,
        .rows = record->rows,
    };
    struct qsi_built_block block = {
        .first_offset = offset,
        .first_time_us = rows.time_us,
        .last_time_us = rows.time_us,
        .rows = rows.rows,
    };
    struct qsi_block_entry entry;

    qsi_messages_put_destination(record->record, 0, rows.owner, offset, rows.rows);
    qsi_messages_put_time(record->record, rows.time_us);
    QS_TRY(qsi_block_writer_put_rows(flushing->writer, &rows, &entry, &job->direct->crc, error));
    record_block(job, &flushing->file, &block);
    return qsi_buf_append(&job->entries, &entry, sizeof entry) == QS_OK
               ? QS_OK
               : qsi_fail(error, QS_ENOMEM, "blocks of a stream");
}

/* All in one file, on pages of their own. */
static qs_status write_records(struct flushing *flushing, qs_error *error)
{
    struct qsi_stream_flush_job *job = flushing->job;
    struct qsi_stream_direct *direct = job->direct;
    uint64_t offset = direct->first_offset, bytes = 0;

    for (uint32_t i = 0; i < direct->record_count; i++) {
        bytes += qsi_record_length(direct->records[i].record);
    }
    if (is_full(job, bytes, direct->time_us)) {
        QS_TRY(seal(flushing, error));
    }
    qsi_block_writer_close(flushing->writer);
    flushing->writer = NULL;
    job->page_aligned = true; /* the bytes before it are synced next */
    job->has_written = false;
    QS_TRY(open_writer(flushing, offset, error));
    QS_TRY(sync_others(flushing, error));
    for (uint32_t i = 0; i < direct->record_count; i++) {
        QS_TRY(put_record(flushing, &direct->records[i], offset, error));
        offset += direct->records[i].rows;
    }
    return QS_OK;
}

/* ---- what was staged ---- */

/* The file that grew is sealed: the next blocks go to a new one, behind these. */
static qs_status link_file(struct flushing *flushing, const struct qsi_stream_staged *staged,
                           uint64_t offset, qs_dir *from, qs_error *error)
{
    struct qsi_stream_flush_job *job = flushing->job;
    struct qsi_stream_segment segment = {
        .first = offset,
        .next = offset + staged->rows,
        .end = staged->file->end,
        .last_at = staged->file->last_at,
        .first_time_us = job->direct->time_us,
        .last_time_us = job->direct->time_us,
        .salt = staged->file->salt,
        .block_count = staged->file->block_count,
        .flags = QSI_STREAM_SEALED | QSI_STREAM_ADOPTED,
    };
    const struct qsi_block_file file = qsi_stream_file(job->job.container->id, &segment);

    if (qsi_buf_append(&job->stray, &file, sizeof file) != QS_OK ||
        qsi_buf_append(&job->sealed, &segment, sizeof segment) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "segments of a stream");
    }
    return qsi_block_file_link(flushing->shared->blocks, &file, from, staged->name, error);
}

static qs_status link_files(struct flushing *flushing, qs_error *error)
{
    struct qsi_stream_flush_job *job = flushing->job;
    qs_env *env = qsi_block_dir_env(flushing->shared->blocks);
    uint64_t offset = job->direct->first_offset;
    struct qsi_staged_folder folder = {.dir = NULL};
    qs_status status = QS_OK;

    if (job->active.block_count > 0) {
        QS_TRY(seal(flushing, error));
    }
    for (uint32_t i = 0; status == QS_OK && i < job->direct->staged_count; i++) {
        const struct qsi_stream_staged *staged = &job->direct->staged[i];
        if (qsi_staged_folder_open(&folder, env, staged->folder, error) != QS_OK) {
            status = QS_NOT_IMPLEMENTED; /* the caller's folder failed, not the store */
        } else {
            status = link_file(flushing, staged, offset, folder.dir, error);
        }
        offset += staged->rows;
    }
    qsi_staged_folder_close(&folder, env);
    QS_TRY(status);
    job->last_time_us = job->direct->time_us;
    return sync_others(flushing, error);
}

/* What end needs, so that it cannot fail. */
static qs_status make_results(struct qsi_stream_flush_job *self, qs_error *error)
{
    uint32_t sealed = (uint32_t)(self->sealed.bytes / sizeof(struct qsi_stream_segment));
    size_t bytes = self->entries.bytes;

    self->index = qsi_block_index_create(entry_count(self));
    self->table =
        qsi_stream_table_create(2 * (self->table_count + sealed) + QSI_STREAM_TABLE_FIRST);
    if (self->index == NULL || self->table == NULL) {
        return qsi_fail(error, QS_ENOMEM, "segments of a stream");
    }
    if (bytes > 0) {
        memcpy(self->index->entries, self->entries.data, bytes);
    }
    return QS_OK;
}

/* As before the first run. */
static void reset(struct qsi_stream_flush_job *self)
{
    qsi_stream_table_unref(self->table);
    qsi_block_index_unref(self->index);
    self->table = NULL;
    self->index = NULL;
    qsi_buf_clear(&self->entries);
    qsi_buf_clear(&self->sealed);
    qsi_buf_clear(&self->stray);
    self->active = self->base;
    self->written_bytes = 0;
    self->job.message_count = 0;
    self->has_written = self->cannot_read = false;
    if (self->direct != NULL) {
        self->direct->crc = 0;
    }
}

/* Files that an unsuccessful run made: nothing names them. */
static void remove_stray(struct qsi_stream_flush_job *self)
{
    const struct qsi_block_file *files =
        (const struct qsi_block_file *)(const void *)self->stray.data;
    struct qsi_stream_shared *shared = qsi_stream_flushed(self)->shared;

    for (size_t i = 0; i < self->stray.bytes / sizeof *files; i++) {
        /* A file that stays is replaced by the next file of that name, or removed at the next
         * open. */
        qs_status ignored = qsi_block_file_remove(shared->blocks, &files[i], NULL);
        (void)ignored;
    }
}

void qsi_stream_flush_undo(struct qsi_stream_flush_job *self)
{
    struct qsi_block_file base = qsi_stream_file(self->job.container->id, &self->base);

    remove_stray(self);
    if (self->base.block_count > 0) {
        qsi_block_file_cut(qsi_stream_flushed(self)->shared->blocks, &base);
    }
}

qs_status qsi_stream_flush_blocks(struct qsi_job *job, qs_error *error)
{
    struct qsi_stream_flush_job *self = qsi_stream_flush_job_of(job);
    struct flushing flushing = {.job = self, .shared = qsi_stream_flushed(self)->shared};
    struct qsi_block_build_options options = {.reader = read_stored, .context = &flushing};
    qs_status status;

    reset(self);
    flushing.builder = qsi_block_builder_create(&options);
    status = flushing.builder != NULL ? write_blocks(&flushing, error)
                                      : qsi_fail(error, QS_ENOMEM, "builder of blocks");
    if (status == QS_OK && self->direct != NULL) {
        status = self->direct->staged_count > 0 ? link_files(&flushing, error)
                                                : write_records(&flushing, error);
    }
    if (status == QS_OK) {
        status = make_results(self, error);
    }
    if (status == QS_OK && flushing.writer != NULL && self->direct != NULL) {
        qsi_block_writer_leave(flushing.writer, &self->direct->unsynced);
    }
    qsi_block_writer_close(flushing.writer);
    qsi_block_builder_destroy(flushing.builder);
    if (status != QS_OK && self->direct != NULL) {
        qsi_stream_flush_undo(self);
    } else if (status != QS_OK) {
        remove_stray(self);
    }
    self->job.made_file = self->stray.bytes > 0;
    return status;
}
