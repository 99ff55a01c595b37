/* A queue with messages that are numbered, and settling them. */
#ifndef DELIVER_FIXTURE_H
#define DELIVER_FIXTURE_H

#include "engine_fixture.h"

static inline void fill(struct engine *engine, const char *queue, int count)
{
    declare(engine, queue, QS_DURABLE);
    for (int i = 1; i <= count; i++) {
        publish_number(engine, queue, i);
    }
}

static inline void nack(struct engine *engine, uint64_t tag, uint32_t flags)
{
    QS_CHECK_OK(qs_channel_nack(engine->channel, tag, flags, 0, QS_ERROR));
}

#endif
