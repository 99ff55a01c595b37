/* Work queues alone: their source is made up, as numbers and empty chunks.  Each is compared with
 * an array that says of every message what it is; what a checkpoint says is restored into another
 * queue, which must be the same.  Argument: seed. */
#include "buf.h"
#include "check.h"
#include "paging.h"
#include "qs_test.h"
#include "queue_take.h"
#include "work.h"
#include "work_record.h"

#define ENTRIES 128
#define MESSAGES 2000

enum what { NOT_THERE, READY, OUT, SETTLED };

struct subject {
    struct qsi_queue_shared shared;
    struct qsi_queue queue;
    uint8_t what[MESSAGES];
    struct qsi_stretch out[MESSAGES];
    uint32_t out_count;
    uint64_t end, random;
};

static uint32_t below(struct subject *subject, uint32_t limit)
{
    subject->random =
        subject->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((subject->random >> 33) % limit);
}

static struct qsi_container *container_of(struct subject *subject)
{
    return &subject->queue.container;
}

static uint64_t count(const struct subject *subject, enum what what)
{
    uint64_t found = 0;

    for (uint32_t i = 0; i < MESSAGES; i++) {
        found += subject->what[i] == what ? 1 : 0;
    }
    return found;
}

static void check(struct subject *subject)
{
    const struct qsi_queue *queue = &subject->queue;
    uint64_t low = 0;

    QS_CHECK(qsi_queue_ready_count(queue) == count(subject, READY));
    QS_CHECK(qsi_queue_out_count(queue) == count(subject, OUT));
    QS_CHECK(qsi_container_is_flushed(container_of(subject)));
    while (low < subject->end && subject->what[low] == SETTLED) {
        low += 1;
    }
    QS_CHECK(qsi_work_low_water(queue) <= low || low == subject->end);
    QS_CHECK(qsi_work_low_water(queue) >= low || qsi_work_rest(queue) == 0);
}

static void bring(struct subject *subject, uint64_t seq)
{
    struct qsi_messages_ref messages = {.chunk = qsi_chunk_create(64)};
    uint32_t rows = 1 + below(subject, 100);

    QS_CHECK(messages.chunk != NULL);
    QS_CHECK(qsi_work_install(&subject->queue, seq, rows, &messages, below(subject, 5),
                              rows * 10) == QS_OK);
    qsi_chunk_unref(messages.chunk);
}

static void take(struct subject *subject)
{
    struct qsi_stretch stretch;
    uint64_t seq;

    switch (qsi_container_take(container_of(subject), 1 + below(subject, 9), &stretch)) {
    case QSI_TAKE_EMPTY:
        QS_CHECK(count(subject, READY) == 0);
        return;
    case QSI_TAKE_PAGED:
        QS_CHECK(qsi_work_first_missing(&subject->queue, &seq));
        QS_CHECK(subject->what[seq] == READY);
        bring(subject, seq);
        return;
    case QSI_TAKE_TAKEN:
        break;
    }
    seq = qsi_queue_first_seq(&subject->queue, stretch.segment) + stretch.slot;
    for (uint32_t i = 0; i < stretch.count; i++) {
        QS_CHECK(subject->what[seq + i] == READY);
        subject->what[seq + i] = OUT;
    }
    QS_CHECK(stretch.run->first_seq + stretch.run_row == seq);
    subject->out[subject->out_count++] = stretch;
}

static void settle(struct subject *subject, bool requeues)
{
    uint32_t i = subject->out_count > 0 ? below(subject, subject->out_count) : 0;
    struct qsi_stretch stretch = subject->out[i];
    uint32_t word = stretch.slot / QSI_WORD_BITS;
    uint64_t seq, mask = qsi_stretch_mask(&stretch);

    if (subject->out_count == 0) {
        return;
    }
    seq = qsi_queue_first_seq(&subject->queue, stretch.segment) + stretch.slot;
    subject->out[i] = subject->out[--subject->out_count];
    for (uint32_t k = 0; k < stretch.count; k++) {
        subject->what[seq + k] = requeues ? READY : SETTLED;
    }
    if (requeues) {
        qsi_container_requeue(container_of(subject), stretch.segment, word, mask);
    } else {
        qsi_container_settle(container_of(subject), stretch.segment, word, mask);
    }
}

