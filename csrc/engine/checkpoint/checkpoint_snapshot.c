/* The snapshot of a checkpoint: topology, keys of transactions, queues and their messages, in
 * one hold of the lock.  Of messages that are only in the journal it decides which are flushed
 * to segments and which the checkpoint carries itself; the jobs for both are begun here and run
 * by checkpoint_write.c. */
#include "check.h"
#include "checkpoint_job.h"
#include "error.h"
#include "paging.h"
#include "topology.h"
#include "transactions_restore.h"

#define CARRIED_SHARE 16 /* of checkpoint_bytes: messages the checkpoint carries itself */
#define CARRIED_BYTES_MIN (64u << 10)
#define CARRIED_BYTES_MAX (16u << 20)
#define FLUSH_ALL UINT64_MAX

/* ---- what is flushed, and what is carried ---- */

uint64_t qsi_checkpoint_carried_max(const struct qs_store *store)
{
    uint64_t bytes = store->options.checkpoint_bytes / CARRIED_SHARE;

    bytes = bytes < CARRIED_BYTES_MIN ? CARRIED_BYTES_MIN : bytes;
    bytes = bytes < CARRIED_BYTES_MAX ? bytes : CARRIED_BYTES_MAX;
    /* What is carried is written again by each checkpoint: where space is short it goes to
     * segments. */
    return bytes < store->space.carried_max ? bytes : store->space.carried_max;
}

/* May the first message that is not flushed go to a segment later without sharing a page of
 * slots with one that is? */
static bool ends_on_page(const struct qs_store *store, const struct qsi_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t entries = store->shared.entries;
    const struct qsi_segment *segment =
        qsi_queue_find_segment(queue, queue->container.flushed_seq / entries);

    return (queue->container.flushed_seq & (entries - 1)) % QSI_SLOT_PAGE == 0 || segment == NULL ||
           segment->file.heap_end == 0;
}

/* ---- the snapshot: topology ---- */

static qs_status put_topology(struct checkpoint *checkpoint, const struct qsi_topology *topology)
{
    uint64_t bytes = qsi_topology_bytes(topology);
    uint8_t *at;

    QS_TRY(qsi_buf_reserve(&checkpoint->records, bytes, &at));
    qsi_topology_encode(at, topology);
    checkpoint->records.bytes += bytes;
    checkpoint->record_count += 1;
    return QS_OK;
}

struct topology_visit {
    struct checkpoint *checkpoint;
    qs_status status;
};

static void put_exchange(void *context, const struct qsi_exchange *exchange)
{
    struct topology_visit *visit = context;
    struct qsi_topology topology = {
        .type = QSI_RECORD_EXCHANGE_DECLARE,
        .flags = QS_DURABLE | (exchange->auto_delete ? QS_AUTO_DELETE : 0) |
                 (exchange->internal ? QS_INTERNAL : 0),
        .strings = {exchange->name, qsi_exchange_type_name(exchange), exchange->arguments},
    };

    if (visit->status == QS_OK && exchange->durable && !exchange->predeclared) {
        visit->status = put_topology(visit->checkpoint, &topology);
    }
}

static void put_binding(void *context, const struct qsi_binding *binding)
{
    struct topology_visit *visit = context;
    struct qsi_topology topology;
    bool is_durable = qsi_describe_binding(binding, &topology);

    if (visit->status == QS_OK && is_durable) {
        visit->status = put_topology(visit->checkpoint, &topology);
    }
}

static qs_status put_queue(struct checkpoint *checkpoint, const struct store_queue *queue)
{
    struct qsi_topology declared = {
        .type = queue->policy.has_priorities ? QSI_RECORD_PRIORITY_QUEUE_DECLARE
                                             : QSI_RECORD_QUEUE_DECLARE,
        .flags = queue->flags,
        .number = queue->container.id,
        .strings = {queue->name, queue->arguments},
    };
    struct qsi_topology mode = {
        .type = QSI_RECORD_QUEUE_MODE, .flags = queue->lazy ? 1 : 0, .number = queue->container.id};

    QS_TRY(put_topology(checkpoint, &declared));
    return queue->mode_was_set ? put_topology(checkpoint, &mode) : QS_OK;
}

