/* One queue's messages: order, places, counts.
 *
 * The random part does everything to a queue and to a plain array of messages, and compares; its
 * seed is printed and is the first argument. */
#include "alloc.h"
#include "paging.h"
#include "qs_test.h"
#include "qs_test_alloc.h"

#include <stdlib.h>

#define ENTRIES 256

static struct qs_test_alloc memory;
static struct qsi_queue_shared shared;

static void begin_with(struct qsi_queue *queue, uint32_t entries)
{
    qsi_queue_shared_init(&shared, entries);
    qsi_queue_init(queue, &shared, 1, true);
}

static void begin(struct qsi_queue *queue)
{
    begin_with(queue, ENTRIES);
}

/* Nothing here reaches the disk, so no segment leaves anything behind. */
static void end(struct qsi_queue *queue)
{
    qsi_queue_fini(queue);
    QS_CHECK(qsi_list_is_empty(&shared.retired) && qsi_list_is_empty(&shared.releasing));
}

/* ---- records ---- */

static struct qsi_messages_layout lay_out(uint32_t rows, bool has_stored)
{
    struct qsi_messages_layout layout = {
        .row_count = rows,
        .route_count = 1,
        .routes_bytes = qsi_route_bytes(0, 0, 0),
        .flags = has_stored ? QSI_MESSAGES_HAS_STORED : 0,
    };

    QS_CHECK_OK(qsi_messages_layout(&layout, QS_ERROR));
    return layout;
}

/* A record of empty messages behind what the chunk holds; every stored_every-th is in the
 * message store (0: none). */
static uint32_t put_record(struct qsi_chunk *chunk, uint32_t rows, uint32_t stored_every)
{
    struct qsi_messages_layout layout = lay_out(rows, stored_every > 0);
    uint32_t at = (uint32_t)chunk->used;
    uint8_t *record = chunk->data + at;
    uint64_t route_at = 0;

    QS_CHECK(chunk->capacity - chunk->used >= layout.record_bytes);
    memset(record, 0, layout.record_bytes);
    qsi_messages_begin(record, &layout);
    qsi_messages_put_route(record, &layout, 0, &route_at, QSI_SLICE_LITERAL(""),
                           QSI_SLICE_LITERAL(""), NULL, 0);
    for (uint32_t row = 0; stored_every > 0 && row < rows; row += stored_every) {
        qsi_messages_stored_place(record, &layout)[row / 8] |= (uint8_t)(1u << row % 8);
    }
    chunk->used += layout.record_bytes;
    return at;
}

static struct qsi_chunk *make_chunk(uint32_t rows, uint32_t stored_every)
{
    struct qsi_chunk *chunk = qsi_chunk_create(lay_out(rows, stored_every > 0).record_bytes);

    QS_CHECK(chunk != NULL);
    QS_CHECK(put_record(chunk, rows, stored_every) == 0);
    return chunk;
}

/* A batch of count messages: rows every_row-th of the record's. */
static uint64_t push_batch(struct qsi_queue *queue, uint32_t count, uint32_t every_row,
                           uint32_t stored_every, bool journalled)
{
    struct qsi_chunk *chunk = make_chunk(count * every_row, stored_every);
    struct qsi_run *run;
    uint32_t *rows = NULL;

    if (every_row > 1) {
        rows = qsi_alloc(count * sizeof *rows);
        QS_CHECK(rows != NULL);
        for (uint32_t i = 0; i < count; i++) {
            rows[i] = i * every_row;
        }
    }
    QS_CHECK_OK(qsi_run_create(&run, chunk, 0, count, rows, journalled));
    run->ram_bytes = count * 10;
    qsi_chunk_unref(chunk);
    QS_CHECK_OK(qsi_queue_reserve(queue, 1, count, !journalled));
    return qsi_queue_push_run(queue, run);
}

/* Messages one by one into a chunk that is replaced when it is full. */
static struct qsi_chunk *arena;

static uint64_t push_single(struct qsi_queue *queue, bool journalled, bool stored)
{
    uint64_t bytes = lay_out(1, stored).record_bytes;

    if (arena == NULL || arena->capacity - arena->used < bytes) {
        qsi_chunk_unref(arena);
        arena = qsi_chunk_create(2000);
        QS_CHECK(arena != NULL);
    }
    QS_CHECK_OK(qsi_queue_reserve_message(queue, arena, journalled));
    return qsi_queue_push_message(queue, arena, put_record(arena, 1, stored ? 1 : 0), 10,
                                  journalled, stored);
}

