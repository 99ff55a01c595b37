/* A channel's delivered and not yet settled messages, by delivery tag.
 *
 * Tags count up from 1 and are kept in extents: up to 64 consecutive tags whose messages ascend in
 * one word of one segment, with a bit for each outstanding tag.  A batch of 10,000 deliveries has
 * about 160 extents, also for a consumer that gets every eighth message.  Finding a tag is a binary
 * search; acks in any order clear bits.
 *
 * A tag is withheld if its message was taken and could not be handed to the caller, because the
 * body is damaged or memory was short.  The caller does not know such a tag, so settling "all up
 * to" another tag must not include it.  Withheld tags are not outstanding, except in functions that
 * say so. */
#ifndef QSI_UNACKED_H
#define QSI_UNACKED_H

#include "queue.h"

struct qsi_extent {
    uint64_t first_tag;
    /* Bits of the word: the i-th bit set is the message of tag first_tag + i. */
    uint64_t messages;
    uint64_t outstanding;   /* a subset of messages */
    uint64_t pending_in_tx; /* outstanding ones that an open transaction settles */
    uint64_t withheld;      /* those that never reached the caller; not outstanding */
    struct qsi_container *container;
    struct qsi_segment *segment; /* NULL: messages of a stream, which have no states */
    /* Of messages of a stream: bit i is the message at first_offset + i. */
    uint64_t first_offset;
    void *consumer; /* the consumer of the messages; NULL: they were taken by a get */
    uint32_t word;  /* of the segment */
    uint32_t count; /* number of messages */
};

struct qsi_unacked {
    struct qsi_extent *extents; /* [first, first + count), ascending tags */
    uint32_t first;
    uint32_t count;
    uint32_t capacity;
    uint32_t empty_count; /* extents without outstanding or withheld tags among them */
    uint64_t withheld_count;
    uint64_t last_tag; /* 0: none yet */
    uint64_t outstanding_count;
    uint64_t free_from; /* all tags before it are settled or pending in a transaction */
};

/* The message of a tag in the extent: a bit of the word. */
static inline uint64_t qsi_extent_message(const struct qsi_extent *extent, uint64_t tag)
{
    return qsi_nth_one(extent->messages, (uint32_t)(tag - extent->first_tag));
}
/* The slot of such a message. */
static inline uint32_t qsi_extent_slot(const struct qsi_extent *extent, uint64_t message)
{
    return extent->word * QSI_WORD_BITS + (uint32_t)__builtin_ctzll(message);
}
/* The tag of the first message in mask.  REQUIRES that there is one. */
static inline uint64_t qsi_extent_tag(const struct qsi_extent *extent, uint64_t mask)
{
    return extent->first_tag + qsi_popcount(extent->messages & ((mask & -mask) - 1));
}

void qsi_unacked_fini(struct qsi_unacked *unacked);
qs_status qsi_unacked_reserve(struct qsi_unacked *unacked, uint32_t extent_count) QS_MUST_CHECK;
/* Assigns tags to a stretch; returns the first one.  REQUIRES room for one extent. */
uint64_t qsi_unacked_add(struct qsi_unacked *unacked, struct qsi_container *container,
                         const struct qsi_stretch *stretch, void *consumer);
/* Assigns a tag to the message of a stream at that offset.  container: the stream's queue.
 * REQUIRES as qsi_unacked_add. */
uint64_t qsi_unacked_add_offset(struct qsi_unacked *unacked, struct qsi_container *container,
                                uint64_t offset, void *consumer);
/* The first extent of a stream with an outstanding one of these tags; NULL: there is none. */
const struct qsi_extent *qsi_unacked_find_stream(const struct qsi_unacked *unacked,
                                                 uint64_t first_tag, uint64_t last_tag);
/* The lowest offset of a stream that is outstanding for this consumer; false: there is none. */
bool qsi_unacked_first_offset(const struct qsi_unacked *unacked, const void *consumer,
                              uint64_t *offset_out);
/* Assigns tags to messages that need no ack. */
static inline uint64_t qsi_unacked_skip(struct qsi_unacked *unacked, uint32_t count)
{
    uint64_t first = unacked->last_tag + 1;

    unacked->last_tag += count;
    return first;
}

/* The extent of an outstanding tag; NULL: the tag is not outstanding. */
const struct qsi_extent *qsi_unacked_find(const struct qsi_unacked *unacked, uint64_t tag);
/* The first outstanding tag at or after from; false: there is none. */
bool qsi_unacked_next(const struct qsi_unacked *unacked, uint64_t from, uint64_t *tag_out);
/* Whether the tag is outstanding, and not pending in a transaction. */
bool qsi_unacked_has(const struct qsi_unacked *unacked, uint64_t tag);

/* Reserves these tags for a transaction: only it may settle them, until it takes them or gives them
 * back. */
void qsi_unacked_set_pending(struct qsi_unacked *unacked, uint64_t first_tag, uint64_t last_tag);
void qsi_unacked_give_back(struct qsi_unacked *unacked, uint64_t first_tag, uint64_t last_tag);
/* The next stretch of tags from `from` on that are not pending in a transaction, up to the last tag
 * so far; false: there is none. */
bool qsi_unacked_next_free(const struct qsi_unacked *unacked, uint64_t from, uint64_t *first_out,
                           uint64_t *last_out);

/* Removes the outstanding tags in [first_tag, last_tag], oldest first.  visit gets each extent with
 * the bits of the removed messages, which are cleared already. */
typedef void qsi_extent_visitor(void *context, const struct qsi_extent *extent, uint64_t mask);
void qsi_unacked_take(struct qsi_unacked *unacked, uint64_t first_tag, uint64_t last_tag,
                      qsi_extent_visitor *visit, void *context);
/* Withholds the outstanding tags among these, but not those that are pending in a transaction.
 * visit gets each extent with the bits of the withheld messages. */
void qsi_unacked_withhold(struct qsi_unacked *unacked, uint64_t first_tag, uint64_t last_tag,
                          qsi_extent_visitor *visit, void *context);
/* Removes all withheld tags, oldest first, like qsi_unacked_take. */
void qsi_unacked_take_withheld(struct qsi_unacked *unacked, qsi_extent_visitor *visit,
                               void *context);
/* The number of stretches of consecutive messages, each within an extent, that a take of that range
 * would visit. */
uint64_t qsi_unacked_runs(const struct qsi_unacked *unacked, uint64_t first_tag, uint64_t last_tag);
/* The most stretches of journalled messages that settling that range can have.  Transient messages
 * of durable queues divide stretches, and so do, when requeued, messages that were delivered too
 * often. */
uint64_t qsi_unacked_stretches(const struct qsi_unacked *unacked, uint64_t first_tag,
                               uint64_t last_tag, bool requeued) QSI_REQUIRES(qsi_store_mutex);

/* Debug builds: asserts that extents and counts agree.  Release builds do nothing. */
#ifdef NDEBUG
#define qsi_unacked_check(unacked) ((void)(unacked))
#else
void qsi_unacked_check(const struct qsi_unacked *unacked);
#endif

#endif
