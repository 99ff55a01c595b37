/* What opening and closing a store share. */
#ifndef QSI_STORE_INTERNAL_H
#define QSI_STORE_INTERNAL_H

#include "store.h"

/* QS_EINVAL tells what is wrong with the first that is. */
qs_status qsi_check_options(const qs_options *options, qs_error *error) QS_MUST_CHECK;
/* REQUIRES that nobody else has it. */
void qsi_free_store(struct qs_store *store);

#endif
