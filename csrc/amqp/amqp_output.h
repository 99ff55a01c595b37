/* The output of a session, in order: frames that are built here, and bodies in the engine's memory.
 *
 * Small bodies are copied.  A large body is referred to, and its message is held until its last
 * byte is written.  In the steady state a message allocates nothing: blocks are used again. */
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

/* Bytes from this position on must not be written before the journal is durable up to an LSN. */
struct qsi_amqp_barrier {
    uint64_t at; /* a position in all bytes of this output so far */
    uint64_t lsn;
};

/* Zeroed memory is an empty output. */
struct qsi_amqp_output {
    struct qsi_amqp_block *first, *last; /* frames are built at the end of the last */
    struct qsi_amqp_block *spare;
    struct qsi_amqp_piece *pieces;
    uint32_t piece_from, piece_count, piece_capacity;
    qs_message *held; /* the messages of large bodies, in order */
    uint32_t held_from, held_count, held_capacity;
    size_t unsent;
    uint64_t written;
    struct qsi_amqp_barrier barriers[QSI_AMQP_BARRIERS_MAX]; /* at and lsn both ascend */
    uint32_t barrier_count;
    bool failed; /* memory was short: later bytes are missing */
};
void qsi_amqp_output_fini(struct qsi_amqp_output *output);

/* Appends bytes outside of frames: the protocol header. */
void qsi_amqp_put_bytes(struct qsi_amqp_output *output, const void *data, size_t bytes);

void qsi_amqp_put_method(struct qsi_amqp_output *output, uint16_t channel,
                         enum qsi_amqp_method method, const struct qsi_amqp_arguments *arguments);

/* Appends a method with a content: method, header and body frames.  Takes over the message, and
 * releases it when it is no longer needed. */
void qsi_amqp_put_content(struct qsi_amqp_output *output, uint16_t channel,
                          enum qsi_amqp_method method, const struct qsi_amqp_arguments *arguments,
                          qs_message *message, uint32_t frame_max);

/* Holds back the bytes that are appended from now on until the journal is durable up to lsn. */
void qsi_amqp_output_hold(struct qsi_amqp_output *output, uint64_t lsn);
/* Releases the bytes that wait for an LSN of at most lsn, which is durable now. */
void qsi_amqp_output_lift(struct qsi_amqp_output *output, uint64_t lsn);
/* The number of unsent bytes that may be written now. */
size_t qsi_amqp_output_writable(const struct qsi_amqp_output *output);

/* Frees the memory that an idle session does not need. */
void qsi_amqp_output_trim(struct qsi_amqp_output *output);

int qsi_amqp_output_pieces(const struct qsi_amqp_output *output, struct iovec *pieces_out,
                           int count);
void qsi_amqp_output_written(struct qsi_amqp_output *output, size_t bytes);

#endif
