/* The rules of the protocol, with the codes and texts of RabbitMQ 3.10.8: what a broken client is
 * told.  Each case has a session of its own. */
#include "qs_test_session.h"

static struct peer peer;

/* ---- the handshake ---- */

static void check_other_header(const char *header)
{
    connect_peer(&peer);
    feed(&peer, header, 8);
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_END);
    QS_CHECK(peer.in_bytes == 8 && memcmp(peer.in, "AMQP\0\0\x09\x01", 8) == 0);
    disconnect_peer(&peer);
}

QS_TEST(test_another_protocol_is_told_which_one_is_spoken)
{
    check_other_header("GET / HT");
    check_other_header("AMQP\0\1\0\0");
    check_other_header("AMQP\1\1\x64\3");
}

QS_TEST(test_0_8_and_0_9_are_spoken)
{
    static const struct {
        const char *header;
        uint64_t major, minor;
    } cases[] = {{"AMQP\0\0\x09\1", 0, 9},
                 {"AMQP\1\1\0\x09", 0, 9},
                 {"AMQP\1\1\x08\0", 8, 0},
                 {"AMQP\1\1\x09\1", 8, 0}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct qsi_amqp_arguments start;

        connect_peer(&peer);
        feed(&peer, cases[i].header, 8);
        start = EXPECT(&peer, 0, CONNECTION_START);
        QS_CHECK(start.number[0] == cases[i].major && start.number[1] == cases[i].minor);
        QS_CHECK(is_text(start.text[0], "PLAIN AMQPLAIN EXTERNAL"));
        QS_CHECK(is_text(start.text[1], "en_US"));
        disconnect_peer(&peer);
    }
}

/* Nothing is said for 3 s, then the socket is closed. */
static void expect_silence(void)
{
    expect_nothing(&peer);
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_INPUT && !qsi_amqp_session_reads(peer.session));
    QS_CHECK(qsi_amqp_session_deadline(peer.session) == peer.now_ns + 3 * SECOND);
    feed(&peer, "what a flood", 12);
    peer.now_ns += 3 * SECOND;
    run(&peer);
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_END);
    expect_nothing(&peer);
    disconnect_peer(&peer);
}

static void check_silent_login(struct qsi_slice properties, const char *mechanism,
                               const char *response, size_t bytes)
{
    connect_peer(&peer);
    say_hello(&peer);
    log_in_as(&peer, properties, mechanism, response, bytes);
    expect_silence();
}

QS_TEST(test_a_login_that_is_malformed_is_met_with_silence)
{
    check_silent_login(capabilities(), "FOO", "", 0);
    check_silent_login(capabilities(), "PLAIN", "guest", 5);
    check_silent_login(capabilities(), "PLAIN", "\0guest\0guest\0x", 14);
    check_silent_login(capabilities(), "PLAIN", "", 0);
    check_silent_login(capabilities(), "AMQPLAIN", "\5LOGINS\0\0\0\5guest", 16);
    check_silent_login(capabilities(), "ANONYMOUS", "", 0);
    connect_peer(&peer);
    say_hello(&peer);
    tune(&peer, 0, 0, 0); /* before start-ok */
    expect_silence();
}

QS_TEST(test_a_wrong_password_is_told_if_the_client_can_be_told)
{
    check_silent_login(QSI_SLICE_LITERAL(""), "PLAIN", "\0guest\0no", 9);
    connect_peer(&peer);
    say_hello(&peer);
    log_in_as(&peer, capabilities(), "PLAIN", "\0guest\0no", 9);
    expect_connection_close(&peer, 403,
                            "Login was refused using authentication mechanism PLAIN. For details "
                            "see the broker logfile.",
                            0, 0);
    SEND(&peer, 0, CONNECTION_CLOSE_OK, .bits = 0);
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_END);
    disconnect_peer(&peer);
}

QS_TEST(test_mechanisms)
{
    static const char amqplain[] = "\5LOGINS\0\0\0\5guest\10PASSWORDS\0\0\0\5guest";

    connect_peer(&peer);
    say_hello(&peer);
    log_in_as(&peer, capabilities(), "AMQPLAIN", amqplain, sizeof amqplain - 1);
    EXPECT(&peer, 0, CONNECTION_TUNE);
    QS_CHECK(strcmp(peer.session->user, "guest") == 0);
    disconnect_peer(&peer);
}

