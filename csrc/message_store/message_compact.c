/* Compaction: the live records of a message file move into its next generation.
 *
 * Invariants: the old file does not change, and stays until a checkpoint that names the new
 * generation is durable; a new generation is complete and durable, with its name, before another
 * thread can find it; copied records were verified during the copy. */
#include "qstore/codec.h"

#include "alloc.h"
#include "check.h"
#include "compaction.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "le.h"
#include "message_store.h"

#include <string.h>

/* The bytes that may be read to distinguish records from garbage, in sizes of the file. */
#define EFFORT_MAX 4u

static void set_bit(uint8_t *bits, uint32_t index)
{
    bits[index / 8] = (uint8_t)(bits[index / 8] | 1u << (index % 8));
}

/* -- choosing --------------------------------------------------------------------------------- */

static uint64_t compact_bytes(const struct qsi_message_file *file)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    return QSI_MESSAGE_HEADER_BYTES + file->counts.live_bytes +
           qsi_message_table_bytes(file->next_slot);
}

/* Bytes that compaction would free; 0: not worth it, or not possible. */
static uint64_t gain(const struct qsi_message_file *file) QSI_REQUIRES(qsi_message_store_mutex)
{
    uint64_t bytes = compact_bytes(file);

    if (!qsi_message_file_is_settled(file) || !file->is_final || file->is_kept || file->is_going ||
        file->is_compacting || file->is_hopeless ||
        file->id.generation == QSI_MESSAGE_GENERATION_MAX) {
        return 0;
    }
    /* Uncounted references look like garbage; a file without references is removed anyway. */
    if (file->counts.live_count == 0 || file->counts.beyond > 0 || file->counts.is_pinned) {
        return 0;
    }
    return bytes < file->end / 2 ? file->end - bytes : 0;
}

static struct qsi_message_file *choose(struct qsi_message_store *messages)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&messages->files);
    struct qsi_message_file *best = NULL;
    uint64_t most = 0;

    while (qsi_map_next(&messages->files, &cursor)) {
        uint64_t bytes = gain(cursor.value);

        if (bytes > most) {
            most = bytes;
            best = cursor.value;
        }
    }
    return best;
}

/* -- beginning and end ------------------------------------------------------------------------ */

static void free_job(struct qsi_message_store *messages, struct qsi_compaction *job)
{
    qsi_message_file_destroy(messages, job->to);
    qsi_free(job->wanted);
    qsi_free(job->was_live);
    qsi_free(job);
}

static void record_live(struct qsi_compaction *job)
{
    for (uint32_t slot = 0; slot < job->slot_count; slot++) {
        if (qsi_counts_is_live(&job->from->counts, slot)) {
            set_bit(job->wanted, slot);
            set_bit(job->was_live, slot);
            job->wanted_count++;
        }
    }
}

/* NULL: out of memory. */
static struct qsi_compaction *create_job(struct qsi_message_store *messages,
                                         struct qsi_message_file *file)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    struct qsi_message_id next = {file->id.number, file->id.generation + 1};
    size_t bitmap_bytes = (size_t)file->next_slot / 8 + 1;
    struct qsi_compaction *job = qsi_zalloc(sizeof *job);

    if (job == NULL) {
        return NULL;
    }
    job->from = file;
    job->slot_count = file->next_slot;
    job->to = qsi_message_file_describe(next);
    job->wanted = qsi_zalloc(bitmap_bytes);
    job->was_live = qsi_zalloc(bitmap_bytes);
    if (job->to == NULL || job->wanted == NULL || job->was_live == NULL) {
        free_job(messages, job);
        return NULL;
    }
    record_live(job);
    return job;
}

qs_status qsi_message_store_compact_begin(struct qsi_message_store *messages,
                                          struct qsi_compaction **job_out, qs_error *error)
{
    struct qsi_message_file *file;
    qs_status status = QS_OK;

