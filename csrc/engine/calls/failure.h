/* One policy of failure: what a failed operation on the disk means for the store.  The table is
 * failure.def, and docs/DURABILITY.md prints it. */
#ifndef QSI_FAILURE_H
#define QSI_FAILURE_H

#include "store.h"
#include "thread_safety.h"

enum qsi_disk_use {
#define QSI_DISK_USE(name, words, shortage, damage, other) QSI_USE_##name,
#include "failure.def"
#undef QSI_DISK_USE
    QSI_DISK_USES
};

enum qsi_consequence {
    QSI_GOES_ON, /* nothing failed */
#define QSI_CONSEQUENCE(name, words) QSI_##name,
#include "failure.def"
#undef QSI_CONSEQUENCE
};

/* By the table. */
enum qsi_consequence qsi_consequence_of(enum qsi_disk_use use, qs_status status);
/* The same.  If the store fails, nothing is accepted from now on, and everything unconfirmed is
 * nacked; the first error is the cause. */
enum qsi_consequence qsi_store_record_failure(struct qs_store *store, enum qsi_disk_use use,
                                              qs_status status, const qs_error *error)
    QSI_REQUIRES(qsi_store_mutex);

/* Of a call that can do without what it read: QS_OK also where that is unreadable, since the calls
 * that need it are told.  A call that verifies the store is told of a disk that fails. */
qs_status qsi_pass_over(const struct qs_store *store, qs_status status);
/* The store has failed, or is closed: every waiting thread finds out. */
void qsi_wake_everyone(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

#endif
