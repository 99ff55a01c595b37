/* What a client does all day: publish and be confirmed, consume and acknowledge, get, direct
 * reply-to. */
#include "peer_fixture.h"

static void expect_ack(uint64_t number, bool multiple)
{
    struct qsi_amqp_arguments ack = EXPECT(&peer, 1, BASIC_ACK);

    if (ack.number[0] != number || ack.bits != multiple) {
        fprintf(stderr, "ack of %u, multiple %u\n", (unsigned)ack.number[0], ack.bits);
        QS_CHECK(!"another ack was expected");
    }
}

static void expect_delivery(uint16_t channel, const char *tag, uint64_t number, bool redelivered,
                            const char *body)
{
    struct qsi_amqp_arguments delivery = EXPECT(&peer, channel, BASIC_DELIVER);

    QS_CHECK(is_text(delivery.text[0], tag) && delivery.number[0] == number);
    QS_CHECK(delivery.bits == redelivered);
    expect_body(&peer, body);
}

static void consume(uint16_t channel, const char *queue, const char *tag, uint8_t bits)
{
    struct qsi_amqp_arguments ok =
        CALL(&peer, channel, BASIC_CONSUME, .text = {TEXT(queue), TEXT(tag)}, .bits = bits);
    QS_CHECK(*tag == '\0' || is_text(ok.text[0], tag));
}

static void confirm_select(void)
{
    CALL(&peer, 1, CONFIRM_SELECT, .bits = 0);
}

/* ---- publishing ---- */

PEER_TEST(test_publishes_are_confirmed_once_they_are_durable)
{
    declare(&peer, "q");
    confirm_select();
    publish(&peer, "", "q", "one");
    publish(&peer, "", "q", "two");
    run(&peer);
    expect_nothing(&peer);
    commit(&peer);
    expect_ack(2, true);
    publish(&peer, "", "q", "");
    commit(&peer);
    expect_ack(3, false);
    expect_nothing(&peer);
}

/* As RabbitMQ sends it: requeue is set. */
PEER_TEST(test_a_message_that_a_full_queue_refuses_is_nacked)
{
    static const char refusing[] = "\014x-max-lengthI\0\0\0\0"
                                   "\012x-overflowS\0\0\0\016reject-publish";
    struct qsi_amqp_arguments nack;

    CALL(&peer, 1, QUEUE_DECLARE, .text = {TEXT("q")},
         .table = qsi_slice_make(refusing, sizeof refusing - 1));
    confirm_select();
    publish(&peer, "", "q", "one");
    nack = EXPECT(&peer, 1, BASIC_NACK);
    QS_CHECK(nack.number[0] == 1 && nack.bits == 2);
}

PEER_TEST(test_a_return_comes_before_the_ack_that_covers_it)
{
    struct qsi_amqp_arguments returned;

    declare(&peer, "q");
    confirm_select();
    put_message(&peer, 1, "", "q", 1, "here", 4);
    put_message(&peer, 1, "", "nowhere", 1, "there", 5);
    flush(&peer);
    returned = EXPECT(&peer, 1, BASIC_RETURN);
    QS_CHECK(returned.number[0] == 312 && is_text(returned.text[0], "NO_ROUTE"));
    QS_CHECK(is_text(returned.text[1], "") && is_text(returned.text[2], "nowhere"));
    expect_body(&peer, "there");
    expect_ack(2, false); /* there is nothing to wait for */
    expect_nothing(&peer);
    commit(&peer);
    expect_ack(1, false);
    expect_nothing(&peer);
}

/* A frame of 131064 bytes is the largest; larger bodies come in several, and go so. */
static void check_body(size_t bytes)
{
    char *body = malloc(bytes), *got;
    size_t got_bytes;

    QS_CHECK(body != NULL);
    for (size_t i = 0; i < bytes; i++) {
        body[i] = (char)(i * 31 + i / 7);
    }
    put_message(&peer, 1, "", "q", 0, body, bytes);
    flush(&peer);
    CALL(&peer, 1, BASIC_GET, .text = {TEXT("q")}, .bits = 1);
    got = take_body(&peer, &got_bytes);
    QS_CHECK(got_bytes == bytes && memcmp(got, body, bytes) == 0);
    expect_nothing(&peer);
    free(body);
    free(got);
}

