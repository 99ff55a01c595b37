/* Dropping: content and bitmaps leave memory, and changed states are written so that they can.
 * Invariants: only what the disk has is dropped: flushed content, states whose area has the present
 * one; a state that changes while it is written stays dirty. */
#include "alloc.h"
#include "check.h"
#include "error.h"
#include "paging.h"
#include "queue_delays.h"
#include "queue_internal.h"

#include <string.h>

/* ---- content ---- */

/* The number of the run's ready messages. */
static uint64_t ready_in_run(const struct qsi_queue *queue, const struct qsi_run *run)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t entries = queue->shared->entries;
    uint64_t seq = run->first_seq;
    uint64_t end = seq + run->count;
    uint64_t ready = 0;

    QS_DCHECK(run->count > 0 && end <= queue->container.next_seq);
    while (seq < end) {
        const struct qsi_segment *segment = qsi_queue_find_segment(queue, seq / entries);
        uint32_t from = (uint32_t)(seq & (entries - 1));
        uint32_t to = end - seq < entries - from ? from + (uint32_t)(end - seq) : entries;
        for (uint32_t word = from / QSI_WORD_BITS;
             segment != NULL && segment->settled != NULL && word < qsi_bitmap_words(to); word++) {
            ready += qsi_popcount(qsi_segment_ready(queue, segment, word) &
                                  qsi_word_range(word, from, to));
        }
        seq += to - from;
    }
    return ready;
}

/* One pass, whatever stays between dropped runs: with a run for each message there may be a
 * million. */
uint64_t qsi_queue_drop_content(struct qsi_container *container, uint64_t keep_count,
                                uint64_t bytes)
{
    struct qsi_queue *queue = qsi_as_queue(container);
    uint64_t kept = 0, dropped = 0;
    uint32_t stays = 0, i = 0;

    for (; i < queue->run_count && dropped < bytes; i++) {
        struct qsi_run *run = qsi_queue_run_at(queue, i);
        uint64_t ready = kept < keep_count ? ready_in_run(queue, run) : 0;
        if (run->first_seq + run->count > queue->container.flushed_seq) {
            break; /* like all behind it */
        }
        if (ready > 0 || !qsi_run_may_leave(queue, run)) {
            kept += ready;
            queue->runs[queue->first_run + stays++] = run;
            continue;
        }
        QS_DCHECK(run->first_seq + run->count <= queue->container.flushed_seq);
        dropped += run->ram_bytes;
        qsi_queue_free_run(queue, run);
    }
    QS_DCHECK(stays <= i && i <= queue->run_count);
    qsi_queue_close_gap(queue, stays, i);
    return dropped;
}

/* ---- states ---- */

static bool has_run(const struct qsi_queue *queue, const struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t first_seq = qsi_segment_first_seq(queue->shared, segment);
    uint32_t index = qsi_queue_find_run(queue, first_seq);

    return index < queue->run_count &&
           qsi_queue_run_at(queue, index)->first_seq < first_seq + queue->shared->entries;
}

/* Whether the state could be dropped once the disk has it. */
static bool may_drop_state(const struct qsi_queue *queue, const struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t end = (segment->number + 1) * queue->shared->entries;

    QS_DCHECK(segment->queue == queue);
    return segment->settled != NULL && segment->out_count == 0 && segment->busy == 0 &&
           qsi_segment_live_count(segment) > 0 && end <= queue->container.flushed_seq &&
           end <= queue->container.next_seq && !has_run(queue, segment);
}

/* The index of the first segment whose state may be dropped: behind the first that lacks content,
 * and behind the one that is read after it, whose state every load of content would load again. */
static uint32_t first_droppable(const struct qsi_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_next_paged(queue, qsi_queue_first_paged(queue) + 1) + 1;
}

/* The next segment from index on whose state may be dropped once the disk has it; NULL: there is
 * none.  A segment with only delayed messages is read by no consumer. */
static struct qsi_segment *next_droppable(const struct qsi_queue *queue, uint32_t *index_io,
                                          uint32_t droppable) QSI_REQUIRES(qsi_store_mutex)
{
    if (queue->delayed_count == 0 && *index_io < droppable) {
        *index_io = droppable;
    }
    while (*index_io < queue->segment_count) {
        struct qsi_segment *segment = qsi_queue_segment_at(queue, *index_io);
        *index_io += 1;
        if ((*index_io > droppable || segment->ready_count == 0) &&
            may_drop_state(queue, segment)) {
            return segment;
        }
    }
    return NULL;
}

