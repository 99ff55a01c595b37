/* Paging, one thing at a time: what comes back, what a job makes of what happened meanwhile, and
 * what is left when memory or a disk fails.  The random part is test_paging_random.c. */
#include "queue_fixture.h"

static struct qs_test_alloc memory;

#define MESSAGES_MAX 512
static struct message sent[MESSAGES_MAX];

static void publish(struct fixture *fixture, uint32_t from, uint32_t count, uint32_t stored_every,
                    bool journalled)
{
    for (uint32_t i = from; i < from + count; i++) {
        sent[i] = make_message(fixture, i % 50, journalled ? 2 : 1,
                               stored_every > 0 && i % stored_every == 0);
    }
    QS_CHECK(push_batch(fixture, sent + from, count, 1, true, journalled) == from);
}

/* Everything that is flushed leaves memory, states included. */
static void drop_all(struct fixture *fixture)
{
    qsi_queue_drop_content(&fixture->queue, 0, UINT64_MAX);
    drop_states(fixture);
}

static bool take_some(struct fixture *fixture, uint32_t max, struct qsi_stretch *stretch)
{
    enum qsi_take taken;

    while ((taken = qsi_queue_take(&fixture->queue, max, stretch)) == QSI_TAKE_PAGED) {
        QS_CHECK_OK(page_in(fixture, 300));
    }
    if (taken == QSI_TAKE_EMPTY) {
        return false;
    }
    for (uint32_t i = 0; i < stretch->count; i++) {
        uint64_t seq = qsi_segment_first_seq(&fixture->shared, stretch->segment) + stretch->slot;
        check_row(stretch->run, stretch->run_row + i, &sent[seq + i], true);
    }
    qsi_stretch_mark_seen(stretch);
    return true;
}

static void settle_all(struct fixture *fixture, const struct qsi_stretch *stretch)
{
    qsi_queue_settle(&fixture->queue, stretch->segment, stretch->slot / QSI_WORD_BITS,
                     qsi_stretch_mask(stretch));
}

static void requeue_all(struct fixture *fixture, const struct qsi_stretch *stretch)
{
    qsi_queue_requeue(&fixture->queue, stretch->segment, stretch->slot / QSI_WORD_BITS,
                      qsi_stretch_mask(stretch));
}

/* Takes and settles all; returns how many there were. */
static uint64_t drain(struct fixture *fixture)
{
    struct qsi_stretch stretch;
    uint64_t count = 0;

    while (take_some(fixture, 64, &stretch)) {
        count += stretch.count;
        settle_all(fixture, &stretch);
    }
    return count;
}

static void finish(struct fixture *fixture)
{
    release_all(fixture, false);
    QS_CHECK(referenced_bytes(fixture) == 0);
    stop(fixture);
}

static void test_what_was_dropped_comes_back(bool durable)
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

static void test_settled_messages_are_not_written(void)
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

