/* Power cuts around confirms ahead of the disk: what was confirmed so is never there again, and
 * what was confirmed and not acknowledged is.
 *
 * Messages of all sizes are published, delivered and acknowledged in every order, and committed now
 * and then, in journal files that are full soon, by commits of up to three blocks; at each step the
 * disk is cut.
 *
 * Arguments: seed, number of states. */
#include "qstore/qstore.h"

#include "crash_run.h"
#include "qs_test_calls.h"
#include "qs_test_slices.h"

#define MESSAGES_MAX 400u
#define STEPS 300
#define STATES 8000
#define BODY_MAX (600u << 10) /* some of them pass the bytes of a commit */

static const uint8_t persistent_blob[] = {0x10, 0x00, 2};

struct message {
    uint64_t tag; /* 0: it is not out */
    bool is_confirmed, is_acked, is_early;
};

struct run {
    uint64_t random, states, early;
    qs_env *sim;
    qs_options options;
    qs_store *store;
    qs_channel *publisher, *consumer;
    struct message messages[MESSAGES_MAX + 1]; /* by publish number */
    uint32_t count;
    bool cuts;
};

static void check_disk(struct run *run, enum qsi_cut_how how, uint64_t seed)
{
    qs_env *mem = qsi_env_sim_cut(run->sim, how, seed);
    bool is_there[MESSAGES_MAX + 1] = {false};
    uint64_t position = 0;
    qs_message message;
    qs_store *store;
    uint32_t state, number;

    QS_CHECK_OK(qs_store_open(&store, "store", &run->options, mem, QS_ERROR));
    while (qs_store_peek(store, text("q"), &position, &state, &message, NULL) == QS_OK) {
        QS_CHECK(message.body.bytes >= sizeof number);
        memcpy(&number, message.body.data, sizeof number);
        QS_CHECK(!is_there[number]);
        is_there[number] = true;
        qs_message_release(&message);
    }
    for (uint32_t i = 1; i <= run->count; i++) {
        const struct message *expected = &run->messages[i];
        QS_CHECK(!(expected->is_early && is_there[i]));
        QS_CHECK(!expected->is_confirmed || expected->is_acked || is_there[i]);
    }
    QS_CHECK_OK(qs_store_close(store, QS_ERROR));
    qsi_env_mem_destroy(mem);
    run->states += 1;
}

static void on_step(void *context, uint64_t step)
{
    struct run *run = context;

    if (run->cuts) {
        check_disk(run, QSI_CUT_KEEP_ALL, step);
        check_disk(run, QSI_CUT_DROP_ALL, step);
        check_disk(run, QSI_CUT_RANDOM, step);
    }
}

static void hear(struct run *run)
{
    qs_event event;

    while (qs_channel_next_event(run->publisher, QS_EVENT_ACK, 0, &event, NULL) == QS_OK) {
        uint64_t first = event.multiple ? 1 : event.publish_number;
        QS_CHECK(event.kind == QS_EVENT_ACK);
        for (uint64_t number = first; number <= event.publish_number; number++) {
            run->messages[number].is_confirmed = true;
        }
    }
}

static void send(struct run *run)
{
    static uint8_t body[BODY_MAX];
    uint32_t number = run->count + 1;
    uint64_t bytes = qsi_splitmix_below(&run->random, 16) == 0
                         ? qsi_splitmix_below(&run->random, BODY_MAX - sizeof number)
                         : 0;
    qs_receipt receipt;

    memcpy(body, &number, sizeof number);
    QS_CHECK_OK(qs_channel_publish(
        run->publisher, text(""), text("q"), (qs_slice){persistent_blob, sizeof persistent_blob},
        (qs_slice){body, sizeof number + bytes}, 0, 0, &receipt, QS_ERROR));
    QS_CHECK(receipt.first_number == number);
    run->count = number;
}

