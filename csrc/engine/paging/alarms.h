/* Alarms: memory or the disk is used up. */
#ifndef QSI_ALARMS_H
#define QSI_ALARMS_H

#include "store.h"
#include "thread_safety.h"

/* For the timer; may release the lock.  Reports changes to listeners. */
void qsi_alarms_look(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

#endif
