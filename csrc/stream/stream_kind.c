/* A stream as a kind of container: the operations of container.h. */
#include "check.h"
#include "stream_internal.h"

#define FILE_BYTES (64u << 10) /* headers, a footer and the unused rest of a page */

_Static_assert(offsetof(struct qsi_stream, container) == 0, "a stream is a container");

/* NULL: there is none. */
static const struct qsi_stream_segment *find_segment(const struct qsi_stream *stream,
                                                     uint64_t number) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t low = stream->table_first, high = qsi_stream_table_count(stream);

    while (low < high) { /* each file is checked when a store is opened */
        uint32_t middle = low + (high - low) / 2;
        if (stream->table->segments[middle].first < number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low < qsi_stream_table_count(stream) && stream->table->segments[low].first == number) {
        return &stream->table->segments[low];
    }
    return stream->active.block_count > 0 && stream->active.first == number ? &stream->active
                                                                            : NULL;
}

static bool has_file(const struct qsi_container *container, uint64_t number, bool sealed)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_stream_segment *segment =
        find_segment((const struct qsi_stream *)(const void *)container, number);

    return segment != NULL && (!sealed || (segment->flags & QSI_STREAM_SEALED) != 0);
}

static uint64_t ready_count(const struct qsi_container *container) QSI_REQUIRES(qsi_store_mutex)
{
    return container->next_seq - ((const struct qsi_stream *)(const void *)container)->first;
}

/* A block more than the messages take, on a page of its own. */
static uint64_t checkpoint_bytes(const struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t bytes = qsi_stream_unflushed_bytes(container);

    return bytes == 0 ? 0 : bytes + bytes / 8 + FILE_BYTES;
}

static bool is_flushing(const struct qsi_container *container) QSI_REQUIRES(qsi_store_mutex)
{
    return ((const struct qsi_stream *)(const void *)container)->is_flushing;
}

/* ---- replay ---- */

static void start_at(struct qsi_container *container, uint64_t seq) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_stream *stream = qsi_stream_of(container);

    QS_ASSERT(stream->run_count == 0 && seq >= container->next_seq);
    container->next_seq = seq;
    container->flushed_seq = seq;
}

static qs_status skip_to(struct qsi_container *container, uint64_t seq)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(container->flushed_seq <= container->next_seq);
    if (seq > container->next_seq) {
        if (qsi_container_is_flushed(container)) {
            container->flushed_seq = seq;
        }
        container->next_seq = seq;
    }
    return QS_OK;
}

/* ---- the end ---- */

static void abandon(struct qsi_container *container) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_stream *stream = qsi_stream_of(container);

    qsi_stream_drop_runs(stream);
    stream->is_deleted = true;
    if (qsi_stream_reserve_dead(stream, qsi_stream_segment_count(stream)) != QS_OK) {
        return; /* the files stay until the next open, which has no stream for them */
    }
    for (; stream->table_first < qsi_stream_table_count(stream); stream->table_first++) {
        qsi_stream_kill(stream, &stream->table->segments[stream->table_first]);
    }
    if (stream->active.block_count > 0) {
        qsi_stream_kill(stream, &stream->active);
        stream->active = (struct qsi_stream_segment){0};
    }
    stream->earlier_bytes = 0;
}

static void fini(struct qsi_container *container) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_stream *stream = qsi_stream_of(container);

    QS_DCHECK(!stream->is_flushing);
    qsi_stream_free_runs(stream);
    qsi_stream_table_unref(stream->table);
    qsi_block_index_unref(stream->active_index);
}

const struct qsi_container_kind qsi_stream_kind = {
    .name = "stream",
    .keeps_all = true,
    .carried_max = QSI_STREAM_CARRIED_MAX,
    .reserve = qsi_stream_reserve,
    .reserve_one = qsi_stream_reserve_one,
    .append = qsi_stream_append,
    .append_one = qsi_stream_append_one,
    .ready_count = ready_count,
    .drop_content = qsi_stream_drop_content,
    .unflushed_bytes = qsi_stream_unflushed_bytes,
    .checkpoint_bytes = checkpoint_bytes,
    .begin_flush = qsi_stream_begin_flush,
    .is_flushing = is_flushing,
    .snapshot = qsi_stream_snapshot,
    .restore = qsi_stream_restore,
    .start_at = start_at,
    .skip_to = skip_to,
    .sync_named = qsi_stream_sync_named,
    .trim_to = qsi_stream_trim_to,
    .has_file = has_file,
    .direct_max = qsi_stream_direct_max,
    .begin_direct = qsi_stream_begin_direct,
    .replay_written = qsi_stream_replay_written,
    .abandon = abandon,
    .fini = fini,
};
