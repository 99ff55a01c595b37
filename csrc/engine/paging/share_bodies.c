/* Small bodies with several references move to the message store before they are flushed: one copy
 * there instead of one in a segment of each queue.
 *
 * This is done for a whole chunk at a time, by exchanging content: the same records are built
 * again, with references in place of bodies, and the runs of all queues refer to the new records.
 * So no other code has to know.
 *
 * This file chooses the bodies, and moves the queues to the new records. share_records.c writes the
 * bodies and builds the records. */
#include "alloc.h"
#include "check.h"
#include "commit.h"
#include "pager.h"
#include "record.h"
#include "share_records.h"

#include <string.h>

#define OVERHEAD_BYTES 56u /* of a body in the message store: header, envelope, padding */

static struct qsi_store_queue *queue_of(const struct qsi_sharing *sharing, uint64_t id)
{
    return qsi_map_get_number(&sharing->store->queues_by_id, id);
}

/* Whether the run has content of the chunk, none of which has a slot yet. */
static bool is_movable(const struct qsi_sharing *sharing, const struct qsi_queue *queue,
                       const struct qsi_run *run) QSI_REQUIRES(qsi_store_mutex)
{
    return run->messages.chunk == sharing->chunk && run->first_seq >= queue->container.flushed_seq;
}

static bool is_live(const struct qsi_queue *queue, uint64_t seq) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t entries = qsi_queue_entries(queue);
    uint32_t slot = (uint32_t)(seq & (entries - 1));
    const struct qsi_segment *segment = qsi_queue_find_segment(queue, seq / entries);

    return segment != NULL && segment->settled != NULL &&
           (qsi_segment_live(queue, segment, slot / QSI_WORD_BITS) >> (slot % QSI_WORD_BITS) & 1) !=
               0;
}

/* ---- begin: which records, which rows ---- */

/* Counts the live references that the destination has to each row. */
static void count_destination(const struct qsi_sharing *sharing, const struct qsi_messages *view,
                              uint32_t destination, uint32_t *counts) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_store_queue *queue =
        queue_of(sharing, qsi_messages_destination_queue(view, destination));
    uint64_t seq = qsi_messages_destination_seq(view, destination);
    uint64_t end = seq + qsi_messages_destination_rows(view, destination);

    while (queue != NULL && seq < end) {
        uint32_t record_row, index = qsi_queue_find_run(&queue->core, seq);
        const struct qsi_run *run;
        if (index == qsi_queue_run_count(&queue->core)) {
            return;
        }
        run = qsi_queue_run_at(&queue->core, index);
        seq = run->first_seq > seq ? run->first_seq : seq;
        if (!is_movable(sharing, &queue->core, run)) {
            seq = run->first_seq + run->count;
            continue;
        }
        for (; seq < end && seq < run->first_seq + run->count; seq++) {
            if (qsi_run_record(run, (uint32_t)(seq - run->first_seq), &record_row) ==
                    view->record &&
                is_live(&queue->core, seq)) {
                QS_DCHECK(record_row < view->row_count);
                counts[record_row] += 1;
            }
        }
    }
}

/* Whether one copy in the message store takes less than the copies that the queues would write. */
static bool is_worth_it(const struct qsi_messages *view, const uint32_t *counts)
{
    uint64_t embedded = 0, stored = 0;

    for (uint32_t row = 0; row < view->row_count; row++) {
        uint64_t bytes = qsi_messages_body(view, row).bytes;
        embedded += bytes * counts[row];
        stored += counts[row] > 0 ? bytes + OVERHEAD_BYTES : 0;
    }
    return stored < embedded;
}

static qs_status plan_record(struct qsi_sharing *sharing, uint32_t at) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_moved_record record = {.at = at, .first_row = UINT32_MAX};
    struct qsi_messages view;
    uint32_t *counts;
    qs_status status = QS_OK;

    QS_ASSERT_HELD(&sharing->store->mutex);
    qsi_messages_view(&view, sharing->chunk->data + at);
    counts = qsi_zalloc(view.row_count * sizeof *counts);
    if (counts == NULL) {
        return QS_ENOMEM;
    }
    for (uint32_t i = 0; view.destination_count > 1 && i < view.destination_count; i++) {
        count_destination(sharing, &view, i, counts);
    }
    if (view.destination_count > 1 && view.stored == NULL &&
        (view.flags & QSI_MESSAGES_HAS_TRANSIENT) == 0 && is_worth_it(&view, counts)) {
        record.first_row = COUNT(sharing->refs, struct qsi_body_ref);
        for (uint32_t row = 0; status == QS_OK && row < view.row_count; row++) {
            /* Wanted bodies are marked; the pack fills in the rest. */
            struct qsi_body_ref ref = {.file = counts[row] > 0 ? 1 : 0};
            status = qsi_buf_append(&sharing->refs, &ref, sizeof ref);
        }
    }
    qsi_free(counts);
    return status == QS_OK ? qsi_buf_append(&sharing->records, &record, sizeof record) : status;
}