static void raise_end(struct subject *subject)
{
    uint32_t more = below(subject, 200);

    for (; more > 0 && subject->end < MESSAGES; more--) {
        subject->what[subject->end++] = READY;
    }
    (void)qsi_work_raise(&subject->queue, subject->end);
}

static void settle_ready(struct subject *subject, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to && i < subject->end; i++) {
        subject->what[i] = subject->what[i] == READY ? SETTLED : subject->what[i];
    }
}

struct covered {
    struct subject *subject;
    uint64_t ranges;
};

static void note_range(void *context, uint64_t first_seq, uint32_t range_count)
{
    struct covered *covered = context;

    for (uint64_t i = first_seq; i < first_seq + range_count; i++) {
        QS_CHECK(covered->subject->what[i] != OUT);
    }
    covered->ranges += 1;
}

static void purge(struct subject *subject)
{
    struct covered covered = {.subject = subject};
    uint64_t most = qsi_container_purge_ranges(container_of(subject));
    uint64_t ready = count(subject, READY);

    QS_CHECK(qsi_container_purge(container_of(subject), note_range, &covered) == ready);
    QS_CHECK(covered.ranges <= most);
    settle_ready(subject, 0, MESSAGES);
}

static void lose(struct subject *subject)
{
    uint64_t to = below(subject, (uint32_t)subject->end + 1);
    uint64_t passed = subject->queue.work.passed_count, ready = count(subject, READY);

    qsi_work_lose(&subject->queue, 0, to);
    settle_ready(subject, 0, to);
    QS_CHECK(subject->queue.work.passed_count - passed == ready - count(subject, READY));
}

/* As a checkpoint tells it. */
static uint32_t told_deliveries(const struct qsi_queue *queue, uint64_t seq)
{
    const struct qsi_segment *segment = qsi_queue_find_segment(queue, seq / ENTRIES);
    uint32_t slot = (uint32_t)(seq % ENTRIES);

    return segment->deliveries != NULL
               ? segment->deliveries[slot - segment->word_base * QSI_WORD_BITS]
               : (uint32_t)(qsi_segment_seen_before(segment, slot / QSI_WORD_BITS) >>
                                (slot % QSI_WORD_BITS) &
                            1);
}

/* Another queue, from what a checkpoint says: what is out is ready there. */
static void restore(struct subject *subject)
{
    struct qsi_carried carried = {.bytes_max = 0};
    struct qsi_snapshot *snapshot;
    struct qsi_queue other;
    struct qsi_buf records = {0};
    uint32_t record_count = 0;
    uint64_t next = 0;

    QS_CHECK_OK(qsi_container_snapshot(container_of(subject), &carried, &snapshot));
    QS_CHECK_OK(qsi_snapshot_encode(snapshot, &records, &record_count));
    qsi_snapshot_end(snapshot, true);
    qsi_work_init(&other, &subject->shared, 1);
    for (size_t at = 0; at < records.bytes; at += qsi_record_length(records.data + at)) {
        QS_CHECK_OK(qsi_container_restore(&other.container, records.data + at, &next, QS_ERROR));
        record_count -= 1;
    }
    QS_CHECK(record_count == 0);
    (void)qsi_work_raise(&other, subject->end);
    QS_CHECK(qsi_queue_ready_count(&other) == count(subject, READY) + count(subject, OUT));
    for (uint64_t seq = 0; seq < other.container.next_seq; seq++) {
        const struct qsi_segment *segment = qsi_queue_find_segment(&other, seq / ENTRIES);
        uint32_t slot = (uint32_t)(seq % ENTRIES);
        bool is_live =
            segment != NULL &&
            (qsi_segment_live(&other, segment, slot / QSI_WORD_BITS) >> (slot % QSI_WORD_BITS) &
             1) != 0;
        QS_CHECK(is_live == (subject->what[seq] == READY || subject->what[seq] == OUT));
        QS_CHECK(!is_live || told_deliveries(&subject->queue, seq) == told_deliveries(&other, seq));
    }
    qsi_container_fini(&other.container);
    qsi_buf_fini(&records);
}