static qs_status put_all_topology(struct checkpoint *checkpoint) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = checkpoint->store;
    struct topology_visit visit = {checkpoint, QS_OK};
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);

    QS_TRY(qsi_store_state_encode(&checkpoint->records, store->next_queue_id));
    checkpoint->record_count += 1;
    qsi_router_visit_exchanges(&store->router, put_exchange, &visit);
    QS_TRY(visit.status);
    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        const struct store_queue *queue = cursor.value;
        if (queue->container.durable && queue->parent == NULL) {
            QS_TRY(put_queue(checkpoint, queue));
        }
    }
    qsi_router_visit_bindings(&store->router, put_binding, &visit);
    return visit.status;
}

/* ---- the snapshot: queues ---- */

/* *delayed_out: how many of them are delayed. */
static uint32_t live_below(const struct qsi_queue *queue, const struct qsi_segment *segment,
                           uint64_t seq, uint32_t *delayed_out)
{
    uint64_t first_seq = qsi_queue_first_seq(queue, segment);
    uint32_t count = 0;

    *delayed_out = 0;
    if (segment->settled == NULL) {
        uint32_t live = qsi_segment_live_count(segment) - segment->transient_count;
        *delayed_out = segment->delayed_count < live ? segment->delayed_count : live;
        return live;
    }
    for (uint32_t at = 0; at < segment->word_count; at++) {
        uint32_t word = segment->word_base + at;
        uint64_t word_seq = first_seq + (uint64_t)word * QSI_WORD_BITS;
        uint64_t live =
            qsi_segment_journalled(segment, word, qsi_segment_live(queue, segment, word));
        if (word_seq >= seq) {
            break;
        }
        if (seq - word_seq < QSI_WORD_BITS) {
            live &= (UINT64_C(1) << (seq - word_seq)) - 1;
        }
        count += qsi_popcount(live);
        *delayed_out += qsi_popcount(live & qsi_segment_delayed(segment, word));
    }
    return count;
}

/* What the area told of the slots below end when it was written is still so: their messages had
 * been given out by then, and what was transient among them counts as settled. */
static bool is_told(const struct qsi_segment *segment, uint32_t end)
{
    return segment->settled == NULL || segment->told_end == end || !segment->state_dirty;
}

/* The state of the segment's slots below end, to be written to the area that no checkpoint
 * names. */
static qs_status begin_state(struct checkpoint *checkpoint, struct store_queue *queue,
                             struct qsi_segment *segment, uint32_t end, uint32_t entry)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t end_seq = qsi_queue_first_seq(&queue->core, segment) + end;
    uint32_t entries = checkpoint->store->shared.entries;
    struct state_job job = {.queue = queue, .entry = entry, .begun = true};
    uint8_t *room;

    QS_TRY(qsi_buf_reserve(&checkpoint->states, sizeof job, &room));
    QS_TRY(qsi_state_write_begin_file(&job.write, &queue->core, segment));
    job.write.told_end = end;
    job.write.is_named = true;
    job.write.is_part = end < entries && end_seq < queue->container.next_seq;
    /* What is carried comes behind it as if published again. */
    for (uint32_t slot = end; job.write.is_part && slot < entries; slot++) {
        job.write.state.settled[slot / QSI_WORD_BITS] &= ~(UINT64_C(1) << slot % QSI_WORD_BITS);
        job.write.state.seen[slot / QSI_WORD_BITS] &= ~(UINT64_C(1) << slot % QSI_WORD_BITS);
        if (job.write.state.deliveries != NULL) {
            job.write.state.deliveries[slot] = 0;
        }
        if (job.write.state.dues != NULL) {
            job.write.state.dues[slot] = 0;
        }
    }
    queue->jobs += 1;
    return qsi_buf_append(&checkpoint->states, &job, sizeof job);
}

