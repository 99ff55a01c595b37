/* The reason for closing a connection or a channel: reply code and text as in RabbitMQ. */
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
    uint16_t class_id, method_id; /* of the method that was at fault; 0: none */
    /* The bytes after the fault cannot be divided into frames any more. */
    bool is_fatal;
    char text[QSI_AMQP_FAULT_TEXT_BYTES]; /* "NOT_FOUND - no queue ...", 255 bytes at most */
};

/* Sets code and text, with the code's name in front; a longer text is cut and ends in "...".  Class
 * and method become 0. */
void qsi_amqp_fault_set(struct qsi_amqp_fault *fault, uint16_t code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Whether an error with this code closes the whole connection. */
bool qsi_amqp_closes_connection(uint16_t code);

/* Prints bytes as an Erlang term: <<"text">> if all of them are printable and may_be_text,
 * <<1,2,3>> otherwise; cut at the capacity of the text. */
void qsi_amqp_print_binary(char text_out[QSI_AMQP_FAULT_TEXT_BYTES], struct qsi_slice bytes,
                           bool may_be_text);

#endif
