/* A channel's delivered and not yet settled messages, by delivery tag.
 *
 * Tags count up from 1 and are kept in extents: up to 64 consecutive tags whose messages ascend in
 * one word of one segment, with a bit for each that is still outstanding.  A batch of 10,000
 * deliveries is some 160 extents, and so are those of a consumer that gets every eighth message;
 * finding a tag is a binary search; acks in any order clear bits.
 *
 * A tag is withheld when its message was taken and never reached the caller: the body is damaged,
 * or memory ran out on the way.  Nobody knows such a tag, so nothing that settles "all up to"
 * another one may find it.  It is not outstanding to any function here but those that say so. */
#ifndef QSI_UNACKED_H
#define QSI_UNACKED_H

#include "queue.h"

struct qsi_extent {
    uint64_t first_tag;
    uint64_t messages;      /* the i-th one: of tag first_tag + i; bits of the word, as below */
    uint64_t outstanding;   /* of those */
    uint64_t pending_in_tx; /* of the outstanding: settled in a transaction that is open */
    uint64_t withheld;      /* beside the outstanding: never reached the caller */
    struct qsi_container *container;
    struct qsi_segment *segment; /* NULL: messages of a stream, of which nothing is out */
    uint64_t first_offset;       /* of those: bit i is the message at first_offset + i */
    void *consumer;              /* to which the messages were delivered; NULL: they were got */
    uint32_t word;               /* of the segment */
    uint32_t count;              /* of messages */
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
    uint64_t free_from; /* tags before it are settled or pending in a transaction */
};

/* The message of a tag that the extent has, a bit of the word. */
static inline uint64_t qsi_extent_message(const struct qsi_extent *extent, uint64_t tag)
{
    return qsi_nth_one(extent->messages, (uint32_t)(tag - extent->first_tag));
}
/* The slot of such a message. */
static inline uint32_t qsi_extent_slot(const struct qsi_extent *extent, uint64_t message)
{
    return extent->word * QSI_WORD_BITS + (uint32_t)__builtin_ctzll(message);
}
/* The tag of the first of these messages.  REQUIRES that there is one. */
static inline uint64_t qsi_extent_tag(const struct qsi_extent *extent, uint64_t mask)
{
    return extent->first_tag + qsi_popcount(extent->messages & ((mask & -mask) - 1));
}

void qsi_unacked_fini(struct qsi_unacked *unacked);
qs_status qsi_unacked_reserve(struct qsi_unacked *unacked, uint32_t extent_count) QS_MUST_CHECK;
/* Hands out tags for a stretch; returns the first.  REQUIRES room for one extent. */
uint64_t qsi_unacked_add(struct qsi_unacked *unacked, struct qsi_container *container,
                         const struct qsi_stretch *stretch, void *consumer);
/* A tag for the message of a stream at that offset.  container: the stream's queue.  REQUIRES as
 * qsi_unacked_add. */
uint64_t qsi_unacked_add_offset(struct qsi_unacked *unacked, struct qsi_container *container,
                                uint64_t offset, void *consumer);
/* Is one of these tags outstanding, and of a stream?  The extent that it is in; else NULL. */
const struct qsi_extent *qsi_unacked_find_stream(const struct qsi_unacked *unacked,
                                                 uint64_t first_tag, uint64_t last_tag);
/* The lowest offset of a stream that this consumer has outstanding; false: there is none. */
bool qsi_unacked_first_offset(const struct qsi_unacked *unacked, const void *consumer,
                              uint64_t *offset_out);
/* Tags for messages that need no ack. */
static inline uint64_t qsi_unacked_skip(struct qsi_unacked *unacked, uint32_t count)
{
    uint64_t first = unacked->last_tag + 1;

    unacked->last_tag += count;
    return first;
}

/* The extent of an outstanding tag; NULL: it is not outstanding. */
const struct qsi_extent *qsi_unacked_find(const struct qsi_unacked *unacked, uint64_t tag);
/* The first outstanding tag from here on; false: there is none. */
bool qsi_unacked_next(const struct qsi_unacked *unacked, uint64_t from, uint64_t *tag_out);
/* Is this tag outstanding, and not pending in a transaction? */
bool qsi_unacked_has(const struct qsi_unacked *unacked, uint64_t tag);

/* A transaction settles these tags: nothing else may, until it takes them out or gives them
 * back. */
void qsi_unacked_set_pending(struct qsi_unacked *unacked, uint64_t first_tag, uint64_t last_tag);
void qsi_unacked_give_back(struct qsi_unacked *unacked, uint64_t first_tag, uint64_t last_tag);
/* The next tags from here on of which none is pending in a transaction, delivered up to now;
 * false: there are none. */
bool qsi_unacked_next_free(const struct qsi_unacked *unacked, uint64_t from, uint64_t *first_out,
                           uint64_t *last_out);

/* Takes tags out, oldest first: exactly [first_tag, last_tag], those that are outstanding.
 * visit gets each extent with the messages taken, bits of its word that are cleared already. */
typedef void qsi_extent_visitor(void *context, const struct qsi_extent *extent, uint64_t mask);
void qsi_unacked_take(struct qsi_unacked *unacked, uint64_t first_tag, uint64_t last_tag,
                      qsi_extent_visitor *visit, void *context);
/* Withholds the outstanding ones of these tags.  visit gets each extent with the messages
 * that were outstanding until now. */
void qsi_unacked_withhold(struct qsi_unacked *unacked, uint64_t first_tag, uint64_t last_tag,
                          qsi_extent_visitor *visit, void *context);
/* Takes out all that is withheld, oldest first, as qsi_unacked_take does. */
void qsi_unacked_take_withheld(struct qsi_unacked *unacked, qsi_extent_visitor *visit,
                               void *context);
/* How many stretches of consecutive messages, each within an extent, a take of that range would
 * find. */
uint64_t qsi_unacked_runs(const struct qsi_unacked *unacked, uint64_t first_tag, uint64_t last_tag);
/* The most stretches of journalled messages that settling that range can find: messages of
 * durable queues that end with the process divide the others, and so do, when they are requeued,
 * those that were delivered too often. */
uint64_t qsi_unacked_stretches(const struct qsi_unacked *unacked, uint64_t first_tag,
                               uint64_t last_tag, bool requeued) QSI_REQUIRES(qsi_store_mutex);

/* Debug builds: asserts that extents and counts agree.  In release builds it is nothing. */
#ifdef NDEBUG
#define qsi_unacked_check(unacked) ((void)(unacked))
#else
void qsi_unacked_check(const struct qsi_unacked *unacked);
#endif

#endif
