/* What a session waits for, and what it must not: workers, answers, output. */
#include "peer_fixture.h"
#include "qs_test_fields.h"
#include "qs_test_slices.h"

/* ---- workers ---- */

PEER_TEST(test_what_may_wait_is_left_to_a_worker_and_done_once)
{
    struct qsi_amqp_turn turn = {.may_block = true};

    declare(&peer, "q");
    open_channel(&peer, 2);
    peer.must_not_block = true;
    put_method(&peer, 2, QSI_AMQP_CHANNEL_CLOSE, ARGUMENTS(.number = {200}));
    put_message(&peer, 1, "", "q", 0, "behind it", 9);
    flush(&peer);
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_WORKER && !qsi_amqp_session_reads(peer.session));
    run(&peer);
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_WORKER);
    expect_nothing(&peer);
    turn.now_ns = peer.now_ns;
    peer.wants = qsi_amqp_session_run(peer.session, &turn);
    go_on(&peer);
    EXPECT(&peer, 2, CHANNEL_CLOSE_OK);
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_INPUT && qsi_amqp_session_reads(peer.session));
    peer.must_not_block = false;
    QS_CHECK(CALL(&peer, 1, BASIC_GET, .text = {TEXT("q")}, .bits = 1).number[1] == 0);
    expect_body(&peer, "behind it");
}

/* Where a stream is read from stands in a file. */
PEER_TEST(test_beginning_to_consume_publish_or_commit_needs_no_worker)
{
    static const uint8_t is_stream[] = "\x0cx-queue-typeS\0\0\0\6stream";

    declare(&peer, "q");
    open_channel(&peer, 2);
    CALL(&peer, 1, QUEUE_DECLARE, .text = {TEXT("s")}, .bits = DURABLE,
         .table = qsi_slice_make(is_stream, sizeof is_stream - 1));
    peer.must_not_block = true;
    CALL(&peer, 1, BASIC_QOS, .number = {0, 1});
    CALL(&peer, 1, BASIC_CONSUME, .text = {TEXT("q"), TEXT("t")});
    CALL(&peer, 1, BASIC_CANCEL, .text = {TEXT("t")});
    CALL(&peer, 1, CONFIRM_SELECT, .bits = 0);
    CALL(&peer, 2, TX_SELECT, .bits = 0);
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_INPUT);
    SEND(&peer, 1, BASIC_CONSUME, .text = {TEXT("s"), TEXT("t")});
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_WORKER);
    expect_nothing(&peer);
    peer.must_not_block = false;
    go_on(&peer);
    EXPECT(&peer, 1, BASIC_CONSUME_OK);
}

/* A body of this size goes to the message store, which may take a while. */
static void check_publish_that_waits(size_t bytes)
{
    char *body = malloc(bytes), *got;
    size_t got_bytes;

    QS_CHECK(body != NULL);
    memset(body, 'b', bytes);
    peer.must_not_block = true;
    put_message(&peer, 1, "", "q", 0, body, bytes);
    flush(&peer);
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_WORKER);
    run(&peer);
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_WORKER);
    peer.must_not_block = false;
    go_on(&peer);
    QS_CHECK(CALL(&peer, 1, BASIC_GET, .text = {TEXT("q")}, .bits = 1).number[1] == 0);
    got = take_body(&peer, &got_bytes);
    QS_CHECK(got_bytes == bytes && memcmp(got, body, bytes) == 0);
    free(got);
    free(body);
}

PEER_TEST(test_a_publish_that_waits_is_published_once)
{
    declare(&peer, "q");
    check_publish_that_waits(20000);  /* one frame */
    check_publish_that_waits(300000); /* several */
}

PEER_TEST(test_a_refused_channel_is_closed_where_waiting_is_allowed)
{
    peer.must_not_block = true;
    SEND(&peer, 1, BASIC_ACK, .number = {7});
    EXPECT(&peer, 1, CHANNEL_CLOSE);
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_WORKER);
    SEND(&peer, 1, CHANNEL_CLOSE_OK, .bits = 0);
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_WORKER);
    peer.must_not_block = false;
    go_on(&peer);
    open_channel(&peer, 1);
}

PEER_TEST(test_a_turn_ends_after_the_input_that_it_may_use)
{
    struct qsi_amqp_turn turn = {.may_block = true, .bytes_max = 100};
    int turns = 1;

    declare(&peer, "q");
    for (int i = 0; i < 100; i++) {
        put_message(&peer, 1, "", "q", 0, "0123456789", 10);
    }
    turn.now_ns = peer.now_ns;
    peer.wants = qsi_amqp_session_feed(peer.session, &turn, peer.out, peer.out_bytes);
    while (peer.wants == QSI_AMQP_WANTS_TURN) {
        QS_CHECK(!qsi_amqp_session_reads(peer.session));
        peer.wants = qsi_amqp_session_run(peer.session, &turn);
        turns++;
    }
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_INPUT && turns > 30);
    peer.out_bytes = 0;
    QS_CHECK(CALL(&peer, 1, BASIC_GET, .text = {TEXT("q")}, .bits = 1).number[1] == 99);
}

