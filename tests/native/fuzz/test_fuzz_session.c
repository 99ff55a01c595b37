/* A session is fed what no client sends: any bytes end in answers or in a close, never in a crash,
 * a hang or an allocation out of proportion (build it with AddressSanitizer to see reads out of
 * bounds as well).
 *
 * Each round makes frames from a seed: methods with arguments that mean something often enough,
 * contents in order and out of it; then it changes some bytes.  The store behind it lives on from
 * round to round, so that what one client left meets the next.
 *
 * Arguments: seed, seconds; or names of files, each of which is played once.  With
 * -DQS_LIBFUZZER -fsanitize=fuzzer it is a target for libFuzzer, of the same bytes: the first says
 * how the rest is divided, and whether it begins behind a handshake. */
#include "qstore/alloc.h"

#include "qs_test_session.h"
#include "qs_test_slices.h"
#include "splitmix.h"

#include <signal.h>
#include <time.h>

#define SECONDS 8
#define INPUT_BYTES_MAX (256u << 10)
#define ALLOCATION_BYTES_MAX (16u << 20)
#define ROUNDS_OF_A_STORE 500
#define BEGINS_AT_ONCE 0x80 /* in the first byte: without a handshake */

static struct peer peer;
static int rounds_of_store;
static uint64_t published, delivered; /* how deep the inputs went */

/* ---- watching ---- */

static void *watched_realloc(void *context, void *memory, size_t bytes)
{
    (void)context;
    QS_CHECK(bytes <= ALLOCATION_BYTES_MAX);
    return realloc(memory, bytes);
}

static void watched_free(void *context, void *memory)
{
    (void)context;
    free(memory);
}

/* ---- one input ---- */

static enum qsi_amqp_verdict permit(void *context, struct qsi_amqp_session *session,
                                    enum qsi_amqp_right right, qs_slice name)
{
    (void)context;
    (void)session;
    (void)right;
    return name.bytes == 9 ? QSI_AMQP_REFUSED : QSI_AMQP_GRANTED;
}

static void open_peer(void)
{
    static struct qsi_amqp_pool pool = {.bytes_max = 1u << 20, .tx_bytes_max = 4096};

    peer_init(&peer);
    peer.setup.pool = &pool;
    peer.setup.host.permit = permit;
    peer.setup.limits.body_bytes_max = 1u << 20;
}

static bool is_over(void)
{
    return peer.wants == QSI_AMQP_WANTS_END || peer.wants == QSI_AMQP_WANTS_RESET;
}

/* The first byte says how large the parts are that the rest comes in. */
static void feed_in_parts(const uint8_t *data, size_t bytes, uint8_t how)
{
    static const size_t sizes[] = {INPUT_BYTES_MAX, 1, 7, 8, 100, 1000, 4096, 13};
    size_t part = sizes[how & 7];

    for (size_t at = 0; at < bytes && !is_over(); at += part) {
        feed(&peer, data + at, bytes - at < part ? bytes - at : part);
        peer.now_ns += SECOND / 1000;
    }
}

/* What went out is whole frames, and what was said is less than the client could want. */
static void check_output(void)
{
    struct frame frame;

    if (peer.in_bytes >= 8 && memcmp(peer.in, "AMQP", 4) == 0) {
        peer.in_from = 8;
    }
    while (take_frame(&peer, &frame)) {
        QS_CHECK(frame.type <= 3 || frame.type == QSI_AMQP_FRAME_HEARTBEAT);
    }
}

static void check_store(void)
{
    qs_queue_status status;

    if (qs_store_queue_status(peer.store, text("q"), &status, QS_ERROR) == QS_OK) {
        QS_CHECK(status.messages_unacked == 0 && status.consumers == 0);
    }
    QS_CHECK(peer.setup.pool->bytes == 0 && peer.setup.pool->tx_bytes == 0);
}

static void play(const uint8_t *data, size_t bytes)
{
    struct qsi_amqp_counts counts;

    if (bytes == 0 || bytes > INPUT_BYTES_MAX) {
        return;
    }
    if (rounds_of_store == 0) {
        open_peer();
    }
    if ((*data & BEGINS_AT_ONCE) != 0) {
        connect_peer(&peer);
    } else {
        make_ready(&peer);
    }
    peer.wants = QSI_AMQP_WANTS_INPUT;
    feed_in_parts(data + 1, bytes - 1, *data);
    if (!is_over()) {
        commit(&peer);
        peer.now_ns += 30 * SECOND;
        run(&peer);
    }
    check_output();
    qsi_amqp_session_counts(peer.session, &counts);
    published += counts.published;
    delivered += counts.delivered + counts.got;
    disconnect_peer(&peer);
    check_store();
    if (++rounds_of_store == ROUNDS_OF_A_STORE) {
        peer_fini(&peer);
        rounds_of_store = 0;
    }
}

