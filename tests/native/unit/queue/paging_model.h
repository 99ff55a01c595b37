/* A queue that pages and a plain list of its messages, and how they are compared. */
#ifndef PAGING_MODEL_H
#define PAGING_MODEL_H

#include "queue_jobs_fixture.h"

#define MODEL_MAX 4000
#define BODIES_MAX 4000
#define JOBS_MAX 512

enum state { READY, OUT, SETTLED };

struct entry {
    struct message message;
    enum state state;
    bool with_id;   /* in its properties */
    bool transient; /* of a durable queue */
    bool seen;
    uint32_t deliveries;
    bool was_out;  /* at the checkpoint */
    uint32_t body; /* index of the stored one */
};

struct model {
    struct entry entries[MODEL_MAX];
    uint64_t count;
};

struct body {
    struct qsi_body_ref ref;
};

struct saved {
    bool exists;
    struct model model;
    uint64_t base_seq, next_seq;
    struct qsi_segment_file files[JOBS_MAX];
    uint32_t live_counts[JOBS_MAX], seen_ends[JOBS_MAX];
    bool has_stored[JOBS_MAX];
    uint32_t file_count;
    struct qsi_buf bodies;
    uint32_t body_records;
    struct qsi_carried carried;
};

struct job {
    bool begun, was_run;
};

struct run {
    struct fixture fixture;
    struct model model;
    struct body bodies[BODIES_MAX];
    uint32_t body_count;
    uint64_t random;
    struct job flushing, loading, writing;
    struct qsi_flush flush;
    struct qsi_page_in page_in;
    struct qsi_state_write write;
    struct saved saved;
    bool saving; /* a checkpoint is being made: what is retired stays */
    uint64_t saves, crashes, loads, state_loads, transient_loads, rewrites, paged_takes;
};

static inline uint32_t below(struct run *run, uint32_t limit)
{
    return (uint32_t)qsi_splitmix_below(&run->random, limit);
}

static inline bool one_in(struct run *run, uint32_t n)
{
    return below(run, n) == 0;
}

/* ---- comparing ---- */

static inline bool is_live(const struct entry *entry)
{
    return entry->state != SETTLED;
}

static inline void check_segment(const struct run *run, const struct qsi_segment *segment)
{
    const struct qsi_queue *queue = &run->fixture.queue;
    uint32_t entries = run->fixture.shared.entries;
    uint64_t first = segment->number * entries;
    uint32_t ready = 0, out = 0, transient = 0;

    for (uint32_t slot = 0; slot < entries; slot++) {
        const struct entry *entry = &run->model.entries[first + slot];
        uint32_t word = slot / QSI_WORD_BITS;
        uint64_t bit = UINT64_C(1) << slot % QSI_WORD_BITS;
        if (first + slot >= run->model.count) {
            QS_CHECK(segment->settled == NULL ||
                     (qsi_segment_live(queue, segment, word) & bit) == 0);
            continue;
        }
        ready += entry->state == READY;
        out += entry->state == OUT;
        transient += is_live(entry) && entry->transient;
        if (segment->settled == NULL) {
            continue;
        }
        QS_CHECK(((qsi_segment_live(queue, segment, word) & bit) != 0) == is_live(entry));
        QS_CHECK(((qsi_segment_ready(queue, segment, word) & bit) != 0) == (entry->state == READY));
        QS_CHECK(!is_live(entry) ||
                 ((qsi_segment_journalled(segment, word, bit) != 0) == !entry->transient));
        if (entry->state == READY) {
            QS_CHECK(qsi_segment_was_seen(segment, slot) == entry->seen);
            QS_CHECK(qsi_segment_deliveries(segment, slot) == entry->deliveries);
        }
    }
    QS_CHECK(segment->ready_count == ready && segment->out_count == out);
    QS_CHECK(segment->transient_count == transient);
    QS_CHECK(segment->settled != NULL || (out == 0 && (ready > 0 || segment->busy > 0)));
}