/* ---- answers that wait for the disk ---- */

static void put_declare(const char *queue)
{
    put_method(&peer, 1, QSI_AMQP_QUEUE_DECLARE, ARGUMENTS(.text = {TEXT(queue)}, .bits = DURABLE));
}

/* Many share one sync, and what is said behind them waits with them. */
PEER_TEST(test_declares_are_answered_once_they_are_durable)
{
    qs_stats before, after;
    char name[16];

    peer.must_not_commit = true;
    qs_store_stats(peer.store, &before);
    for (int i = 0; i < 50; i++) {
        snprintf(name, sizeof name, "q%d", i);
        put_declare(name);
    }
    put_method(&peer, 1, QSI_AMQP_CHANNEL_FLOW, ARGUMENTS(.bits = 1));
    flush(&peer);
    run(&peer);
    expect_nothing(&peer);
    QS_CHECK(qsi_amqp_session_unsent(peer.session) == 0);
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_INPUT && qsi_amqp_session_reads(peer.session));
    commit(&peer);
    for (int i = 0; i < 50; i++) {
        snprintf(name, sizeof name, "q%d", i);
        QS_CHECK(is_text(EXPECT(&peer, 1, QUEUE_DECLARE_OK).text[0], name));
    }
    EXPECT(&peer, 1, CHANNEL_FLOW_OK);
    expect_nothing(&peer);
    qs_store_stats(peer.store, &after);
    QS_CHECK(after.commits - before.commits == 1);
    SEND(&peer, 1, QUEUE_DECLARE, .text = {TEXT("q1")}, .bits = 1); /* nothing to wait for */
    EXPECT(&peer, 1, QUEUE_DECLARE_OK);
}

/* The channel's end waits with them: nobody would tell afterwards. */
PEER_TEST(test_a_close_behind_a_declare_waits_for_it)
{
    peer.must_not_commit = true;
    put_declare("q");
    put_method(&peer, 1, QSI_AMQP_CHANNEL_CLOSE, ARGUMENTS(.number = {200}));
    flush(&peer);
    EXPECT(&peer, 1, QUEUE_DECLARE_OK);
    EXPECT(&peer, 1, CHANNEL_CLOSE_OK);
    open_channel(&peer, 1);
    put_declare("r");
    put_method(&peer, 0, QSI_AMQP_CONNECTION_CLOSE, ARGUMENTS(.number = {200}));
    flush(&peer);
    EXPECT(&peer, 1, QUEUE_DECLARE_OK);
    EXPECT(&peer, 0, CONNECTION_CLOSE_OK);
}

/* So many that there is no room for more: a worker waits. */
PEER_TEST(test_answers_that_wait_for_the_disk_are_bounded)
{
    peer.must_not_commit = true;
    for (int i = 0; i < 40000; i++) {
        if (i % 1000 == 0) {
            put_method(&peer, 1, QSI_AMQP_QUEUE_DELETE, ARGUMENTS(.text = {TEXT("q")}));
            put_declare("q");
        }
        put_method(&peer, 1, QSI_AMQP_CHANNEL_FLOW, ARGUMENTS(.bits = 1));
    }
    flush(&peer);
    commit(&peer);
    for (int i = 0; i < 40000; i++) {
        if (i % 1000 == 0) {
            EXPECT(&peer, 1, QUEUE_DELETE_OK);
            EXPECT(&peer, 1, QUEUE_DECLARE_OK);
        }
        EXPECT(&peer, 1, CHANNEL_FLOW_OK);
    }
    expect_nothing(&peer);
}

/* ---- answers of the host ---- */

QS_TEST(test_a_login_is_answered_later)
{
    for (int granted = 0; granted <= 1; granted++) {
        peer_init(&peer);
        peer.login = QSI_AMQP_LATER;
        connect_peer(&peer);
        say_hello(&peer);
        log_in_as(&peer, capabilities(), "PLAIN", "\0guest\0guest", 12);
        QS_CHECK(peer.wants == QSI_AMQP_WANTS_ANSWER && !qsi_amqp_session_reads(peer.session));
        expect_nothing(&peer);
        peer.now_ns += 20 * SECOND; /* the host's time does not count as the client's */
        run(&peer);
        QS_CHECK(peer.wants == QSI_AMQP_WANTS_ANSWER);
        qsi_amqp_session_answer(peer.session, granted ? QSI_AMQP_GRANTED : QSI_AMQP_REFUSED,
                                text("named"));
        run(&peer);
        if (granted) {
            EXPECT(&peer, 0, CONNECTION_TUNE);
            QS_CHECK(strcmp(peer.session->user, "named") == 0);
        } else {
            EXPECT(&peer, 0, CONNECTION_CLOSE);
        }
        peer_fini(&peer);
    }
}

/* ---- output ---- */