static void test_a_purge_while_a_job_is_under_way(enum job job, bool before)
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
            QS_CHECK_OK(job == STATE
                            ? qsi_page_in_state(&page, qsi_queue_segment_at(&fixture.queue, 3))
                            : qsi_page_in_begin(&page, &fixture.queue, 1000));
            segment = page.segment;
            QS_CHECK(page.of_state == (job == STATE));
        }
    }
    QS_CHECK(segment->busy == 1);
    for (int phase = 0; phase < 2; phase++) {
        if (before == (phase == 0)) {
            QS_CHECK(qsi_queue_purge(&fixture.queue, NULL, NULL) == 256);
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

static void test_acks_between_run_and_end_of_a_load(void)
{
    struct fixture fixture;
    struct qsi_stretch out;
    struct qsi_page_in page;

    start(&fixture, 64, true);
    publish(&fixture, 0, 64, 2, true);
    publish(&fixture, 64, 64, 0, true);
    flush_all(&fixture);
    QS_CHECK(take_some(&fixture, 10, &out)); /* 0 to 9 are out, and not in memory any more */
    qsi_queue_drop_content(&fixture.queue, 0, UINT64_MAX);
    QS_CHECK_OK(qsi_page_in_begin(&page, &fixture.queue, UINT64_MAX));
    QS_CHECK(!page.of_state);
    settle_all(&fixture, &out);
    QS_CHECK(!qsi_list_is_empty(&fixture.shared.releasing));
    QS_CHECK_OK(qsi_page_in_run(&page, fixture.index, fixture.transient_index, QS_ERROR));
    QS_CHECK_OK(qsi_page_in_end(&page, true));
    QS_CHECK(drain(&fixture) == 118);
    finish(&fixture);
}

/* ---- requeues and delivery counts ---- */

static void test_delivery_counts_survive_on_the_disk(void)
{
    struct fixture fixture;
    struct qsi_stretch stretch;

    start(&fixture, 64, true);
    publish(&fixture, 0, 64, 0, true);
    publish(&fixture, 64, 192, 0, true);
    flush_all(&fixture);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint64_t left = 256; left > 0; left -= stretch.count) { /* all of them out */
            QS_CHECK(take_some(&fixture, 64, &stretch));
        }
        drop_all(&fixture); /* content only: states with messages that are out stay */
        for (uint32_t i = 0; i < 4; i++) {
            qsi_queue_requeue(&fixture.queue, qsi_queue_segment_at(&fixture.queue, i), 0,
                              UINT64_MAX);
        }
        drop_all(&fixture);
        QS_CHECK(qsi_queue_segment_at(&fixture.queue, 2)->settled == NULL);
        load_state(&fixture, qsi_queue_segment_at(&fixture.queue, 2));
        QS_CHECK(qsi_segment_deliveries(qsi_queue_segment_at(&fixture.queue, 2), 5) == round + 1);
        QS_CHECK(qsi_segment_was_seen(qsi_queue_segment_at(&fixture.queue, 2), 5));
        drop_all(&fixture);
    }
    QS_CHECK(drain(&fixture) == 256);
    finish(&fixture);
}

static void test_a_loaded_state_begins_where_messages_are_live(void)
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
    qsi_queue_requeue(&fixture.queue, segment, 1, UINT64_MAX);
    qsi_queue_requeue(&fixture.queue, qsi_queue_segment_at(&fixture.queue, 0), 0, UINT64_MAX);
    qsi_queue_requeue(&fixture.queue, qsi_queue_segment_at(&fixture.queue, 1), 0, UINT64_MAX);
    drop_all(&fixture);
    QS_CHECK(segment->settled == NULL);
    load_state(&fixture, segment);
    QS_CHECK(segment->word_base == 1 && segment->word_count == 1 && segment->ready_count == 64);
    QS_CHECK(qsi_segment_deliveries(segment, 64) == 1 && qsi_segment_was_seen(segment, 127));
    for (uint32_t number = 0; number < 2; number++) {
        qsi_queue_requeue(&fixture.queue, qsi_queue_segment_at(&fixture.queue, number), 1,
                          UINT64_MAX);
    }
    qsi_queue_requeue(&fixture.queue, qsi_queue_segment_at(&fixture.queue, 3), 0, UINT64_MAX);
    qsi_queue_requeue(&fixture.queue, qsi_queue_segment_at(&fixture.queue, 3), 1, UINT64_MAX);
    QS_CHECK(drain(&fixture) == 512 - 64);
    finish(&fixture);
}

/* Room for columns is made when the file turns out to have them. */
static void test_a_load_makes_only_the_columns_that_are_there(void)
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

