/* One queue's messages: order, places, counts. */
#include "plain_queue_fixture.h"
#include "queue_publish.h"
#include "queue_settle.h"
#include "queue_take.h"

QUEUE_TEST(test_messages_leave_in_the_order_they_came)
{
    struct qsi_stretch stretch;
    uint64_t expected = 0;

    for (int i = 0; i < 300; i++) {
        QS_CHECK(push_single(queue, true, false) == (uint64_t)i);
    }
    QS_CHECK(push_batch(queue, 200, 1, 0, true) == 300);
    QS_CHECK(push_batch(queue, 70, 3, 0, true) == 500);
    QS_CHECK(push_single(queue, true, false) == 570);
    QS_CHECK(queue->ready_count == 571 && queue->container.next_seq == 571);
    while (take(queue, 1000, &stretch)) {
        QS_CHECK(seq_of(&stretch) == expected);
        expected += stretch.count;
        settle_all(queue, &stretch);
    }
    QS_CHECK(expected == 571);
    check_empty(queue);
    QS_CHECK(queue->container.in_count == 571 && queue->container.taken_count == 571);
}

QUEUE_TEST(test_a_row_tells_its_record)
{
    struct qsi_stretch stretch;
    uint32_t row;

    push_batch(queue, 5, 3, 0, true);
    push_batch(queue, 5, 1, 0, true);
    QS_CHECK(take(queue, 4, &stretch) && stretch.count == 4);
    QS_CHECK(qsi_run_record(stretch.run, 3, &row) == stretch.run->messages.chunk->data && row == 9);
    QS_CHECK(take(queue, 4, &stretch) && stretch.count == 1);
    QS_CHECK(take(queue, 4, &stretch) && seq_of(&stretch) == 5);
    QS_CHECK(qsi_run_record(stretch.run, 3, &row) == stretch.run->messages.chunk->data && row == 3);
    end(queue);
    begin(queue);
    push_single(queue, true, false);
    push_single(queue, true, false);
    QS_CHECK(take(queue, 4, &stretch) && stretch.count == 2);
    QS_CHECK(qsi_run_record(stretch.run, 1, &row) ==
                 stretch.run->messages.chunk->data + lay_out(1, false).record_bytes &&
             row == 0);
}

QS_TEST(test_singles_share_runs_while_they_share_chunks)
{
    struct qsi_queue queue;
    struct qsi_chunk *chunk = qsi_chunk_create(1u << 20);

    QS_CHECK(chunk != NULL);
    begin(&queue);
    for (int i = 0; i < 4096; i++) {
        QS_CHECK_OK(qsi_queue_reserve_message(&queue.container, chunk, true));
        qsi_queue_push_message(&queue.container, chunk, put_record(chunk, 1, 0), 10, true, false);
    }
    QS_CHECK(queue.run_count == 1);
    QS_CHECK_OK(qsi_queue_reserve_message(&queue.container, chunk, true));
    qsi_queue_push_message(&queue.container, chunk, put_record(chunk, 1, 0), 10, true, false);
    QS_CHECK(queue.run_count == 2); /* a run is full */
    QS_CHECK_OK(qsi_queue_reserve_message(&queue.container, chunk, false));
    qsi_queue_push_message(&queue.container, chunk, put_record(chunk, 1, 0), 10, false, false);
    QS_CHECK(queue.run_count == 3); /* what is journalled does not share with what is not */
    push_batch(&queue, 2, 1, 0, false);
    QS_CHECK_OK(qsi_queue_reserve_message(&queue.container, chunk, false));
    qsi_queue_push_message(&queue.container, chunk, put_record(chunk, 1, 0), 10, false, false);
    QS_CHECK(queue.run_count == 5);
    QS_CHECK_OK(qsi_queue_skip_to(&queue.container,
                                  queue.container.next_seq + 5)); /* a gap, as recovery finds it */
    QS_CHECK_OK(qsi_queue_reserve_message(&queue.container, chunk, false));
    qsi_queue_push_message(&queue.container, chunk, put_record(chunk, 1, 0), 10, false, false);
    QS_CHECK(queue.run_count == 6);
    QS_CHECK(queue.container.ram_bytes == 4102 * 10);
    end(&queue);
    qsi_chunk_unref(chunk);
}

QUEUE_TEST(test_a_message_that_joins_a_run_whose_others_are_out_is_found)
{
    struct qsi_stretch stretch;

    for (uint64_t seq = 0; seq < 200; seq++) {
        push_single(queue, true, false);
        QS_CHECK(take(queue, 10, &stretch) && seq_of(&stretch) == seq && stretch.count == 1);
        QS_CHECK(!take(queue, 10, &stretch));
    }
    QS_CHECK(queue->out_count == 200);
}

