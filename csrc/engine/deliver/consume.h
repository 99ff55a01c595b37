/* Consumers. */
#ifndef QSI_CONSUME_H
#define QSI_CONSUME_H

#include "store.h"

void qsi_drop_consumers(struct qs_channel *channel);
/* REQUIRES lock.  Deliveries of a consumer were settled: it has room for others.  It may be freed. */
void qsi_consumer_settled(struct store_consumer *consumer, uint32_t count);

#endif
