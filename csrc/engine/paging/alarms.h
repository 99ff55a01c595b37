/* Alarms: memory or the disk is used up. */
#ifndef QSI_ALARMS_H
#define QSI_ALARMS_H

#include "store.h"
#include "thread_safety.h"

/* By the timer; may release the lock.  Listeners are told what has changed. */
void qsi_alarms_look(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

#endif
