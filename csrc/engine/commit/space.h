/* Space on the disk: what publishers leave to other calls.
 *
 * Two things keep a full store from being stuck.  A file, RESERVE, holds blocks in reserve; a call
 * that settles, removes, makes a checkpoint, closes or opens on a full disk gives them up, and
 * publishers are refused until they are back.  And publishers are refused before the disk is full:
 * what is free must do for a checkpoint, which writes what only the journal has to segments, since
 * only a checkpoint brings the space of consumed messages back.
 *
 * What settles and finds no room even so is settled in memory alone, which a checkpoint makes
 * durable later. */
#ifndef QSI_SPACE_H
#define QSI_SPACE_H

#include "store.h"
#include "thread_safety.h"

/* What room in the journal is for.  On a full disk publishers are refused first; what is kept
 * for the others lets them go on. */
enum qsi_room_use {
    QSI_ROOM_PUBLISH,
    /* publishing too, by the thread that drains the removal list: it makes no checkpoint */
    QSI_ROOM_DEAD_LETTER,
    /* is always granted: without room it is done in memory alone, until the next checkpoint */
    QSI_ROOM_SETTLE,
    QSI_ROOM_REMOVE,     /* what must be journalled: topology, purges, settles of transactions */
    QSI_ROOM_CHECKPOINT, /* not in the journal: what brings space back, opening and closing */
};

/* ---- opening and closing: no other thread has the store ---- */

void qsi_space_init(struct qs_store *store);
/* Before recovery, which may need the reserve that an earlier session left. */
void qsi_space_open(struct qs_store *store);
/* After it: makes the reserve whole, if there is space for that. */
void qsi_space_begin(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
void qsi_space_close(struct qs_store *store);

/* ---- the reserve: without the lock ---- */

/* Gives space up: half of the reserve to calls that settle, all but a quarter to those that
 * remove, all of it to a checkpoint.  False: there is none left for them. */
bool qsi_space_give(struct qs_store *store, enum qsi_room_use use);
/* Is what this use must leave in the reserve?  Only then may it have what is free on the disk. */
bool qsi_space_is_left(struct qs_store *store, enum qsi_room_use use);
static inline bool qsi_space_is_whole(const struct qs_store *store)
{
    return __atomic_load_n(&store->space.is_whole, __ATOMIC_ACQUIRE);
}
/* Gives all of it up for a while: it is not filled before it is taken back.  False: there is
 * nothing. */
bool qsi_space_lend(struct qs_store *store);
/* Whether or not it was lent; restores it. */
void qsi_space_take_back(struct qs_store *store, uint64_t free_bytes);

/* ---- publishers ---- */

/* looks at a full disk, for one call: others may wait for the same space */
#define QSI_REGAIN_TRIES 4

/* May bytes more be published?  With may_regain it may release the lock meanwhile to have space
 * back, and tells so: then it has to be asked again.  QS_ESTORE_FULL. */
qs_status qsi_space_look(struct qs_store *store, uint64_t bytes, bool may_regain,
                         bool *released_out, enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
static inline QS_MUST_CHECK qs_status qsi_space_admit(struct qs_store *store, uint64_t bytes,
                                                      bool may_regain, bool *released_out,
                                                      enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    /* Most of the time the disk need not be looked at. */
    return qsi_space_is_whole(store) &&
                   qsi_journal_appended_lsn(store->journal) + bytes <= store->space.open_upto
               ? QS_OK
               : qsi_space_look(store, bytes, may_regain, released_out, wait, error);
}
/* How large a journal file that is made for publishers may be; less than the smallest there is:
 * none is to be made. */
uint64_t qsi_space_file_max(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* What is free on the disk beyond what a checkpoint would write. */
uint64_t qsi_space_beyond_checkpoint(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Is there space for a journal file of calls that settle, without taking what a checkpoint would
 * write? */
bool qsi_space_settles_in_files(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* May messages leave memory for the disk?  What publishers bring must not use up the reserve
 * that others opened. */
bool qsi_space_may_page(struct qs_store *store, const struct store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex);
/* How much of the messages a checkpoint should carry itself, at most: it writes that again each
 * time. */
uint64_t qsi_space_carried_max(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Should files that are only made ahead go? */
bool qsi_space_is_tight(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Releases the lock meanwhile.  A checkpoint, if one may bring space back that did not the last
 * time.  False: it did not. */
bool qsi_space_regain(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

qs_status qsi_space_fail_full(qs_error *error);

#endif
