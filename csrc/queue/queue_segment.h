/* A segment of a queue: the state of the messages of consecutive sequences.
 *
 * What a message is (ready, out, settled, seen) stands in bitmaps by slot, the message's place in
 * its segment; what not every queue has of its messages in columns beside them.  A segment whose
 * state left memory is its counts alone.
 *
 * Single-threaded: the engine's lock covers every call. */
#ifndef QSI_QUEUE_SEGMENT_H
#define QSI_QUEUE_SEGMENT_H

#include "bits.h"
#include "list.h"
#include "segment.h"
#include "thread_safety.h"

#include <stdbool.h>
#include <stdint.h>

#define QSI_NEVER UINT64_MAX /* when a message expires that does not */

struct qsi_queue;

/* The messages of a segment that are not to be delivered yet (queue_delays.c). */
struct qsi_delays {
    uint64_t *bits; /* bitmap; a message that has its bit is neither ready nor out */
    uint64_t *dues; /* by slot from word_base on, of delayed messages: us since 1970 */
    uint16_t *heap; /* slots from word_base on: the one that is due first at the top */
    uint32_t heap_count;
    bool is_ordered; /* the heap has what is delayed and nothing else; if not, it is made again */
};

/* A file that a segment had before: what is in it is nowhere else. */
struct qsi_former_file {
    struct qsi_segment_file file; /* without a state: that is in the file that came after it */
    uint32_t end;                 /* slots below that are in no earlier one are in it */
    bool of_transients;           /* the segment's transient file it was */
    bool is_dirty;                /* something was written to it since the last checkpoint */
    bool named;                   /* as of the segment */
};

/* The state of the messages of shared->entries consecutive sequences.  Bitmaps cover words
 * [word_base, word_base + word_count); what is before them is settled, what is behind was not
 * given out yet. */
#define GUARDED QSI_GUARDED_BY(qsi_store_mutex)
struct qsi_segment {
    struct qsi_queue *queue GUARDED; /* NULL: retired */
    uint64_t number;
    bool is_durable; /* of a durable queue: its file is in the durable index */
    uint32_t ready_count GUARDED, out_count GUARDED, delayed_count GUARDED;
    uint32_t word_base GUARDED, word_count GUARDED;
    uint32_t first_word GUARDED; /* no message before this word is ready */
    /* slots below count as delivered once, by a session that crashed */
    uint32_t seen_end GUARDED;
    /* slots from here on were never given out; 0: what is before next_seq was */
    uint32_t given_end GUARDED;
    uint64_t *settled GUARDED; /* the three bitmaps; NULL: the state is on the disk only */
    uint64_t *out GUARDED;
    uint64_t *seen GUARDED;
    /* of a durable queue: messages that end with the process; NULL: none */
    uint64_t *transient GUARDED;
    /* by slot from word_base on: earlier deliveries, saturating; NULL until a message is
     * requeued */
    uint8_t *deliveries GUARDED;
    /* by slot from word_base on: us since 1970, or QSI_NEVER; NULL: none expires */
    uint64_t *expiries GUARDED;
    /* by slot from word_base on: bytes of bodies; NULL: they are not counted */
    uint32_t *sizes GUARDED;
    /* of ready bodies, when the state left memory, if they are counted */
    uint64_t paged_bytes GUARDED;
    /* NULL: no message was delayed since the state is in memory */
    struct qsi_delays *delays GUARDED;
    /* no ready message expires before; 0 until a state that has expiries was read */
    uint64_t earliest GUARDED;
    /* no delayed message is due before; QSI_NEVER: none is delayed */
    uint64_t earliest_due GUARDED;
    uint32_t transient_count GUARDED; /* live ones */
    uint32_t state_version GUARDED;   /* counts changes that the state area must tell */
    /* the state area tells slots below as they are, 0: it does not */
    uint32_t told_end GUARDED;
    bool state_dirty GUARDED;      /* the state area of file does not tell the present state */
    bool transients_dirty GUARDED; /* nor does that of transient_file */
    bool file_dirty GUARDED;       /* written since its last sync */
    bool content_dirty GUARDED;    /* and not its state alone */
    /* its file or its state could not be read: it is not tried again unasked */
    bool is_damaged GUARDED;
    /* the consumer or call that was told that its state cannot be read: which messages it has is
     * not known, and others are served meanwhile; NULL: none was told */
    const void *aside_for GUARDED;
    bool has_stored GUARDED; /* some message refers, or referred, to the message store */
    /* the next bodies begin on a page of their own: a checkpoint names those before */
    bool page_aligned GUARDED;
    /* by the last checkpoint, or by the one being made: its file outlives it until the next */
    bool named GUARDED;
    /* the state area that the last checkpoint names; 0: none */
    uint8_t durable_area GUARDED;
    uint32_t busy GUARDED;                /* jobs under way: it is not freed before they end */
    struct qsi_segment_file file GUARDED; /* heap_end 0: none */
    /* Of transient messages in a durable queue.  It is never synced, and gone at the next open.
     * Each of the two files tells the state of its own messages, and takes the others for
     * settled. */
    struct qsi_segment_file transient_file GUARDED;
    struct qsi_former_file *formers GUARDED; /* in the order in which they were left */
    uint32_t former_count GUARDED;
    /* Settled messages whose content was not in memory.  The bitmap is there before content that
     * refers to the message store leaves memory, and before a state comes that has such content
     * on the disk: settling needs no memory.  NULL: no such content is on the disk only. */
    uint64_t *releases GUARDED;
    bool has_releases GUARDED; /* some bit is set */
    /* and all that the state area of file does not call settled */
    bool release_rest GUARDED;
    bool release_transients GUARDED;   /* nor that of transient_file */
    struct qsi_list in_shared GUARDED; /* releasing or retired */
};
#undef GUARDED

