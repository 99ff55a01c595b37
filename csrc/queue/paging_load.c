/* Loading: what ready messages lack in memory, and the jobs that bring it.  Invariants: state comes before content; what a job brings is
 * looked at again at end, because messages may have been settled in between; content that cannot be read becomes damaged messages,
 * so that they do not stand in the way of others. */
#include "alloc.h"
#include "check.h"
#include "paging.h"
#include "queue_internal.h"

#include <string.h>

/* ---- what is missing ---- */

/* The first ready slot from slot on whose content is not in memory; end_out: where the next run begins.  False: none is. */
static bool first_missing(const struct qsi_queue *queue, const struct qsi_segment *segment,
                          uint32_t slot, uint32_t *slot_out, uint32_t *end_out)
{
    uint32_t entries = queue->shared->entries;
    uint64_t first_seq = qsi_segment_first_seq(queue->shared, segment);

    while (slot < entries) {
        uint32_t word = slot / QSI_WORD_BITS;
        uint64_t ready =
            qsi_segment_ready(queue, segment, word) & qsi_word_range(word, slot, entries);
        uint32_t index;
        if (ready == 0) {
            slot = (word + 1) * QSI_WORD_BITS;
            continue;
        }
        slot = word * QSI_WORD_BITS + (uint32_t)__builtin_ctzll(ready);
        index = qsi_queue_find_run(queue, first_seq + slot);
        *slot_out = slot;
        *end_out = entries;
        if (index == queue->run_count) {
            return true;
        }
        const struct qsi_run *run = qsi_queue_run_at(queue, index);
        if (run->first_seq > first_seq + slot) {
            if (run->first_seq < first_seq + entries) {
                *end_out = (uint32_t)(run->first_seq - first_seq);
            }
            return true;
        }
        if (run->first_seq + run->count >= first_seq + entries) {
            return false;
        }
        slot = (uint32_t)(run->first_seq + run->count - first_seq);
    }
    return false;
}

static bool all_in_memory(const struct qsi_queue *queue)
{
    return queue->ram_count == queue->ready_count + queue->out_count + queue->delayed_count;
}

uint32_t qsi_queue_next_paged(const struct qsi_queue *queue, uint32_t index)
{
    uint32_t slot, end;

    for (uint32_t i = index; i < queue->segment_count; i++) {
        const struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        if (segment->ready_count > 0 && segment->aside_for == NULL &&
            (segment->settled == NULL || first_missing(queue, segment, 0, &slot, &end))) {
            return i;
        }
    }
    return queue->segment_count;
}

uint32_t qsi_queue_first_paged(const struct qsi_queue *queue)
{
    return all_in_memory(queue) ? queue->segment_count : qsi_queue_next_paged(queue, queue->scan);
}

uint64_t qsi_queue_ready_in_memory(struct qsi_queue *queue, uint64_t limit, bool *missing_out)
{
    uint64_t count = 0;

    *missing_out = false;
    if (all_in_memory(queue)) {
        return queue->ready_count < limit ? queue->ready_count : limit;
    }
    for (uint32_t i = queue->scan; i < queue->segment_count && count < limit; i++) {
        const struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        uint32_t slot = queue->shared->entries, end;
        if (segment->ready_count == 0 || segment->aside_for != NULL) {
            continue;
        }
        *missing_out = segment->settled == NULL || first_missing(queue, segment, 0, &slot, &end);
        if (!*missing_out) {
            count += segment->ready_count;
            continue;
        }
        for (uint32_t word = 0; segment->settled != NULL && word < qsi_bitmap_words(slot); word++) {
            count += qsi_popcount(qsi_segment_ready(queue, segment, word) &
                                  qsi_word_range(word, 0, slot));
        }
        break;
    }
    return count < limit ? count : limit;
}

/* ---- jobs ---- */

static void free_page_in(struct qsi_page_in *page_in)
{
    qsi_free(page_in->state.settled);
    qsi_free(page_in->state.seen);
    qsi_free(page_in->state.deliveries);
    qsi_free(page_in->state.expiries);
    qsi_free(page_in->state.sizes);
    qsi_free(page_in->transient);
    qsi_free(page_in->state.dues);
    qsi_free((void *)(uintptr_t)page_in->load.wanted);
    qsi_chunk_unref(page_in->load.chunk);
    qsi_free(page_in->load.rows);
    memset(page_in, 0, sizeof *page_in);
}

