/* Flushing: the tail becomes blocks, or, for a checkpoint that carries it, records.
 *
 * Invariants: what run writes lies behind what the stream's files had when the job began, or in
 * files that it made; a run that fails leaves both as they were known, so it can be tried again;
 * only end changes the stream. */
#include "alloc.h"
#include "block_build.h"
#include "block_write.h"
#include "check.h"
#include "envelope.h"
#include "error.h"
#include "messages_write.h"
#include "record_build.h"
#include "stream_internal.h"

#include <string.h>

#define CARRIED_RECORD_BYTES (1u << 20)
#define TABLE_FIRST 16u

struct qsi_stream_flush_job {
    struct qsi_job job;
    uint64_t from_seq, end_seq;
    uint64_t segment_bytes;
    struct qsi_buf pieces; /* struct qsi_stream_tail */
    struct qsi_carried *carried;
    void (*told)(void *context);
    void *context;

    /* as the stream has it: */
    struct qsi_stream_segment base;
    struct qsi_block_index *base_index; /* NULL: nobody has read it */
    bool page_aligned;
    uint32_t table_count;

    /* what run makes of it: */
    struct qsi_stream_segment active;
    struct qsi_buf entries; /* struct qsi_block_entry: of the active file */
    struct qsi_buf sealed;  /* struct qsi_stream_segment */
    struct qsi_stream_table *table;
    struct qsi_block_index *index;
    uint64_t last_time_us;
    uint64_t written_bytes;
    bool has_written;     /* to the active file */
    bool cannot_read;     /* the file that it was to add to */
    struct qsi_buf stray; /* struct qsi_block_file: made by a run that failed */
};

static struct qsi_stream_flush_job *job_of(struct qsi_job *job)
{
    return (struct qsi_stream_flush_job *)(void *)job;
}

static struct qsi_stream *stream_of(const struct qsi_stream_flush_job *self)
{
    return qsi_stream_of(self->job.container);
}

static struct qsi_stream_tail *pieces_of(const struct qsi_stream_flush_job *self)
{
    return (struct qsi_stream_tail *)(void *)self->pieces.data;
}

static uint32_t piece_count(const struct qsi_stream_flush_job *self)
{
    return (uint32_t)(self->pieces.bytes / sizeof(struct qsi_stream_tail));
}

static uint32_t entry_count(const struct qsi_stream_flush_job *self)
{
    return (uint32_t)(self->entries.bytes / sizeof(struct qsi_block_entry));
}

/* ---- pieces of the tail ---- */

qs_status qsi_stream_tail_take(struct qsi_stream_tail *tail_out, const struct qsi_stream_run *run,
                               uint32_t from, uint32_t count)
{
    const struct qsi_messages_ref *messages = &run->run->messages;

    QS_ASSERT(from <= run->run->count && count <= run->run->count - from);
    *tail_out = (struct qsi_stream_tail){
        .messages = *messages,
        .first_offset = run->run->first_seq + from,
        .run_offset = run->run->first_seq,
        .floor_us = run->floor_us,
        .count = count,
        .has_stored = run->run->has_stored,
    };
    if (messages->rows == NULL) {
        tail_out->messages.first_row += from;
    } else { /* the run's own may move while it grows */
        tail_out->messages.rows = qsi_alloc(count * sizeof *messages->rows);
        if (tail_out->messages.rows == NULL) {
            return QS_ENOMEM;
        }
        memcpy(tail_out->messages.rows, messages->rows + from, count * sizeof *messages->rows);
    }
    qsi_chunk_ref(messages->chunk);
    return QS_OK;
}

void qsi_stream_tail_fini(struct qsi_stream_tail *tail)
{
    qsi_chunk_unref(tail->messages.chunk);
    qsi_free(tail->messages.rows);
}

uint64_t qsi_stream_tail_time(const struct qsi_stream_tail *tail, uint32_t i)
{
    uint32_t row;
    uint64_t time_us = qsi_messages_time(qsi_messages_ref_record(&tail->messages, i, &row));

    return time_us > tail->floor_us ? time_us : tail->floor_us;
}

/* ---- begin ---- */

static void free_pieces(struct qsi_stream_flush_job *self)
{
    for (uint32_t i = 0; i < piece_count(self); i++) {
        qsi_stream_tail_fini(&pieces_of(self)[i]);
    }
    qsi_buf_fini(&self->pieces);
}

static void free_job(struct qsi_stream_flush_job *self)
{
    free_pieces(self);
    qsi_buf_fini(&self->entries);
    qsi_buf_fini(&self->sealed);
    qsi_buf_fini(&self->stray);
    qsi_stream_table_unref(self->table);
    qsi_block_index_unref(self->base_index);
    qsi_block_index_unref(self->index);
    qsi_free(self);
}

