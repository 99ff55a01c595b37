/* Random steps of a queue that pages, each taken by its model as well: pushing, taking, settling,
 * and jobs that are begun, run and ended in different steps. */
#ifndef PAGING_STEPS_H
#define PAGING_STEPS_H

#include "paging_model.h"
#include "queue_publish.h"
#include "queue_settle.h"
#include "queue_take.h"

/* ---- steps ---- */

static inline void add_entry(struct run *run, const struct message *message, bool with_id,
                             bool journalled, uint32_t body)
{
    run->model.entries[run->model.count++] = (struct entry){
        .message = *message,
        .with_id = with_id,
        .transient = run->fixture.queue.container.durable && (!journalled || message->mode == 1),
        .body = body,
    };
}

/* Sometimes a body that other messages have as well. */
static inline struct message random_message(struct run *run, bool stored, uint8_t mode,
                                            uint32_t *body)
{
    struct message message = make_message(&run->fixture, below(run, 60), mode, false);

    *body = 0;
    if (!stored || run->body_count == BODIES_MAX) {
        return message;
    }
    if (run->model.count > 0 && one_in(run, 4)) {
        const struct entry *other = &run->model.entries[run->model.count - 1];
        if (is_live(other) && other->message.stored) {
            *body = other->body;
            message.stored = true;
            message.ref = other->message.ref;
            message.body_bytes = other->message.body_bytes;
            return message;
        }
    }
    message.stored = true;
    message.body_bytes = 1 + below(run, 2000);
    message.ref = put_body(&run->fixture, message.body_bytes);
    *body = run->body_count;
    run->bodies[run->body_count++].ref = message.ref;
    return message;
}

static inline void step_push_single(struct run *run)
{
    bool durable = run->fixture.queue.container.durable;
    bool journalled = durable && !one_in(run, 5);
    uint32_t body;
    struct message message =
        random_message(run, one_in(run, 5), journalled ? 2 : 1 + (uint8_t)below(run, 2), &body);

    if (run->model.count + 1 >= MODEL_MAX) {
        return;
    }
    QS_CHECK(push_single(&run->fixture, &message, journalled) == run->model.count);
    add_entry(run, &message, true, journalled, body);
}

static inline void step_push_batch(struct run *run)
{
    static struct message messages[ROWS_MAX];
    static uint32_t bodies[ROWS_MAX];
    uint32_t count = 1 + below(run, one_in(run, 4) ? 200 : 20);
    uint32_t every = 1 + below(run, 2);
    bool journalled = run->fixture.queue.container.durable && !one_in(run, 6);
    bool mixed = one_in(run, 3);
    bool per_row = mixed || one_in(run, 2);
    bool any_stored = one_in(run, 3);

    if (run->model.count + count >= MODEL_MAX) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        messages[i] =
            random_message(run, any_stored && one_in(run, 3),
                           journalled && mixed && i > 0 && one_in(run, 3) ? 1 : 2, &bodies[i]);
    }
    QS_CHECK(push_batch(&run->fixture, messages, count, every, per_row, journalled) ==
             run->model.count);
    for (uint32_t i = 0; i < count; i++) {
        add_entry(run, &messages[i], per_row, journalled, bodies[i]);
    }
}

static inline uint64_t first_ready(const struct run *run)
{
    uint64_t seq = 0;

    while (seq < run->model.count && run->model.entries[seq].state != READY) {
        seq++;
    }
    return seq;
}

static inline bool in_memory(const struct run *run, uint64_t seq)
{
    const struct qsi_queue *queue = &run->fixture.queue;
    uint32_t index = qsi_queue_find_run(queue, seq);

    return index < queue->run_count && qsi_queue_run_at(queue, index)->first_seq <= seq;
}

static inline void step_take(struct run *run)
{
    struct qsi_queue *queue = &run->fixture.queue;
    uint32_t max = 1 + below(run, 70);
    uint64_t first = first_ready(run);
    struct qsi_stretch stretch;
    enum qsi_take taken = qsi_queue_take(&queue->container, max, &stretch);
    uint32_t keep;

    if (taken == QSI_TAKE_EMPTY) {
        QS_CHECK(first == run->model.count);
        return;
    }
    QS_CHECK(first < run->model.count);
    if (taken == QSI_TAKE_PAGED) {
        QS_CHECK(!in_memory(run, first));
        run->paged_takes += 1;
        return;
    }
    QS_CHECK(stretch.segment->number * run->fixture.shared.entries + stretch.slot == first);
    QS_CHECK(stretch.count > 0 && stretch.count <= max);
    keep = stretch.count;
    if (one_in(run, 4)) {
        keep = below(run, stretch.count);
        qsi_queue_untake(&queue->container, &stretch, keep);
    }
    for (uint32_t i = 0; i < keep; i++) {
        struct entry *entry = &run->model.entries[first + i];
        QS_CHECK(entry->state == READY);
        QS_CHECK(qsi_segment_was_seen(stretch.segment, stretch.slot + i) == entry->seen);
        QS_CHECK(qsi_segment_deliveries(stretch.segment, stretch.slot + i) == entry->deliveries);
        check_row(stretch.run, stretch.run_row + i, &entry->message, entry->with_id);
        entry->state = OUT;
        entry->seen = true;
    }
    if (keep > 0) {
        qsi_stretch_mark_seen(&stretch);
    }
}