qs_status qsi_page_in_state(struct qsi_page_in *page_in, struct qsi_segment *segment)
{
    struct qsi_queue *queue = segment->queue;
    size_t bytes = qsi_queue_words(queue) * sizeof(uint64_t);

    memset(page_in, 0, sizeof *page_in);
    page_in->queue = queue;
    page_in->segment = segment;
    page_in->file = segment->file;
    page_in->of_state = true;
    page_in->state.settled = qsi_zalloc(bytes);
    page_in->state.seen = qsi_zalloc(bytes);
    /* Columns are rare, and large: they are made without the lock, where the file has them. */
    page_in->state.wanted =
        QSI_STATE_DELIVERIES | QSI_STATE_EXPIRIES | QSI_STATE_SIZES | QSI_STATE_DUES;
    if (segment->transient_count > 0) {
        page_in->transient_file = segment->transient_file;
        page_in->transient = qsi_zalloc(bytes);
    }
    if (page_in->state.settled == NULL || page_in->state.seen == NULL ||
        (segment->transient_count > 0 && page_in->transient == NULL)) {
        free_page_in(page_in);
        return QS_ENOMEM;
    }
    segment->busy += 1;
    return QS_OK;
}

/* Live messages in slots [slot, end), all of one file. */
static qs_status begin_content(struct qsi_page_in *page_in, struct qsi_queue *queue,
                               struct qsi_segment *segment, uint32_t slot, uint32_t end,
                               uint64_t bytes_max)
{
    uint64_t *wanted = qsi_zalloc(qsi_queue_words(queue) * sizeof *wanted);
    bool mixed =
        queue->durable && (segment->transient_file.heap_end > 0 || segment->former_count > 0);

    memset(page_in, 0, sizeof *page_in);
    if (wanted == NULL) {
        return QS_ENOMEM;
    }
    page_in->queue = queue;
    page_in->segment = segment;
    page_in->of_transients =
        mixed &&
        (qsi_segment_transient(segment, slot / QSI_WORD_BITS) >> (slot % QSI_WORD_BITS) & 1) != 0;
    page_in->file = *qsi_segment_file_of(segment, slot, page_in->of_transients, &end);
    for (uint32_t word = slot / QSI_WORD_BITS; word < qsi_bitmap_words(end); word++) {
        uint64_t live = qsi_segment_live(queue, segment, word) & qsi_word_range(word, slot, end);
        uint64_t transient = qsi_segment_transient(segment, word);
        uint64_t other = !mixed ? 0 : live & (page_in->of_transients ? ~transient : transient);
        wanted[word] = live;
        if (other != 0) { /* up to the first message that lies in the other file */
            end = word * QSI_WORD_BITS + (uint32_t)__builtin_ctzll(other);
            wanted[word] &= qsi_word_range(word, slot, end);
            break;
        }
    }
    page_in->load = (struct qsi_segment_load){
        .from = slot, .to = end, .wanted = wanted, .bytes_max = bytes_max};
    segment->busy += 1;
    return QS_OK;
}

qs_status qsi_page_in_begin(struct qsi_page_in *page_in, struct qsi_queue *queue,
                            uint64_t bytes_max)
{
    uint32_t index = qsi_queue_first_paged(queue);
    struct qsi_segment *segment;
    uint32_t slot = 0, end = 0;

    if (index == queue->segment_count) {
        return QS_EEMPTY;
    }
    segment = qsi_queue_segment_at(queue, index);
    if (segment->busy > 0) {
        return QS_EEXIST;
    }
    if (segment->settled == NULL) {
        return qsi_page_in_state(page_in, segment);
    }
    /* The state of the one that is read after it first: while delta is not empty, q3 is not. */
    index = qsi_queue_next_paged(queue, index + 1);
    if (index < queue->segment_count) {
        struct qsi_segment *next = qsi_queue_segment_at(queue, index);
        if (next->settled == NULL && next->busy == 0 && !next->is_damaged) {
            QS_TRY(qsi_page_in_state(page_in, next));
            page_in->is_ahead = true;
            return QS_OK;
        }
    }
    if (!first_missing(queue, segment, 0, &slot, &end)) {
        QS_ASSERT(false);
    }
    return begin_content(page_in, queue, segment, slot, end, bytes_max);
}

qs_status qsi_page_in_message(struct qsi_page_in *page_in, struct qsi_queue *queue,
                              struct qsi_segment *segment, uint32_t slot, uint64_t bytes_max)
{
    uint32_t entries = queue->shared->entries, end = entries;
    uint64_t first_seq = qsi_segment_first_seq(queue->shared, segment);
    uint32_t index = qsi_queue_find_run(queue, first_seq + slot);