QS_SEED_TEST(test_a_work_queue_is_what_a_simple_model_says)
{
    static struct subject subject;

    for (uint32_t round = 0; round < 30; round++) {
        memset(&subject, 0, sizeof subject);
        subject.random = seed + round;
        qsi_queue_shared_init(&subject.shared, ENTRIES);
        qsi_work_init(&subject.queue, &subject.shared, 1);
        for (uint32_t i = 0; i < 400; i++) {
            uint32_t what = below(&subject, 100);
            if (what < 45) {
                take(&subject);
            } else if (what < 75) {
                settle(&subject, false);
            } else if (what < 83) {
                settle(&subject, true);
            } else if (what < 90) {
                raise_end(&subject);
            } else if (what < 93) {
                (void)qsi_container_drop_content(container_of(&subject), below(&subject, 50),
                                                 below(&subject, 2000));
            } else if (what < 97) {
                restore(&subject);
            } else if (what < 98) {
                purge(&subject);
            } else {
                lose(&subject);
            }
            check(&subject);
        }
        qsi_container_fini(container_of(&subject));
    }
}

/* Each message of one segment has a count of its own; returns the bytes that a checkpoint takes. */
static uint64_t tell_counts(const uint8_t counts[ENTRIES])
{
    struct subject subject = {.end = 0};
    struct qsi_carried carried = {.bytes_max = 0};
    struct qsi_snapshot *snapshot;
    struct qsi_buf records = {0};
    struct qsi_stretch stretch;
    struct qsi_segment *segment;
    uint32_t record_count = 0;
    uint64_t bytes;

    qsi_queue_shared_init(&subject.shared, ENTRIES);
    qsi_work_init(&subject.queue, &subject.shared, 1);
    for (; subject.end < ENTRIES; subject.end++) {
        subject.what[subject.end] = READY;
    }
    (void)qsi_work_raise(&subject.queue, subject.end);
    while (qsi_work_rest(&subject.queue) > 0) {
        bring(&subject, subject.queue.container.next_seq);
    }
    QS_CHECK(qsi_container_take(container_of(&subject), 1, &stretch) == QSI_TAKE_TAKEN);
    qsi_container_requeue(container_of(&subject), stretch.segment, 0, 1);
    segment = qsi_queue_find_segment(&subject.queue, 0);
    QS_CHECK(segment != NULL && segment->deliveries != NULL);
    memcpy(segment->deliveries, counts, ENTRIES);
    restore(&subject);
    QS_CHECK_OK(qsi_container_snapshot(container_of(&subject), &carried, &snapshot));
    QS_CHECK_OK(qsi_snapshot_encode(snapshot, &records, &record_count));
    qsi_snapshot_end(snapshot, true);
    bytes = records.bytes - QSI_WORK_STATE_BYTES - QSI_WORK_SEGMENT_BYTES;
    qsi_buf_fini(&records);
    qsi_container_fini(container_of(&subject));
    return bytes;
}

/* Two bits for each of so many, and as many more as counts need; 16 bytes for one that sticks out.
 */
QS_TEST(test_counts_of_deliveries_take_few_bits_in_a_checkpoint)
{
    uint8_t counts[ENTRIES] = {0};

    QS_CHECK(tell_counts(counts) == 2 * ENTRIES / 8);
    counts[5] = 3;
    QS_CHECK(tell_counts(counts) == 2 * ENTRIES / 8 + 16); /* a note */
    counts[0] = counts[5] = 1;
    QS_CHECK(tell_counts(counts) == 2 * ENTRIES / 8 + 16);
    memset(counts, 1, sizeof counts);
    QS_CHECK(tell_counts(counts) == 3 * ENTRIES / 8);
    for (uint32_t i = 0; i < ENTRIES; i++) {
        counts[i] = (uint8_t)(i % 4);
    }
    QS_CHECK(tell_counts(counts) == 4 * ENTRIES / 8);
    counts[70] = UINT8_MAX;
    QS_CHECK(tell_counts(counts) == 4 * ENTRIES / 8 + 16);
    for (uint32_t i = 0; i < ENTRIES; i++) {
        counts[i] = (uint8_t)(i * 2 + 1);
    }
    QS_CHECK(tell_counts(counts) == 10 * ENTRIES / 8);
}

