/* What a client may have and how long it may take: channels, consumers, bodies, time, and what
 * happens when the server has no room or stops. */
#include "peer_fixture.h"

static void run_at(uint64_t now_ns)
{
    peer.now_ns = now_ns;
    run(&peer);
}

/* ---- limits ---- */

QS_TEST(test_channels_and_consumers_are_limited)
{
    peer_init(&peer);
    peer.setup.limits.consumers_max = 2;
    connect_as_guest(&peer);
    tune(&peer, 3, 0, 0);
    open_connection(&peer);
    open_channel(&peer, 1);
    open_channel(&peer, 2);
    open_channel(&peer, 65535); /* numbers are not limited: as RabbitMQ */
    declare(&peer, "q");
    for (int i = 0; i < 2; i++) {
        CALL(&peer, 2, BASIC_CONSUME, .text = {TEXT("q")}, .bits = 2);
    }
    SEND(&peer, 3, CHANNEL_OPEN, .bits = 0);
    expect_connection_close(
        &peer, 530, "number of channels opened (3) has reached the negotiated channel_max (3)", 20,
        10);
    disconnect_peer(&peer);
    make_ready(&peer);
    for (int i = 0; i < 2; i++) {
        CALL(&peer, 1, BASIC_CONSUME, .text = {TEXT("q")}, .bits = 2);
    }
    SEND(&peer, 1, BASIC_CONSUME, .text = {TEXT("q")}, .bits = 2);
    expect_connection_close(&peer, 530, "number of consumers of the channel has reached 2", 60, 20);
    peer_fini(&peer);
}

/* ---- bodies that have not come whole ---- */

#define PART_BYTES 60000

static struct qsi_amqp_pool pool;
static const char part[PART_BYTES];

static void start_with_pool(uint64_t body_bytes_max)
{
    pool = (struct qsi_amqp_pool){.bytes_max = 100000};
    peer_init(&peer);
    peer.setup.pool = &pool;
    peer.setup.limits.body_bytes_max = body_bytes_max;
    make_ready(&peer);
    declare(&peer, "q");
    CALL(&peer, 1, CONFIRM_SELECT, .bits = 0);
}

static void announce(uint16_t channel, uint64_t bytes)
{
    put_method(&peer, channel, QSI_AMQP_BASIC_PUBLISH, ARGUMENTS(.text = {TEXT(""), TEXT("q")}));
    put_header(&peer, channel, bytes, "\0\0", 2);
    flush(&peer);
}

static void send_part(uint16_t channel)
{
    put_frame(&peer, QSI_AMQP_FRAME_BODY, channel, part, sizeof part);
    flush(&peer);
}

static void end_with_pool(void)
{
    disconnect_peer(&peer);
    QS_CHECK(pool.bytes == 0 && pool.favoured == NULL);
    peer_fini(&peer);
}

/* What is only announced costs nothing; what came counts until it is published or given up. */
QS_TEST(test_unfinished_bodies_are_limited_in_sum)
{
    struct qsi_amqp_arguments close;

    start_with_pool(3 * PART_BYTES - 1);
    put_message(&peer, 1, "", "q", 0, part, sizeof part); /* in one frame: it is not kept */
    announce(1, 2 * PART_BYTES);
    send_part(1);
    QS_CHECK(pool.bytes == PART_BYTES);
    send_part(1);
    QS_CHECK(pool.bytes == 0);
    EXPECT(&peer, 1, BASIC_ACK);
    open_channel(&peer, 2);
    announce(1, 3 * PART_BYTES - 1);
    announce(2, 3 * PART_BYTES - 1);
    send_part(1);
    send_part(1);
    send_part(2);
    close = EXPECT(&peer, 0, CONNECTION_CLOSE);
    QS_CHECK(close.number[0] == 506);
    end_with_pool();
}

QS_TEST(test_a_body_of_the_largest_size_fits_where_all_together_may_take_less)
{
    start_with_pool(5 * PART_BYTES);
    announce(1, 5 * PART_BYTES);
    for (int i = 0; i < 5; i++) {
        QS_CHECK(pool.bytes == (uint64_t)i * PART_BYTES);
        QS_CHECK((pool.favoured == peer.session) == (i > 1));
        send_part(1);
    }
    QS_CHECK(pool.bytes == 0 && pool.favoured == NULL);
    EXPECT(&peer, 1, BASIC_ACK);
    end_with_pool();
}