    if (index < queue->run_count) {
        const struct qsi_run *run = qsi_queue_run_at(queue, index);
        if (run->first_seq <= first_seq + slot) {
            return QS_EEMPTY;
        }
        end = run->first_seq < first_seq + entries ? (uint32_t)(run->first_seq - first_seq) : end;
    }
    return segment->busy > 0 ? QS_EEXIST
                             : begin_content(page_in, queue, segment, slot, end, bytes_max);
}

/* Each file tells of its own messages; what both tell of all is told last by the transient one. */
static qs_status read_states(struct qsi_page_in *page_in, struct qsi_index *index,
                             struct qsi_index *transient_index, qs_error *error)
{
    uint32_t words = qsi_queue_words(page_in->queue);
    struct qsi_segment_state other = {.settled = page_in->transient, .seen = page_in->state.seen};

    if (page_in->transient == NULL) {
        return qsi_segment_read_state(index, &page_in->file, &page_in->state, &page_in->columns,
                                      error);
    }
    memset(other.settled, 0xff, words * sizeof *other.settled);
    if (page_in->file.heap_end > 0) {
        QS_TRY(qsi_segment_read_state(index, &page_in->file, &other, &page_in->columns, error));
    }
    QS_TRY(qsi_segment_read_state(transient_index, &page_in->transient_file, &page_in->state,
                                  &page_in->columns, error));
    for (uint32_t word = 0; word < words; word++) {
        uint64_t settled = page_in->state.settled[word];
        page_in->state.settled[word] &= other.settled[word];
        page_in->transient[word] = ~settled;
    }
    return QS_OK;
}

qs_status qsi_page_in_run(struct qsi_page_in *page_in, struct qsi_index *index,
                          struct qsi_index *transient_index, qs_error *error)
{
    if (page_in->of_state) {
        return read_states(page_in, index, transient_index, error);
    }
    return qsi_segment_load(page_in->of_transients ? transient_index : index, &page_in->file,
                            &page_in->load, error);
}

/* The words from the first that has live messages to the last that was given out: a queue of few messages takes no more memory
 * than it took before.  False: not as many are live as there should be. */
static bool live_words(const struct qsi_page_in *page_in, uint32_t *first_out, uint32_t *end_out)
{
    const struct qsi_segment *segment = page_in->segment;
    uint32_t words = qsi_queue_words(page_in->queue);
    uint32_t count = 0, transient_count = 0;

    *first_out = *end_out = words;
    for (uint32_t word = words; word-- > 0;) {
        uint64_t assigned = qsi_segment_assigned(page_in->queue, segment, word);
        uint64_t live = assigned & ~page_in->state.settled[word];
        *end_out -= assigned == 0 ? 1 : 0;
        *first_out = live != 0 ? word : *first_out;
        count += qsi_popcount(live);
        transient_count +=
            page_in->transient != NULL ? qsi_popcount(live & page_in->transient[word]) : 0;
    }
    return count == qsi_segment_live_count(segment) && transient_count == segment->transient_count;
}

/* A column, cut to the words that the segment has. */
static void *take_column(const struct qsi_segment *segment, void *column, size_t value_bytes)
{
    size_t base = (size_t)segment->word_base * QSI_WORD_BITS * value_bytes;
    size_t bytes = (size_t)segment->word_count * QSI_WORD_BITS * value_bytes;
    void *fitting;

    memmove(column, (uint8_t *)column + base, bytes);
    fitting = qsi_realloc(column, bytes);
    return fitting != NULL ? fitting : column;
}

/* A bitmap, likewise. */
static uint64_t *take_bitmap(const struct qsi_segment *segment, uint64_t *bits)
{
    size_t bytes = segment->word_count * sizeof *bits;
    uint64_t *fitting;

    memmove(bits, bits + segment->word_base, bytes);
    fitting = qsi_realloc(bits, bytes);
    return fitting != NULL ? fitting : bits;
}

/* Takes over the counts of the words that the segment has. */
static void install_deliveries(struct qsi_page_in *page_in)
{
    struct qsi_segment *segment = page_in->segment;
    uint8_t *deliveries = page_in->state.deliveries;
    uint32_t base = segment->word_base * QSI_WORD_BITS;
    uint32_t count = segment->word_count * QSI_WORD_BITS;

    for (uint32_t slot = base;
         !page_in->queue->counts_deliveries && slot < base + count && slot < segment->seen_end;
         slot++) {
        deliveries[slot] = deliveries[slot] > 0 ? deliveries[slot] : 1;
    }
    segment->deliveries = take_column(segment, deliveries, 1);
    page_in->state.deliveries = NULL;
}