static void test_mark_all_seen_reaches_what_is_on_the_disk(void)
{
    struct fixture fixture;
    struct qsi_segment *segment;

    start(&fixture, 64, true);
    publish(&fixture, 0, 200, 0, true);
    flush_all(&fixture);
    drop_all(&fixture);
    segment = qsi_queue_segment_at(&fixture.queue, 2);
    QS_CHECK(segment->settled == NULL);
    QS_CHECK_OK(qsi_queue_mark_all_seen(&fixture.queue));
    load_state(&fixture, segment);
    for (uint32_t i = 0; i < 4; i++) {
        segment = qsi_queue_segment_at(&fixture.queue, i);
        QS_CHECK(segment->settled == NULL || qsi_segment_deliveries(segment, 7) == 1);
        QS_CHECK(segment->settled == NULL || qsi_segment_was_seen(segment, 0));
    }
    publish(&fixture, 200, 1, 0, true);
    segment = qsi_queue_segment_at(&fixture.queue, 3);
    QS_CHECK(!qsi_segment_was_seen(segment, 8) && qsi_segment_was_seen(segment, 7));
    QS_CHECK(drain(&fixture) == 201);
    finish(&fixture);
}

/* Of a segment that is not loaded and requeued as a whole it is known that it was delivered. */
static void test_a_replayed_requeue_of_a_whole_segment_is_seen(void)
{
    struct fixture fixture;
    struct qsi_segment *segment;
    struct qsi_settle settle = {QUEUE_ID, 64, 128, QSI_SETTLE_REQUEUE, 0};

    start(&fixture, 64, true);
    publish(&fixture, 0, 256, 0, true);
    flush_all(&fixture);
    drop_all(&fixture);
    while ((segment = qsi_queue_needs_state(&fixture.queue, &settle)) != NULL) {
        load_state(&fixture, segment);
    }
    segment = qsi_queue_segment_at(&fixture.queue, 2);
    QS_CHECK(segment->settled != NULL); /* how often it was delivered stands there */
    QS_CHECK_OK(qsi_queue_replay_settle(&fixture.queue, &settle));
    QS_CHECK(qsi_segment_was_seen(segment, 0) && qsi_segment_was_seen(segment, 63));
    QS_CHECK(drain(&fixture) == 256);
    finish(&fixture);
}

static void test_replay_settles_whole_segments_that_are_not_loaded(void)
{
    struct fixture fixture;
    struct qsi_segment *segment;
    struct qsi_settle settle = {QUEUE_ID, 60, 70, QSI_SETTLE_ACK, 0};

    start(&fixture, 64, true);
    publish(&fixture, 0, 256, 3, true);
    flush_all(&fixture);
    drop_all(&fixture);
    segment = qsi_queue_needs_state(&fixture.queue, &settle);
    QS_CHECK(segment == NULL || segment->number == 2); /* the head has its state */
    while ((segment = qsi_queue_needs_state(&fixture.queue, &settle)) != NULL) {
        load_state(&fixture, segment);
    }
    QS_CHECK_OK(qsi_queue_replay_settle(&fixture.queue, &settle));
    QS_CHECK(fixture.queue.ready_count == 186);
    QS_CHECK(qsi_queue_find_segment(&fixture.queue, 1) == NULL);
    QS_CHECK(drain(&fixture) == 186);
    finish(&fixture);
}

/* ---- names of files ---- */

static void test_the_next_file_of_a_number_has_another_name(void)
{
    struct fixture fixture;
    struct qsi_stretch old;

    start(&fixture, 64, true);
    publish(&fixture, 0, 64, 0, true);
    publish(&fixture, 64, 10, 0, true);
    flush_all(&fixture);
    QS_CHECK(take_some(&fixture, 64, &old));
    QS_CHECK(drain(&fixture) == 10); /* the segment that is being filled ends; its file is to go */
    settle_all(&fixture, &old);      /* and an older one after it */
    QS_CHECK(fixture.queue.segment_count == 0);
    publish(&fixture, 74, 10, 0, true);
    QS_CHECK(qsi_queue_segment_at(&fixture.queue, 0)->file.generation == 1);
    flush_all(&fixture);
    release_all(&fixture, false); /* removes the files of those that ended, and no other */
    drop_all(&fixture);
    QS_CHECK(drain(&fixture) == 10);
    publish(&fixture, 84, 1, 0, true);
    QS_CHECK(qsi_queue_segment_at(&fixture.queue, 0)->file.generation == 2);
    QS_CHECK(drain(&fixture) == 1);
    finish(&fixture);
}