static inline void check_runs(struct run *run, bool with_content)
{
    const struct qsi_queue *queue = &run->fixture.queue;
    uint64_t end = 0, live_count = 0, bytes = 0;

    for (uint32_t i = 0; i < queue->run_count; i++) {
        const struct qsi_run *each = qsi_queue_run_at(queue, i);
        uint32_t live = 0;
        QS_CHECK(each->first_seq >= end && each->count > 0);
        end = each->first_seq + each->count;
        QS_CHECK(end <= run->model.count);
        for (uint32_t row = 0; row < each->count; row++) {
            const struct entry *entry = &run->model.entries[each->first_seq + row];
            live += is_live(entry);
            if (with_content && is_live(entry)) {
                check_row(each, row, &entry->message, entry->with_id);
            }
        }
        QS_CHECK(live == each->live_count && live > 0);
        live_count += live;
        bytes += each->ram_bytes;
    }
    QS_CHECK(queue->container.ram_count == live_count && queue->container.ram_bytes == bytes);
}

/* Where a live message is: the count of its state in what the walk has counted so far. */
static inline uint64_t *state_of(const struct run *run, uint64_t seq,
                                 struct qsi_queue_measure *walked)
{
    const struct qsi_queue *queue = &run->fixture.queue;
    uint32_t index = qsi_queue_find_run(queue, seq);

    if (qsi_queue_find_segment(queue, seq / run->fixture.shared.entries)->settled == NULL) {
        return &walked->delta;
    }
    if (index == queue->run_count || qsi_queue_run_at(queue, index)->first_seq > seq) {
        return &walked->gamma;
    }
    if (!run->model.entries[seq].message.stored) {
        return &walked->alpha;
    }
    return seq < queue->container.flushed_seq ? &walked->gamma : &walked->beta;
}

/* The queue, message by message from its head on, as RabbitMQ would sort them. */
static inline void walk(const struct run *run, struct qsi_queue_measure *walked)
{
    memset(walked, 0, sizeof *walked);
    for (uint64_t seq = 0; seq < run->model.count; seq++) {
        const struct entry *entry = &run->model.entries[seq];
        uint64_t *state = is_live(entry) ? state_of(run, seq, walked) : NULL;
        uint64_t *sub_queue;
        if (state == NULL) {
            continue;
        }
        *state += 1;
        if (entry->state != READY) {
            continue;
        }
        if (state == &walked->delta) {
            sub_queue = &walked->delta_len;
        } else if (state == &walked->alpha) {
            sub_queue = walked->q3 + walked->delta_len == 0 ? &walked->q4 : &walked->q1;
        } else {
            sub_queue = walked->delta_len == 0 ? &walked->q3 : &walked->q2;
        }
        *sub_queue += 1;
        walked->ahead += walked->delta_len == 0 ? 1 : 0;
    }
}

static inline void check_measure(struct run *run, bool driven)
{
    const struct qsi_queue *queue = &run->fixture.queue;
    struct qsi_queue_measure m, walked;

    qsi_queue_measure(queue, own_index(&run->fixture), &m);
    walk(run, &walked);
    QS_CHECK(m.alpha == walked.alpha && m.beta == walked.beta && m.gamma == walked.gamma &&
             m.delta == walked.delta);
    QS_CHECK(m.q1 == walked.q1 && m.q2 == walked.q2 && m.delta_len == walked.delta_len &&
             m.q3 == walked.q3 && m.q4 == walked.q4 && m.ahead == walked.ahead);
    QS_CHECK(m.alpha + m.beta + m.gamma + m.delta == queue->ready_count + queue->out_count);
    QS_CHECK(m.q1 + m.q2 + m.delta_len + m.q3 + m.q4 == queue->ready_count);
    QS_CHECK(m.q2 == 0 || m.delta_len > 0);
    QS_CHECK(m.alpha + m.beta <= queue->container.ram_count);
    if (driven) {
        QS_CHECK(m.q1 == 0 || m.q3 > 0);
        QS_CHECK(m.delta_len == 0 || m.q3 > 0);
        QS_CHECK(m.q3 + m.q4 > 0 || queue->ready_count == 0);
    }
}

