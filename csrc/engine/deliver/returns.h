/* Messages that no queue took, returned to their publishers because of QS_MANDATORY. */
#ifndef QSI_RETURNS_H
#define QSI_RETURNS_H

#include "store.h"
#include "thread_safety.h"

void qsi_returns_init(struct qs_channel *channel);
void qsi_returns_fini(struct qs_channel *channel);
/* Which returns a channel keeps: read under the lock by a call that continues without it. */
struct qsi_return_rules {
    bool ignores;     /* nobody reads them */
    bool keeps_first; /* and one is kept in spite of that */
};
struct qsi_return_rules qsi_return_rules(const struct qs_channel *channel)
    QSI_REQUIRES(qsi_store_mutex);
/* Whether another return is kept. fresh: those of the call so far. */
bool qsi_wants_return(const struct qsi_return_rules *rules, const struct qsi_list *fresh);
/* REQUIRES that it is kept.  Copies the message to the end of a list.  QS_ESTORE_FULL: too many
 * wait to be read; but if returns are ignored, the copy is left out. */
qs_status qsi_return_make(struct qs_store *store, const struct qsi_return_rules *rules,
                          struct qsi_list *returns, struct qsi_slice exchange, struct qsi_slice key,
                          struct qsi_slice properties, struct qsi_slice body,
                          qs_error *error) QS_MUST_CHECK;
/* Counts a return, and copies it if it will be read. place: for a return of a transaction, its
 * position among the transaction's records. */
qs_status qsi_return_one(struct qs_channel *channel, struct qsi_list *returns, uint64_t place,
                         struct qsi_slice exchange, struct qsi_slice key,
                         struct qsi_slice properties, struct qsi_slice body, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* So many messages were returned, copied or not. */
void qsi_count_returns(struct qs_channel *channel, uint64_t count) QSI_REQUIRES(qsi_store_mutex);
/* Takes the first of a list out of the list, as an event.  False: there is none. */
bool qsi_return_next(struct qs_store *store, struct qsi_list *returns, qs_event *event);
void qsi_free_return_list(struct qs_store *store, struct qsi_list *returns);
/* The list for this channel's returns now: the publisher's, the open transaction's, or that of
 * ignored returns. */
struct qsi_list *qsi_returns_of(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);
/* Adds them to that list, at its end. */
void qsi_keep_returns(struct qs_channel *channel, struct qsi_list *fresh)
    QSI_REQUIRES(qsi_store_mutex);
void qsi_move_returns(struct qsi_list *from, struct qsi_list *to);

#endif
