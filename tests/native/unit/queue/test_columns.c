/* Columns: when messages expire and how long their bodies are, against a plain array of messages.
 *
 * The random part pushes, takes, requeues, settles, lets expire, trims, pages and restores in
 * any order, and compares after each step.  Its seed is printed and is the first argument. */
#include "queue_columns.h"
#include "queue_internal.h"
#include "queue_jobs_fixture.h"
#include "queue_publish.h"
#include "queue_replay.h"
#include "queue_settle.h"
#include "queue_take.h"

#define MESSAGES_MAX 4000
#define ENTRIES 64u

enum is { READY, OUT, SETTLED };

struct known {
    enum is is;
    uint64_t expiry_us;
    uint32_t body_bytes;
};

struct run {
    struct fixture fixture;
    uint64_t random, now_us;
    uint64_t ttl_us;
    bool counts_bytes;
    struct qsi_queue_sum sum;         /* in which the queue counts, beside another one */
    struct known known[MESSAGES_MAX]; /* by sequence */
};

/* Another queue is there already. */
#define BESIDE_COUNT 1000u
#define BESIDE_BYTES 5000u
#define BESIDE_PLACE 3
#define PLACE 200

static void join_sum(struct run *run)
{
    run->sum = (struct qsi_queue_sum){.ready_count = BESIDE_COUNT,
                                      .ready_bytes = BESIDE_BYTES,
                                      .earliest = QSI_NEVER,
                                      .places = {UINT64_C(1) << BESIDE_PLACE}};
    qsi_queue_join(&run->fixture.queue, &run->sum, PLACE);
}

static void check_sum(const struct run *run)
{
    const struct qsi_queue *queue = &run->fixture.queue;
    uint64_t bit = UINT64_C(1) << PLACE % QSI_WORD_BITS;

    QS_CHECK(run->sum.ready_count == BESIDE_COUNT + queue->ready_count);
    QS_CHECK(run->sum.ready_bytes == BESIDE_BYTES + queue->ready_bytes);
    QS_CHECK(run->sum.earliest <= queue->earliest);
    QS_CHECK(run->sum.places[0] == UINT64_C(1) << BESIDE_PLACE);
    QS_CHECK(run->sum.places[PLACE / QSI_WORD_BITS] == (queue->ready_count > 0 ? bit : 0));
}

static uint32_t below(struct run *run, uint32_t limit)
{
    return (uint32_t)qsi_splitmix_below(&run->random, limit);
}

static void note_message(struct run *run, uint64_t seq, const struct message *message)
{
    uint64_t ttl_us = run->ttl_us;

    if (message->life_ms > 0 && message->life_ms * UINT64_C(1000) < ttl_us) {
        ttl_us = message->life_ms * UINT64_C(1000);
    }
    QS_CHECK(seq < MESSAGES_MAX);
    run->known[seq] = (struct known){
        READY, ttl_us == QSI_NEVER ? QSI_NEVER : message->time_us + ttl_us, message->body_bytes};
}

static struct message any_message(struct run *run)
{
    uint32_t bytes = below(run, 200);
    struct message message = make_message(&run->fixture, bytes, 2, below(run, 5) == 0);

    message.life_ms = below(run, 3) == 0 ? 1 + below(run, 3000) : 0;
    message.time_us = run->now_us;
    return message;
}

static void push(struct run *run)
{
    struct message messages[40];
    uint32_t count = 1 + below(run, 40);
    uint64_t seq;

    for (uint32_t i = 0; i < count; i++) {
        messages[i] = any_message(run);
    }
    if (below(run, 2) == 0) {
        seq = push_batch(&run->fixture, messages, count, 1, below(run, 2) == 0, true);
        for (uint32_t i = 0; i < count; i++) {
            note_message(run, seq + i, &messages[i]);
        }
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        note_message(run, push_single(&run->fixture, &messages[i], true), &messages[i]);
    }
}

/* ---- what comes out ---- */

static uint64_t stretch_seq(struct run *run, const struct qsi_stretch *stretch)
{
    return qsi_segment_first_seq(&run->fixture.shared, stretch->segment) + stretch->slot;
}

