/* Stores, connections and channels: opened, shut and freed; and the store's threads. */
#ifndef QSI_ENGINE_H
#define QSI_ENGINE_H

#include "store.h"
#include "thread_safety.h"

/* Whether a strict open for writing succeeds.  Takes the same steps up to the first byte that it
 * would write. */
qs_status qsi_store_judge(const char *path, qs_env *env, qs_error *error) QS_MUST_CHECK;

/* ---- store_memory.c ---- */

void qsi_store_unref(struct qs_store *store) QSI_RELEASES(qsi_store_mutex); /* frees the last one */

/* ---- connection.c ---- */

/* May release the lock meanwhile.  Makes room in the journal for the requeues of channels that are
 * shut: without it, the messages would be delivered again without the redelivered flag after an
 * orderly close.  On a full disk, or in a failed store, there may be no room. only: a channel, or
 * the channels of a connection; NULL: all. */
void qsi_make_room_to_shut(struct qs_store *store, const void *only) QSI_REQUIRES(qsi_store_mutex);
/* Requeues unacknowledged messages, cancels consumers, drops buffered events. */
void qsi_channel_shut(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);
/* Shuts its channels and deletes its exclusive queues. */
void qsi_connection_shut(struct qs_connection *connection) QSI_REQUIRES(qsi_store_mutex);

/* ---- threads.c: without the lock ---- */

qs_status qsi_start_threads(struct qs_store *store, qs_error *error) QS_MUST_CHECK;
void qsi_stop_threads(struct qs_store *store);

#endif
