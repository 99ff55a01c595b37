/* Checkpoints of a queue that pages, taken as the engine does, and the next life of the queue: it
 * begins again with what the checkpoint named. */
#ifndef PAGING_LIVES_H
#define PAGING_LIVES_H

#include "paging_steps.h"
#include "queue_publish.h"
#include "queue_replay.h"
#include "record_build.h"

/* ---- checkpoints ---- */

static inline uint32_t journalled_below(const struct run *run, const struct qsi_segment *segment,
                                        uint64_t seq)
{
    uint32_t count = 0;

    for (uint32_t slot = 0; slot < run->fixture.shared.entries; slot++) {
        uint64_t each = segment->number * run->fixture.shared.entries + slot;
        if (each < seq && each < run->model.count) {
            const struct entry *entry = &run->model.entries[each];
            count += is_live(entry) && !entry->transient;
        }
    }
    return count;
}

struct state_job {
    struct qsi_state_write write;
    uint32_t entry;
};

struct checkpoint {
    struct qsi_flush flushes[JOBS_MAX];
    uint32_t flush_entries[JOBS_MAX];
    struct state_job states[JOBS_MAX];
    uint32_t flush_count, state_count;
    bool carry;
};

static inline bool ends_on_page(const struct run *run)
{
    const struct qsi_queue *queue = &run->fixture.queue;
    uint32_t entries = run->fixture.shared.entries;
    const struct qsi_segment *segment =
        qsi_queue_find_segment(queue, queue->container.flushed_seq / entries);

    return (queue->container.flushed_seq & (entries - 1)) % QSI_SLOT_PAGE == 0 || segment == NULL ||
           segment->file.heap_end == 0;
}

static inline void begin_state(struct run *run, struct checkpoint *checkpoint,
                               struct qsi_segment *segment, uint64_t base_seq, uint32_t entry)
{
    struct qsi_queue *queue = &run->fixture.queue;
    struct state_job *job = &checkpoint->states[checkpoint->state_count++];
    uint64_t first = segment->number * run->fixture.shared.entries;
    uint32_t bits = qsi_bitmap_words(run->fixture.shared.entries) * QSI_WORD_BITS;

    QS_CHECK_OK(qsi_state_write_begin_file(&job->write, queue, segment));
    job->entry = entry;
    if (base_seq < queue->container.next_seq && base_seq - first < bits) {
        for (uint32_t slot = (uint32_t)(base_seq - first); slot < bits; slot++) {
            job->write.state.settled[slot / 64] &= ~(UINT64_C(1) << slot % 64);
            job->write.state.seen[slot / 64] &= ~(UINT64_C(1) << slot % 64);
            if (job->write.state.deliveries != NULL) { /* what is carried brings its own */
                job->write.state.deliveries[slot] = 0;
            }
        }
        job->write.version -= 1;
    }
}

static inline void put_segment(struct run *run, struct checkpoint *checkpoint,
                               struct qsi_segment *segment)
{
    struct saved *saved = &run->saved;
    uint32_t live = journalled_below(run, segment, saved->base_seq);
    uint32_t entry = saved->file_count;

    if (live == 0) {
        return;
    }
    saved->files[entry] = segment->file;
    saved->live_counts[entry] = live;
    saved->seen_ends[entry] = segment->seen_end;
    if (saved->base_seq - segment->number * run->fixture.shared.entries < segment->seen_end) {
        saved->seen_ends[entry] = /* what is carried brings its own */
            (uint32_t)(saved->base_seq - segment->number * run->fixture.shared.entries);
    }
    saved->has_stored[entry] = segment->has_stored;
    saved->file_count += 1;
    QS_CHECK(saved->file_count < JOBS_MAX);
    if (segment->settled != NULL && segment->state_dirty) {
        begin_state(run, checkpoint, segment, saved->base_seq, entry);
    }
    segment->file_dirty = false;
    segment->named = true;
    segment->page_aligned = true;
}