    *job_out = NULL;
    qsi_message_store_lock(messages);
    file = choose(messages);
    if (file != NULL) {
        *job_out = create_job(messages, file);
        if (*job_out == NULL) {
            status = qsi_fail(error, QS_ENOMEM, "compaction of message file %u", file->id.number);
        } else {
            file->is_compacting = true;
            file->refs++;
            qsi_list_remove(&file->in_idle);
        }
    }
    qsi_message_store_unlock(messages);
    return status;
}

/* Whether no reference was added to a slot that was left out as dead. */
static bool still_fits(const struct qsi_compaction *job) QSI_REQUIRES(qsi_message_store_mutex)
{
    const struct qsi_message_counts *counts = &job->from->counts;

    if (counts->beyond > 0 || counts->is_pinned || job->from->next_slot != job->slot_count) {
        return false;
    }
    for (uint32_t slot = 0; slot < job->slot_count; slot++) {
        if (qsi_counts_is_live(counts, slot) && !qsi_compaction_has(job->was_live, slot)) {
            return false;
        }
    }
    return true;
}

static void take_over(struct qsi_message_store *messages, struct qsi_compaction *job)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    struct qsi_message_file *from = job->from;
    struct qsi_message_file *to = job->to;

    to->counts = from->counts;
    from->counts = (struct qsi_message_counts){0};
    to->next_slot = from->next_slot;
    to->is_final = true;
    /* Cannot fail: the key exists. */
    QS_ASSERT(qsi_message_table_add(messages, to) == QS_OK);
    from->is_replaced = true;
    qsi_list_push_back(&messages->replaced, &from->in_replaced);
    qsi_message_file_count_doomed(messages, from);
    qsi_message_file_count_doomed(messages, to);
    job->to = NULL;
}

static void discard_new(struct qsi_message_store *messages, const struct qsi_compaction *job)
{
    if (job->has_name) {
        char name[QSI_MESSAGE_NAME_BYTES];

        qsi_message_name(name, job->to->id);
        /* If this fails, the file stays until the next recovery finds that no checkpoint names
         * it. */
        (void)qsi_env_remove(messages->env, messages->dir, name, NULL);
    }
}

void qsi_message_store_compact_end(struct qsi_message_store *messages, struct qsi_compaction *job,
                                   bool done)
{
    qs_file *evicted;

    if (job == NULL) {
        return;
    }
    qsi_message_store_lock(messages);
    job->from->is_compacting = false;
    job->from->is_hopeless = job->is_hopeless;
    done = done && job->is_whole && still_fits(job);
    if (done) {
        take_over(messages, job);
    }
    evicted = qsi_message_file_unref(messages, job->from);
    qsi_message_store_unlock(messages);
    messages->env->close(messages->env, evicted);
    if (!done) {
        discard_new(messages, job);
    }
    free_job(messages, job);
}

/* -- the job ---------------------------------------------------------------------------------- */

static qs_status put_table(struct qsi_compaction *job, struct qsi_message_output *output,
                           qs_error *error)
{
    uint32_t crc = 0;
    uint8_t tail[8] = {0};

    for (uint32_t slot = 0; slot < job->slot_count;) {
        uint32_t left = job->slot_count - slot;
        uint32_t count = left < QSI_TABLE_STEP ? left : QSI_TABLE_STEP;

        for (uint32_t i = 0; i < count; i++) {
            qsi_put_u64(output->buffer + (size_t)i * 8, output->offsets[slot + i]);
        }
        crc = qs_crc32c(crc, output->buffer, (size_t)count * 8);
        QS_TRY(qsi_output_put(output, output->buffer, (size_t)count * 8, output->flushed, error));
        output->flushed += (uint64_t)count * 8;
        slot += count;
    }
    qsi_put_u32(tail, crc);
    QS_TRY(qsi_output_put(output, tail, sizeof tail, output->flushed, error));
    output->flushed += sizeof tail;
    return QS_OK;
}