void qsi_queue_drop_states(struct qsi_container *container)
{
    struct qsi_queue *queue = qsi_as_queue(container);
    uint32_t droppable = first_droppable(queue), i = 0;
    struct qsi_segment *segment;

    while ((segment = next_droppable(queue, &i, droppable)) != NULL) {
        if (qsi_segment_is_reported(segment)) {
            qsi_segment_drop_state(queue, segment);
        }
    }
}

struct qsi_segment *qsi_queue_dirty_state(const struct qsi_queue *queue)
{
    uint32_t droppable = first_droppable(queue), i = 0;
    struct qsi_segment *segment;

    do {
        segment = next_droppable(queue, &i, droppable);
    } while (segment != NULL && qsi_segment_is_reported(segment));
    return segment;
}

/* ---- writing states ---- */

static void free_state_write(struct qsi_state_write *write)
{
    qsi_free(write->state.settled);
    qsi_free(write->state.seen);
    qsi_free(write->state.deliveries);
    qsi_free(write->state.expiries);
    qsi_free(write->state.sizes);
    qsi_free(write->transient_settled);
    qsi_free(write->state.dues);
    memset(write, 0, sizeof *write);
}

/* A column of the whole segment; the part that the segment in memory does not cover is filled with
 * fill. */
static void *copy_column(const struct qsi_segment *segment, const void *column, size_t value_bytes,
                         uint32_t words, int fill) QSI_REQUIRES(qsi_store_mutex)
{
    size_t slot_bytes = QSI_WORD_BITS * value_bytes;
    uint8_t *copy = qsi_alloc(words * slot_bytes);

    QS_DCHECK(segment->word_base + segment->word_count <= words);
    if (copy != NULL) {
        memset(copy, fill, words * slot_bytes);
        memcpy(copy + segment->word_base * slot_bytes, column, segment->word_count * slot_bytes);
    }
    return copy;
}

static qs_status copy_columns(struct qsi_segment_state *state, const struct qsi_segment *segment,
                              uint32_t words) QSI_REQUIRES(qsi_store_mutex)
{
    if (segment->deliveries != NULL) {
        state->deliveries = copy_column(segment, segment->deliveries, 1, words, 0);
    }
    if (segment->expiries != NULL) {
        state->expiries =
            copy_column(segment, segment->expiries, sizeof *state->expiries, words, 0xff);
    }
    if (segment->sizes != NULL) {
        state->sizes = copy_column(segment, segment->sizes, sizeof *state->sizes, words, 0);
    }
    if (segment->delayed_count > 0) {
        state->dues = qsi_segment_copy_dues(segment, words);
    }
    return (segment->deliveries != NULL && state->deliveries == NULL) ||
                   (segment->delayed_count > 0 && state->dues == NULL) ||
                   (segment->expiries != NULL && state->expiries == NULL) ||
                   (segment->sizes != NULL && state->sizes == NULL)
               ? QS_ENOMEM
               : QS_OK;
}

/* The settled messages of one kind; those of the other kind count as settled. */
static void copy_settled(uint64_t *settled, const struct qsi_segment *segment, bool of_transients)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t base = segment->word_base;

    QS_DCHECK(segment->settled != NULL);
    memset(settled, 0xff, base * sizeof *settled);
    memcpy(settled + base, segment->settled, segment->word_count * sizeof *settled);
    for (uint32_t at = 0; segment->transient != NULL && at < segment->word_count; at++) {
        settled[base + at] |= of_transients ? ~segment->transient[at] : segment->transient[at];
    }
}

static qs_status copy_state(struct qsi_state_write *write) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_segment *segment = write->segment;
    uint32_t words = qsi_queue_words(write->queue);
    uint32_t base = segment->word_base;

    QS_DCHECK(segment->settled != NULL && base + segment->word_count <= words);
    write->state.settled = qsi_zalloc(words * sizeof(uint64_t));
    write->state.seen = qsi_zalloc(words * sizeof(uint64_t));
    if (write->state.settled == NULL || write->state.seen == NULL) {
        return QS_ENOMEM;
    }
    copy_settled(write->state.settled, segment, false);
    for (uint32_t at = 0; at < segment->word_count; at++) {
        write->state.seen[base + at] = qsi_segment_seen_before(segment, base + at);
    }
    return copy_columns(&write->state, segment, words);
}

