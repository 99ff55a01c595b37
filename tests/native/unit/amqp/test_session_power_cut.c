/* A power cut under a session: what the client was told is there afterwards.
 *
 * A client declares, publishes with confirms and commits transactions over a disk that forgets;
 * cuts are taken at random steps of that disk, with what the client had been told by then.  Each is
 * opened, and read by another client.
 *
 * Arguments: seed, rounds. */
#include "qs_test_session.h"
#include "splitmix.h"

#define ROUNDS 25
#define CUTS_MAX 24
#define MESSAGES 40
#define TRANSACTIONS 4
#define LARGE_BYTES 20000 /* goes to the message store */

/* What the client had been told, and the disk at that time. */
struct cut {
    qs_env *env;
    bool is_declared;
    uint32_t confirmed;    /* the messages up to this one */
    uint32_t transactions; /* whose commit-ok came */
};

static struct {
    struct peer peer;
    qs_env *sim;
    uint64_t random;
    struct cut told; /* env is unused */
    struct cut cuts[CUTS_MAX];
    uint32_t cut_count;
} world;

static void take_cut(void *context, uint64_t step)
{
    enum qsi_cut_how how = (enum qsi_cut_how)qsi_splitmix_below(&world.random, 3);

    (void)context;
    (void)step;
    if (world.cut_count < CUTS_MAX && qsi_splitmix_below(&world.random, 6) == 0) {
        struct cut *cut = &world.cuts[world.cut_count++];

        *cut = world.told;
        cut->env = qsi_env_sim_cut(world.sim, how, qsi_splitmix_next(&world.random));
    }
}

/* ---- the client ---- */

/* The body tells which message it is. */
static void send_message(uint16_t channel, char kind, uint32_t number)
{
    bool is_large = qsi_splitmix_below(&world.random, 8) == 0;
    size_t bytes = is_large ? LARGE_BYTES : 16;
    QS_TEST_FREED char *body = calloc(1, bytes);

    QS_CHECK(body != NULL);
    snprintf(body, bytes, "%c%u", kind, number);
    put_message(&world.peer, channel, "", "q", 0, body, bytes);
    flush(&world.peer);
}

static void hear(void)
{
    struct frame frame;

    run(&world.peer);
    while (take_frame(&world.peer, &frame)) {
        if (frame.channel == 1 && frame.payload.bytes == 13 &&
            qsi_get_be16(frame.payload.data + 2) == 80) {
            uint32_t number = (uint32_t)qsi_get_be64(frame.payload.data + 4);

            QS_CHECK(frame.payload.data[12] == 1 || number == world.told.confirmed + 1);
            world.told.confirmed = number;
        }
    }
}

static void commit_transaction(uint32_t number)
{
    for (int i = 0; i < 3; i++) {
        send_message(2, 't', number);
    }
    SEND(&world.peer, 2, TX_COMMIT, .bits = 0);
    hear();
    world.told.transactions = number;
}

static void work(void)
{
    uint32_t transactions = 0;

    make_ready(&world.peer);
    open_channel(&world.peer, 2);
    SEND(&world.peer, 1, QUEUE_DECLARE, .text = {TEXT("q")}, .bits = DURABLE);
    EXPECT(&world.peer, 1, QUEUE_DECLARE_OK);
    world.told.is_declared = true;
    SEND(&world.peer, 1, CONFIRM_SELECT, .bits = 0);
    SEND(&world.peer, 2, TX_SELECT, .bits = 0);
    hear();
    for (uint32_t i = 1; i <= MESSAGES; i++) {
        send_message(1, 'm', i);
        if (qsi_splitmix_below(&world.random, 4) == 0) {
            QS_CHECK_OK(qs_store_sync(world.peer.store, QS_ERROR));
            hear();
        }
        if (i % (MESSAGES / TRANSACTIONS) == 0) {
            commit_transaction(++transactions);
        }
    }
}

/* ---- what is there afterwards ---- */

struct seen {
    uint32_t messages;
    uint32_t of_transaction[TRANSACTIONS + 1];
};

/* Messages of the channel in their order, each once. */
static void see(struct seen *seen, const char *body)
{
    uint32_t number = (uint32_t)strtoul(body + 1, NULL, 10);

    if (*body == 'm') {
        QS_CHECK(number == seen->messages + 1 && number <= MESSAGES);
        seen->messages = number;
    } else {
        QS_CHECK(*body == 't' && number >= 1 && number <= TRANSACTIONS);
        seen->of_transaction[number]++;
    }
}

static void check_seen(const struct cut *cut, const struct seen *seen)
{
    QS_CHECK(seen->messages >= cut->confirmed);
    for (uint32_t i = 1; i <= TRANSACTIONS; i++) {
        QS_CHECK(seen->of_transaction[i] == 3 ||
                 (seen->of_transaction[i] == 0 && i > cut->transactions));
    }
}

static void look_after(const struct cut *cut)
{
    static struct peer reader;
    struct seen seen = {0};
    struct frame frame;
    size_t bytes;

    peer_init_in(&reader, cut->env);
    make_ready(&reader);
    if (cut->is_declared) {
        SEND(&reader, 1, QUEUE_DECLARE, .text = {TEXT("q")}, .bits = 1); /* passive */
        EXPECT(&reader, 1, QUEUE_DECLARE_OK);
    }
    SEND(&reader, 1, QUEUE_DECLARE, .text = {TEXT("q")}, .bits = DURABLE);
    EXPECT(&reader, 1, QUEUE_DECLARE_OK);
    for (bool is_empty = false; !is_empty;) {
        SEND(&reader, 1, BASIC_GET, .text = {TEXT("q")}, .bits = 1);
        QS_CHECK(take_frame(&reader, &frame));
        is_empty = qsi_get_be16(frame.payload.data + 2) == 72;
        if (!is_empty) {
            QS_TEST_FREED char *body = take_body(&reader, &bytes);

            see(&seen, body);
        }
    }
    check_seen(cut, &seen);
    peer_fini(&reader);
}

static void play(uint64_t seed)
{
    memset(&world, 0, sizeof world);
    world.random = seed;
    world.sim = qsi_env_sim_create(seed);
    peer_init_in(&world.peer, world.sim);
    qsi_env_sim_on_step(world.sim, take_cut, NULL);
    work();
    qsi_env_sim_on_step(world.sim, NULL, NULL);
    peer_fini_in(&world.peer);
    qsi_env_sim_destroy(world.sim);
    QS_CHECK(world.cut_count > 0);
    for (uint32_t i = 0; i < world.cut_count; i++) {
        look_after(&world.cuts[i]);
    }
}

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);
    int rounds = argc > 2 ? atoi(argv[2]) : ROUNDS;

    for (int round = 0; round < rounds; round++) {
        printf("round of seed %" PRIu64 "\n", seed + (uint64_t)round);
        fflush(stdout);
        play(seed + (uint64_t)round);
    }
    return 0;
}