/* Another session has taken all, and goes on. */
QS_TEST(test_publishers_beyond_the_sum_are_held_back_and_not_closed)
{
    struct qsi_amqp_session *other = (struct qsi_amqp_session *)&pool;

    start_with_pool(5 * PART_BYTES);
    pool.bytes = pool.bytes_max;
    pool.favoured = other;
    announce(1, 2 * PART_BYTES);
    send_part(1);
    QS_CHECK(!qsi_amqp_session_reads(peer.session) && peer.wants == QSI_AMQP_WANTS_INPUT);
    QS_CHECK(is_text(EXPECT(&peer, 0, CONNECTION_BLOCKED).text[0], "low on memory"));
    for (int i = 0; i < 200; i++) {
        run_at(qsi_amqp_session_deadline(peer.session));
        expect_nothing(&peer);
        QS_CHECK(!qsi_amqp_session_reads(peer.session));
        QS_CHECK(pool.asked_ns == peer.now_ns && pool.bytes == pool.bytes_max);
    }
    pool.bytes = 0;
    pool.favoured = NULL;
    run_at(qsi_amqp_session_deadline(peer.session));
    EXPECT(&peer, 0, CONNECTION_UNBLOCKED);
    QS_CHECK(qsi_amqp_session_reads(peer.session) && pool.bytes == PART_BYTES);
    send_part(1);
    EXPECT(&peer, 1, BASIC_ACK);
    end_with_pool();
}

/* It waits for the rest of a body as long as nobody else needs the room. */
QS_TEST(test_a_publisher_that_stops_amid_a_body_does_not_hold_the_others_for_ever)
{
    struct qsi_amqp_arguments close;

    start_with_pool(5 * PART_BYTES);
    announce(1, 5 * PART_BYTES);
    send_part(1);
    send_part(1);
    QS_CHECK(pool.favoured == peer.session);
    QS_CHECK(qsi_amqp_session_deadline(peer.session) == peer.now_ns + 10 * SECOND);
    run_at(peer.now_ns + 10 * SECOND);
    expect_nothing(&peer);
    pool.asked_ns = peer.now_ns + 10 * SECOND;
    run_at(peer.now_ns + 10 * SECOND - 1);
    expect_nothing(&peer);
    run_at(peer.now_ns + 1);
    close = EXPECT(&peer, 0, CONNECTION_CLOSE);
    QS_CHECK(close.number[0] == 506);
    end_with_pool();
}

QS_TEST(test_large_properties_count_while_their_body_has_not_come)
{
    static const char properties[1000 + 1024] = {0x20}; /* headers, of which only the size counts */
    uint8_t payload[12 + sizeof properties] = {0, 60};

    start_with_pool(5 * PART_BYTES);
    put_method(&peer, 1, QSI_AMQP_BASIC_PUBLISH, ARGUMENTS(.text = {TEXT(""), TEXT("q")}));
    qsi_put_be64(payload + 4, 1);
    memcpy(payload + 12, properties, sizeof properties);
    put_frame(&peer, QSI_AMQP_FRAME_HEADER, 1, payload, sizeof payload);
    flush(&peer);
    QS_CHECK(pool.bytes == sizeof properties);
    SEND(&peer, 1, CHANNEL_CLOSE, .number = {200});
    end_with_pool();
}

/* ---- output ---- */