static inline void snapshot(struct run *run, struct checkpoint *checkpoint)
{
    struct qsi_queue *queue = &run->fixture.queue;
    struct saved *saved = &run->saved;
    uint32_t entries = run->fixture.shared.entries;
    uint64_t seq = queue->container.flushed_seq;

    checkpoint->carry = one_in(run, 2) && ends_on_page(run);
    for (qs_status status; seq < queue->container.next_seq;
         seq = checkpoint->flushes[checkpoint->flush_count++].end_seq) {
        struct qsi_flush *flush = &checkpoint->flushes[checkpoint->flush_count];
        QS_CHECK(checkpoint->flush_count < JOBS_MAX);
        status = qsi_flush_begin(flush, queue, seq, UINT64_MAX);
        if (status == QS_EEMPTY) {
            break;
        }
        QS_CHECK(status == QS_OK && flush->end_seq > seq);
        flush->is_named = true;
    }
    if (checkpoint->carry) {
        saved->base_seq = queue->container.flushed_seq;
    } else {
        if (!ends_on_page(run) || queue->container.flushed_seq != queue->container.next_seq) {
            uint64_t segment_end = (queue->container.next_seq / entries + 1) * entries;
            uint64_t page_end =
                (queue->container.next_seq + QSI_SLOT_PAGE - 1) / QSI_SLOT_PAGE * QSI_SLOT_PAGE;
            step_skip(run, page_end < segment_end ? page_end : segment_end);
        }
        saved->base_seq = queue->container.next_seq;
    }
    saved->next_seq = queue->container.next_seq;
    for (uint32_t i = 0; i < queue->segment_count; i++) {
        struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        if (segment->number * entries < saved->base_seq) {
            put_segment(run, checkpoint, segment);
        }
    }
    for (uint32_t i = 0; i < checkpoint->flush_count; i++) {
        checkpoint->flush_entries[i] = UINT32_MAX;
        for (uint32_t k = 0; k < saved->file_count; k++) {
            if (saved->files[k].number == checkpoint->flushes[i].segment->number) {
                checkpoint->flush_entries[i] = k;
            }
        }
    }
    QS_CHECK_OK(qsi_message_store_snapshot(run->fixture.messages, &saved->bodies,
                                           &saved->body_records, QS_ERROR));
    saved->model = run->model;
}

static inline void step_save(struct run *run)
{
    static struct checkpoint checkpoint;
    struct fixture *fixture = &run->fixture;
    struct saved *saved = &run->saved;
    uint32_t others = below(run, 12);

    finish_jobs(run);
    if (run->model.count + 2 * QSI_SLOT_PAGE >= MODEL_MAX) {
        return;
    }
    release_all(fixture, saved->exists);
    memset(&checkpoint, 0, sizeof checkpoint);
    qsi_buf_clear(&saved->bodies);
    qsi_buf_clear(&saved->carried.records);
    saved->file_count = saved->body_records = saved->carried.record_count = 0;
    snapshot(run, &checkpoint);
    check(run, true);
    run->saving = true;
    while (others-- > 0) {
        random_step(run);
    }
    for (uint32_t i = 0; i < checkpoint.flush_count; i++) {
        struct qsi_flush *flush = &checkpoint.flushes[i];
        if (checkpoint.carry) {
            QS_CHECK_OK(qsi_flush_encode(flush, &saved->carried));
            qsi_flush_end(flush, false);
            continue;
        }
        qsi_flush_refresh(flush);
        QS_CHECK_OK(qsi_flush_run(flush, fixture->index, fixture->transient_index, QS_ERROR));
        if (checkpoint.flush_entries[i] != UINT32_MAX) {
            saved->files[checkpoint.flush_entries[i]] = flush->file;
        }
        qsi_flush_end(flush, true);
    }
    for (uint32_t i = 0; i < checkpoint.state_count; i++) {
        struct state_job *job = &checkpoint.states[i];
        job->write.file = saved->files[job->entry];
        QS_CHECK_OK(
            qsi_state_write_run(&job->write, fixture->index, fixture->transient_index, QS_ERROR));
        saved->files[job->entry].state_area = job->write.file.state_area;
        saved->files[job->entry].state_crc = job->write.file.state_crc;
        qsi_state_write_end(&job->write, true);
    }
    QS_CHECK_OK(qsi_message_store_unseal(fixture->messages, true, QS_ERROR));
    for (uint32_t i = 0; i < fixture->queue.segment_count; i++) {
        struct qsi_segment *segment = qsi_queue_segment_at(&fixture->queue, i);
        segment->durable_area = segment->file.state_area;
    }
    run->saving = false;
    saved->exists = true;
    run->saves += 1;
}

