/* Counting published messages: by channel, exchange, queue, and exchange and queue together.
 *
 * A message is counted when it is accepted.  For a transaction and a batch, notes say before that
 * how many messages go where.  Notes of neighbours with the same destinations are merged, and so
 * are those of batches. */
#ifndef QSI_PUBLISH_COUNTS_H
#define QSI_PUBLISH_COUNTS_H

#include "publishing.h"
#include "queue_life.h"
#include "tally.h"

void qsi_count_unroutable(struct qs_channel *channel, struct qsi_exchange *exchange, uint64_t count,
                          bool mandatory) QSI_REQUIRES(qsi_store_mutex);
/* One message, accepted in this hold of the lock, in which it was also routed. */
static inline void qsi_count_published(const struct qsi_publishing *publishing)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_channel *channel = publishing->channel;
    struct qsi_exchange *exchange = qsi_router_looked_up(&channel->store->router);
    const struct qsi_route *route = publishing->route;

    QS_DCHECK(qsi_slice_equals(exchange->name, publishing->exchange));
    channel->counts.publish += 1;
    exchange->published_in += 1;
    for (uint32_t i = 0; i < route->count; i++) {
        qsi_tally(exchange, route->destinations[i], 1);
    }
    if (QS_UNLIKELY(route->count == 0)) {
        qsi_count_unroutable(channel, exchange, 1, qsi_publishing_is_mandatory(publishing));
    }
}

struct qsi_published_note { /* followed by the queues' ids, then the exchange's name */
    uint64_t count;         /* of messages */
    uint32_t queue_count;
    uint8_t exchange_bytes;
    bool mandatory;
};
/* Reserves a note, whose queues' ids the caller writes to *ids_out.  The note is valid once it is
 * ended, which cannot fail. */
qs_status qsi_published_note_begin(struct qsi_published_notes *notes, uint32_t queue_count,
                                   uint64_t **ids_out) QS_MUST_CHECK;
void qsi_published_note_end(struct qsi_published_notes *notes, struct qsi_slice exchange,
                            uint32_t queue_count, uint64_t count, bool mandatory);
/* Whether the last note is about messages like this one of a transaction, so that it needs none. */
bool qsi_published_as_before(const struct qsi_published_notes *notes,
                             const struct qsi_publishing *publishing) QSI_REQUIRES(qsi_store_mutex);
/* Reserves a note for it, with its queues' ids. */
qs_status qsi_published_note_prepare(struct qsi_published_notes *notes,
                                     const struct qsi_route *route) QS_MUST_CHECK;
/* Adds one message to the last note. */
static inline void qsi_published_note_again(struct qsi_published_notes *notes)
{
    ((struct qsi_published_note *)(void *)(notes->notes.data + notes->last_at))->count += 1;
}
/* Adds other notes to these: notes with the same destinations as an added one are merged.
 * QS_ENOMEM changes nothing. */
qs_status qsi_published_notes_add(struct qsi_published_notes *notes,
                                  const struct qsi_published_notes *others) QS_MUST_CHECK;
/* What they take. */
uint64_t qsi_published_notes_memory(const struct qsi_published_notes *notes);
/* The first note, or the next one; NULL: there is none.  Its queues' ids, and its exchange. */
const struct qsi_published_note *qsi_published_note_next(const struct qsi_published_notes *notes,
                                                         const struct qsi_published_note *note);
const uint64_t *qsi_published_note_ids(const struct qsi_published_note *note);
struct qsi_slice qsi_published_note_exchange(const struct qsi_published_note *note);
/* The messages were accepted.  Queues and exchanges that were deleted meanwhile count nothing. */
void qsi_count_notes(struct qs_channel *channel, const struct qsi_published_notes *notes)
    QSI_REQUIRES(qsi_store_mutex);

#endif
