/* What a message takes before it is published: room, and a body in the message store. */
#ifndef QSI_PUBLISH_PREPARE_H
#define QSI_PUBLISH_PREPARE_H

#include "store.h"

/* Whether a message of this size goes to the message store. */
bool qsi_is_stored(const struct qs_store *store, uint64_t properties_bytes, uint64_t body_bytes);
/* What a publisher has to find room for besides its own bytes, in the journal and on the disk
 * (qsi_commit_make_room).  So acks and deletions still have room when publishers have none. */
uint64_t qsi_reserve_bytes(const struct qs_store *store);
/* The bytes before a body in the message store; the caller frees them. */
qs_status qsi_make_envelope(struct qsi_slice exchange, struct qsi_slice key,
                            struct qsi_slice properties, struct qsi_slice *envelope_out,
                            qs_error *error) QS_MUST_CHECK;

#endif