static inline bool is_named(void *context, const struct qsi_segment_file *file)
{
    const struct saved *saved = context;

    for (uint32_t i = 0; i < saved->file_count; i++) {
        if (saved->files[i].number == file->number &&
            saved->files[i].generation == file->generation) {
            return true;
        }
    }
    return false;
}

static inline bool is_none(void *context, const struct qsi_segment_file *file)
{
    (void)context;
    (void)file;
    return false;
}

static inline void restore_bodies(struct run *run)
{
    const struct qsi_buf *records = &run->saved.bodies;

    qsi_message_store_close(run->fixture.messages);
    open_messages(&run->fixture);
    for (size_t at = 0; at < records->bytes; at += qsi_record_length(records->data + at)) {
        QS_CHECK_OK(qsi_message_store_restore(run->fixture.messages, records->data + at, QS_ERROR));
    }
}

static inline void push_carried(struct run *run, const uint8_t *record)
{
    struct fixture *fixture = &run->fixture;
    struct qsi_queue *queue = &fixture->queue;
    uint32_t bytes = qsi_record_length(record);
    struct qsi_chunk *chunk = make_chunk(fixture, bytes);
    struct qsi_messages view;
    struct qsi_run *pushed;
    uint64_t seq;

    memcpy(chunk->data, record, bytes);
    chunk->used = bytes;
    QS_CHECK_OK(qsi_messages_check(chunk->data, QS_ERROR));
    qsi_messages_view(&view, chunk->data);
    seq = qsi_messages_destination_seq(&view, 0);
    QS_CHECK(qsi_messages_destination_queue(&view, 0) == QUEUE_ID &&
             seq >= queue->container.next_seq);
    QS_CHECK_OK(qsi_queue_skip_to(&queue->container, seq));
    if (view.row_count == 1) {
        QS_CHECK_OK(qsi_queue_reserve_message(&queue->container, chunk, true));
        QS_CHECK(qsi_queue_push_message(&queue->container, chunk, 0, bytes, true,
                                        qsi_messages_is_stored(&view, 0)) == seq);
    } else {
        QS_CHECK_OK(qsi_queue_reserve(&queue->container, 1, view.row_count, false));
        QS_CHECK_OK(qsi_run_create(&pushed, chunk, 0, view.row_count, NULL, true));
        pushed->ram_bytes = bytes;
        QS_CHECK(qsi_queue_push_run(&queue->container, pushed) == seq);
    }
    qsi_chunk_unref(chunk);
}

static inline void replay_carried(struct run *run)
{
    const struct qsi_buf *records = &run->saved.carried.records;
    uint32_t count = 0;

    run->fixture.shared.messages = NULL; /* the checkpoint has counted them */
    for (size_t at = 0; at < records->bytes; count++) {
        const uint8_t *record = records->data + at;
        QS_CHECK(qsi_record_fits(record, records->bytes - at));
        if (qsi_record_type(record) == QSI_RECORD_MESSAGES) {
            push_carried(run, record);
        } else {
            struct qsi_settle settle;
            QS_CHECK_OK(qsi_settle_decode(&settle, record, QS_ERROR));
            QS_CHECK(settle.queue_id == QUEUE_ID && settle.kind == QSI_SETTLE_REQUEUE);
            QS_CHECK_OK(qsi_queue_replay_settle(&run->fixture.queue.container, &settle));
        }
        at += qsi_record_length(record);
    }
    QS_CHECK(count == run->saved.carried.record_count);
    run->fixture.shared.messages = run->fixture.messages;
}

/* A requeue of what was out when the checkpoint was made may count that delivery a second time. */
static inline bool any_was_out(const struct run *run, uint64_t from, uint32_t count)
{
    for (uint64_t seq = from; seq < from + count && seq < run->model.count; seq++) {
        if (run->model.entries[seq].was_out) {
            return true;
        }
    }
    return false;
}