static void note_out(struct run *run, const struct qsi_stretch *stretch)
{
    uint64_t seq = stretch_seq(run, stretch);

    for (uint32_t i = 0; i < stretch->count; i++) {
        QS_CHECK(run->known[seq + i].is == READY);
        run->known[seq + i].is = OUT;
    }
}

static uint64_t first_ready(const struct run *run)
{
    uint64_t seq = 0;

    while (seq < run->fixture.queue.container.next_seq && run->known[seq].is != READY) {
        seq++;
    }
    return seq;
}

/* The first ready ones: to a consumer, or because they are too many. */
static void take(struct run *run, bool hold)
{
    uint32_t count = 1 + below(run, 100);

    while (count > 0) {
        struct qsi_stretch stretch;
        struct qsi_queue *queue = &run->fixture.queue;
        enum qsi_take taken =
            hold ? qsi_queue_reserve_in(queue, qsi_queue_head_segment(queue), count, &stretch)
                 : qsi_queue_take(&queue->container, count, &stretch);
        if (taken == QSI_TAKE_EMPTY) {
            QS_CHECK(first_ready(run) == run->fixture.queue.container.next_seq);
            return;
        }
        if (taken == QSI_TAKE_PAGED) {
            page_in(&run->fixture, UINT64_MAX);
            continue;
        }
        QS_CHECK(stretch_seq(run, &stretch) == first_ready(run) && stretch.count <= count);
        note_out(run, &stretch);
        if (!hold && stretch.count > 1 && below(run, 4) == 0) { /* fewer than they seemed */
            uint64_t seq = stretch_seq(run, &stretch);
            uint32_t kept = below(run, stretch.count), all = stretch.count;
            qsi_queue_untake(&run->fixture.queue.container, &stretch, kept);
            for (uint32_t i = kept; i < all; i++) {
                run->known[seq + i].is = READY;
            }
            return;
        }
        count -= stretch.count;
    }
}

/* What is out goes back, or ends. */
static void settle(struct run *run)
{
    struct qsi_queue *queue = &run->fixture.queue;
    bool requeue = below(run, 2) == 0;

    for (uint64_t seq = 0; seq < queue->container.next_seq; seq++) {
        struct qsi_segment *segment;
        uint32_t slot = (uint32_t)(seq % ENTRIES);
        if (run->known[seq].is != OUT || below(run, 3) == 0) {
            continue;
        }
        segment = qsi_queue_find_segment(queue, seq / ENTRIES);
        QS_CHECK(segment != NULL);
        (requeue ? qsi_queue_requeue : qsi_queue_settle)(
            &queue->container, segment, slot / QSI_WORD_BITS, UINT64_C(1) << slot % QSI_WORD_BITS);
        run->known[seq].is = requeue ? READY : SETTLED;
    }
    release_all(&run->fixture, false);
}

/* Everything that has expired comes out, wherever it is, and the queue knows when the next one
 * does. */
static void expire(struct run *run)
{
    struct qsi_queue *queue = &run->fixture.queue;
    struct qsi_segment *lacks_state;
    uint64_t next = QSI_NEVER;

    do {
        struct qsi_expiry_walk walk = {.now_us = run->now_us};
        struct qsi_stretch stretch;
        while (qsi_queue_reserve_expired(queue, &walk, &stretch)) {
            uint64_t seq = stretch_seq(run, &stretch);
            note_out(run, &stretch);
            for (uint32_t i = 0; i < stretch.count; i++) {
                QS_CHECK(run->known[seq + i].expiry_us <= run->now_us);
            }
        }
        lacks_state = walk.lacks_state;
        if (lacks_state != NULL) {
            QS_CHECK(queue->earliest <= run->now_us);
            load_state(&run->fixture, lacks_state);
        }
    } while (lacks_state != NULL);
    for (uint64_t seq = 0; seq < queue->container.next_seq; seq++) {
        QS_CHECK(run->known[seq].is != READY || run->known[seq].expiry_us > run->now_us);
        if (run->known[seq].is == READY && run->known[seq].expiry_us < next) {
            next = run->known[seq].expiry_us;
        }
    }
    QS_CHECK(queue->earliest <= next && (queue->earliest > run->now_us));
}