/* They wait in room that all publishers share. */
PEER_TEST(test_a_publisher_that_does_not_read_what_came_back_is_not_read)
{
    enum { MESSAGES = 5000 };
    struct qsi_amqp_turn turn = {.may_block = true};
    struct qsi_amqp_counts counts;
    qs_stats stats;

    turn.now_ns = peer.now_ns;
    for (int i = 0; i < MESSAGES; i++) {
        put_message(&peer, 1, "", "nowhere", 1, "come back", 9);
    }
    peer.wants = qsi_amqp_session_feed(peer.session, &turn, peer.out, peer.out_bytes);
    peer.out_bytes = 0;
    while (peer.wants == QSI_AMQP_WANTS_TURN) {
        peer.wants = qsi_amqp_session_run(peer.session, &turn);
        qs_store_stats(peer.store, &stats);
        qsi_amqp_session_counts(peer.session, &counts);
        QS_CHECK(stats.messages_returned - counts.returned <= 64);
    }
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_OUTPUT && !qsi_amqp_session_reads(peer.session));
    QS_CHECK(counts.published < MESSAGES && qsi_amqp_session_unsent(peer.session) >= 256u << 10);
    go_on(&peer);
    for (int i = 0; i < MESSAGES; i++) {
        EXPECT(&peer, 1, BASIC_RETURN);
        expect_body(&peer, "come back");
    }
    expect_nothing(&peer);
}

/* Nothing of the output is read meanwhile. */
static enum qsi_amqp_wants run_unread(void)
{
    struct qsi_amqp_turn turn = {.now_ns = peer.now_ns, .may_block = true};

    return qsi_amqp_session_run(peer.session, &turn);
}

static void select_tx(void)
{
    CALL(&peer, 1, TX_SELECT, .bits = 0);
}

static void feed_unread(void)
{
    struct qsi_amqp_turn turn = {.now_ns = peer.now_ns, .may_block = true};

    peer.wants = qsi_amqp_session_feed(peer.session, &turn, peer.out, peer.out_bytes);
    peer.out_bytes = 0;
}

/* All of them at once would take any amount of memory. */
PEER_TEST(test_returns_of_a_transaction_go_out_as_they_are_read_and_before_commit_ok)
{
    enum { MESSAGES = 8000 };
    size_t unsent;

    declare(&peer, "q");
    select_tx();
    for (int i = 0; i < MESSAGES; i++) {
        put_message(&peer, 1, "", "nowhere", 1, "come back", 9);
    }
    put_message(&peer, 1, "", "q", 0, "once", 4);
    flush(&peer);
    expect_nothing(&peer);
    put_method(&peer, 1, QSI_AMQP_TX_COMMIT, ARGUMENTS(.bits = 0));
    feed_unread();
    unsent = qsi_amqp_session_unsent(peer.session);
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_OUTPUT && !qsi_amqp_session_reads(peer.session));
    QS_CHECK(unsent >= 256u << 10 && unsent < 257u << 10);
    QS_CHECK(peer.session->tx_bytes == 0); /* it is committed */
    QS_CHECK(run_unread() == QSI_AMQP_WANTS_OUTPUT);
    QS_CHECK(qsi_amqp_session_unsent(peer.session) == unsent);
    go_on(&peer);
    for (int i = 0; i < MESSAGES; i++) {
        EXPECT(&peer, 1, BASIC_RETURN);
        expect_body(&peer, "come back");
    }
    EXPECT(&peer, 1, TX_COMMIT_OK);
    expect_nothing(&peer);
    publish(&peer, "", "q", "of the next one");
    CALL(&peer, 1, TX_COMMIT, .bits = 0);
    QS_CHECK(CALL(&peer, 1, QUEUE_PURGE, .text = {TEXT("q")}).number[0] ==
             2); /* each committed once */
}

PEER_TEST(test_a_server_that_stops_tells_of_a_commit_whose_returns_are_not_read_yet)
{
    enum { MESSAGES = 8000 };

    select_tx();
    for (int i = 0; i < MESSAGES; i++) {
        put_message(&peer, 1, "", "nowhere", 1, "come back", 9);
    }
    flush(&peer);
    put_method(&peer, 1, QSI_AMQP_TX_COMMIT, ARGUMENTS(.bits = 0));
    feed_unread();
    qsi_amqp_session_shut(peer.session, "over", peer.now_ns);
    QS_CHECK(run_unread() == QSI_AMQP_WANTS_OUTPUT);
    go_on(&peer);
    for (int i = 0; i < MESSAGES; i++) {
        EXPECT(&peer, 1, BASIC_RETURN);
        expect_body(&peer, "come back");
    }
    EXPECT(&peer, 1, TX_COMMIT_OK);
    expect_connection_close(&peer, 320, "over", 0, 0);
}