/* ---- the state ---- */

static inline uint32_t qsi_segment_live_count(const struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex)
{
    return segment->ready_count + segment->out_count + segment->delayed_count;
}
/* The ready messages of one word. */
uint64_t qsi_segment_ready(const struct qsi_queue *queue, const struct qsi_segment *segment,
                           uint32_t word) QSI_REQUIRES(qsi_store_mutex);
/* Those that were delivered before, of one word.  A first delivery that is still out is not
 * among them: a replayed requeue, or the crash itself, will count it.  REQUIRES state that
 * covers the word. */
uint64_t qsi_segment_seen_before(const struct qsi_segment *segment, uint32_t word)
    QSI_REQUIRES(qsi_store_mutex);
/* Those that are not settled, of one word. */
uint64_t qsi_segment_live(const struct qsi_queue *queue, const struct qsi_segment *segment,
                          uint32_t word) QSI_REQUIRES(qsi_store_mutex);
/* Bitmaps for words [word_base, word_base + word_count), zeroed; QS_ENOMEM. */
qs_status qsi_segment_make_state(struct qsi_queue *queue, struct qsi_segment *segment,
                                 uint32_t word_base, uint32_t word_count)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
void qsi_segment_drop_state(struct qsi_queue *queue, struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex);
/* After a job: a segment that ended meanwhile is retired now. */
void qsi_segment_retire_if_done(struct qsi_queue *queue, struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex);
void qsi_segment_free(struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex); /* a retired one */

/* ---- deliveries ---- */

/* Had it been delivered before it was taken?  REQUIRES that it is asked between take and
 * mark_seen. */
static inline bool qsi_segment_was_seen(const struct qsi_segment *segment, uint32_t slot)
    QSI_REQUIRES(qsi_store_mutex)
{
    return (segment->seen[slot / QSI_WORD_BITS - segment->word_base] >> (slot % QSI_WORD_BITS) &
            1) != 0;
}
static inline uint32_t qsi_segment_deliveries(const struct qsi_segment *segment, uint32_t slot)
    QSI_REQUIRES(qsi_store_mutex)
{
    return segment->deliveries != NULL
               ? segment->deliveries[slot - segment->word_base * QSI_WORD_BITS]
           : qsi_segment_was_seen(segment, slot) ? 1
                                                 : 0;
}
/* How often a message that is out had been delivered before it was taken. */
uint32_t qsi_segment_deliveries_before(const struct qsi_queue *queue,
                                       const struct qsi_segment *segment, uint32_t slot)
    QSI_REQUIRES(qsi_store_mutex);
/* In a queue that counts deliveries: memory to count them in the segment; QS_ENOMEM. */
qs_status qsi_segment_keep_deliveries(const struct qsi_queue *queue, struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

/* Of these messages, which are journalled. */
static inline uint64_t qsi_segment_journalled(const struct qsi_segment *segment, uint32_t word,
                                              uint64_t mask) QSI_REQUIRES(qsi_store_mutex)
{
    return segment->transient != NULL ? mask & ~segment->transient[word - segment->word_base]
                                      : mask;
}
/* The delayed messages of one word. */
static inline uint64_t qsi_segment_delayed(const struct qsi_segment *segment, uint32_t word)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t at = word - segment->word_base;

    return segment->delays != NULL && word >= segment->word_base && at < segment->word_count
               ? segment->delays->bits[at]
               : 0;
}

/* ---- files that cannot be written to any more (former_files.c) ---- */

/* REQUIRES state.  The file, or the transient one, is left with slots below end in it; the next
 * write makes a new one. */
qs_status qsi_segment_leave_file(struct qsi_segment *segment, bool of_transients, uint32_t end)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Recovery, in the order in which they were left. */
qs_status qsi_segment_restore_former(struct qsi_segment *segment,
                                     const struct qsi_segment_file *file, uint32_t end)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Which file a slot was written to, and as far as *end_io is lowered those behind it. */
const struct qsi_segment_file *qsi_segment_file_of(const struct qsi_segment *segment, uint32_t slot,
                                                   bool of_transients, uint32_t *end_io)
    QSI_REQUIRES(qsi_store_mutex);

#endif