static void drop_arena(void)
{
    qsi_chunk_unref(arena);
    arena = NULL;
}

static uint64_t seq_of(const struct qsi_stretch *stretch)
{
    return qsi_segment_first_seq(&shared, stretch->segment) + stretch->slot;
}

static bool take_unseen(struct qsi_queue *queue, uint32_t max, struct qsi_stretch *stretch)
{
    enum qsi_take taken = qsi_queue_take(queue, max, stretch);

    QS_CHECK(taken != QSI_TAKE_PAGED); /* everything is in memory */
    if (taken == QSI_TAKE_EMPTY) {
        return false;
    }
    QS_CHECK(stretch->count > 0 && stretch->count <= max);
    QS_CHECK(stretch->slot / QSI_WORD_BITS == (stretch->slot + stretch->count - 1) / QSI_WORD_BITS);
    QS_CHECK(stretch->run->first_seq + stretch->run_row == seq_of(stretch));
    QS_CHECK(stretch->run_row + stretch->count <= stretch->run->count);
    return true;
}

static bool was_seen(const struct qsi_stretch *stretch)
{
    return qsi_segment_was_seen(stretch->segment, stretch->slot);
}

static uint32_t deliveries(const struct qsi_stretch *stretch)
{
    return qsi_segment_deliveries(stretch->segment, stretch->slot);
}

/* Takes and marks, as delivering does. */
static bool take(struct qsi_queue *queue, uint32_t max, struct qsi_stretch *stretch)
{
    if (!take_unseen(queue, max, stretch)) {
        return false;
    }
    qsi_stretch_mark_seen(stretch);
    return true;
}

static void settle_all(struct qsi_queue *queue, const struct qsi_stretch *stretch)
{
    qsi_queue_settle(queue, stretch->segment, stretch->slot / QSI_WORD_BITS,
                     qsi_stretch_mask(stretch));
}

static void requeue_all(struct qsi_queue *queue, const struct qsi_stretch *stretch)
{
    qsi_queue_requeue(queue, stretch->segment, stretch->slot / QSI_WORD_BITS,
                      qsi_stretch_mask(stretch));
}

static void check_empty(const struct qsi_queue *queue)
{
    QS_CHECK(queue->ready_count == 0 && queue->out_count == 0 && queue->run_count == 0 &&
             queue->container.ram_count == 0 && queue->container.ram_bytes == 0);
}

/* ---- single steps ---- */

static void test_messages_leave_in_the_order_they_came(void)
{
    struct qsi_queue queue;
    struct qsi_stretch stretch;
    uint64_t expected = 0;

    begin(&queue);
    for (int i = 0; i < 300; i++) {
        QS_CHECK(push_single(&queue, true, false) == (uint64_t)i);
    }
    QS_CHECK(push_batch(&queue, 200, 1, 0, true) == 300);
    QS_CHECK(push_batch(&queue, 70, 3, 0, true) == 500);
    QS_CHECK(push_single(&queue, true, false) == 570);
    QS_CHECK(queue.ready_count == 571 && queue.container.next_seq == 571);
    while (take(&queue, 1000, &stretch)) {
        QS_CHECK(seq_of(&stretch) == expected);
        expected += stretch.count;
        settle_all(&queue, &stretch);
    }
    QS_CHECK(expected == 571);
    check_empty(&queue);
    QS_CHECK(queue.container.in_count == 571 && queue.container.taken_count == 571);
    end(&queue);
    drop_arena();
}

static void test_a_row_tells_its_record(void)
{
    struct qsi_queue queue;
    struct qsi_stretch stretch;
    uint32_t row;

    begin(&queue);
    push_batch(&queue, 5, 3, 0, true);
    push_batch(&queue, 5, 1, 0, true);
    QS_CHECK(take(&queue, 4, &stretch) && stretch.count == 4);
    QS_CHECK(qsi_run_record(stretch.run, 3, &row) == stretch.run->messages.chunk->data && row == 9);
    QS_CHECK(take(&queue, 4, &stretch) && stretch.count == 1);
    QS_CHECK(take(&queue, 4, &stretch) && seq_of(&stretch) == 5);
    QS_CHECK(qsi_run_record(stretch.run, 3, &row) == stretch.run->messages.chunk->data && row == 3);
    end(&queue);
    begin(&queue);
    push_single(&queue, true, false);
    push_single(&queue, true, false);
    QS_CHECK(take(&queue, 4, &stretch) && stretch.count == 2);
    QS_CHECK(qsi_run_record(stretch.run, 1, &row) ==
                 stretch.run->messages.chunk->data + lay_out(1, false).record_bytes &&
             row == 0);
    end(&queue);
    drop_arena();
}

