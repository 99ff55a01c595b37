/* One queue's messages: order, places, counts.
 *
 * The random part does everything to a queue and to a plain array of messages, and compares; its seed is printed and is
 * the first argument. */
#include "alloc.h"
#include "qs_test.h"
#include "qs_test_alloc.h"
#include "queue.h"

#include <stdlib.h>

static struct qs_test_alloc memory;

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

/* A record of empty messages behind what the chunk holds; every stored_every-th is in the message store (0: none). */
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
    QS_CHECK_OK(qsi_queue_reserve_run(queue, 1));
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

/* Takes and marks, as delivering does. */
static bool take(struct qsi_queue *queue, uint32_t max, struct qsi_stretch *stretch)
{
    if (!qsi_queue_take(queue, max, stretch)) {
        return false;
    }
    QS_CHECK(stretch->count > 0 && stretch->count <= max);
    QS_CHECK(stretch->row / QSI_WORD_BITS == (stretch->row + stretch->count - 1) / QSI_WORD_BITS);
    qsi_run_mark_seen(stretch->run, stretch->row / QSI_WORD_BITS, qsi_stretch_mask(stretch));
    return true;
}

static uint64_t seq_of(const struct qsi_stretch *stretch)
{
    return stretch->run->first_seq + stretch->row;
}

static void settle_all(struct qsi_queue *queue, const struct qsi_stretch *stretch)
{
    qsi_queue_settle(queue, stretch->run, stretch->row / QSI_WORD_BITS, qsi_stretch_mask(stretch));
}

static void requeue_all(struct qsi_queue *queue, const struct qsi_stretch *stretch)
{
    qsi_queue_requeue(queue, stretch->run, stretch->row / QSI_WORD_BITS, qsi_stretch_mask(stretch));
}

static void check_empty(const struct qsi_queue *queue)
{
    QS_CHECK(queue->ready_count == 0 && queue->out_count == 0 && queue->run_count == 0 &&
             queue->stored_count == 0 && queue->ram_bytes == 0);
}

/* ---- single steps ---- */

static void test_messages_leave_in_the_order_they_came(void)
{
    struct qsi_queue queue;
    struct qsi_stretch stretch;
    uint64_t expected = 0;

    qsi_queue_init(&queue, 1);
    for (int i = 0; i < 300; i++) {
        QS_CHECK(push_single(&queue, true, false) == (uint64_t)i);
    }
    QS_CHECK(push_batch(&queue, 200, 1, 0, true) == 300);
    QS_CHECK(push_batch(&queue, 70, 3, 0, true) == 500);
    QS_CHECK(push_single(&queue, true, false) == 570);
    QS_CHECK(queue.ready_count == 571 && queue.next_seq == 571);
    while (take(&queue, 1000, &stretch)) {
        QS_CHECK(seq_of(&stretch) == expected);
        expected += stretch.count;
        settle_all(&queue, &stretch);
    }
    QS_CHECK(expected == 571);
    check_empty(&queue);
    QS_CHECK(queue.in_count == 571 && queue.taken_count == 571);
    qsi_queue_fini(&queue);
    drop_arena();
}

static void test_a_row_tells_its_record(void)
{
    struct qsi_queue queue;
    struct qsi_stretch stretch;
    uint32_t row;

    qsi_queue_init(&queue, 1);
    push_batch(&queue, 5, 3, 0, true);
    push_batch(&queue, 5, 1, 0, true);
    QS_CHECK(take(&queue, 4, &stretch) && stretch.count == 4);
    QS_CHECK(qsi_run_record(stretch.run, 3, &row) == stretch.run->chunk->data && row == 9);
    QS_CHECK(take(&queue, 4, &stretch) && stretch.count == 1);
    QS_CHECK(take(&queue, 4, &stretch) && seq_of(&stretch) == 5);
    QS_CHECK(qsi_run_record(stretch.run, 3, &row) == stretch.run->chunk->data && row == 3);
    qsi_queue_fini(&queue);
    qsi_queue_init(&queue, 1);
    push_single(&queue, true, false);
    push_single(&queue, true, false);
    QS_CHECK(take(&queue, 4, &stretch) && stretch.count == 2);
    QS_CHECK(qsi_run_record(stretch.run, 1, &row) ==
                 stretch.run->chunk->data + lay_out(1, false).record_bytes &&
             row == 0);
    qsi_queue_fini(&queue);
    drop_arena();
}