/* The durable references as a checkpoint would tell them, body by body. */
static inline void check_counts(struct run *run, const uint32_t *durable)
{
    struct qsi_buf records = {0};
    uint64_t told = 0, expected = 0;
    uint32_t record_count = 0;

    QS_CHECK_OK(
        qsi_message_store_snapshot(run->fixture.messages, &records, &record_count, QS_ERROR));
    QS_CHECK_OK(qsi_message_store_unseal(run->fixture.messages, false, QS_ERROR));
    for (size_t at = 0; at < records.bytes; at += qsi_record_length(records.data + at)) {
        struct qsi_message_file_record file;
        uint32_t slot = 0;
        QS_CHECK_OK(qsi_message_file_record_decode(&file, records.data + at, QS_ERROR));
        for (uint32_t i = 0; i < file.run_count; i++) {
            uint32_t count, length;
            qsi_message_file_run(&file, i, &count, &length);
            for (uint32_t b = 0; b < run->body_count; b++) {
                const struct qsi_body_ref *ref = &run->bodies[b].ref;
                QS_CHECK(durable[b] == 0 || ref->file != file.number || ref->slot < slot ||
                         ref->slot - slot >= length || durable[b] == count);
            }
            told += (uint64_t)count * length;
            slot += length;
        }
    }
    for (uint32_t b = 0; b < run->body_count; b++) {
        expected += durable[b];
    }
    QS_CHECK(told == expected);
    qsi_buf_fini(&records);
}

static inline void check_references(struct run *run)
{
    static uint32_t durable[BODIES_MAX];
    static bool referenced[BODIES_MAX];
    uint64_t expected = 0;

    memset(referenced, 0, sizeof referenced);
    memset(durable, 0, sizeof durable);
    for (uint64_t seq = 0; seq < run->model.count; seq++) {
        const struct entry *entry = &run->model.entries[seq];
        if (!is_live(entry) || !entry->message.stored) {
            continue;
        }
        durable[entry->body] += run->fixture.queue.container.durable && !entry->transient ? 1 : 0;
        if (!referenced[entry->body]) {
            referenced[entry->body] = true;
            expected += qsi_body_packed_bytes(&entry->message.ref);
        }
    }
    check_counts(run, durable);
    QS_CHECK(referenced_bytes(&run->fixture) == expected);
}

static inline void check(struct run *run, bool thorough)
{
    const struct qsi_queue *queue = &run->fixture.queue;
    uint32_t entries = run->fixture.shared.entries;
    uint64_t ready = 0, out = 0;
    uint64_t found = 0;

    qsi_queue_check(queue);
    QS_CHECK(queue->container.next_seq == run->model.count &&
             queue->container.flushed_seq <= queue->container.next_seq);
    for (uint64_t seq = 0; seq < run->model.count; seq++) {
        const struct entry *entry = &run->model.entries[seq];
        ready += entry->state == READY;
        out += entry->state == OUT;
        if (is_live(entry) && seq >= queue->container.flushed_seq) { /* nowhere else */
            uint32_t index = qsi_queue_find_run(queue, seq);
            QS_CHECK(index < queue->run_count && qsi_queue_run_at(queue, index)->first_seq <= seq);
        }
    }
    QS_CHECK(queue->ready_count == ready && queue->out_count == out);
    for (uint32_t i = 0; i < queue->segment_count; i++) {
        const struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        QS_CHECK(i == 0 || qsi_queue_segment_at(queue, i - 1)->number < segment->number);
        QS_CHECK(segment->number * entries < queue->container.next_seq ||
                 segment->ready_count + segment->out_count == 0); /* room that was reserved */
        QS_CHECK(segment->queue == queue);
        check_segment(run, segment);
        found += segment->ready_count + segment->out_count;
    }
    QS_CHECK(found == ready + out);
    check_runs(run, thorough);
    check_measure(run, false);
    if (thorough && !run->saving) {
        release_all(&run->fixture, run->saved.exists);
        if (!run->loading
                 .begun) { /* a segment that was purged while its state was read waits for that */
            check_references(run);
        }
    }
}

#endif
