/* Stores, connections and channels: opened, shut and freed; and the store's threads. */
#ifndef QSI_ENGINE_H
#define QSI_ENGINE_H

#include "store.h"
#include "thread_safety.h"

/* Does a strict open that writes succeed?  Goes the same way as far as the first byte that it would
 * write. */
qs_status qsi_store_judge(const char *path, qs_env *env, qs_error *error) QS_MUST_CHECK;

void qsi_store_unref(struct qs_store *store) QSI_RELEASES(qsi_store_mutex); /* frees the last one */
/* May release the lock meanwhile.  Room in the journal for what channels requeue when they are
 * shut: without, the messages would come again unflagged after an orderly close.  It can be done
 * without: on a full disk, or in a failed store.  only: a channel, or the channels of a
 * connection; NULL: all. */
void qsi_make_room_to_shut(struct qs_store *store, const void *only) QSI_REQUIRES(qsi_store_mutex);

/* ---- connection.c ---- */

/* Requeues what is out, cancels, drops what is buffered. */
void qsi_channel_shut(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);
/* Shuts its channels and deletes its exclusive queues. */
void qsi_connection_shut(struct qs_connection *connection) QSI_REQUIRES(qsi_store_mutex);

/* ---- threads.c: without the lock ---- */

qs_status qsi_start_threads(struct qs_store *store, qs_error *error) QS_MUST_CHECK;
void qsi_stop_threads(struct qs_store *store);

#endif