/* Deliveries stay in their queue while the client does not read. */
PEER_TEST(test_a_client_that_does_not_read_is_sent_no_more_than_the_limit)
{
    char body[1001];
    struct qsi_amqp_turn turn = {0};
    qs_queue_status status;

    declare(&peer, "q");
    memset(body, 'x', sizeof body - 1);
    body[sizeof body - 1] = '\0';
    for (int i = 0; i < 1000; i++) {
        publish(&peer, "", "q", body);
    }
    put_method(&peer, 1, QSI_AMQP_BASIC_CONSUME, ARGUMENTS(.text = {TEXT("q"), TEXT("t")}));
    turn.now_ns = peer.now_ns;
    turn.may_block = true;
    peer.wants = qsi_amqp_session_feed(peer.session, &turn, peer.out, peer.out_bytes);
    peer.out_bytes = 0;
    for (int i = 0; i < 100; i++) {
        peer.wants = qsi_amqp_session_run(peer.session, &turn);
    }
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_INPUT);
    QS_CHECK(qsi_amqp_session_unsent(peer.session) >= 256u << 10);
    /* Besides, what frames add to the messages that were taken together. */
    QS_CHECK(qsi_amqp_session_unsent(peer.session) < (256u << 10) + 64 * 100);
    QS_CHECK_OK(qs_store_queue_status(peer.store, text("q"), &status, QS_ERROR));
    QS_CHECK(status.messages_ready > 700);
    run(&peer);
    QS_CHECK_OK(qs_store_queue_status(peer.store, text("q"), &status, QS_ERROR));
    QS_CHECK(status.messages_ready == 0);
}

PEER_TEST(test_requests_wait_while_answers_are_not_read)
{
    struct qsi_amqp_turn turn = {0};
    struct qsi_amqp_counts counts;

    for (int i = 0; i < 50000; i++) {
        put_method(&peer, 1, QSI_AMQP_CHANNEL_FLOW, ARGUMENTS(.bits = 1));
    }
    turn.now_ns = peer.now_ns;
    peer.wants = qsi_amqp_session_feed(peer.session, &turn, peer.out, peer.out_bytes);
    peer.out_bytes = 0;
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_OUTPUT && !qsi_amqp_session_reads(peer.session));
    QS_CHECK(qsi_amqp_session_unsent(peer.session) < (256u << 10) + 100);
    go_on(&peer);
    for (int i = 0; i < 50000; i++) {
        EXPECT(&peer, 1, CHANNEL_FLOW_OK);
    }
    expect_nothing(&peer);
    qsi_amqp_session_counts(peer.session, &counts);
    QS_CHECK(counts.bytes_in > 50000 * 13 && counts.bytes_out > 50000 * 13);
}

PEER_TEST(test_channels_opened_and_closed_unread_take_no_memory)
{
    struct qsi_amqp_turn turn = {.may_block = true};

    for (int i = 0; i < 50000; i++) {
        put_method(&peer, 2, QSI_AMQP_CHANNEL_OPEN, ARGUMENTS(.bits = 0));
        put_method(&peer, 2, QSI_AMQP_CHANNEL_CLOSE, ARGUMENTS(.bits = 0));
    }
    turn.now_ns = peer.now_ns;
    peer.wants = qsi_amqp_session_feed(peer.session, &turn, peer.out, peer.out_bytes);
    peer.out_bytes = 0;
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_OUTPUT && !qsi_amqp_session_reads(peer.session));
    QS_CHECK(qsi_amqp_session_unsent(peer.session) < (256u << 10) + 100);
    go_on(&peer);
    for (int i = 0; i < 50000; i++) {
        EXPECT(&peer, 2, CHANNEL_OPEN_OK);
        EXPECT(&peer, 2, CHANNEL_CLOSE_OK);
    }
    expect_nothing(&peer);
}

PEER_TEST(test_channels_take_turns)
{
    struct qsi_amqp_turn turn = {.may_block = true};
    struct frame frame;
    int seen[3] = {0};

    declare(&peer, "one");
    declare(&peer, "two");
    open_channel(&peer, 2);
    for (int i = 0; i < 300; i++) {
        publish(&peer, "", "one", "x");
        publish(&peer, "", "two", "x");
    }
    put_method(&peer, 1, QSI_AMQP_BASIC_CONSUME, ARGUMENTS(.text = {TEXT("one"), TEXT("t")}));
    put_method(&peer, 2, QSI_AMQP_BASIC_CONSUME, ARGUMENTS(.text = {TEXT("two"), TEXT("t")}));
    turn.now_ns = peer.now_ns;
    peer.wants = qsi_amqp_session_feed(peer.session, &turn, peer.out, peer.out_bytes);
    peer.out_bytes = 0;
    drain(&peer);
    while (take_frame(&peer, &frame)) {
        seen[frame.channel] += frame.type == QSI_AMQP_FRAME_BODY;
    }
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_TURN);
    QS_CHECK(seen[1] == 64 && seen[2] == 64);
}