/* Slots were written although no body was: the next checkpoint has to sync the file. */
static void test_references_alone_make_a_file_dirty(void)
{
    struct fixture fixture;
    struct qsi_segment *segment;

    start(&fixture, 64, true);
    for (uint32_t from = 0; from < 30; from += 10) {
        publish(&fixture, from, 10, 1, true);
        flush_all(&fixture);
        segment = qsi_queue_segment_at(&fixture.queue, 0);
        QS_CHECK(segment->file_dirty);
        QS_CHECK(from == 0 || segment->page_aligned); /* no body has taken that page yet */
        segment->file_dirty = false;                  /* as a checkpoint leaves it */
        segment->page_aligned = true;
    }
    publish(&fixture, 30, 1, 0, true);
    sent[30].body_bytes = 30;
    flush_all(&fixture);
    QS_CHECK(segment->file_dirty && !segment->page_aligned);
    qsi_queue_purge(&fixture.queue, NULL, NULL);
    finish(&fixture);
}

/* ---- deleting a queue ---- */

static void test_a_deleted_queue_refers_to_nothing(void)
{
    struct fixture fixture;
    struct qsi_stretch on_disk, in_memory;

    start(&fixture, 64, true);
    publish(&fixture, 0, 256, 2, true);
    flush_all(&fixture);
    QS_CHECK(take_some(&fixture, 10, &on_disk));
    drop_all(&fixture);
    publish(&fixture, 256, 64, 2, true);
    QS_CHECK(take_some(&fixture, 10, &in_memory));
    qsi_queue_abandon(&fixture.queue);
    release_all(&fixture, false);
    QS_CHECK(referenced_bytes(&fixture) == 0);
    settle_all(&fixture, &on_disk);
    settle_all(&fixture, &in_memory);
    finish(&fixture);
}

static void test_transients_of_a_batch_refer_until_they_are_settled(void)
{
    struct fixture fixture;
    struct qsi_stretch stretch;

    start(&fixture, 64, true);
    for (uint32_t i = 0; i < 40; i++) {
        sent[i] = make_message(&fixture, 100, i % 2 == 0 ? 2 : 1, true);
    }
    QS_CHECK(push_batch(&fixture, sent, 40, 1, true, true) == 0);
    flush_all(&fixture);
    QS_CHECK(take_some(&fixture, 5, &stretch));
    QS_CHECK(qsi_segment_journalled(stretch.segment, 0, 0x1f) == 0x15);
    qsi_queue_drop_content(&fixture.queue, 0, UINT64_MAX);
    settle_all(&fixture, &stretch); /* from both files */
    QS_CHECK(drain(&fixture) == 35);
    finish(&fixture);
}

/* ---- no memory ---- */

/* All that a queue may live through, with allocation n failing: every step fails whole, and
 * works the next time. */
