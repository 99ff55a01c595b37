/* Incoming contents. */
#include "amqp_content.h"

#include "check.h"
#include "le.h"

#include <string.h>

#define BASIC_CLASS 60
#define PUBLISH_METHOD 40
#define HEADER_BYTES 12     /* class, weight, body size */
#define KEPT_BYTES_MAX 4096 /* of memory that is kept for the next message */

void qsi_amqp_content_fini(struct qsi_amqp_content *content)
{
    qsi_buf_fini(&content->kept);
    *content = (struct qsi_amqp_content){0};
}

static void blame_publish(struct qsi_amqp_fault *fault)
{
    fault->class_id = BASIC_CLASS;
    fault->method_id = PUBLISH_METHOD;
}

void qsi_amqp_content_interrupted(const struct qsi_amqp_content *content,
                                  struct qsi_amqp_fault *fault)
{
    if (content->state == QSI_AMQP_NEEDS_HEADER) {
        qsi_amqp_fault_set(fault, QSI_AMQP_UNEXPECTED_FRAME,
                           "expected content header for class %d, got non content header frame "
                           "instead",
                           BASIC_CLASS);
        blame_publish(fault);
    } else if (content->state == QSI_AMQP_NEEDS_BODY) {
        qsi_amqp_fault_set(fault, QSI_AMQP_UNEXPECTED_FRAME,
                           "expected content body, got non content body frame instead");
        blame_publish(fault);
    } else {
        qsi_amqp_fault_set(fault, QSI_AMQP_UNEXPECTED_FRAME,
                           "expected method frame, got non method frame instead");
    }
}

qs_status qsi_amqp_content_begin(struct qsi_amqp_content *content, struct qsi_slice exchange,
                                 struct qsi_slice key, uint8_t bits)
{
    uint8_t *room;

    QS_ASSERT(content->state == QSI_AMQP_NO_CONTENT && content->kept.bytes == 0);
    QS_TRY(qsi_buf_reserve(&content->kept, (size_t)exchange.bytes + key.bytes + 1, &room));
    qsi_slice_put(qsi_slice_put(room, exchange), key);
    content->kept.bytes = (size_t)exchange.bytes + key.bytes;
    content->exchange_bytes = (uint8_t)exchange.bytes;
    content->key_bytes = (uint8_t)key.bytes;
    content->properties_bytes = 0;
    content->body_bytes = content->body_got = 0;
    content->bits = bits;
    content->is_skipped = false;
    content->state = QSI_AMQP_NEEDS_HEADER;
    return QS_OK;
}

struct qsi_slice qsi_amqp_content_exchange(const struct qsi_amqp_content *content)
{
    return qsi_slice_make(content->kept.data, content->exchange_bytes);
}

struct qsi_slice qsi_amqp_content_key(const struct qsi_amqp_content *content)
{
    return qsi_slice_make(content->kept.data + content->exchange_bytes, content->key_bytes);
}

static size_t body_at(const struct qsi_amqp_content *content)
{
    return (size_t)content->exchange_bytes + content->key_bytes + content->properties_bytes;
}

struct qsi_slice qsi_amqp_content_properties(const struct qsi_amqp_content *content)
{
    return qsi_slice_make(content->kept.data + content->exchange_bytes + content->key_bytes,
                          content->properties_bytes);
}

static bool no_memory(struct qsi_amqp_fault *fault)
{
    qsi_amqp_fault_set(fault, QSI_AMQP_RESOURCE_ERROR, "out of memory for a message");
    blame_publish(fault);
    return false;
}

bool qsi_amqp_content_header(struct qsi_amqp_content *content, struct qsi_slice payload,
                             struct qsi_amqp_fault *fault)
{
    uint16_t class_id = qsi_get_be16(payload.data);

    QS_ASSERT(payload.bytes >= HEADER_BYTES);
    if (content->state == QSI_AMQP_NEEDS_HEADER && class_id != BASIC_CLASS) {
        qsi_amqp_fault_set(fault, QSI_AMQP_UNEXPECTED_FRAME,
                           "expected content header for class %d, got one for class %u instead",
                           BASIC_CLASS, class_id);
        blame_publish(fault);
        return false;
    }
    if (content->state != QSI_AMQP_NEEDS_HEADER || qsi_get_be16(payload.data + 2) != 0) {
        qsi_amqp_content_interrupted(content, fault);
        return false;
    }
    if (qsi_buf_append(&content->kept, payload.data + HEADER_BYTES, payload.bytes - HEADER_BYTES) !=
        QS_OK) {
        return no_memory(fault);
    }
    content->properties_bytes = payload.bytes - HEADER_BYTES;
    content->body_bytes = qsi_get_be64(payload.data + 4);
    content->state = QSI_AMQP_NEEDS_BODY;
    return true;
}

void qsi_amqp_content_undo_header(struct qsi_amqp_content *content)
{
    QS_ASSERT(content->state == QSI_AMQP_NEEDS_BODY && content->body_got == 0);
    content->kept.bytes -= content->properties_bytes;
    content->properties_bytes = 0;
    content->state = QSI_AMQP_NEEDS_HEADER;
}

bool qsi_amqp_content_body(struct qsi_amqp_content *content, struct qsi_slice payload,
                           struct qsi_slice *body_out, bool *is_whole_out,
                           struct qsi_amqp_fault *fault)
{
    *is_whole_out = false;
    if (content->state != QSI_AMQP_NEEDS_BODY ||
        payload.bytes > content->body_bytes - content->body_got) {
        qsi_amqp_content_interrupted(content, fault);
        return false;
    }
    if (content->is_skipped) {
        content->body_got += payload.bytes;
        if (content->body_got == content->body_bytes) {
            qsi_amqp_content_end(content);
        }
        return true;
    }
    if (content->body_got == 0 && payload.bytes == content->body_bytes) {
        *body_out = payload;
        *is_whole_out = true;
        return true;
    }
    if (qsi_buf_append(&content->kept, payload.data, payload.bytes) != QS_OK) {
        return no_memory(fault);
    }
    if (content->body_got + payload.bytes == content->body_bytes) {
        *body_out =
            qsi_slice_make(content->kept.data + body_at(content), (uint32_t)content->body_bytes);
        content->kept.bytes -= payload.bytes; /* the bytes after it stay in place */
        *is_whole_out = true;
        return true;
    }
    content->body_got += payload.bytes;
    return true;
}

void qsi_amqp_content_end(struct qsi_amqp_content *content)
{
    content->state = QSI_AMQP_NO_CONTENT;
    if (content->kept.capacity > KEPT_BYTES_MAX) {
        qsi_buf_fini(&content->kept);
    }
    qsi_buf_clear(&content->kept);
}
