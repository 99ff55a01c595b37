/* Inside csrc/amqp: direct reply-to. */
#ifndef QSI_AMQP_REPLY_TO_H
#define QSI_AMQP_REPLY_TO_H

#include "call.h"
#include "properties.h"

#define QSI_AMQP_REPLY_TO "amq.rabbitmq.reply-to"

/* Whether the name is QSI_AMQP_REPLY_TO, or begins with it and a dot. */
bool qsi_amqp_is_reply_to(struct qsi_slice name);
bool qsi_amqp_is_reply_queue(struct qsi_slice name);
enum qsi_amqp_result qsi_amqp_declare_reply_to(struct qsi_amqp_call *call, struct qsi_slice name);
/* Declares the channel's reply queue and consumes from it. */
enum qsi_amqp_result qsi_amqp_consume_reply_to(struct qsi_amqp_call *call,
                                               char tag_out[QSI_AMQP_NAME_BYTES]);
/* Replaces reply-to in the properties by the name of the channel's reply queue, if the client has
 * set QSI_AMQP_REPLY_TO.  *blob_io then lies in *room_out, which the caller owns. */
enum qsi_amqp_result qsi_amqp_expand_reply_to(struct qsi_amqp_session *session,
                                              const struct qsi_amqp_channel *channel,
                                              const struct qsi_properties *properties,
                                              struct qsi_slice *blob_io, struct qsi_buf *room_out);
/* Forgets the channel's reply consumer, if it has this tag: it was cancelled. */
void qsi_amqp_forget_reply_to(struct qsi_amqp_channel *channel, struct qsi_slice tag);

#endif
