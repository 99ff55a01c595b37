/* Shared by queues, exchanges and bindings: how they are journalled.  All of it REQUIRES the
 * lock. */
#ifndef QSI_ENGINE_TOPOLOGY_H
#define QSI_ENGINE_TOPOLOGY_H

#include "priorities.h"
#include "queue_life.h"
#include "record.h"
#include "thread_safety.h"

#define QSI_TOPOLOGY_ROOM 4096 /* more than any such record, but for one with large arguments */

/* ---- topology.c ---- */

/* QS_EINVAL: too long, or with a NUL, which no name has: texts of errors and C callers would end
 * there.  Only for new names: stores that have such a name keep it.  Without the lock. */
qs_status qsi_check_new_name(qs_slice name, const char *what, qs_error *error) QS_MUST_CHECK;
/* The same for a name that is given as an argument, if any.  REQUIRES a checked table. */
qs_status qsi_check_new_argument(struct qsi_slice arguments, const char *name,
                                 qs_error *error) QS_MUST_CHECK;

/* QS_EINVAL: no AMQP field table. */
qs_status qsi_check_table(struct qsi_slice arguments, qs_error *error) QS_MUST_CHECK;
/* Arguments as they are kept, names in order: *arguments_io, or in sorted, which the caller owns.
 * Bytes that are no table are unchanged, to be refused later.  Without the lock. */
qs_status qsi_order_arguments(struct qsi_buf *sorted, qs_slice *arguments_io,
                              qs_error *error) QS_MUST_CHECK;
/* Takes the lock, and makes room for a record with so many bytes of names and arguments; on failure
 * the lock is not held. */
qs_status qsi_enter_topology(struct qs_channel *channel, uint64_t bytes, enum qsi_wait wait,
                             qs_error *error) QSI_ACQUIRES_IF_OK(qsi_store_mutex) QS_MUST_CHECK;
/* Reserves a place for the record before anything changes: append cannot fail then. */
qs_status qsi_reserve_topology(struct qs_store *store, const struct qsi_topology *topology,
                               struct qsi_chunk **chunk_out, qs_error *error) QS_MUST_CHECK;
uint64_t qsi_append_topology(struct qs_store *store, const struct qsi_topology *topology,
                             struct qsi_chunk *chunk) QSI_REQUIRES(qsi_store_mutex);

/* ---- topology_replay.c ---- */

qs_status qsi_replay_topology(struct qs_store *store, const struct qsi_topology *topology,
                              qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

/* ---- queues.c ---- */

/* A queue that is deleted with its channel or its last consumer. */
void qsi_delete_queue_now(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex);

void qsi_set_mode(struct qs_store *store, struct qsi_store_queue *queue, bool lazy)
    QSI_REQUIRES(qsi_store_mutex);

/* ---- exchanges.c ---- */

void qsi_journal_exchange_deleted(void *context, const struct qsi_exchange *exchange)
    QSI_REQUIRES(qsi_store_mutex); /* the router's callback */
/* The record that makes the binding again; false: one of its ends does not survive a restart. */
bool qsi_describe_binding(const struct qsi_binding *binding, struct qsi_topology *topology_out);

#endif
