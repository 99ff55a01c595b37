/* The store's clock, and delays by it. */
#ifndef QSI_CLOCK_H
#define QSI_CLOCK_H

#include "store.h"
#include "thread_safety.h"

/* Before anything is recovered: from the time in MANIFEST. */
void qsi_clock_start(struct qs_store *store) QSI_REQUIRES(qsi_manifest_mutex)
    QSI_REQUIRES(qsi_store_mutex);
uint64_t qsi_clock_us(const struct qs_store *store); /* since 1970, more or less */
/* How far the machine's wall clock is ahead of it. */
int64_t qsi_clock_ahead_us(const struct qs_store *store);

/* The end of a delay, by the store's clock; 0: at once. */
uint64_t qsi_due_us(const struct qs_store *store, uint64_t delay_us);

#endif