static qs_status take_pieces(struct qsi_stream_flush_job *self, uint64_t bytes_max)
{
    const struct qsi_stream *stream = stream_of(self);
    uint64_t bytes = 0;

    self->end_seq = self->from_seq;
    for (uint32_t i = qsi_stream_find_run(stream, self->from_seq);
         i < stream->run_count && bytes < bytes_max; i++) {
        const struct qsi_stream_run *run = qsi_stream_run_at(stream, i);
        uint32_t from = self->from_seq > run->run->first_seq
                            ? (uint32_t)(self->from_seq - run->run->first_seq)
                            : 0;
        struct qsi_stream_tail piece;
        qs_status status;
        QS_TRY(qsi_stream_tail_take(&piece, run, from, run->run->count - from));
        status = qsi_buf_append(&self->pieces, &piece, sizeof piece);
        if (status != QS_OK) {
            qsi_stream_tail_fini(&piece);
            return status;
        }
        bytes += run->run->ram_bytes;
        self->end_seq = run->run->first_seq + run->run->count;
    }
    if (qsi_stream_find_run(stream, self->end_seq) == stream->run_count) {
        self->end_seq = stream->container.next_seq; /* with what was skipped behind the last one */
    }
    return QS_OK;
}

static void refresh(struct qsi_job *job)
{
    struct qsi_stream_flush_job *self = job_of(job);
    const struct qsi_stream *stream = stream_of(self);

    qsi_block_index_unref(self->base_index);
    self->base = stream->active;
    self->base_index =
        stream->active_index != NULL ? qsi_block_index_ref(stream->active_index) : NULL;
    self->page_aligned = stream->page_aligned;
    self->table_count = qsi_stream_table_count(stream);
    self->last_time_us = stream->flushed_time_us;
}

/* ---- run: blocks ---- */

/* The files as they are being written. */
struct flushing {
    struct qsi_stream_flush_job *job;
    struct qsi_stream_shared *shared;
    struct qsi_block_builder *builder;
    struct qsi_block_writer *writer;
    struct qsi_block_file file;
    uint64_t first_offset; /* of the block in the making */
};

static qs_status read_stored(void *context, const struct qsi_body *stored, struct qsi_buf *out,
                             struct qsi_stored_content *content_out, qs_error *error)
{
    const struct flushing *flushing = context;
    struct qsi_slice exchange, key, properties;
    const struct qsi_body_ref *ref = &stored->ref;
    size_t at = out->bytes;
    uint8_t *room;

