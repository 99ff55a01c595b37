/* Blocks that another caller wrote to the active file. */
#include "check.h"
#include "stream_internal.h"

#include <string.h>

/* Room for one more entry: a shared index does not change, so it is copied. */
qs_status qsi_stream_reserve_block(struct qsi_stream *stream)
{
    const struct qsi_block_index *old = stream->active_index;
    uint32_t count = stream->active.block_count;
    struct qsi_block_index *index;

    QS_DCHECK(!stream->is_flushing);
    if (old == NULL && count > 0) {
        return QS_OK; /* readers read it from the file */
    }
    index = qsi_block_index_create(count + 1);
    if (index == NULL) {
        return QS_ENOMEM;
    }
    if (count > 0) {
        memcpy(index->entries, old->entries, count * sizeof index->entries[0]);
    }
    qsi_block_index_unref(stream->active_index);
    stream->active_index = index;
    return QS_OK;
}

uint64_t qsi_stream_adopt_block(struct qsi_stream *stream, const struct qsi_block_file *file,
                                const struct qsi_block_entry *entry, uint64_t last_time_us)
{
    struct qsi_stream_segment *active = &stream->active;
    uint64_t seq = stream->container.next_seq;

    QS_ASSERT(!stream->is_flushing);
    QS_ASSERT(qsi_container_is_flushed(&stream->container) && entry->first_offset == seq);
    QS_ASSERT(file->owner == stream->container.id && file->last_at == entry->at);
    QS_ASSERT(file->block_count == active->block_count + 1 && !file->sealed);
    QS_ASSERT(entry->first_time_us >= stream->last_time_us);
    if (active->block_count == 0) {
        *active = (struct qsi_stream_segment){
            .first = file->number, .salt = file->salt, .first_time_us = entry->first_time_us};
    }
    QS_ASSERT(file->number == active->first && file->salt == active->salt);
    if (stream->active_index != NULL) {
        QS_ASSERT(stream->active_index->count > active->block_count);
        stream->active_index->entries[active->block_count] = *entry;
    }
    active->next = seq + entry->rows;
    QS_DCHECK(active->next > seq && file->end > file->last_at);
    active->end = file->end;
    active->last_at = file->last_at;
    active->last_time_us = last_time_us;
    active->block_count = file->block_count;
    stream->container.next_seq = stream->container.flushed_seq = active->next;
    stream->container.in_count += entry->rows;
    stream->last_time_us = stream->flushed_time_us = last_time_us;
    stream->page_aligned = false;
    return seq;
}
