/* Confirms ahead of the disk.
 *
 * A message that consumers have acknowledged in all its queues, while its record and their acks are
 * one entry of the journal that is not written yet, is gone whatever becomes of that entry: its
 * publisher need not wait.
 * Noted are messages that a consumer is likely to have at once; noting may fail, as the commit
 * confirms them all the same. */
#ifndef QSI_EARLY_H
#define QSI_EARLY_H

#include "queue_life.h"
#include "store.h"
#include "thread_safety.h"

/* Somebody may consume it before its commit.  REQUIRES a destination. */
static inline bool qsi_early_is_likely(const struct qsi_route *route) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_of(route->destinations[0])->consumer_count > 0;
}

/* It was accepted, journalled and numbered just now, as the last one of each of these queues. */
void qsi_early_note(struct qs_channel *channel, const struct qsi_route *route, uint8_t priority,
                    uint64_t number) QSI_REQUIRES(qsi_store_mutex);

/* Something was noted, once. */
static inline bool qsi_early_is_used(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    return store->commit.early != NULL;
}

/* Consumers acknowledged these messages of a word that begins at word_seq, outside of transactions,
 * and what is appended next says so.  REQUIRES that early ones are used. */
void qsi_early_acknowledged(struct qs_store *store, uint64_t container_id, uint64_t word_seq,
                            uint64_t mask) QSI_REQUIRES(qsi_store_mutex);
/* That was appended: confirms what it made an end of.  REQUIRES the same. */
void qsi_early_confirm(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Nobody hears of its confirms any more. */
void qsi_early_forget(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);
void qsi_early_fini(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

#endif