/* Writes the table, the header and the size, and makes all of it durable, with the name. */
static qs_status finish(struct qsi_message_store *messages, struct qsi_compaction *job,
                        struct qsi_message_output *output, uint64_t salt, qs_error *error)
{
    uint8_t bytes[QSI_MESSAGE_HEADER_BYTES];
    struct qsi_message_header header = {salt, output->flushed, job->slot_count};
    qs_status status = QS_OK;

    QS_TRY(put_table(job, output, error));
    qsi_message_header_encode_table(bytes, output->id, messages->uuid, &header);
    QS_TRY(qsi_output_put(output, bytes, sizeof bytes, 0, error));
    if (output->high_water > output->flushed) {
        status = qsi_env_truncate(output->env, output->handle, output->flushed, error);
    }
    /* A failed sync only fails the compaction: no reference needs this file yet. */
    if (status == QS_OK) {
        status = qsi_file_sync_new(output->env, output->handle, error);
    }
    if (status == QS_OK) {
        status = qsi_dir_sync(output->env, messages->dir, error);
    }
    if (status != QS_OK) {
        return qsi_message_file_fail(error, status, output->id);
    }
    qsi_message_file_is_private(job->to);
    job->to->end = output->flushed;
    job->to->bytes = output->flushed;
    job->to->header = header;
    job->is_whole = true;
    return QS_OK;
}

static qs_status create_new(struct qsi_message_store *messages, struct qsi_compaction *job,
                            qs_file **handle_out, qs_error *error)
{
    char name[QSI_MESSAGE_NAME_BYTES];
    qs_status status;

    /* The name may exist after a compaction that was interrupted or could not be cleaned up. */
    QS_TRY(qsi_message_file_remove_name(messages, job->to->id, error));
    qsi_message_name(name, job->to->id);
    status = qsi_env_open(messages->env, messages->dir, name, QS_OPEN_WRITE | QS_OPEN_CREATE_NEW,
                          handle_out, error);
    if (status != QS_OK) {
        return qsi_message_file_fail(error, status, job->to->id);
    }
    job->has_name = true;
    return QS_OK;
}

static qs_status rewrite(struct qsi_message_store *messages, struct qsi_compaction *job,
                         const struct qsi_message_view *view, qs_error *error)
{
    struct qsi_message_output output = {
        .env = messages->env,
        .id = job->to->id,
        .flushed = QSI_MESSAGE_HEADER_BYTES,
        .effort = view->bytes * EFFORT_MAX,
    };
    qs_status status;

    output.buffer = qsi_alloc(QSI_OUTPUT_BUFFER_BYTES);
    output.offsets = qsi_zalloc(((size_t)job->slot_count + 1) * sizeof *output.offsets);
    if (output.buffer == NULL || output.offsets == NULL) {
        status = qsi_fail(error, QS_ENOMEM, "compaction of message file %u", job->to->id.number);
        goto out;
    }
    status = create_new(messages, job, &output.handle, error);
    if (status != QS_OK) {
        output.handle = NULL;
        goto out;
    }
    status = qsi_compaction_copy_live(messages, job, &output, view, error);
    if (status == QS_OK) {
        status = finish(messages, job, &output, view->header.salt, error);
    }
out:
    messages->env->close(messages->env, output.handle);
    qsi_free(output.buffer);
    qsi_free(output.offsets);
    return status;
}

qs_status qsi_message_store_compact_run(struct qsi_message_store *messages,
                                        struct qsi_compaction *job, qs_error *error)
{
    struct qsi_message_view view;
    qs_status status = qsi_message_file_acquire(messages, job->from->id.number, &view, error);

    if (status == QS_OK) {
        status = rewrite(messages, job, &view, error);
        qsi_message_file_release(messages, view.file);
    } else {
        status = qsi_message_file_fail_unread(error, status, job->from->id);
    }
    job->is_hopeless = status == QS_ECORRUPT || status == QS_EVERSION;
    return status;
}
