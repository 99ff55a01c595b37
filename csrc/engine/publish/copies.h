/* Carbon copies: the further routing keys in a message's headers CC and BCC.
 *
 * As in RabbitMQ, both are arrays, whose strings are keys.  BCC is removed from the message. */
#ifndef QSI_COPIES_H
#define QSI_COPIES_H

#include "qstore/status.h"

#include "message_rules.h"
#include "slice.h"

/* Zeroed memory is a message without copies. */
struct qsi_copies {
    struct qsi_slice *keys; /* in the message's headers */
    uint32_t count;
    uint8_t *properties; /* the blob without BCC; NULL: nothing was removed */
    uint32_t properties_bytes;
    struct qsi_slice bad_name; /* of a header that is not an array; null: none */
    uint8_t bad_type;
};

/* False: a blob with headers certainly has neither of the two.  Costs next to nothing. */
bool qsi_may_have_copies(struct qsi_slice blob);
/* Reads the headers of a property blob, into which the keys then point. qsi_copies_check reports
 * their errors, because a missing exchange is reported first.  QS_ENOMEM, QS_EINVAL. */
qs_status qsi_copies_read(struct qsi_copies *copies_out, struct qsi_slice blob,
                          qs_error *error) QS_MUST_CHECK;
/* QS_PRECONDITION_FAILED */
qs_status qsi_copies_check(const struct qsi_copies *copies, qs_error *error) QS_MUST_CHECK;
void qsi_copies_fini(struct qsi_copies *copies);

#endif
