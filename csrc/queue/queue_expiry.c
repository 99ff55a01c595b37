/* Taking messages that have expired.  Invariant: no ready message expires before its segment's
 * earliest, and no segment's earliest is before the queue's. */
#include "check.h"
#include "queue_internal.h"
#include "queue_take.h"

/* The ready messages of one word that have expired.  The others change *earliest_io. */
static uint64_t expired_of(const struct qsi_queue *queue, const struct qsi_segment *segment,
                           uint32_t word, uint64_t now_us, uint64_t *earliest_io)
    QSI_REQUIRES(qsi_store_mutex)
{
    const uint64_t *expiries =
        segment->expiries + (size_t)(word - segment->word_base) * QSI_WORD_BITS;
    uint64_t expired = 0;

    QS_DCHECK(segment->expiries != NULL);
    for (uint64_t rest = qsi_segment_ready(queue, segment, word); rest != 0; rest &= rest - 1) {
        uint32_t bit = (uint32_t)__builtin_ctzll(rest);
        if (expiries[bit] <= now_us) {
            expired |= UINT64_C(1) << bit;
        } else {
            *earliest_io = expiries[bit] < *earliest_io ? expiries[bit] : *earliest_io;
        }
    }
    return expired;
}

/* The next stretch of one segment; false: it has no more, and has the time of the next. */
static bool reserve_in_segment(struct qsi_queue *queue, struct qsi_segment *segment,
                               struct qsi_expiry_walk *walk, struct qsi_stretch *stretch_out)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t end = segment->word_base + segment->word_count;
    uint32_t word = walk->word > segment->word_base ? walk->word : segment->word_base;

    QS_DCHECK(segment->settled != NULL && segment->number == walk->number);
    for (; segment->expiries != NULL && word < end; word++) {
        uint64_t earliest = walk->earliest;
        uint64_t expired = expired_of(queue, segment, word, walk->now_us, &earliest);
        uint32_t bit;
        walk->word = word;
        if (expired == 0) {
            walk->earliest = earliest;
            continue;
        }
        /* The word is checked again, until nothing in it has expired. */
        bit = (uint32_t)__builtin_ctzll(expired);
        *stretch_out = (struct qsi_stretch){
            .segment = segment,
            .slot = word * QSI_WORD_BITS + bit,
            .count = qsi_ones_from(expired, bit),
        };
        qsi_queue_reserve_removal(queue, segment, word, qsi_stretch_mask(stretch_out));
        return true;
    }
    segment->earliest = walk->earliest;
    return false;
}

static void update_earliest(struct qsi_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    queue->earliest = QSI_NEVER;
    for (uint32_t i = 0; i < queue->segment_count; i++) {
        const struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        uint64_t earliest =
            segment->earliest < segment->earliest_due ? segment->earliest : segment->earliest_due;
        queue->earliest = earliest < queue->earliest ? earliest : queue->earliest;
    }
}

bool qsi_queue_reserve_expired(struct qsi_queue *queue, struct qsi_expiry_walk *walk,
                               struct qsi_stretch *stretch_out)
{
    uint32_t i = qsi_queue_segment_index(queue, walk->number);

    for (; i < queue->segment_count; i++) {
        struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        if (segment->number != walk->number || walk->word == 0) {
            walk->number = segment->number;
            walk->word = 0;
            walk->earliest = QSI_NEVER;
        }
        if (walk->word == 0 && segment->earliest > walk->now_us) {
            continue;
        }
        if (segment->settled == NULL) {
            walk->lacks_state = walk->lacks_state == NULL ? segment : walk->lacks_state;
            continue;
        }
        if (reserve_in_segment(queue, segment, walk, stretch_out)) {
            return true;
        }
        walk->number = segment->number + 1;
        walk->word = 0;
    }
    update_earliest(queue);
    return false;
}
