/* What a connection or a channel is closed for: reply code and text as RabbitMQ words them. */
#ifndef QSI_AMQP_FAULT_H
#define QSI_AMQP_FAULT_H

#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    QSI_AMQP_CONNECTION_FORCED = 320,
    QSI_AMQP_FRAME_ERROR = 501,
    QSI_AMQP_SYNTAX_ERROR = 502,
    QSI_AMQP_COMMAND_INVALID = 503,
    QSI_AMQP_CHANNEL_ERROR = 504,
    QSI_AMQP_UNEXPECTED_FRAME = 505,
    QSI_AMQP_RESOURCE_ERROR = 506,
    QSI_AMQP_INTERNAL_ERROR = 541,
};

#define QSI_AMQP_FAULT_TEXT_BYTES 256

struct qsi_amqp_fault {
    uint16_t code;
    uint16_t class_id, method_id;         /* of the method that was at fault; 0: none */
    bool is_fatal;                        /* what follows cannot be told into frames any more */
    char text[QSI_AMQP_FAULT_TEXT_BYTES]; /* "NOT_FOUND - no queue ...", 255 bytes at most */
};

/* Code, its name and the text; longer ones are cut and end in "...".  Class and method are 0. */
void qsi_amqp_fault_set(struct qsi_amqp_fault *fault, uint16_t code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Does an error with this code close the whole connection? */
bool qsi_amqp_closes_connection(uint16_t code);

/* The bytes as a term of RabbitMQ's language: <<"text">> if all of them are printable and
 * may_be_text, <<1,2,3>> otherwise; cut where the text is full. */
void qsi_amqp_print_binary(char text_out[QSI_AMQP_FAULT_TEXT_BYTES], struct qsi_slice bytes,
                           bool may_be_text);

#endif