#ifdef QS_LIBFUZZER

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    play(data, bytes);
    return 0;
}

#else

/* ---- inputs from a seed ---- */

static uint64_t random_state;

static uint64_t below(uint64_t limit)
{
    return qsi_splitmix_below(&random_state, limit);
}

static struct qsi_slice some_name(void)
{
    static const char *const names[] = {
        "q",         "",           "r",         "e",
        "t",         "amq.direct", "amq.topic", "amq.rabbitmq.reply-to",
        "direct",    "topic",      "k.1",       "amq.headers",
        "forbidden", "a\r\nb"};
    const char *name = names[below(sizeof names / sizeof names[0])];

    return TEXT(name);
}

static struct qsi_slice some_table(void)
{
    static const char tables[][40] = {"\x0cx-max-lengthI\0\0\0\3", "\x0dx-message-ttlI\0\0\0\0",
                                      "\x16x-dead-letter-exchangeS\0\0\0\0",
                                      "\x0ax-priorityI\0\0\0\1", "\1aF\0\0\0\7\1bA\0\0\0\0"};
    static const uint32_t sizes[] = {18, 19, 28, 16, 14};
    uint64_t which = below(8);

    return which < 5 ? qsi_slice_make(tables[which], sizes[which]) : qsi_slice_make("", 0);
}

/* Those that a client sends all day, on a queue that is there. */
static void put_usual_method(void)
{
    static const struct {
        enum qsi_amqp_method method;
        uint8_t bits;
    } usual[] = {
        {QSI_AMQP_BASIC_GET, 1},      {QSI_AMQP_BASIC_GET, 0},     {QSI_AMQP_BASIC_ACK, 1},
        {QSI_AMQP_BASIC_CONSUME, 2},  {QSI_AMQP_BASIC_CONSUME, 0}, {QSI_AMQP_BASIC_NACK, 3},
        {QSI_AMQP_QUEUE_DECLARE, 2},  {QSI_AMQP_BASIC_QOS, 0},     {QSI_AMQP_BASIC_RECOVER, 1},
        {QSI_AMQP_CONFIRM_SELECT, 0}, {QSI_AMQP_BASIC_CANCEL, 0},  {QSI_AMQP_QUEUE_PURGE, 0}};
    uint64_t which = below(sizeof usual / sizeof usual[0]);
    bool is_cancel = usual[which].method == QSI_AMQP_BASIC_CANCEL;
    bool is_consume = usual[which].method == QSI_AMQP_BASIC_CONSUME;
    struct qsi_amqp_arguments arguments = {
        .text = {is_cancel ? some_name() : TEXT("q"),
                 is_consume && below(4) == 0 ? some_name() : TEXT("")},
        .number = {below(16) == 0, below(4)},
        .bits = usual[which].bits,
    };

    put_method(&peer, (uint16_t)(1 + below(2)), usual[which].method, &arguments);
}

/* Any method.  Few that close something: most rounds shall go on. */
static void put_any_method(void)
{
    enum qsi_amqp_method method = (enum qsi_amqp_method)below(QSI_AMQP_METHOD_COUNT);
    struct qsi_amqp_arguments arguments = {
        .text = {some_name(), some_name(), some_name()},
        .table = some_table(),
        .number = {below(4), below(4), below(4)},
        .bits = (uint8_t)below(32),
    };
    uint16_t channel = qsi_amqp_layouts[method].class_id == 10 ? 0 : (uint16_t)(1 + below(3));

    if ((qsi_amqp_layouts[method].from != QSI_AMQP_FROM_SERVER && channel != 0) || below(20) == 0) {
        put_method(&peer, channel, method, &arguments);
    }
}

static void put_some_content(void)
{
    static const char *const properties[] = {"\0\0", "\x10\0\2", "\x01\0\0021x", "\x02\0\1r",
                                             "\x20\0\0\0\0\0"};
    static const size_t sizes[] = {2, 3, 5, 4, 6};
    uint16_t channel = (uint16_t)(1 + below(2));
    uint64_t which = below(16), parts = below(4), bytes = below(3000);
    static const uint8_t body[3000];

    which = which < 5 ? which : 1;
    put_method(&peer, channel, QSI_AMQP_BASIC_PUBLISH,
               ARGUMENTS(.text = {TEXT(""), below(2) == 0 ? TEXT("q") : some_name()},
                         .bits = below(8) == 0));
    put_header(&peer, channel, parts * bytes, properties[which], sizes[which]);
    for (uint64_t i = 0; i < parts && bytes > 0; i++) {
        put_frame(&peer, QSI_AMQP_FRAME_BODY, channel, body, bytes);
    }
}