static qs_status plan(struct qsi_sharing *sharing) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t at = 0;

    while (at < sharing->chunk->used) {
        const uint8_t *record = sharing->chunk->data + at;
        /* A chunk that recovery read may have records that were refused: nothing refers to them. */
        if (qsi_record_type(record) == QSI_RECORD_MESSAGES &&
            qsi_messages_check(record, NULL) == QS_OK) {
            QS_TRY(plan_record(sharing, (uint32_t)at));
        }
        QS_DCHECK(at % QSI_RECORD_ALIGN == 0);
        at += qsi_record_length(record);
    }
    return QS_OK;
}

/* ---- end: the queues move to the new records ---- */

static const struct qsi_moved_record *find_record(const struct qsi_sharing *sharing, uint32_t at)
{
    const struct qsi_moved_record *records = ITEMS(sharing->records, struct qsi_moved_record);
    uint32_t low = 0, high = COUNT(sharing->records, struct qsi_moved_record);

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (records[middle].at < at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    QS_ASSERT(low < COUNT(sharing->records, struct qsi_moved_record) && records[low].at == at);
    return &records[low];
}

static void move_run(struct qsi_sharing *sharing, struct qsi_queue *queue, struct qsi_run *run)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_chunk *old = run->messages.chunk;
    uint64_t bytes = run->ram_bytes * sharing->new_chunk->used / (old->used + 1) + 1;
    const struct qsi_moved_record *record = NULL;

    run->messages.chunk = qsi_chunk_ref(sharing->new_chunk);
    if (!run->messages.single_records) {
        record = find_record(sharing, run->messages.record_at);
        run->messages.record_at = record->new_at;
    }
    for (uint32_t row = 0; row < run->count; row++) {
        if (run->messages.single_records) {
            record = find_record(sharing, run->messages.rows[row]);
            run->messages.rows[row] = record->new_at;
        }
        if (record->first_row != UINT32_MAX) {
            qsi_queue_adopt_ref(queue, run, row);
        }
    }
    queue->container.ram_bytes += bytes;
    QS_DCHECK(queue->container.ram_bytes >= run->ram_bytes);
    queue->container.ram_bytes -= run->ram_bytes;
    run->ram_bytes = bytes;
    qsi_chunk_unref(old);
}

/* The runs of a destination's messages.  A run of single records moves with the first of them. */
static void move_destination(struct qsi_sharing *sharing, const struct qsi_messages *view,
                             uint32_t destination) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_queue *queue =
        queue_of(sharing, qsi_messages_destination_queue(view, destination));
    uint64_t seq = qsi_messages_destination_seq(view, destination);
    uint64_t end = seq + qsi_messages_destination_rows(view, destination);

    for (uint32_t i = queue != NULL ? qsi_queue_find_run(&queue->core, seq) : 0;
         queue != NULL && i < qsi_queue_run_count(&queue->core); i++) {
        struct qsi_run *run = qsi_queue_run_at(&queue->core, i);
        if (run->first_seq >= end) {
            break;
        }
        if (is_movable(sharing, &queue->core, run)) {
            move_run(sharing, &queue->core, run);
        }
    }
}

static void move_all(struct qsi_sharing *sharing) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_moved_record *records = ITEMS(sharing->records, struct qsi_moved_record);

    for (uint32_t i = 0; i < COUNT(sharing->records, struct qsi_moved_record); i++) {
        struct qsi_messages view;
        qsi_messages_view(&view, sharing->chunk->data + records[i].at);
        for (uint32_t k = 0; k < view.destination_count; k++) {
            move_destination(sharing, &view, k);
        }
    }
}

static void end_places(struct qsi_sharing *sharing, bool done)
{
    struct qsi_place *places = ITEMS(sharing->places, struct qsi_place);

    for (uint32_t i = 0; i < COUNT(sharing->places, struct qsi_place); i++) {
        if (done) {
            qsi_message_store_mark(sharing->store->messages, &places[i]);
        } else {
            qsi_message_store_abandon(sharing->store->messages, &places[i]);
        }
    }
}

static bool wants_sharing(const struct qsi_sharing *sharing)
{
    const struct qsi_moved_record *records = ITEMS(sharing->records, struct qsi_moved_record);

    for (uint32_t i = 0; i < COUNT(sharing->records, struct qsi_moved_record); i++) {
        if (records[i].first_row != UINT32_MAX) {
            return true;
        }
    }
    return false;
}

