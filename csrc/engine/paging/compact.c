/* Compaction: sparse segments are rewritten, message files compacted. */
#include "alloc.h"
#include "pager.h"
#include "paging.h"
#include "store.h"

#define GARBAGE_SHARE 3 /* message files may be this many times their live bytes, */
#define GARBAGE_FILES 8 /* and this many files more, before publishers wait */
#define SPARSE_SHARE 4  /* a segment with fewer than a quarter of its slots live is rewritten */

/* ---- compaction ---- */

static bool is_sparse(const struct qs_store *store, const struct qsi_queue *queue,
                      const struct qsi_segment *segment) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t end = (segment->number + 1) * store->shared.entries;

    uint32_t live_count = qsi_segment_live_count(segment) - segment->transient_count;

    return segment->file.heap_end > 0 && segment->busy == 0 &&
           end <= queue->container.flushed_seq && live_count > 0 && !segment->has_releases &&
           !segment->is_damaged && segment->former_count == 0 &&
           (uint64_t)live_count * SPARSE_SHARE < segment->file.slot_count;
}

static struct qsi_segment *find_sparse(struct qs_store *store, struct qsi_store_queue **queue_out)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);

    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        struct qsi_store_queue *queue = cursor.value;
        for (uint32_t i = 0; i < qsi_queue_segment_count(&queue->core); i++) {
            struct qsi_segment *segment = qsi_queue_segment_at(&queue->core, i);
            if (is_sparse(store, &queue->core, segment)) {
                *queue_out = queue;
                return segment;
            }
        }
    }
    return NULL;
}

/* Releases the lock meanwhile. */
static bool load_state(struct qs_store *store, struct qsi_store_queue *queue,
                       struct qsi_segment *segment) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_page_in job;

    if (qsi_page_in_state(&job, segment) != QS_OK) {
        return false;
    }
    return qsi_pager_run_page_in(store, queue, &job, NULL) == QS_OK;
}

/* Whether the state says more than which messages exist.  Messages that are out now are marked seen
 * after a crash, and requeued by a close. */
static bool has_history(const struct qsi_segment *segment, const uint64_t *live)
    QSI_REQUIRES(qsi_store_mutex)
{
    for (uint32_t at = 0; at < segment->word_count; at++) {
        if ((live[segment->word_base + at] & segment->seen[at] & ~segment->out[at]) != 0) {
            return true;
        }
    }
    return segment->deliveries != NULL || segment->expiries != NULL || segment->sizes != NULL ||
           segment->delayed_count > 0;
}

/* The live messages that are journalled: those in the segment's own file. */
static void find_live(const struct qsi_queue *queue, const struct qsi_segment *segment,
                      uint32_t words, uint64_t *live) QSI_REQUIRES(qsi_store_mutex)
{
    for (uint32_t word = 0; word < words; word++) {
        uint64_t bits = qsi_segment_live(queue, segment, word);
        live[word] = bits != 0 ? qsi_segment_journalled(segment, word, bits) : 0;
    }
}

static bool rewrite_segment(struct qs_store *store, struct qsi_store_queue *queue,
                            struct qsi_segment *segment) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_index *index = qsi_index_of(store, queue);
    uint32_t words = qsi_bitmap_words(store->shared.entries);
    struct qsi_segment_file from, to = {0};
    struct qsi_state_write state;
    const struct qsi_segment_state *kept;
    struct qsi_dead_file *dead;
    uint64_t *live;
    qs_error error = {0};
    qs_status status;

    if (segment->settled == NULL) {
        return load_state(store, queue, segment);
    }
    live = qsi_zalloc(words * sizeof *live);
    dead = qsi_zalloc(sizeof *dead);
    if (live == NULL || dead == NULL ||
        qsi_state_write_begin_file(&state, &queue->core, segment) != QS_OK) {
        qsi_free(dead);
        qsi_free(live);
        return false;
    }
    find_live(&queue->core, segment, words, live);
    from = segment->file;
    kept = has_history(segment, live) ? &state.state : NULL;
    store->paging.rewriting += 1;
    qsi_pager_job_begin(store, queue);
    status = qsi_segment_rewrite(index, &from, live, kept, &to, &error);
    qsi_store_lock(store);
    QS_DCHECK(store->paging.rewriting > 0);
    store->paging.rewriting -= 1;
    if (status != QS_OK || !segment->named || !queue->container.durable) {
        qsi_free(dead);
        dead = NULL;
    }
    if (status == QS_OK) {
        state.file = to;
        segment->file = to;
        segment->named = false;
        segment->content_dirty = true;
        segment->durable_area = 0;
    }
    segment->is_damaged =
        segment->is_damaged || qsi_consequence_of(QSI_USE_REWRITING, status) == QSI_TELLS_READERS;
    qsi_state_write_end(&state, status == QS_OK); /* may end the segment */
    if (status == QS_OK) {
        qsi_bury_file(store, index, &from, dead);
        qsi_container_drop_states(&queue->container);
    }
    qsi_pager_record_failure(store, QSI_USE_REWRITING, status, &error);
    qsi_free(live);
    qsi_pager_job_end(store, queue);
    return status == QS_OK;
}

/* Whether there is so much garbage that bodies must not be added faster than it is removed. */
static bool is_much(struct qs_store *store)
{
    struct qsi_message_space space;

    qsi_message_store_space(store->messages, &space);
    return space.total_bytes + space.doomed_bytes >
           GARBAGE_SHARE * space.live_bytes + GARBAGE_FILES * store->options.message_file_bytes;
}

static bool compact_messages(struct qs_store *store, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_compaction *job = NULL;
    qs_error detail = {0};
    qs_status status;

    if (qsi_message_store_compact_begin(store->messages, &job, error) != QS_OK || job == NULL) {
        if (store->paging.garbage_is_much) { /* a checkpoint removed it: publishers wait */
            store->paging.garbage_is_much = false;
            qsi_cond_broadcast(&store->paging.done);
        }
        return false;
    }
    store->paging.garbage_is_much = is_much(store);
    qsi_store_unlock(store);
    status = qsi_message_store_compact_run(store->messages, job, &detail);
    qsi_store_lock(store);
    qsi_message_store_compact_end(store->messages, job, status == QS_OK);
    qsi_pager_record_failure(store, QSI_USE_REWRITING, status, &detail);
    store->paging.garbage_is_much =
        store->paging.garbage_is_much && status == QS_OK && is_much(store);
    qsi_cond_broadcast(&store->paging.done);
    return status == QS_OK;
}

bool qsi_pager_compact(struct qs_store *store, qs_error *error)
{
    struct qsi_store_queue *queue = NULL;
    struct qsi_segment *segment;

    QS_ASSERT_HELD(&store->mutex);
    if (store->failed || store->checkpoint.state != QSI_CHECKPOINT_NONE ||
        store->paging.space_is_short) {
        return false;
    }
    segment = find_sparse(store, &queue);
    if (segment != NULL && rewrite_segment(store, queue, segment)) {
        return true;
    }
    return compact_messages(store, error);
}
