/* Paging, one thing at a time: what comes back, what a job makes of what happened meanwhile, and
 * what is left when memory or a disk fails.  The random part is test_paging_random.c. */
#include "paging_fixture.h"
#include "queue_replay.h"
#include "queue_settle.h"

/* Everything that is flushed leaves memory, states included. */
static void drop_all(struct fixture *fixture)
{
    qsi_queue_drop_content(&fixture->queue.container, 0, UINT64_MAX);
    drop_states(fixture);
}

QS_BOOL_TEST(test_what_was_dropped_comes_back, durable)
{
    struct fixture fixture;
    struct qsi_queue_measure measure;

    start(&fixture, 64, durable);
    publish(&fixture, 0, 100, 3, durable);
    publish(&fixture, 100, 30, 0, false); /* of a durable queue: in the other file */
    publish(&fixture, 130, 200, 5, durable);
    flush_all(&fixture);
    QS_CHECK(fixture.shared.flushed_bytes <= 200 * 100);
    drop_all(&fixture);
    QS_CHECK(fixture.queue.run_count == 0 && fixture.queue.ready_count == 330);
    qsi_queue_measure(&fixture.queue, own_index(&fixture), &measure);
    QS_CHECK(measure.alpha == 0 && measure.beta == 0 && measure.gamma + measure.delta == 330);
    QS_CHECK(measure.delta > 0 && measure.disk_bytes > 0);
    QS_CHECK(drain(&fixture) == 330);
    finish(&fixture);
}

QS_TEST(test_settled_messages_are_not_written)
{
    struct fixture fixture;
    struct qsi_stretch stretch;
    struct qsi_flush flush;

    start(&fixture, 64, true);
    publish(&fixture, 0, 60, 4, true);
    for (int i = 0; i < 3; i++) {
        QS_CHECK(take_some(&fixture, 20, &stretch));
        settle_all(&fixture, &stretch);
    }
    QS_CHECK(qsi_flush_begin(&flush, &fixture.queue, 0, UINT64_MAX) == QS_EEMPTY);
    QS_CHECK(fixture.queue.container.flushed_seq == 60);
    publish(&fixture, 60, 10, 0, true);
    flush_all(&fixture);
    drop_all(&fixture);
    QS_CHECK(drain(&fixture) == 10);
    finish(&fixture);
}

/* ---- settled in between: before the job is run, or after ---- */

enum job { FLUSH, STATE, CONTENT, WRITE, JOB_COUNT };

static void purge_while_under_way(enum job job, bool before)
{
    struct fixture fixture;
    struct qsi_flush flush;
    struct qsi_page_in page;
    struct qsi_state_write write;
    struct qsi_segment *segment;

    start(&fixture, 64, true);
    publish(&fixture, 0, 256, 3, true);
    if (job == FLUSH) {
        QS_CHECK_OK(qsi_flush_begin(&flush, &fixture.queue, 0, UINT64_MAX));
        segment = flush.segment;
    } else {
        flush_all(&fixture);
        if (job == WRITE) {
            struct qsi_stretch stretch;
            QS_CHECK(take_some(&fixture, 2, &stretch));
            requeue_all(&fixture, &stretch);
            segment = stretch.segment;
            QS_CHECK_OK(qsi_state_write_begin(&write, &fixture.queue, segment));
        } else {
            drop_all(&fixture);
            while (job == CONTENT && qsi_queue_segment_at(&fixture.queue, 2)->settled == NULL) {
                load_state(&fixture, qsi_queue_segment_at(&fixture.queue, 2));
            }
            if (job == STATE) {
                segment = qsi_queue_segment_at(&fixture.queue, 3);
                QS_CHECK_OK(qsi_page_in_state(&page, segment));
            } else {
                QS_CHECK(qsi_page_in_begin(&page, &fixture.queue, 1000) == QSI_PAGE_IN_BEGUN);
            }
            segment = page.segment;
            QS_CHECK(page.of_state == (job == STATE));
        }
    }
    QS_CHECK(segment->busy == 1);
    for (int phase = 0; phase < 2; phase++) {
        if (before == (phase == 0)) {
            QS_CHECK(qsi_queue_purge(&fixture.queue.container, NULL, NULL) == 256);
            QS_CHECK(segment->queue == &fixture.queue); /* it stays until the job ends */
        } else if (job == FLUSH) {
            QS_CHECK_OK(qsi_flush_run(&flush, fixture.index, fixture.transient_index, QS_ERROR));
        } else if (job == WRITE) {
            QS_CHECK_OK(
                qsi_state_write_run(&write, fixture.index, fixture.transient_index, QS_ERROR));
        } else {
            QS_CHECK_OK(qsi_page_in_run(&page, fixture.index, fixture.transient_index, QS_ERROR));
        }
    }
    if (job == FLUSH) {
        qsi_flush_end(&flush, true);
    } else if (job == WRITE) {
        qsi_state_write_end(&write, true);
    } else {
        QS_CHECK_OK(qsi_page_in_end(&page, true));
    }
    QS_CHECK(fixture.queue.run_count == 0 && fixture.queue.ready_count == 0);
    release_all(&fixture, false);
    QS_CHECK(referenced_bytes(&fixture) == 0);
    publish(&fixture, 256, 10, 0, true);
    QS_CHECK(drain(&fixture) == 10);
    finish(&fixture);
}

