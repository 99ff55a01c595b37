/* The memory that an open transaction says it takes, beside what the allocator gave for it. */
#include "qstore/alloc.h"

#include "engine_fixture.h"

#include <malloc.h>

#define MESSAGES 5000

static uint64_t allocated; /* now, with what the C library adds to each */

static uint64_t bytes_of(void *memory)
{
    return memory != NULL ? malloc_usable_size(memory) + sizeof(size_t) : 0;
}

static void *counted_realloc(void *context, void *memory, size_t bytes)
{
    void *grown;

    (void)context;
    allocated -= bytes_of(memory);
    grown = realloc(memory, bytes);
    QS_CHECK(grown != NULL);
    allocated += bytes_of(grown);
    return grown;
}

static void counted_free(void *context, void *memory)
{
    (void)context;
    allocated -= bytes_of(memory);
    free(memory);
}

/* What is measured is at hand once only: queues and routes take memory when they are first used. */
static uint64_t begin(struct engine *engine)
{
    publish(engine, "q", "first");
    QS_CHECK_OK(qs_channel_tx_rollback(engine->channel, QS_ERROR));
    QS_CHECK(qs_channel_tx_bytes(engine->channel) == 0);
    return allocated;
}

static void check_told(struct engine *engine, uint64_t before)
{
    uint64_t told = qs_channel_tx_bytes(engine->channel), taken = allocated - before;

    if (told < taken * 8 / 10 || told > taken * 13 / 10) {
        fprintf(stderr, "%llu bytes told, %llu taken\n", (unsigned long long)told,
                (unsigned long long)taken);
        QS_CHECK(!"a transaction tells what it takes");
    }
}

static void test_messages(struct engine *engine)
{
    QS_TEST_FREED char *body = make_body(1000, 1);
    uint64_t before = begin(engine);

    for (int i = 0; i < MESSAGES; i++) {
        publish_to(engine, "", "q", TRANSIENT, text(""));
    }
    check_told(engine, before);
    QS_CHECK(qs_channel_tx_bytes(engine->channel) > MESSAGES * UINT64_C(200));
    for (int i = 0; i < MESSAGES; i++) {
        publish(engine, "q", body);
        publish_to(engine, "amq.fanout", "k", PERSISTENT, text("to two"));
    }
    check_told(engine, before);
    QS_CHECK_OK(qs_channel_tx_rollback(engine->channel, QS_ERROR));
    QS_CHECK(qs_channel_tx_bytes(engine->channel) == 0);
    QS_CHECK(allocated < before + (256u << 10));
}

static void test_bodies_in_the_message_store_take_none(struct engine *engine)
{
    QS_TEST_FREED char *body = make_body(100000, 1);

    begin(engine);
    for (int i = 0; i < 20; i++) {
        publish(engine, "q", body);
    }
    QS_CHECK(qs_channel_tx_bytes(engine->channel) < 20 * UINT64_C(1000));
    QS_CHECK_OK(qs_test_commit(engine->channel, NONE, 0));
    QS_CHECK(qs_channel_tx_bytes(engine->channel) == 0);
    QS_CHECK_OK(qs_channel_queue_purge(engine->channel, text("q"), 0, &(uint64_t){0}, QS_ERROR));
}

/* They go nowhere, or come back: the exchanges differ, so each of them is noted. */
static void test_messages_without_queues(struct engine *engine)
{
    uint64_t before = begin(engine);

    for (int i = 0; i < MESSAGES; i++) {
        publish_to(engine, i % 2 == 0 ? "amq.direct" : "amq.topic", "nowhere", PERSISTENT,
                   text("x"));
    }
    QS_CHECK(qs_channel_tx_bytes(engine->channel) > MESSAGES * UINT64_C(24));
    for (int i = 0; i < MESSAGES; i++) {
        QS_CHECK_OK(qs_test_publish(engine->channel, "amq.direct", "nowhere", PERSISTENT,
                                    text("it comes back"), QS_MANDATORY));
    }
    check_told(engine, before);
    QS_CHECK_OK(qs_channel_tx_rollback(engine->channel, QS_ERROR));
    QS_CHECK(qs_channel_tx_bytes(engine->channel) == 0);
    QS_CHECK(allocated < before + (256u << 10));
}

static void test_settlements(struct engine *engine)
{
    uint64_t first = 0, bytes;

    begin(engine);
    for (int i = 0; i < 100; i++) {
        qs_message message;
        publish(engine, "q", "x");
        QS_CHECK_OK(qs_test_commit(engine->channel, NONE, 0));
        message = get(engine, "q", "x");
        first = first == 0 ? message.delivery_tag : first;
    }
    for (uint64_t tag = first; tag < first + 100; tag++) {
        bytes = qs_channel_tx_bytes(engine->channel);
        ack(engine, tag, 0);
        QS_CHECK(qs_channel_tx_bytes(engine->channel) > bytes);
    }
    QS_CHECK_OK(qs_channel_tx_rollback(engine->channel, QS_ERROR));
    QS_CHECK(qs_channel_tx_bytes(engine->channel) == 0);
    ack(engine, 0, QS_MULTIPLE);
    QS_CHECK_OK(qs_channel_tx_end(engine->channel, QS_ERROR));
    QS_CHECK(qs_channel_tx_bytes(engine->channel) == 0);
    QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
}

int main(void)
{
    static const qs_allocator counting = {.realloc = counted_realloc, .free = counted_free};
    struct engine engine;

    qs_allocator_set(&counting);
    engine_start(&engine, IN_MEMORY);
    declare(&engine, "q", QS_DURABLE);
    declare(&engine, "other", 0);
    bind_queue(&engine, "q", "amq.fanout", "");
    bind_queue(&engine, "other", "amq.fanout", "");
    QS_CHECK_OK(qs_channel_tx_select(engine.channel, QS_ERROR));
    test_messages(&engine);
    test_bodies_in_the_message_store_take_none(&engine);
    test_messages_without_queues(&engine);
    test_settlements(&engine);
    engine_stop(&engine);
    qs_allocator_set(NULL);
    return 0;
}