static void test_every_allocation_may_fail(void)
{
    uint64_t failures = 0;

    for (uint64_t n = 1;; n++) {
        struct fixture fixture;
        struct qsi_flush flush;
        struct qsi_page_in page;
        struct qsi_state_write write;
        struct qsi_buf records = {0};
        struct qsi_stretch stretch;
        uint32_t record_count = 0;
        qs_status status;
        bool failed = false;

        start(&fixture, 64, true);
        publish(&fixture, 0, 100, 3, true);
        publish(&fixture, 100, 20, 0, false);
        publish(&fixture, 120, 200, 0, true);
        QS_CHECK(take_some(&fixture, 3, &stretch));
        requeue_all(&fixture, &stretch);
        qs_test_alloc_arm(&memory, n, false);
        for (uint32_t guard = 0; guard < 100; guard++) {
            status =
                qsi_flush_begin(&flush, &fixture.queue, fixture.queue.container.flushed_seq, 2000);
            if (status == QS_OK) {
                status = qsi_flush_encode(&flush, &records, &record_count);
                QS_CHECK(status == QS_OK || status == QS_ENOMEM);
                qsi_buf_fini(&records);
                status = qsi_flush_run(&flush, fixture.index, fixture.transient_index, QS_ERROR);
                qsi_flush_end(&flush, status == QS_OK);
            }
            if (status == QS_EEMPTY) {
                break;
            }
            QS_CHECK(status == QS_OK || status == QS_ENOMEM);
        }
        QS_CHECK(fixture.queue.container.flushed_seq == 320);
        qsi_queue_drop_content(&fixture.queue, 0, UINT64_MAX);
        for (struct qsi_segment *segment;
             (segment = qsi_queue_dirty_state(&fixture.queue, 0)) != NULL;) {
            status = qsi_state_write_begin(&write, &fixture.queue, segment);
            if (status == QS_OK) {
                status =
                    qsi_state_write_run(&write, fixture.index, fixture.transient_index, QS_ERROR);
                qsi_state_write_end(&write, status == QS_OK);
            }
            QS_CHECK(status == QS_OK || status == QS_ENOMEM);
        }
        qsi_queue_drop_states(&fixture.queue);
        for (;;) {
            status = qsi_page_in_begin(&page, &fixture.queue, 1000);
            if (status == QS_EEMPTY) {
                break;
            }
            if (status == QS_OK) {
                status = qsi_page_in_run(&page, fixture.index, fixture.transient_index, QS_ERROR);
                if (status == QS_OK) {
                    status = qsi_page_in_end(&page, true);
                } else {
                    QS_CHECK_OK(qsi_page_in_end(&page, false));
                }
            }
            QS_CHECK(status == QS_OK || status == QS_ENOMEM);
        }
        failed = memory.has_failed;
        qs_test_alloc_arm(&memory, 0, false);
        failures += failed ? 1 : 0;
        QS_CHECK(drain(&fixture) == 320);
        finish(&fixture);
        if (!failed) {
            break;
        }
    }
    QS_CHECK(failures > 50);
}

/* What settling notes of messages on the disk has its memory before they are there only. */
static void test_settling_messages_on_the_disk_needs_no_memory(bool loaded)
{
    struct fixture fixture;
    struct qsi_stretch stretch;
    bool missing;

    start(&fixture, 64, true);
    publish(&fixture, 0, 64, 1, true);
    flush_all(&fixture);
    qs_test_alloc_arm(&memory, 1, true);
    QS_CHECK(qsi_queue_drop_content(&fixture.queue, 0, UINT64_MAX) == 0);
    QS_CHECK(qsi_queue_ready_in_memory(&fixture.queue, 64, &missing) == 64 && !missing);
    qs_test_alloc_arm(&memory, 0, false);
    if (loaded) { /* taken, and then on the disk only */
        QS_CHECK(take_some(&fixture, 10, &stretch));
    }
    QS_CHECK(qsi_queue_drop_content(&fixture.queue, 0, UINT64_MAX) > 0);
    QS_CHECK(referenced_bytes(&fixture) > 0);
    qs_test_alloc_arm(&memory, 1, true);
    if (loaded) {
        settle_all(&fixture, &stretch);
    }
    QS_CHECK(qsi_queue_purge(&fixture.queue, NULL, NULL) == (loaded ? 54 : 64));
    qs_test_alloc_arm(&memory, 0, false);
    release_all(&fixture, false);
    QS_CHECK(referenced_bytes(&fixture) == 0);
    stop(&fixture);
}

/* ---- a disk that fails ---- */

