/* Transactions that clients do not commit: how much memory they may take, and that they can be
 * ended while publishers are held back. */
#include "qs_test_session.h"
#include "qs_test_slices.h"

#define ROOM 200000

static struct peer peer;
static struct qsi_amqp_pool pool;
static const char body[1000];

static void select_tx(uint16_t channel)
{
    CALL(&peer, channel, TX_SELECT, .bits = 0);
}

static void start(void)
{
    pool = (struct qsi_amqp_pool){.tx_bytes_max = ROOM};
    peer_init(&peer);
    peer.setup.pool = &pool;
    make_ready(&peer);
    declare(&peer, "q");
    select_tx(1);
}

static void end(void)
{
    disconnect_peer(&peer);
    QS_CHECK(pool.tx_bytes == 0 && pool.tx_return_bytes == 0);
    peer_fini(&peer);
}

static void run_between(void (*test)(void))
{
    start();
    test();
    end();
}
#define TX_TEST(name) QS_TEST_BY(run_between, name, (void))

static void publish_on(uint16_t channel)
{
    put_message(&peer, channel, "", "q", 0, body, sizeof body);
    flush(&peer);
}

static uint64_t ready(void)
{
    qs_queue_status status;

    QS_CHECK_OK(qs_store_queue_status(peer.store, text("q"), &status, QS_ERROR));
    return status.messages_ready;
}

static void commit_on(uint16_t channel)
{
    CALL(&peer, channel, TX_COMMIT, .bits = 0);
}

/* Publishes until that is refused; how many were not. */
static int fill(uint16_t channel)
{
    struct qsi_amqp_arguments close;
    int count = 0;

    while (peer.in_from == peer.in_bytes) {
        QS_CHECK(count < ROOM / 1000);
        publish_on(channel);
        count += 1;
    }
    close = EXPECT(&peer, channel, CHANNEL_CLOSE);
    QS_CHECK(close.number[0] == 406 && close.number[1] == 60 && close.number[2] == 40);
    QS_CHECK(strstr((const char *)close.text[0].data, "commit more often") != NULL);
    SEND(&peer, channel, CHANNEL_CLOSE_OK, .bits = 0);
    expect_nothing(&peer);
    return count - 1;
}

/* One client may have half of the room. */
TX_TEST(test_a_transaction_that_grows_for_ever_is_rolled_back)
{
    int count;

    open_channel(&peer, 2);
    select_tx(2);
    publish_on(2);
    count = fill(1);
    QS_CHECK(count > ROOM / 2 / 2000 && count < ROOM / 2 / 1000);
    QS_CHECK(pool.tx_bytes > 1000 && pool.tx_bytes < 2000); /* of channel 2 */
    QS_CHECK(ready() == 0);
    commit_on(2);
    QS_CHECK(pool.tx_bytes == 0 && ready() == 1);
    open_channel(&peer, 1);
    select_tx(1);
    for (int round = 0; round < 5; round++) { /* what was committed counts no more */
        for (int i = 0; i < count; i++) {
            publish_on(1);
        }
        QS_CHECK(pool.tx_bytes > 0);
        commit_on(1);
        QS_CHECK(pool.tx_bytes == 0);
    }
    QS_CHECK(ready() == 1 + 5 * (uint64_t)count);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < count; i++) {
            publish_on(1);
        }
        CALL(&peer, 1, TX_ROLLBACK, .bits = 0);
        QS_CHECK(pool.tx_bytes == 0);
    }
    publish_on(1);
}

TX_TEST(test_empty_messages_count_with_all_that_is_noted_of_them)
{
    int count = 0;

    while (peer.in_from == peer.in_bytes) {
        QS_CHECK(count < ROOM / 2 / 200);
        publish(&peer, "", "q", "");
        count += 1;
    }
    QS_CHECK(EXPECT(&peer, 1, CHANNEL_CLOSE).number[0] == 406);
}

TX_TEST(test_the_channels_of_a_connection_share_its_part)
{
    int count;

    open_channel(&peer, 2);
    select_tx(2);
    for (int i = 0; i < 30; i++) {
        publish_on(2);
    }
    count = fill(1);
    QS_CHECK(count < ROOM / 2 / 1000 - 30);
    commit_on(2);
    QS_CHECK(ready() == 30);
}

/* The more others have, the less is there for one; never nothing. */
TX_TEST(test_there_is_room_for_a_small_one_whatever_others_hold)
{
    int alone, beside;

    alone = fill(1);
    pool.tx_bytes += ROOM / 2;
    open_channel(&peer, 1);
    select_tx(1);
    beside = fill(1);
    QS_CHECK(beside > alone / 3 && beside < alone * 2 / 3);
    pool.tx_bytes += ROOM / 4;
    open_channel(&peer, 1);
    select_tx(1);
    publish_on(1);
    commit_on(1);
    pool.tx_bytes -= ROOM / 2 + ROOM / 4;
}

