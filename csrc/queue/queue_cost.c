/* About what a checkpoint would write of a queue, at most. */
#include "queue_publish.h"
#include "segment_format.h"

#define OVERHEAD_BYTES_MAX (64u << 10)
#define SLOT_BYTES 64 /* of a message in a segment, beside what the journal has of it, or more */

/* Of a segment file: what is in front of its slots, and what is left of pages.  Most of it is
 * never written in large ones. */
static uint64_t segment_overhead(uint32_t entries)
{
    uint64_t bytes = qsi_segment_slots_at(entries);

    return (bytes < OVERHEAD_BYTES_MAX ? bytes : OVERHEAD_BYTES_MAX) + 2 * QSI_SEGMENT_PAGE;
}

/* Of the states of its segments, when settles come to all of them: areas that were not written to
 * yet take space only then. */
static uint64_t states_cost(const struct qsi_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < qsi_queue_segment_count(queue); i++) {
        const struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        uint32_t columns = (segment->deliveries != NULL ? QSI_STATE_DELIVERIES : 0) |
                           (segment->expiries != NULL ? QSI_STATE_EXPIRIES : 0) |
                           (segment->sizes != NULL ? QSI_STATE_SIZES : 0);
        uint64_t each =
            qsi_round_up(qsi_segment_state_used(queue->shared->entries, columns), QSI_SEGMENT_PAGE);
        if (segment->file.heap_end > 0) {
            bytes += segment->file.state_area == 0 ? 2 * each : each;
        }
    }
    return bytes;
}

/* Of what is in no segment yet. */
static uint64_t unflushed_cost(const struct qsi_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t entries = queue->shared->entries;
    uint64_t bytes = 0, count = 0;

    for (uint32_t i = qsi_queue_find_run(queue, queue->container.flushed_seq);
         i < qsi_queue_run_count(queue); i++) {
        const struct qsi_run *run = qsi_queue_run_at(queue, i);
        bytes += run->ram_bytes * run->live_count / run->count;
        count += run->live_count;
    }
    return count == 0
               ? 0
               : bytes + count * SLOT_BYTES + (count / entries + 2) * segment_overhead(entries);
}

uint64_t qsi_queue_checkpoint_bytes(const struct qsi_queue *queue)
{
    return unflushed_cost(queue) + states_cost(queue);
}
