/* Queues whose messages leave by themselves. */
#ifndef REMOVALS_FIXTURE_H
#define REMOVALS_FIXTURE_H

#include "engine_damage.h"
#include "pager.h"
#include "qs_test_alloc.h"
#include "qs_test_batch.h"
#include "qs_test_calls.h"
#include "removals.h"

static inline void declare_with(struct engine *engine, const char *queue,
                                const struct qs_test_fields *fields)
{
    QS_CHECK_OK(
        qs_test_declare_as(engine->channel, queue, QS_DURABLE, qs_test_fields_slice(fields)));
}

static inline void publish_many(struct engine *engine, const char *queue, uint32_t count)
{
    publish_numbers(engine, queue, 0, count);
}

static inline qs_status commit(struct engine *engine)
{
    return qs_test_commit(engine->channel, NONE, 0);
}

static inline uint64_t ready_in(struct engine *engine, const char *queue)
{
    qs_queue_status status;

    QS_CHECK_OK(qs_store_queue_status(engine->store, text(queue), &status, QS_ERROR));
    return status.messages_ready;
}

#endif