PEER_TEST(test_messages_that_many_channels_have_begun_wait_until_what_came_back_is_read)
{
    enum { CHANNELS = 60 };
    struct qsi_amqp_counts counts;
    qs_stats stats;
    uint16_t sent = 0;

    for (uint16_t channel = 2; channel <= CHANNELS; channel++) {
        open_channel(&peer, channel);
    }
    for (uint16_t channel = 1; channel <= CHANNELS; channel++) {
        put_method(&peer, channel, QSI_AMQP_BASIC_PUBLISH,
                   ARGUMENTS(.text = {TEXT(""), TEXT("nowhere")}, .bits = 1));
        put_header(&peer, channel, sizeof part, "\0\0", 2);
    }
    flush(&peer);
    while (sent < CHANNELS && qsi_amqp_session_reads(peer.session)) {
        sent += 1;
        put_frame(&peer, QSI_AMQP_FRAME_BODY, sent, part, sizeof part);
        feed_unread();
    }
    qsi_amqp_session_counts(peer.session, &counts);
    qs_store_stats(peer.store, &stats);
    QS_CHECK(sent < CHANNELS && counts.published + 1 == sent &&
             peer.wants == QSI_AMQP_WANTS_OUTPUT);
    QS_CHECK(stats.messages_returned <= (256u << 10) / sizeof part + 1);
    go_on(&peer);
    while (sent < CHANNELS) {
        sent += 1;
        put_frame(&peer, QSI_AMQP_FRAME_BODY, sent, part, sizeof part);
        flush(&peer);
    }
    qsi_amqp_session_counts(peer.session, &counts);
    QS_CHECK(counts.published == CHANNELS && counts.returned == CHANNELS);
}

/* Their last bytes come in one read, before anything can be sent. */
PEER_TEST(test_large_messages_that_end_at_once_come_back_one_by_one)
{
    enum { CHANNELS = 12, ROUNDS = 5 };
    struct qsi_amqp_counts counts;

    for (uint16_t channel = 2; channel <= CHANNELS; channel++) {
        open_channel(&peer, channel);
    }
    for (uint16_t channel = 1; channel <= CHANNELS; channel++) {
        put_method(&peer, channel, QSI_AMQP_BASIC_PUBLISH,
                   ARGUMENTS(.text = {TEXT(""), TEXT("nowhere")}, .bits = 1));
        put_header(&peer, channel, ROUNDS * sizeof part + 1, "\0\0", 2);
        for (int i = 0; i < ROUNDS; i++) {
            put_frame(&peer, QSI_AMQP_FRAME_BODY, channel, part, sizeof part);
        }
        flush(&peer);
    }
    for (uint16_t channel = 1; channel <= CHANNELS; channel++) {
        put_frame(&peer, QSI_AMQP_FRAME_BODY, channel, "x", 1);
    }
    feed_unread();
    qsi_amqp_session_counts(peer.session, &counts);
    QS_CHECK(counts.published == 1 && peer.wants == QSI_AMQP_WANTS_OUTPUT);
    go_on(&peer);
    qsi_amqp_session_counts(peer.session, &counts);
    QS_CHECK(counts.published == CHANNELS && counts.returned == CHANNELS);
}

/* ---- time ---- */

QS_TEST(test_a_handshake_must_be_done_in_10_s)
{
    for (int steps = 0; steps < 3; steps++) {
        peer_init(&peer);
        connect_peer(&peer);
        if (steps > 0) {
            say_hello(&peer);
        }
        if (steps > 1) {
            log_in_as_guest(&peer);
        }
        QS_CHECK(qsi_amqp_session_deadline(peer.session) == 11 * SECOND);
        run_at(11 * SECOND - 1);
        QS_CHECK(peer.wants == QSI_AMQP_WANTS_INPUT);
        run_at(11 * SECOND);
        QS_CHECK(peer.wants == QSI_AMQP_WANTS_RESET);
        peer_fini(&peer);
    }
}