/* Call n of the disk fails, once: the job fails whole, and works the next time. */
static void test_every_call_of_a_disk_may_fail(void)
{
    qs_env *inner = NULL;
    bool fired = true;

    for (uint64_t n = 1; fired; n++) {
        struct fixture fixture;
        struct qsi_flush flush;
        struct qsi_page_in page;
        qs_env *env;
        qs_status status;

        inner = qsi_env_mem_create(1);
        env = inner != NULL ? qsi_env_fault_create(inner) : NULL;
        start_in(&fixture, env, 64, true);
        publish(&fixture, 0, 100, 3, true);
        publish(&fixture, 100, 20, 0, false);
        publish(&fixture, 120, 100, 0, true);
        qsi_env_fault_arm(env, QSI_FAULT_ANY, n % 2 == 0 ? QSI_FAULT_EIO : QSI_FAULT_ENOSPC, n,
                          false);
        while ((status = qsi_flush_begin(&flush, &fixture.queue,
                                         fixture.queue.container.flushed_seq, UINT64_MAX)) ==
               QS_OK) {
            status = qsi_flush_run(&flush, fixture.index, fixture.transient_index, QS_ERROR);
            QS_CHECK(status == QS_OK || qsi_env_fault_fired(env));
            qsi_flush_end(&flush, status == QS_OK);
        }
        QS_CHECK(status == QS_EEMPTY && fixture.queue.container.flushed_seq == 220);
        qsi_queue_drop_content(&fixture.queue, 0, UINT64_MAX);
        while ((status = qsi_page_in_begin(&page, &fixture.queue, 1000)) == QS_OK) {
            status = qsi_page_in_run(&page, fixture.index, fixture.transient_index, QS_ERROR);
            QS_CHECK(status == QS_OK || qsi_env_fault_fired(env));
            QS_CHECK_OK(qsi_page_in_end(&page, status == QS_OK));
        }
        QS_CHECK(status == QS_EEMPTY);
        fired = qsi_env_fault_fired(env);
        qsi_env_fault_arm(env, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
        QS_CHECK(drain(&fixture) == 220);
        release_all(&fixture, false);
        QS_CHECK(referenced_bytes(&fixture) == 0);
        stop_files(&fixture);
        qsi_env_fault_destroy(env);
        qsi_env_mem_destroy(inner);
    }
}

/* ---- a power cut ---- */

/* What a checkpoint named, as it named it, is there after a cut, whatever was written to the
 * same files later and not synced. */
static void test_a_cut_takes_nothing_that_was_named(void)
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

        QS_CHECK_OK(
            qsi_queue_skip_to(&fixture.queue, 128)); /* later ones: on a page of their own */
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
        qsi_queue_purge(&fixture.queue, NULL, NULL);
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

int main(void)
{
    qs_test_alloc_install(&memory);
    test_what_was_dropped_comes_back(true);
    test_what_was_dropped_comes_back(false);
    test_settled_messages_are_not_written();
    for (enum job job = FLUSH; job < JOB_COUNT; job++) {
        test_a_purge_while_a_job_is_under_way(job, true);
        test_a_purge_while_a_job_is_under_way(job, false);
    }
    test_acks_between_run_and_end_of_a_load();
    test_delivery_counts_survive_on_the_disk();
    test_a_loaded_state_begins_where_messages_are_live();
    test_a_load_makes_only_the_columns_that_are_there();
    test_mark_all_seen_reaches_what_is_on_the_disk();
    test_a_replayed_requeue_of_a_whole_segment_is_seen();
    test_replay_settles_whole_segments_that_are_not_loaded();
    test_the_next_file_of_a_number_has_another_name();
    test_references_alone_make_a_file_dirty();
    test_a_deleted_queue_refers_to_nothing();
    test_transients_of_a_batch_refer_until_they_are_settled();
    test_every_allocation_may_fail();
    test_settling_messages_on_the_disk_needs_no_memory(false);
    test_settling_messages_on_the_disk_needs_no_memory(true);
    test_every_call_of_a_disk_may_fail();
    test_a_cut_takes_nothing_that_was_named();
    QS_CHECK(memory.alive == 0);
    qs_allocator_set(NULL);
    return 0;
}
