/* A whole dialog, fed in two parts that are divided at every byte, and byte by byte: what the
 * session says and does is the same.
 *
 * Deliveries and returns go out at the end of a turn, so where they stand among what is said on
 * other channels depends on the parts: each channel is compared by itself. */
#include "qs_test_session.h"
#include "qs_test_slices.h"

#define SAID_BYTES_MAX 65536

#define CHANNELS 5

/* What was said on each channel. */
struct said {
    uint8_t frames[CHANNELS][SAID_BYTES_MAX];
    size_t bytes[CHANNELS];
};

static struct peer peer;
static uint8_t dialog[SAID_BYTES_MAX];
static size_t dialog_bytes;
static struct said whole;

static void put_table_method(enum qsi_amqp_method method)
{
    static const char table[] = "\x0cx-max-lengthI\0\0\0\x0a";

    put_method(
        &peer, 1, method,
        ARGUMENTS(.text = {TEXT("limited")}, .table = qsi_slice_make(table, sizeof table - 1)));
}

static void put_divided_message(uint16_t channel, const char *key)
{
    put_method(&peer, channel, QSI_AMQP_BASIC_PUBLISH, ARGUMENTS(.text = {TEXT(""), TEXT(key)}));
    put_header(&peer, channel, 7, "\x90\0\4text\2", 8);
    put_frame(&peer, QSI_AMQP_FRAME_BODY, channel, "div", 3);
    put_frame(&peer, QSI_AMQP_FRAME_BODY, channel, "", 0);
    put_frame(&peer, QSI_AMQP_FRAME_BODY, channel, "ided", 4);
}

static void put_handshake(void)
{
    put(&peer, "AMQP\0\0\x09\x01", 8);
    put_method(
        &peer, 0, QSI_AMQP_CONNECTION_START_OK,
        ARGUMENTS(.table = capabilities(),
                  .text = {TEXT("PLAIN"), {(const uint8_t *)"\0guest\0guest", 12}, TEXT("en_US")}));
    put_method(&peer, 0, QSI_AMQP_CONNECTION_TUNE_OK, ARGUMENTS(.number = {10, 8192, 0}));
    put_method(&peer, 0, QSI_AMQP_CONNECTION_OPEN, ARGUMENTS(.text = {TEXT("/")}));
    for (uint16_t channel = 1; channel < CHANNELS; channel++) {
        put_method(&peer, channel, QSI_AMQP_CHANNEL_OPEN, ARGUMENTS(.bits = 0));
    }
}

static void put_topology(void)
{
    put_method(&peer, 1, QSI_AMQP_EXCHANGE_DECLARE,
               ARGUMENTS(.text = {TEXT("e"), TEXT("topic")}, .bits = DURABLE));
    put_table_method(QSI_AMQP_QUEUE_DECLARE);
    put_method(&peer, 1, QSI_AMQP_QUEUE_DECLARE, ARGUMENTS(.text = {TEXT("q")}, .bits = DURABLE));
    put_method(&peer, 1, QSI_AMQP_QUEUE_BIND,
               ARGUMENTS(.text = {TEXT("q"), TEXT("e"), TEXT("k.*")}));
    put_method(&peer, 2, QSI_AMQP_BASIC_CONSUME,
               ARGUMENTS(.text = {TEXT("limited"), TEXT("c")}, .bits = 2));
    put_method(&peer, 2, QSI_AMQP_BASIC_QOS, ARGUMENTS(.number = {0, 10}));
}

