/* Retention: whole segments leave a stream from the front. */
#include "check.h"
#include "stream.h"
#include "stream_internal.h"

qs_status qsi_stream_reserve_dead(struct qsi_stream *stream, uint32_t count)
{
    uint8_t *room;

    return qsi_buf_reserve(&stream->shared->dead, count * sizeof(struct qsi_block_file), &room);
}

void qsi_stream_kill(struct qsi_stream *stream, const struct qsi_stream_segment *segment)
{
    struct qsi_block_file file = qsi_stream_file(stream->container.id, segment);

    QS_DCHECK(segment->block_count > 0 && segment->end > 0);
    /* There is room for it. */
    QS_ASSERT(qsi_buf_append(&stream->shared->dead, &file, sizeof file) == QS_OK);
}

static bool may_go(const struct qsi_stream *stream, const struct qsi_stream_segment *segment,
                   uint64_t bytes, uint64_t now_us) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_stream_limits *limits = &stream->limits;

    QS_DCHECK(bytes >= segment->end && stream->container.next_seq >= segment->next);
    return (limits->max_bytes > 0 && bytes - segment->end >= limits->max_bytes) ||
           (limits->max_age_us > 0 && now_us > limits->max_age_us &&
            segment->last_time_us < now_us - limits->max_age_us) ||
           (limits->max_messages > 0 &&
            stream->container.next_seq - segment->next >= limits->max_messages);
}

uint64_t qsi_stream_trim_offset(const struct qsi_stream *stream, uint64_t now_us)
{
    uint64_t bytes = qsi_stream_bytes(stream), first = stream->first;

    for (uint32_t i = stream->table_first; i < qsi_stream_table_count(stream); i++) {
        const struct qsi_stream_segment *segment = &stream->table->segments[i];
        if (!may_go(stream, segment, bytes, now_us)) {
            break;
        }
        bytes -= segment->end;
        first = segment->next;
    }
    return first;
}

qs_status qsi_stream_trim_to(struct qsi_container *container, uint64_t first)
{
    struct qsi_stream *stream = qsi_stream_of(container);
    uint32_t end = stream->table_first;

    QS_ASSERT(first <= stream->container.next_seq);
    while (end < qsi_stream_table_count(stream) && stream->table->segments[end].next <= first) {
        end++;
    }
    QS_TRY(qsi_stream_reserve_dead(stream, end - stream->table_first));
    for (; stream->table_first < end; stream->table_first++) {
        const struct qsi_stream_segment *segment = &stream->table->segments[stream->table_first];
        QS_DCHECK(stream->earlier_bytes >= segment->end && segment->next <= first);
        stream->earlier_bytes -= segment->end;
        qsi_stream_kill(stream, segment);
    }
    if (first > stream->first) {
        stream->first = first;
    }
    return QS_OK;
}