/* The session went on as "guest", whoever was asked for. */
QS_TEST(test_a_name_with_a_nul_counted_as_what_is_before_it)
{
    static const char response[] = "\5LOGINS\0\0\0\7guest\0x\10PASSWORDS\0\0\0\5guest";

    check_silent_login(capabilities(), "AMQPLAIN", response, sizeof response - 1);
}

static void check_tuning(uint16_t channel_max, uint32_t frame_max, bool is_silent)
{
    connect_as_guest(&peer);
    tune(&peer, channel_max, frame_max, 0);
    if (is_silent) {
        expect_silence();
    } else {
        open_connection(&peer);
        disconnect_peer(&peer);
    }
}

QS_TEST(test_tuning_keeps_to_what_was_offered)
{
    check_tuning(2047, 1000, true);
    check_tuning(2047, 200000, true);
    check_tuning(3000, 131072, true);
    check_tuning(2047, 4096, false);
    check_tuning(0, 0, false);
    check_tuning(1, 131072, false);
}

static void check_vhost(const char *vhost, const char *text)
{
    connect_as_guest(&peer);
    tune(&peer, 0, 0, 0);
    SEND(&peer, 0, CONNECTION_OPEN, .text = {TEXT(vhost)});
    expect_connection_close(&peer, 530, text, 10, 40);
    disconnect_peer(&peer);
}

QS_TEST(test_unknown_vhosts_are_told)
{
    check_vhost("nope", "vhost nope not found");
    check_vhost("secret", "access to vhost 'secret' refused for user 'guest'");
}

QS_TEST(test_a_channel_needs_an_open_connection)
{
    connect_as_guest(&peer);
    tune(&peer, 0, 0, 0);
    SEND(&peer, 1, CHANNEL_OPEN, .bits = 0);
    expect_connection_close(&peer, 505, "type 1, all octets = <<0,20,0,10,0>>", 0, 0);
    disconnect_peer(&peer);
}

/* ---- frames ---- */

struct rule {
    const char *name;
    uint16_t code;
    const char *text;
    uint16_t class_id, method_id; /* of what was wrong */
    struct {
        uint8_t type;
        uint16_t channel;
        size_t bytes;
        const char *payload;
    } frames[4]; /* behind the last one: without a payload */
};

/* Payloads are string literals. */
#define RULE(name, code, text, class_id, method_id, ...) \
    {                                                    \
        name, code, text, class_id, method_id,           \
        {                                                \
            __VA_ARGS__                                  \
        }                                                \
    }
#define FRAME(type, channel, payload) {type, channel, sizeof(payload) - 1, payload}
#define METHOD(payload) FRAME(1, 1, payload)
#define PUBLISH METHOD("\0\x3c\0\x28\0\0\0\7nowhere\0")
#define HEADER(payload) FRAME(2, 1, "\0\x3c\0\0" payload)
#define HEADER_OF(body_bytes) HEADER("\0\0\0\0\0\0\0" body_bytes "\0\0")

#define WANTS_METHOD "expected method frame, got non method frame instead"
#define WANTS_HEADER "expected content header for class 60, got non content header frame instead"
#define WANTS_BODY "expected content body, got non content body frame instead"

static void feed_rule(const struct rule *rule)
{
    for (size_t i = 0; rule->frames[i].payload != NULL; i++) {
        put_frame(&peer, rule->frames[i].type, rule->frames[i].channel, rule->frames[i].payload,
                  rule->frames[i].bytes);
    }
    flush(&peer);
}

