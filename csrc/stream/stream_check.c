/* Debug builds: whether a stream's segments, its tail and its counts agree. */
#include "check.h"
#include "stream_internal.h"

#ifndef NDEBUG

/* Returns the end of the segments before the active one. */
static uint64_t check_table(const struct qsi_stream *stream) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t next = 0, bytes = 0, time_us = 0;

    QS_DCHECK(stream->table_first <= qsi_stream_table_count(stream));
    for (uint32_t i = stream->table_first; i < qsi_stream_table_count(stream); i++) {
        const struct qsi_stream_segment *segment = &stream->table->segments[i];
        /* One that is not sealed was left, because it could not be written to. */
        QS_DCHECK(segment->block_count > 0 && segment->end > segment->last_at);
        QS_DCHECK(segment->first >= next && segment->first < segment->next);
        QS_DCHECK(segment->first_time_us >= time_us);
        QS_DCHECK(segment->last_time_us >= segment->first_time_us);
        next = segment->next;
        bytes += segment->end;
        time_us = segment->last_time_us;
    }
    QS_DCHECK(stream->earlier_bytes == bytes);
    return next;
}

static void check_active(const struct qsi_stream *stream, uint64_t earlier_next)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_stream_segment *active = &stream->active;

    if (active->block_count == 0) {
        return;
    }
    QS_DCHECK((active->flags & QSI_STREAM_SEALED) == 0);
    QS_DCHECK(active->first >= earlier_next && active->first < active->next);
    QS_DCHECK(active->next <= stream->container.flushed_seq);
    QS_DCHECK(active->end > active->last_at);
    QS_DCHECK(active->last_time_us >= active->first_time_us);
    QS_DCHECK(active->last_time_us <= stream->last_time_us);
    QS_DCHECK(stream->active_index == NULL || stream->active_index->count >= active->block_count);
}

static void check_tail(const struct qsi_stream *stream) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t end = 0, bytes = 0, count = 0, floor_us = 0;

    QS_DCHECK(stream->first_run + stream->run_count <= stream->run_capacity);
    for (uint32_t i = 0; i < stream->run_count; i++) {
        const struct qsi_stream_run *stream_run = qsi_stream_run_at(stream, i);
        const struct qsi_run *run = stream_run->run;
        QS_DCHECK(run->count > 0 && run->live_count == run->count);
        QS_DCHECK(run->first_seq >= end && stream_run->floor_us >= floor_us);
        end = run->first_seq + run->count;
        floor_us = stream_run->floor_us;
        bytes += run->ram_bytes;
        count += run->count;
    }
    QS_DCHECK(end <= stream->container.next_seq && floor_us <= stream->last_time_us);
    QS_DCHECK(stream->container.ram_bytes == bytes && stream->container.ram_count == count);
}

void qsi_stream_check(const struct qsi_stream *stream)
{
    const struct qsi_container *container = &stream->container;

    QS_DCHECK(container->kind == &qsi_stream_kind);
    QS_DCHECK(container->flushed_seq <= container->next_seq);
    QS_DCHECK(stream->first <= container->next_seq);
    QS_DCHECK(stream->flushed_time_us <= stream->last_time_us);
    check_active(stream, check_table(stream));
    check_tail(stream);
}

#endif
