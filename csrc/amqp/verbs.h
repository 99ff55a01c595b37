/* Inside csrc/amqp: one function for each method that a client sends on a channel.
 *
 * Names of exchanges and queues are passed without CR and LF, and tables with their keys in
 * order. */
#ifndef QSI_AMQP_VERBS_H
#define QSI_AMQP_VERBS_H

#include "properties.h"
#include "session_internal.h"

/* A method that is being handled. */
struct qsi_amqp_call {
    struct qsi_amqp_session *session;
    struct qsi_amqp_channel *channel;
    const struct qsi_amqp_arguments *arguments;
    qs_error error;
};

typedef enum qsi_amqp_result qsi_amqp_verb(struct qsi_amqp_call *call);

qsi_amqp_verb qsi_amqp_exchange_declare, qsi_amqp_exchange_delete, qsi_amqp_exchange_bind,
    qsi_amqp_exchange_unbind;
qsi_amqp_verb qsi_amqp_queue_declare, qsi_amqp_queue_bind, qsi_amqp_queue_unbind,
    qsi_amqp_queue_purge, qsi_amqp_queue_delete;
qsi_amqp_verb qsi_amqp_basic_consume, qsi_amqp_basic_cancel, qsi_amqp_basic_get, qsi_amqp_basic_qos;
qsi_amqp_verb qsi_amqp_basic_publish; /* the method; its content arrives later */
qsi_amqp_verb qsi_amqp_basic_ack, qsi_amqp_basic_nack, qsi_amqp_basic_reject,
    qsi_amqp_basic_recover, qsi_amqp_basic_recover_async;

static inline bool qsi_amqp_has_bit(const struct qsi_amqp_call *call, uint8_t bit)
{
    return (call->arguments->bits & bit) != 0;
}

/* The name without CR and LF, which RabbitMQ removes, too; the result may lie in room. */
struct qsi_slice qsi_amqp_strip(struct qsi_slice name, char room[QSI_AMQP_NAME_BYTES]);

/* The name of a queue; "" means the queue that the channel declared last.  DONE or FAULT. */
enum qsi_amqp_result qsi_amqp_queue_name(struct qsi_amqp_call *call, struct qsi_slice name,
                                         char room[QSI_AMQP_NAME_BYTES],
                                         struct qsi_slice *name_out);

/* Copies the table with its keys in order, for the engine.  Owns: *table_out, qsi_buf_fini. */
enum qsi_amqp_result qsi_amqp_table(struct qsi_amqp_call *call, struct qsi_buf *table_out);

/* QS_NO_WAIT, or 0 if this turn may wait. */
uint32_t qsi_amqp_wait_flag(const struct qsi_amqp_call *call);

/* Maps the status of a call that changes something durable.  Later output is held back until the
 * change is durable. */
enum qsi_amqp_result qsi_amqp_answer_durable(struct qsi_amqp_call *call, qs_status status);

/* Maps the status of a call of the engine. */
enum qsi_amqp_result qsi_amqp_answer(struct qsi_amqp_call *call, qs_status status);

/* Answers with a method without arguments, unless the client set no-wait. */
void qsi_amqp_reply(struct qsi_amqp_call *call, bool is_wanted, enum qsi_amqp_method method);

/* Answers with consume-ok, and asks for events from now on. */
enum qsi_amqp_result qsi_amqp_began_consuming(struct qsi_amqp_call *call, const char *tag);

/* ---- reply_to.c: direct reply-to ---- */

#define QSI_AMQP_REPLY_TO "amq.rabbitmq.reply-to"

/* Whether the name is QSI_AMQP_REPLY_TO, or begins with it and a dot. */
bool qsi_amqp_is_reply_to(struct qsi_slice name);
bool qsi_amqp_is_reply_queue(struct qsi_slice name);
enum qsi_amqp_result qsi_amqp_declare_reply_to(struct qsi_amqp_call *call, struct qsi_slice name);
enum qsi_amqp_result qsi_amqp_consume_reply_to(struct qsi_amqp_call *call);
/* Replaces reply-to in the properties by the name of the channel's reply queue, if the client has
 * set QSI_AMQP_REPLY_TO.  *blob_io then lies in *room_out, which the caller owns. */
enum qsi_amqp_result qsi_amqp_expand_reply_to(struct qsi_amqp_session *session,
                                              const struct qsi_amqp_channel *channel,
                                              const struct qsi_properties *properties,
                                              struct qsi_slice *blob_io, struct qsi_buf *room_out);
/* Forgets the channel's reply consumer, if it has this tag: it was cancelled. */
void qsi_amqp_forget_reply_to(struct qsi_amqp_channel *channel, struct qsi_slice tag);

#endif