QS_BOOL_TEST(test_a_purge_while_a_job_is_under_way, before)
{
    for (enum job job = FLUSH; job < JOB_COUNT; job++) {
        purge_while_under_way(job, before);
    }
}

PAGING_TEST(test_acks_between_run_and_end_of_a_load)
{
    struct qsi_stretch out;
    struct qsi_page_in page;

    publish(fixture, 0, 64, 2, true);
    publish(fixture, 64, 64, 0, true);
    flush_all(fixture);
    QS_CHECK(take_some(fixture, 10, &out)); /* 0 to 9 are out, and not in memory any more */
    qsi_queue_drop_content(&fixture->queue.container, 0, UINT64_MAX);
    QS_CHECK(qsi_page_in_begin(&page, &fixture->queue, UINT64_MAX) == QSI_PAGE_IN_BEGUN);
    QS_CHECK(!page.of_state);
    settle_all(fixture, &out);
    QS_CHECK(!qsi_list_is_empty(&fixture->shared.releasing));
    QS_CHECK_OK(qsi_page_in_run(&page, fixture->index, fixture->transient_index, QS_ERROR));
    QS_CHECK_OK(qsi_page_in_end(&page, true));
    QS_CHECK(drain(fixture) == 118);
}

/* ---- requeues and delivery counts ---- */

PAGING_TEST(test_delivery_counts_survive_on_the_disk)
{
    struct qsi_stretch stretch;

    publish(fixture, 0, 64, 0, true);
    publish(fixture, 64, 192, 0, true);
    flush_all(fixture);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint64_t left = 256; left > 0; left -= stretch.count) { /* all of them out */
            QS_CHECK(take_some(fixture, 64, &stretch));
        }
        drop_all(fixture); /* content only: states with messages that are out stay */
        for (uint32_t i = 0; i < 4; i++) {
            qsi_queue_requeue(&fixture->queue.container, qsi_queue_segment_at(&fixture->queue, i),
                              0, UINT64_MAX);
        }
        drop_all(fixture);
        QS_CHECK(qsi_queue_segment_at(&fixture->queue, 2)->settled == NULL);
        load_state(fixture, qsi_queue_segment_at(&fixture->queue, 2));
        QS_CHECK(qsi_segment_deliveries(qsi_queue_segment_at(&fixture->queue, 2), 5) == round + 1);
        QS_CHECK(qsi_segment_was_seen(qsi_queue_segment_at(&fixture->queue, 2), 5));
        drop_all(fixture);
    }
    QS_CHECK(drain(fixture) == 256);
}

QS_TEST(test_a_loaded_state_begins_where_messages_are_live)
{
    struct fixture fixture;
    struct qsi_stretch stretch;
    struct qsi_segment *segment;

    start(&fixture, 128, true);
    publish(&fixture, 0, 512, 0, true);
    flush_all(&fixture);
    for (uint32_t left = 512; left > 0; left -= stretch.count) {
        QS_CHECK(take_some(&fixture, 64, &stretch));
        if (stretch.segment->number == 2 && stretch.slot < 64) {
            settle_all(&fixture, &stretch);
        }
    }
    segment = qsi_queue_segment_at(&fixture.queue, 2);
    qsi_queue_requeue(&fixture.queue.container, segment, 1, UINT64_MAX);
    qsi_queue_requeue(&fixture.queue.container, qsi_queue_segment_at(&fixture.queue, 0), 0,
                      UINT64_MAX);
    qsi_queue_requeue(&fixture.queue.container, qsi_queue_segment_at(&fixture.queue, 1), 0,
                      UINT64_MAX);
    drop_all(&fixture);
    QS_CHECK(segment->settled == NULL);
    load_state(&fixture, segment);
    QS_CHECK(segment->word_base == 1 && segment->word_count == 1 && segment->ready_count == 64);
    QS_CHECK(qsi_segment_deliveries(segment, 64) == 1 && qsi_segment_was_seen(segment, 127));
    for (uint32_t number = 0; number < 2; number++) {
        qsi_queue_requeue(&fixture.queue.container, qsi_queue_segment_at(&fixture.queue, number), 1,
                          UINT64_MAX);
    }
    qsi_queue_requeue(&fixture.queue.container, qsi_queue_segment_at(&fixture.queue, 3), 0,
                      UINT64_MAX);
    qsi_queue_requeue(&fixture.queue.container, qsi_queue_segment_at(&fixture.queue, 3), 1,
                      UINT64_MAX);
    QS_CHECK(drain(&fixture) == 512 - 64);
    finish(&fixture);
}