/* Many connections of one client could leave next to nothing. */
TX_TEST(test_a_small_transaction_passes_when_others_hold_all_of_the_room)
{
    pool.tx_bytes_max = 16u << 20;
    pool.tx_bytes = pool.tx_bytes_max;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 10; i++) {
            publish_on(1);
        }
        commit_on(1);
    }
    QS_CHECK(ready() == 30);
    QS_CHECK(fill(1) < 16); /* no more than its own part */
    QS_CHECK(pool.tx_bytes == pool.tx_bytes_max);
    pool.tx_bytes = 0;
}

TX_TEST(test_settlements_count_too)
{
    for (uint64_t tag = 1; tag <= 10; tag++) {
        uint64_t before;

        publish(&peer, "", "q", "x");
        commit_on(1);
        CALL(&peer, 1, BASIC_GET, .text = {TEXT("q")});
        expect_body(&peer, "x");
        before = pool.tx_bytes;
        SEND(&peer, 1, BASIC_ACK, .number = {tag});
        QS_CHECK(pool.tx_bytes > before);
    }
    commit_on(1);
    QS_CHECK(pool.tx_bytes == 0);
}

/* The thread that must not wait leaves the channel to another one. */
TX_TEST(test_a_refused_transaction_counts_until_it_is_rolled_back)
{
    struct qsi_amqp_arguments close;

    publish(&peer, "", "q", "x");
    commit_on(1);
    CALL(&peer, 1, BASIC_GET, .text = {TEXT("q")});
    expect_body(&peer, "x");
    pool.tx_bytes_max = pool.tx_bytes = 1000; /* its own part is less than an ack takes */
    peer.must_not_block = true;
    SEND(&peer, 1, BASIC_ACK, .number = {1});
    close = EXPECT(&peer, 1, CHANNEL_CLOSE);
    QS_CHECK(close.number[0] == 406 && close.number[1] == 60 && close.number[2] == 80);
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_WORKER && pool.tx_bytes > 1000);
    peer.must_not_block = false;
    run(&peer);
    QS_CHECK(pool.tx_bytes == 1000 && ready() == 1);
    pool.tx_bytes = 0;
}

/* ---- what comes back ---- */

#define RETURN_ROOM 40000 /* less than a transaction may take otherwise */

static void start_with_returns(void)
{
    start();
    pool.tx_return_bytes_max = RETURN_ROOM;
}

static void put_lost(uint16_t channel)
{
    put_message(&peer, channel, "", "nowhere", 1, body, sizeof body);
    flush(&peer);
}

/* Publishes what comes back until that is refused; how many were not. */
static int fill_with_lost(uint16_t channel)
{
    struct qsi_amqp_arguments close;
    int count = 0;

    while (peer.in_from == peer.in_bytes) {
        QS_CHECK(count < RETURN_ROOM / 1000);
        put_lost(channel);
        count += 1;
    }
    close = EXPECT(&peer, channel, CHANNEL_CLOSE);
    QS_CHECK(close.number[0] == 406 && close.number[1] == 60 && close.number[2] == 40);
    QS_CHECK(strstr((const char *)close.text[0].data, "returned messages") != NULL);
    SEND(&peer, channel, CHANNEL_CLOSE_OK, .bits = 0);
    expect_nothing(&peer);
    return count - 1;
}

static void expect_lost(uint16_t channel, int count)
{
    for (int i = 0; i < count; i++) {
        size_t bytes;

        EXPECT(&peer, channel, BASIC_RETURN);
        free(take_body(&peer, &bytes));
        QS_CHECK(bytes == sizeof body);
    }
}

/* All publishers of mandatory messages share the room for them: one client had all of it. */
QS_TEST(test_returns_of_open_transactions_leave_room_for_those_of_other_publishers)
{
    int count;

    start_with_returns();
    open_channel(&peer, 2);
    select_tx(2);
    put_lost(2);
    count = fill_with_lost(1);
    QS_CHECK(count > RETURN_ROOM / 2 / 2000 && count < RETURN_ROOM / 2 / 1000);
    QS_CHECK(pool.tx_return_bytes > 1000 && pool.tx_return_bytes < 2000); /* of channel 2 */
    SEND(&peer, 2, TX_COMMIT, .bits = 0);
    expect_lost(2, 1);
    EXPECT(&peer, 2, TX_COMMIT_OK);
    QS_CHECK(pool.tx_return_bytes == 0);
    for (int round = 0; round < 3; round++) { /* what was rolled back counts no more */
        for (int i = 0; i < count; i++) {
            put_lost(2);
        }
        CALL(&peer, 2, TX_ROLLBACK, .bits = 0);
        QS_CHECK(pool.tx_return_bytes == 0);
    }
    pool.tx_return_bytes = RETURN_ROOM / 2;
    QS_CHECK(fill_with_lost(2) < count * 2 / 3); /* half of what others have left */
    pool.tx_return_bytes = 0;
    end();
}

