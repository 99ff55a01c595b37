/* Inside csrc/amqp: basic.publish. */
#ifndef QSI_AMQP_VERBS_PUBLISH_H
#define QSI_AMQP_VERBS_PUBLISH_H

#include "call.h"

qsi_amqp_verb qsi_amqp_basic_publish; /* the method; its content arrives later */
/* Publishes the message after its whole content arrived. */
enum qsi_amqp_result qsi_amqp_publish(struct qsi_amqp_session *session,
                                      struct qsi_amqp_channel *channel, struct qsi_slice body);

#endif
