/* An incoming content: basic.publish, the header frame, the body frames.
 *
 * Received bytes are copied as they arrive, so the announced size of a body allocates no memory.  A
 * body in a single frame is not copied. */
#ifndef QSI_AMQP_CONTENT_H
#define QSI_AMQP_CONTENT_H

#include "amqp_fault.h"
#include "buf.h"
#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

enum qsi_amqp_content_state {
    QSI_AMQP_NO_CONTENT,   /* a method is next */
    QSI_AMQP_NEEDS_HEADER, /* basic.publish came */
    QSI_AMQP_NEEDS_BODY,   /* the header came, and part of the body is missing */
};

/* Zeroed memory is an empty content. */
struct qsi_amqp_content {
    enum qsi_amqp_content_state state;
    uint8_t bits;    /* of basic.publish */
    bool is_skipped; /* its body is not wanted: it is read and dropped */
    uint8_t exchange_bytes, key_bytes;
    uint32_t properties_bytes;
    uint64_t body_bytes; /* announced */
    uint64_t body_got;
    uint64_t pooled_bytes; /* bytes of properties and body that count in the server's pool */
    struct qsi_buf kept;   /* exchange, key, properties, body */
};
void qsi_amqp_content_fini(struct qsi_amqp_content *content);

qs_status qsi_amqp_content_begin(struct qsi_amqp_content *content, struct qsi_slice exchange,
                                 struct qsi_slice key, uint8_t bits) QS_MUST_CHECK;

struct qsi_slice qsi_amqp_content_exchange(const struct qsi_amqp_content *content);
struct qsi_slice qsi_amqp_content_key(const struct qsi_amqp_content *content);
struct qsi_slice qsi_amqp_content_properties(const struct qsi_amqp_content *content);

/* Reads the payload of a header frame, 12 bytes at least.  False: fault has the reason. */
bool qsi_amqp_content_header(struct qsi_amqp_content *content, struct qsi_slice payload,
                             struct qsi_amqp_fault *fault);

/* Undoes qsi_amqp_content_header: the caller will pass the header again. */
void qsi_amqp_content_undo_header(struct qsi_amqp_content *content);

/* Reads the payload of a body frame.  If *is_whole_out, *body_out is the whole body; the content is
 * unchanged then, so the same frame may be passed again.  False: fault has the reason. */
bool qsi_amqp_content_body(struct qsi_amqp_content *content, struct qsi_slice payload,
                           struct qsi_slice *body_out, bool *is_whole_out,
                           struct qsi_amqp_fault *fault);

/* Ends the content after its publish, or because it is no longer wanted: a method is next. */
void qsi_amqp_content_end(struct qsi_amqp_content *content);

/* Sets the fault of a method frame that arrives within a content. */
void qsi_amqp_content_interrupted(const struct qsi_amqp_content *content,
                                  struct qsi_amqp_fault *fault);

#endif