static void test_singles_share_runs_while_they_share_chunks(void)
{
    struct qsi_queue queue;
    struct qsi_chunk *chunk = qsi_chunk_create(1u << 20);

    QS_CHECK(chunk != NULL);
    begin(&queue);
    for (int i = 0; i < 4096; i++) {
        QS_CHECK_OK(qsi_queue_reserve_message(&queue, chunk, true));
        qsi_queue_push_message(&queue, chunk, put_record(chunk, 1, 0), 10, true, false);
    }
    QS_CHECK(queue.run_count == 1);
    QS_CHECK_OK(qsi_queue_reserve_message(&queue, chunk, true));
    qsi_queue_push_message(&queue, chunk, put_record(chunk, 1, 0), 10, true, false);
    QS_CHECK(queue.run_count == 2); /* a run is full */
    QS_CHECK_OK(qsi_queue_reserve_message(&queue, chunk, false));
    qsi_queue_push_message(&queue, chunk, put_record(chunk, 1, 0), 10, false, false);
    QS_CHECK(queue.run_count == 3); /* what is journalled does not share with what is not */
    push_batch(&queue, 2, 1, 0, false);
    QS_CHECK_OK(qsi_queue_reserve_message(&queue, chunk, false));
    qsi_queue_push_message(&queue, chunk, put_record(chunk, 1, 0), 10, false, false);
    QS_CHECK(queue.run_count == 5);
    QS_CHECK_OK(
        qsi_queue_skip_to(&queue, queue.container.next_seq + 5)); /* a gap, as recovery finds it */
    QS_CHECK_OK(qsi_queue_reserve_message(&queue, chunk, false));
    qsi_queue_push_message(&queue, chunk, put_record(chunk, 1, 0), 10, false, false);
    QS_CHECK(queue.run_count == 6);
    QS_CHECK(queue.container.ram_bytes == 4102 * 10);
    end(&queue);
    qsi_chunk_unref(chunk);
}

static void test_a_message_that_joins_a_run_whose_others_are_out_is_found(void)
{
    struct qsi_queue queue;
    struct qsi_stretch stretch;

    begin(&queue);
    for (uint64_t seq = 0; seq < 200; seq++) {
        push_single(&queue, true, false);
        QS_CHECK(take(&queue, 10, &stretch) && seq_of(&stretch) == seq && stretch.count == 1);
        QS_CHECK(!take(&queue, 10, &stretch));
    }
    QS_CHECK(queue.out_count == 200);
    end(&queue);
    drop_arena();
}

static void test_requeued_messages_come_first_in_their_order(void)
{
    struct qsi_queue queue;
    struct qsi_stretch stretches[5], stretch;

    begin(&queue);
    push_batch(&queue, 10, 1, 0, true);
    push_batch(&queue, 10, 1, 0, true);
    for (int i = 0; i < 5; i++) {
        QS_CHECK(take(&queue, 3, &stretches[i]));
    }
    QS_CHECK(seq_of(&stretches[4]) == 10);
    requeue_all(&queue, &stretches[4]);
    requeue_all(&queue, &stretches[2]);
    requeue_all(&queue, &stretches[1]);
    QS_CHECK(take(&queue, 2, &stretch) && seq_of(&stretch) == 3);
    QS_CHECK(was_seen(&stretch) && deliveries(&stretch) == 1);
    QS_CHECK(take(&queue, 100, &stretch) && seq_of(&stretch) == 5 && stretch.count == 4);
    QS_CHECK(take(&queue, 100, &stretch) && seq_of(&stretch) == 10 && stretch.count == 10);
    QS_CHECK(!take(&queue, 100, &stretch));
    QS_CHECK(queue.out_count == 20 && queue.container.taken_count == 13 + 16);
    end(&queue);
}

