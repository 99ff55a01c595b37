/* A queue that does not page, and batches pushed to it. */
#ifndef PLAIN_QUEUE_FIXTURE_H
#define PLAIN_QUEUE_FIXTURE_H

#include "alloc.h"
#include "paging.h"
#include "qs_test_memory.h"
#include "queue_publish.h"
#include "queue_settle.h"
#include "queue_take.h"

#define ENTRIES 256

static struct qsi_queue_shared shared;

static inline void begin_with(struct qsi_queue *queue, uint32_t entries)
{
    qsi_queue_shared_init(&shared, entries);
    qsi_queue_init(queue, &shared, 1, true);
}

static inline void begin(struct qsi_queue *queue)
{
    begin_with(queue, ENTRIES);
}

/* Nothing here reaches the disk, so no segment leaves anything behind. */
static inline void end(struct qsi_queue *queue)
{
    qsi_queue_fini(&queue->container);
    QS_CHECK(qsi_list_is_empty(&shared.retired) && qsi_list_is_empty(&shared.releasing));
}

static struct qsi_chunk *arena;

static inline void drop_arena(void)
{
    qsi_chunk_unref(arena);
    arena = NULL;
}

QS_TEST_FIXTURE(run_queue, struct qsi_queue, begin(&fixture), end(&fixture); drop_arena())
#define QUEUE_TEST(name) QS_TEST_BY(run_queue, name, (struct qsi_queue * queue))

static inline struct qsi_messages_layout lay_out(uint32_t rows, bool has_stored)
{
    struct qsi_messages_layout layout = {
        .row_count = rows,
        .route_count = 1,
        .routes_bytes = qsi_route_bytes(0, 0, 0),
        .flags = has_stored ? QSI_MESSAGES_HAS_STORED : 0,
    };

    QS_CHECK_OK(qsi_messages_layout(&layout, QS_ERROR));
    return layout;
}

/* A record of empty messages behind what the chunk holds; every stored_every-th is in the
 * message store (0: none). */
static inline uint32_t put_record(struct qsi_chunk *chunk, uint32_t rows, uint32_t stored_every)
{
    struct qsi_messages_layout layout = lay_out(rows, stored_every > 0);
    uint32_t at = (uint32_t)chunk->used;
    uint8_t *record = chunk->data + at;
    uint64_t route_at = 0;

    QS_CHECK(chunk->capacity - chunk->used >= layout.record_bytes);
    memset(record, 0, layout.record_bytes);
    qsi_messages_begin(record, &layout);
    qsi_messages_put_route(record, &layout, 0, &route_at, QSI_SLICE_LITERAL(""),
                           QSI_SLICE_LITERAL(""), NULL, 0);
    for (uint32_t row = 0; stored_every > 0 && row < rows; row += stored_every) {
        qsi_messages_stored_place(record, &layout)[row / 8] |= (uint8_t)(1u << row % 8);
    }
    chunk->used += layout.record_bytes;
    return at;
}

static inline struct qsi_chunk *make_chunk(uint32_t rows, uint32_t stored_every)
{
    struct qsi_chunk *chunk = qsi_chunk_create(lay_out(rows, stored_every > 0).record_bytes);

    QS_CHECK(chunk != NULL);
    QS_CHECK(put_record(chunk, rows, stored_every) == 0);
    return chunk;
}

/* A batch of count messages: rows every_row-th of the record's. */
static inline uint64_t push_batch(struct qsi_queue *queue, uint32_t count, uint32_t every_row,
                                  uint32_t stored_every, bool journalled)
{
    struct qsi_chunk *chunk = make_chunk(count * every_row, stored_every);
    struct qsi_run *run;
    uint32_t *rows = NULL;

    if (every_row > 1) {
        rows = qsi_alloc(count * sizeof *rows);
        QS_CHECK(rows != NULL);
        for (uint32_t i = 0; i < count; i++) {
            rows[i] = i * every_row;
        }
    }
    QS_CHECK_OK(qsi_run_create(&run, chunk, 0, count, rows, journalled));
    run->ram_bytes = count * 10;
    qsi_chunk_unref(chunk);
    QS_CHECK_OK(qsi_queue_reserve(&queue->container, 1, count, !journalled));
    return qsi_queue_push_run(&queue->container, run);
}

/* Messages one by one into the arena, which is replaced when it is full. */
static inline uint64_t push_single(struct qsi_queue *queue, bool journalled, bool stored)
{
    uint64_t bytes = lay_out(1, stored).record_bytes;

    if (arena == NULL || arena->capacity - arena->used < bytes) {
        qsi_chunk_unref(arena);
        arena = qsi_chunk_create(2000);
        QS_CHECK(arena != NULL);
    }
    QS_CHECK_OK(qsi_queue_reserve_message(&queue->container, arena, journalled));
    return qsi_queue_push_message(&queue->container, arena, put_record(arena, 1, stored ? 1 : 0),
                                  10, journalled, stored);
}

static inline uint64_t seq_of(const struct qsi_stretch *stretch)
{
    return qsi_segment_first_seq(&shared, stretch->segment) + stretch->slot;
}

static inline bool take_unseen(struct qsi_queue *queue, uint32_t max, struct qsi_stretch *stretch)
{
    enum qsi_take taken = qsi_queue_take(&queue->container, max, stretch);

    QS_CHECK(taken != QSI_TAKE_PAGED); /* everything is in memory */
    if (taken == QSI_TAKE_EMPTY) {
        return false;
    }
    QS_CHECK(stretch->count > 0 && stretch->count <= max);
    QS_CHECK(stretch->slot / QSI_WORD_BITS == (stretch->slot + stretch->count - 1) / QSI_WORD_BITS);
    QS_CHECK(stretch->run->first_seq + stretch->run_row == seq_of(stretch));
    QS_CHECK(stretch->run_row + stretch->count <= stretch->run->count);
    return true;
}

static inline bool was_seen(const struct qsi_stretch *stretch)
{
    return qsi_segment_was_seen(stretch->segment, stretch->slot);
}

static inline uint32_t deliveries(const struct qsi_stretch *stretch)
{
    return qsi_segment_deliveries(stretch->segment, stretch->slot);
}

/* Takes and marks, as delivering does. */
static inline bool take(struct qsi_queue *queue, uint32_t max, struct qsi_stretch *stretch)
{
    if (!take_unseen(queue, max, stretch)) {
        return false;
    }
    qsi_stretch_mark_seen(stretch);
    return true;
}

static inline void settle_all(struct qsi_queue *queue, const struct qsi_stretch *stretch)
{
    qsi_queue_settle(&queue->container, stretch->segment, stretch->slot / QSI_WORD_BITS,
                     qsi_stretch_mask(stretch));
}

static inline void requeue_all(struct qsi_queue *queue, const struct qsi_stretch *stretch)
{
    qsi_queue_requeue(&queue->container, stretch->segment, stretch->slot / QSI_WORD_BITS,
                      qsi_stretch_mask(stretch));
}

static inline void check_empty(const struct qsi_queue *queue)
{
    QS_CHECK(queue->ready_count == 0 && queue->out_count == 0 && queue->run_count == 0 &&
             queue->container.ram_count == 0 && queue->container.ram_bytes == 0);
}

static inline uint64_t stored_count(const struct qsi_queue *queue)
{
    struct qsi_queue_measure measure;

    qsi_queue_measure(queue, NULL, &measure);
    QS_CHECK(measure.alpha + measure.beta == queue->ready_count + queue->out_count);
    return measure.beta;
}

#endif
