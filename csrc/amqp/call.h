/* Inside csrc/amqp: a method that a client sent on a channel, and what its handler needs.
 *
 * Names of exchanges and queues are passed without CR and LF, and tables with their keys in
 * order. */
#ifndef QSI_AMQP_CALL_H
#define QSI_AMQP_CALL_H

#include "session_internal.h"

/* A method that is being handled. */
struct qsi_amqp_call {
    struct qsi_amqp_session *session;
    struct qsi_amqp_channel *channel;
    const struct qsi_amqp_arguments *arguments;
    qs_error error;
};

typedef enum qsi_amqp_result qsi_amqp_verb(struct qsi_amqp_call *call);

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

#endif