/* Room for columns is made when the file turns out to have them. */
QS_TEST(test_a_load_makes_only_the_columns_that_are_there)
{
    for (int expires = 0; expires < 2; expires++) {
        struct fixture fixture;
        struct qsi_page_in job;
        struct qsi_segment *segment;
        start(&fixture, 64, true);
        for (uint32_t i = 0; i < 4 * 64; i++) {
            struct message message = make_message(&fixture, 10, 2, false);
            message.life_ms = expires != 0 ? 1000 : 0;
            message.time_us = 1000;
            push_single(&fixture, &message, true);
        }
        flush_all(&fixture);
        while (fixture.queue.run_count > 0) {
            qsi_queue_drop_run(&fixture.queue, 0);
        }
        drop_states(&fixture);
        segment = qsi_queue_segment_at(&fixture.queue, 3);
        QS_CHECK(segment->settled == NULL);
        QS_CHECK_OK(qsi_page_in_state(&job, segment));
        QS_CHECK(job.state.deliveries == NULL && job.state.expiries == NULL &&
                 job.state.sizes == NULL);
        QS_CHECK_OK(qsi_page_in_run(&job, own_index(&fixture), fixture.transient_index, QS_ERROR));
        QS_CHECK((job.state.expiries != NULL) == (expires != 0) && job.state.sizes == NULL);
        QS_CHECK_OK(qsi_page_in_end(&job, true));
        QS_CHECK((segment->expiries != NULL) == (expires != 0));
        QS_CHECK(segment->earliest == (expires != 0 ? 1001000 : QSI_NEVER));
        stop(&fixture);
    }
}

PAGING_TEST(test_mark_all_seen_reaches_what_is_on_the_disk)
{
    struct qsi_segment *segment;

    publish(fixture, 0, 200, 0, true);
    flush_all(fixture);
    drop_all(fixture);
    segment = qsi_queue_segment_at(&fixture->queue, 2);
    QS_CHECK(segment->settled == NULL);
    QS_CHECK_OK(qsi_queue_mark_all_seen(&fixture->queue.container));
    load_state(fixture, segment);
    for (uint32_t i = 0; i < 4; i++) {
        segment = qsi_queue_segment_at(&fixture->queue, i);
        QS_CHECK(segment->settled == NULL || qsi_segment_deliveries(segment, 7) == 1);
        QS_CHECK(segment->settled == NULL || qsi_segment_was_seen(segment, 0));
    }
    publish(fixture, 200, 1, 0, true);
    segment = qsi_queue_segment_at(&fixture->queue, 3);
    QS_CHECK(!qsi_segment_was_seen(segment, 8) && qsi_segment_was_seen(segment, 7));
    QS_CHECK(drain(fixture) == 201);
}

/* Of a segment that is not loaded and requeued as a whole it is known that it was delivered. */
PAGING_TEST(test_a_replayed_requeue_of_a_whole_segment_is_seen)
{
    struct qsi_segment *segment;
    struct qsi_settle settle = {QUEUE_ID, 64, 128, QSI_SETTLE_REQUEUE, 0};

    publish(fixture, 0, 256, 0, true);
    flush_all(fixture);
    drop_all(fixture);
    while ((segment = qsi_queue_needs_state(&fixture->queue, &settle)) != NULL) {
        load_state(fixture, segment);
    }
    segment = qsi_queue_segment_at(&fixture->queue, 2);
    QS_CHECK(segment->settled != NULL); /* how often it was delivered stands there */
    QS_CHECK_OK(qsi_queue_replay_settle(&fixture->queue.container, &settle));
    QS_CHECK(qsi_segment_was_seen(segment, 0) && qsi_segment_was_seen(segment, 63));
    QS_CHECK(drain(fixture) == 256);
}