    if (stored->kind != QSI_BODY_STORED || flushing->shared->messages == NULL) {
        return qsi_fail(error, QS_ECORRUPT, "stream: a message without its body");
    }
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

/* Of a file that nobody has read since the store was opened. */
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
        job->cannot_read = status == QS_ECORRUPT;
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
    job->cannot_read = status == QS_ECORRUPT && !is_new;
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

static void note_block(struct qsi_stream_flush_job *job, const struct qsi_block_file *file,
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

static qs_status put_block(struct flushing *flushing, qs_error *error)
{
    struct qsi_stream_flush_job *job = flushing->job;
    struct qsi_built_block block;
    struct qsi_block_entry entry;
    qs_status status;

    QS_TRY(qsi_block_builder_finish(flushing->builder, job->job.container->id,
                                    flushing->first_offset, &block, error));
    status = job->active.block_count > 0 && job->active.end + block.bytes > job->segment_bytes
                 ? seal(flushing, error)
                 : QS_OK;
    if (status == QS_OK) {
        status = open_writer(flushing, block.first_offset, error);
    }
    if (status == QS_OK) {
        status = qsi_block_writer_put(flushing->writer, &block, &entry, error);
    }
    if (status == QS_OK) {
        note_block(job, &flushing->file, &block);
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
    for (uint32_t i = 0; i < piece_count(job); i++) {
        QS_TRY(put_piece(flushing, &pieces_of(job)[i], error));
    }
    return qsi_block_builder_rows(flushing->builder) > 0 ? put_block(flushing, error) : QS_OK;
}

/* What end needs, so that it cannot fail. */
static qs_status make_results(struct qsi_stream_flush_job *self, qs_error *error)
{
    uint32_t sealed = (uint32_t)(self->sealed.bytes / sizeof(struct qsi_stream_segment));
    size_t bytes = self->entries.bytes;

    self->index = qsi_block_index_create(entry_count(self));
    self->table = qsi_stream_table_create(2 * (self->table_count + sealed) + TABLE_FIRST);
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
}

/* Files that a run made which then failed: nobody knows of them. */
static void remove_stray(struct qsi_stream_flush_job *self)
{
    const struct qsi_block_file *files =
        (const struct qsi_block_file *)(const void *)self->stray.data;
    struct qsi_stream_shared *shared = stream_of(self)->shared;

    for (size_t i = 0; i < self->stray.bytes / sizeof *files; i++) {
        /* What stays is replaced by the next file of that name, or removed at the next open. */
        qs_status ignored = qsi_block_file_remove(shared->blocks, &files[i], NULL);
        (void)ignored;
    }
}

static qs_status run_blocks(struct qsi_job *job, qs_error *error)
{
    struct qsi_stream_flush_job *self = job_of(job);
    struct flushing flushing = {.job = self, .shared = stream_of(self)->shared};
    struct qsi_block_build_options options = {.reader = read_stored, .context = &flushing};
    qs_status status;

    reset(self);
    flushing.builder = qsi_block_builder_create(&options);
    status = flushing.builder != NULL ? write_blocks(&flushing, error)
                                      : qsi_fail(error, QS_ENOMEM, "builder of blocks");
    if (status == QS_OK) {
        status = make_results(self, error);
    }
    qsi_block_writer_close(flushing.writer);
    qsi_block_builder_destroy(flushing.builder);
    if (status != QS_OK) {
        remove_stray(self);
    }
    self->job.made_file = self->stray.bytes > 0;
    return status;
}

/* ---- run: records that a checkpoint carries ---- */

static qs_status finish_record(const struct qsi_stream_flush_job *self,
                               struct qsi_record_build *build, uint64_t first_offset,
                               uint64_t time_us, qs_error *error)
{
    uint64_t bytes;
    uint8_t *room;

    QS_TRY(qsi_record_build_measure(build, &bytes, error));
    QS_TRY(qsi_buf_reserve(&self->carried->records, bytes, &room));
    qsi_record_build_write(build, room, self->job.container->id, first_offset, time_us, NULL);
    self->carried->records.bytes += bytes;
    self->carried->record_count += 1;
    qsi_record_build_clear(build);
    return QS_OK;
}

/* Each record has one time: rows of another one begin the next. */
static qs_status carry_piece(const struct qsi_stream_flush_job *self,
                             const struct qsi_stream_tail *piece, struct qsi_record_build *build,
                             qs_error *error)
{
    for (uint32_t i = 0; i < piece->count;) {
        uint64_t time_us = qsi_stream_tail_time(piece, i), first = piece->first_offset + i;
        bool is_full = false;
        while (!is_full && i < piece->count && qsi_stream_tail_time(piece, i) == time_us) {
            struct qsi_row_stretch stretch =
                qsi_messages_ref_stretch(&piece->messages, i, piece->count);
            uint32_t taken;
            QS_TRY(qsi_record_build_add(build, &stretch, UINT32_MAX, CARRIED_RECORD_BYTES, &taken,
                                        error));
            is_full = taken < stretch.count;
            i += taken;
        }
        QS_TRY(finish_record(self, build, first, time_us, error));
    }
    return QS_OK;
}

static qs_status run_carried(struct qsi_job *job, qs_error *error)
{
    struct qsi_stream_flush_job *self = job_of(job);
    struct qsi_record_build *build = qsi_record_build_create(QSI_BUILD_KEEP_STORED, NULL, NULL);
    size_t bytes = self->carried->records.bytes;
    uint32_t count = self->carried->record_count;
    qs_status status = build != NULL ? QS_OK : qsi_fail(error, QS_ENOMEM, "a record");

    for (uint32_t i = 0; status == QS_OK && i < piece_count(self); i++) {
        status = carry_piece(self, &pieces_of(self)[i], build, error);
    }
    if (status != QS_OK) {
        self->carried->records.bytes = bytes;
        self->carried->record_count = count;
    }
    qsi_record_build_destroy(build);
    return status;
}

static void end_carried(struct qsi_job *job, bool done)
{
    (void)done;
    free_job(job_of(job));
}

/* ---- end ---- */

static void put_sealed(struct qsi_stream *stream, struct qsi_stream_flush_job *self)
{
    const struct qsi_stream_segment *sealed =
        (const struct qsi_stream_segment *)(const void *)self->sealed.data;
    uint32_t count = (uint32_t)(self->sealed.bytes / sizeof *sealed);
    uint32_t present = qsi_stream_table_count(stream) - stream->table_first;

    if (count > 0 &&
        (stream->table == NULL || stream->table->count + count > stream->table->capacity)) {
        QS_ASSERT(present + count <= self->table->capacity);
        if (present > 0) {
            memcpy(self->table->segments, &stream->table->segments[stream->table_first],
                   present * sizeof *sealed);
        }
        self->table->count = present;
        qsi_stream_table_unref(stream->table);
        stream->table = self->table;
        stream->table_first = 0;
        self->table = NULL;
    }
    for (uint32_t i = 0; i < count; i++) {
        stream->table->segments[stream->table->count++] = sealed[i];
        stream->earlier_bytes += sealed[i].end;
    }
}

static void install(struct qsi_stream *stream, struct qsi_stream_flush_job *self)
{
    put_sealed(stream, self);
    stream->active = self->active;
    qsi_block_index_unref(stream->active_index);
    stream->active_index = self->index;
    self->index = NULL;
    stream->page_aligned = stream->page_aligned && !self->has_written;
    stream->flushed_time_us = self->last_time_us;
    stream->shared->flushed_bytes += self->written_bytes;
    if (stream->container.flushed_seq < self->end_seq) {
        stream->container.flushed_seq = self->end_seq;
    }
    if (self->told != NULL) {
        self->told(self->context);
    }
}

/* The stream was deleted meanwhile: the files that this made are dead like its others. */
static void kill_made(struct qsi_stream *stream, struct qsi_stream_flush_job *self)
{
    /* Without memory they stay until the next open, which knows no stream that has them. */
    qs_status ignored = qsi_buf_append(&stream->shared->dead, self->stray.data, self->stray.bytes);

    (void)ignored;
}

static void end_blocks(struct qsi_job *job, bool done)
{
    struct qsi_stream_flush_job *self = job_of(job);
    struct qsi_stream *stream = stream_of(self);

    QS_ASSERT(stream->is_flushing);
    stream->is_flushing = false;
    if (done && stream->is_deleted) {
        kill_made(stream, self);
    } else if (done) {
        install(stream, self);
    }
    free_job(self);
}

/* The file stays where it is with what it has; the next blocks go to a new one. */
static qs_status leave_file(struct qsi_job *job)
{
    struct qsi_stream_flush_job *self = job_of(job);
    struct qsi_stream *stream = stream_of(self);
    struct qsi_stream_table *table;
    uint32_t present = qsi_stream_table_count(stream) - stream->table_first;

    if (!self->cannot_read || stream->active.block_count == 0) {
        return QS_ECORRUPT;
    }
    table = qsi_stream_table_create(2 * present + TABLE_FIRST);
    if (table == NULL) {
        return QS_ENOMEM;
    }
    if (present > 0) {
        memcpy(table->segments, &stream->table->segments[stream->table_first],
               present * sizeof table->segments[0]);
    }
    table->segments[present] = stream->active;
    table->count = present + 1;
    qsi_stream_table_unref(stream->table);
    stream->table = table;
    stream->table_first = 0;
    stream->earlier_bytes += stream->active.end;
    stream->active = (struct qsi_stream_segment){0};
    qsi_block_index_unref(stream->active_index);
    stream->active_index = NULL;
    refresh(job);
    return QS_OK;
}

static const struct qsi_job_kind block_kind = {
    .refresh = refresh, .run = run_blocks, .leave_file = leave_file, .end = end_blocks};
static const struct qsi_job_kind carried_kind = {.run = run_carried, .end = end_carried};

/* ---- making jobs ---- */

qs_status qsi_stream_flush_job_begin(struct qsi_stream *stream, uint64_t bytes_max,
                                     struct qsi_carried *carried,
                                     struct qsi_stream_flush_job **job_out)
{
    struct qsi_stream_flush_job *self;
    qs_status status;

    *job_out = NULL;
    QS_ASSERT(!stream->is_flushing);
    if (qsi_stream_find_run(stream, stream->container.flushed_seq) == stream->run_count) {
        stream->container.flushed_seq = stream->container.next_seq;
        return QS_EEMPTY;
    }
    self = qsi_zalloc(sizeof *self);
    if (self == NULL) {
        return QS_ENOMEM;
    }
    self->job.kind = carried != NULL ? &carried_kind : &block_kind;
    self->job.container = &stream->container;
    self->from_seq = stream->container.flushed_seq;
    self->segment_bytes = stream->limits.segment_bytes;
    self->carried = carried;
    status = take_pieces(self, bytes_max);
    if (status != QS_OK) {
        free_job(self);
        return status;
    }
    refresh(&self->job);
    stream->is_flushing = stream->is_flushing || carried == NULL;
    *job_out = self;
    return QS_OK;
}

struct qsi_job *qsi_stream_flush_job(struct qsi_stream_flush_job *job)
{
    return &job->job;
}

void qsi_stream_flush_tell(struct qsi_stream_flush_job *job, void (*told)(void *context),
                           void *context)
{
    job->told = told;
    job->context = context;
}

qs_status qsi_stream_begin_flush(struct qsi_container *container, uint64_t bytes_max,
                                 struct qsi_job **job_out)
{
    struct qsi_stream_flush_job *job;

    *job_out = NULL;
    QS_TRY(qsi_stream_flush_job_begin(qsi_stream_of(container), bytes_max, NULL, &job));
    *job_out = &job->job;
    return QS_OK;
}