static void test_untaken_messages_were_never_out(void)
{
    struct qsi_queue queue;
    struct qsi_stretch stretch;

    begin(&queue);
    push_batch(&queue, 64, 1, 0, true);
    for (uint32_t keep = 0; keep < 10; keep++) { /* 45 messages in all */
        QS_CHECK(take_unseen(&queue, 64, &stretch) && stretch.slot == keep * (keep - 1) / 2);
        qsi_queue_untake(&queue, &stretch, keep);
        QS_CHECK(stretch.count == keep && queue.out_count == keep);
        if (keep > 0) {
            settle_all(&queue, &stretch);
        }
        QS_CHECK(queue.container.taken_count == keep * (keep + 1) / 2);
    }
    QS_CHECK(take_unseen(&queue, 64, &stretch) && stretch.count == 64 - 45);
    QS_CHECK(!was_seen(&stretch));
    settle_all(&queue, &stretch);
    check_empty(&queue);
    end(&queue);
}

static void test_delivery_counts_saturate(void)
{
    struct qsi_queue queue;
    struct qsi_stretch stretch;

    begin(&queue);
    push_single(&queue, true, false);
    for (uint32_t i = 0; i < 300; i++) {
        QS_CHECK(take_unseen(&queue, 1, &stretch));
        QS_CHECK(deliveries(&stretch) == (i < 255 ? i : 255));
        QS_CHECK(was_seen(&stretch) == (i > 0));
        qsi_stretch_mark_seen(&stretch);
        requeue_all(&queue, &stretch);
    }
    end(&queue);
    drop_arena();
}

/* What comes and goes one by one allocates nothing. */
static void test_a_spare_run_serves_again(void)
{
    struct qsi_queue queue;
    struct qsi_stretch stretch;
    struct qsi_chunk *chunk = qsi_chunk_create(1u << 20);
    uint64_t calls = 0;

    QS_CHECK(chunk != NULL);
    begin_with(&queue, 1024);
    for (int i = 0; i < 1000; i++) {
        if (i == 600) { /* the bitmaps of the segment are as long as they will be */
            calls = memory.calls;
        }
        QS_CHECK_OK(qsi_queue_reserve_message(&queue, chunk, i % 3 == 0));
        qsi_queue_push_message(&queue, chunk, put_record(chunk, 1, 0), 10, i % 3 == 0, false);
        QS_CHECK(take(&queue, 1, &stretch) && seq_of(&stretch) == (uint64_t)i);
        QS_CHECK(stretch.run->journalled == (i % 3 == 0));
        settle_all(&queue, &stretch);
        check_empty(&queue);
    }
    QS_CHECK(memory.calls == calls);
    end(&queue);
    QS_CHECK(chunk->refs == 1);
    qsi_chunk_unref(chunk);
}

static uint64_t stored_count(const struct qsi_queue *queue)
{
    struct qsi_queue_measure measure;

    qsi_queue_measure(queue, NULL, &measure);
    QS_CHECK(measure.alpha + measure.beta == queue->ready_count + queue->out_count);
    return measure.beta;
}

static void test_stored_bodies_are_counted(void)
{
    struct qsi_queue queue;
    struct qsi_stretch stretch;

    begin(&queue);
    push_batch(&queue, 100, 2, 4, true); /* every second row: 50 stored */
    push_batch(&queue, 10, 1, 3, true);  /* 0, 3, 6, 9 */
    push_single(&queue, true, true);
    push_single(&queue, true, false);
    QS_CHECK(stored_count(&queue) == 50 + 4 + 1);
    QS_CHECK(take(&queue, 10, &stretch));
    QS_CHECK(stored_count(&queue) == 55);
    settle_all(&queue, &stretch);
    QS_CHECK(stored_count(&queue) == 50);
    QS_CHECK(take(&queue, 10, &stretch));
    requeue_all(&queue, &stretch);
    QS_CHECK(stored_count(&queue) == 50);
    while (take(&queue, 100, &stretch)) {
        settle_all(&queue, &stretch);
    }
    QS_CHECK(stored_count(&queue) == 0);
    check_empty(&queue);
    end(&queue);
    drop_arena();
}

/* ---- purging ---- */

struct ranges {
    uint64_t calls, messages;
    uint64_t last_seq;
};

static void note_range(void *context, uint64_t first_seq, uint32_t count)
{
    struct ranges *ranges = context;

    QS_CHECK(count > 0);
    ranges->calls += 1;
    ranges->messages += count;
    ranges->last_seq = first_seq + count - 1;
}

