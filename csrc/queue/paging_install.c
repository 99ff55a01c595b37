/* The result of a load becomes the state of a segment, or a run of its queue. */
#include "alloc.h"
#include "check.h"
#include "paging.h"
#include "queue_columns.h"
#include "queue_delays.h"
#include "queue_internal.h"
#include "queue_publish.h"

#include <string.h>

/* The words from the first with live messages to the last assigned one: a queue of few messages
 * takes no more memory than before.  False: the number of live messages is wrong. */
static bool live_words(const struct qsi_page_in *page_in, uint32_t *first_out, uint32_t *end_out)
    QSI_REQUIRES(qsi_store_mutex)
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

/* A column, reduced to the words that the segment has. */
static void *take_column(const struct qsi_segment *segment, void *column, size_t value_bytes)
    QSI_REQUIRES(qsi_store_mutex)
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
    QSI_REQUIRES(qsi_store_mutex)
{
    size_t bytes = segment->word_count * sizeof *bits;
    uint64_t *fitting;

    memmove(bits, bits + segment->word_base, bytes);
    fitting = qsi_realloc(bits, bytes);
    return fitting != NULL ? fitting : bits;
}

/* Takes over the counts of the words that the segment has. */
static void install_deliveries(struct qsi_page_in *page_in) QSI_REQUIRES(qsi_store_mutex)
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

/* The first expiry of a ready message is known from now on. */
static void install_expiries(struct qsi_page_in *page_in) QSI_REQUIRES(qsi_store_mutex)
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

/* Delayed messages first: they are not ready, for all others. */
static qs_status install_dues(struct qsi_page_in *page_in) QSI_REQUIRES(qsi_store_mutex)
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

static void install_columns(struct qsi_page_in *page_in) QSI_REQUIRES(qsi_store_mutex)
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

/* The queue continued after the segment when it could not be read, which the file does not show. */
static void settle_never_given(struct qsi_page_in *page_in) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t entries = page_in->queue->shared->entries;
    uint32_t given_end = page_in->segment->given_end;

    QS_DCHECK(given_end <= entries);
    for (uint32_t word = given_end / QSI_WORD_BITS;
         given_end > 0 && word < qsi_queue_words(page_in->queue); word++) {
        page_in->state.settled[word] |= qsi_word_range(word, given_end, entries);
    }
}

qs_status qsi_page_in_install_state(struct qsi_page_in *page_in)
{
    struct qsi_segment *segment = page_in->segment;
    uint32_t first, end;

    QS_DCHECK(segment->settled == NULL && page_in->of_state);
    QS_DCHECK(segment->out_count == 0);
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

qs_status qsi_page_in_install_content(struct qsi_page_in *page_in)
{
    struct qsi_queue *queue = page_in->queue;
    struct qsi_segment *segment = page_in->segment;
    struct qsi_segment_load *load = &page_in->load;
    struct qsi_run *run = NULL;
    uint32_t live = 0, end = load->first + load->count;

    QS_DCHECK(!page_in->of_state && segment->queue == queue);
    if (load->chunk == NULL ||
        qsi_segment_first_seq(queue->shared, segment) + end > queue->container.next_seq) {
        return QS_ECORRUPT; /* or the checkpoint counted fewer messages than the file has */
    }
    for (uint32_t word = load->first / QSI_WORD_BITS; word < qsi_bitmap_words(end); word++) {
        live += qsi_popcount(qsi_segment_live(queue, segment, word) &
                             qsi_word_range(word, load->first, end));
    }
    if (live == 0) {
        return QS_OK;
    }
    QS_TRY(qsi_queue_reserve(&queue->container, 1, 0, false));
    QS_TRY(qsi_run_create(&run, load->chunk, 0, load->count, load->rows,
                          queue->container.durable && !page_in->of_transients));
    load->rows = NULL;
    run->first_seq = qsi_segment_first_seq(queue->shared, segment) + load->first;
    QS_DCHECK(live <= run->count);
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
