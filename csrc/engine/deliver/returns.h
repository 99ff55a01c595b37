/* Messages that no queue took, for who published them with QS_MANDATORY. */
#ifndef QSI_RETURNS_H
#define QSI_RETURNS_H

#include "store.h"
#include "thread_safety.h"

void qsi_returns_init(struct qs_channel *channel);
void qsi_returns_fini(struct qs_channel *channel);
/* Which returns a channel keeps: looked up under the lock by a call that goes on without it. */
struct qsi_return_rules {
    bool ignores;     /* nobody reads them */
    bool keeps_first; /* and one is kept all the same */
};
struct qsi_return_rules qsi_return_rules(const struct qs_channel *channel)
    QSI_REQUIRES(qsi_store_mutex);
/* Is another return to be kept?  fresh: those of the call so far. */
bool qsi_wants_return(const struct qsi_return_rules *rules, const struct qsi_list *fresh);
/* REQUIRES that it is.  Copies the message to the end of a list.  QS_ESTORE_FULL: too many wait to
 * be read; but where returns are ignored there is just no copy. */
qs_status qsi_return_make(struct qs_store *store, const struct qsi_return_rules *rules,
                          struct qsi_list *returns, struct qsi_slice exchange, struct qsi_slice key,
                          struct qsi_slice properties, struct qsi_slice body,
                          qs_error *error) QS_MUST_CHECK;
/* A copy for who reads them, if somebody does, and counted.  place: of those of a transaction,
 * after how many of its records. */
qs_status qsi_return_one(struct qs_channel *channel, struct qsi_list *returns, uint64_t place,
                         struct qsi_slice exchange, struct qsi_slice key,
                         struct qsi_slice properties, struct qsi_slice body, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* So many came back, copied or not. */
void qsi_note_returns(struct qs_channel *channel, uint64_t count) QSI_REQUIRES(qsi_store_mutex);
/* The first of a list, as an event, out of the list.  Whether there is one. */
bool qsi_return_next(struct qs_store *store, struct qsi_list *returns, qs_event *event);
void qsi_free_return_list(struct qs_store *store, struct qsi_list *returns);
/* Where this channel's returns go now: to the publisher, aside until the
 * transaction commits, or to whoever asks for those that were ignored. */
struct qsi_list *qsi_returns_of(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);
/* They go there, behind the others. */
void qsi_keep_returns(struct qs_channel *channel, struct qsi_list *fresh)
    QSI_REQUIRES(qsi_store_mutex);
void qsi_move_returns(struct qsi_list *from, struct qsi_list *to);

#endif
