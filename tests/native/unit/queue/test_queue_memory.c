/* A queue without memory: reserving may fail, and what comes behind cannot. */
#include "plain_queue_fixture.h"
#include "qs_test_sweep.h"
#include "queue_publish.h"

QS_TEST(test_reserving_may_fail_and_pushing_cannot)
{
    struct qsi_chunk *chunk = qsi_chunk_create(1u << 20);
    struct qsi_queue queue;
    struct qsi_run *run;

    QS_CHECK(chunk != NULL);
    for (struct qs_test_sweep sweep = {.memory = &memory}; qs_test_sweep_on(&sweep);) {
        uint64_t pushed = 0;
        bool failed = false;

        begin(&queue);
        chunk->used = 0;
        qs_test_sweep_allocations(&sweep);
        while (pushed < 200) {
            qs_status status = qsi_queue_reserve_message(&queue.container, chunk, pushed % 90 < 80);

            if (status != QS_OK) {
                QS_CHECK(status == QS_ENOMEM && memory.has_failed && !failed);
                failed = true;
                continue;
            }
            QS_CHECK(qsi_queue_push_message(&queue.container, chunk, put_record(chunk, 1, 0), 10,
                                            pushed % 90 < 80, false) == pushed);
            pushed += 1;
        }
        qs_test_sweep_rest(&sweep);
        QS_CHECK(queue.ready_count == 200 && failed == sweep.has_failed);
        end(&queue);
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
QS_TEST(test_room_that_was_made_in_part_harms_nobody)
{
    for (struct qs_test_sweep sweep = {.memory = &memory}; qs_test_sweep_on(&sweep);) {
        struct qsi_queue queue;
        struct qsi_stretch stretch;
        qs_status status;

        begin_with(&queue, 64);
        push_batch(&queue, 10, 1, 0, true);
        qs_test_sweep_allocations(&sweep);
        status = qsi_queue_reserve(&queue.container, 2, 300, true);
        qs_test_sweep_rest(&sweep);
        QS_CHECK(status == (sweep.has_failed ? QS_ENOMEM : QS_OK));
        if (sweep.n % 2 == 0) {
            QS_CHECK_OK(
                qsi_queue_skip_to(&queue.container, 100)); /* into a segment that was reserved */
        }
        push_batch(&queue, 100, 1, 0, sweep.n % 3 != 0);
        QS_CHECK(queue.ready_count == 110);
        for (uint64_t seq = 0; take(&queue, 64, &stretch); seq += stretch.count) {
            seq = sweep.n % 2 == 0 && seq == 10 ? 100 : seq;
            QS_CHECK(seq_of(&stretch) == seq);
            settle_all(&queue, &stretch);
        }
        check_empty(&queue);
        end(&queue);
        drop_arena();
    }
}

/* Without memory for counts a requeue still is one. */
QUEUE_TEST(test_requeueing_cannot_fail)
{
    struct qsi_stretch stretch;

    push_batch(queue, 10, 1, 0, true);
    QS_CHECK(take(queue, 10, &stretch));
    qs_test_alloc_arm(&memory, 1, true);
    requeue_all(queue, &stretch);
    qs_test_alloc_arm(&memory, 0, false);
    QS_CHECK(queue->ready_count == 10);
    QS_CHECK(take_unseen(queue, 10, &stretch) && was_seen(&stretch) && deliveries(&stretch) == 1);
}