static void start_with_heartbeat(uint16_t heartbeat_s)
{
    peer_init(&peer);
    connect_as_guest(&peer);
    tune(&peer, 0, 0, heartbeat_s);
    open_connection(&peer);
}

static void expect_heartbeat(void)
{
    struct frame frame;

    QS_CHECK(take_frame(&peer, &frame) && frame.type == QSI_AMQP_FRAME_HEARTBEAT);
    QS_CHECK(frame.channel == 0 && frame.payload.bytes == 0);
    expect_nothing(&peer);
}

QS_TEST(test_heartbeats_are_sent_at_half_time_and_missed_after_three)
{
    start_with_heartbeat(2);
    for (int second = 2; second <= 6; second++) {
        QS_CHECK(qsi_amqp_session_deadline(peer.session) == (uint64_t)second * SECOND);
        run_at((uint64_t)second * SECOND);
        expect_heartbeat();
        QS_CHECK(peer.wants == QSI_AMQP_WANTS_INPUT);
    }
    run_at(7 * SECOND);
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_RESET);
    expect_nothing(&peer);
    peer_fini(&peer);
    start_with_heartbeat(2);
    for (int second = 2; second <= 20; second++) {
        peer.now_ns = (uint64_t)second * SECOND;
        feed(&peer, qsi_amqp_heartbeat_frame, 8);
        expect_heartbeat();
        QS_CHECK(peer.wants == QSI_AMQP_WANTS_INPUT);
    }
    peer_fini(&peer);
}

QS_TEST(test_no_heartbeats_are_added_to_output_that_does_not_move)
{
    struct qsi_amqp_turn turn = {0};

    start_with_heartbeat(2);
    for (int second = 2; second <= 6; second++) {
        turn.now_ns = (uint64_t)second * SECOND;
        QS_CHECK(qsi_amqp_session_run(peer.session, &turn) == QSI_AMQP_WANTS_INPUT);
        QS_CHECK(qsi_amqp_session_unsent(peer.session) == 8);
        QS_CHECK(!qsi_amqp_session_between_frames(peer.session));
    }
    peer_fini(&peer);
}

/* ---- alarms ---- */

QS_TEST(test_publishers_are_held_back_and_told)
{
    start_with_heartbeat(2);
    open_channel(&peer, 1);
    declare(&peer, "q");
    qsi_amqp_session_alarm(peer.session, "memory", peer.now_ns);
    run(&peer);
    expect_nothing(&peer); /* it has published nothing */
    QS_CHECK(qsi_amqp_session_reads(peer.session));
    publish(&peer, "", "q", "x");
    QS_CHECK(is_text(EXPECT(&peer, 0, CONNECTION_BLOCKED).text[0], "memory"));
    QS_CHECK(!qsi_amqp_session_reads(peer.session));
    for (int second = 2; second <= 30; second++) { /* it cannot be heard: it is not silent */
        run_at((uint64_t)second * SECOND);
        expect_heartbeat();
        QS_CHECK(peer.wants == QSI_AMQP_WANTS_INPUT);
    }
    qsi_amqp_session_alarm(peer.session, NULL, peer.now_ns);
    run(&peer);
    EXPECT(&peer, 0, CONNECTION_UNBLOCKED);
    QS_CHECK(qsi_amqp_session_reads(peer.session));
    peer_fini(&peer);
}

PEER_TEST(test_a_full_store_holds_publishers_until_there_is_room)
{
    declare(&peer, "q");
    qsi_env_ram_limit(peer.env, 1);
    for (int i = 0; i < 10000 && qsi_amqp_session_reads(peer.session); i++) {
        char body[1001] = "";

        memset(body, 'x', sizeof body - 1);
        publish(&peer, "", "q", body);
    }
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_INPUT && !qsi_amqp_session_reads(peer.session));
    QS_CHECK(is_text(EXPECT(&peer, 0, CONNECTION_BLOCKED).text[0], "low on disk"));
    QS_CHECK(qsi_amqp_session_deadline(peer.session) == peer.now_ns + SECOND / 10);
    run_at(peer.now_ns + SECOND / 10);
    expect_nothing(&peer);
    QS_CHECK(!qsi_amqp_session_reads(peer.session));
    qsi_env_ram_limit(peer.env, 0);
    run_at(peer.now_ns + SECOND / 10);
    EXPECT(&peer, 0, CONNECTION_UNBLOCKED);
    QS_CHECK(qsi_amqp_session_reads(peer.session));
}

