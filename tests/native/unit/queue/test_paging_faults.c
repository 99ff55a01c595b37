/* Paging while memory or a disk fails, and when the power is cut: nothing that was named is
 * lost. */
#include "paging_fixture.h"
#include "qs_test_faults.h"
#include "queue_publish.h"
#include "queue_replay.h"
#include "queue_settle.h"
#include "record_build.h"

/* All that a queue may live through, with allocation n failing: every step fails whole, and
 * works the next time. */
QS_TEST(test_every_allocation_may_fail)
{
    for (struct qs_test_sweep sweep = {.memory = &memory, .fewest = 51};
         qs_test_sweep_on(&sweep);) {
        struct fixture fixture;
        struct qsi_flush flush;
        struct qsi_page_in page;
        struct qsi_state_write write;
        struct qsi_carried carried = {0};
        struct qsi_stretch stretch;
        qs_status status;

        start(&fixture, 64, true);
        publish(&fixture, 0, 100, 3, true);
        publish(&fixture, 100, 20, 0, false);
        publish(&fixture, 120, 200, 0, true);
        QS_CHECK(take_some(&fixture, 3, &stretch));
        requeue_all(&fixture, &stretch);
        qs_test_sweep_allocations(&sweep);
        for (uint32_t guard = 0; guard < 100; guard++) {
            status =
                qsi_flush_begin(&flush, &fixture.queue, fixture.queue.container.flushed_seq, 2000);
            if (status == QS_OK) {
                status = qsi_flush_encode(&flush, &carried);
                QS_CHECK(status == QS_OK || status == QS_ENOMEM);
                qsi_buf_fini(&carried.records);
                qsi_record_build_destroy(carried.build);
                carried.build = NULL;
                status = qsi_flush_run(&flush, fixture.index, fixture.transient_index, QS_ERROR);
                qsi_flush_end(&flush, status == QS_OK);
            }
            if (status == QS_EEMPTY) {
                break;
            }
            QS_CHECK(status == QS_OK || status == QS_ENOMEM);
        }
        QS_CHECK(fixture.queue.container.flushed_seq == 320);
        qsi_queue_drop_content(&fixture.queue.container, 0, UINT64_MAX);
        for (struct qsi_segment *segment;
             (segment = qsi_queue_dirty_state(&fixture.queue)) != NULL;) {
            status = qsi_state_write_begin(&write, &fixture.queue, segment);
            if (status == QS_OK) {
                status =
                    qsi_state_write_run(&write, fixture.index, fixture.transient_index, QS_ERROR);
                qsi_state_write_end(&write, status == QS_OK);
            }
            QS_CHECK(status == QS_OK || status == QS_ENOMEM);
        }
        qsi_queue_drop_states(&fixture.queue.container);
        for (;;) {
            enum qsi_page_in_begun begun = qsi_page_in_begin(&page, &fixture.queue, 1000);
            if (begun == QSI_PAGE_IN_NOTHING) {
                break;
            }
            QS_CHECK(begun != QSI_PAGE_IN_UNDER_WAY);
            status = QS_ENOMEM;
            if (begun == QSI_PAGE_IN_BEGUN) {
                status = qsi_page_in_run(&page, fixture.index, fixture.transient_index, QS_ERROR);
                if (status == QS_OK) {
                    status = qsi_page_in_end(&page, true);
                } else {
                    QS_CHECK_OK(qsi_page_in_end(&page, false));
                }
            }
            QS_CHECK(status == QS_OK || status == QS_ENOMEM);
        }
        qs_test_sweep_rest(&sweep);
        QS_CHECK(drain(&fixture) == 320);
        finish(&fixture);
    }
}

/* What settling notes of messages on the disk has its memory before they are there only. */
QS_BOOL_TEST(test_settling_messages_on_the_disk_needs_no_memory, loaded)
{
    struct fixture fixture;
    struct qsi_stretch stretch;
    bool missing;

    start(&fixture, 64, true);
    publish(&fixture, 0, 64, 1, true);
    flush_all(&fixture);
    qs_test_alloc_arm(&memory, 1, true);
    QS_CHECK(qsi_queue_drop_content(&fixture.queue.container, 0, UINT64_MAX) == 0);
    QS_CHECK(qsi_queue_ready_in_memory(&fixture.queue, 64, &missing) == 64 && !missing);
    qs_test_alloc_arm(&memory, 0, false);
    if (loaded) { /* taken, and then on the disk only */
        QS_CHECK(take_some(&fixture, 10, &stretch));
    }
    QS_CHECK(qsi_queue_drop_content(&fixture.queue.container, 0, UINT64_MAX) > 0);
    QS_CHECK(referenced_bytes(&fixture) > 0);
    qs_test_alloc_arm(&memory, 1, true);
    if (loaded) {
        settle_all(&fixture, &stretch);
    }
    QS_CHECK(qsi_queue_purge(&fixture.queue.container, NULL, NULL) == (loaded ? 54 : 64));
    qs_test_alloc_arm(&memory, 0, false);
    release_all(&fixture, false);
    QS_CHECK(referenced_bytes(&fixture) == 0);
    stop(&fixture);
}

/* ---- a disk that fails ---- */