static void test_purge_visits_what_lies_between_messages_that_are_out(void)
{
    struct qsi_queue queue;
    struct qsi_stretch stretch;
    struct ranges ranges = {0};
    uint64_t most;

    begin_with(&queue, 64);
    push_batch(&queue, 130, 1, 0, true);
    push_batch(&queue, 10, 1, 0, false);
    QS_CHECK(take(&queue, 5, &stretch)); /* 0 to 4 stay out */
    QS_CHECK(take(&queue, 5, &stretch));
    requeue_all(&queue, &stretch); /* 5 to 9 */
    QS_CHECK(take(&queue, 60, &stretch) && stretch.count == 59);
    requeue_all(&queue, &stretch);
    for (uint64_t seq = 5; seq < 70; seq += stretch.count) {
        QS_CHECK(take(&queue, 5, &stretch) && seq_of(&stretch) == seq);
        if (seq < 50) {
            settle_all(&queue, &stretch);
        }
    }
    most = qsi_queue_purge_ranges(
        &queue); /* 5 to 49 are settled and may be visited, 50 to 73 are out */
    QS_CHECK(qsi_queue_purge(&queue, note_range, &ranges) == 66);
    QS_CHECK(ranges.calls == most && most == 2 && ranges.messages == 45 + 66);
    QS_CHECK(ranges.last_seq == 139);
    QS_CHECK(queue.ready_count == 0 && queue.out_count == 5 + 24);
    QS_CHECK(queue.run_count == 1 && queue.segment_count == 3); /* the last one may be filled */
    QS_CHECK(qsi_queue_purge_ranges(&queue) == 0);
    QS_CHECK(qsi_queue_purge(&queue, note_range, &ranges) == 0 && ranges.calls == 2);
    push_single(&queue, true, false);
    QS_CHECK(take(&queue, 1, &stretch) && seq_of(&stretch) == 140);
    end(&queue);
    drop_arena();
}

/* ---- recovery ---- */

static void replay(struct qsi_queue *queue, uint64_t first, uint32_t count, uint8_t kind)
{
    struct qsi_settle settle = {queue->container.id, first, count, kind, 0};

    QS_CHECK_OK(qsi_queue_replay_settle(queue, &settle));
}

static void push_batch_at(struct qsi_queue *queue, uint32_t count, uint64_t seq)
{
    QS_CHECK_OK(qsi_queue_skip_to(queue, seq));
    QS_CHECK(push_batch(queue, count, 1, 0, true) == seq);
}

static void test_replayed_settles_pass_over_gaps(void)
{
    struct qsi_queue queue;
    struct qsi_stretch stretch;

    begin(&queue);
    push_batch_at(&queue, 100, 10);
    push_batch_at(&queue, 100, 200);
    push_batch_at(&queue, 5, 1000);
    replay(&queue, 0, 15, QSI_SETTLE_ACK); /* begins before all of them */
    QS_CHECK(queue.ready_count == 200);
    replay(&queue, 105, 100, QSI_SETTLE_ACK); /* the end of one, a gap, the beginning of another */
    QS_CHECK(queue.ready_count == 190);
    replay(&queue, 120, 70, QSI_SETTLE_ACK); /* nothing there */
    replay(&queue, 2000, 70, QSI_SETTLE_ACK);
    replay(&queue, 106, 3, QSI_SETTLE_ACK); /* again */
    QS_CHECK(queue.ready_count == 190);
    replay(&queue, 20, 5, QSI_SETTLE_REQUEUE);
    replay(&queue, 200, 10, QSI_SETTLE_REQUEUE); /* half of them are settled */
    QS_CHECK(queue.ready_count == 190);
    QS_CHECK(take(&queue, 1, &stretch) && seq_of(&stretch) == 15);
    QS_CHECK(qsi_segment_deliveries(stretch.segment, 20) == 1 &&
             qsi_segment_was_seen(stretch.segment, 20));
    QS_CHECK(qsi_segment_deliveries(stretch.segment, 19) == 0 &&
             !qsi_segment_was_seen(stretch.segment, 19));
    requeue_all(&queue, &stretch);
    replay(&queue, 0, 1005, QSI_SETTLE_ACK);
    check_empty(&queue);
    QS_CHECK(queue.container.next_seq == 1005);
    end(&queue);
}

static void test_a_replayed_settle_removes_runs_between_others(void)
{
    struct qsi_queue queue;
    struct qsi_stretch stretch;

    begin(&queue);
    for (uint64_t i = 0; i < 10; i++) {
        push_batch_at(&queue, 10, 128 * i);
    }
    replay(&queue, 256, 512, QSI_SETTLE_ACK);
    QS_CHECK(queue.run_count == 6 && queue.ready_count == 60);
    replay(&queue, 0, 10, QSI_SETTLE_ACK);
    for (uint64_t seq = 128; take(&queue, 100, &stretch); seq += seq == 128 ? 640 : 128) {
        QS_CHECK(seq_of(&stretch) == seq);
        settle_all(&queue, &stretch);
    }
    check_empty(&queue);
    end(&queue);
}