PAGING_TEST(test_replay_settles_whole_segments_that_are_not_loaded)
{
    struct qsi_segment *segment;
    struct qsi_settle settle = {QUEUE_ID, 60, 70, QSI_SETTLE_ACK, 0};

    publish(fixture, 0, 256, 3, true);
    flush_all(fixture);
    drop_all(fixture);
    segment = qsi_queue_needs_state(&fixture->queue, &settle);
    QS_CHECK(segment == NULL || segment->number == 2); /* the head has its state */
    while ((segment = qsi_queue_needs_state(&fixture->queue, &settle)) != NULL) {
        load_state(fixture, segment);
    }
    QS_CHECK_OK(qsi_queue_replay_settle(&fixture->queue.container, &settle));
    QS_CHECK(fixture->queue.ready_count == 186);
    QS_CHECK(qsi_queue_find_segment(&fixture->queue, 1) == NULL);
    QS_CHECK(drain(fixture) == 186);
}

/* ---- names of files ---- */

PAGING_TEST(test_the_next_file_of_a_number_has_another_name)
{
    struct qsi_stretch old;

    publish(fixture, 0, 64, 0, true);
    publish(fixture, 64, 10, 0, true);
    flush_all(fixture);
    QS_CHECK(take_some(fixture, 64, &old));
    QS_CHECK(drain(fixture) == 10); /* the segment that is being filled ends; its file is to go */
    settle_all(fixture, &old);      /* and an older one after it */
    QS_CHECK(fixture->queue.segment_count == 0);
    publish(fixture, 74, 10, 0, true);
    QS_CHECK(qsi_queue_segment_at(&fixture->queue, 0)->file.generation == 1);
    flush_all(fixture);
    release_all(fixture, false); /* removes the files of those that ended, and no other */
    drop_all(fixture);
    QS_CHECK(drain(fixture) == 10);
    publish(fixture, 84, 1, 0, true);
    QS_CHECK(qsi_queue_segment_at(&fixture->queue, 0)->file.generation == 2);
    QS_CHECK(drain(fixture) == 1);
}

/* Slots were written although no body was: the next checkpoint has to sync the file. */
PAGING_TEST(test_references_alone_make_a_file_dirty)
{
    struct qsi_segment *segment;

    for (uint32_t from = 0; from < 30; from += 10) {
        publish(fixture, from, 10, 1, true);
        flush_all(fixture);
        segment = qsi_queue_segment_at(&fixture->queue, 0);
        QS_CHECK(segment->file_dirty);
        QS_CHECK(from == 0 || segment->page_aligned); /* no body has taken that page yet */
        segment->file_dirty = false;                  /* as a checkpoint leaves it */
        segment->page_aligned = true;
    }
    publish(fixture, 30, 1, 0, true);
    sent[30].body_bytes = 30;
    flush_all(fixture);
    QS_CHECK(segment->file_dirty && !segment->page_aligned);
    qsi_queue_purge(&fixture->queue.container, NULL, NULL);
}

/* ---- deleting a queue ---- */

PAGING_TEST(test_a_deleted_queue_refers_to_nothing)
{
    struct qsi_stretch on_disk, in_memory;

    publish(fixture, 0, 256, 2, true);
    flush_all(fixture);
    QS_CHECK(take_some(fixture, 10, &on_disk));
    drop_all(fixture);
    publish(fixture, 256, 64, 2, true);
    QS_CHECK(take_some(fixture, 10, &in_memory));
    qsi_queue_abandon(&fixture->queue.container);
    release_all(fixture, false);
    QS_CHECK(referenced_bytes(fixture) == 0);
    settle_all(fixture, &on_disk);
    settle_all(fixture, &in_memory);
}

PAGING_TEST(test_transients_of_a_batch_refer_until_they_are_settled)
{
    struct qsi_stretch stretch;

    for (uint32_t i = 0; i < 40; i++) {
        sent[i] = make_message(fixture, 100, i % 2 == 0 ? 2 : 1, true);
    }
    QS_CHECK(push_batch(fixture, sent, 40, 1, true, true) == 0);
    flush_all(fixture);
    QS_CHECK(take_some(fixture, 5, &stretch));
    QS_CHECK(qsi_segment_journalled(stretch.segment, 0, 0x1f) == 0x15);
    qsi_queue_drop_content(&fixture->queue.container, 0, UINT64_MAX);
    settle_all(fixture, &stretch); /* from both files */
    QS_CHECK(drain(fixture) == 35);
}
