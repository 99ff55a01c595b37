/* Exchanges and bindings through the public calls: what is made, what is refused and how, what is
 * still there after a restart. */
#include "engine_fixture.h"

ENGINE_TEST(test_exchanges_are_declared_and_deleted)
{
    declare_exchange(engine, "x", "topic", QS_DURABLE);
    declare_exchange(engine, "x", "topic", QS_DURABLE);
    QS_CHECK_OK(qs_test_declare_exchange(engine->channel, "x", "", QS_PASSIVE));
    CHECK_CHANNEL_ERROR(engine, QS_PRECONDITION_FAILED,
                        qs_test_declare_exchange(engine->channel, "x", "direct", QS_DURABLE));
    CHECK_CHANNEL_ERROR(engine, QS_NOT_FOUND,
                        qs_test_declare_exchange(engine->channel, "y", "", QS_PASSIVE));
    CHECK_CHANNEL_ERROR(engine, QS_COMMAND_INVALID,
                        qs_test_declare_exchange(engine->channel, "y", "odd", 0));
    CHECK_CHANNEL_ERROR(engine, QS_ACCESS_REFUSED,
                        qs_test_declare_exchange(engine->channel, "amq.y", "topic", 0));
    CHECK_CHANNEL_ERROR(
        engine, QS_ACCESS_REFUSED,
        qs_channel_exchange_delete(engine->channel, text("amq.topic"), 0, QS_ERROR));
    declare(engine, "q", QS_DURABLE);
    bind_queue(engine, "q", "x", "k");
    CHECK_CHANNEL_ERROR(
        engine, QS_PRECONDITION_FAILED,
        qs_channel_exchange_delete(engine->channel, text("x"), QS_IF_UNUSED, QS_ERROR));
    QS_CHECK_OK(qs_channel_exchange_delete(engine->channel, text("x"), 0, QS_ERROR));
    QS_CHECK_OK(qs_channel_exchange_delete(engine->channel, text("x"), 0, QS_ERROR));
    engine_reopen(engine);
    CHECK_CHANNEL_ERROR(engine, QS_NOT_FOUND,
                        qs_test_declare_exchange(engine->channel, "x", "", QS_PASSIVE));
}

ENGINE_TEST(test_durable_exchanges_and_bindings_come_back)
{
    declare_exchange(engine, "kept", "fanout", QS_DURABLE);
    declare_exchange(engine, "lost", "fanout", 0);
    declare(engine, "q", QS_DURABLE);
    declare(engine, "lost", 0);
    bind_queue(engine, "q", "kept", "");
    bind_queue(engine, "lost", "kept", "");
    bind_queue(engine, "q", "amq.topic", "a.*");
    bind_queue(engine, "q", "amq.topic", "b.#");
    QS_CHECK_OK(qs_test_bind(engine->channel, "q", "amq.topic", "b.#", QS_UNBIND));
    QS_CHECK_OK(qs_test_bind(engine->channel, "q", "amq.topic", "never bound", QS_UNBIND));
    engine_reopen(engine);
    QS_CHECK(!has_queue(engine, "lost"));
    publish_to(engine, "kept", "", PERSISTENT, text("1"));
    publish_to(engine, "amq.topic", "a.x", PERSISTENT, text("2"));
    publish_to(engine, "amq.topic", "b.x", PERSISTENT, text("unroutable"));
    get(engine, "q", "1");
    get(engine, "q", "2");
    get_nothing(engine, "q");
    CHECK_CHANNEL_ERROR(engine, QS_NOT_FOUND,
                        qs_test_declare_exchange(engine->channel, "lost", "", QS_PASSIVE));
}

ENGINE_TEST(test_bindings_are_refused_where_an_end_is_missing)
{
    QS_TEST_FREED char *key = make_body(256, 0);

    declare(engine, "q", QS_DURABLE);
    CHECK_CHANNEL_ERROR(engine, QS_NOT_FOUND, qs_test_bind(engine->channel, "q", "none", "", 0));
    CHECK_CHANNEL_ERROR(engine, QS_NOT_FOUND,
                        qs_test_bind(engine->channel, "none", "amq.fanout", "", 0));
    CHECK_CHANNEL_ERROR(engine, QS_ACCESS_REFUSED, qs_test_bind(engine->channel, "q", "", "q", 0));
    QS_CHECK_STATUS(QS_EINVAL, qs_test_bind(engine->channel, "q", "amq.direct", key, 0));
    key[255] = '\0';
    bind_queue(engine, "q", "amq.direct", key);
    publish_to(engine, "amq.direct", key, PERSISTENT, text("long key"));
    engine_reopen(engine);
    get(engine, "q", "long key");
}

ENGINE_TEST(test_auto_delete_exchange_goes_with_its_last_binding)
{
    declare_exchange(engine, "x", "direct", QS_DURABLE | QS_AUTO_DELETE);
    declare(engine, "q", QS_DURABLE);
    bind_queue(engine, "q", "x", "k");
    engine_reopen(engine);
    publish_to(engine, "x", "k", PERSISTENT, text("1"));
    QS_CHECK_OK(qs_test_bind(engine->channel, "q", "x", "k", QS_UNBIND));
    CHECK_CHANNEL_ERROR(engine, QS_NOT_FOUND,
                        qs_test_declare_exchange(engine->channel, "x", "", QS_PASSIVE));
    engine_reopen(engine);
    CHECK_CHANNEL_ERROR(engine, QS_NOT_FOUND,
                        qs_test_declare_exchange(engine->channel, "x", "", QS_PASSIVE));
    get(engine, "q", "1");
}

/* A transient binding kept the exchange alive while its durable one was gone for a moment;
 * replay knows nothing of transient bindings and must not delete it then. */
ENGINE_TEST(test_auto_delete_exchange_survives_what_a_transient_binding_survived)
{
    declare_exchange(engine, "x", "direct", QS_DURABLE | QS_AUTO_DELETE);
    declare(engine, "q", QS_DURABLE);
    declare(engine, "transient", 0);
    bind_queue(engine, "transient", "x", "k");
    bind_queue(engine, "q", "x", "k");
    QS_CHECK_OK(qs_test_bind(engine->channel, "q", "x", "k", QS_UNBIND));
    bind_queue(engine, "q", "x", "k");
    engine_reopen(engine);
    publish_to(engine, "x", "k", PERSISTENT, text("1"));
    get(engine, "q", "1");
}

ENGINE_TEST(test_auto_delete_exchange_gone_with_an_exclusive_queue_stays_gone)
{
    declare_exchange(engine, "x", "direct", QS_DURABLE | QS_AUTO_DELETE);
    declare(engine, "mine", QS_EXCLUSIVE);
    bind_queue(engine, "mine", "x", "k");
    engine_new_channel(engine);
    engine_reopen(engine);
    CHECK_CHANNEL_ERROR(engine, QS_NOT_FOUND,
                        qs_test_declare_exchange(engine->channel, "x", "", QS_PASSIVE));
    declare_exchange(engine, "x", "fanout", QS_DURABLE); /* another one */
    engine_reopen(engine);
    declare_exchange(engine, "x", "fanout", QS_DURABLE);
}

ENGINE_TEST(test_internal_exchange_takes_nothing_from_publishers)
{
    declare_exchange(engine, "x", "fanout", QS_DURABLE | QS_INTERNAL);
    engine_reopen(engine);
    CHECK_CHANNEL_ERROR(engine, QS_ACCESS_REFUSED,
                        qs_test_publish(engine->channel, "x", "", NONE, text("1"), 0));
}
