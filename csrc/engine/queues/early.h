/* Confirms ahead of the disk.
 *
 * If consumers have acknowledged a message in all its queues, while its record and their acks are
 * one journal entry that is not written yet, the message is gone whatever happens to that entry:
 * its publisher need not wait.  Messages are noted that a consumer is likely to get at once; noting
 * may fail, because the commit confirms them anyway. */
#ifndef QSI_EARLY_H
#define QSI_EARLY_H

#include "queue_life.h"
#include "store.h"
#include "thread_safety.h"

/* A consumer may consume it before its commit.  REQUIRES a destination. */
static inline bool qsi_early_is_likely(const struct qsi_route *route) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_of(route->destinations[0])->consumer_count > 0;
}

/* The message was accepted, journalled and numbered just now, as the last one of each of these
 * queues. */
void qsi_early_record(struct qs_channel *channel, const struct qsi_route *route, uint8_t priority,
                      uint64_t number) QSI_REQUIRES(qsi_store_mutex);

/* Something was noted, once. */
static inline bool qsi_early_is_used(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    return store->commit.early != NULL;
}

/* Consumers acknowledged these messages of a word that begins at word_seq, outside of transactions,
 * and the next append records that.  REQUIRES that early confirms are used. */
void qsi_early_acknowledged(struct qs_store *store, uint64_t container_id, uint64_t word_seq,
                            uint64_t mask) QSI_REQUIRES(qsi_store_mutex);
/* That was appended: confirms the messages that it completed.  REQUIRES the same. */
void qsi_early_confirm(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Nothing waits for its confirms any more. */
void qsi_early_forget(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);
void qsi_early_fini(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

#endif
