/* What the tests of many threads in one store share. */
#ifndef CONCURRENT_FIXTURE_H
#define CONCURRENT_FIXTURE_H

#include "../unit/engine/arrow_table.h"
#include "../unit/engine/engine_fixture.h"
#include "qs_test_fields.h"

#include <pthread.h>
#include <stdatomic.h>

#define QUEUES 3
#define EMBED_BELOW 1024
/* Between two looks: a thread that asks without a pause can keep the store's lock from all others,
 * as who is woken for it comes too late. */
#define PAUSE_US 200

static const char *const queue_names[QUEUES] = {"by-get", "by-batch", "by-event"};

struct shared {
    struct engine engine;
    atomic_uint received;   /* first deliveries and redeliveries that were acked */
    atomic_uint publishing; /* publishers at work */
    atomic_bool done;
};

static inline qs_channel *open_channel(struct shared *shared)
{
    qs_channel *channel;

    QS_CHECK_OK(qs_channel_open(&channel, shared->engine.store, QS_ERROR));
    return channel;
}

static inline pthread_t start(void *(*run)(void *), void *argument)
{
    pthread_t thread;

    QS_CHECK(pthread_create(&thread, NULL, run, argument) == 0);
    return thread;
}

/* limited: their deliveries are written before anybody has the message. */
static inline void declare_queues(struct shared *shared, bool limited)
{
    struct qs_test_fields fields = qs_test_fields_of("x-delivery-limit=100");

    for (int i = 0; i < QUEUES; i++) {
        QS_CHECK_OK(qs_test_declare_as(shared->engine.channel, queue_names[i], QS_DURABLE,
                                       limited ? qs_test_fields_slice(&fields) : NONE));
    }
}

static inline void start_store(struct shared *shared, bool limited)
{
    memset(shared, 0, sizeof *shared);
    engine_init(&shared->engine, ON_DISK);
    shared->engine.options.journal_file_bytes = 128u << 10;
    shared->engine.options.message_file_bytes = 64u << 10;
    shared->engine.options.embed_below = EMBED_BELOW;
    engine_open(&shared->engine);
    declare_queues(shared, limited);
}

#endif
