/* What a session wants written, in order: frames that were built here, and bodies that lie in the
 * engine's memory.
 *
 * Small bodies are copied.  A large one is referred to, and its message is held until its last byte
 * was written.  In the steady state nothing is allocated for a message: blocks are used again. */
#ifndef QSI_AMQP_OUTPUT_H
#define QSI_AMQP_OUTPUT_H

#include "qstore/channel.h"

#include "amqp_method.h"

#include <sys/uio.h>

#define QSI_AMQP_FRAME_METHOD 1
#define QSI_AMQP_FRAME_HEADER 2
#define QSI_AMQP_FRAME_BODY 3
#define QSI_AMQP_FRAME_HEARTBEAT 8
#define QSI_AMQP_FRAME_END 0xce
#define QSI_AMQP_FRAME_HEAD_BYTES 7
#define QSI_AMQP_FRAME_EXTRA_BYTES 8 /* head and end */

struct qsi_amqp_block;
struct qsi_amqp_piece;

#define QSI_AMQP_BARRIERS_MAX 8

/* What stands from there on must not be written before the journal is durable up to an LSN. */
struct qsi_amqp_barrier {
    uint64_t at; /* in all bytes that were put out */
    uint64_t lsn;
};

/* Zeroed memory is an empty one. */
struct qsi_amqp_output {
    struct qsi_amqp_block *first, *last; /* frames are built at the end of the last */
    struct qsi_amqp_block *spare;
    struct qsi_amqp_piece *pieces;
    uint32_t piece_from, piece_count, piece_capacity;
    qs_message *held; /* the messages of large bodies, in order */
    uint32_t held_from, held_count, held_capacity;
    size_t unsent;
    uint64_t written;
    struct qsi_amqp_barrier barriers[QSI_AMQP_BARRIERS_MAX]; /* both numbers ascend */
    uint32_t barrier_count;
    bool failed; /* there was no memory: what follows is missing */
};
void qsi_amqp_output_fini(struct qsi_amqp_output *output);

/* Bytes that are not in a frame: the protocol header. */
void qsi_amqp_put_bytes(struct qsi_amqp_output *output, const void *data, size_t bytes);

void qsi_amqp_put_method(struct qsi_amqp_output *output, uint16_t channel,
                         enum qsi_amqp_method method, const struct qsi_amqp_arguments *arguments);

/* A method with a content: method, header and body frames.  Takes the message over, and releases it
 * when it is not needed any more. */
void qsi_amqp_put_content(struct qsi_amqp_output *output, uint16_t channel,
                          enum qsi_amqp_method method, const struct qsi_amqp_arguments *arguments,
                          qs_message *message, uint32_t frame_max);

/* What is put out from now on waits until the journal is durable up to lsn. */
void qsi_amqp_output_hold(struct qsi_amqp_output *output, uint64_t lsn);
/* The journal is durable up to lsn. */
void qsi_amqp_output_lift(struct qsi_amqp_output *output, uint64_t lsn);
/* Of the unsent bytes, those that may be written. */
size_t qsi_amqp_output_writable(const struct qsi_amqp_output *output);

/* Gives back what an idle session needs not. */
void qsi_amqp_output_trim(struct qsi_amqp_output *output);

int qsi_amqp_output_pieces(const struct qsi_amqp_output *output, struct iovec *pieces_out,
                           int count);
void qsi_amqp_output_written(struct qsi_amqp_output *output, size_t bytes);

#endif
