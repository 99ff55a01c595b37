/* Loading: state and content that ready messages lack in memory, and the jobs that read them.
 * Invariants: state comes before content; the result of a job is checked again at end, because
 * messages may have been settled in between; content that cannot be read becomes damaged messages,
 * so that it does not block others. */
#include "alloc.h"
#include "check.h"
#include "paging.h"
#include "queue_internal.h"

#include <string.h>

/* ---- what is missing ---- */

/* The first ready slot whose content is not in memory; end_out: the beginning of the next run.
 * False: there is none. */
static bool first_missing(const struct qsi_queue *queue, const struct qsi_segment *segment,
                          uint32_t *slot_out, uint32_t *end_out) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t entries = queue->shared->entries, slot = 0;
    uint64_t first_seq = qsi_segment_first_seq(queue->shared, segment);

    QS_DCHECK(segment->settled != NULL);
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

uint32_t qsi_queue_next_paged(const struct qsi_queue *queue, uint32_t index)
{
    uint32_t slot, end;

    QS_DCHECK(index <= queue->segment_count + 1);
    for (uint32_t i = index; i < queue->segment_count; i++) {
        const struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        if (segment->ready_count > 0 && segment->aside_for == NULL &&
            (segment->settled == NULL || first_missing(queue, segment, &slot, &end))) {
            return i;
        }
    }
    return queue->segment_count;
}

uint32_t qsi_queue_first_paged(const struct qsi_queue *queue)
{
    return qsi_queue_is_in_memory(queue) ? queue->segment_count
                                         : qsi_queue_next_paged(queue, queue->scan);
}

uint64_t qsi_queue_ready_in_memory(struct qsi_queue *queue, uint64_t limit, bool *missing_out)
{
    uint64_t count = 0;

    *missing_out = false;
    if (qsi_queue_is_in_memory(queue)) {
        return queue->ready_count < limit ? queue->ready_count : limit;
    }
    for (uint32_t i = queue->scan; i < queue->segment_count && count < limit; i++) {
        const struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        uint32_t slot = queue->shared->entries, end;
        if (segment->ready_count == 0 || segment->aside_for != NULL) {
            continue;
        }
        *missing_out = segment->settled == NULL || first_missing(queue, segment, &slot, &end);
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
    *missing_out = *missing_out || (count < limit && qsi_work_rest(queue) > 0);
    return count < limit ? count : limit;
}

bool qsi_work_first_missing(const struct qsi_queue *queue, uint64_t *seq_out)
{
    uint32_t index = qsi_queue_first_paged(queue), slot, end;
    const struct qsi_segment *segment;

    if (index < queue->segment_count) {
        segment = qsi_queue_segment_at(queue, index);
        QS_ASSERT(first_missing(queue, segment, &slot, &end));
        *seq_out = qsi_segment_first_seq(queue->shared, segment) + slot;
        return true;
    }
    *seq_out = queue->container.next_seq;
    return qsi_work_rest(queue) > 0;
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
    /* Columns are rare, and large: they are allocated without the lock, if the file has them. */
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

/* Live messages in slots [slot, end), all in one file. */
static qs_status begin_content(struct qsi_page_in *page_in, struct qsi_queue *queue,
                               struct qsi_segment *segment, uint32_t slot, uint32_t end,
                               uint64_t bytes_max) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t *wanted = qsi_zalloc(qsi_queue_words(queue) * sizeof *wanted);
    bool mixed = queue->container.durable &&
                 (segment->transient_file.heap_end > 0 || segment->former_count > 0);

    QS_DCHECK(slot < end && end <= queue->shared->entries);
    QS_DCHECK(segment->settled != NULL && segment->busy == 0);
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
        if (other != 0) { /* up to the first message in the other file */
            end = word * QSI_WORD_BITS + (uint32_t)__builtin_ctzll(other);
            wanted[word] &= qsi_word_range(word, slot, end);
            break;
        }
    }
    page_in->load = (struct qsi_segment_load){.from = slot,
                                              .to = end,
                                              .wanted = wanted,
                                              .bytes_max = bytes_max,
                                              .budget = queue->shared->budget};
    segment->busy += 1;
    return QS_OK;
}

/* The result of beginning a job, for which there may be no memory. */
static enum qsi_page_in_begun begun(qs_status status)
{
    QS_DCHECK(status == QS_OK || status == QS_ENOMEM);
    return status == QS_OK ? QSI_PAGE_IN_BEGUN : QSI_PAGE_IN_NO_MEMORY;
}

enum qsi_page_in_begun qsi_page_in_begin(struct qsi_page_in *page_in, struct qsi_queue *queue,
                                         uint64_t bytes_max)
{
    uint32_t index = qsi_queue_first_paged(queue);
    struct qsi_segment *segment;
    uint32_t slot = 0, end = 0;

    if (index == queue->segment_count) {
        return QSI_PAGE_IN_NOTHING;
    }
    segment = qsi_queue_segment_at(queue, index);
    if (segment->busy > 0) {
        return QSI_PAGE_IN_UNDER_WAY;
    }
    if (segment->settled == NULL) {
        return begun(qsi_page_in_state(page_in, segment));
    }
    /* Loads the state of the segment that is read after it first: while delta is not empty, q3 is
     * not. */
    index = qsi_queue_next_paged(queue, index + 1);
    if (index < queue->segment_count) {
        struct qsi_segment *next = qsi_queue_segment_at(queue, index);
        if (next->settled == NULL && next->busy == 0 && !next->is_damaged) {
            if (qsi_page_in_state(page_in, next) != QS_OK) {
                return QSI_PAGE_IN_NO_MEMORY;
            }
            page_in->is_ahead = true;
            return QSI_PAGE_IN_BEGUN;
        }
    }
    if (!first_missing(queue, segment, &slot, &end)) {
        QS_ASSERT(false);
    }
    return begun(begin_content(page_in, queue, segment, slot, end, bytes_max));
}

