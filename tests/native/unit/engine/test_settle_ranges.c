/* Settling ranges of tags, also between those of a transaction. */
#include "engine_fixture.h"

ENGINE_TEST(test_a_range_is_settled_beside_a_transaction)
{
    qs_channel *channel = engine->channel;
    qs_message message;

    declare(engine, "q", QS_DURABLE);
    for (int i = 0; i < 5; i++) {
        publish(engine, "q", "body");
    }
    QS_CHECK_OK(qs_channel_tx_select(channel, QS_ERROR));
    for (int i = 0; i < 5; i++) {
        QS_CHECK_OK(qs_channel_get(channel, text("q"), 0, &message, QS_ERROR));
        qs_message_release(&message);
    }
    QS_CHECK_STATUS(QS_EINVAL, qs_channel_settle_range(channel, 0, 1, 0, 0, QS_ERROR));
    QS_CHECK_OK(qs_channel_ack(channel, 3, 0, QS_ERROR)); /* the transaction's */
    QS_CHECK_OK(qs_channel_settle_range(channel, 1, 4, QS_REQUEUE | QS_NO_WAIT, 0, QS_ERROR));
    QS_CHECK_OK(qs_channel_settle_range(channel, 5, 9, QS_NO_WAIT, 0, QS_ERROR));
    QS_CHECK_OK(qs_channel_tx_rollback(channel, QS_ERROR));
    for (int i = 0; i < 3; i++) {
        QS_CHECK_OK(qs_channel_get(channel, text("q"), 0, &message, QS_ERROR));
        QS_CHECK(message.redelivered);
        qs_message_release(&message);
    }
    QS_CHECK_STATUS(QS_EEMPTY, qs_test_get(channel, "q", 0));
    QS_CHECK_OK(qs_channel_recover(channel, QS_REQUEUE, QS_ERROR));
    for (int i = 0; i < 4; i++) {
        QS_CHECK_OK(qs_channel_get(channel, text("q"), 0, &message, QS_ERROR));
        qs_message_release(&message);
    }
}

/* What a client settles when it keeps one tag back: the transaction has the rest, and later that
 * one too. */
ENGINE_TEST(test_ranges_of_a_transaction_leave_out_what_lies_between)
{
    qs_channel *channel = engine->channel;
    qs_message message;

    declare(engine, "q", QS_DURABLE);
    for (int i = 0; i < 5; i++) {
        publish(engine, "q", "body");
    }
    QS_CHECK_OK(qs_channel_tx_select(channel, QS_ERROR));
    for (int i = 0; i < 4; i++) {
        QS_CHECK_OK(qs_test_get(channel, "q", 0));
    }
    QS_CHECK_OK(qs_channel_settle_range(channel, 1, 1, QS_IN_TX | QS_REJECT, 0, QS_ERROR));
    QS_CHECK_OK(qs_channel_settle_range(channel, 3, 9, QS_IN_TX, 0, QS_ERROR));
    QS_CHECK_OK(qs_channel_get(channel, text("q"), 0, &message, QS_ERROR)); /* 5 came later */
    qs_message_release(&message);
    QS_CHECK_OK(qs_test_commit(channel, text(""), 0));
    check_counts(engine, "q", 0, 2);
    ack(engine, 2, 0);
    QS_CHECK_OK(qs_test_commit(channel, text(""), 0));
    check_counts(engine, "q", 0, 1);
    QS_CHECK_OK(qs_channel_settle_range(channel, 5, 5, QS_IN_TX | QS_REQUEUE, 0, QS_ERROR));
    QS_CHECK_OK(qs_channel_tx_rollback(channel, QS_ERROR));
    check_counts(engine, "q", 0, 1);
}
