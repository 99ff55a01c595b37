/* The kinds of queues there are. */
#ifndef QSI_STORE_KINDS_H
#define QSI_STORE_KINDS_H

#include "store_kind.h"

extern const struct qsi_store_kind qsi_classic_queue, qsi_stream_queue, qsi_work_queue;

/* The kind that takes such arguments. */
const struct qsi_store_kind *qsi_kind_of(enum qsi_queue_kind arguments);
/* The kind that a record of this type declares; NULL: none. */
const struct qsi_store_kind *qsi_kind_declared(uint8_t type);
/* The record that declares a queue.  It points into the queue, and into itself. */
void qsi_describe_queue(const struct qsi_store_queue *queue,
                        struct qsi_declaration *declaration_out) QSI_REQUIRES(qsi_store_mutex);

#endif
