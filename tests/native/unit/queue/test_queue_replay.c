/* A queue that is replayed from the journal: settles over gaps, and what a crash left. */
#include "plain_queue_fixture.h"
#include "queue_publish.h"
#include "queue_replay.h"
#include "queue_take.h"

static void replay(struct qsi_queue *queue, uint64_t first, uint32_t count, uint8_t kind)
{
    struct qsi_settle settle = {queue->container.id, first, count, kind, 0};

    QS_CHECK_OK(qsi_queue_replay_settle(&queue->container, &settle));
}

static void push_batch_at(struct qsi_queue *queue, uint32_t count, uint64_t seq)
{
    QS_CHECK_OK(qsi_queue_skip_to(&queue->container, seq));
    QS_CHECK(push_batch(queue, count, 1, 0, true) == seq);
}

QUEUE_TEST(test_replayed_settles_pass_over_gaps)
{
    struct qsi_stretch stretch;

    push_batch_at(queue, 100, 10);
    push_batch_at(queue, 100, 200);
    push_batch_at(queue, 5, 1000);
    replay(queue, 0, 15, QSI_SETTLE_ACK); /* begins before all of them */
    QS_CHECK(queue->ready_count == 200);
    replay(queue, 105, 100, QSI_SETTLE_ACK); /* the end of one, a gap, the beginning of another */
    QS_CHECK(queue->ready_count == 190);
    replay(queue, 120, 70, QSI_SETTLE_ACK); /* nothing there */
    replay(queue, 2000, 70, QSI_SETTLE_ACK);
    replay(queue, 106, 3, QSI_SETTLE_ACK); /* again */
    QS_CHECK(queue->ready_count == 190);
    replay(queue, 20, 5, QSI_SETTLE_REQUEUE);
    replay(queue, 200, 10, QSI_SETTLE_REQUEUE); /* half of them are settled */
    QS_CHECK(queue->ready_count == 190);
    QS_CHECK(take(queue, 1, &stretch) && seq_of(&stretch) == 15);
    QS_CHECK(qsi_segment_deliveries(stretch.segment, 20) == 1 &&
             qsi_segment_was_seen(stretch.segment, 20));
    QS_CHECK(qsi_segment_deliveries(stretch.segment, 19) == 0 &&
             !qsi_segment_was_seen(stretch.segment, 19));
    requeue_all(queue, &stretch);
    replay(queue, 0, 1005, QSI_SETTLE_ACK);
    check_empty(queue);
    QS_CHECK(queue->container.next_seq == 1005);
}

QUEUE_TEST(test_a_replayed_settle_removes_runs_between_others)
{
    struct qsi_stretch stretch;

    for (uint64_t i = 0; i < 10; i++) {
        push_batch_at(queue, 10, 128 * i);
    }
    replay(queue, 256, 512, QSI_SETTLE_ACK);
    QS_CHECK(queue->run_count == 6 && queue->ready_count == 60);
    replay(queue, 0, 10, QSI_SETTLE_ACK);
    for (uint64_t seq = 128; take(queue, 100, &stretch); seq += seq == 128 ? 640 : 128) {
        QS_CHECK(seq_of(&stretch) == seq);
        settle_all(queue, &stretch);
    }
    check_empty(queue);
}

QUEUE_TEST(test_what_a_crash_left_counts_as_delivered_once)
{
    struct qsi_stretch stretch;

    for (int i = 0; i < 5; i++) {
        push_single(queue, true, false);
    }
    replay(queue, 3, 1, QSI_SETTLE_REQUEUE);
    replay(queue, 3, 1, QSI_SETTLE_REQUEUE);
    QS_CHECK_OK(qsi_queue_mark_all_seen(&queue->container));
    push_single(queue, true, false); /* of the next session, into the same chunk */
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t expected = i == 3 ? 2 : i == 5 ? 0 : 1;

        QS_CHECK(take_unseen(queue, 1, &stretch) && seq_of(&stretch) == i);
        QS_CHECK(was_seen(&stretch) == (expected > 0));
        QS_CHECK(deliveries(&stretch) == expected);
        qsi_stretch_mark_seen(&stretch);
        requeue_all(queue, &stretch);
        QS_CHECK(take_unseen(queue, 1, &stretch) && seq_of(&stretch) == i);
        QS_CHECK(deliveries(&stretch) == expected + 1);
    }
}
