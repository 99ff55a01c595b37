/* Acks, rejects and requeues. */
#ifndef QSI_SETTLE_H
#define QSI_SETTLE_H

#include "store.h"
#include "thread_safety.h"

/* The most bytes that settling these tags can add to the journal. */
uint64_t qsi_settle_bytes(const struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                          uint8_t kind) QSI_REQUIRES(qsi_store_mutex);
/* Takes [first_tag, last_tag] and acks (drops) or requeues them.  Journal records go to chunk,
 * which has that much room; NULL: no records. due_us: for the kinds that have it, else 0.  Returns
 * the number of records. */
uint32_t qsi_settle_into(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                         uint8_t kind, uint64_t due_us, struct qsi_chunk *chunk)
    QSI_REQUIRES(qsi_store_mutex);
/* Reserves room to delay the messages of these tags: qsi_settle_into cannot fail then. */
qs_status qsi_settle_cover_delays(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                                  qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Requeues the messages of these tags, and appends the records to the journal if possible. */
void qsi_requeue_tags(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag)
    QSI_REQUIRES(qsi_store_mutex);
/* Settles with room in the journal, or not at all.  May release the lock. */
qs_status qsi_settle_with_room(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                               uint8_t kind, enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* These messages were taken and do not reach the caller: they stay out, and settling a range of
 * tags skips them, until they are handed back. */
void qsi_withhold_tags(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag)
    QSI_REQUIRES(qsi_store_mutex);
/* A message that is withheld, or was taken just now, is ready again as if it had not been taken. */
void qsi_hand_back_withheld(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);
void qsi_hand_back_tags(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag)
    QSI_REQUIRES(qsi_store_mutex);
/* One message, perhaps of a consumer. */
void qsi_hand_back_delivery(struct qs_channel *channel, uint64_t tag) QSI_REQUIRES(qsi_store_mutex);
/* May release the lock meanwhile.  Acks messages that were delivered without ack, after making room
 * for that in the journal: the room that was free when they were taken may not be enough, or be
 * taken by now. */
void qsi_settle_no_ack(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                       enum qsi_wait wait) QSI_REQUIRES(qsi_store_mutex);

/* With its records, or not at all, unless the disk is full: a sync then makes a checkpoint. */
qs_status qsi_settle_surely(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                            uint8_t kind, uint64_t due_us, uint64_t bytes, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* bytes: qsi_settle_bytes of the tags. */
void qsi_settle_within(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                       uint8_t kind, uint64_t due_us, uint64_t bytes) QSI_REQUIRES(qsi_store_mutex);

#endif