/* ---- the end ---- */

PEER_TEST(test_a_server_that_stops_says_so)
{
    struct qsi_amqp_counts counts;

    qsi_amqp_session_shut(peer.session, "broker forced connection closure with reason 'shutdown'",
                          peer.now_ns);
    run(&peer);
    expect_connection_close(&peer, 320, "broker forced connection closure with reason 'shutdown'",
                            0, 0);
    qsi_amqp_session_counts(peer.session, &counts);
    QS_CHECK(counts.end == QSI_AMQP_END_SERVER && counts.close_code == 320);
    run_at(peer.now_ns + 3 * SECOND); /* no close-ok comes */
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_END);
    disconnect_peer(&peer);
    connect_peer(&peer);
    say_hello(&peer);
    qsi_amqp_session_shut(peer.session, "x", peer.now_ns);
    run(&peer);
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_END);
    expect_nothing(&peer);
}

PEER_TEST(test_what_was_published_is_confirmed_before_a_shut)
{
    struct qsi_amqp_arguments said;

    declare(&peer, "q");
    CALL(&peer, 1, CONFIRM_SELECT, .bits = 0);
    for (int i = 0; i < 200; i++) {
        publish(&peer, "", "q", "x");
    }
    put_message(&peer, 1, "", "nowhere", 1, "back", 4);
    flush(&peer);
    EXPECT(&peer, 1, BASIC_RETURN);
    expect_body(&peer, "back");
    QS_CHECK(EXPECT(&peer, 1, BASIC_ACK).number[0] == 201); /* no others are durable */
    CALL(&peer, 1, BASIC_QOS, .number = {0, 3});
    qsi_amqp_session_shut(peer.session, "over", peer.now_ns);
    QS_CHECK(!qsi_amqp_session_reads(peer.session));
    run(&peer);
    said = EXPECT(&peer, 1, BASIC_ACK);
    QS_CHECK(said.number[0] == 200 && said.bits == 1);
    expect_connection_close(&peer, 320, "over", 0, 0);
    QS_CHECK(qsi_amqp_session_reads(peer.session)); /* close-ok */
    SEND(&peer, 0, CONNECTION_CLOSE_OK, .bits = 0);
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_END);
}

/* They stay in their queues. */
PEER_TEST(test_nothing_is_delivered_to_a_session_that_is_shut)
{
    declare(&peer, "q");
    CALL(&peer, 1, BASIC_CONSUME, .text = {TEXT("q"), TEXT("t")}, .bits = 2);
    publish(&peer, "", "q", "delivered");
    EXPECT(&peer, 1, BASIC_DELIVER);
    expect_body(&peer, "delivered");
    peer.must_not_block = true;
    qsi_amqp_session_shut(peer.session, "over", peer.now_ns);
    run(&peer);
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_WORKER);
    peer.must_not_block = false;
    put_message(&peer, 1, "", "q", 0, "was read already", 16);
    flush(&peer);
    expect_connection_close(&peer, 320, "over", 0, 0);
    disconnect_peer(&peer);
    make_ready(&peer);
    expect_got(&peer, "q", "was read already");
}

PEER_TEST(test_counts)
{
    struct qsi_amqp_counts counts;

    declare(&peer, "q");
    SEND(&peer, 1, BASIC_CONSUME, .text = {TEXT("q"), TEXT("t")}, .bits = 2);
    publish(&peer, "", "q", "x");
    qsi_amqp_session_counts(peer.session, &counts);
    QS_CHECK(counts.channels == 1 && counts.consumers == 1);
    QS_CHECK(counts.published == 1 && counts.delivered == 1);
    SEND(&peer, 1, CHANNEL_CLOSE, .number = {200});
    qsi_amqp_session_counts(peer.session, &counts);
    QS_CHECK(counts.channels == 0 && counts.consumers == 0);
}