static void test_singles_share_runs_while_they_share_chunks(void)
{
    struct qsi_queue queue;
    struct qsi_chunk *chunk = qsi_chunk_create(1u << 20);

    QS_CHECK(chunk != NULL);
    qsi_queue_init(&queue, 1);
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
    queue.next_seq += 5; /* a gap, as recovery finds it */
    QS_CHECK_OK(qsi_queue_reserve_message(&queue, chunk, false));
    qsi_queue_push_message(&queue, chunk, put_record(chunk, 1, 0), 10, false, false);
    QS_CHECK(queue.run_count == 6);
    QS_CHECK(queue.ram_bytes == 4102 * 10);
    qsi_queue_fini(&queue);
    qsi_chunk_unref(chunk);
}

static void test_a_message_that_joins_a_run_whose_others_are_out_is_found(void)
{
    struct qsi_queue queue;
    struct qsi_stretch stretch;

    qsi_queue_init(&queue, 1);
    for (uint64_t seq = 0; seq < 200; seq++) {
        push_single(&queue, true, false);
        QS_CHECK(take(&queue, 10, &stretch) && seq_of(&stretch) == seq && stretch.count == 1);
        QS_CHECK(!take(&queue, 10, &stretch));
    }
    QS_CHECK(queue.out_count == 200);
    qsi_queue_fini(&queue);
    drop_arena();
}

static void test_requeued_messages_come_first_in_their_order(void)
{
    struct qsi_queue queue;
    struct qsi_stretch stretches[5], stretch;

    qsi_queue_init(&queue, 1);
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
    QS_CHECK(qsi_run_was_seen(stretch.run, stretch.row) &&
             qsi_run_deliveries(stretch.run, stretch.row) == 1);
    QS_CHECK(take(&queue, 100, &stretch) && seq_of(&stretch) == 5 && stretch.count == 4);
    QS_CHECK(take(&queue, 100, &stretch) && seq_of(&stretch) == 10 && stretch.count == 10);
    QS_CHECK(!take(&queue, 100, &stretch));
    QS_CHECK(queue.out_count == 20 && queue.taken_count == 13 + 16);
    qsi_queue_fini(&queue);
}

static void test_untaken_messages_were_never_out(void)
{
    struct qsi_queue queue;
    struct qsi_stretch stretch;

    qsi_queue_init(&queue, 1);
    push_batch(&queue, 64, 1, 0, true);
    for (uint32_t keep = 0; keep < 10; keep++) { /* 45 messages in all */
        QS_CHECK(qsi_queue_take(&queue, 64, &stretch) && stretch.row == keep * (keep - 1) / 2);
        qsi_queue_untake(&queue, &stretch, keep);
        QS_CHECK(stretch.count == keep && queue.out_count == keep);
        if (keep > 0) {
            settle_all(&queue, &stretch);
        }
        QS_CHECK(queue.taken_count == keep * (keep + 1) / 2);
    }
    QS_CHECK(qsi_queue_take(&queue, 64, &stretch) && stretch.count == 64 - 45);
    QS_CHECK(!qsi_run_was_seen(stretch.run, stretch.row));
    settle_all(&queue, &stretch);
    check_empty(&queue);
    qsi_queue_fini(&queue);
}

