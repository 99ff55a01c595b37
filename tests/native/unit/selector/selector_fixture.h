/* What the tests of selectors share: a message to ask about, and short ways to ask. */
#ifndef SELECTOR_FIXTURE_H
#define SELECTOR_FIXTURE_H

#include "le.h"
#include "qs_test.h"
#include "selector.h"

struct message {
    uint8_t bytes[1024];
    uint32_t used;
    struct qsi_properties properties;
};

static inline struct qsi_slice text(const char *string)
{
    return qsi_slice_make(string, (uint32_t)strlen(string));
}

static inline void put_bytes(struct message *message, const void *data, size_t bytes)
{
    QS_CHECK(message->used + bytes <= sizeof message->bytes);
    memcpy(message->bytes + message->used, data, bytes);
    message->used += (uint32_t)bytes;
}

/* value: as it is encoded, behind the type. */
static inline void put_field(struct message *message, const char *name, char type,
                             const void *value, size_t bytes)
{
    uint8_t name_bytes = (uint8_t)strlen(name);

    put_bytes(message, &name_bytes, 1);
    put_bytes(message, name, name_bytes);
    put_bytes(message, &type, 1);
    put_bytes(message, value, bytes);
}

static inline void put_text_as(struct message *message, const char *name, char type,
                               const char *value)
{
    uint8_t encoded[260];
    uint32_t bytes = (uint32_t)strlen(value);

    qsi_put_be32(encoded, bytes);
    memcpy(encoded + 4, value, bytes);
    put_field(message, name, type, encoded, 4 + bytes);
}

static inline void put_integer(struct message *message, const char *name, int64_t value)
{
    uint8_t encoded[8];

    qsi_put_be64(encoded, (uint64_t)value);
    put_field(message, name, 'l', encoded, 8);
}

static inline void put_double(struct message *message, const char *name, double value)
{
    uint8_t encoded[8];
    uint64_t bits;

    memcpy(&bits, &value, 8);
    qsi_put_be64(encoded, bits);
    put_field(message, name, 'd', encoded, 8);
}

/* REQUIRES that the text is a selector. */
static inline struct qsi_selector *compile(const char *selector)
{
    struct qsi_selector *compiled = NULL;

    QS_CHECK_OK(qsi_selector_compile(text(selector), &compiled, QS_ERROR));
    return compiled;
}

static inline enum qsi_truth ask(const struct message *message, const char *selector)
{
    const struct qsi_selector_subject subject = {
        qsi_slice_make(message->bytes, message->used),
        &message->properties,
    };
    struct qsi_selector *compiled = compile(selector);
    enum qsi_truth truth = qsi_selector_evaluate(compiled, &subject);

    qsi_selector_destroy(compiled);
    return truth;
}

/* 'T', 'F' or '?'. */
static inline void check_truth(const struct message *message, const char *selector, char expected)
{
    char truth = "FT?"[ask(message, selector)];

    if (truth != expected) {
        fprintf(stderr, "%s: %c, expected %c\n", selector, truth, expected);
        exit(1);
    }
}

#endif