static void test_what_a_crash_left_counts_as_delivered_once(void)
{
    struct qsi_queue queue;
    struct qsi_stretch stretch;

    begin(&queue);
    for (int i = 0; i < 5; i++) {
        push_single(&queue, true, false);
    }
    replay(&queue, 3, 1, QSI_SETTLE_REQUEUE);
    replay(&queue, 3, 1, QSI_SETTLE_REQUEUE);
    QS_CHECK_OK(qsi_queue_mark_all_seen(&queue));
    push_single(&queue, true, false); /* of the next session, into the same chunk */
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t expected = i == 3 ? 2 : i == 5 ? 0 : 1;

        QS_CHECK(take_unseen(&queue, 1, &stretch) && seq_of(&stretch) == i);
        QS_CHECK(was_seen(&stretch) == (expected > 0));
        QS_CHECK(deliveries(&stretch) == expected);
        qsi_stretch_mark_seen(&stretch);
        requeue_all(&queue, &stretch);
        QS_CHECK(take_unseen(&queue, 1, &stretch) && seq_of(&stretch) == i);
        QS_CHECK(deliveries(&stretch) == expected + 1);
    }
    end(&queue);
    drop_arena();
}

/* ---- a queue and an array ---- */

#define MODEL_MAX 20000

enum state { READY, OUT, SETTLED };

struct model_message {
    enum state state;
    uint32_t deliveries;
    bool journalled, stored, seen;
};

struct model {
    struct qsi_queue queue;
    struct model_message messages[MODEL_MAX];
    uint64_t count;
    uint64_t random;
};

static uint32_t random_below(struct model *model, uint32_t limit)
{
    model->random = model->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(model->random >> 33) % limit;
}

static void model_push(struct model *model)
{
    bool journalled = random_below(model, 4) > 0;

    if (random_below(model, 3) > 0) {
        bool stored = random_below(model, 5) == 0;

        QS_CHECK(push_single(&model->queue, journalled, stored) == model->count);
        model->messages[model->count++] =
            (struct model_message){.journalled = journalled, .stored = stored};
    } else {
        uint32_t count = 1 + random_below(model, 150);
        uint32_t every = 1 + random_below(model, 2);
        uint32_t stored = random_below(model, 3) == 0 ? 3 : 0;

        QS_CHECK(push_batch(&model->queue, count, every, stored, journalled) == model->count);
        for (uint32_t i = 0; i < count; i++) {
            model->messages[model->count++] = (struct model_message){
                .journalled = journalled, .stored = stored > 0 && i * every % 3 == 0};
        }
    }
}

static uint64_t model_first_ready(const struct model *model)
{
    uint64_t seq = 0;

    while (seq < model->count && model->messages[seq].state != READY) {
        seq++;
    }
    return seq;
}

static void model_take(struct model *model)
{
    uint32_t max = 1 + random_below(model, 100);
    uint64_t first = model_first_ready(model);
    struct qsi_stretch stretch;
    uint32_t keep;

    if (!take_unseen(&model->queue, max, &stretch)) {
        QS_CHECK(first == model->count);
        return;
    }
    QS_CHECK(seq_of(&stretch) == first);
    keep = stretch.count;
    if (random_below(model, 4) == 0) {
        keep = random_below(model, stretch.count);
        qsi_queue_untake(&model->queue, &stretch, keep);
    }
    for (uint32_t i = 0; i < keep; i++) {
        struct model_message *message = &model->messages[first + i];

        QS_CHECK(message->state == READY);
        QS_CHECK(qsi_segment_was_seen(stretch.segment, stretch.slot + i) == message->seen);
        QS_CHECK(qsi_segment_deliveries(stretch.segment, stretch.slot + i) == message->deliveries);
        message->state = OUT;
        message->seen = true;
    }
    if (keep > 0) {
        qsi_stretch_mark_seen(&stretch);
    }
}