enum qsi_page_in_begun qsi_page_in_message(struct qsi_page_in *page_in, struct qsi_queue *queue,
                                           struct qsi_segment *segment, uint32_t slot,
                                           uint64_t bytes_max)
{
    uint32_t entries = queue->shared->entries, end = entries;
    uint64_t first_seq = qsi_segment_first_seq(queue->shared, segment);
    uint32_t index = qsi_queue_find_run(queue, first_seq + slot);

    QS_DCHECK(segment->queue == queue && slot < entries);
    QS_DCHECK((qsi_segment_live(queue, segment, slot / QSI_WORD_BITS) >> (slot % QSI_WORD_BITS) &
               1) != 0);
    if (index < queue->run_count) {
        const struct qsi_run *run = qsi_queue_run_at(queue, index);
        if (run->first_seq <= first_seq + slot) {
            return QSI_PAGE_IN_NOTHING;
        }
        end = run->first_seq < first_seq + entries ? (uint32_t)(run->first_seq - first_seq) : end;
    }
    return segment->busy > 0 ? QSI_PAGE_IN_UNDER_WAY
                             : begun(begin_content(page_in, queue, segment, slot, end, bytes_max));
}

/* Each file has the settled bits of its own messages.  Both files have the seen bits and the
 * columns of all messages; those of the transient file are read last, and count. */
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
    QS_DCHECK(page_in->of_state || page_in->load.wanted != NULL);
    if (page_in->of_state) {
        return read_states(page_in, index, transient_index, error);
    }
    return qsi_segment_load(page_in->of_transients ? transient_index : index, &page_in->file,
                            &page_in->load, error);
}

/* ---- damaged messages ---- */

void qsi_page_in_narrow(struct qsi_page_in *page_in)
{
    struct qsi_segment_load *load = &page_in->load;
    uint32_t slot = load->from;

    QS_DCHECK(load->from < load->to);
    while (slot + 1 < load->to && !qsi_bitmap_has(load->wanted, slot)) {
        slot += 1;
    }
    load->from = slot;
    load->to = slot + 1;
}

/* A record of count messages of the file, from slot first on, each of them damaged. */
qs_status qsi_queue_damaged_record(const struct qsi_queue *queue,
                                   const struct qsi_segment_file *file, uint32_t first,
                                   uint32_t count, struct qsi_chunk **chunk_out)
{
    struct qsi_messages_layout layout = {
        .row_count = count,
        .bodies_bytes = (uint64_t)count * QSI_BODY_DAMAGE_BYTES,
        .route_count = 1,
        .destination_count = 1,
        .routes_bytes = qsi_route_bytes(0, 0, 1),
        .flags = QSI_MESSAGES_HAS_STORED,
    };
    uint64_t at = 0;
    struct qsi_messages_writer writer;
    struct qsi_chunk *chunk;
    uint8_t *record;

    QS_TRY(qsi_messages_layout(&layout, NULL));
    *chunk_out = chunk = qsi_chunk_create(layout.record_bytes);
    if (chunk == NULL) {
        return QS_ENOMEM;
    }
    chunk->used = layout.record_bytes;
    record = chunk->data;
    qsi_messages_begin(record, &layout);
    qsi_messages_put_route(record, &layout, 0, &at, qsi_slice_make("", 0), qsi_slice_make("", 0),
                           NULL, 1);
    qsi_messages_put_properties(record, &layout, qsi_slice_make("", 0));
    qsi_messages_writer_begin(&writer, record, &layout);
    for (uint32_t row = 0; row < count; row++) {
        struct qsi_body_damage damage = qsi_segment_damage(file, first + row, 0);
        qsi_messages_write_damage(&writer, &damage);
    }
    qsi_messages_put_destination(record, 0, queue->container.id, 0, count);
    return QS_OK;
}

/* Nothing of the file can be read: each of its messages becomes a damaged one, so that they do not
 * block others. */
qs_status qsi_page_in_damaged(struct qsi_page_in *page_in)
{
    struct qsi_segment_load *load = &page_in->load;

    QS_DCHECK(!page_in->of_state && load->chunk == NULL);
    load->first = load->from;
    load->count = load->to - load->from;
    load->count = load->count < QSI_DAMAGED_ROWS_MAX ? load->count : QSI_DAMAGED_ROWS_MAX;
    load->damaged_count = load->count;
    QS_TRY(qsi_queue_damaged_record(page_in->queue, &page_in->file, load->first, load->count,
                                    &load->chunk));
    load->has_stored = true;
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

    QS_DCHECK(segment->queue == queue);
    QS_DCHECK(segment->busy > 0);
    segment->busy -= 1;
    if (done && qsi_segment_live_count(segment) > 0) {
        if (!page_in->of_state) {
            status = qsi_page_in_install_content(page_in);
        } else if (segment->settled == NULL) {
            status = qsi_page_in_install_state(page_in);
        }
    }
    if (page_in->of_state && status == QS_ECORRUPT) {
        segment->is_damaged = true;
    }
    free_page_in(page_in);
    qsi_segment_retire_if_done(queue, segment);
    return status;
}
