/* A queue as a container: each operation through the table, and what the head says afterwards. */
#include "qs_test.h"
#include "queue.h"
#include "queue_take.h"

#define ENTRIES 64
#define ROWS 100

static struct qsi_queue_shared shared;

static struct qsi_container *begin(struct qsi_queue *queue)
{
    qsi_queue_shared_init(&shared, ENTRIES);
    qsi_queue_init(queue, &shared, 7, true);
    return &queue->container;
}

static struct qsi_chunk *make_record(uint32_t rows)
{
    struct qsi_messages_layout layout = {
        .row_count = rows, .route_count = 1, .routes_bytes = qsi_route_bytes(0, 0, 0)};
    struct qsi_chunk *chunk;
    uint64_t at = 0;

    QS_CHECK_OK(qsi_messages_layout(&layout, QS_ERROR));
    chunk = qsi_chunk_create(layout.record_bytes);
    QS_CHECK(chunk != NULL);
    memset(chunk->data, 0, layout.record_bytes);
    qsi_messages_begin(chunk->data, &layout);
    qsi_messages_put_route(chunk->data, &layout, 0, &at, QSI_SLICE_LITERAL(""),
                           QSI_SLICE_LITERAL(""), NULL, 0);
    chunk->used = layout.record_bytes;
    return chunk;
}

/* Returns the first sequence. */
static uint64_t append(struct qsi_container *container, uint32_t count)
{
    struct qsi_chunk *chunk = make_record(count);
    struct qsi_run *run;

    QS_CHECK_OK(qsi_run_create(&run, chunk, 0, count, NULL, true));
    run->ram_bytes = chunk->used;
    QS_CHECK_OK(qsi_container_reserve(container, 1, count, false));
    QS_CHECK_OK(qsi_container_reserve_times(container, chunk->data, count));
    qsi_chunk_unref(chunk);
    return qsi_container_append(container, run);
}

static uint64_t first_seq(const struct qsi_container *container, const struct qsi_stretch *stretch)
{
    return qsi_queue_first_seq((const struct qsi_queue *)(const void *)container,
                               stretch->segment) +
           stretch->slot;
}

/* Takes what must be the messages [from, from + count), within one word. */
static struct qsi_stretch take(struct qsi_container *container, uint64_t from, uint32_t count)
{
    struct qsi_stretch stretch;

    QS_CHECK(qsi_container_take(container, count, &stretch) == QSI_TAKE_TAKEN);
    QS_CHECK(first_seq(container, &stretch) == from && stretch.count == count);
    return stretch;
}

QS_TEST(test_appended_messages_are_taken_in_order_and_settled)
{
    struct qsi_queue queue;
    struct qsi_container *container = begin(&queue);
    struct qsi_chunk *single = make_record(1);
    struct qsi_stretch stretch;

    QS_CHECK(container->id == 7 && container->durable && qsi_container_is_flushed(container));
    QS_CHECK(append(container, ROWS) == 0);
    QS_CHECK_OK(qsi_container_reserve_one(container, single, true));
    QS_CHECK(qsi_container_append_one(container, single, 0, (uint32_t)single->used, true, false) ==
             ROWS);
    qsi_chunk_unref(single);
    QS_CHECK(container->next_seq == ROWS + 1 && container->in_count == ROWS + 1);
    QS_CHECK(container->ram_count == ROWS + 1 && container->ram_bytes > 0);
    QS_CHECK(!qsi_container_is_flushed(container));
    QS_CHECK(qsi_container_unflushed_bytes(container) > ROWS);
    stretch = take(container, 0, 64);
    qsi_container_untake(container, &stretch, 10);
    QS_CHECK(qsi_queue_out_count(&queue) == 10 && container->taken_count == 10);
    qsi_container_settle(container, stretch.segment, 0, qsi_stretch_mask(&stretch));
    QS_CHECK(container->settled_count == 10 && container->ram_count == ROWS + 1 - 10);
    stretch = take(container, 10, 54);
    qsi_container_settle(container, stretch.segment, 0, qsi_stretch_mask(&stretch));
    stretch = take(container, 64, ROWS - 64);
    qsi_container_settle(container, stretch.segment, 0, qsi_stretch_mask(&stretch));
    stretch = take(container, ROWS, 1);
    qsi_container_settle(container, stretch.segment, stretch.slot / QSI_WORD_BITS,
                         qsi_stretch_mask(&stretch));
    QS_CHECK(container->ram_count == 0 && container->ram_bytes == 0);
    QS_CHECK(qsi_container_take(container, 1, &stretch) == QSI_TAKE_EMPTY);
    qsi_container_fini(container);
}