/* ---- to the disk and back ---- */

static void page_out(struct run *run)
{
    flush_all(&run->fixture);
    while (run->fixture.queue.run_count > 0) {
        qsi_queue_drop_run(&run->fixture.queue, below(run, run->fixture.queue.run_count));
    }
    drop_states(&run->fixture);
}

/* As a checkpoint and a start after it: what is out is ready again. */
static void restore(struct run *run)
{
    struct fixture *fixture = &run->fixture;
    struct qsi_queue *queue = &fixture->queue;
    struct qsi_segment_file files[MESSAGES_MAX / ENTRIES + 1];
    uint32_t lives[MESSAGES_MAX / ENTRIES + 1], count = 0;
    bool expiries[MESSAGES_MAX / ENTRIES + 1];
    uint64_t next_seq = queue->container.next_seq;

    flush_all(fixture);
    for (uint32_t i = 0; i < queue->segment_count; i++) {
        struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        struct qsi_state_write write;
        if (qsi_segment_live_count(segment) == 0) {
            continue;
        }
        if (segment->settled != NULL) {
            QS_CHECK_OK(qsi_state_write_begin(&write, queue, segment));
            QS_CHECK_OK(qsi_state_write_run(&write, own_index(fixture), fixture->transient_index,
                                            QS_ERROR));
            qsi_state_write_end(&write, true);
        }
        files[count] = segment->file;
        lives[count] = qsi_segment_live_count(segment);
        expiries[count++] = segment->expiries != NULL || segment->earliest != QSI_NEVER;
    }
    close_queue(fixture);
    open_queue(fixture, ENTRIES, true);
    queue->counts_bytes = run->counts_bytes;
    queue->ttl_us = run->ttl_us;
    join_sum(run);
    for (uint32_t i = 0; i < count; i++) {
        QS_CHECK_OK(qsi_queue_restore(queue, &(struct qsi_restored_segment){
                                                 .file = &files[i],
                                                 .ready_count = lives[i],
                                                 .has_stored = true,
                                                 .has_expiries = expiries[i],
                                             }));
    }
    queue->container.next_seq = queue->container.flushed_seq = next_seq;
    for (uint32_t i = 0; i < queue->segment_count; i++) {
        struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        if (run->counts_bytes || i + 1 == queue->segment_count || below(run, 2) == 0) {
            load_state(fixture, segment);
        }
    }
    qsi_queue_recount_bytes(queue);
    QS_CHECK_OK(qsi_queue_skip_to(&queue->container, next_seq));
    for (uint64_t seq = 0; seq < next_seq; seq++) {
        run->known[seq].is = run->known[seq].is == OUT ? READY : run->known[seq].is;
    }
}

static void purge(struct run *run)
{
    qsi_queue_purge(&run->fixture.queue.container, NULL, NULL);
    for (uint64_t seq = 0; seq < run->fixture.queue.container.next_seq; seq++) {
        run->known[seq].is = run->known[seq].is == READY ? SETTLED : run->known[seq].is;
    }
    release_all(&run->fixture, false);
}

/* ---- all of it ---- */

static void check(const struct run *run)
{
    const struct qsi_queue *queue = &run->fixture.queue;
    uint64_t ready = 0, out = 0, bytes = 0, earliest = QSI_NEVER;

    for (uint64_t seq = 0; seq < queue->container.next_seq; seq++) {
        const struct known *known = &run->known[seq];
        ready += known->is == READY;
        out += known->is == OUT;
        bytes += known->is == READY ? known->body_bytes : 0;
        earliest = known->is == READY && known->expiry_us < earliest ? known->expiry_us : earliest;
    }
    QS_CHECK(queue->ready_count == ready && queue->out_count == out);
    QS_CHECK(queue->ready_bytes == (run->counts_bytes ? bytes : 0));
    QS_CHECK(queue->earliest <= earliest);
    qsi_queue_check(queue);
    check_sum(run);
}