/* When the first ready message expires is known from now on. */
static void install_expiries(struct qsi_page_in *page_in)
{
    struct qsi_segment *segment = page_in->segment;

    segment->expiries = take_column(segment, page_in->state.expiries, sizeof *segment->expiries);
    page_in->state.expiries = NULL;
    segment->earliest = QSI_NEVER;
    for (uint32_t at = 0; at < segment->word_count; at++) {
        uint64_t ready = qsi_segment_ready(page_in->queue, segment, segment->word_base + at);
        for (; ready != 0; ready &= ready - 1) {
            uint64_t expiry =
                segment->expiries[at * QSI_WORD_BITS + (uint32_t)__builtin_ctzll(ready)];
            segment->earliest = expiry < segment->earliest ? expiry : segment->earliest;
        }
    }
}

/* What is delayed first: it is not ready, for all others. */
static qs_status install_dues(struct qsi_page_in *page_in)
{
    struct qsi_segment *segment = page_in->segment;
    uint64_t *dues = page_in->state.dues;

    if ((page_in->columns & QSI_STATE_DUES) == 0) {
        dues = NULL;
    } else {
        dues += (size_t)segment->word_base * QSI_WORD_BITS;
    }
    return qsi_queue_install_dues(page_in->queue, segment, dues);
}

static void install_columns(struct qsi_page_in *page_in)
{
    struct qsi_segment *segment = page_in->segment;

    if ((page_in->columns & QSI_STATE_DELIVERIES) != 0) {
        install_deliveries(page_in);
    }
    segment->earliest = QSI_NEVER;
    if ((page_in->columns & QSI_STATE_EXPIRIES) != 0) {
        install_expiries(page_in);
    }
    if ((page_in->columns & QSI_STATE_SIZES) != 0) {
        segment->sizes = take_column(segment, page_in->state.sizes, sizeof *segment->sizes);
        page_in->state.sizes = NULL;
    }
    qsi_queue_count_columns(page_in->queue, segment);
}

/* The queue went on behind the segment when it could not be read: the file does not tell. */
static void settle_never_given(struct qsi_page_in *page_in)
{
    uint32_t entries = page_in->queue->shared->entries;
    uint32_t given_end = page_in->segment->given_end;

    for (uint32_t word = given_end / QSI_WORD_BITS;
         given_end > 0 && word < qsi_queue_words(page_in->queue); word++) {
        page_in->state.settled[word] |= qsi_word_range(word, given_end, entries);
    }
}

static qs_status install_state(struct qsi_page_in *page_in)
{
    struct qsi_segment *segment = page_in->segment;
    uint32_t first, end;

    settle_never_given(page_in);
    if (!live_words(page_in, &first, &end)) {
        return QS_ECORRUPT;
    }
    QS_TRY(qsi_segment_cover_releases(page_in->queue, segment));
    QS_TRY(qsi_segment_make_state(page_in->queue, segment, first, end - first));
    if (page_in->transient != NULL) {
        segment->transient = take_bitmap(segment, page_in->transient);
        page_in->transient = NULL;
    }
    for (uint32_t word = first; word < end; word++) {
        segment->settled[word - first] = page_in->state.settled[word];
        segment->seen[word - first] = page_in->state.seen[word];
    }
    if (page_in->queue->counts_deliveries && segment->seen_end > 0 &&
        (page_in->columns & QSI_STATE_DELIVERIES) == 0 &&
        qsi_segment_keep_deliveries(page_in->queue, segment) != QS_OK) {
        qsi_segment_drop_state(page_in->queue, segment);
        return QS_ENOMEM;
    }
    for (uint32_t word = first; word < end; word++) {
        segment->seen[word - first] |= qsi_word_range(word, 0, segment->seen_end);
    }
    if (install_dues(page_in) != QS_OK) {
        qsi_segment_free_state(page_in->queue->shared->budget, segment);
        return QS_ENOMEM;
    }
    install_columns(page_in);
    segment->is_damaged = false; /* any more: the file was put back */
    return QS_OK;
}

/* ---- damaged messages ---- */

#define DAMAGED_ROWS_MAX 4096u

void qsi_page_in_narrow(struct qsi_page_in *page_in)
{
    struct qsi_segment_load *load = &page_in->load;
    uint32_t slot = load->from;

    while (slot + 1 < load->to && !qsi_bitmap_has(load->wanted, slot)) {
        slot += 1;
    }
    load->from = slot;
    load->to = slot + 1;
}