QS_TEST(test_requeued_messages_count_as_delivered_and_those_given_back_do_not)
{
    struct qsi_queue queue;
    struct qsi_container *container = begin(&queue);
    struct qsi_stretch stretch;

    QS_CHECK(append(container, 10) == 0);
    stretch = take(container, 0, 10);
    qsi_container_give_back(container, stretch.segment, 0, qsi_stretch_mask(&stretch));
    stretch = take(container, 0, 10);
    QS_CHECK(!qsi_segment_was_seen(stretch.segment, 0));
    qsi_stretch_mark_seen(&stretch);
    qsi_container_requeue(container, stretch.segment, 0, qsi_stretch_mask(&stretch));
    stretch = take(container, 0, 10);
    QS_CHECK(qsi_segment_deliveries(stretch.segment, 0) == 1);
    qsi_stretch_mark_seen(&stretch);
    qsi_container_give_back(container, stretch.segment, 0, qsi_stretch_mask(&stretch));
    stretch = take(container, 0, 10);
    QS_CHECK(qsi_segment_deliveries(stretch.segment, 0) == 1);
    qsi_stretch_mark_seen(&stretch);
    qsi_container_requeue(container, stretch.segment, 0, qsi_stretch_mask(&stretch));
    stretch = take(container, 0, 10);
    QS_CHECK(qsi_segment_deliveries(stretch.segment, 0) == 2);
    qsi_container_fini(container);
}

struct purged {
    uint64_t ranges, end;
};

static void note_range(void *context, uint64_t first, uint32_t count)
{
    struct purged *purged = context;

    purged->ranges += 1;
    QS_CHECK(first >= purged->end);
    purged->end = first + count;
}

QS_TEST(test_purge_leaves_what_is_out_and_abandon_nothing)
{
    struct qsi_queue queue;
    struct qsi_container *container = begin(&queue);
    struct purged purged = {0};

    QS_CHECK(append(container, ROWS) == 0);
    (void)take(container, 0, 5);
    QS_CHECK(qsi_container_purge_ranges(container) > 0);
    QS_CHECK(qsi_container_purge(container, note_range, &purged) == ROWS - 5);
    QS_CHECK(purged.ranges > 0 && purged.end == ROWS);
    QS_CHECK(qsi_queue_out_count(&queue) == 5 && container->ram_count == 5);
    qsi_container_abandon(container);
    QS_CHECK(qsi_queue_out_count(&queue) == 5); /* until whoever has them settles them */
    qsi_container_fini(container);
}

QS_TEST(test_replay_begins_where_it_is_told_and_settles_by_sequence)
{
    struct qsi_queue queue;
    struct qsi_container *container = begin(&queue);
    struct qsi_settle settle = {
        .queue_id = 7, .first_seq = 1000, .count = 4, .kind = QSI_SETTLE_ACK};
    struct qsi_stretch stretch;

    qsi_container_start_at(container, 1000);
    QS_CHECK(container->next_seq == 1000 && qsi_container_is_flushed(container));
    QS_CHECK(append(container, 10) == 1000);
    QS_CHECK_OK(qsi_container_replay_settle(container, &settle));
    QS_CHECK(qsi_queue_ready_count(&queue) == 6);
    QS_CHECK_OK(qsi_container_skip_to(container, 1020));
    QS_CHECK(container->next_seq == 1020 && append(container, 1) == 1020);
    QS_CHECK_OK(qsi_container_mark_all_seen(container));
    stretch = take(container, 1004, 6);
    QS_CHECK(qsi_segment_was_seen(stretch.segment, stretch.slot));
    qsi_container_fini(container);
}

QS_TEST(test_what_is_not_flushed_stays_in_memory)
{
    struct qsi_queue queue;
    struct qsi_container *container = begin(&queue);

    QS_CHECK(append(container, ROWS) == 0);
    QS_CHECK(qsi_container_drop_content(container, 0, UINT64_MAX) == 0);
    qsi_container_drop_states(container);
    QS_CHECK(container->ram_count == ROWS && qsi_queue_is_in_memory(&queue));
    qsi_container_fini(container);
}
