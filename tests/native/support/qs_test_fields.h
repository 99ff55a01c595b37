/* Field tables made by hand: the arguments of queues. */
#ifndef QS_TEST_FIELDS_H
#define QS_TEST_FIELDS_H

#include "qstore/qstore.h"

#include "le.h"
#include "qs_test.h"
#include "qs_test_slices.h"

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

#endif
