/* The directory of a store's inbox. */
#ifndef QSI_INBOX_DIR_H
#define QSI_INBOX_DIR_H

#include "store.h"

/* Makes the directory, and watches it; if nothing can be watched there is no inbox.  The thread
 * tries again what fails for lack of room or descriptors. */
qs_status qsi_inbox_open(struct qs_store *store, qs_error *error) QS_MUST_CHECK;
/* The same for the thread, if the directory could not be opened. */
qs_status qsi_inbox_make(struct qs_store *store, qs_error *error) QS_MUST_CHECK;
void qsi_inbox_close(struct qs_store *store); /* after the thread */
/* For statistics: the error that stopped the thread's work. */
void qsi_inbox_record_error(struct qs_store *store, const qs_error *error);

#endif