PEER_TEST(test_bodies_of_all_sizes_come_back_as_they_were)
{
    static const size_t sizes[] = {1, 4095, 4096, 4097, 16384, 131063, 131064, 131065, 1000000};

    declare(&peer, "q");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        check_body(sizes[i]);
    }
}

PEER_TEST(test_small_frames_divide_what_is_delivered)
{
    char body[10001];
    struct frame frame;
    size_t got = 0;

    declare(&peer, "q");
    memset(body, 'x', sizeof body - 1);
    body[sizeof body - 1] = '\0';
    publish(&peer, "", "q", body);
    disconnect_peer(&peer);
    connect_as_guest(&peer);
    tune(&peer, 0, 4096, 0);
    open_connection(&peer);
    open_channel(&peer, 1);
    CALL(&peer, 1, BASIC_GET, .text = {TEXT("q")}, .bits = 1);
    QS_CHECK(take_frame(&peer, &frame) && frame.type == QSI_AMQP_FRAME_HEADER);
    while (take_frame(&peer, &frame)) {
        QS_CHECK(frame.type == QSI_AMQP_FRAME_BODY && frame.payload.bytes <= 4096 - 8);
        got += frame.payload.bytes;
    }
    QS_CHECK(got == sizeof body - 1);
}

PEER_TEST(test_empty_body_frames_are_allowed)
{
    declare(&peer, "q");
    put_method(&peer, 1, QSI_AMQP_BASIC_PUBLISH, ARGUMENTS(.text = {TEXT(""), TEXT("q")}));
    put_header(&peer, 1, 2, "\0\0", 2);
    put_frame(&peer, QSI_AMQP_FRAME_BODY, 1, "", 0);
    put_frame(&peer, QSI_AMQP_FRAME_BODY, 1, "x", 1);
    put_frame(&peer, QSI_AMQP_FRAME_BODY, 1, "", 0);
    put_frame(&peer, QSI_AMQP_FRAME_BODY, 1, "y", 1);
    flush(&peer);
    expect_got(&peer, "q", "xy");
}

/* Frames of two channels lie between each other. */
PEER_TEST(test_contents_of_two_channels_are_kept_apart)
{
    declare(&peer, "q");
    open_channel(&peer, 2);
    for (uint16_t channel = 1; channel <= 2; channel++) {
        put_method(&peer, channel, QSI_AMQP_BASIC_PUBLISH,
                   ARGUMENTS(.text = {TEXT(""), TEXT("q")}));
    }
    put_header(&peer, 2, 6, "\0\0", 2);
    put_header(&peer, 1, 4, "\0\0", 2);
    put_frame(&peer, QSI_AMQP_FRAME_BODY, 2, "sec", 3);
    put_frame(&peer, QSI_AMQP_FRAME_BODY, 1, "fi", 2);
    put_frame(&peer, QSI_AMQP_FRAME_BODY, 2, "ond", 3);
    put_frame(&peer, QSI_AMQP_FRAME_BODY, 1, "rs", 2);
    flush(&peer);
    expect_got(&peer, "q", "second");
    expect_got(&peer, "q", "firs");
}

/* ---- receiving ---- */