QS_TEST(test_returns_of_a_commit_count_until_they_are_sent)
{
    start_with_returns();
    peer.session->setup.limits.unsent_bytes_max = 3000;
    for (int i = 0; i < 10; i++) {
        put_lost(1);
    }
    put_method(&peer, 1, QSI_AMQP_TX_COMMIT, ARGUMENTS(.bits = 0));
    peer.wants = qsi_amqp_session_feed(
        peer.session, &(struct qsi_amqp_turn){.now_ns = peer.now_ns, .may_block = true}, peer.out,
        peer.out_bytes);
    peer.out_bytes = 0;
    QS_CHECK(pool.tx_bytes == 0 && pool.tx_return_bytes > 10000);
    go_on(&peer);
    QS_CHECK(pool.tx_return_bytes == 0);
    expect_lost(1, 10);
    EXPECT(&peer, 1, TX_COMMIT_OK);
    end();
}

/* ---- alarms ---- */

static void start_alarmed(void)
{
    start();
    publish_on(1);
    qsi_amqp_session_alarm(peer.session, "low on memory", peer.now_ns);
    run(&peer);
    EXPECT(&peer, 0, CONNECTION_BLOCKED);
}

static void end_alarm(void)
{
    qsi_amqp_session_alarm(peer.session, NULL, peer.now_ns);
    peer.now_ns += SECOND;
    run(&peer);
    EXPECT(&peer, 0, CONNECTION_UNBLOCKED);
    QS_CHECK(qsi_amqp_session_reads(peer.session));
}

QS_TEST(test_a_transaction_can_be_committed_while_publishers_are_held_back)
{
    start_alarmed();
    QS_CHECK(qsi_amqp_session_reads(peer.session));
    publish_on(1);
    commit_on(1);
    QS_CHECK(ready() == 2);
    QS_CHECK(!qsi_amqp_session_reads(peer.session)); /* from now on it waits as the others do */
    end_alarm();
    end();
}

QS_TEST(test_a_transaction_can_be_rolled_back_while_publishers_are_held_back)
{
    start_alarmed();
    CALL(&peer, 1, TX_ROLLBACK, .bits = 0);
    QS_CHECK(!qsi_amqp_session_reads(peer.session));
    end_alarm();
    end();
}

QS_TEST(test_a_transaction_that_grows_while_publishers_are_held_back_is_rolled_back)
{
    start_alarmed();
    QS_CHECK(fill(1) > 0);
    QS_CHECK(ready() == 0 && !qsi_amqp_session_reads(peer.session));
    end_alarm();
    end();
}

/* Else an open transaction would be a way round the alarm. */
TX_TEST(test_what_is_published_beside_a_transaction_is_held_back)
{
    open_channel(&peer, 2);
    publish_on(1);
    qsi_amqp_session_alarm(peer.session, "low on memory", peer.now_ns);
    run(&peer);
    EXPECT(&peer, 0, CONNECTION_BLOCKED);
    publish_on(2);
    QS_CHECK(!qsi_amqp_session_reads(peer.session) && ready() == 0);
    peer.now_ns += SECOND;
    run(&peer);
    expect_nothing(&peer);
    QS_CHECK(!qsi_amqp_session_reads(peer.session) && ready() == 0);
    end_alarm();
    QS_CHECK(ready() == 1);
    commit_on(1);
    QS_CHECK(ready() == 2);
}

/* Else a transaction that stays open would be one for all others of its connection. */
TX_TEST(test_a_transaction_that_begins_beside_another_is_held_back)
{
    open_channel(&peer, 2);
    select_tx(2);
    publish_on(1);
    qsi_amqp_session_alarm(peer.session, "low on memory", peer.now_ns);
    run(&peer);
    EXPECT(&peer, 0, CONNECTION_BLOCKED);
    publish_on(2);
    QS_CHECK(!qsi_amqp_session_reads(peer.session));
    peer.now_ns += SECOND;
    run(&peer);
    QS_CHECK(!qsi_amqp_session_reads(peer.session));
    end_alarm();
    commit_on(2);
    QS_CHECK(ready() == 1);
    commit_on(1);
    QS_CHECK(ready() == 2);
}

/* Both are open already: each may be ended as it is. */
TX_TEST(test_transactions_that_were_open_before_an_alarm_are_committed)
{
    open_channel(&peer, 2);
    select_tx(2);
    publish_on(1);
    publish_on(2);
    qsi_amqp_session_alarm(peer.session, "low on memory", peer.now_ns);
    run(&peer);
    EXPECT(&peer, 0, CONNECTION_BLOCKED);
    publish_on(2);
    commit_on(2);
    commit_on(1);
    QS_CHECK(ready() == 3 && !qsi_amqp_session_reads(peer.session));
    end_alarm();
}