static const struct rule connection_rules[] = {
    RULE("unknown type", 501, "type 9, all octets = <<\"abcd\">>: unknown_frame", 0, 0,
         FRAME(9, 1, "abcd")),
    RULE("empty method", 501, "type 1, all octets = <<>>: unknown_frame", 0, 0, METHOD("")),
    RULE("short header", 501, "type 2, all octets = <<0,60,0,0>>: unknown_frame", 0, 0, PUBLISH,
         HEADER("")),
    RULE("long garbage", 501, "type 9, first 16 octets = <<\"0123456789abcdef\">>: unknown_frame",
         0, 0, FRAME(9, 1, "0123456789abcdefg")),
    RULE("heartbeat with a payload", 501, "type 8, all octets = <<\"xx\">>: unknown_frame", 0, 0,
         FRAME(8, 0, "xx")),
    RULE("heartbeat on a channel", 505, "type 8, all octets = <<>>", 0, 0, FRAME(8, 1, "")),
    RULE("declare on channel 0", 504, "unexpected method in connection state running", 50, 10,
         FRAME(1, 0, "\0\x32\0\x0a\0\0\1q\0\0\0\0\0")),
    RULE("connection method on a channel", 503, "unimplemented method", 10, 40,
         METHOD("\0\x0a\0\x28\1/\0\0")),
    RULE("content on channel 0", 505, "type 2, all octets = <<0,60,0,0,0,0,0,0,0,0,0,5,0,0>>", 0, 0,
         FRAME(2, 0, "\0\x3c\0\0\0\0\0\0\0\0\0\5\0\0")),
    RULE("second channel.open", 504, "second 'channel.open' seen", 20, 10,
         METHOD("\0\x14\0\x0a\0")),
    RULE("closed channel", 504, "expected 'channel.open'", 60, 10,
         FRAME(1, 2, "\0\x3c\0\x0a\0\0\0\0\0\0\0")),
    RULE("close of a closed channel", 504, "expected 'channel.open'", 20, 40,
         FRAME(1, 2, "\0\x14\0\x28\0\xc8\0\0\0\0\0")),
    RULE("close-ok of a closed channel", 504, "expected 'channel.open'", 20, 41,
         FRAME(1, 2, "\0\x14\0\x29")),
    RULE("unknown class", 503, "unimplemented method", 99, 10, METHOD("\0\x63\0\x0a")),
    RULE("unknown method", 503, "unimplemented method", 60, 99, METHOD("\0\x3c\0\x63")),
    RULE("a server's method", 503, "unimplemented method", 60, 72, METHOD("\0\x3c\0\x48\0")),
    RULE("header without publish", 505, WANTS_METHOD, 0, 0, HEADER_OF("\5")),
    RULE("body without publish", 505, WANTS_METHOD, 0, 0, FRAME(3, 1, "x")),
    RULE("body on a closed channel", 505, WANTS_METHOD, 0, 0, FRAME(3, 2, "x")),
    RULE("method instead of header", 505, WANTS_HEADER, 60, 40, PUBLISH, PUBLISH),
    RULE("body instead of header", 505, WANTS_HEADER, 60, 40, PUBLISH, FRAME(3, 1, "x")),
    RULE("header of another class", 505,
         "expected content header for class 60, got one for class 10 instead", 60, 40, PUBLISH,
         FRAME(2, 1, "\0\x0a\0\0\0\0\0\0\0\0\0\1\0\0")),
    RULE("weight", 505, WANTS_HEADER, 60, 40, PUBLISH,
         FRAME(2, 1, "\0\x3c\0\1\0\0\0\0\0\0\0\1\0\0")),
    RULE("method instead of body", 505, WANTS_BODY, 60, 40, PUBLISH, HEADER_OF("\5"), PUBLISH),
    RULE("header instead of body", 505, WANTS_BODY, 60, 40, PUBLISH, HEADER_OF("\5"),
         HEADER_OF("\5")),
    RULE("body longer than said", 505, WANTS_BODY, 60, 40, PUBLISH, HEADER_OF("\2"),
         FRAME(3, 1, "xyz")),
    RULE("truncated method", 501, "cannot decode <<0,0,32,97,98>>", 50, 10,
         METHOD("\0\x32\0\x0a\0\0\x20"
                "ab")),
    RULE("trailing bytes", 501, "cannot decode <<0,0,0,0,0,0,0,122,122,122>>", 60, 10,
         METHOD("\0\x3c\0\x0a\0\0\0\0\0\0\0zzz")),
    RULE("name that is not UTF-8", 501, "Malformed UTF-8 in shortstr", 0, 0,
         METHOD("\0\x32\0\x0a\0\0\2\xff\xfe\0\0\0\0\0")),
    RULE("bad table", 502, "malformed table, or tables more than 128 deep", 50, 10,
         METHOD("\0\x32\0\x0a\0\0\1q\0\0\0\0\3\1aZ")),
    RULE("immediate", 540, "immediate=true", 60, 40, METHOD("\0\x3c\0\x28\0\0\0\1k\2"),
         HEADER_OF("\0")),
    RULE("prefetch size", 540, "prefetch_size!=0 (1)", 60, 10,
         METHOD("\0\x3c\0\x0a\0\0\0\1\0\0\0")),
    RULE("recover without requeue", 540, "requeue=false", 60, 110, METHOD("\0\x3c\0\x6e\0")),
    RULE("flow", 540, "active=false", 20, 20, METHOD("\0\x14\0\x14\0")),
    RULE("exchange type", 503, "unknown exchange type 'nix'", 40, 10,
         METHOD("\0\x28\0\x0a\0\0\1e\3nix\0\0\0\0\0")),
};
static const struct rule channel_rules[] = {
    RULE("unknown exchange", 404, "no exchange 'nix' in vhost '/'", 60, 40,
         METHOD("\0\x3c\0\x28\0\0\3nix\0\0"), HEADER_OF("\0")),
    RULE("unknown delivery tag", 406, "unknown delivery tag 7", 60, 80,
         METHOD("\0\x3c\0\x50\0\0\0\0\0\0\0\7\0")),
    RULE("default exchange", 403, "operation not permitted on the default exchange", 40, 10,
         METHOD("\0\x28\0\x0a\0\0\0\6direct\2\0\0\0\0")),
    RULE("reserved exchange", 403, "exchange name 'amq.foo' contains reserved prefix 'amq.*'", 40,
         10, METHOD("\0\x28\0\x0a\0\0\7amq.foo\6direct\2\0\0\0\0")),
    RULE("reserved queue", 403, "queue name 'amq.foo' contains reserved prefix 'amq.*'", 50, 10,
         METHOD("\0\x32\0\x0a\0\0\7amq.foo\2\0\0\0\0")),
    RULE("get without declare", 404, "no previously declared queue", 60, 70,
         METHOD("\0\x3c\0\x46\0\0\0\0")),
    RULE("commit without select", 406, "channel is not transactional", 90, 20,
         METHOD("\0\x5a\0\x14")),
    RULE("user id", 406, "user_id property set to 'other' but authenticated user was 'guest'", 60,
         40, PUBLISH, HEADER("\0\0\0\0\0\0\0\0\0\x10\5other")),
    RULE("expiration", 406, "invalid expiration 'abc': no_integer", 60, 40, PUBLISH,
         HEADER("\0\0\0\0\0\0\0\0\1\0\3"
                "abc")),
    RULE("expiration that goes on", 406, "invalid expiration '1x': {leftover_string,\"x\"}", 60, 40,
         PUBLISH,
         HEADER("\0\0\0\0\0\0\0\0\1\0\2"
                "1x")),
    RULE("negative expiration", 406, "invalid expiration '-1': {value_negative,-1}", 60, 40,
         PUBLISH,
         HEADER("\0\0\0\0\0\0\0\0\1\0\2"
                "-1")),
    RULE("delivery mode", 406, "invalid message: {delivery_mode_unknown,7}", 60, 40, PUBLISH,
         HEADER("\0\0\0\0\0\0\0\0\x10\0\7")),
    RULE("ttl", 406, "invalid arg 'x-message-ttl' for queue 'qneg' in vhost '/': it is negative",
         50, 10, METHOD("\0\x32\0\x0a\0\0\4qneg\0\0\0\0\x13\x0dx-message-ttlI\xff\xff\xff\xff")),
    RULE("body over the limit", 406,
         "message size 134217729 is larger than configured max size 134217728", 60, 40, PUBLISH,
         HEADER("\0\0\0\0\x08\0\0\1\0\0")),
    RULE("body of 2^63", 406,
         "message size 9223372036854775808 is larger than configured max size 134217728", 60, 40,
         PUBLISH, HEADER("\x80\0\0\0\0\0\0\0\0\0")),
    RULE("reply-to without a consumer", 406, "fast reply consumer does not exist", 60, 40, PUBLISH,
         HEADER("\0\0\0\0\0\0\0\0\2\0\x15"
                "amq.rabbitmq.reply-to")),
    RULE("reply consumer that acknowledges", 406, "reply consumer cannot acknowledge", 60, 20,
         METHOD("\0\x3c\0\x14\0\0\x15"
                "amq.rabbitmq.reply-to\0\0\0\0\0\0")),
};
QS_TEST(test_what_closes_the_connection)
{
    for (size_t i = 0; i < sizeof connection_rules / sizeof connection_rules[0]; i++) {
        const struct rule *rule = &connection_rules[i];

        printf("%s\n", rule->name);
        make_ready(&peer);
        feed_rule(rule);
        expect_connection_close(&peer, rule->code, rule->text, rule->class_id, rule->method_id);
        QS_CHECK(peer.wants == QSI_AMQP_WANTS_INPUT);
        feed_rule(rule); /* nothing counts any more */
        expect_nothing(&peer);
        SEND(&peer, 0, CONNECTION_CLOSE_OK, .bits = 0);
        QS_CHECK(peer.wants == QSI_AMQP_WANTS_END);
        disconnect_peer(&peer);
    }
}