static qs_status begin_state_write(struct qsi_state_write *write, struct qsi_queue *queue,
                                   struct qsi_segment *segment, bool of_file, bool of_transients)
    QSI_REQUIRES(qsi_store_mutex)
{
    qs_status status;

    QS_DCHECK(segment->queue == queue && segment->settled != NULL);
    *write = (struct qsi_state_write){
        .queue = queue,
        .segment = segment,
        .file = segment->file,
        .transient_file = segment->transient_file,
        .of_file = of_file,
        .version = segment->state_version,
        .told_end = queue->shared->entries,
        .durable_area = segment->durable_area,
    };
    status = copy_state(write);
    if (status == QS_OK && of_transients) {
        write->transient_settled = qsi_zalloc(qsi_queue_words(queue) * sizeof(uint64_t));
        status = write->transient_settled != NULL ? QS_OK : QS_ENOMEM;
    }
    if (status != QS_OK) {
        free_state_write(write);
        return status;
    }
    if (of_transients) {
        copy_settled(write->transient_settled, segment, true);
    }
    segment->busy += 1;
    return QS_OK;
}

qs_status qsi_state_write_begin(struct qsi_state_write *write, struct qsi_queue *queue,
                                struct qsi_segment *segment)
{
    return begin_state_write(write, queue, segment,
                             qsi_segment_has_own_file(segment) && segment->state_dirty,
                             segment->transient_count > 0 && segment->transients_dirty);
}

qs_status qsi_state_write_begin_file(struct qsi_state_write *write, struct qsi_queue *queue,
                                     struct qsi_segment *segment)
{
    return begin_state_write(write, queue, segment, true, false);
}

qs_status qsi_state_write_run(struct qsi_state_write *write, struct qsi_index *index,
                              struct qsi_index *transient_index, qs_error *error)
{
    struct qsi_segment_state transients = write->state;
    qs_status status = QS_OK;

    write->cannot_read = write->cannot_read_transient = false;
    if (write->of_file) {
        status =
            qsi_segment_write_state(index, &write->file, write->durable_area, &write->state, error);
        write->cannot_read = qsi_is_damage(status);
    }
    transients.settled = write->transient_settled;
    if (status == QS_OK && write->transient_settled != NULL) {
        status =
            qsi_segment_write_state(transient_index, &write->transient_file, 0, &transients, error);
        write->cannot_read_transient = qsi_is_damage(status);
    }
    return status;
}

qs_status qsi_state_write_leave_file(struct qsi_state_write *write)
{
    struct qsi_segment *segment = write->segment;
    const struct qsi_queue *queue = write->queue;
    uint64_t first_seq = qsi_segment_first_seq(queue->shared, segment);
    uint64_t flushed =
        queue->container.flushed_seq > first_seq ? queue->container.flushed_seq - first_seq : 0;
    uint32_t entries = queue->shared->entries;
    bool of_transients = write->cannot_read_transient;

    QS_DCHECK(write->cannot_read || write->cannot_read_transient);
    QS_DCHECK(segment->busy > 0);
    if ((of_transients ? segment->transient_file : segment->file).heap_end == 0) {
        return QS_ECORRUPT; /* a new one could not be made */
    }
    QS_TRY(qsi_segment_leave_file(segment, of_transients,
                                  flushed < entries ? (uint32_t)flushed : entries));
    write->version = segment->state_version;
    if (of_transients) {
        write->transient_file = segment->transient_file;
    } else {
        write->file = segment->file;
        write->durable_area = 0;
    }
    return QS_OK;
}

void qsi_state_write_end(struct qsi_state_write *write, bool done)
{
    struct qsi_segment *segment = write->segment;
    struct qsi_queue *queue = write->queue;
    bool changed = segment->state_version != write->version;

    QS_DCHECK(segment->queue == queue && segment->state_version >= write->version);
    QS_DCHECK(segment->busy > 0);
    segment->busy -= 1;
    if (write->of_file) {
        segment->told_end = 0; /* an incomplete write may have damaged the area */
    }
    if (done && write->of_file) {
        if (segment->file.heap_end == 0) {
            segment->file = write->file;
        }
        segment->file.state_area = write->file.state_area;
        segment->file.state_crc = write->file.state_crc;
        segment->file_dirty = segment->file_dirty || !write->is_named;
        segment->state_dirty = changed || write->is_part;
        segment->told_end = changed ? 0 : write->told_end;
    }
    if (done && write->transient_settled != NULL) {
        if (segment->transient_file.heap_end == 0) {
            segment->transient_file = write->transient_file;
        }
        segment->transient_file.state_area = write->transient_file.state_area;
        segment->transient_file.state_crc = write->transient_file.state_crc;
        segment->transients_dirty = changed;
        QS_DCHECK(segment->transient_file.heap_end > 0);
    }
    free_state_write(write);
    qsi_segment_retire_if_done(queue, segment);
}
