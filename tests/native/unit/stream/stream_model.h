/* A stream and an array that says what it has: what is done to the one is noted in the other.
 *
 * A message is known by its offset (qs_test_records.h), and the array has its time, or that there
 * is none. */
#ifndef STREAM_MODEL_H
#define STREAM_MODEL_H

#include "stream_fixture.h"

#define OFFSETS_MAX 60000u
#define NOBODY 0u /* in place of a time: the offset was skipped */

/* ---- the array ---- */

struct model {
    uint64_t times[OFFSETS_MAX];
    uint64_t first, next, last_us;
};

/* Every row of [batch] is what the array says. */
static inline void check_batch(const struct model *model, const struct qsi_stream_batch *batch)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        uint64_t offset = batch->first_offset + i;
        struct qsi_messages view;
        uint32_t row;
        int64_t time_us;
        qsi_messages_view(&view, qsi_stream_batch_record(batch, i, &row));
        QS_CHECK(offset < model->next && model->times[offset] != NOBODY);
        qs_test_check_row(&view, row, &kind, FLAGS, 0, (uint32_t)offset);
        qsi_stream_batch_times(batch, i, 1, &time_us);
        QS_CHECK((uint64_t)time_us == model->times[offset]);
    }
}

static inline uint64_t next_there(const struct model *model, uint64_t offset)
{
    while (offset < model->next && model->times[offset] == NOBODY) {
        offset++;
    }
    return offset;
}

/* Reads rows from offset on, about as many, and compares. */
static inline void check_read(struct world *world, const struct model *model, uint64_t offset,
                              uint64_t count)
{
    uint64_t end = offset + count;

    offset = next_there(model, offset < model->first ? model->first : offset);
    while (offset < model->next && offset < end) {
        struct qsi_stream_view view;
        struct qsi_stream_batch batch;
        qs_status status;
        QS_CHECK_OK(qsi_stream_view_take(&view, &world->stream, offset, 1000, UINT64_MAX));
        QS_CHECK(view.first == model->first && view.next == model->next);
        do {
            status = qsi_stream_read(&view, offset, NULL, NULL, &batch, QS_ERROR);
            if (status == QS_OK) {
                QS_CHECK(batch.first_offset == offset && batch.count > 0);
                check_batch(model, &batch);
                offset = next_there(model, offset + batch.count);
            }
            qsi_stream_batch_fini(&batch);
        } while (status == QS_OK && offset < end);
        QS_CHECK(status == QS_OK || status == QS_EEMPTY);
        qsi_stream_view_fini(&view);
    }
}

static inline void check_all(struct world *world, const struct model *model)
{
    QS_CHECK(world->stream.first == model->first);
    QS_CHECK(world->stream.container.next_seq == model->next);
    check_read(world, model, 0, UINT32_MAX);
}

/* ---- appending ---- */

static inline uint64_t note(struct model *model, uint64_t time_us)
{
    model->last_us = time_us > model->last_us ? time_us : model->last_us;
    model->times[model->next] = model->last_us;
    return model->next++;
}

static inline void append_batch(struct world *world, struct model *model, uint32_t count,
                                uint64_t time_us, bool by_rows)
{
    struct qsi_container *container = &world->stream.container;
    uint64_t first = container->next_seq;
    struct qsi_chunk *chunk =
        qs_test_record_chunk(&kind, FLAGS, (uint32_t)first, count, ID, first, time_us);
    uint32_t *rows = by_rows ? qsi_alloc(count * sizeof *rows) : NULL;
    struct qsi_run *run;

    for (uint32_t row = 0; by_rows && row < count; row++) {
        rows[row] = row;
    }
    QS_CHECK_OK(qsi_container_reserve(container, 1, count, true));
    QS_CHECK_OK(qsi_run_create(&run, chunk, 0, count, rows, true));
    run->ram_bytes = chunk->used;
    QS_CHECK(qsi_container_append(container, run) == first);
    qsi_chunk_unref(chunk);
    for (uint32_t row = 0; model != NULL && row < count; row++) {
        note(model, time_us);
    }
}

/* ---- jobs ---- */

/* What a checkpoint would write. */
struct checkpoint {
    struct qsi_buf records; /* the state, then what is carried */
    struct model *model;    /* as it was at the cut; NULL: there is no checkpoint yet */
};

static inline void checkpoint_fini(struct checkpoint *checkpoint)
{
    qsi_buf_fini(&checkpoint->records);
    free(checkpoint->model);
    memset(checkpoint, 0, sizeof *checkpoint);
}

static inline qs_status run_jobs(struct qsi_snapshot *snapshot, qs_status status, qs_error *error)
{
    for (int step = 0; step < QSI_SNAPSHOT_STEPS; step++) {
        for (uint32_t i = 0; i < qsi_snapshot_job_count(snapshot, (enum qsi_snapshot_step)step);
             i++) {
            struct qsi_job **job = qsi_snapshot_job(snapshot, (enum qsi_snapshot_step)step, i);
            if (status == QS_OK) {
                status = qsi_job_run(*job, error);
            }
            qsi_job_end(*job, status == QS_OK);
        }
    }
    return status;
}

