/* A queue that pages, and a plain list of messages: both are given the same random steps, and
 * compared after each.
 *
 * Jobs are begun, run and ended in different steps, with anything between; checkpoints are taken
 * as the engine does, and some time later the process dies and the queue begins again with what
 * the checkpoint named.  The seed is printed and is the first argument; the second is how many
 * rounds there are. */
#include "queue_fixture.h"

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
    struct qsi_buf bodies, carried;
    uint32_t body_records, carried_records;
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

static struct qs_test_alloc memory;

static uint32_t below(struct run *run, uint32_t limit)
{
    return (uint32_t)qsi_splitmix_below(&run->random, limit);
}

static bool one_in(struct run *run, uint32_t n)
{
    return below(run, n) == 0;
}

/* ---- comparing ---- */

static bool is_live(const struct entry *entry)
{
    return entry->state != SETTLED;
}

static void check_segment(const struct run *run, const struct qsi_segment *segment)
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

static void check_runs(struct run *run, bool with_content)
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

static void check_measure(struct run *run, bool driven)
{
    const struct qsi_queue *queue = &run->fixture.queue;
    struct qsi_queue_measure m;

    qsi_queue_measure(queue, own_index(&run->fixture), &m);
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
static void check_counts(struct run *run, const uint32_t *durable)
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

static void check_references(struct run *run)
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

static void check(struct run *run, bool thorough)
{
    const struct qsi_queue *queue = &run->fixture.queue;
    uint32_t entries = run->fixture.shared.entries;
    uint64_t ready = 0, out = 0;
    uint64_t found = 0;

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

/* ---- steps ---- */

static void add_entry(struct run *run, const struct message *message, bool with_id, bool journalled,
                      uint32_t body)
{
    run->model.entries[run->model.count++] = (struct entry){
        .message = *message,
        .with_id = with_id,
        .transient = run->fixture.queue.container.durable && (!journalled || message->mode == 1),
        .body = body,
    };
}

/* Sometimes a body that other messages have as well. */
static struct message random_message(struct run *run, bool stored, uint8_t mode, uint32_t *body)
{
    struct message message = make_message(&run->fixture, below(run, 60), mode, false);

    *body = 0;
    if (!stored || run->body_count == BODIES_MAX) {
        return message;
    }
    if (run->model.count > 0 && one_in(run, 4)) {
        const struct entry *other = &run->model.entries[run->model.count - 1];
        if (is_live(other) && other->message.stored) {
            *body = other->body;
            message.stored = true;
            message.ref = other->message.ref;
            message.body_bytes = other->message.body_bytes;
            return message;
        }
    }
    message.stored = true;
    message.body_bytes = 1 + below(run, 2000);
    message.ref = put_body(&run->fixture, message.body_bytes);
    *body = run->body_count;
    run->bodies[run->body_count++].ref = message.ref;
    return message;
}

static void step_push_single(struct run *run)
{
    bool durable = run->fixture.queue.container.durable;
    bool journalled = durable && !one_in(run, 5);
    uint32_t body;
    struct message message =
        random_message(run, one_in(run, 5), journalled ? 2 : 1 + (uint8_t)below(run, 2), &body);

    if (run->model.count + 1 >= MODEL_MAX) {
        return;
    }
    QS_CHECK(push_single(&run->fixture, &message, journalled) == run->model.count);
    add_entry(run, &message, true, journalled, body);
}

static void step_push_batch(struct run *run)
{
    static struct message messages[ROWS_MAX];
    static uint32_t bodies[ROWS_MAX];
    uint32_t count = 1 + below(run, one_in(run, 4) ? 200 : 20);
    uint32_t every = 1 + below(run, 2);
    bool journalled = run->fixture.queue.container.durable && !one_in(run, 6);
    bool mixed = one_in(run, 3);
    bool per_row = mixed || one_in(run, 2);
    bool any_stored = one_in(run, 3);

    if (run->model.count + count >= MODEL_MAX) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        messages[i] =
            random_message(run, any_stored && one_in(run, 3),
                           journalled && mixed && i > 0 && one_in(run, 3) ? 1 : 2, &bodies[i]);
    }
    QS_CHECK(push_batch(&run->fixture, messages, count, every, per_row, journalled) ==
             run->model.count);
    for (uint32_t i = 0; i < count; i++) {
        add_entry(run, &messages[i], per_row, journalled, bodies[i]);
    }
}

static uint64_t first_ready(const struct run *run)
{
    uint64_t seq = 0;

    while (seq < run->model.count && run->model.entries[seq].state != READY) {
        seq++;
    }
    return seq;
}

static bool in_memory(const struct run *run, uint64_t seq)
{
    const struct qsi_queue *queue = &run->fixture.queue;
    uint32_t index = qsi_queue_find_run(queue, seq);

    return index < queue->run_count && qsi_queue_run_at(queue, index)->first_seq <= seq;
}

static void step_take(struct run *run)
{
    struct qsi_queue *queue = &run->fixture.queue;
    uint32_t max = 1 + below(run, 70);
    uint64_t first = first_ready(run);
    struct qsi_stretch stretch;
    enum qsi_take taken = qsi_queue_take(queue, max, &stretch);
    uint32_t keep;

    if (taken == QSI_TAKE_EMPTY) {
        QS_CHECK(first == run->model.count);
        return;
    }
    QS_CHECK(first < run->model.count);
    if (taken == QSI_TAKE_PAGED) {
        QS_CHECK(!in_memory(run, first));
        run->paged_takes += 1;
        return;
    }
    QS_CHECK(stretch.segment->number * run->fixture.shared.entries + stretch.slot == first);
    QS_CHECK(stretch.count > 0 && stretch.count <= max);
    keep = stretch.count;
    if (one_in(run, 4)) {
        keep = below(run, stretch.count);
        qsi_queue_untake(queue, &stretch, keep);
    }
    for (uint32_t i = 0; i < keep; i++) {
        struct entry *entry = &run->model.entries[first + i];
        QS_CHECK(entry->state == READY);
        QS_CHECK(qsi_segment_was_seen(stretch.segment, stretch.slot + i) == entry->seen);
        QS_CHECK(qsi_segment_deliveries(stretch.segment, stretch.slot + i) == entry->deliveries);
        check_row(stretch.run, stretch.run_row + i, &entry->message, entry->with_id);
        entry->state = OUT;
        entry->seen = true;
    }
    if (keep > 0) {
        qsi_stretch_mark_seen(&stretch);
    }
}

static void step_settle(struct run *run, bool requeue)
{
    uint32_t entries = run->fixture.shared.entries;
    uint32_t width = entries < QSI_WORD_BITS ? entries : QSI_WORD_BITS;
    uint64_t mask = 0, word_seq = 0;
    struct qsi_segment *segment;

    for (int tries = 0; tries < 50 && mask == 0 && run->model.count > 0; tries++) {
        word_seq = below(run, (uint32_t)run->model.count) / width * width;
        for (uint32_t i = 0; i < width && word_seq + i < run->model.count; i++) {
            struct entry *entry = &run->model.entries[word_seq + i];
            if (entry->state == OUT && (mask == 0 || !one_in(run, 3))) {
                mask |= UINT64_C(1) << i;
                entry->state = requeue ? READY : SETTLED;
                entry->deliveries += requeue ? 1 : 0;
            }
        }
    }
    if (mask == 0) {
        return;
    }
    segment = qsi_queue_find_segment(&run->fixture.queue, word_seq / entries);
    QS_CHECK(segment != NULL);
    if (requeue) {
        qsi_queue_requeue(&run->fixture.queue, segment,
                          (uint32_t)(word_seq % entries) / QSI_WORD_BITS, mask);
    } else {
        qsi_queue_settle(&run->fixture.queue, segment,
                         (uint32_t)(word_seq % entries) / QSI_WORD_BITS, mask);
    }
}

static void visit_purged(void *context, uint64_t first_seq, uint32_t count)
{
    struct run *run = context;

    for (uint32_t i = 0; i < count; i++) {
        QS_CHECK(run->model.entries[first_seq + i].state != OUT);
        run->model.entries[first_seq + i].state = SETTLED;
    }
}

static void step_purge(struct run *run)
{
    uint64_t ready = run->fixture.queue.ready_count;
    uint64_t most = qsi_queue_purge_ranges(&run->fixture.queue);

    QS_CHECK((most > 0) == (ready > 0));
    QS_CHECK(qsi_queue_purge(&run->fixture.queue, visit_purged, run) == ready);
    QS_CHECK(first_ready(run) == run->model.count);
}

static void step_skip(struct run *run, uint64_t seq)
{
    QS_CHECK_OK(qsi_queue_skip_to(&run->fixture.queue, seq));
    while (run->model.count < seq) {
        run->model.entries[run->model.count++] = (struct entry){.state = SETTLED};
    }
}

/* Room that is never used. */
static void step_reserve(struct run *run)
{
    QS_CHECK_OK(qsi_queue_reserve(&run->fixture.queue, 1 + below(run, 3), 1 + below(run, 300),
                                  one_in(run, 2)));
}

/* ---- jobs, a step at a time ---- */

static void advance_flush(struct run *run)
{
    struct fixture *fixture = &run->fixture;
    qs_status status;

    if (!run->flushing.begun) {
        status = qsi_flush_begin(&run->flush, &fixture->queue, fixture->queue.container.flushed_seq,
                                 one_in(run, 2) ? UINT64_MAX : 1 + below(run, 3000));
        run->flushing = (struct job){status == QS_OK, false};
        QS_CHECK(status == QS_OK || (status == QS_EEMPTY && fixture->queue.container.flushed_seq ==
                                                                fixture->queue.container.next_seq));
        return;
    }
    if (!run->flushing.was_run && !one_in(run, 10)) {
        QS_CHECK_OK(
            qsi_flush_run(&run->flush, own_index(fixture), fixture->transient_index, QS_ERROR));
        run->flushing.was_run = true;
        return;
    }
    qsi_flush_end(&run->flush, run->flushing.was_run);
    run->flushing.begun = false;
}

static void advance_load(struct run *run)
{
    struct fixture *fixture = &run->fixture;
    qs_status status;

    if (!run->loading.begun) {
        status = qsi_page_in_begin(&run->page_in, &fixture->queue, 1 + below(run, 2000));
        run->loading = (struct job){status == QS_OK, false};
        QS_CHECK(status == QS_OK || status == QS_EEMPTY || status == QS_EEXIST);
        QS_CHECK(status != QS_EEXIST || run->flushing.begun || run->writing.begun);
        QS_CHECK(status != QS_EEMPTY || first_ready(run) == run->model.count ||
                 in_memory(run, first_ready(run)));
        return;
    }
    if (!run->loading.was_run && !one_in(run, 10)) {
        QS_CHECK_OK(
            qsi_page_in_run(&run->page_in, own_index(fixture), fixture->transient_index, QS_ERROR));
        QS_CHECK(run->page_in.load.damaged_count == 0);
        run->loading.was_run = true;
        return;
    }
    *(run->page_in.of_state ? &run->state_loads : &run->loads) += 1;
    run->transient_loads += run->page_in.transient != NULL;
    QS_CHECK_OK(qsi_page_in_end(&run->page_in, run->loading.was_run));
    run->loading.begun = false;
}

static void advance_write(struct run *run)
{
    struct fixture *fixture = &run->fixture;
    struct qsi_segment *segment;

    if (!run->writing.begun) {
        segment = qsi_queue_dirty_state(&fixture->queue, 0);
        if (segment != NULL) {
            QS_CHECK_OK(qsi_state_write_begin(&run->write, &fixture->queue, segment));
            run->writing = (struct job){true, false};
        }
        return;
    }
    if (!run->writing.was_run && !one_in(run, 10)) {
        QS_CHECK_OK(qsi_state_write_run(&run->write, own_index(fixture), fixture->transient_index,
                                        QS_ERROR));
        run->writing.was_run = true;
        return;
    }
    qsi_state_write_end(&run->write, run->writing.was_run);
    run->writing.begun = false;
}

static void finish_jobs(struct run *run)
{
    while (run->flushing.begun) {
        advance_flush(run);
    }
    while (run->loading.begun) {
        advance_load(run);
    }
    while (run->writing.begun) {
        advance_write(run);
    }
}

/* What a consumer makes the pager do: a segment's worth in memory, or all of it. */
static void drive(struct run *run)
{
    bool missing;
    uint32_t guard = 0;

    finish_jobs(run);
    while (qsi_queue_ready_in_memory(&run->fixture.queue, run->fixture.shared.entries, &missing) <
               run->fixture.shared.entries &&
           missing) {
        QS_CHECK(guard++ < MODEL_MAX);
        QS_CHECK_OK(page_in(&run->fixture, 500));
    }
    check_measure(run, true);
}

/* A sparse segment is written anew. */
static void step_rewrite(struct run *run)
{
    struct fixture *fixture = &run->fixture;
    struct qsi_queue *queue = &fixture->queue;
    uint32_t words = qsi_bitmap_words(fixture->shared.entries);

    for (uint32_t i = 0; i < queue->segment_count; i++) {
        struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        struct qsi_segment_file from = segment->file, to;
        struct qsi_state_write state;
        uint64_t live[8] = {0};
        bool named = segment->named;
        if (from.heap_end == 0 || segment->busy > 0 || segment->settled == NULL ||
            segment->has_releases || /* the new file would lack what they are to be read from */
            (segment->number + 1) * fixture->shared.entries > queue->container.flushed_seq ||
            (qsi_segment_live_count(segment) - segment->transient_count) * 2 > from.slot_count) {
            continue;
        }
        QS_CHECK_OK(qsi_state_write_begin_file(&state, queue, segment));
        for (uint32_t word = 0; word < words; word++) {
            uint64_t bits = qsi_segment_live(queue, segment, word);
            live[word] = bits != 0 ? qsi_segment_journalled(segment, word, bits) : 0;
        }
        QS_CHECK_OK(
            qsi_segment_rewrite(own_index(fixture), &from, live, &state.state, &to, QS_ERROR));
        state.file = to;
        segment->file = to;
        segment->named = false;
        segment->durable_area = 0;
        qsi_state_write_end(&state, true);
        if (!named || !queue->container.durable) {
            remove_file(own_index(fixture), &from);
        }
        run->rewrites += 1;
        return;
    }
}

/* ---- checkpoints ---- */

static uint32_t journalled_below(const struct run *run, const struct qsi_segment *segment,
                                 uint64_t seq)
{
    uint32_t count = 0;

    for (uint32_t slot = 0; slot < run->fixture.shared.entries; slot++) {
        uint64_t each = segment->number * run->fixture.shared.entries + slot;
        if (each < seq && each < run->model.count) {
            const struct entry *entry = &run->model.entries[each];
            count += is_live(entry) && !entry->transient;
        }
    }
    return count;
}

struct state_job {
    struct qsi_state_write write;
    uint32_t entry;
};

struct checkpoint {
    struct qsi_flush flushes[JOBS_MAX];
    uint32_t flush_entries[JOBS_MAX];
    struct state_job states[JOBS_MAX];
    uint32_t flush_count, state_count;
    bool carry;
};

static bool ends_on_page(const struct run *run)
{
    const struct qsi_queue *queue = &run->fixture.queue;
    uint32_t entries = run->fixture.shared.entries;
    const struct qsi_segment *segment =
        qsi_queue_find_segment(queue, queue->container.flushed_seq / entries);

    return (queue->container.flushed_seq & (entries - 1)) % QSI_SLOT_PAGE == 0 || segment == NULL ||
           segment->file.heap_end == 0;
}

static void begin_state(struct run *run, struct checkpoint *checkpoint, struct qsi_segment *segment,
                        uint64_t base_seq, uint32_t entry)
{
    struct qsi_queue *queue = &run->fixture.queue;
    struct state_job *job = &checkpoint->states[checkpoint->state_count++];
    uint64_t first = segment->number * run->fixture.shared.entries;
    uint32_t bits = qsi_bitmap_words(run->fixture.shared.entries) * QSI_WORD_BITS;

    QS_CHECK_OK(qsi_state_write_begin_file(&job->write, queue, segment));
    job->entry = entry;
    if (base_seq < queue->container.next_seq && base_seq - first < bits) {
        for (uint32_t slot = (uint32_t)(base_seq - first); slot < bits; slot++) {
            job->write.state.settled[slot / 64] &= ~(UINT64_C(1) << slot % 64);
            job->write.state.seen[slot / 64] &= ~(UINT64_C(1) << slot % 64);
            if (job->write.state.deliveries != NULL) { /* what is carried brings its own */
                job->write.state.deliveries[slot] = 0;
            }
        }
        job->write.version -= 1;
    }
}

static void put_segment(struct run *run, struct checkpoint *checkpoint, struct qsi_segment *segment)
{
    struct saved *saved = &run->saved;
    uint32_t live = journalled_below(run, segment, saved->base_seq);
    uint32_t entry = saved->file_count;

    if (live == 0) {
        return;
    }
    saved->files[entry] = segment->file;
    saved->live_counts[entry] = live;
    saved->seen_ends[entry] = segment->seen_end;
    if (saved->base_seq - segment->number * run->fixture.shared.entries < segment->seen_end) {
        saved->seen_ends[entry] = /* what is carried brings its own */
            (uint32_t)(saved->base_seq - segment->number * run->fixture.shared.entries);
    }
    saved->has_stored[entry] = segment->has_stored;
    saved->file_count += 1;
    QS_CHECK(saved->file_count < JOBS_MAX);
    if (segment->settled != NULL && segment->state_dirty) {
        begin_state(run, checkpoint, segment, saved->base_seq, entry);
    }
    segment->file_dirty = false;
    segment->named = true;
    segment->page_aligned = true;
}

static void snapshot(struct run *run, struct checkpoint *checkpoint)
{
    struct qsi_queue *queue = &run->fixture.queue;
    struct saved *saved = &run->saved;
    uint32_t entries = run->fixture.shared.entries;
    uint64_t seq = queue->container.flushed_seq;

    checkpoint->carry = one_in(run, 2) && ends_on_page(run);
    for (qs_status status; seq < queue->container.next_seq;
         seq = checkpoint->flushes[checkpoint->flush_count++].end_seq) {
        struct qsi_flush *flush = &checkpoint->flushes[checkpoint->flush_count];
        QS_CHECK(checkpoint->flush_count < JOBS_MAX);
        status = qsi_flush_begin(flush, queue, seq, UINT64_MAX);
        if (status == QS_EEMPTY) {
            break;
        }
        QS_CHECK(status == QS_OK && flush->end_seq > seq);
        flush->is_named = true;
    }
    if (checkpoint->carry) {
        saved->base_seq = queue->container.flushed_seq;
    } else {
        if (!ends_on_page(run) || queue->container.flushed_seq != queue->container.next_seq) {
            uint64_t segment_end = (queue->container.next_seq / entries + 1) * entries;
            uint64_t page_end =
                (queue->container.next_seq + QSI_SLOT_PAGE - 1) / QSI_SLOT_PAGE * QSI_SLOT_PAGE;
            step_skip(run, page_end < segment_end ? page_end : segment_end);
        }
        saved->base_seq = queue->container.next_seq;
    }
    saved->next_seq = queue->container.next_seq;
    for (uint32_t i = 0; i < queue->segment_count; i++) {
        struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        if (segment->number * entries < saved->base_seq) {
            put_segment(run, checkpoint, segment);
        }
    }
    for (uint32_t i = 0; i < checkpoint->flush_count; i++) {
        checkpoint->flush_entries[i] = UINT32_MAX;
        for (uint32_t k = 0; k < saved->file_count; k++) {
            if (saved->files[k].number == checkpoint->flushes[i].segment->number) {
                checkpoint->flush_entries[i] = k;
            }
        }
    }
    QS_CHECK_OK(qsi_message_store_snapshot(run->fixture.messages, &saved->bodies,
                                           &saved->body_records, QS_ERROR));
    saved->model = run->model;
}

static void random_step(struct run *run);

static void step_save(struct run *run)
{
    static struct checkpoint checkpoint;
    struct fixture *fixture = &run->fixture;
    struct saved *saved = &run->saved;
    uint32_t others = below(run, 12);

    finish_jobs(run);
    if (run->model.count + 2 * QSI_SLOT_PAGE >= MODEL_MAX) {
        return;
    }
    release_all(fixture, saved->exists);
    memset(&checkpoint, 0, sizeof checkpoint);
    qsi_buf_clear(&saved->bodies);
    qsi_buf_clear(&saved->carried);
    saved->file_count = saved->body_records = saved->carried_records = 0;
    snapshot(run, &checkpoint);
    check(run, true);
    run->saving = true;
    while (others-- > 0) {
        random_step(run);
    }
    for (uint32_t i = 0; i < checkpoint.flush_count; i++) {
        struct qsi_flush *flush = &checkpoint.flushes[i];
        if (checkpoint.carry) {
            QS_CHECK_OK(qsi_flush_encode(flush, &saved->carried, &saved->carried_records));
            qsi_flush_end(flush, false);
            continue;
        }
        qsi_flush_refresh(flush);
        QS_CHECK_OK(qsi_flush_run(flush, fixture->index, fixture->transient_index, QS_ERROR));
        if (checkpoint.flush_entries[i] != UINT32_MAX) {
            saved->files[checkpoint.flush_entries[i]] = flush->file;
        }
        qsi_flush_end(flush, true);
    }
    for (uint32_t i = 0; i < checkpoint.state_count; i++) {
        struct state_job *job = &checkpoint.states[i];
        job->write.file = saved->files[job->entry];
        QS_CHECK_OK(
            qsi_state_write_run(&job->write, fixture->index, fixture->transient_index, QS_ERROR));
        saved->files[job->entry].state_area = job->write.file.state_area;
        saved->files[job->entry].state_crc = job->write.file.state_crc;
        qsi_state_write_end(&job->write, true);
    }
    QS_CHECK_OK(qsi_message_store_unseal(fixture->messages, true, QS_ERROR));
    for (uint32_t i = 0; i < fixture->queue.segment_count; i++) {
        struct qsi_segment *segment = qsi_queue_segment_at(&fixture->queue, i);
        segment->durable_area = segment->file.state_area;
    }
    run->saving = false;
    saved->exists = true;
    run->saves += 1;
}

static bool is_named(void *context, const struct qsi_segment_file *file)
{
    const struct saved *saved = context;

    for (uint32_t i = 0; i < saved->file_count; i++) {
        if (saved->files[i].number == file->number &&
            saved->files[i].generation == file->generation) {
            return true;
        }
    }
    return false;
}

static bool is_none(void *context, const struct qsi_segment_file *file)
{
    (void)context;
    (void)file;
    return false;
}

static void restore_bodies(struct run *run)
{
    const struct qsi_buf *records = &run->saved.bodies;

    qsi_message_store_close(run->fixture.messages);
    open_messages(&run->fixture);
    for (size_t at = 0; at < records->bytes; at += qsi_record_length(records->data + at)) {
        QS_CHECK_OK(qsi_message_store_restore(run->fixture.messages, records->data + at, QS_ERROR));
    }
}

static void push_carried(struct run *run, const uint8_t *record)
{
    struct fixture *fixture = &run->fixture;
    struct qsi_queue *queue = &fixture->queue;
    uint32_t bytes = qsi_record_length(record);
    struct qsi_chunk *chunk = make_chunk(fixture, bytes);
    struct qsi_messages view;
    struct qsi_run *pushed;
    uint64_t seq;

    memcpy(chunk->data, record, bytes);
    chunk->used = bytes;
    QS_CHECK_OK(qsi_messages_check(chunk->data, QS_ERROR));
    qsi_messages_view(&view, chunk->data);
    seq = qsi_messages_destination_seq(&view, 0);
    QS_CHECK(qsi_messages_destination_queue(&view, 0) == QUEUE_ID &&
             seq >= queue->container.next_seq);
    QS_CHECK_OK(qsi_queue_skip_to(queue, seq));
    if (view.row_count == 1) {
        QS_CHECK_OK(qsi_queue_reserve_message(queue, chunk, true));
        QS_CHECK(qsi_queue_push_message(queue, chunk, 0, bytes, true,
                                        qsi_messages_is_stored(&view, 0)) == seq);
    } else {
        QS_CHECK_OK(qsi_queue_reserve(queue, 1, view.row_count, false));
        QS_CHECK_OK(qsi_run_create(&pushed, chunk, 0, view.row_count, NULL, true));
        pushed->ram_bytes = bytes;
        QS_CHECK(qsi_queue_push_run(queue, pushed) == seq);
    }
    qsi_chunk_unref(chunk);
}

static void replay_carried(struct run *run)
{
    const struct qsi_buf *records = &run->saved.carried;
    uint32_t count = 0;

    run->fixture.shared.messages = NULL; /* the checkpoint has counted them */
    for (size_t at = 0; at < records->bytes; count++) {
        const uint8_t *record = records->data + at;
        QS_CHECK(qsi_record_fits(record, records->bytes - at));
        if (qsi_record_type(record) == QSI_RECORD_MESSAGES) {
            push_carried(run, record);
        } else {
            struct qsi_settle settle;
            QS_CHECK_OK(qsi_settle_decode(&settle, record, QS_ERROR));
            QS_CHECK(settle.queue_id == QUEUE_ID && settle.kind == QSI_SETTLE_REQUEUE);
            QS_CHECK_OK(qsi_queue_replay_settle(&run->fixture.queue, &settle));
        }
        at += qsi_record_length(record);
    }
    QS_CHECK(count == run->saved.carried_records);
    run->fixture.shared.messages = run->fixture.messages;
}

/* A requeue of what was out when the checkpoint was made may count that delivery a second time. */
static bool any_was_out(const struct run *run, uint64_t from, uint32_t count)
{
    for (uint64_t seq = from; seq < from + count && seq < run->model.count; seq++) {
        if (run->model.entries[seq].was_out) {
            return true;
        }
    }
    return false;
}

/* The journal behind the checkpoint: some of it was acknowledged, some requeued. */
static void replay_some(struct run *run)
{
    struct qsi_queue *queue = &run->fixture.queue;

    for (uint32_t n = below(run, 6); n > 0 && run->model.count > 0; n--) {
        bool requeue = one_in(run, 3);
        uint64_t from = below(run, (uint32_t)run->model.count);
        struct qsi_settle settle = {QUEUE_ID, from, 1 + below(run, one_in(run, 3) ? 600 : 20),
                                    QSI_SETTLE_ACK, 0};
        struct qsi_segment *segment;
        if (requeue) { /* of a whole segment it is only known that it was delivered */
            settle.kind = QSI_SETTLE_REQUEUE;
            settle.count = 1 + below(run, run->fixture.shared.entries - 1);
            if (any_was_out(run, from, settle.count)) {
                continue;
            }
        }
        while ((segment = qsi_queue_needs_state(queue, &settle)) != NULL) {
            QS_CHECK(segment->settled == NULL);
            load_state(&run->fixture, segment);
        }
        QS_CHECK_OK(qsi_queue_replay_settle(queue, &settle));
        for (uint64_t seq = from; seq < from + settle.count && seq < run->model.count; seq++) {
            struct entry *entry = &run->model.entries[seq];
            if (requeue && entry->state == READY) {
                entry->deliveries += 1;
                entry->seen = true;
            } else if (!requeue) {
                entry->state = SETTLED;
            }
        }
    }
}

static void enter_next_life(struct run *run)
{
    bool any_out = false;

    for (uint64_t seq = 0; seq < run->model.count; seq++) {
        struct entry *entry = &run->model.entries[seq];
        any_out = any_out || entry->state == OUT;
        if (entry->transient) {
            entry->state = SETTLED;
        } else if (entry->state == OUT) { /* it was told as delivered once, if it never came back */
            entry->state = READY;
            entry->was_out = true;
            entry->deliveries = entry->deliveries > 0 ? entry->deliveries : 1;
        }
        entry->transient = false;
    }
}

static void mark_all_seen(struct run *run)
{
    QS_CHECK_OK(qsi_queue_mark_all_seen(&run->fixture.queue));
    for (uint64_t seq = 0; seq < run->model.count; seq++) {
        struct entry *entry = &run->model.entries[seq];
        entry->seen = true;
        entry->deliveries = entry->deliveries > 0 ? entry->deliveries : 1;
    }
}

static void step_crash(struct run *run)
{
    struct fixture *fixture = &run->fixture;
    struct saved *saved = &run->saved;
    uint32_t entries = fixture->shared.entries;
    struct qsi_queue *queue = &fixture->queue;
    struct qsi_segment *last;
    uint64_t removed;

    finish_jobs(run);
    release_all(fixture, true);
    close_queue(fixture);
    restore_bodies(run);
    QS_CHECK_OK(qsi_index_remove_others(fixture->index, is_named, saved, &removed, QS_ERROR));
    QS_CHECK_OK(
        qsi_index_remove_others(fixture->transient_index, is_none, NULL, &removed, QS_ERROR));
    open_queue(fixture, entries, true);
    run->model = saved->model;
    enter_next_life(run);
    for (uint32_t i = 0; i < saved->file_count; i++) {
        QS_CHECK_OK(qsi_queue_restore(queue, &(struct qsi_restored_segment){
                                                 .file = &saved->files[i],
                                                 .ready_count = saved->live_counts[i],
                                                 .seen_end = saved->seen_ends[i],
                                                 .has_stored = saved->has_stored[i],
                                             }));
    }
    queue->container.next_seq = queue->container.flushed_seq = saved->base_seq;
    last = qsi_queue_find_segment(queue, saved->base_seq / entries);
    if (last != NULL) {
        load_state(fixture, last);
    }
    replay_carried(run);
    QS_CHECK_OK(qsi_queue_skip_to(queue, saved->next_seq));
    if (queue->run_count == 0) {
        queue->container.flushed_seq = queue->container.next_seq;
    }
    replay_some(run);
    mark_all_seen(run);
    for (uint32_t i = queue->scan; i < queue->segment_count; i++) { /* the head */
        struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        if (segment->ready_count > 0) {
            if (segment->settled == NULL) {
                load_state(fixture, segment);
            }
            break;
        }
    }
    release_all(fixture, true);
    QS_CHECK_OK(qsi_message_store_retain_counted(fixture->messages, QSI_RETAIN, QS_ERROR));
    QS_CHECK_OK(qsi_message_store_trim_counted(fixture->messages, QS_ERROR));
    run->crashes += 1;
    check(run, true);
    drive(run);
    step_save(run); /* what the old one named may be changed from now on */
}

/* ---- all of it ---- */

/* Those that the engine may take while a checkpoint is being written. */
static void random_step(struct run *run)
{
    uint32_t choice = below(run, 100);

    if (choice < 20) {
        step_push_single(run);
    } else if (choice < 26) {
        step_push_batch(run);
    } else if (choice < 58) {
        step_take(run);
    } else if (choice < 84) {
        step_settle(run, false);
    } else if (choice < 97) {
        step_settle(run, true);
    } else if (choice < 98) {
        step_reserve(run);
    } else if (one_in(run, 6)) {
        step_purge(run);
    }
    check(run, false);
}

static void paging_step(struct run *run)
{
    uint32_t choice = below(run, 100);

    if (choice < 25) {
        advance_flush(run);
    } else if (choice < 50) {
        advance_load(run);
    } else if (choice < 65) {
        advance_write(run);
    } else if (choice < 75) {
        qsi_queue_drop_content(&run->fixture.queue, below(run, 200), 1 + below(run, 20000));
    } else if (choice < 85) {
        qsi_queue_drop_states(&run->fixture.queue);
    } else if (choice < 90) {
        drive(run);
    } else if (choice < 92) {
        step_rewrite(run);
    } else if (choice < 94 && run->model.count + 600 < MODEL_MAX) {
        if (!run->flushing
                 .begun) { /* the engine skips in recovery, and when it begins a checkpoint */
            step_skip(run, run->model.count + below(run, one_in(run, 4) ? 500 : 10));
        }
    } else if (choice < 96 && run->fixture.queue.container.durable) {
        step_save(run);
    } else if (choice < 97 && run->saved.exists) {
        step_crash(run);
    }
    check(run, one_in(run, 10));
}

static void round_of_steps(struct run *run, uint64_t seed, uint32_t entries, bool durable)
{
    memset(run, 0, sizeof *run);
    run->random = seed;
    start(&run->fixture, entries, durable);
    for (int step = 0; step < 6000 && run->model.count + 300 < MODEL_MAX; step++) {
        if (one_in(run, 2)) {
            random_step(run);
        } else {
            paging_step(run);
        }
    }
    finish_jobs(run);
    check(run, true);
    while (run->fixture.queue.ready_count > 0) { /* all of it comes out in the end */
        drive(run);
        step_take(run);
        check(run, false);
    }
    while (run->fixture.queue.out_count > 0) {
        step_settle(run, false);
    }
    release_all(&run->fixture, false);
    QS_CHECK(referenced_bytes(&run->fixture) == 0);
    qsi_buf_fini(&run->saved.bodies);
    qsi_buf_fini(&run->saved.carried);
    stop(&run->fixture);
}

int main(int argc, char **argv)
{
    static struct run run;
    uint64_t seed = qs_test_seed(argc, argv);
    uint64_t rounds = argc > 2 ? strtoull(argv[2], NULL, 0) : 12;
    const uint32_t entries[] = {64, 16, 256};
    uint64_t saves = 0, crashes = 0, loads = 0, state_loads = 0, transient_loads = 0;
    uint64_t rewrites = 0, paged = 0;

    qs_test_alloc_install(&memory);
    for (uint64_t i = 0; i < rounds; i++) {
        fprintf(stderr, "round %" PRIu64 "\n", i);
        round_of_steps(&run, seed * 1000 + i, entries[i % 3], i % 4 != 3);
        saves += run.saves;
        crashes += run.crashes;
        loads += run.loads;
        state_loads += run.state_loads;
        transient_loads += run.transient_loads;
        rewrites += run.rewrites;
        paged += run.paged_takes;
    }
    printf("%" PRIu64 " checkpoints, %" PRIu64 " crashes, %" PRIu64 " loads, %" PRIu64
           " of states, %" PRIu64 " of them with transient messages, %" PRIu64
           " rewritten, %" PRIu64 " takes found nothing in memory\n",
           saves, crashes, loads, state_loads, transient_loads, rewrites, paged);
    QS_CHECK(transient_loads > 0 || rounds < 12);
    QS_CHECK(memory.alive == 0);
    qs_allocator_set(NULL);
    return 0;
}