/* Some of the messages that are out in one word of one segment, together. */
static void model_settle(struct model *model, bool requeue)
{
    uint64_t seq = model->count > 0 ? random_below(model, (uint32_t)model->count) : 0;
    uint64_t word_seq = seq / QSI_WORD_BITS * QSI_WORD_BITS;
    uint32_t word = (uint32_t)(word_seq % shared.entries) / QSI_WORD_BITS;
    struct qsi_segment *segment = NULL;
    uint64_t mask = 0;

    for (uint64_t i = 0; i < QSI_WORD_BITS && word_seq + i < model->count; i++) {
        struct model_message *message = &model->messages[word_seq + i];

        if (message->state == OUT && (random_below(model, 3) > 0 || mask == 0)) {
            mask |= UINT64_C(1) << i;
            message->state = requeue ? READY : SETTLED;
            message->deliveries += requeue && message->deliveries < 255 ? 1 : 0;
        }
    }
    if (mask == 0) {
        return;
    }
    segment = qsi_queue_find_segment(&model->queue, word_seq / shared.entries);
    QS_CHECK(segment != NULL);
    for (uint64_t bits = mask; bits != 0; bits &= bits - 1) { /* which are journalled */
        uint64_t bit = bits & ~(bits - 1);
        const struct model_message *message =
            &model->messages[word_seq + (uint32_t)__builtin_ctzll(bit)];
        QS_CHECK((qsi_segment_journalled(segment, word, bit) != 0) == message->journalled);
    }
    if (requeue) {
        qsi_queue_requeue(&model->queue, segment, word, mask);
    } else {
        qsi_queue_settle(&model->queue, segment, word, mask);
    }
}

static void visit_model(void *context, uint64_t first_seq, uint32_t count)
{
    struct model *model = context;

    for (uint32_t i = 0; i < count; i++) {
        struct model_message *message = &model->messages[first_seq + i];

        QS_CHECK(message->state != OUT);
        message->state = SETTLED;
    }
}

static void model_purge(struct model *model)
{
    uint64_t ready = model->queue.ready_count;

    QS_CHECK(qsi_queue_purge(&model->queue, visit_model, model) == ready);
    QS_CHECK(model_first_ready(model) == model->count); /* all of them were visited */
}

static void model_check(const struct model *model)
{
    const struct qsi_queue *queue = &model->queue;
    uint64_t ready = 0, out = 0, stored = 0, live = 0, segment_ready = 0, segment_out = 0;

    for (uint64_t seq = 0; seq < model->count; seq++) {
        const struct model_message *message = &model->messages[seq];

        ready += message->state == READY;
        out += message->state == OUT;
        stored += message->state != SETTLED && message->stored;
    }
    QS_CHECK(queue->ready_count == ready && queue->out_count == out);
    QS_CHECK(queue->container.ram_count == ready + out &&
             queue->container.next_seq == model->count);
    QS_CHECK(stored_count(queue) == stored);
    for (uint32_t i = 0; i < queue->run_count; i++) {
        const struct qsi_run *run = qsi_queue_run_at(queue, i);

        QS_CHECK(run->live_count > 0);
        live += run->live_count;
    }
    for (uint32_t i = 0; i < queue->segment_count; i++) {
        segment_ready += qsi_queue_segment_at(queue, i)->ready_count;
        segment_out += qsi_queue_segment_at(queue, i)->out_count;
    }
    QS_CHECK(live == ready + out && segment_ready == ready && segment_out == out);
}

static void test_a_queue_does_as_an_array_does(uint64_t seed)
{
    static struct model model;

    for (uint64_t turn = 0; turn < 12; turn++) {
        memset(&model, 0, sizeof model);
        model.random = seed + turn * 977;
        begin_with(&model.queue, 64u << turn % 4 * 2);
        for (int step = 0; step < 4000 && model.count < MODEL_MAX - 200; step++) {
            uint32_t choice = random_below(&model, 100);

            if (choice < 15 + turn) {
                model_push(&model);
            } else if (choice < 55) {
                model_take(&model);
            } else if (choice < 80) {
                model_settle(&model, false);
            } else if (choice < 99) {
                model_settle(&model, true);
            } else if (random_below(&model, 10) == 0) {
                model_purge(&model);
            }
            if (step % 100 == 0) {
                model_check(&model);
            }
        }
        model_check(&model);
        end(&model.queue);
        drop_arena();
    }
}

/* ---- out of memory ---- */

