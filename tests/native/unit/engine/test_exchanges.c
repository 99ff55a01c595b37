/* Exchanges through the public calls: what the journal and checkpoints keep of them, and what older
 * stores hold. */
#include "engine_fixture.h"

static const uint8_t alternate[] = "\x12"
                                   "alternate-exchange"
                                   "S\0\0\0\5aside";
static const uint8_t number_alternate[] = "\x12"
                                          "alternate-exchange"
                                          "I\0\0\0\5";
static const uint8_t wants_one[] = "\1hI\0\0\0\1";
/* Delivery mode 2 and headers: h = 1 as a long, and CC = [b], BCC = [c]. */
static const uint8_t has_one[] = "\x30\0\0\0\0\x0b\1hl\0\0\0\0\0\0\0\1\2";
static const uint8_t has_copies[] =
    "\x30\0\0\0\0\x1d\2CCA\0\0\0\6S\0\0\0\1b\3BCCA\0\0\0\6S\0\0\0\1c"
    "\2";
static const uint8_t has_copies_left[] = "\x30\0\0\0\0\x0e\2CCA\0\0\0\6S\0\0\0\1b\2";
#define TABLE(bytes) ((qs_slice){bytes, sizeof(bytes) - 1})

static void set_up(struct engine *engine)
{
    declare(engine, "q", QS_DURABLE);
    declare_exchange(engine, "aside", "fanout", QS_DURABLE | QS_INTERNAL);
    declare_exchange(engine, "by", "headers", QS_DURABLE);
    QS_CHECK_OK(qs_channel_exchange_declare(engine->channel, text("in"), text("direct"), QS_DURABLE,
                                            TABLE(alternate), QS_ERROR));
    bind_queue(engine, "q", "aside", "");
    QS_CHECK_OK(qs_channel_change_binding(engine->channel, text("q"), text("by"), NONE,
                                          TABLE(wants_one), 0, QS_ERROR));
    QS_CHECK_OK(qs_test_bind(engine->channel, "by", "in", "k", QS_TO_EXCHANGE));
}

static void check_routes(struct engine *engine)
{
    publish_to(engine, "in", "k", TABLE(has_one), text("by its headers"));
    publish_to(engine, "in", "k", PERSISTENT, text("nowhere"));
    publish_to(engine, "in", "other", PERSISTENT, text("aside"));
    get(engine, "q", "by its headers");
    get(engine, "q", "aside");
    get_nothing(engine, "q");
    ack(engine, 0, QS_MULTIPLE);
}

ENGINE_TEST(test_a_checkpoint_keeps_bindings_between_exchanges)
{
    set_up(engine);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    check_routes(engine);
    engine_reopen(engine);
    check_routes(engine);
    QS_CHECK_OK(qs_test_bind(engine->channel, "by", "in", "k", QS_TO_EXCHANGE | QS_UNBIND));
    engine_reopen(engine);
    publish_to(engine, "in", "k", TABLE(has_one), text("aside now"));
    get(engine, "q", "aside now");
}

ENGINE_TEST(test_copies_are_journalled_without_the_blind_ones)
{
    qs_message message;

    for (int i = 0; i < 3; i++) {
        const char name[] = {(char)('a' + i), 0};

        declare(engine, name, QS_DURABLE);
    }
    publish_to(engine, "", "a", TABLE(has_copies), text("thrice"));
    engine_reopen(engine);
    for (int i = 0; i < 3; i++) {
        const char name[] = {(char)('a' + i), 0};

        message = get(engine, name, "thrice");
        QS_CHECK(message.properties.bytes == sizeof has_copies_left - 1 &&
                 memcmp(message.properties.data, has_copies_left, message.properties.bytes) == 0);
    }
}

ENGINE_TEST(test_arguments_that_are_no_table_are_refused)
{
    declare(engine, "q", QS_DURABLE);
    QS_CHECK_STATUS(QS_EINVAL,
                    qs_channel_exchange_declare(engine->channel, text("e"), text("direct"), 0,
                                                text("\x05junk"), QS_ERROR));
    QS_CHECK_STATUS(QS_EINVAL,
                    qs_channel_change_binding(engine->channel, text("q"), text("amq.match"), NONE,
                                              text("\x05junk"), 0, QS_ERROR));
    CHECK_CHANNEL_ERROR(engine, QS_PRECONDITION_FAILED,
                        qs_channel_exchange_declare(engine->channel, text("e"), text("direct"), 0,
                                                    TABLE(number_alternate), QS_ERROR));
}

/* ---- crashes, in memory ---- */

IN_MEMORY_TEST(test_everything_is_replayed_after_a_crash)
{
    set_up(engine);
    engine_crash(engine);
    check_routes(engine);
}

IN_MEMORY_TEST(test_exchanges_that_went_together_stay_gone_after_a_crash)
{
    declare_exchange(engine, "first", "fanout", QS_DURABLE | QS_AUTO_DELETE);
    declare_exchange(engine, "second", "fanout", QS_DURABLE | QS_AUTO_DELETE);
    declare_exchange(engine, "transient", "fanout", 0);
    QS_CHECK_OK(qs_test_bind(engine->channel, "second", "first", "", QS_TO_EXCHANGE));
    QS_CHECK_OK(qs_test_bind(engine->channel, "transient", "second", "", QS_TO_EXCHANGE));
    /* Only what is not durable led from the second one. */
    QS_CHECK_OK(qs_channel_exchange_delete(engine->channel, text("transient"), 0, QS_ERROR));
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    engine_crash(engine);
    for (int i = 0; i < 2; i++) {
        CHECK_CHANNEL_ERROR(
            engine, QS_NOT_FOUND,
            qs_test_declare_exchange(engine->channel, i == 0 ? "first" : "second", "", QS_PASSIVE));
    }
}