static void receive(struct run *run)
{
    qs_event event;
    uint32_t number;

    if (qs_channel_next_event(run->consumer, QS_EVENT_DELIVERY, 0, &event, NULL) == QS_OK) {
        memcpy(&number, event.message.body.data, sizeof number);
        run->messages[number].tag = event.message.delivery_tag;
        qs_message_release(&event.message);
    }
}

/* Mostly the one that was had last; 0: the one that was chosen is not out. */
static uint32_t choose(struct run *run)
{
    uint32_t number = run->count;

    if (qsi_splitmix_below(&run->random, 4) == 0) {
        number = (uint32_t)qsi_splitmix_below(&run->random, run->count + 1);
        return run->messages[number].tag == 0 ? 0 : number;
    }
    while (number > 0 && run->messages[number].tag == 0) {
        number -= 1;
    }
    return number;
}

/* Its confirm comes with the ack, if it does not wait for a commit. */
static void settle(struct run *run)
{
    uint32_t number = choose(run);
    struct message *message = &run->messages[number];

    if (number == 0) {
        return;
    }
    hear(run);
    message->is_acked = true;
    QS_CHECK_OK(qs_channel_ack(run->consumer, message->tag, 0, QS_ERROR));
    message->tag = 0;
    if (!message->is_confirmed) {
        hear(run);
        message->is_early = message->is_confirmed;
        run->early += message->is_early ? 1 : 0;
    }
}

static void work(struct run *run)
{
    switch (qsi_splitmix_below(&run->random, 10)) {
    case 0:
        QS_CHECK_OK(qs_store_sync(run->store, QS_ERROR));
        hear(run);
        break;
    case 1:
        if (qsi_splitmix_below(&run->random, 5) == 0) {
            QS_CHECK_OK(qs_store_checkpoint(run->store, QS_ERROR));
        }
        break;
    case 2:
    case 3:
        if (run->count < MESSAGES_MAX) {
            send(run);
        }
        break;
    case 4:
    case 5:
    case 6:
        receive(run);
        break;
    default:
        settle(run);
    }
}

static void play(struct run *run, uint64_t seed)
{
    run->random = seed;
    run->count = 0;
    memset(run->messages, 0, sizeof run->messages);
    run->sim = qsi_env_sim_create(seed);
    qsi_env_sim_on_step(run->sim, on_step, run);
    QS_CHECK_OK(qs_store_open(&run->store, "store", &run->options, run->sim, QS_ERROR));
    QS_CHECK_OK(qs_channel_open(&run->publisher, run->store, QS_ERROR));
    QS_CHECK_OK(qs_channel_open(&run->consumer, run->store, QS_ERROR));
    QS_CHECK_OK(qs_test_declare_as(run->publisher, "q", QS_DURABLE, (qs_slice){NULL, 0}));
    QS_CHECK_OK(qs_channel_confirm_select(run->publisher, QS_ERROR));
    QS_CHECK_OK(qs_test_consume(run->consumer, "q", "c", 0, (qs_slice){NULL, 0}));
    run->cuts = true;
    for (int i = 0; i < STEPS; i++) {
        qsi_env_sim_advance(run->sim, 1000000);
        work(run);
    }
    run->cuts = false;
    qs_channel_close(run->publisher);
    qs_channel_close(run->consumer);
    QS_CHECK_OK(qs_store_close(run->store, QS_ERROR));
    qsi_env_sim_destroy(run->sim);
}

int main(int argc, char **argv)
{
    static struct run run;
    uint64_t seed = qs_test_seed(argc, argv);
    uint64_t count = crash_state_count(argc, argv, STATES);

    qs_options_default(&run.options);
    run.options.background = false;
    run.options.journal_file_bytes = 8u << 20;
    run.options.embed_below = 2 * BODY_MAX;
    run.options.segment_entries = 16;
    while (run.states < count) {
        play(&run, seed++);
    }
    QS_CHECK(run.early > 0);
    printf("%llu crash states, %llu confirmed ahead of the disk\n", (unsigned long long)run.states,
           (unsigned long long)run.early);
    return 0;
}
