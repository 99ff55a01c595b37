/* What the tests of consumers of streams share: streams, consumers with an offset, and what they
 * get. */
#ifndef STREAM_CONSUMERS_FIXTURE_H
#define STREAM_CONSUMERS_FIXTURE_H

#include "engine_fixture.h"
#include "field_table.h"
#include "properties.h"

static inline void declare_stream(struct engine *engine, const char *name)
{
    qs_test_declare_with(engine->channel, name, QS_DURABLE,
                         "x-queue-type=stream x-stream-max-segment-size-bytes=4096");
}

static inline void fill(struct engine *engine, const char *name, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        QS_TEST_FREED char *body = make_body(i % 7 == 3 ? 5000 : 40, (uint32_t)i);
        publish(engine, name, body);
    }
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
}

static inline void put_flag(struct qs_test_fields *fields, const char *name)
{
    qs_test_put_name(fields, name, 't');
    fields->bytes[fields->used++] = 1;
}

static inline qs_status try_consume(qs_channel *channel, const char *name, const char *tag,
                                    uint32_t flags, const struct qs_test_fields *arguments)
{
    char made[256];
    qs_error error;

    return qs_channel_consume(channel, text(name), text(tag), flags,
                              qs_test_fields_slice(arguments), made, &error);
}

static inline void consume_from(struct engine *engine, const char *name, const char *tag,
                                int64_t offset, uint32_t prefetch)
{
    struct qs_test_fields arguments = {.used = 0};

    qs_test_put_long(&arguments, "x-stream-offset", offset);
    QS_CHECK_OK(qs_channel_qos(engine->channel, prefetch, 0, 0, QS_ERROR));
    QS_CHECK_OK(try_consume(engine->channel, name, tag, 0, &arguments));
}

static inline qs_status next(qs_channel *channel, qs_event *event)
{
    qs_error error;

    return qs_channel_next_event(channel, QS_EVENT_DELIVERY | QS_EVENT_CANCEL, 0, event, &error);
}

static inline uint64_t offset_of(const qs_message *message)
{
    struct qsi_slice headers =
        qsi_properties_headers(message->properties.data, (uint32_t)message->properties.bytes);
    struct qsi_field field;
    struct qsi_number number;

    QS_CHECK(qsi_table_find(headers, QSI_SLICE_LITERAL("x-stream-offset"), &field));
    QS_CHECK(field.type == 'l' && qsi_field_integer(&field, &number));
    return number.bits;
}

/* The next message is that of the offset.  Returns its tag. */
static inline uint64_t expect(qs_channel *channel, const char *tag, uint64_t offset)
{
    qs_event event;
    uint64_t delivery_tag;
    QS_TEST_FREED char *body = make_body(offset % 7 == 3 ? 5000 : 40, (uint32_t)offset);

    QS_CHECK_OK(next(channel, &event));
    QS_CHECK(event.kind == QS_EVENT_DELIVERY && !event.message.redelivered);
    if (offset_of(&event.message) != offset) {
        fprintf(stderr, "offset %" PRIu64 " in place of %" PRIu64 "\n", offset_of(&event.message),
                offset);
    }
    QS_CHECK(offset_of(&event.message) == offset && holds(event.message.body, body));
    QS_CHECK(holds(event.message.consumer_tag, tag));
    delivery_tag = event.message.delivery_tag;
    qs_message_release(&event.message);
    return delivery_tag;
}

static inline void expect_nothing(qs_channel *channel)
{
    qs_event event;

    QS_CHECK_STATUS(QS_EEMPTY, next(channel, &event));
}

static inline void expect_all(struct engine *engine, const char *tag, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        ack(engine, expect(engine->channel, tag, i), 0);
    }
    expect_nothing(engine->channel);
}

#endif