/* Whether other queues also have bodies of the run.  Its rows are checked, not its record, so all
 * runs of a record together take time in proportion to their messages, however many queues it
 * has. */
static bool has_other_destinations(const struct qsi_run *run)
{
    struct qsi_messages view;

    for (uint32_t row = 0; row < run->count; row++) {
        uint32_t record_row;
        const uint8_t *record = qsi_run_record(run, row, &record_row);
        if (row == 0 || run->messages.single_records) {
            qsi_messages_view(&view, record);
        } else if (view.row_route_width == 0) {
            break; /* one route for all */
        }
        if (qsi_messages_route(&view, qsi_messages_row_route(&view, record_row)).destination_count >
            1) {
            return true;
        }
    }
    return false;
}

/* REQUIRES that no flush runs; releases the lock meanwhile. */
static qs_status share_bodies(struct qs_store *store, struct qsi_chunk *chunk, bool *released_io)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_sharing sharing = {.store = store, .chunk = qsi_chunk_ref(chunk)};
    qs_error error = {0};
    qs_status status;

    status = plan(&sharing);
    if (status == QS_OK && wants_sharing(&sharing)) {
        qsi_flush_step(&store->paging.flush, QSI_FLUSH_SHARES);
        *released_io = true;
        QS_ASSERT_HELD(&store->mutex);
        qsi_store_unlock(store);
        status = qsi_sharing_write(&sharing, &error);
        if (status == QS_OK) {
            status = qsi_sharing_build(&sharing);
        }
        qsi_store_lock(store);
        if (status == QS_OK) {
            qsi_chunk_charge(sharing.new_chunk, store->budget);
            move_all(&sharing);
        }
        end_places(&sharing, status == QS_OK);
        if (status != QS_EINVAL) { /* that one says only that it does not fit */
            qsi_pager_record_failure(store, QSI_USE_PAGING, status, &error);
        }
        qsi_flush_step(&store->paging.flush, QSI_FLUSH_NONE);
        qsi_cond_broadcast(&store->paging.done);
    }
    qsi_chunk_unref(sharing.chunk);
    qsi_chunk_unref(sharing.new_chunk);
    qsi_buf_fini(&sharing.records);
    qsi_buf_fini(&sharing.refs);
    qsi_buf_fini(&sharing.places);
    return status;
}

/* Nothing is added any more to the content that was looked at. */
static void leave_arena(struct qs_store *store, struct qsi_chunk **arena,
                        const struct qsi_chunk *chunk) QSI_REQUIRES(qsi_store_mutex)
{
    if (*arena == chunk) {
        qsi_arena_leave(store, arena);
    }
}

/* The first chunk, behind the content that was looked at, with bodies that several queues have;
 * NULL: none in the next *bytes_io of content. */
static struct qsi_chunk *next_shared(struct qs_store *store, struct qsi_queue *queue,
                                     uint64_t *bytes_io) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t from = qsi_queue_shared_upto(queue) > queue->container.flushed_seq
                        ? qsi_queue_shared_upto(queue)
                        : queue->container.flushed_seq;

    for (uint32_t i = qsi_queue_find_run(queue, from);
         i < qsi_queue_run_count(queue) && *bytes_io > 0; i++) {
        struct qsi_run *run = qsi_queue_run_at(queue, i);
        qsi_queue_mark_shared(queue, run->first_seq + run->count);
        if (run->was_loaded || run->first_seq < queue->container.flushed_seq) {
            continue;
        }
        *bytes_io -= run->ram_bytes < *bytes_io ? run->ram_bytes : *bytes_io;
        leave_arena(store, &store->commit.arena, run->messages.chunk);
        leave_arena(store, &store->commit.transient_arena, run->messages.chunk);
        if (!run->messages.chunk->is_marked && has_other_destinations(run)) {
            run->messages.chunk->is_marked = true; /* one look does for all queues */
            return run->messages.chunk;
        }
    }
    return NULL;
}

qs_status qsi_share_bodies(struct qs_store *store, struct qsi_store_queue *queue, uint64_t bytes,
                           bool *released_io)
{
    QS_ASSERT_HELD(&store->mutex);
    /* At recovery nothing may be added to the message store: its contents are not decided yet. */
    bool may =
        queue->container.durable && store->paging.flush == QSI_FLUSH_NONE && store->journal != NULL;
    struct qsi_chunk *chunk;

    while (may && (chunk = next_shared(store, &queue->core, &bytes)) != NULL) {
        bool released = false;
        qs_status status = share_bodies(store, chunk, &released);
        *released_io = *released_io || released;
        if (status != QS_OK || released) {
            return status;
        }
    }
    return QS_EEMPTY;
}
