/* Space on the disk: what publishers leave to other calls.
 *
 * Two things keep a full store from getting stuck.  First, a file, RESERVE, has reserved blocks; a
 * call that settles, removes, makes a checkpoint, closes or opens on a full disk gives them up, and
 * publishers are refused until they are back.  Second, publishers are refused before the disk is
 * full: the free space must suffice for a checkpoint, which writes to segments what only the
 * journal has, because only a checkpoint frees the space of consumed messages.
 *
 * A settle that still finds no room is done only in memory, and a later checkpoint makes it
 * durable. */
#ifndef QSI_SPACE_H
#define QSI_SPACE_H

#include "store.h"
#include "thread_safety.h"

/* The uses of room in the journal.  On a full disk publishers are refused first; the room that is
 * kept for the others lets them go on. */
enum qsi_room_use {
    QSI_ROOM_PUBLISH,
    /* publishing too, by the thread that drains the removal list: it makes no checkpoint */
    QSI_ROOM_DEAD_LETTER,
    /* is always granted: without room it is done only in memory, until the next checkpoint */
    QSI_ROOM_SETTLE,
    QSI_ROOM_REMOVE,     /* topology, purges, settles of transactions: journalled */
    QSI_ROOM_CHECKPOINT, /* not in the journal: freeing space, opening and closing */
};

/* ---- opening and closing: no other thread has the store ---- */

void qsi_space_init(struct qs_store *store);
/* Before recovery, which may need the reserve that an earlier session left. */
void qsi_space_open(struct qs_store *store);
/* After it: refills the reserve, if there is space for that. */
void qsi_space_begin(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
void qsi_space_close(struct qs_store *store);

/* ---- the reserve: without the lock ---- */

/* Gives space up: half of the reserve to calls that settle, all but a quarter to those that remove,
 * all of it to a checkpoint.  False: there is none left for them. */
bool qsi_space_give(struct qs_store *store, enum qsi_room_use use);
/* Whether the reserve has what this use must leave in it.  Only then may the use take free space of
 * the disk. */
bool qsi_space_is_left(struct qs_store *store, enum qsi_room_use use);
static inline bool qsi_space_is_whole(const struct qs_store *store)
{
    return __atomic_load_n(&store->space.is_whole, __ATOMIC_ACQUIRE);
}
/* Gives all of it up for a while: it is not refilled before it is taken back.  False: there is
 * nothing. */
bool qsi_space_lend(struct qs_store *store);
/* Whether or not it was lent; restores it. */
void qsi_space_take_back(struct qs_store *store, uint64_t free_bytes);

/* ---- publishers ---- */

/* looks at a full disk, for one call: others may wait for the same space */
#define QSI_REGAIN_TRIES 4

/* Whether bytes more may be published.  With may_regain it may release the lock meanwhile to regain
 * space, and reports that: then the caller asks again.  QS_ESTORE_FULL. */
qs_status qsi_space_look(struct qs_store *store, uint64_t bytes, bool may_regain,
                         bool *released_out, enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
static inline QS_MUST_CHECK qs_status qsi_space_admit(struct qs_store *store, uint64_t bytes,
                                                      bool may_regain, bool *released_out,
                                                      enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    /* Mostly the disk need not be checked. */
    return qsi_space_is_whole(store) &&
                   qsi_journal_appended_lsn(store->journal) + bytes <= store->space.open_upto
               ? QS_OK
               : qsi_space_look(store, bytes, may_regain, released_out, wait, error);
}
/* The largest journal file that may be made for publishers; less than the smallest possible size:
 * none may be made. */
uint64_t qsi_space_file_max(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* The free space of the disk beyond what a checkpoint would write. */
uint64_t qsi_space_beyond_checkpoint(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Whether there is space for a journal file of calls that settle, without taking what a checkpoint
 * would write. */
bool qsi_space_settles_in_files(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Whether messages may be paged to the disk.  New messages must not use up the reserve that others
 * opened. */
bool qsi_space_may_page(struct qs_store *store, const struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex);
/* The most bytes of messages that a checkpoint should carry itself: each one writes them again. */
uint64_t qsi_space_carried_max(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Whether files that are only made ahead should be removed. */
bool qsi_space_is_tight(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Releases the lock meanwhile.  Makes a checkpoint, if one may free space that the last one could
 * not.  False: it did not. */
bool qsi_space_regain(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

qs_status qsi_space_fail_full(qs_error *error);

#endif
