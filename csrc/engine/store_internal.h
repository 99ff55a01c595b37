/* Shared by opening and closing a store. */
#ifndef QSI_STORE_INTERNAL_H
#define QSI_STORE_INTERNAL_H

#include "store.h"

/* QS_EINVAL names the first invalid option. */
qs_status qsi_check_options(const qs_options *options, qs_error *error) QS_MUST_CHECK;
/* REQUIRES that no other thread has it. */
void qsi_free_store(struct qs_store *store);

#endif
