/* Messages of one queue that is paged. */
#ifndef PAGING_FIXTURE_H
#define PAGING_FIXTURE_H

#include "qs_test_memory.h"
#include "queue_jobs_fixture.h"
#include "queue_settle.h"
#include "queue_take.h"

#define MESSAGES_MAX 512

static struct message sent[MESSAGES_MAX];

static inline void publish(struct fixture *fixture, uint32_t from, uint32_t count,
                           uint32_t stored_every, bool journalled)
{
    for (uint32_t i = from; i < from + count; i++) {
        sent[i] = make_message(fixture, i % 50, journalled ? 2 : 1,
                               stored_every > 0 && i % stored_every == 0);
    }
    QS_CHECK(push_batch(fixture, sent + from, count, 1, true, journalled) == from);
}

static inline bool take_some(struct fixture *fixture, uint32_t max, struct qsi_stretch *stretch)
{
    enum qsi_take taken;

    while ((taken = qsi_queue_take(&fixture->queue.container, max, stretch)) == QSI_TAKE_PAGED) {
        page_in(fixture, 300);
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

static inline void settle_all(struct fixture *fixture, const struct qsi_stretch *stretch)
{
    qsi_queue_settle(&fixture->queue.container, stretch->segment, stretch->slot / QSI_WORD_BITS,
                     qsi_stretch_mask(stretch));
}

static inline void requeue_all(struct fixture *fixture, const struct qsi_stretch *stretch)
{
    qsi_queue_requeue(&fixture->queue.container, stretch->segment, stretch->slot / QSI_WORD_BITS,
                      qsi_stretch_mask(stretch));
}

/* Takes and settles all; returns how many there were. */
static inline uint64_t drain(struct fixture *fixture)
{
    struct qsi_stretch stretch;
    uint64_t count = 0;

    while (take_some(fixture, 64, &stretch)) {
        count += stretch.count;
        settle_all(fixture, &stretch);
    }
    return count;
}

static inline void finish(struct fixture *fixture)
{
    release_all(fixture, false);
    QS_CHECK(referenced_bytes(fixture) == 0);
    stop(fixture);
}

QS_TEST_FIXTURE(run_paging, struct fixture, start(&fixture, 64, true), finish(&fixture))
#define PAGING_TEST(name) QS_TEST_BY(run_paging, name, (struct fixture * fixture))

#endif
