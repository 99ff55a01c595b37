/* Consumers. */
#ifndef QSI_CONSUME_H
#define QSI_CONSUME_H

#include "store.h"
#include "thread_safety.h"

void qsi_drop_consumers(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);
/* Deliveries of a consumer were settled: it has room for more.  The consumer may be freed. */
void qsi_consumer_settled(struct qsi_store_consumer *consumer, uint32_t count)
    QSI_REQUIRES(qsi_store_mutex);

/* Frees a consumer that was cancelled, and that nothing refers to any more. */
void qsi_consumer_free_if_done(struct qsi_store_consumer *consumer) QSI_REQUIRES(qsi_store_mutex);

/* A message to the consumer, or about it, uses its names for as long as the consumer is held. */
void qsi_consumer_share_names(const struct qsi_store_consumer *consumer, qs_message *message);
/* The consumer's room changed: consumers of the queues that it consumes from look again. */
void qsi_notify_others(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);
/* Unacknowledged messages of the consumer stay so, and count in the channel's limit. */
void qsi_drop_consumer(struct qsi_store_consumer *consumer) QSI_REQUIRES(qsi_store_mutex);

#endif