static inline void step_settle(struct run *run, bool requeue)
{
    uint32_t entries = run->fixture.shared.entries;
    uint32_t width = entries < QSI_WORD_BITS ? entries : QSI_WORD_BITS;
    uint64_t mask = 0, word_seq = 0;
    struct qsi_segment *segment;

    for (int tries = 0; tries < 50 && mask == 0 && run->model.count > 0; tries++) {
        word_seq = below(run, (uint32_t)run->model.count) / width * width;
        for (uint32_t i = 0; i < width && word_seq + i < run->model.count; i++) {
            struct entry *entry = &run->model.entries[word_seq + i];
            if (entry->state == OUT && (mask == 0 || !one_in(run, 3))) {
                mask |= UINT64_C(1) << i;
                entry->state = requeue ? READY : SETTLED;
                entry->deliveries += requeue ? 1 : 0;
            }
        }
    }
    if (mask == 0) {
        return;
    }
    segment = qsi_queue_find_segment(&run->fixture.queue, word_seq / entries);
    QS_CHECK(segment != NULL);
    if (requeue) {
        qsi_queue_requeue(&run->fixture.queue.container, segment,
                          (uint32_t)(word_seq % entries) / QSI_WORD_BITS, mask);
    } else {
        qsi_queue_settle(&run->fixture.queue.container, segment,
                         (uint32_t)(word_seq % entries) / QSI_WORD_BITS, mask);
    }
}

static inline void visit_purged(void *context, uint64_t first_seq, uint32_t count)
{
    struct run *run = context;

    for (uint32_t i = 0; i < count; i++) {
        QS_CHECK(run->model.entries[first_seq + i].state != OUT);
        run->model.entries[first_seq + i].state = SETTLED;
    }
}

static inline void step_purge(struct run *run)
{
    uint64_t ready = run->fixture.queue.ready_count;
    uint64_t most = qsi_queue_purge_ranges(&run->fixture.queue);

    QS_CHECK((most > 0) == (ready > 0));
    QS_CHECK(qsi_queue_purge(&run->fixture.queue.container, visit_purged, run) == ready);
    QS_CHECK(first_ready(run) == run->model.count);
}

static inline void step_skip(struct run *run, uint64_t seq)
{
    QS_CHECK_OK(qsi_queue_skip_to(&run->fixture.queue.container, seq));
    while (run->model.count < seq) {
        run->model.entries[run->model.count++] = (struct entry){.state = SETTLED};
    }
}

/* Room that is never used. */
static inline void step_reserve(struct run *run)
{
    QS_CHECK_OK(qsi_queue_reserve(&run->fixture.queue.container, 1 + below(run, 3),
                                  1 + below(run, 300), one_in(run, 2)));
}

/* ---- jobs, a step at a time ---- */

static inline void advance_flush(struct run *run)
{
    struct fixture *fixture = &run->fixture;
    qs_status status;

    if (!run->flushing.begun) {
        status = qsi_flush_begin(&run->flush, &fixture->queue, fixture->queue.container.flushed_seq,
                                 one_in(run, 2) ? UINT64_MAX : 1 + below(run, 3000));
        run->flushing = (struct job){status == QS_OK, false};
        QS_CHECK(status == QS_OK || (status == QS_EEMPTY && fixture->queue.container.flushed_seq ==
                                                                fixture->queue.container.next_seq));
        return;
    }
    if (!run->flushing.was_run && !one_in(run, 10)) {
        QS_CHECK_OK(
            qsi_flush_run(&run->flush, own_index(fixture), fixture->transient_index, QS_ERROR));
        run->flushing.was_run = true;
        return;
    }
    qsi_flush_end(&run->flush, run->flushing.was_run);
    run->flushing.begun = false;
}