/* The journal behind the checkpoint: some of it was acknowledged, some requeued. */
static inline void replay_some(struct run *run)
{
    struct qsi_queue *queue = &run->fixture.queue;

    for (uint32_t n = below(run, 6); n > 0 && run->model.count > 0; n--) {
        bool requeue = one_in(run, 3);
        uint64_t from = below(run, (uint32_t)run->model.count);
        struct qsi_settle settle = {QUEUE_ID, from, 1 + below(run, one_in(run, 3) ? 600 : 20),
                                    QSI_SETTLE_ACK, 0};
        struct qsi_segment *segment;
        if (requeue) { /* of a whole segment it is only known that it was delivered */
            settle.kind = QSI_SETTLE_REQUEUE;
            settle.count = 1 + below(run, run->fixture.shared.entries - 1);
            if (any_was_out(run, from, settle.count)) {
                continue;
            }
        }
        while ((segment = qsi_queue_needs_state(queue, &settle)) != NULL) {
            QS_CHECK(segment->settled == NULL);
            load_state(&run->fixture, segment);
        }
        QS_CHECK_OK(qsi_queue_replay_settle(&queue->container, &settle));
        for (uint64_t seq = from; seq < from + settle.count && seq < run->model.count; seq++) {
            struct entry *entry = &run->model.entries[seq];
            if (requeue && entry->state == READY) {
                entry->deliveries += 1;
                entry->seen = true;
            } else if (!requeue) {
                entry->state = SETTLED;
            }
        }
    }
}

static inline void enter_next_life(struct run *run)
{
    bool any_out = false;

    for (uint64_t seq = 0; seq < run->model.count; seq++) {
        struct entry *entry = &run->model.entries[seq];
        any_out = any_out || entry->state == OUT;
        if (entry->transient) {
            entry->state = SETTLED;
        } else if (entry->state == OUT) { /* it was told as delivered once, if it never came back */
            entry->state = READY;
            entry->was_out = true;
            entry->deliveries = entry->deliveries > 0 ? entry->deliveries : 1;
        }
        entry->transient = false;
    }
}

static inline void mark_all_seen(struct run *run)
{
    QS_CHECK_OK(qsi_queue_mark_all_seen(&run->fixture.queue.container));
    for (uint64_t seq = 0; seq < run->model.count; seq++) {
        struct entry *entry = &run->model.entries[seq];
        entry->seen = true;
        entry->deliveries = entry->deliveries > 0 ? entry->deliveries : 1;
    }
}

static inline void step_crash(struct run *run)
{
    struct fixture *fixture = &run->fixture;
    struct saved *saved = &run->saved;
    uint32_t entries = fixture->shared.entries;
    struct qsi_queue *queue = &fixture->queue;
    struct qsi_segment *last;
    uint64_t removed;

    finish_jobs(run);
    release_all(fixture, true);
    close_queue(fixture);
    restore_bodies(run);
    QS_CHECK_OK(qsi_index_remove_others(fixture->index, is_named, saved, &removed, QS_ERROR));
    QS_CHECK_OK(
        qsi_index_remove_others(fixture->transient_index, is_none, NULL, &removed, QS_ERROR));
    open_queue(fixture, entries, true);
    run->model = saved->model;
    enter_next_life(run);
    for (uint32_t i = 0; i < saved->file_count; i++) {
        QS_CHECK_OK(qsi_queue_restore(queue, &(struct qsi_restored_segment){
                                                 .file = &saved->files[i],
                                                 .ready_count = saved->live_counts[i],
                                                 .seen_end = saved->seen_ends[i],
                                                 .has_stored = saved->has_stored[i],
                                             }));
    }
    queue->container.next_seq = queue->container.flushed_seq = saved->base_seq;
    last = qsi_queue_find_segment(queue, saved->base_seq / entries);
    if (last != NULL) {
        load_state(fixture, last);
    }
    replay_carried(run);
    QS_CHECK_OK(qsi_queue_skip_to(&queue->container, saved->next_seq));
    if (queue->run_count == 0) {
        queue->container.flushed_seq = queue->container.next_seq;
    }
    replay_some(run);
    mark_all_seen(run);
    for (uint32_t i = queue->scan; i < queue->segment_count; i++) { /* the head */
        struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        if (segment->ready_count > 0) {
            if (segment->settled == NULL) {
                load_state(fixture, segment);
            }
            break;
        }
    }
    release_all(fixture, true);
    QS_CHECK_OK(qsi_message_store_retain_counted(fixture->messages, QSI_RETAIN, QS_ERROR));
    QS_CHECK_OK(qsi_message_store_trim_counted(fixture->messages, QS_ERROR));
    run->crashes += 1;
    check(run, true);
    drive(run);
    step_save(run); /* what the old one named may be changed from now on */
}

#endif