QS_TEST(test_what_closes_the_channel)
{
    for (size_t i = 0; i < sizeof channel_rules / sizeof channel_rules[0]; i++) {
        const struct rule *rule = &channel_rules[i];

        printf("%s\n", rule->name);
        make_ready(&peer);
        feed_rule(rule);
        expect_channel_close(&peer, 1, rule->code, rule->text, rule->class_id, rule->method_id);
        expect_nothing(&peer);
        feed_rule(rule); /* nothing counts before close-ok */
        expect_nothing(&peer);
        SEND(&peer, 1, CHANNEL_CLOSE_OK, .bits = 0);
        expect_nothing(&peer);
        open_channel(&peer, 1);
        disconnect_peer(&peer);
    }
}

/* Where frames begin is not known any more: the socket is closed after a while. */
static void check_lost_frames(const char *input, size_t bytes, const char *text)
{
    make_ready(&peer);
    feed(&peer, input, bytes);
    expect_connection_close(&peer, 501, text, 0, 0);
    feed(&peer, "\1\0\0\0\0\0\4\0\x0a\0\x33\xce", 12);
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_INPUT);
    peer.now_ns += 3 * SECOND;
    run(&peer);
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_END);
    disconnect_peer(&peer);
}

QS_TEST(test_frames_that_are_lost_end_the_connection)
{
    check_lost_frames("AAAAAAAA", 8,
                      "type 65, all octets = <<>>: {frame_too_large,1094795585,131064}");
    check_lost_frames(
        "\1\0\1\0\0\0\x0b\0\x3c\0\x0a\0\0\0\0\0\0\0\0", 19,
        "type 1, all octets = <<0,60,0,10,0,0,0,0,0,0,0>>: {invalid_frame_end_marker,0}");
    check_lost_frames("\3\0\1\xff\xff\xff\xff", 7,
                      "type 3, all octets = <<>>: {frame_too_large,4294967295,131064}");
}