static qs_status put_formers(struct checkpoint *checkpoint, struct qsi_segment *segment)
{
    for (uint32_t i = 0; i < segment->former_count; i++) {
        struct qsi_former_file *former = &segment->formers[i];
        struct former_entry entry = {former->file, former->end, former->is_dirty};
        former->named = true;
        if (!former->of_transients) {
            QS_TRY(qsi_buf_append(&checkpoint->formers, &entry, sizeof entry));
        }
    }
    return QS_OK;
}

static qs_status put_segment(struct checkpoint *checkpoint, struct store_queue *queue,
                             struct qsi_segment *segment, uint64_t base_seq)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_segment_entry entry = {
        .file = segment->file,
        .seen_end = segment->seen_end,
        .given_end = segment->given_end,
        .has_stored = segment->has_stored,
        .has_expiries = segment->expiries != NULL || segment->earliest != QSI_NEVER,
    };
    uint64_t below = base_seq - qsi_queue_first_seq(&queue->core, segment);
    uint32_t entries = checkpoint->store->shared.entries;
    uint32_t end = below < entries ? (uint32_t)below : entries;
    uint32_t index = COUNT(checkpoint->entries, entry);
    struct entry_sync sync = {segment->file_dirty, segment->content_dirty};

    entry.live_count = live_below(&queue->core, segment, base_seq, &entry.delayed_count);
    entry.earliest_due = entry.delayed_count > 0 ? segment->earliest_due : 0;
    if (segment->settled == NULL && segment->transient_count > 0 && entry.delayed_count > 0) {
        entry.earliest_due =
            1; /* how many of them are transient the next process finds out at once */
    }
    if (entry.live_count == 0) {
        return QS_OK;
    }
    if (entry.seen_end > end) { /* what is carried brings its own deliveries */
        entry.seen_end = end;
    }
    if (!is_told(segment, end)) {
        QS_TRY(begin_state(checkpoint, queue, segment, end, index));
        sync.is_wanted = true;
    }
    QS_TRY(put_formers(checkpoint, segment));
    segment->file_dirty = segment->content_dirty = false;
    segment->named = true;
    segment->page_aligned = true;
    QS_TRY(qsi_buf_append(&checkpoint->syncs, &sync, sizeof sync));
    return qsi_buf_append(&checkpoint->entries, &entry, sizeof entry);
}

/* Jobs for everything from flushed_seq on. */
static qs_status begin_flushes(struct store_queue *queue, struct qsi_buf *jobs)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t seq = queue->container.flushed_seq;

    while (seq < queue->container.next_seq) {
        struct flush_job job = {.queue = queue, .begun = true};
        uint8_t *room;
        qs_status status;
        QS_TRY(qsi_buf_reserve(jobs, sizeof job, &room));
        status = qsi_flush_begin(&job.flush, &queue->core, seq, FLUSH_ALL);
        if (status == QS_EEMPTY) {
            return QS_OK;
        }
        QS_TRY(status);
        seq = job.flush.end_seq;
        job.flush.is_named = true;
        queue->jobs += 1;
        QS_TRY(qsi_buf_append(jobs, &job, sizeof job));
    }
    return QS_OK;
}

/* The entry of a segment that is flushed for this checkpoint. */
static void find_entries(struct checkpoint *checkpoint, uint32_t first_job, uint32_t first_entry)
{
    struct flush_job *jobs = ITEMS(checkpoint->flushes, struct flush_job);
    const struct qsi_segment_entry *entries = ITEMS(checkpoint->entries, struct qsi_segment_entry);
    uint32_t entry_count = COUNT(checkpoint->entries, struct qsi_segment_entry);

    for (uint32_t i = first_job; i < COUNT(checkpoint->flushes, struct flush_job); i++) {
        jobs[i].entry = UINT32_MAX; /* what is flushed may all be transient */
        for (uint32_t k = first_entry; k < entry_count; k++) {
            if (entries[k].file.number == jobs[i].flush.segment->number) {
                jobs[i].entry = k;
                ITEMS(checkpoint->syncs, struct entry_sync)[k].is_wanted = true;
            }
        }
    }
}

