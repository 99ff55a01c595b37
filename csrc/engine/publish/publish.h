/* Parts of publishing that others use: what all calls check and return, and dead letters. */
#ifndef QSI_PUBLISH_H
#define QSI_PUBLISH_H

#include "store.h"
#include "thread_safety.h"

#include <stddef.h>
#include <string.h>

/* An empty receipt; of the name only the first byte is cleared. */
static inline void qsi_receipt_clear(qs_receipt *receipt)
{
    memset(receipt, 0, offsetof(qs_receipt, refused_queue));
    receipt->refused_queue[0] = '\0';
}

qs_status qsi_check_names(size_t exchange_bytes, size_t key_bytes, qs_error *error) QS_MUST_CHECK;

struct qsi_dead_letter {
    struct qsi_slice exchange, key, properties, body;
    bool may_go_round; /* also to queues where the message has died before */
};
/* May release the lock.  Publishes in the channel's open transaction; *queue_count_out: 0 if no
 * queue took it.  *may_be_refused_out: one of its queues refuses messages when it is full, judged
 * by its present state. */
qs_status qsi_publish_dead_letter(struct qs_channel *channel,
                                  const struct qsi_dead_letter *dead_letter,
                                  uint32_t *queue_count_out, bool *may_be_refused_out,
                                  enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