/* ---- malformed properties, tables that are deep ---- */

static void check_properties(const char *properties, size_t bytes)
{
    struct qsi_amqp_arguments close;

    make_ready(&peer);
    put_method(&peer, 1, QSI_AMQP_BASIC_PUBLISH, ARGUMENTS(.text = {TEXT(""), TEXT("nowhere")}));
    put_header(&peer, 1, 0, properties, bytes);
    flush(&peer);
    close = EXPECT(&peer, 0, CONNECTION_CLOSE);
    QS_CHECK(close.number[0] == 502 && close.number[1] == 60 && close.number[2] == 40);
    QS_CHECK(memcmp(close.text[0].data, "SYNTAX_ERROR - malformed properties: ", 37) == 0);
    disconnect_peer(&peer);
}

QS_TEST(test_malformed_properties_are_a_syntax_error)
{
    check_properties("\x80\0\x09"
                     "ab",
                     5);
    check_properties("\0\0zzz", 5);
    check_properties("\0\1\0\0", 4);
    check_properties("\x20\0\0\0\0\3\1aZ", 9);
    check_properties("\0", 1);
}

QS_TEST(test_a_table_5000_deep_is_refused)
{
    size_t bytes = 0;
    QS_TEST_FREED uint8_t *table = malloc(BYTES_MAX);
    struct qsi_amqp_arguments close;

    QS_CHECK(table != NULL);
    make_ready(&peer);
    for (int i = 4999; i >= 0; i--) {
        uint8_t *entry = table + (size_t)(4999 - i) * 7;

        memcpy(entry, "\1aF", 3);
        qsi_put_be32(entry + 3, (uint32_t)i * 7);
        bytes += 7;
    }
    SEND(&peer, 1, QUEUE_DECLARE, .text = {TEXT("deep")},
         .table = qsi_slice_make(table, (uint32_t)bytes));
    close = EXPECT(&peer, 0, CONNECTION_CLOSE);
    QS_CHECK(close.number[0] == 502);
    disconnect_peer(&peer);
}

int main(void)
{
    peer_init(&peer);
    qs_test_run_all();
    peer_fini(&peer);
    return 0;
}
