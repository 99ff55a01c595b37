/* The deaths of a dead-lettered message: the x-death header, in RabbitMQ's format.
 *
 * x-death is an array of tables, the latest death first, one for each pair of queue and reason:
 * count, reason, queue, time (of the first death), exchange, routing-keys, and original-expiration
 * if the message had an expiration of its own. */
#ifndef QSI_DEATH_H
#define QSI_DEATH_H

#include "buf.h"
#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

struct qsi_death {
    struct qsi_slice queue;         /* the queue of the death */
    struct qsi_slice exchange, key; /* of the message's publish */
    const char *reason;             /* "rejected", "expired", "maxlen", "delivery_limit" */
    uint64_t time_s;
    /* The dead letter gets another routing key: the keys of its CC header are dropped. */
    bool has_new_key;
};

/* Appends the properties of the dead letter: this death is added, the expiration removed.
 * QS_ECORRUPT: properties are malformed; QS_ENOMEM. */
qs_status qsi_death_write(struct qsi_buf *properties_out, struct qsi_slice properties,
                          const struct qsi_death *death) QS_MUST_CHECK;

/* Whether a message with these properties has died in that queue before, and was not rejected
 * since.  Such a message would circulate forever. */
bool qsi_death_is_cycle(struct qsi_slice properties, struct qsi_slice queue);

#endif