static void test_delivery_counts_saturate(void)
{
    struct qsi_queue queue;
    struct qsi_stretch stretch;

    qsi_queue_init(&queue, 1);
    push_single(&queue, true, false);
    for (uint32_t i = 0; i < 300; i++) {
        QS_CHECK(qsi_queue_take(&queue, 1, &stretch));
        QS_CHECK(qsi_run_deliveries(stretch.run, 0) == (i < 255 ? i : 255));
        QS_CHECK(qsi_run_was_seen(stretch.run, 0) == (i > 0));
        qsi_run_mark_seen(stretch.run, 0, 1);
        requeue_all(&queue, &stretch);
    }
    qsi_queue_fini(&queue);
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
    qsi_queue_init(&queue, 1);
    for (int i = 0; i < 1000; i++) {
        if (i == 10) {
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
    qsi_queue_fini(&queue);
    QS_CHECK(chunk->refs == 1);
    qsi_chunk_unref(chunk);
}

static void test_stored_bodies_are_counted(void)
{
    struct qsi_queue queue;
    struct qsi_stretch stretch;

    qsi_queue_init(&queue, 1);
    push_batch(&queue, 100, 2, 4, true); /* every second row: 50 stored */
    push_batch(&queue, 10, 1, 3, true);  /* 0, 3, 6, 9 */
    push_single(&queue, true, true);
    push_single(&queue, true, false);
    QS_CHECK(queue.stored_count == 50 + 4 + 1);
    QS_CHECK(take(&queue, 10, &stretch));
    QS_CHECK(queue.stored_count == 55);
    settle_all(&queue, &stretch);
    QS_CHECK(queue.stored_count == 50);
    QS_CHECK(take(&queue, 10, &stretch));
    requeue_all(&queue, &stretch);
    QS_CHECK(queue.stored_count == 50);
    while (take(&queue, 100, &stretch)) {
        settle_all(&queue, &stretch);
    }
    check_empty(&queue);
    qsi_queue_fini(&queue);
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

static void test_purge_visits_what_is_journalled(void)
{
    struct qsi_queue queue;
    struct qsi_stretch stretch;
    struct ranges ranges = {0};
    uint64_t most;

    qsi_queue_init(&queue, 1);
    push_batch(&queue, 130, 1, 0, true);
    push_batch(&queue, 10, 1, 0, false);
    QS_CHECK(take(&queue, 5, &stretch)); /* 0 to 4 stay out */
    QS_CHECK(take(&queue, 5, &stretch));
    QS_CHECK(take(&queue, 5, &stretch));
    requeue_all(&queue, &stretch); /* 10 to 14 */
    most = qsi_queue_purge_ranges(&queue);
    QS_CHECK(qsi_queue_purge(&queue, note_range, &ranges) == 130);
    QS_CHECK(ranges.calls == most && most == 3 && ranges.messages == 120);
    QS_CHECK(queue.ready_count == 0 && queue.out_count == 10 && queue.run_count == 1);
    QS_CHECK(qsi_queue_purge_ranges(&queue) == 0);
    QS_CHECK(qsi_queue_purge(&queue, note_range, &ranges) == 0 && ranges.calls == 3);
    push_single(&queue, true, false);
    QS_CHECK(take(&queue, 1, &stretch) && seq_of(&stretch) == 140);
    qsi_queue_fini(&queue);
    drop_arena();
}

/* ---- recovery ---- */

static void replay(struct qsi_queue *queue, uint64_t first, uint32_t count, uint8_t kind)
{
    struct qsi_settle settle = {queue->id, first, count, kind};

    qsi_queue_replay_settle(queue, &settle);
}

static void push_batch_at(struct qsi_queue *queue, uint32_t count, uint64_t seq)
{
    struct qsi_chunk *chunk = make_chunk(count, 0);
    struct qsi_run *run;

    QS_CHECK_OK(qsi_run_create(&run, chunk, 0, count, NULL, true));
    run->ram_bytes = count * 10;
    qsi_chunk_unref(chunk);
    QS_CHECK_OK(qsi_queue_reserve_run(queue, 1));
    qsi_queue_push_run_at(queue, run, seq);
}

static void test_replayed_settles_pass_over_gaps(void)
{
    struct qsi_queue queue;
    struct qsi_stretch stretch;

    qsi_queue_init(&queue, 1);
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
    QS_CHECK(qsi_run_deliveries(stretch.run, 10) == 1 && qsi_run_was_seen(stretch.run, 10));
    QS_CHECK(qsi_run_deliveries(stretch.run, 9) == 0 && !qsi_run_was_seen(stretch.run, 9));
    requeue_all(&queue, &stretch);
    replay(&queue, 0, 1005, QSI_SETTLE_ACK);
    check_empty(&queue);
    QS_CHECK(queue.next_seq == 1005);
    qsi_queue_fini(&queue);
}

static void test_a_replayed_settle_removes_runs_between_others(void)
{
    struct qsi_queue queue;
    struct qsi_stretch stretch;

    qsi_queue_init(&queue, 1);
    for (uint64_t i = 0; i < 10; i++) {
        push_batch_at(&queue, 10, 100 * i);
    }
    replay(&queue, 200, 400, QSI_SETTLE_ACK);
    QS_CHECK(queue.run_count == 6 && queue.ready_count == 60);
    replay(&queue, 0, 10, QSI_SETTLE_ACK);
    for (uint64_t seq = 100; take(&queue, 100, &stretch); seq += seq == 100 ? 500 : 100) {
        QS_CHECK(seq_of(&stretch) == seq);
        settle_all(&queue, &stretch);
    }
    check_empty(&queue);
    qsi_queue_fini(&queue);
}

static void test_what_a_crash_left_counts_as_delivered_once(void)
{
    struct qsi_queue queue;
    struct qsi_stretch stretch;

    qsi_queue_init(&queue, 1);
    for (int i = 0; i < 5; i++) {
        push_single(&queue, true, false);
    }
    replay(&queue, 3, 1, QSI_SETTLE_REQUEUE);
    replay(&queue, 3, 1, QSI_SETTLE_REQUEUE);
    qsi_queue_mark_all_seen(&queue);
    push_single(&queue, true, false); /* of the next session, into the same chunk */
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t expected = i == 3 ? 2 : i == 5 ? 0 : 1;

        QS_CHECK(qsi_queue_take(&queue, 1, &stretch) && seq_of(&stretch) == i);
        QS_CHECK(qsi_run_was_seen(stretch.run, stretch.row) == (expected > 0));
        QS_CHECK(qsi_run_deliveries(stretch.run, stretch.row) == expected);
        qsi_run_mark_seen(stretch.run, 0, qsi_stretch_mask(&stretch));
        requeue_all(&queue, &stretch);
        QS_CHECK(qsi_queue_take(&queue, 1, &stretch) && seq_of(&stretch) == i);
        QS_CHECK(qsi_run_deliveries(stretch.run, stretch.row) == expected + 1);
    }
    qsi_queue_fini(&queue);
    drop_arena();
}

/* ---- a queue and an array ---- */

#define MODEL_MAX 20000

enum state { READY, OUT, SETTLED };

struct model_message {
    enum state state;
    uint32_t deliveries;
    bool journalled, stored, seen;
    struct qsi_run *run; /* while out */
    uint32_t row;
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

    if (!qsi_queue_take(&model->queue, max, &stretch)) {
        QS_CHECK(first == model->count);
        return;
    }
    QS_CHECK(seq_of(&stretch) == first && stretch.count <= max);
    keep = stretch.count;
    if (random_below(model, 4) == 0) {
        keep = random_below(model, stretch.count);
        qsi_queue_untake(&model->queue, &stretch, keep);
    }
    for (uint32_t i = 0; i < keep; i++) {
        struct model_message *message = &model->messages[first + i];

        QS_CHECK(message->state == READY);
        QS_CHECK(qsi_run_was_seen(stretch.run, stretch.row + i) == message->seen);
        QS_CHECK(qsi_run_deliveries(stretch.run, stretch.row + i) == message->deliveries);
        message->state = OUT;
        message->seen = true;
        message->run = stretch.run;
        message->row = stretch.row + i;
    }
    if (keep > 0) {
        qsi_run_mark_seen(stretch.run, stretch.row / QSI_WORD_BITS, qsi_stretch_mask(&stretch));
    }
}

/* Some of the messages that are out in one word of one run, together. */
static void model_settle(struct model *model, bool requeue)
{
    uint64_t seq = model->count > 0 ? random_below(model, (uint32_t)model->count) : 0;
    struct qsi_run *run = NULL;
    uint32_t word = 0;
    uint64_t mask = 0;

    for (uint64_t i = 0; i < 200 && seq + i < model->count; i++) {
        struct model_message *message = &model->messages[seq + i];

        if (message->state != OUT ||
            (run != NULL && (message->run != run || message->row / QSI_WORD_BITS != word))) {
            continue;
        }
        run = message->run;
        word = message->row / QSI_WORD_BITS;
        if (random_below(model, 3) > 0 || mask == 0) {
            mask |= UINT64_C(1) << message->row % QSI_WORD_BITS;
            message->state = requeue ? READY : SETTLED;
            message->deliveries += requeue && message->deliveries < 255 ? 1 : 0;
        }
    }
    if (mask == 0) {
        return;
    }
    if (requeue) {
        qsi_queue_requeue(&model->queue, run, word, mask);
    } else {
        qsi_queue_settle(&model->queue, run, word, mask);
    }
}

static void visit_model(void *context, uint64_t first_seq, uint32_t count)
{
    struct model *model = context;

    for (uint32_t i = 0; i < count; i++) {
        struct model_message *message = &model->messages[first_seq + i];

        QS_CHECK(message->state == READY && message->journalled);
        message->state = SETTLED;
    }
}

static void model_purge(struct model *model)
{
    uint64_t ready = model->queue.ready_count;
    uint64_t visited = 0;

    for (uint64_t seq = 0; seq < model->count; seq++) {
        visited += model->messages[seq].state == READY && model->messages[seq].journalled;
    }
    QS_CHECK(qsi_queue_purge(&model->queue, visit_model, model) == ready);
    for (uint64_t seq = 0; seq < model->count; seq++) {
        if (model->messages[seq].state == READY) {
            QS_CHECK(!model->messages[seq].journalled);
            model->messages[seq].state = SETTLED;
        }
    }
    QS_CHECK(visited <= ready);
}

static void model_check(const struct model *model)
{
    uint64_t ready = 0, out = 0, stored = 0, run_ready = 0;

    for (uint64_t seq = 0; seq < model->count; seq++) {
        const struct model_message *message = &model->messages[seq];

        ready += message->state == READY;
        out += message->state == OUT;
        stored += message->state != SETTLED && message->stored;
    }
    QS_CHECK(model->queue.ready_count == ready && model->queue.out_count == out);
    QS_CHECK(model->queue.stored_count == stored && model->queue.next_seq == model->count);
    for (uint32_t i = 0; i < model->queue.run_count; i++) {
        const struct qsi_run *run = model->queue.runs[model->queue.first_run + i];

        QS_CHECK(run->ready_count + run->out_count > 0);
        run_ready += run->ready_count;
    }
    QS_CHECK(run_ready == ready);
}

static void test_a_queue_does_as_an_array_does(uint64_t seed)
{
    static struct model model;

    for (uint64_t turn = 0; turn < 12; turn++) {
        memset(&model, 0, sizeof model);
        model.random = seed + turn * 977;
        qsi_queue_init(&model.queue, 1);
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
        qsi_queue_fini(&model.queue);
        drop_arena();
    }
}

/* ---- out of memory ---- */

static void test_reserving_may_fail_and_pushing_cannot(void)
{
    struct qsi_chunk *chunk = qsi_chunk_create(1u << 20);
    struct qsi_queue queue;

    QS_CHECK(chunk != NULL);
    for (uint64_t n = 1;; n++) {
        uint64_t pushed = 0;
        bool failed = false;

        qsi_queue_init(&queue, 1);
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
        qsi_queue_fini(&queue);
        if (!failed) {
            break;
        }
    }
    for (uint64_t n = 1; n <= 2; n++) {
        struct qsi_run *run;

        chunk->used = 0;
        put_record(chunk, 10, 0);
        qs_test_alloc_arm(&memory, n, false);
        QS_CHECK(qsi_run_create(&run, chunk, 0, 10, NULL, true) == QS_ENOMEM && run == NULL);
    }
    qs_test_alloc_arm(&memory, 0, false);
    QS_CHECK(chunk->refs == 1);
    qsi_chunk_unref(chunk);
}

/* Without memory for counts a requeue still is one. */
static void test_requeueing_cannot_fail(void)
{
    struct qsi_queue queue;
    struct qsi_stretch stretch;

    qsi_queue_init(&queue, 1);
    push_batch(&queue, 10, 1, 0, true);
    QS_CHECK(take(&queue, 10, &stretch));
    qs_test_alloc_arm(&memory, 1, true);
    requeue_all(&queue, &stretch);
    qs_test_alloc_arm(&memory, 0, false);
    QS_CHECK(queue.ready_count == 10);
    QS_CHECK(qsi_queue_take(&queue, 10, &stretch) && qsi_run_was_seen(stretch.run, 0) &&
             qsi_run_deliveries(stretch.run, 0) == 1);
    qsi_queue_fini(&queue);
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
    test_purge_visits_what_is_journalled();
    test_replayed_settles_pass_over_gaps();
    test_a_replayed_settle_removes_runs_between_others();
    test_what_a_crash_left_counts_as_delivered_once();
    test_a_queue_does_as_an_array_does(seed);
    test_reserving_may_fail_and_pushing_cannot();
    test_requeueing_cannot_fail();
    QS_CHECK(memory.alive == 0);
    qs_allocator_set(NULL);
    return 0;
}