QUEUE_TEST(test_requeued_messages_come_first_in_their_order)
{
    struct qsi_stretch stretches[5], stretch;

    push_batch(queue, 10, 1, 0, true);
    push_batch(queue, 10, 1, 0, true);
    for (int i = 0; i < 5; i++) {
        QS_CHECK(take(queue, 3, &stretches[i]));
    }
    QS_CHECK(seq_of(&stretches[4]) == 10);
    requeue_all(queue, &stretches[4]);
    requeue_all(queue, &stretches[2]);
    requeue_all(queue, &stretches[1]);
    QS_CHECK(take(queue, 2, &stretch) && seq_of(&stretch) == 3);
    QS_CHECK(was_seen(&stretch) && deliveries(&stretch) == 1);
    QS_CHECK(take(queue, 100, &stretch) && seq_of(&stretch) == 5 && stretch.count == 4);
    QS_CHECK(take(queue, 100, &stretch) && seq_of(&stretch) == 10 && stretch.count == 10);
    QS_CHECK(!take(queue, 100, &stretch));
    QS_CHECK(queue->out_count == 20 && queue->container.taken_count == 13 + 16);
}

QUEUE_TEST(test_untaken_messages_were_never_out)
{
    struct qsi_stretch stretch;

    push_batch(queue, 64, 1, 0, true);
    for (uint32_t keep = 0; keep < 10; keep++) { /* 45 messages in all */
        QS_CHECK(take_unseen(queue, 64, &stretch) && stretch.slot == keep * (keep - 1) / 2);
        qsi_queue_untake(&queue->container, &stretch, keep);
        QS_CHECK(stretch.count == keep && queue->out_count == keep);
        if (keep > 0) {
            settle_all(queue, &stretch);
        }
        QS_CHECK(queue->container.taken_count == keep * (keep + 1) / 2);
    }
    QS_CHECK(take_unseen(queue, 64, &stretch) && stretch.count == 64 - 45);
    QS_CHECK(!was_seen(&stretch));
    settle_all(queue, &stretch);
    check_empty(queue);
}

QUEUE_TEST(test_delivery_counts_saturate)
{
    struct qsi_stretch stretch;

    push_single(queue, true, false);
    for (uint32_t i = 0; i < 300; i++) {
        QS_CHECK(take_unseen(queue, 1, &stretch));
        QS_CHECK(deliveries(&stretch) == (i < 255 ? i : 255));
        QS_CHECK(was_seen(&stretch) == (i > 0));
        qsi_stretch_mark_seen(&stretch);
        requeue_all(queue, &stretch);
    }
}

/* What comes and goes one by one allocates nothing. */
QS_TEST(test_a_spare_run_serves_again)
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
        QS_CHECK_OK(qsi_queue_reserve_message(&queue.container, chunk, i % 3 == 0));
        qsi_queue_push_message(&queue.container, chunk, put_record(chunk, 1, 0), 10, i % 3 == 0,
                               false);
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

QUEUE_TEST(test_stored_bodies_are_counted)
{
    struct qsi_stretch stretch;

    push_batch(queue, 100, 2, 4, true); /* every second row: 50 stored */
    push_batch(queue, 10, 1, 3, true);  /* 0, 3, 6, 9 */
    push_single(queue, true, true);
    push_single(queue, true, false);
    QS_CHECK(stored_count(queue) == 50 + 4 + 1);
    QS_CHECK(take(queue, 10, &stretch));
    QS_CHECK(stored_count(queue) == 55);
    settle_all(queue, &stretch);
    QS_CHECK(stored_count(queue) == 50);
    QS_CHECK(take(queue, 10, &stretch));
    requeue_all(queue, &stretch);
    QS_CHECK(stored_count(queue) == 50);
    while (take(queue, 100, &stretch)) {
        settle_all(queue, &stretch);
    }
    QS_CHECK(stored_count(queue) == 0);
    check_empty(queue);
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

QS_TEST(test_purge_visits_what_lies_between_messages_that_are_out)
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
    QS_CHECK(qsi_queue_purge(&queue.container, note_range, &ranges) == 66);
    QS_CHECK(ranges.calls == most && most == 2 && ranges.messages == 45 + 66);
    QS_CHECK(ranges.last_seq == 139);
    QS_CHECK(queue.ready_count == 0 && queue.out_count == 5 + 24);
    QS_CHECK(queue.run_count == 1 && queue.segment_count == 3); /* the last one may be filled */
    QS_CHECK(qsi_queue_purge_ranges(&queue) == 0);
    QS_CHECK(qsi_queue_purge(&queue.container, note_range, &ranges) == 0 && ranges.calls == 2);
    push_single(&queue, true, false);
    QS_CHECK(take(&queue, 1, &stretch) && seq_of(&stretch) == 140);
    end(&queue);
    drop_arena();
}