static void change_bytes(uint8_t *data, size_t bytes)
{
    for (uint64_t changes = below(4) == 0 ? below(6) : 0; changes > 0 && bytes > 0; changes--) {
        data[below(bytes)] = (uint8_t)below(256);
    }
}

/* Where contents and methods for channel 2 are mixed, the other channels are opened first. */
static void make_input(uint64_t seed)
{
    random_state = seed;
    peer.out_bytes = 0;
    if (below(8) == 0) {
        put(&peer, "AMQP\0\0\x09\x01", 8);
        put_method(
            &peer, 0, QSI_AMQP_CONNECTION_START_OK,
            ARGUMENTS(.table = capabilities(), .text = {TEXT("PLAIN"),
                                                        {(const uint8_t *)"\0guest\0guest", 12},
                                                        TEXT("en_US")}));
        put_method(&peer, 0, QSI_AMQP_CONNECTION_TUNE_OK, ARGUMENTS(.number = {10, 8192, 2}));
        put_method(&peer, 0, QSI_AMQP_CONNECTION_OPEN, ARGUMENTS(.text = {TEXT("/")}));
    }
    put_method(&peer, 2, QSI_AMQP_CHANNEL_OPEN, ARGUMENTS(.bits = 0));
    put_method(&peer, 1, QSI_AMQP_QUEUE_DECLARE, ARGUMENTS(.text = {TEXT("q")}, .bits = 2));
    for (uint64_t items = below(60); items > 0; items--) {
        uint64_t kind = below(20);

        if (kind < 8) {
            put_some_content();
        } else if (kind < 19) {
            put_usual_method();
        } else {
            put_any_method();
        }
    }
    change_bytes(peer.out, peer.out_bytes);
}

static void play_seed(uint64_t seed)
{
    static uint8_t input[INPUT_BYTES_MAX];
    size_t bytes;
    bool begins_at_once;

    if (rounds_of_store == 0) {
        open_peer();
        rounds_of_store = 1;
    }
    make_input(seed);
    bytes = peer.out_bytes < sizeof input - 1 ? peer.out_bytes : sizeof input - 1;
    begins_at_once = bytes > 4 && memcmp(peer.out, "AMQP", 4) == 0;
    input[0] = (uint8_t)(below(8) | (begins_at_once ? BEGINS_AT_ONCE : 0));
    memcpy(input + 1, peer.out, bytes);
    peer.out_bytes = 0;
    play(input, bytes + 1);
}

static void play_file(const char *name)
{
    static uint8_t input[INPUT_BYTES_MAX];
    FILE *file = fopen(name, "rb");
    size_t bytes;

    QS_CHECK(file != NULL);
    bytes = fread(input, 1, sizeof input, file);
    fclose(file);
    play(input, bytes);
}

static volatile uint64_t current_seed;

static void tell_seed(int signal_number)
{
    char text[64];
    int bytes = snprintf(text, sizeof text, "signal %d in the round of seed %llu\n", signal_number,
                         (unsigned long long)current_seed);

    (void)!write(2, text, (size_t)bytes);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void tell_seed_at_exit(void)
{
    printf("the last round was that of seed %llu\n", (unsigned long long)current_seed);
}

static void play_seeds(uint64_t seed, double seconds)
{
    time_t end = time(NULL) + (time_t)seconds;
    uint64_t rounds = 0;

    signal(SIGSEGV, tell_seed);
    signal(SIGABRT, tell_seed);
    atexit(tell_seed_at_exit);
    for (; time(NULL) < end; rounds++) {
        current_seed = seed + rounds;
        play_seed(current_seed);
    }
    printf("%" PRIu64 " rounds, %" PRIu64 " messages published, %" PRIu64 " delivered\n", rounds,
           published, delivered);
    QS_CHECK(rounds < 100 || (published > rounds && delivered > rounds));
}

int main(int argc, char **argv)
{
    static const qs_allocator allocator = {watched_realloc, watched_free, NULL};

    qs_allocator_set(&allocator);
    if (argc > 1 && strspn(argv[1], "0123456789x") != strlen(argv[1])) {
        for (int i = 1; i < argc; i++) {
            play_file(argv[i]);
        }
    } else {
        play_seeds(qs_test_seed(argc, argv), argc > 2 ? atof(argv[2]) : SECONDS);
    }
    if (rounds_of_store > 0) {
        peer_fini(&peer);
    }
    return 0;
}

#endif
