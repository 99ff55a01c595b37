/* Inside csrc/amqp: methods that consume, get and settle messages. */
#ifndef QSI_AMQP_VERBS_BASIC_H
#define QSI_AMQP_VERBS_BASIC_H

#include "call.h"

qsi_amqp_verb qsi_amqp_basic_consume, qsi_amqp_basic_cancel, qsi_amqp_basic_get, qsi_amqp_basic_qos;
qsi_amqp_verb qsi_amqp_basic_ack, qsi_amqp_basic_nack, qsi_amqp_basic_reject,
    qsi_amqp_basic_recover, qsi_amqp_basic_recover_async;

#endif