/* Replaces *checkpoint if it goes well; then removes the files that were dead at the cut. */
static inline qs_status make_checkpoint(struct world *world, const struct model *model,
                                        uint64_t carried_max, bool forgets_sync,
                                        struct checkpoint *checkpoint, qs_error *error)
{
    struct qsi_carried carried = {.bytes_max = carried_max};
    struct checkpoint made = {.model = malloc(sizeof *made.model)};
    struct qsi_buf dead = world->shared.dead;
    struct qsi_snapshot *snapshot;
    uint32_t count = 0;
    qs_status status;

    *made.model = *model;
    world->shared.dead = (struct qsi_buf){0};
    status = qsi_container_snapshot(&world->stream.container, &carried, &snapshot);
    if (snapshot != NULL) {
        status = run_jobs(snapshot, status, error);
        for (uint32_t i = 0; status == QS_OK && !forgets_sync && i < snapshot->file_count; i++) {
            status = qsi_snapshot_sync(snapshot, i, true, error);
        }
        if (status == QS_OK) {
            status = qsi_snapshot_encode(snapshot, &made.records, &count);
        }
        if (status == QS_OK) {
            QS_CHECK_OK(qsi_buf_append(&made.records, carried.records.data, carried.records.bytes));
        }
        qsi_snapshot_end(snapshot, status == QS_OK);
    }
    qsi_buf_fini(&carried.records);
    if (status != QS_OK) {
        checkpoint_fini(&made);
        QS_CHECK_OK(qsi_buf_append(&dead, world->shared.dead.data, world->shared.dead.bytes));
        qsi_buf_fini(&world->shared.dead);
        world->shared.dead = dead;
        return status;
    }
    checkpoint_fini(checkpoint);
    *checkpoint = made;
    for (size_t i = 0; i < dead.bytes / sizeof(struct qsi_block_file); i++) {
        const struct qsi_block_file *file =
            (const struct qsi_block_file *)(const void *)dead.data + i;
        qsi_block_cache_forget(world->shared.cache, file);
        (void)!qsi_block_file_remove(world->shared.blocks, file, NULL);
    }
    qsi_buf_fini(&dead);
    return QS_OK;
}

/* What the stream was at the checkpoint. */
static inline void restore(struct world *world, const struct checkpoint *checkpoint)
{
    struct qsi_container *container = &world->stream.container;
    const uint8_t *at = checkpoint->records.data;
    const uint8_t *end = at + checkpoint->records.bytes;
    uint64_t next_seq = 0;

    QS_CHECK_OK(qsi_container_restore(container, at, &next_seq, QS_ERROR));
    for (at += qsi_record_length(at); at < end; at += qsi_record_length(at)) {
        struct qsi_chunk *chunk = qsi_chunk_create(qsi_record_length(at));
        struct qsi_messages view;
        struct qsi_run *run;
        memcpy(chunk->data, at, qsi_record_length(at));
        chunk->used = qsi_record_length(at);
        QS_CHECK_OK(qsi_messages_check(at, QS_ERROR));
        qsi_messages_view(&view, at);
        QS_CHECK_OK(qsi_container_skip_to(container, qsi_messages_destination_seq(&view, 0)));
        QS_CHECK_OK(qsi_container_reserve(container, 1, view.row_count, true));
        QS_CHECK_OK(qsi_run_create(&run, chunk, 0, view.row_count, NULL, true));
        run->ram_bytes = chunk->used;
        QS_CHECK(qsi_container_append(container, run) == qsi_messages_destination_seq(&view, 0));
        qsi_chunk_unref(chunk);
    }
    QS_CHECK_OK(qsi_container_skip_to(container, next_seq));
}

/* ---- the random test ---- */

/* The process ends and the next one opens the store: what came after the checkpoint is appended
 * again, as the journal has it. */
static inline void reopen(struct world *world, struct model *model,
                          const struct checkpoint *checkpoint)
{
    struct qsi_stream_limits limits = world->stream.limits;
    qs_env *env = world->env;
    uint64_t first = model->first;

    if (checkpoint->model == NULL) {
        return;
    }
    stop(world);
    start(world, env, &limits);
    restore(world, checkpoint);
    check_all(world, checkpoint->model);
    while (world->stream.container.next_seq < model->next) {
        uint64_t offset = next_there(model, world->stream.container.next_seq);
        uint32_t count = 0;
        QS_CHECK_OK(qsi_container_skip_to(&world->stream.container, offset));
        while (offset + count < model->next && count < 100 &&
               model->times[offset + count] == model->times[offset]) {
            count++;
        }
        if (count > 0) {
            append_batch(world, NULL, count, model->times[offset], false);
        }
    }
    QS_CHECK_OK(qsi_container_trim_to(
        &world->stream.container,
        first < world->stream.container.flushed_seq ? first : world->stream.container.flushed_seq));
    model->first = world->stream.first;
}

#endif
