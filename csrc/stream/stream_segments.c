/* A stream's beginning, and its segments.
 *
 * Invariant: segments are in order of their offsets, the active one after those in the table. */
#include "alloc.h"
#include "check.h"
#include "stream_internal.h"

#include <string.h>

_Static_assert(sizeof(struct qsi_stream_segment) == 64, "memory of a segment");

void qsi_stream_shared_init(struct qsi_stream_shared *shared)
{
    memset(shared, 0, sizeof *shared);
}

void qsi_stream_shared_fini(struct qsi_stream_shared *shared)
{
    qsi_buf_fini(&shared->dead);
}

qs_status qsi_stream_init(struct qsi_stream *stream, struct qsi_stream_shared *shared, uint64_t id,
                          const struct qsi_stream_limits *limits)
{
    memset(stream, 0, sizeof *stream);
    stream->container.kind = &qsi_stream_kind;
    stream->container.id = id;
    stream->container.durable = true;
    stream->shared = shared;
    stream->limits = *limits;
    if (stream->limits.segment_bytes == 0) {
        stream->limits.segment_bytes = QSI_STREAM_SEGMENT_BYTES;
    }
    return QS_OK;
}

/* ---- the table of segments ---- */

struct qsi_stream_table *qsi_stream_table_create(uint32_t capacity)
{
    struct qsi_stream_table *table =
        qsi_zalloc(sizeof *table + (size_t)capacity * sizeof table->segments[0]);

    QS_DCHECK(capacity > 0);
    if (table != NULL) {
        table->refs = 1;
        table->capacity = capacity;
    }
    return table;
}

struct qsi_stream_table *qsi_stream_table_ref(struct qsi_stream_table *table)
{
    if (table != NULL) {
        __atomic_fetch_add(&table->refs, 1, __ATOMIC_RELAXED);
    }
    return table;
}

void qsi_stream_table_unref(struct qsi_stream_table *table)
{
    QS_DCHECK(table == NULL || __atomic_load_n(&table->refs, __ATOMIC_RELAXED) > 0);
    if (table != NULL && __atomic_fetch_sub(&table->refs, 1, __ATOMIC_ACQ_REL) == 1) {
        qsi_free(table);
    }
}

uint64_t qsi_stream_bytes(const struct qsi_stream *stream)
{
    return stream->earlier_bytes + stream->active.end;
}

uint32_t qsi_stream_segment_count(const struct qsi_stream *stream)
{
    QS_DCHECK(stream->table_first <= qsi_stream_table_count(stream));
    return qsi_stream_table_count(stream) - stream->table_first +
           (stream->active.block_count > 0 ? 1 : 0);
}

/* ---- files that checkpoints and the journal name ---- */

struct qsi_stream_state_segment
qsi_stream_segment_to_state(const struct qsi_stream_segment *segment)
{
    return (struct qsi_stream_state_segment){
        .first = segment->first,
        .next = segment->next,
        .end = segment->end,
        .last_at = segment->last_at,
        .first_time_us = segment->first_time_us,
        .last_time_us = segment->last_time_us,
        .salt = segment->salt,
        .block_count = segment->block_count,
        .sealed = (segment->flags & QSI_STREAM_SEALED) != 0,
        .adopted = (segment->flags & QSI_STREAM_ADOPTED) != 0,
    };
}

struct qsi_stream_segment qsi_stream_segment_of_state(const struct qsi_stream_state_segment *from)
{
    return (struct qsi_stream_segment){
        .first = from->first,
        .next = from->next,
        .end = from->end,
        .last_at = from->last_at,
        .first_time_us = from->first_time_us,
        .last_time_us = from->last_time_us,
        .salt = from->salt,
        .block_count = from->block_count,
        .flags =
            (from->sealed ? QSI_STREAM_SEALED : 0u) | (from->adopted ? QSI_STREAM_ADOPTED : 0u),
    };
}

void qsi_stream_record_named(struct qsi_stream *stream, uint64_t next, uint64_t in_bytes,
                             const struct qsi_stream_segment *active)
{
    uint64_t segment = active->block_count > 0 ? active->first : next;

    stream->named_next = stream->named_next > next ? stream->named_next : next;
    stream->named_segment = stream->named_segment > segment ? stream->named_segment : segment;
    stream->named_before = stream->named_before > segment ? stream->named_before : segment;
    stream->named_bytes = stream->named_bytes > in_bytes ? stream->named_bytes : in_bytes;
}

bool qsi_stream_may_be_named(const struct qsi_stream *stream, uint64_t bytes_max)
{
    QS_DCHECK(stream->named_bytes <= stream->in_bytes);
    return stream->container.next_seq - stream->named_next <= QSI_STREAM_UNNAMED_MAX &&
           stream->in_bytes - stream->named_bytes <= bytes_max;
}
