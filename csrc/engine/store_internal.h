/* Shared by opening and closing a store. */
#ifndef QSI_STORE_INTERNAL_H
#define QSI_STORE_INTERNAL_H

#include "store.h"

/* QS_EINVAL names the first invalid option. */
qs_status qsi_check_options(const qs_options *options, qs_error *error) QS_MUST_CHECK;
/* Makes what a store has without files.  REQUIRES zeroed memory with env and upcalls; on an error
 * qsi_store_free. */
qs_status qsi_store_init(struct qs_store *store, qs_error *error) QS_MUST_CHECK;
/* REQUIRES that no other thread has it. */
void qsi_store_free(struct qs_store *store);

#endif
