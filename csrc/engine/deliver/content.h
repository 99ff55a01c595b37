/* The contents of messages for callers: in records, or in the message store. */
#ifndef QSI_CONTENT_H
#define QSI_CONTENT_H

#include "store.h"

/* One row of a record in chunk, which the message holds; as below. */
void qsi_view_row(struct qsi_chunk *chunk, const uint8_t *record, uint32_t row, qs_message *message,
                  struct qsi_body *body_out);
/* A message of a run; a stored body is not read yet: *body_out has its place. */
void qsi_view_message(const struct qsi_run *run, uint32_t run_row, qs_message *message,
                      struct qsi_body *body_out);

/* The contents of a record of the message store, in a chunk of its own. */
struct qsi_stored {
    struct qsi_chunk *chunk;
    struct qsi_slice exchange, key, properties, body;
};

/* Without the lock.  The caller releases the chunk. */
qs_status qsi_read_stored(struct qs_store *store, const struct qsi_body *body,
                          struct qsi_stored *stored_out, qs_error *error) QS_MUST_CHECK;
/* Without the lock: reads what qsi_deliver_one left out, if anything. qs_message_release ends
 * it. */
qs_status qsi_deliver_body(struct qs_store *store, qs_message *message, const struct qsi_body *body,
                           qs_error *error) QS_MUST_CHECK;

#endif