PEER_TEST(test_consumers_get_what_they_have_room_for)
{
    declare(&peer, "q");
    CALL(&peer, 1, BASIC_QOS, .number = {0, 2});
    consume(1, "q", "t", 0);
    publish(&peer, "", "q", "one");
    publish(&peer, "", "q", "two");
    publish(&peer, "", "q", "three");
    expect_delivery(1, "t", 1, false, "one");
    expect_delivery(1, "t", 2, false, "two");
    expect_nothing(&peer);
    SEND(&peer, 1, BASIC_ACK, .number = {2}, .bits = 1);
    expect_delivery(1, "t", 3, false, "three");
    SEND(&peer, 1, BASIC_REJECT, .number = {3}, .bits = 1);
    expect_delivery(1, "t", 4, true, "three");
    SEND(&peer, 1, BASIC_NACK, .number = {4}, .bits = 2);
    expect_delivery(1, "t", 5, true, "three");
    QS_CHECK(is_text(CALL(&peer, 1, BASIC_CANCEL, .text = {TEXT("t")}).text[0], "t"));
    CALL(&peer, 1, BASIC_RECOVER, .bits = 1);
    QS_CHECK(CALL(&peer, 1, BASIC_GET, .text = {TEXT("q")}, .bits = 1).bits == 1);
    expect_body(&peer, "three");
    SEND(&peer, 1, BASIC_GET, .text = {TEXT("q")}, .bits = 1);
    EXPECT(&peer, 1, BASIC_GET_EMPTY);
}

PEER_TEST(test_get_tells_how_many_are_left)
{
    declare(&peer, "q");
    publish(&peer, "", "q", "one");
    publish(&peer, "", "q", "two");
    QS_CHECK(CALL(&peer, 1, BASIC_GET, .text = {TEXT("q")}, .bits = 0).number[1] == 1);
    expect_body(&peer, "one");
}

PEER_TEST(test_a_lost_connection_gives_its_messages_back)
{
    declare(&peer, "q");
    publish(&peer, "", "q", "one");
    consume(1, "q", "t", 0);
    expect_delivery(1, "t", 1, false, "one");
    disconnect_peer(&peer);
    make_ready(&peer);
    consume(1, "q", "", 0);
    QS_CHECK(EXPECT(&peer, 1, BASIC_DELIVER).bits == 1);
}

static void check_cancel_by_server(struct qsi_slice properties, bool is_told)
{
    peer_init(&peer);
    connect_peer(&peer);
    say_hello(&peer);
    log_in_as(&peer, properties, "PLAIN", "\0guest\0guest", 12);
    EXPECT(&peer, 0, CONNECTION_TUNE);
    tune(&peer, 0, 0, 0);
    open_connection(&peer);
    open_channel(&peer, 1);
    declare(&peer, "q");
    consume(1, "q", "t", 0);
    CALL(&peer, 1, QUEUE_DELETE, .text = {TEXT("q")});
    if (is_told) {
        struct qsi_amqp_arguments cancel = EXPECT(&peer, 1, BASIC_CANCEL);
        QS_CHECK(is_text(cancel.text[0], "t") && cancel.bits == 1);
    }
    expect_nothing(&peer);
    peer_fini(&peer);
}

QS_TEST(test_a_cancel_by_the_server_is_told_to_those_who_know_it)
{
    check_cancel_by_server(capabilities(), true);
    check_cancel_by_server(QSI_SLICE_LITERAL(""), false);
}

PEER_TEST(test_a_tag_is_used_once)
{
    declare(&peer, "q");
    consume(1, "q", "t", 0);
    SEND(&peer, 1, BASIC_CONSUME, .text = {TEXT("q"), TEXT("t")});
    expect_connection_close(&peer, 530, "attempt to reuse consumer tag 't'", 60, 20);
}

/* ---- small methods ---- */

PEER_TEST(test_methods_that_are_only_answered)
{
    QS_CHECK(CALL(&peer, 1, CHANNEL_FLOW, .bits = 1).bits == 1);
    QS_CHECK(CALL(&peer, 1, ACCESS_REQUEST, .text = {TEXT("/data")}, .bits = 31).number[0] == 1);
    CALL(&peer, 0, CONNECTION_UPDATE_SECRET, .text = {TEXT("new"), TEXT("why")});
    SEND(&peer, 1, BASIC_RECOVER_ASYNC, .bits = 1);
    QS_CHECK(is_text(CALL(&peer, 1, BASIC_CANCEL, .text = {TEXT("nix")}).text[0], "nix"));
    feed(&peer, qsi_amqp_heartbeat_frame, 8);
    CALL(&peer, 1, CHANNEL_CLOSE, .number = {200});
    open_channel(&peer, 1);
    expect_nothing(&peer);
}

