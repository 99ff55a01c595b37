/* Inside csrc/amqp: methods that declare, bind and delete exchanges and queues. */
#ifndef QSI_AMQP_VERBS_TOPOLOGY_H
#define QSI_AMQP_VERBS_TOPOLOGY_H

#include "call.h"

qsi_amqp_verb qsi_amqp_exchange_declare, qsi_amqp_exchange_delete, qsi_amqp_exchange_bind,
    qsi_amqp_exchange_unbind;
qsi_amqp_verb qsi_amqp_queue_declare, qsi_amqp_queue_bind, qsi_amqp_queue_unbind,
    qsi_amqp_queue_purge, qsi_amqp_queue_delete;

#endif
