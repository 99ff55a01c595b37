/* Inside the message store: finding the records of a message file by their headers, without
 * references. */
#ifndef QSI_MESSAGE_WALK_H
#define QSI_MESSAGE_WALK_H

#include "message_file.h"
#include "thread_safety.h"

#define QSI_WALK_WINDOW_BYTES 65536u

struct qsi_message_walk {
    qs_env *env;
    const struct qsi_message_view *view;
    uint64_t end;      /* no record ends after it */
    uint64_t position; /* where the next header may be; the caller advances it */
    uint64_t slot_min; /* headers with lower slots are ignored */
    uint8_t *window;
    uint64_t window_from;
    size_t window_bytes;
};

/* The caller owns view.  QS_ENOMEM. */
qs_status qsi_walk_init(struct qsi_message_walk *walk, qs_env *env,
                        const struct qsi_message_view *view, uint64_t end,
                        qs_error *error) QS_MUST_CHECK;
void qsi_walk_fini(struct qsi_message_walk *walk);
/* Finds the next header of this file, from position on, whose record does not extend beyond end;
 * position becomes its offset.  *found_out false: there is none.  The record is not verified: its
 * place may have been abandoned. */
qs_status qsi_walk_next(struct qsi_message_walk *walk, struct qsi_body_ref *ref_out,
                        bool *found_out, qs_error *error) QS_MUST_CHECK;
/* Advances past the record of ref, which is at position. */
void qsi_walk_skip(struct qsi_message_walk *walk, const struct qsi_body_ref *ref);

/* Whether the headers of all live records of a file in generation 0 are found before end. */
qs_status qsi_walk_finds_live(struct qsi_message_store *messages,
                              const struct qsi_message_file *file,
                              const struct qsi_message_view *view, uint64_t end, bool *all_out,
                              qs_error *error) QSI_REQUIRES(qsi_message_store_mutex) QS_MUST_CHECK;

#endif