PEER_TEST(test_closing)
{
    CALL(&peer, 1, QUEUE_DECLARE, .text = {TEXT("mine")}, .bits = EXCLUSIVE);
    CALL(&peer, 0, CONNECTION_CLOSE, .number = {0});
    QS_CHECK(!qsi_amqp_session_has_connection(peer.session));
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_INPUT);
    peer.now_ns += 3 * SECOND;
    run(&peer);
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_END);
    disconnect_peer(&peer);
    make_ready(&peer);
    SEND(&peer, 1, QUEUE_DECLARE, .text = {TEXT("mine")}, .bits = 1);
    expect_channel_close(&peer, 1, 404, "no queue 'mine' in vhost '/'", 50, 10);
    /* A close that crosses the server's is answered; the number is free after close-ok. */
    CALL(&peer, 1, CHANNEL_CLOSE, .number = {200});
    SEND(&peer, 1, CHANNEL_CLOSE_OK, .bits = 0);
    open_channel(&peer, 1);
}

/* ---- direct reply-to ---- */

#define REPLY_TO "amq.rabbitmq.reply-to"

static void put_request(const char *reply_to)
{
    uint8_t properties[64] = {0x02, 0, (uint8_t)strlen(reply_to)};

    memcpy(properties + 3, reply_to, strlen(reply_to));
    put_method(&peer, 1, QSI_AMQP_BASIC_PUBLISH, ARGUMENTS(.text = {TEXT(""), TEXT("rpc")}));
    put_header(&peer, 1, 3, properties, 3 + strlen(reply_to));
    put_frame(&peer, QSI_AMQP_FRAME_BODY, 1, "ask", 3);
    flush(&peer);
}

/* The name that the server sees, NUL-terminated. */
static void take_reply_to(char name_out[64])
{
    struct frame frame;

    EXPECT(&peer, 1, BASIC_GET_OK);
    QS_CHECK(take_frame(&peer, &frame) && frame.type == QSI_AMQP_FRAME_HEADER);
    QS_CHECK(frame.payload.bytes < 15 + 64 && frame.payload.data[12] == 2);
    memcpy(name_out, frame.payload.data + 15, frame.payload.data[14]);
    name_out[frame.payload.data[14]] = '\0';
    QS_CHECK(take_frame(&peer, &frame) && frame.type == QSI_AMQP_FRAME_BODY);
}

PEER_TEST(test_direct_reply_to)
{
    char name[64];

    declare(&peer, "rpc");
    QS_CHECK(is_text(CALL(&peer, 1, QUEUE_DECLARE, .text = {TEXT(REPLY_TO)}, .bits = 1).text[0],
                     REPLY_TO));
    consume(1, REPLY_TO, "answers", 2);
    put_request(REPLY_TO);
    SEND(&peer, 1, BASIC_GET, .text = {TEXT("rpc")}, .bits = 1);
    take_reply_to(name);
    QS_CHECK(strncmp(name, REPLY_TO ".", strlen(REPLY_TO ".")) == 0 && strlen(name) > 40);
    CALL(&peer, 1, QUEUE_DECLARE, .text = {TEXT(name)}, .bits = 1);
    publish(&peer, "", name, "answer");
    expect_delivery(1, "answers", 2, false, "answer");
    CALL(&peer, 1, BASIC_CANCEL, .text = {TEXT("answers")});
    put_message(&peer, 1, "", name, 1, "too late", 8);
    flush(&peer);
    QS_CHECK(EXPECT(&peer, 1, BASIC_RETURN).number[0] == 312);
    expect_body(&peer, "too late");
    SEND(&peer, 1, QUEUE_DECLARE, .text = {TEXT(name)}, .bits = 1);
    QS_CHECK(EXPECT(&peer, 1, CHANNEL_CLOSE).number[0] == 404);
}

PEER_TEST(test_there_is_one_reply_consumer_in_a_channel)
{
    consume(1, REPLY_TO, "", 2);
    SEND(&peer, 1, BASIC_CONSUME, .text = {TEXT(REPLY_TO)}, .bits = 2);
    expect_channel_close(&peer, 1, 406, "reply consumer already set", 60, 20);
}