/* The next message gets a slot on a page of its own: those before are named from now on. */
static qs_status end_page(struct checkpoint *checkpoint, struct qsi_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t entries = checkpoint->store->shared.entries;
    uint64_t segment_end = (queue->container.next_seq / entries + 1) * entries;
    uint64_t page_end =
        (queue->container.next_seq + QSI_SLOT_PAGE - 1) / QSI_SLOT_PAGE * QSI_SLOT_PAGE;

    if (ends_on_page(checkpoint->store, queue) && qsi_container_is_flushed(&queue->container)) {
        return QS_OK;
    }
    return qsi_container_skip_to(&queue->container,
                                 page_end < segment_end ? page_end : segment_end);
}

static qs_status put_messages(struct checkpoint *checkpoint, struct store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_queue *core = &queue->core;
    uint64_t bytes = qsi_container_unflushed_bytes(&core->container);
    struct carried_queue each = {.state.queue_id = core->container.id,
                                 .first_entry =
                                     COUNT(checkpoint->entries, struct qsi_segment_entry)};
    uint32_t first_job = COUNT(checkpoint->flushes, struct flush_job);
    bool carry = ends_on_page(checkpoint->store, core) &&
                 checkpoint->carried_bytes + bytes <= qsi_checkpoint_carried_max(checkpoint->store);

    if (carry) {
        checkpoint->carried_bytes += bytes;
        QS_TRY(begin_flushes(queue, &checkpoint->carried));
        each.state.base_seq = core->container.flushed_seq;
    } else {
        QS_TRY(begin_flushes(queue, &checkpoint->flushes));
        QS_TRY(end_page(checkpoint, core));
        each.state.base_seq = core->container.next_seq;
    }
    each.state.next_seq = core->container.next_seq;
    for (uint32_t i = 0; i < qsi_queue_segment_count(core); i++) {
        struct qsi_segment *segment = qsi_queue_segment_at(core, i);
        if (qsi_queue_first_seq(core, segment) < each.state.base_seq) {
            QS_TRY(put_segment(checkpoint, queue, segment, each.state.base_seq));
        }
    }
    find_entries(checkpoint, first_job, each.first_entry);
    each.state.segment_count =
        COUNT(checkpoint->entries, struct qsi_segment_entry) - each.first_entry;
    return qsi_buf_append(&checkpoint->queues, &each, sizeof each);
}

static qs_status put_all_messages(struct checkpoint *checkpoint) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = checkpoint->store;
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);

    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        struct store_queue *queue = cursor.value;
        if (queue->container.durable) {
            QS_TRY(put_messages(checkpoint, queue));
        }
    }
    return QS_OK;
}

void qsi_seal_dead_files(struct qs_store *store, bool sealed)
{
    for (struct qsi_list *node = store->paging.dead_files.next; node != &store->paging.dead_files;
         node = node->next) {
        QSI_LIST_OWNER(node, struct dead_file, in_store)->sealed = sealed;
    }
    qsi_transactions_seal(store, sealed);
}

/* Does not release the lock: this is the moment that the checkpoint tells of. */
qs_status qsi_take_snapshot(struct checkpoint *checkpoint, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = checkpoint->store;
    qs_status status;

    checkpoint->lsn = qsi_journal_appended_lsn(store->journal);
    status = put_all_topology(checkpoint);
    if (status == QS_OK) {
        status = qsi_transactions_snapshot(checkpoint);
    }
    if (status == QS_OK) {
        status = put_all_messages(checkpoint);
    }
    if (status != QS_OK) {
        return status == QS_ENOMEM ? qsi_checkpoint_no_memory(error)
                                   : qsi_fail(error, status, "snapshot of the queues");
    }
    QS_TRY(qsi_message_store_snapshot(store->messages, &checkpoint->records,
                                      &checkpoint->record_count, error));
    checkpoint->sealed = true;
    qsi_seal_dead_files(store, true);
    checkpoint->epoch = store->paging.readers.epoch & 1;
    store->paging.readers.epoch += 1;
    return QS_OK;
}