static void put_messages(void)
{
    put_method(&peer, 1, QSI_AMQP_CONFIRM_SELECT, ARGUMENTS(.bits = 0));
    put_message(&peer, 1, "e", "k.1", 0, "routed", 6);
    put_message(&peer, 3, "", "limited", 0, "to be delivered", 15);
    put_divided_message(1, "q");
    put(&peer, qsi_amqp_heartbeat_frame, 8);
    put_divided_message(3, "limited");
    put_message(&peer, 4, "", "nowhere", 1, "", 0);
    put_method(&peer, 3, QSI_AMQP_BASIC_GET, ARGUMENTS(.text = {TEXT("q")}, .bits = 0));
    put_method(&peer, 3, QSI_AMQP_BASIC_GET, ARGUMENTS(.text = {TEXT("q")}, .bits = 1));
    put_method(&peer, 3, QSI_AMQP_BASIC_NACK, ARGUMENTS(.number = {1}, .bits = 2));
    put_method(&peer, 3, QSI_AMQP_BASIC_GET, ARGUMENTS(.text = {TEXT("q")}, .bits = 0));
    put_method(&peer, 3, QSI_AMQP_BASIC_ACK, ARGUMENTS(.number = {3}));
    put_method(&peer, 3, QSI_AMQP_TX_SELECT, ARGUMENTS(.bits = 0));
    put_message(&peer, 3, "", "q", 0, "committed", 9);
    put_method(&peer, 3, QSI_AMQP_TX_COMMIT, ARGUMENTS(.bits = 0));
    put_method(&peer, 3, QSI_AMQP_BASIC_ACK, ARGUMENTS(.number = {77}));
    put_message(&peer, 3, "", "q", 0, "not heard any more", 18);
    put_method(&peer, 3, QSI_AMQP_CHANNEL_CLOSE_OK, ARGUMENTS(.bits = 0));
    put_method(&peer, 3, QSI_AMQP_CHANNEL_OPEN, ARGUMENTS(.bits = 0));
    put_method(&peer, 3, QSI_AMQP_QUEUE_PURGE, ARGUMENTS(.text = {TEXT("q")}));
    put_method(&peer, 3, QSI_AMQP_CHANNEL_CLOSE, ARGUMENTS(.number = {200}));
}

static void make_dialog(void)
{
    peer_init(&peer);
    put_handshake();
    put_topology();
    put_messages();
    QS_CHECK(peer.out_bytes <= sizeof dialog);
    memcpy(dialog, peer.out, peer.out_bytes);
    dialog_bytes = peer.out_bytes;
    peer_fini(&peer);
}

static void listen(struct said *said)
{
    struct frame frame;

    memset(said, 0, sizeof *said);
    while (take_frame(&peer, &frame)) {
        uint8_t *out = said->frames[frame.channel] + said->bytes[frame.channel];

        QS_CHECK(frame.channel < CHANNELS);
        QS_CHECK(said->bytes[frame.channel] + 1 + frame.payload.bytes <= SAID_BYTES_MAX);
        *out = frame.type;
        memcpy(out + 1, frame.payload.data, frame.payload.bytes);
        said->bytes[frame.channel] += 1 + frame.payload.bytes;
    }
}

/* Feeds the dialog in parts of these sizes, the last one again and again. */
static void play(size_t first, size_t others, struct said *said)
{
    peer_init(&peer);
    connect_peer(&peer);
    peer.must_not_commit = true; /* else what is confirmed together depends on the parts */
    feed(&peer, dialog, first);
    for (size_t at = first; at < dialog_bytes; at += others) {
        size_t part = dialog_bytes - at < others ? dialog_bytes - at : others;

        feed(&peer, dialog + at, part);
    }
    commit(&peer);
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_INPUT && qsi_amqp_session_reads(peer.session));
    listen(said);
    peer_fini(&peer);
}

static void check_parts(size_t first, size_t others)
{
    static struct said said;

    play(first, others, &said);
    for (int channel = 0; channel < CHANNELS; channel++) {
        if (said.bytes[channel] != whole.bytes[channel] ||
            memcmp(said.frames[channel], whole.frames[channel], whole.bytes[channel]) != 0) {
            fprintf(stderr, "channel %d, parts of %zu and %zu bytes\n", channel, first, others);
            QS_CHECK(!"the session says something else");
        }
    }
}

static void test_a_dialog_is_the_same_wherever_it_is_divided(void)
{
    play(dialog_bytes, 1, &whole);
    for (int channel = 0; channel < CHANNELS; channel++) {
        QS_CHECK(whole.bytes[channel] > 30);
    }
    for (size_t cut = 1; cut < dialog_bytes; cut++) {
        check_parts(cut, dialog_bytes);
    }
    for (size_t part = 1; part < 20; part++) {
        check_parts(part, part);
    }
}

/* Wherever a client vanishes, nothing is left of it, and the store goes on. */
static void test_a_client_may_vanish_at_every_byte(void)
{
    qs_queue_status status;

    peer_init(&peer);
    for (size_t cut = 0; cut < dialog_bytes; cut++) {
        connect_peer(&peer);
        feed(&peer, dialog, cut);
        disconnect_peer(&peer);
    }
    if (qs_store_queue_status(peer.store, text("q"), &status, QS_ERROR) == QS_OK) {
        QS_CHECK(status.messages_unacked == 0 && status.consumers == 0);
    }
    peer_fini(&peer);
}

int main(void)
{
    make_dialog();
    test_a_dialog_is_the_same_wherever_it_is_divided();
    test_a_client_may_vanish_at_every_byte();
    return 0;
}