static void run_random(uint64_t seed, bool counts_bytes, uint64_t ttl_us)
{
    QS_TEST_FREED struct run *run = calloc(1, sizeof *run);

    QS_CHECK(run != NULL);
    run->random = seed;
    run->now_us = UINT64_C(1700000000000000);
    run->ttl_us = ttl_us;
    run->counts_bytes = counts_bytes;
    start(&run->fixture, ENTRIES, true);
    run->fixture.queue.counts_bytes = counts_bytes;
    run->fixture.queue.ttl_us = ttl_us;
    join_sum(run);
    for (int step = 0;
         step < 300 && run->fixture.queue.container.next_seq < MESSAGES_MAX - 2 * ENTRIES; step++) {
        uint32_t ticket = below(run, 100);
        if (ticket < 30) {
            push(run);
        } else if (ticket < 50) {
            take(run, ticket < 40);
        } else if (ticket < 68) {
            settle(run);
        } else if (ticket < 80) {
            run->now_us += below(run, 1500) * UINT64_C(1000);
            expire(run);
        } else if (ticket < 94) {
            page_out(run);
        } else if (ticket < 98) {
            restore(run);
        } else {
            purge(run);
        }
        check(run);
    }
    qsi_queue_abandon(&run->fixture.queue.container);
    release_all(&run->fixture, false);
    stop(&run->fixture);
}

/* The column begins with the first message that is noted: what was there before it never
 * expires. */
static void test_a_column_begins_where_somebody_asks(void)
{
    struct fixture fixture;
    struct qsi_expiry_walk walk = {.now_us = QSI_NEVER - 1};
    struct qsi_stretch stretch;
    struct message message;

    start(&fixture, ENTRIES, true);
    message = make_message(&fixture, 10, 2, false);
    push_single(&fixture, &message, true);
    QS_CHECK(qsi_queue_segment_at(&fixture.queue, 0)->expiries == NULL);
    QS_CHECK(fixture.queue.earliest == QSI_NEVER);
    message.life_ms = 5;
    message.time_us = 1000;
    push_single(&fixture, &message, true);
    QS_CHECK(fixture.queue.earliest == 6000);
    message.life_ms = 0;
    push_single(&fixture, &message, true);
    QS_CHECK(qsi_queue_reserve_expired(&fixture.queue, &walk, &stretch));
    QS_CHECK(stretch.slot == 1 && stretch.count == 1);
    QS_CHECK(!qsi_queue_reserve_expired(&fixture.queue, &walk, &stretch));
    QS_CHECK(fixture.queue.earliest == QSI_NEVER && fixture.queue.ready_count == 2);
    stop(&fixture);
}

/* A message that is to expire at once is left to a consumer for as long as the queue says. */
static void test_expiring_at_once_waits_for_a_consumer(void)
{
    struct fixture fixture;
    struct message message;

    start(&fixture, ENTRIES, true);
    fixture.queue.ttl_us = 0;
    message = make_message(&fixture, 10, 2, false);
    message.time_us = 1000;
    push_single(&fixture, &message, true);
    QS_CHECK(fixture.queue.earliest == 1000);
    fixture.queue.ttl_least_us = 500;
    push_single(&fixture, &message, true);
    QS_CHECK(qsi_queue_segment_at(&fixture.queue, 0)->expiries[1] == 1501); /* odd: graced */
    qsi_queue_end_grace(&fixture.queue, qsi_queue_segment_at(&fixture.queue, 0), 0, 3);
    QS_CHECK(qsi_queue_segment_at(&fixture.queue, 0)->expiries[0] == 1000);
    QS_CHECK(qsi_queue_segment_at(&fixture.queue, 0)->expiries[1] == 1000);
    stop(&fixture);
}

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);

    test_a_column_begins_where_somebody_asks();
    test_expiring_at_once_waits_for_a_consumer();
    for (uint64_t i = 0; i < 40; i++) {
        run_random(seed + i, i % 2 == 0, i % 3 == 0 ? QSI_NEVER : 2000000);
    }
    return 0;
}
