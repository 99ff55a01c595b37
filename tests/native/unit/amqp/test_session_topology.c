/* Exchanges, queues, bindings and transactions of a client. */
#include "peer_fixture.h"

/* ---- topology ---- */

PEER_TEST(test_no_name_is_the_queue_that_was_declared_last)
{
    struct qsi_amqp_arguments ok = CALL(&peer, 1, QUEUE_DECLARE, .bits = EXCLUSIVE);
    QS_CHECK(ok.text[0].bytes > 8 && memcmp(ok.text[0].data, "amq.gen-", 8) == 0);
    declare(&peer, "last");
    CALL(&peer, 1, QUEUE_BIND, .text = {TEXT(""), TEXT("amq.direct"), TEXT("")});
    publish(&peer, "amq.direct", "last", "bound by its name");
    CALL(&peer, 1, BASIC_GET, .bits = 1);
    expect_body(&peer, "bound by its name");
    CALL(&peer, 1, QUEUE_UNBIND, .text = {TEXT(""), TEXT("amq.direct"), TEXT("last")});
    publish(&peer, "amq.direct", "last", "nowhere");
    QS_CHECK(CALL(&peer, 1, QUEUE_PURGE, .bits = 0).number[0] == 0);
    publish(&peer, "", "last", "dropped");
    QS_CHECK(CALL(&peer, 1, QUEUE_DELETE, .bits = 0).number[0] == 1);
}

PEER_TEST(test_exchanges_are_bound_to_each_other)
{
    CALL(&peer, 1, EXCHANGE_DECLARE, .text = {TEXT("a\r\n"), TEXT("fanout")});
    SEND(&peer, 1, EXCHANGE_DECLARE, .text = {TEXT("b"), TEXT("topic")}, .bits = NO_WAIT_BIT);
    expect_nothing(&peer);
    declare(&peer, "q");
    CALL(&peer, 1, EXCHANGE_BIND, .text = {TEXT("b"), TEXT("a"), TEXT("")});
    CALL(&peer, 1, QUEUE_BIND, .text = {TEXT("q"), TEXT("b"), TEXT("x.#")});
    publish(&peer, "a", "x.y", "by two");
    expect_got(&peer, "q", "by two");
    CALL(&peer, 1, EXCHANGE_UNBIND, .text = {TEXT("b"), TEXT("a"), TEXT("")});
    CALL(&peer, 1, EXCHANGE_DELETE, .text = {TEXT("a")});
}

/* RabbitMQ takes a table with a key twice; the last one counts. */
PEER_TEST(test_arguments_may_come_in_any_order_and_twice)
{
    static const char table[] = "\x0cx-max-lengthI\0\0\0\1\x09x-expiresI\0\1\0\0"
                                "\x0cx-max-lengthI\0\0\0\2";

    CALL(&peer, 1, QUEUE_DECLARE, .text = {TEXT("dup")},
         .table = qsi_slice_make(table, sizeof table - 1));
    for (int i = 0; i < 5; i++) {
        publish(&peer, "", "dup", "x");
    }
    QS_CHECK(CALL(&peer, 1, QUEUE_DECLARE, .text = {TEXT("dup")}, .bits = 1).number[0] == 2);
}

/* ---- transactions ---- */

PEER_TEST(test_transactions)
{
    declare(&peer, "q");
    CALL(&peer, 1, TX_SELECT, .bits = 0);
    publish(&peer, "", "q", "dropped");
    CALL(&peer, 1, TX_ROLLBACK, .bits = 0);
    put_message(&peer, 1, "", "nowhere", 1, "back", 4);
    publish(&peer, "", "q", "kept");
    SEND(&peer, 1, TX_COMMIT, .bits = 0);
    EXPECT(&peer, 1, BASIC_RETURN);
    expect_body(&peer, "back");
    EXPECT(&peer, 1, TX_COMMIT_OK);
    QS_CHECK(CALL(&peer, 1, BASIC_GET, .text = {TEXT("q")}, .bits = 1).number[1] == 0);
    expect_body(&peer, "kept");
    SEND(&peer, 1, CONFIRM_SELECT, .bits = 0);
    expect_channel_close(&peer, 1, 406, "cannot switch from tx to confirm mode", 85, 10);
}