static void test_reserving_may_fail_and_pushing_cannot(void)
{
    struct qsi_chunk *chunk = qsi_chunk_create(1u << 20);
    struct qsi_queue queue;
    struct qsi_run *run;

    QS_CHECK(chunk != NULL);
    for (uint64_t n = 1;; n++) {
        uint64_t pushed = 0;
        bool failed = false;

        begin(&queue);
        chunk->used = 0;
        qs_test_alloc_arm(&memory, n, false);
        while (pushed < 200) {
            qs_status status = qsi_queue_reserve_message(&queue, chunk, pushed % 90 < 80);

            if (status != QS_OK) {
                QS_CHECK(status == QS_ENOMEM && memory.has_failed && !failed);
                failed = true;
                continue;
            }
            QS_CHECK(qsi_queue_push_message(&queue, chunk, put_record(chunk, 1, 0), 10,
                                            pushed % 90 < 80, false) == pushed);
            pushed += 1;
        }
        QS_CHECK(queue.ready_count == 200 && failed == memory.has_failed);
        qs_test_alloc_arm(&memory, 0, false);
        end(&queue);
        if (!failed) {
            break;
        }
    }
    chunk->used = 0;
    put_record(chunk, 10, 0);
    qs_test_alloc_arm(&memory, 1, false);
    QS_CHECK(qsi_run_create(&run, chunk, 0, 10, NULL, true) == QS_ENOMEM && run == NULL);
    qs_test_alloc_arm(&memory, 0, false);
    QS_CHECK(chunk->refs == 1);
    qsi_chunk_unref(chunk);
}

/* Room for a batch over many segments may be made in part; it serves whoever comes next,
 * whatever happens before. */
static void test_room_that_was_made_in_part_harms_nobody(void)
{
    for (uint64_t n = 1;; n++) {
        struct qsi_queue queue;
        struct qsi_stretch stretch;
        qs_status status;

        begin_with(&queue, 64);
        push_batch(&queue, 10, 1, 0, true);
        qs_test_alloc_arm(&memory, n, false);
        status = qsi_queue_reserve(&queue, 2, 300, true);
        QS_CHECK(status == (memory.has_failed ? QS_ENOMEM : QS_OK));
        qs_test_alloc_arm(&memory, 0, false);
        if (n % 2 == 0) {
            QS_CHECK_OK(qsi_queue_skip_to(&queue, 100)); /* into a segment that was reserved */
        }
        push_batch(&queue, 100, 1, 0, n % 3 != 0);
        QS_CHECK(queue.ready_count == 110);
        for (uint64_t seq = 0; take(&queue, 64, &stretch); seq += stretch.count) {
            seq = n % 2 == 0 && seq == 10 ? 100 : seq;
            QS_CHECK(seq_of(&stretch) == seq);
            settle_all(&queue, &stretch);
        }
        check_empty(&queue);
        end(&queue);
        if (status == QS_OK) {
            break;
        }
    }
}

/* Without memory for counts a requeue still is one. */
static void test_requeueing_cannot_fail(void)
{
    struct qsi_queue queue;
    struct qsi_stretch stretch;

    begin(&queue);
    push_batch(&queue, 10, 1, 0, true);
    QS_CHECK(take(&queue, 10, &stretch));
    qs_test_alloc_arm(&memory, 1, true);
    requeue_all(&queue, &stretch);
    qs_test_alloc_arm(&memory, 0, false);
    QS_CHECK(queue.ready_count == 10);
    QS_CHECK(take_unseen(&queue, 10, &stretch) && was_seen(&stretch) && deliveries(&stretch) == 1);
    end(&queue);
}

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);

    qs_test_alloc_install(&memory);
    test_messages_leave_in_the_order_they_came();
    test_a_row_tells_its_record();
    test_singles_share_runs_while_they_share_chunks();
    test_a_message_that_joins_a_run_whose_others_are_out_is_found();
    test_requeued_messages_come_first_in_their_order();
    test_untaken_messages_were_never_out();
    test_delivery_counts_saturate();
    test_a_spare_run_serves_again();
    test_stored_bodies_are_counted();
    test_purge_visits_what_lies_between_messages_that_are_out();
    test_replayed_settles_pass_over_gaps();
    test_a_replayed_settle_removes_runs_between_others();
    test_what_a_crash_left_counts_as_delivered_once();
    test_a_queue_does_as_an_array_does(seed);
    test_reserving_may_fail_and_pushing_cannot();
    test_room_that_was_made_in_part_harms_nobody();
    test_requeueing_cannot_fail();
    QS_CHECK(memory.alive == 0);
    qs_allocator_set(NULL);
    return 0;
}