/* Nothing of the file can be read: its messages are there, each of them damaged, so that they do not stand in the way of others. */
qs_status qsi_page_in_damaged(struct qsi_page_in *page_in)
{
    struct qsi_segment_load *load = &page_in->load;
    struct qsi_messages_layout layout = {
        .route_count = 1,
        .destination_count = 1,
        .routes_bytes = qsi_route_bytes(0, 0, 1),
        .flags = QSI_MESSAGES_HAS_STORED,
    };
    static const uint32_t destination = 0;
    uint64_t at = 0;
    uint8_t *record, *offsets;

    load->first = load->from;
    load->count = load->to - load->from;
    load->count = load->count < DAMAGED_ROWS_MAX ? load->count : DAMAGED_ROWS_MAX;
    load->damaged_count = layout.row_count = load->count;
    layout.bodies_bytes = (uint64_t)load->count * QSI_BODY_DAMAGE_BYTES;
    QS_TRY(qsi_messages_layout(&layout, NULL));
    load->chunk = qsi_chunk_create(layout.record_bytes);
    if (load->chunk == NULL) {
        return QS_ENOMEM;
    }
    load->chunk->used = layout.record_bytes;
    record = load->chunk->data;
    qsi_messages_begin(record, &layout);
    qsi_messages_put_route(record, &layout, 0, &at, qsi_slice_make("", 0), qsi_slice_make("", 0),
                           &destination, 1);
    qsi_put_u32(qsi_messages_properties_place(record, &layout), 0);
    offsets = qsi_messages_body_offsets_place(record, &layout);
    for (uint32_t row = 0; row < load->count; row++) {
        struct qsi_body_damage damage = qsi_segment_damage(&page_in->file, load->first + row, 0);
        qsi_put_u32(offsets + 4 * (size_t)row, row * QSI_BODY_DAMAGE_BYTES);
        qsi_messages_stored_place(record, &layout)[row / 8] |= (uint8_t)(1u << (row % 8));
        qsi_body_damage_encode(qsi_messages_bodies_place(record, &layout) +
                                   (size_t)row * QSI_BODY_DAMAGE_BYTES,
                               &damage);
    }
    qsi_put_u32(offsets + 4 * (size_t)load->count, load->count * QSI_BODY_DAMAGE_BYTES);
    qsi_messages_put_destination(record, 0, page_in->queue->id, 0, load->count);
    load->has_stored = true;
    return QS_OK;
}

/* ---- taking over ---- */

static qs_status install_content(struct qsi_page_in *page_in)
{
    struct qsi_queue *queue = page_in->queue;
    struct qsi_segment *segment = page_in->segment;
    struct qsi_segment_load *load = &page_in->load;
    struct qsi_run *run = NULL;
    uint32_t live = 0, end = load->first + load->count;

    if (load->chunk == NULL) {
        return QS_ECORRUPT;
    }
    for (uint32_t word = load->first / QSI_WORD_BITS; word < qsi_bitmap_words(end); word++) {
        live += qsi_popcount(qsi_segment_live(queue, segment, word) &
                             qsi_word_range(word, load->first, end));
    }
    if (live == 0) {
        return QS_OK;
    }
    QS_TRY(qsi_queue_reserve(queue, 1, 0, false));
    QS_TRY(qsi_run_create(&run, load->chunk, 0, load->count, load->rows,
                          queue->durable && !page_in->of_transients));
    load->rows = NULL;
    run->first_seq = qsi_segment_first_seq(queue->shared, segment) + load->first;
    run->live_count = live;
    run->ram_bytes = load->chunk->capacity;
    run->has_transient = false;
    run->was_loaded = true;
    if (queue->shared->budget != NULL) {
        qsi_chunk_charge(load->chunk, queue->shared->budget);
    }
    qsi_queue_insert_run(queue, run);
    return QS_OK;
}

void qsi_page_in_take(struct qsi_page_in *page_in, struct qsi_segment_load *load_out)
{
    *load_out = page_in->load;
    load_out->wanted = NULL;
    page_in->load.chunk = NULL;
    page_in->load.rows = NULL;
    (void)!qsi_page_in_end(page_in, false);
}

qs_status qsi_page_in_end(struct qsi_page_in *page_in, bool done)
{
    struct qsi_queue *queue = page_in->queue;
    struct qsi_segment *segment = page_in->segment;
    qs_status status = QS_OK;

    segment->busy -= 1;
    if (done && qsi_segment_live_count(segment) > 0) {
        if (!page_in->of_state) {
            status = install_content(page_in);
        } else if (segment->settled == NULL) {
            status = install_state(page_in);
        }
    }
    if (page_in->of_state && status == QS_ECORRUPT) {
        segment->is_damaged = true;
    }
    free_page_in(page_in);
    qsi_segment_retire_if_done(queue, segment);
    return status;
}