/* Call n of the disk fails, once: the job fails whole, and works the next time. */
QS_TEST(test_every_call_of_a_disk_may_fail)
{
    for (struct qs_test_sweep sweep = {.how = QSI_FAULT_EIO}; qs_test_sweep_on(&sweep);) {
        struct fixture fixture;
        struct qsi_flush flush;
        struct qsi_page_in page;
        enum qsi_page_in_begun begun;
        qs_env *env = qs_test_sweep_env(&sweep);
        qs_status status;

        sweep.how = sweep.n % 2 == 0 ? QSI_FAULT_EIO : QSI_FAULT_ENOSPC;
        start_in(&fixture, env, 64, true);
        publish(&fixture, 0, 100, 3, true);
        publish(&fixture, 100, 20, 0, false);
        publish(&fixture, 120, 100, 0, true);
        qs_test_sweep_calls(&sweep, env);
        while ((status = qsi_flush_begin(&flush, &fixture.queue,
                                         fixture.queue.container.flushed_seq, UINT64_MAX)) ==
               QS_OK) {
            status = qsi_flush_run(&flush, fixture.index, fixture.transient_index, QS_ERROR);
            QS_CHECK(status == QS_OK || qsi_env_fault_fired(env));
            qsi_flush_end(&flush, status == QS_OK);
        }
        QS_CHECK(status == QS_EEMPTY && fixture.queue.container.flushed_seq == 220);
        qsi_queue_drop_content(&fixture.queue.container, 0, UINT64_MAX);
        while ((begun = qsi_page_in_begin(&page, &fixture.queue, 1000)) == QSI_PAGE_IN_BEGUN) {
            status = qsi_page_in_run(&page, fixture.index, fixture.transient_index, QS_ERROR);
            QS_CHECK(status == QS_OK || qsi_env_fault_fired(env));
            QS_CHECK_OK(qsi_page_in_end(&page, status == QS_OK));
        }
        QS_CHECK(begun == QSI_PAGE_IN_NOTHING);
        qs_test_sweep_rest(&sweep);
        QS_CHECK(drain(&fixture) == 220);
        release_all(&fixture, false);
        QS_CHECK(referenced_bytes(&fixture) == 0);
        stop_files(&fixture);
    }
}

/* ---- a power cut ---- */

/* What a checkpoint named, as it named it, is there after a cut, whatever was written to the
 * same files later and not synced. */
QS_TEST(test_a_cut_takes_nothing_that_was_named)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct fixture fixture, after;
        struct qsi_stretch stretch;
        struct qsi_segment *segment;
        struct qsi_segment_file named;
        struct qsi_state_write write;
        qs_env *cut;

        start_in(&fixture, qsi_env_sim_create(seed), 256, true);
        publish(&fixture, 0, 100, 3, true);
        flush_all(&fixture);
        QS_CHECK(take_some(&fixture, 20, &stretch));
        settle_all(&fixture, &stretch); /* 0 to 19 */
        segment = qsi_queue_segment_at(&fixture.queue, 0);
        QS_CHECK(segment->file_dirty);
        QS_CHECK_OK(qsi_state_write_begin(&write, &fixture.queue, segment));
        QS_CHECK_OK(qsi_state_write_run(&write, fixture.index, fixture.transient_index, QS_ERROR));
        qsi_state_write_end(&write, true);
        named = segment->file;
        QS_CHECK_OK(qsi_segment_sync(fixture.index, &named, QS_ERROR));
        QS_CHECK_OK(qsi_index_sync(fixture.index, QS_ERROR));
        segment->file_dirty = false;
        segment->page_aligned = segment->named = true;
        segment->durable_area = named.state_area;

        QS_CHECK_OK(qsi_queue_skip_to(&fixture.queue.container,
                                      128)); /* later ones: on a page of their own */
        for (uint32_t i = 128; i < 200; i++) {
            sent[i] = make_message(&fixture, i % 50, 2, i % 2 == 0);
        }
        QS_CHECK(push_batch(&fixture, sent + 128, 72, 1, true, true) == 128);
        flush_all(&fixture);
        for (int i = 0; i < 2; i++) { /* never to the area that is named */
            QS_CHECK(take_some(&fixture, 10, &stretch));
            settle_all(&fixture, &stretch);
            QS_CHECK_OK(qsi_state_write_begin(&write, &fixture.queue, segment));
            QS_CHECK_OK(
                qsi_state_write_run(&write, fixture.index, fixture.transient_index, QS_ERROR));
            qsi_state_write_end(&write, true);
        }
        cut = qsi_env_sim_cut(fixture.env, seed < 3 ? QSI_CUT_DROP_ALL : QSI_CUT_RANDOM, seed);
        qsi_queue_purge(&fixture.queue.container, NULL, NULL);
        release_all(&fixture, false);
        stop_files(&fixture);
        qsi_env_sim_destroy(fixture.env);

        start_in(&after, cut, 256, true);
        after.shared.messages = NULL; /* its counts are not what this is about */
        QS_CHECK_OK(qsi_queue_restore(
            &after.queue,
            &(struct qsi_restored_segment){.file = &named, .ready_count = 80, .has_stored = true}));
        after.queue.container.next_seq = after.queue.container.flushed_seq = 100;
        load_state(&after, qsi_queue_segment_at(&after.queue, 0));
        QS_CHECK(take_some(&after, 1, &stretch) && stretch.slot == 20);
        settle_all(&after, &stretch);
        QS_CHECK(drain(&after) == 79);
        stop(&after);
    }
}
