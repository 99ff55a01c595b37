/* Entering and leaving a store, and whether it has failed. */
#ifndef QSI_ENTER_H
#define QSI_ENTER_H

#include "store.h"
#include "thread_safety.h"

/* Locks, after checking that this process may use the store; QS_OK means locked. */
qs_status qsi_store_enter(struct qs_store *store, qs_error *error)
    QSI_ACQUIRES_IF_OK(qsi_store_mutex) QS_MUST_CHECK;
/* The same; QS_ESTORE_READ_ONLY for a store that was opened for reading only, which has no journal.
 */
qs_status qsi_store_enter_to_change(struct qs_store *store, qs_error *error)
    QSI_ACQUIRES_IF_OK(qsi_store_mutex) QS_MUST_CHECK;
qs_status qsi_channel_enter(struct qs_channel *channel, qs_error *error)
    QSI_ACQUIRES_IF_OK(qsi_store_mutex) QS_MUST_CHECK;
void qsi_store_leave(struct qs_store *store) QSI_RELEASES(qsi_store_mutex);
/* An AMQP error ends the channel, some of them its connection.  Called on the way out, locked.
 * Returns status. */
qs_status qsi_channel_leave(struct qs_channel *channel, qs_status status)
    QSI_RELEASES(qsi_store_mutex);
/* The same for a call that perhaps must not wait: messages on the removal list that need a wait
 * stay there. */
qs_status qsi_channel_leave_after(struct qs_channel *channel, enum qsi_wait wait, qs_status status)
    QSI_RELEASES(qsi_store_mutex);
/* QS_ESTORE_FAILED when it has. */
qs_status qsi_store_check_failed(const struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
bool qsi_store_is_forked(const struct qs_store *store);
/* Only the process that opens the store may use it. */
void qsi_store_record_process(struct qs_store *store);
/* Whether anything is on the removal list.  The timer, if there is one, handles messages that could
 * not leave. */
static inline bool qsi_has_removals(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    return store->removals.leaving_at < store->removals.leaving.bytes ||
           store->removals.fresh.bytes > 0 || !qsi_list_is_empty(&store->removals.trimming) ||
           (store->removals.stuck.bytes > 0 && !store->removals.has_timer);
}
/* QS_EWOULDBLOCK for a caller that must not wait: checked before the lock is released. */
static inline qs_status qsi_check_may_wait(enum qsi_wait wait)
{
    return wait == QSI_MUST_NOT_WAIT ? QS_EWOULDBLOCK : QS_OK;
}

#endif
