/* Field tables made by hand: the arguments of queues. */
#ifndef QS_TEST_FIELDS_H
#define QS_TEST_FIELDS_H

#include "qstore/qstore.h"

#include "le.h"
#include "qs_test.h"
#include "qs_test_slices.h"

#include <stdarg.h>

struct qs_test_fields {
    uint8_t bytes[1024];
    uint32_t used;
};

static inline void qs_test_put_name(struct qs_test_fields *fields, const char *name, uint8_t type)
{
    size_t length = strlen(name);

    fields->bytes[fields->used++] = (uint8_t)length;
    memcpy(fields->bytes + fields->used, name, length);
    fields->used += (uint32_t)length;
    fields->bytes[fields->used++] = type;
}

static inline void qs_test_put_long(struct qs_test_fields *fields, const char *name, int64_t value)
{
    qs_test_put_name(fields, name, 'l');
    for (int shift = 56; shift >= 0; shift -= 8) {
        fields->bytes[fields->used++] = (uint8_t)((uint64_t)value >> shift);
    }
}

static inline void qs_test_put_text(struct qs_test_fields *fields, const char *name,
                                    const char *value)
{
    qs_test_put_name(fields, name, 'S');
    qsi_put_be32(fields->bytes + fields->used, (uint32_t)strlen(value));
    memcpy(fields->bytes + fields->used + 4, value, strlen(value));
    fields->used += 4 + (uint32_t)strlen(value);
}

/* Fields of a text such as "x-max-length=5 x-overflow=reject-publish", which printf formats: a
 * value of digits is a number. */
__attribute__((format(printf, 1, 2))) static inline struct qs_test_fields
qs_test_fields_of(const char *format, ...)
{
    struct qs_test_fields fields = {.used = 0};
    char words[512], *rest = words, *word, *end;
    va_list arguments;

    va_start(arguments, format);
    QS_CHECK(vsnprintf(words, sizeof words, format, arguments) < (int)sizeof words);
    va_end(arguments);
    while ((word = strtok_r(rest, " ", &rest)) != NULL) {
        char *value = strchr(word, '=');
        int64_t number;

        QS_CHECK(value != NULL);
        *value++ = '\0';
        number = strtoll(value, &end, 10);
        if (end != value && *end == '\0') {
            qs_test_put_long(&fields, word, number);
        } else {
            qs_test_put_text(&fields, word, value);
        }
    }
    return fields;
}

static inline qs_slice qs_test_fields_slice(const struct qs_test_fields *fields)
{
    return (qs_slice){fields->bytes, fields->used};
}

/* A queue is declared; NULL: without arguments. */
static inline void qs_test_declare(qs_channel *channel, const char *queue, uint32_t flags,
                                   const struct qs_test_fields *arguments)
{
    qs_slice table = arguments != NULL ? qs_test_fields_slice(arguments) : NONE;
    qs_declare_ok ok;

    QS_CHECK_OK(qs_channel_queue_declare(channel, text(queue), flags, table, &ok, QS_ERROR));
}

/* With the arguments of this text (qs_test_fields_of). */
__attribute__((format(printf, 4, 5))) static inline void
qs_test_declare_with(qs_channel *channel, const char *queue, uint32_t flags, const char *format,
                     ...)
{
    struct qs_test_fields fields;
    char words[512];
    va_list arguments;

    va_start(arguments, format);
    QS_CHECK(vsnprintf(words, sizeof words, format, arguments) < (int)sizeof words);
    va_end(arguments);
    fields = qs_test_fields_of("%s", words);
    qs_test_declare(channel, queue, flags, &fields);
}

#endif
