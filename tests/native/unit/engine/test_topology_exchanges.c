/* Exchanges and bindings through the public calls: what is made, what is refused and how, what is
 * still there after a restart. */
#include "engine_fixture.h"

ENGINE_TEST(test_exchanges_are_declared_and_deleted)
{
    declare_exchange(engine, "x", "topic", QS_DURABLE);
    declare_exchange(engine, "x", "topic", QS_DURABLE);
    QS_CHECK_OK(qs_channel_exchange_declare(engine->channel, text("x"), text(""), QS_PASSIVE, NONE,
                                            QS_ERROR));
    CHECK_CHANNEL_ERROR(engine, QS_PRECONDITION_FAILED,
                        qs_channel_exchange_declare(engine->channel, text("x"), text("direct"),
                                                    QS_DURABLE, NONE, QS_ERROR));
    CHECK_CHANNEL_ERROR(engine, QS_NOT_FOUND,
                        qs_channel_exchange_declare(engine->channel, text("y"), text(""),
                                                    QS_PASSIVE, NONE, QS_ERROR));
    CHECK_CHANNEL_ERROR(
        engine, QS_COMMAND_INVALID,
        qs_channel_exchange_declare(engine->channel, text("y"), text("odd"), 0, NONE, QS_ERROR));
    CHECK_CHANNEL_ERROR(engine, QS_ACCESS_REFUSED,
                        qs_channel_exchange_declare(engine->channel, text("amq.y"), text("topic"),
                                                    0, NONE, QS_ERROR));
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
                        qs_channel_exchange_declare(engine->channel, text("x"), text(""),
                                                    QS_PASSIVE, NONE, QS_ERROR));
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
    QS_CHECK_OK(qs_channel_change_binding(engine->channel, text("q"), text("amq.topic"),
                                          text("b.#"), NONE, QS_UNBIND, QS_ERROR));
    QS_CHECK_OK(qs_channel_change_binding(engine->channel, text("q"), text("amq.topic"),
                                          text("never bound"), NONE, QS_UNBIND, QS_ERROR));
    engine_reopen(engine);
    QS_CHECK(!has_queue(engine, "lost"));
    publish_to(engine, "kept", "", PERSISTENT, text("1"));
    publish_to(engine, "amq.topic", "a.x", PERSISTENT, text("2"));
    publish_to(engine, "amq.topic", "b.x", PERSISTENT, text("unroutable"));
    get(engine, "q", "1");
    get(engine, "q", "2");
    get_nothing(engine, "q");
    CHECK_CHANNEL_ERROR(engine, QS_NOT_FOUND,
                        qs_channel_exchange_declare(engine->channel, text("lost"), text(""),
                                                    QS_PASSIVE, NONE, QS_ERROR));
}

ENGINE_TEST(test_bindings_are_refused_where_an_end_is_missing)
{
    char *key = make_body(256, 0);

    declare(engine, "q", QS_DURABLE);
    CHECK_CHANNEL_ERROR(engine, QS_NOT_FOUND,
                        qs_channel_change_binding(engine->channel, text("q"), text("none"),
                                                  text(""), NONE, 0, QS_ERROR));
    CHECK_CHANNEL_ERROR(engine, QS_NOT_FOUND,
                        qs_channel_change_binding(engine->channel, text("none"), text("amq.fanout"),
                                                  text(""), NONE, 0, QS_ERROR));
    CHECK_CHANNEL_ERROR(engine, QS_ACCESS_REFUSED,
                        qs_channel_change_binding(engine->channel, text("q"), text(""), text("q"),
                                                  NONE, 0, QS_ERROR));
    QS_CHECK_STATUS(QS_EINVAL,
                    qs_channel_change_binding(engine->channel, text("q"), text("amq.direct"),
                                              text(key), NONE, 0, QS_ERROR));
    key[255] = '\0';
    bind_queue(engine, "q", "amq.direct", key);
    publish_to(engine, "amq.direct", key, PERSISTENT, text("long key"));
    engine_reopen(engine);
    get(engine, "q", "long key");
    free(key);
}

ENGINE_TEST(test_auto_delete_exchange_goes_with_its_last_binding)
{
    declare_exchange(engine, "x", "direct", QS_DURABLE | QS_AUTO_DELETE);
    declare(engine, "q", QS_DURABLE);
    bind_queue(engine, "q", "x", "k");
    engine_reopen(engine);
    publish_to(engine, "x", "k", PERSISTENT, text("1"));
    QS_CHECK_OK(qs_channel_change_binding(engine->channel, text("q"), text("x"), text("k"), NONE,
                                          QS_UNBIND, QS_ERROR));
    CHECK_CHANNEL_ERROR(engine, QS_NOT_FOUND,
                        qs_channel_exchange_declare(engine->channel, text("x"), text(""),
                                                    QS_PASSIVE, NONE, QS_ERROR));
    engine_reopen(engine);
    CHECK_CHANNEL_ERROR(engine, QS_NOT_FOUND,
                        qs_channel_exchange_declare(engine->channel, text("x"), text(""),
                                                    QS_PASSIVE, NONE, QS_ERROR));
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
    QS_CHECK_OK(qs_channel_change_binding(engine->channel, text("q"), text("x"), text("k"), NONE,
                                          QS_UNBIND, QS_ERROR));
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
                        qs_channel_exchange_declare(engine->channel, text("x"), text(""),
                                                    QS_PASSIVE, NONE, QS_ERROR));
    declare_exchange(engine, "x", "fanout", QS_DURABLE); /* another one */
    engine_reopen(engine);
    declare_exchange(engine, "x", "fanout", QS_DURABLE);
}

ENGINE_TEST(test_internal_exchange_takes_nothing_from_publishers)
{
    qs_receipt receipt;

    declare_exchange(engine, "x", "fanout", QS_DURABLE | QS_INTERNAL);
    engine_reopen(engine);
    CHECK_CHANNEL_ERROR(engine, QS_ACCESS_REFUSED,
                        qs_channel_publish(engine->channel, text("x"), NONE, NONE, text("1"), 0, 0,
                                           &receipt, QS_ERROR));
}
