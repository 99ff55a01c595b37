/* How often messages were delivered.
 *
 * Counts of a segment's messages are kept from the first requeue on; until then a message that was
 * seen before has one earlier delivery.  In a queue with a delivery limit counts are kept from the
 * first delivery on, and include running deliveries: the code that counts them has journalled
 * them. */
#include "alloc.h"
#include "check.h"
#include "queue_internal.h"
#include "queue_take.h"

/* In one word: messages with an earlier delivery, if no counts are kept. */
static uint64_t delivered_once(const struct qsi_queue *queue, const struct qsi_segment *segment,
                               uint32_t at) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t slot = (segment->word_base + at) * QSI_WORD_BITS;

    QS_DCHECK(at < segment->word_count);
    if (queue->counts_deliveries) {
        return segment->seen[at];
    }
    return (segment->seen[at] & ~segment->out[at]) |
           (slot < segment->seen_end ? qsi_low_bits(segment->seen_end - slot) : 0);
}

qs_status qsi_segment_keep_deliveries(const struct qsi_queue *queue, struct qsi_segment *segment)
{
    QS_DCHECK(segment->settled != NULL);
    if (segment->deliveries != NULL) {
        return QS_OK;
    }
    segment->deliveries = qsi_zalloc((size_t)segment->word_count * QSI_WORD_BITS);
    if (segment->deliveries == NULL) {
        return QS_ENOMEM;
    }
    qsi_budget_add(queue->shared->budget, (uint64_t)segment->word_count * QSI_WORD_BITS);
    for (uint32_t at = 0; at < segment->word_count; at++) {
        uint64_t once = delivered_once(queue, segment, at);
        for (; once != 0; once &= once - 1) {
            segment->deliveries[at * QSI_WORD_BITS + (uint32_t)__builtin_ctzll(once)] = 1;
        }
    }
    return QS_OK;
}

static uint8_t *count_of(const struct qsi_segment *segment, uint32_t word, uint64_t mask)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(segment->deliveries != NULL && mask != 0);
    QS_DCHECK(word - segment->word_base < segment->word_count);
    return &segment->deliveries[(word - segment->word_base) * QSI_WORD_BITS +
                                (uint32_t)__builtin_ctzll(mask)];
}

/* REQUIRES that counts are kept. */
static void count(struct qsi_segment *segment, uint32_t word, uint64_t mask)
    QSI_REQUIRES(qsi_store_mutex)
{
    for (; mask != 0; mask &= mask - 1) {
        uint8_t *deliveries = count_of(segment, word, mask);
        *deliveries = *deliveries < UINT8_MAX ? *deliveries + 1 : UINT8_MAX;
    }
}

void qsi_segment_count_deliveries(const struct qsi_queue *queue, struct qsi_segment *segment,
                                  uint32_t word, uint64_t mask)
{
    if (qsi_segment_keep_deliveries(queue, segment) == QS_OK) {
        count(segment, word, mask);
    }
}

void qsi_segment_uncount_deliveries(struct qsi_segment *segment, uint32_t word, uint64_t mask)
{
    for (; segment->deliveries != NULL && mask != 0; mask &= mask - 1) {
        uint8_t *deliveries = count_of(segment, word, mask);
        *deliveries = *deliveries > 0 ? (uint8_t)(*deliveries - 1) : 0;
    }
}

void qsi_queue_count_stretch(struct qsi_queue *queue, const struct qsi_stretch *stretch)
{
    QS_DCHECK((stretch->segment->out[stretch->slot / QSI_WORD_BITS - stretch->segment->word_base] &
               qsi_stretch_mask(stretch)) == qsi_stretch_mask(stretch));
    QS_ASSERT(queue->counts_deliveries && stretch->segment->deliveries != NULL);
    count(stretch->segment, stretch->slot / QSI_WORD_BITS, qsi_stretch_mask(stretch));
    qsi_segment_dirty_state(stretch->segment);
}

uint32_t qsi_segment_deliveries_before(const struct qsi_queue *queue,
                                       const struct qsi_segment *segment, uint32_t slot)
{
    uint32_t word = slot / QSI_WORD_BITS, deliveries;

    QS_DCHECK(segment->settled != NULL);
    if (segment->deliveries == NULL) {
        return (uint32_t)(qsi_segment_seen_before(segment, word) >> (slot % QSI_WORD_BITS) & 1);
    }
    deliveries = segment->deliveries[slot - segment->word_base * QSI_WORD_BITS];
    return queue->counts_deliveries && deliveries > 0 ? deliveries - 1 : deliveries;
}