QS_TEST(test_what_nobody_read_and_what_is_settled_takes_no_memory)
{
    struct qsi_queue_shared shared;
    struct qsi_queue queue;

    qsi_queue_shared_init(&shared, 65536);
    qsi_work_init(&queue, &shared, 1);
    (void)qsi_work_raise(&queue, UINT64_C(1) << 40);
    QS_CHECK(qsi_queue_ready_count(&queue) == UINT64_C(1) << 40);
    QS_CHECK(qsi_queue_segment_count(&queue) == 0);
    QS_CHECK(qsi_container_purge(&queue.container, NULL, NULL) == UINT64_C(1) << 40);
    QS_CHECK(qsi_queue_ready_count(&queue) == 0 && qsi_queue_segment_count(&queue) == 0);
    qsi_container_fini(&queue.container);
}

QS_TEST(test_a_replay_gives_state_to_what_was_settled_only)
{
    const struct qsi_settle ack = {
        .queue_id = 1, .first_seq = 70, .count = 60, .kind = QSI_SETTLE_ACK};
    const struct qsi_settle huge = {
        .queue_id = 1, .first_seq = 130, .count = UINT32_MAX, .kind = QSI_SETTLE_ACK};
    struct qsi_queue_shared shared;
    struct qsi_queue queue;

    qsi_queue_shared_init(&shared, 64);
    qsi_work_init(&queue, &shared, 1);
    QS_CHECK_OK(qsi_container_replay_settle(&queue.container, &ack));
    QS_CHECK(qsi_queue_ready_count(&queue) == 70 && queue.container.next_seq == 130);
    QS_CHECK_OK(qsi_container_replay_settle(&queue.container, &huge));
    QS_CHECK(qsi_queue_ready_count(&queue) == 70 && qsi_queue_segment_count(&queue) <= 2);
    QS_CHECK(queue.container.next_seq == 130 + (uint64_t)UINT32_MAX);
    qsi_container_fini(&queue.container);
}

QS_TEST(test_records_that_make_no_sense_are_refused)
{
    uint8_t record[QSI_WORK_SEGMENT_BYTES + 16 + QSI_WORK_NOTE_BYTES] = {0};
    struct qsi_work_segment told = {
        .queue_id = 1, .word_base = 1, .word_count = 1, .note_count = 1};
    struct qsi_work_note note = {.slot = 64, .deliveries = 3};
    struct qsi_queue_shared shared;
    struct qsi_queue queue;
    uint64_t next = 0;

    qsi_queue_shared_init(&shared, ENTRIES);
    qsi_work_init(&queue, &shared, 1);
    qsi_work_segment_encode(record, &told);
    qsi_work_segment_put_note(record, 0, &note);
    QS_CHECK_OK(qsi_work_segment_decode(&told, record, QS_ERROR));
    note.slot = 0; /* before its words */
    qsi_work_segment_put_note(record, 0, &note);
    QS_CHECK(qsi_work_segment_decode(&told, record, NULL) == QS_ECORRUPT);
    note.slot = 64;
    qsi_work_segment_put_note(record, 0, &note);
    record[37] = 1; /* planes without counts, and none of their bits */
    QS_CHECK(qsi_work_segment_decode(&told, record, NULL) == QS_ECORRUPT);
    record[36] = 1;
    QS_CHECK(qsi_work_segment_decode(&told, record, NULL) == QS_ECORRUPT);
    record[37] = 0;
    QS_CHECK_OK(qsi_work_segment_decode(&told, record, QS_ERROR));
    record[36] = 2;
    QS_CHECK(qsi_work_segment_decode(&told, record, NULL) == QS_ECORRUPT);
    told = (struct qsi_work_segment){.queue_id = 1, .number = 5, .word_count = 1};
    qsi_work_segment_encode(record, &told);
    QS_CHECK(qsi_container_restore(&queue.container, record, &next, NULL) == QS_ECORRUPT);
    told = (struct qsi_work_segment){.queue_id = 1, .word_base = 2, .word_count = 1};
    qsi_work_segment_encode(record, &told);
    QS_CHECK(qsi_container_restore(&queue.container, record, &next, NULL) == QS_ECORRUPT);
    qsi_container_fini(&queue.container);
}
