/* Calls of a channel by texts, without what they tell beside the status. */
#ifndef QS_TEST_CALLS_H
#define QS_TEST_CALLS_H

#include "qs_test.h"
#include "qs_test_slices.h"

/* Of a store with small files and without threads. */
static inline qs_options qs_test_small_options(void)
{
    qs_options options;

    qs_options_default(&options);
    options.background = false;
    options.journal_file_bytes = 64 << 10;
    options.message_file_bytes = 64 << 10;
    return options;
}

static inline qs_status qs_test_publish(qs_channel *channel, const char *exchange, const char *key,
                                        qs_slice properties, qs_slice body, uint32_t flags)
{
    qs_receipt receipt;

    return qs_channel_publish(channel, text(exchange), text(key), properties, body, flags, 0,
                              &receipt, QS_ERROR);
}

static inline qs_status qs_test_declare_as(qs_channel *channel, const char *queue, uint32_t flags,
                                           qs_slice arguments)
{
    qs_declare_ok ok;

    return qs_channel_queue_declare(channel, text(queue), flags, arguments, &ok, QS_ERROR);
}

static inline qs_status qs_test_declare_exchange(qs_channel *channel, const char *exchange,
                                                 const char *type, uint32_t flags)
{
    return qs_channel_exchange_declare(channel, text(exchange), text(type), flags, NONE, QS_ERROR);
}

static inline qs_status qs_test_bind(qs_channel *channel, const char *to, const char *exchange,
                                     const char *key, uint32_t flags)
{
    return qs_channel_change_binding(channel, text(to), text(exchange), text(key), NONE, flags,
                                     QS_ERROR);
}

static inline qs_status qs_test_consume(qs_channel *channel, const char *queue, const char *tag,
                                        uint32_t flags, qs_slice arguments)
{
    char made[256];

    return qs_channel_consume(channel, text(queue), text(tag), flags, arguments, made, QS_ERROR);
}

/* Gets a message, and releases it. */
static inline qs_status qs_test_get(qs_channel *channel, const char *queue, uint32_t flags)
{
    qs_message message;
    qs_status status = qs_channel_get(channel, text(queue), flags, &message, QS_ERROR);

    if (status == QS_OK) {
        qs_message_release(&message);
    }
    return status;
}

static inline qs_status qs_test_commit(qs_channel *channel, qs_slice key, uint32_t flags)
{
    bool repeated;

    return qs_channel_tx_commit(channel, key, flags, &repeated, QS_ERROR);
}

static inline qs_status qs_test_purge(qs_channel *channel, const char *queue)
{
    uint64_t count;

    return qs_channel_queue_purge(channel, text(queue), 0, &count, QS_ERROR);
}

static inline qs_status qs_test_delete(qs_channel *channel, const char *queue, uint32_t flags)
{
    uint64_t count;

    return qs_channel_queue_delete(channel, text(queue), flags, &count, QS_ERROR);
}

#endif
