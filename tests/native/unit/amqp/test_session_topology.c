/* Exchanges, queues, bindings and transactions of a client. */
#include "peer_fixture.h"

/* ---- topology ---- */

PEER_TEST(test_no_name_is_the_queue_that_was_declared_last)
{
    struct qsi_amqp_arguments ok;

    SEND(&peer, 1, QUEUE_DECLARE, .bits = EXCLUSIVE);
    ok = EXPECT(&peer, 1, QUEUE_DECLARE_OK);
    QS_CHECK(ok.text[0].bytes > 8 && memcmp(ok.text[0].data, "amq.gen-", 8) == 0);
    declare(&peer, "last");
    SEND(&peer, 1, QUEUE_BIND, .text = {TEXT(""), TEXT("amq.direct"), TEXT("")});
    EXPECT(&peer, 1, QUEUE_BIND_OK);
    publish(&peer, "amq.direct", "last", "bound by its name");
    SEND(&peer, 1, BASIC_GET, .bits = 1);
    EXPECT(&peer, 1, BASIC_GET_OK);
    expect_body(&peer, "bound by its name");
    SEND(&peer, 1, QUEUE_UNBIND, .text = {TEXT(""), TEXT("amq.direct"), TEXT("last")});
    EXPECT(&peer, 1, QUEUE_UNBIND_OK);
    publish(&peer, "amq.direct", "last", "nowhere");
    SEND(&peer, 1, QUEUE_PURGE, .bits = 0);
    QS_CHECK(EXPECT(&peer, 1, QUEUE_PURGE_OK).number[0] == 0);
    publish(&peer, "", "last", "dropped");
    SEND(&peer, 1, QUEUE_DELETE, .bits = 0);
    QS_CHECK(EXPECT(&peer, 1, QUEUE_DELETE_OK).number[0] == 1);
}

PEER_TEST(test_exchanges_are_bound_to_each_other)
{
    SEND(&peer, 1, EXCHANGE_DECLARE, .text = {TEXT("a\r\n"), TEXT("fanout")});
    EXPECT(&peer, 1, EXCHANGE_DECLARE_OK);
    SEND(&peer, 1, EXCHANGE_DECLARE, .text = {TEXT("b"), TEXT("topic")}, .bits = NO_WAIT_BIT);
    expect_nothing(&peer);
    declare(&peer, "q");
    SEND(&peer, 1, EXCHANGE_BIND, .text = {TEXT("b"), TEXT("a"), TEXT("")});
    EXPECT(&peer, 1, EXCHANGE_BIND_OK);
    SEND(&peer, 1, QUEUE_BIND, .text = {TEXT("q"), TEXT("b"), TEXT("x.#")});
    EXPECT(&peer, 1, QUEUE_BIND_OK);
    publish(&peer, "a", "x.y", "by two");
    SEND(&peer, 1, BASIC_GET, .text = {TEXT("q")}, .bits = 1);
    EXPECT(&peer, 1, BASIC_GET_OK);
    expect_body(&peer, "by two");
    SEND(&peer, 1, EXCHANGE_UNBIND, .text = {TEXT("b"), TEXT("a"), TEXT("")});
    EXPECT(&peer, 1, EXCHANGE_UNBIND_OK);
    SEND(&peer, 1, EXCHANGE_DELETE, .text = {TEXT("a")});
    EXPECT(&peer, 1, EXCHANGE_DELETE_OK);
}

/* RabbitMQ takes a table with a key twice; the last one counts. */
PEER_TEST(test_arguments_may_come_in_any_order_and_twice)
{
    static const char table[] = "\x0cx-max-lengthI\0\0\0\1\x09x-expiresI\0\1\0\0"
                                "\x0cx-max-lengthI\0\0\0\2";

    SEND(&peer, 1, QUEUE_DECLARE, .text = {TEXT("dup")},
         .table = qsi_slice_make(table, sizeof table - 1));
    EXPECT(&peer, 1, QUEUE_DECLARE_OK);
    for (int i = 0; i < 5; i++) {
        publish(&peer, "", "dup", "x");
    }
    SEND(&peer, 1, QUEUE_DECLARE, .text = {TEXT("dup")}, .bits = 1);
    QS_CHECK(EXPECT(&peer, 1, QUEUE_DECLARE_OK).number[0] == 2);
}

/* ---- transactions ---- */

PEER_TEST(test_transactions)
{
    declare(&peer, "q");
    SEND(&peer, 1, TX_SELECT, .bits = 0);
    EXPECT(&peer, 1, TX_SELECT_OK);
    publish(&peer, "", "q", "dropped");
    SEND(&peer, 1, TX_ROLLBACK, .bits = 0);
    EXPECT(&peer, 1, TX_ROLLBACK_OK);
    put_message(&peer, 1, "", "nowhere", 1, "back", 4);
    publish(&peer, "", "q", "kept");
    SEND(&peer, 1, TX_COMMIT, .bits = 0);
    EXPECT(&peer, 1, BASIC_RETURN);
    expect_body(&peer, "back");
    EXPECT(&peer, 1, TX_COMMIT_OK);
    SEND(&peer, 1, BASIC_GET, .text = {TEXT("q")}, .bits = 1);
    QS_CHECK(EXPECT(&peer, 1, BASIC_GET_OK).number[1] == 0);
    expect_body(&peer, "kept");
    SEND(&peer, 1, CONFIRM_SELECT, .bits = 0);
    expect_channel_close(&peer, 1, 406,
                         "PRECONDITION_FAILED - cannot switch from tx to confirm mode", 85, 10);
}