static inline void advance_load(struct run *run)
{
    struct fixture *fixture = &run->fixture;

    if (!run->loading.begun) {
        enum qsi_page_in_begun begun =
            qsi_page_in_begin(&run->page_in, &fixture->queue, 1 + below(run, 2000));
        run->loading = (struct job){begun == QSI_PAGE_IN_BEGUN, false};
        QS_CHECK(begun != QSI_PAGE_IN_NO_MEMORY);
        QS_CHECK(begun != QSI_PAGE_IN_UNDER_WAY || run->flushing.begun || run->writing.begun);
        QS_CHECK(begun != QSI_PAGE_IN_NOTHING || first_ready(run) == run->model.count ||
                 in_memory(run, first_ready(run)));
        return;
    }
    if (!run->loading.was_run && !one_in(run, 10)) {
        QS_CHECK_OK(
            qsi_page_in_run(&run->page_in, own_index(fixture), fixture->transient_index, QS_ERROR));
        QS_CHECK(run->page_in.load.damaged_count == 0);
        run->loading.was_run = true;
        return;
    }
    *(run->page_in.of_state ? &run->state_loads : &run->loads) += 1;
    run->transient_loads += run->page_in.transient != NULL;
    QS_CHECK_OK(qsi_page_in_end(&run->page_in, run->loading.was_run));
    run->loading.begun = false;
}

static inline void advance_write(struct run *run)
{
    struct fixture *fixture = &run->fixture;
    struct qsi_segment *segment;

    if (!run->writing.begun) {
        segment = qsi_queue_dirty_state(&fixture->queue);
        if (segment != NULL) {
            QS_CHECK_OK(qsi_state_write_begin(&run->write, &fixture->queue, segment));
            run->writing = (struct job){true, false};
        }
        return;
    }
    if (!run->writing.was_run && !one_in(run, 10)) {
        QS_CHECK_OK(qsi_state_write_run(&run->write, own_index(fixture), fixture->transient_index,
                                        QS_ERROR));
        run->writing.was_run = true;
        return;
    }
    qsi_state_write_end(&run->write, run->writing.was_run);
    run->writing.begun = false;
}

static inline void finish_jobs(struct run *run)
{
    while (run->flushing.begun) {
        advance_flush(run);
    }
    while (run->loading.begun) {
        advance_load(run);
    }
    while (run->writing.begun) {
        advance_write(run);
    }
}

/* What a consumer makes the pager do: a segment's worth in memory, or all of it. */
static inline void drive(struct run *run)
{
    bool missing;
    uint32_t guard = 0;

    finish_jobs(run);
    while (qsi_queue_ready_in_memory(&run->fixture.queue, run->fixture.shared.entries, &missing) <
               run->fixture.shared.entries &&
           missing) {
        QS_CHECK(guard++ < MODEL_MAX);
        page_in(&run->fixture, 500);
    }
    check_measure(run, true);
}

/* A sparse segment is written anew. */
static inline void step_rewrite(struct run *run)
{
    struct fixture *fixture = &run->fixture;
    struct qsi_queue *queue = &fixture->queue;
    uint32_t words = qsi_bitmap_words(fixture->shared.entries);

    for (uint32_t i = 0; i < queue->segment_count; i++) {
        struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        struct qsi_segment_file from = segment->file, to;
        struct qsi_state_write state;
        uint64_t live[8] = {0};
        bool named = segment->named;
        if (from.heap_end == 0 || segment->busy > 0 || segment->settled == NULL ||
            segment->has_releases || /* the new file would lack what they are to be read from */
            (segment->number + 1) * fixture->shared.entries > queue->container.flushed_seq ||
            (qsi_segment_live_count(segment) - segment->transient_count) * 2 > from.slot_count) {
            continue;
        }
        QS_CHECK_OK(qsi_state_write_begin_file(&state, queue, segment));
        for (uint32_t word = 0; word < words; word++) {
            uint64_t bits = qsi_segment_live(queue, segment, word);
            live[word] = bits != 0 ? qsi_segment_journalled(segment, word, bits) : 0;
        }
        QS_CHECK_OK(
            qsi_segment_rewrite(own_index(fixture), &from, live, &state.state, &to, QS_ERROR));
        state.file = to;
        segment->file = to;
        segment->named = false;
        segment->durable_area = 0;
        qsi_state_write_end(&state, true);
        if (!named || !queue->container.durable) {
            remove_file(own_index(fixture), &from);
        }
        run->rewrites += 1;
        return;
    }
}

/* ---- any of them ---- */

/* Those that the engine may take while a checkpoint is being written. */
static inline void random_step(struct run *run)
{
    uint32_t choice = below(run, 100);

    if (choice < 20) {
        step_push_single(run);
    } else if (choice < 26) {
        step_push_batch(run);
    } else if (choice < 58) {
        step_take(run);
    } else if (choice < 84) {
        step_settle(run, false);
    } else if (choice < 97) {
        step_settle(run, true);
    } else if (choice < 98) {
        step_reserve(run);
    } else if (one_in(run, 6)) {
        step_purge(run);
    }
    check(run, false);
}

#endif
