/* What a dead-lettered message tells of its deaths: the x-death header, as RabbitMQ writes it.
 *
 * x-death is an array of tables, the latest death first, one for each pair of queue and reason:
 * count, reason, queue, time (of the first), exchange, routing-keys, and original-expiration
 * where the message had one of its own. */
#ifndef QSI_DEATH_H
#define QSI_DEATH_H

#include "buf.h"
#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

struct qsi_death {
    struct qsi_slice queue;         /* where it happened */
    struct qsi_slice exchange, key; /* the message was published with */
    const char *reason;             /* "rejected", "expired", "maxlen", "delivery_limit" */
    uint64_t time_s;
    /* the message goes on with another routing key: those of its CC header do not count any more */
    bool has_new_key;
};

/* Appends the properties of the message as it goes on: this death is told, its expiration is gone.
 * QS_ECORRUPT: properties are none; QS_ENOMEM. */
qs_status qsi_death_tell(struct qsi_buf *properties_out, struct qsi_slice properties,
                         const struct qsi_death *death) QS_MUST_CHECK;

/* Has a message with these properties died in that queue before, and in no queue since because
 * somebody rejected it?  It would go round for ever. */
bool qsi_death_is_cycle(struct qsi_slice properties, struct qsi_slice queue);

#endif
