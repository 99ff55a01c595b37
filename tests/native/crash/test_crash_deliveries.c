/* Power cuts and kills over queues that count deliveries (x-delivery-limit).
 *
 * Method: messages are taken in every way, acked, given back and taken back, with checkpoints and
 * syncs in between, and at steps by chance the disk is cut and compared with how often each
 * message was handed out:
 *
 *   - a message that is not acked is there once, in its queue or in the dead letters, where only
 *     what was handed out too often may be;
 *   - when the process dies each message counts as often as it was handed out; what was under way
 *     may count already;
 *   - a power cut, or a store that failed, may forget what counted since the last sync, and
 *     nothing before it.
 *
 * A generation ends with one of these, and the next one goes on from what is left.  In some of
 * them a call fails.
 *
 * Arguments: seed, number of states. */
#include "qstore/qstore.h"

#include "env_test.h"
#include "qs_test_calls.h"
#include "qs_test_fields.h"
#include "qs_test_slices.h"
#include "splitmix.h"

#define LIMIT 3u
#define MESSAGES_MAX 48u
#define GENERATIONS 6
#define OPS 40
#define BODY_MAX 3000u /* some lie in message files */

struct message {
    uint64_t tag;        /* 0: it is not out */
    uint32_t handed;     /* out */
    uint32_t taken_back; /* and the disk may not know */
    uint32_t synced;     /* of handed: a power cut leaves them */
    bool is_acked, is_ack_synced;
    bool is_gone; /* it was not there after a crash any more */
    bool is_dead; /* it was in the dead letters */
};

struct run {
    uint64_t random;
    qs_env *sim, *env; /* env: around sim; some of its calls fail */
    qs_store *store;
    qs_channel *channel;
    struct message messages[MESSAGES_MAX];
    uint32_t count;     /* of durable messages */
    uint32_t under_way; /* deliveries that a call may have counted */
    bool cuts;
    bool is_over; /* a publish failed: nobody knows whether it is there */
    uint64_t states, handed;
};

static uint32_t below(struct run *run, uint32_t limit)
{
    return (uint32_t)qsi_splitmix_below(&run->random, limit);
}

static qs_options make_options(void)
{
    qs_options options = qs_test_small_options();

    options.segment_entries = 16;
    options.embed_below = 2000;
    return options;
}

/* ---- what must hold ---- */

/* Of each message, by its number: how often it is in the queue, and how often it counts there. */
static void read_queue(qs_store *store, const char *queue, uint32_t *copies, uint32_t *deliveries)
{
    uint64_t position = 0;
    qs_message message;
    uint32_t state;

    for (;;) {
        qs_status status = qs_store_peek(store, text(queue), &position, &state, &message, QS_ERROR);
        uint32_t number;
        if (status == QS_EEMPTY) {
            return;
        }
        QS_CHECK_OK(status);
        QS_CHECK(message.body.bytes >= sizeof number);
        memcpy(&number, message.body.data, sizeof number);
        QS_CHECK(number < MESSAGES_MAX);
        copies[number] += 1;
        if (deliveries != NULL) {
            /* Nobody has one: what is out was worn out at the open, and is removed. */
            deliveries[number] = message.delivery_count + (state == QS_MESSAGE_UNACKED ? 1 : 0);
        }
        qs_message_release(&message);
    }
}

static void check_message(const struct run *run, uint32_t number, uint32_t in_queue,
                          uint32_t in_dead, uint32_t deliveries, bool by_kill)
{
    const struct message *message = &run->messages[number];
    uint32_t most = message->handed + message->taken_back + run->under_way;
    uint32_t least = by_kill ? message->handed : message->synced;

    QS_CHECK(in_queue + in_dead <= 1);
    if (message->is_gone || message->is_ack_synced) {
        QS_CHECK(in_queue + in_dead == 0);
        return;
    }
    QS_CHECK(message->is_acked || in_queue + in_dead == 1);
    QS_CHECK(!message->is_dead || in_dead == 1);
    QS_CHECK(in_dead == 0 || most > LIMIT);
    if (in_queue == 1 && (deliveries < least || deliveries > most)) {
        fprintf(stderr, "message %u counts %u deliveries, not %u to %u, after a %s\n", number,
                deliveries, least, most, by_kill ? "kill" : "cut");
        QS_CHECK(!"count");
    }
}

/* The store is what the model says; takes over what it is. */
static void check_store(struct run *run, qs_store *store, bool by_kill, bool adopts)
{
    uint32_t copies[MESSAGES_MAX] = {0}, dead[MESSAGES_MAX] = {0}, deliveries[MESSAGES_MAX] = {0};

    read_queue(store, "q", copies, deliveries);
    read_queue(store, "dead", dead, NULL);
    for (uint32_t i = 0; i < run->count; i++) {
        check_message(run, i, copies[i], dead[i], deliveries[i], by_kill);
        if (adopts) {
            struct message *message = &run->messages[i];
            message->is_dead = dead[i] > 0;
            message->is_gone = copies[i] + dead[i] == 0;
            message->is_acked = message->is_ack_synced = false;
            message->handed = message->synced = message->is_dead ? LIMIT + 1 : deliveries[i];
            message->taken_back = 0;
            message->tag = 0;
        }
    }
}

static void check_disk(struct run *run, enum qsi_cut_how how, uint64_t seed)
{
    qs_env *mem = qsi_env_sim_cut(run->sim, how, seed);
    qs_options options = make_options();
    qs_store *store;

    QS_CHECK_OK(qs_store_open(&store, "store", &options, mem, QS_ERROR));
    /* A store that fails cuts off what was written and not synced. */
    check_store(run, store, how == QSI_CUT_KEEP_ALL && !qsi_env_fault_fired(run->env), false);
    QS_CHECK_OK(qs_store_close(store, QS_ERROR));
    qsi_env_mem_destroy(mem);
    run->states += 1;
}

static void on_step(void *context, uint64_t step)
{
    struct run *run = context;

    if (run->cuts && step % 3 == 0) {
        check_disk(run, QSI_CUT_KEEP_ALL, step);
        check_disk(run, QSI_CUT_DROP_ALL, step);
        check_disk(run, QSI_CUT_RANDOM, step);
    }
}

/* ---- work: false: the store failed ---- */

static bool went_well(qs_status status)
{
    QS_CHECK(status == QS_OK || status == QS_EEMPTY || status == QS_ESTORE_FAILED ||
             status == QS_EIO || status == QS_ESTORE_FULL || status == QS_ENOSPC);
    return status != QS_ESTORE_FAILED && status != QS_EIO;
}

static void note_synced(struct run *run)
{
    for (uint32_t i = 0; i < run->count; i++) {
        struct message *message = &run->messages[i];
        message->synced = message->handed;
        message->taken_back = 0;
        message->is_ack_synced = message->is_acked;
    }
}

static bool sync_store(struct run *run, bool by_checkpoint)
{
    qs_status status = by_checkpoint ? qs_store_checkpoint(run->store, QS_ERROR)
                                     : qs_store_sync(run->store, QS_ERROR);

    if (status == QS_OK) {
        note_synced(run);
    }
    return went_well(status);
}

/* Durable before anything else is asked of it. */
static bool publish(struct run *run)
{
    static uint8_t body[BODY_MAX];
    uint32_t bytes = below(run, 4) == 0 ? BODY_MAX : 4;

    if (run->count == MESSAGES_MAX) {
        return true;
    }
    memcpy(body, &run->count, sizeof run->count);
    if (qs_test_publish(run->channel, "", "q", PERSISTENT, (qs_slice){body, bytes}, 0) != QS_OK ||
        !sync_store(run, false)) {
        run->is_over = true;
        return false;
    }
    run->count += 1;
    return true;
}

static void note_handed(struct run *run, const qs_message *message)
{
    struct message *known;
    uint32_t number;

    memcpy(&number, message->body.data, sizeof number);
    known = &run->messages[number];
    QS_CHECK(number < run->count && known->tag == 0 && !known->is_gone && !known->is_acked);
    if (message->delivery_count != known->handed) {
        fprintf(stderr, "message %u was delivered %u times, not %u\n", number,
                message->delivery_count, known->handed);
        QS_CHECK(!"count");
    }
    QS_CHECK(message->delivery_count <= LIMIT);
    known->handed += 1;
    known->tag = message->delivery_tag;
    run->handed += 1;
}

static bool take_one(struct run *run, bool by_consumer)
{
    qs_event event = {.kind = 0};
    qs_status status;

    run->under_way = 1;
    status = by_consumer
                 ? qs_channel_next_event(run->channel, QS_EVENT_DELIVERY, 0, &event, QS_ERROR)
                 : qs_channel_get(run->channel, text("q"), 0, &event.message, QS_ERROR);
    if (status == QS_OK || status == QS_EEMPTY) {
        run->under_way = 0; /* else the write that failed may have counted */
    }
    if (status == QS_OK) {
        note_handed(run, &event.message);
        qs_message_release(&event.message);
    }
    return went_well(status);
}

static const struct ArrowArray *column(const struct ArrowSchema *schema,
                                       const struct ArrowArray *array, const char *name)
{
    for (int64_t i = 0; i < schema->n_children; i++) {
        if (strcmp(schema->children[i]->name, name) == 0) {
            return array->children[i];
        }
    }
    QS_CHECK(!"column");
    return NULL;
}

static bool take_batch(struct run *run)
{
    struct ArrowSchema schema;
    struct ArrowArray array;
    qs_status status;

    run->under_way = 1;
    status = qs_channel_get_batch(run->channel, text("q"), 1 + below(run, 20), UINT64_MAX, 0, 0,
                                  &schema, &array, QS_ERROR);
    if (status != QS_OK) {
        return went_well(status);
    }
    run->under_way = 0;
    for (int64_t row = 0; row < array.length; row++) {
        const struct ArrowArray *bodies = column(&schema, &array, "body");
        const int32_t *offsets = bodies->buffers[1];
        qs_message message = {
            .body = {(const uint8_t *)bodies->buffers[2] + offsets[row],
                     (size_t)(offsets[row + 1] - offsets[row])},
            .delivery_tag =
                ((const uint64_t *)column(&schema, &array, "delivery_tag")->buffers[1])[row],
            .delivery_count =
                ((const uint32_t *)column(&schema, &array, "delivery_count")->buffers[1])[row],
        };
        note_handed(run, &message);
    }
    schema.release(&schema);
    array.release(&array);
    return true;
}

static bool settle(struct run *run)
{
    uint32_t from = below(run, run->count + 1);

    for (uint32_t i = 0; i < run->count; i++) {
        struct message *message = &run->messages[(from + i) % run->count];
        uint64_t tag = message->tag;
        if (tag == 0) {
            continue;
        }
        message->tag = 0;
        switch (below(run, 5)) {
        case 0:
            message->is_acked = true;
            return went_well(qs_channel_ack(run->channel, tag, 0, QS_ERROR));
        case 1: /* it never reached anybody */
            message->handed -= 1;
            message->taken_back += 1;
            message->synced = message->synced < message->handed ? message->synced : message->handed;
            return went_well(qs_channel_withhold(run->channel, tag, tag, QS_ERROR)) &&
                   went_well(qs_channel_recover(run->channel, QS_REQUEUE | QS_WITHHELD, QS_ERROR));
        case 2: /* a short time or a long one */
            return went_well(qs_channel_nack(run->channel, tag, QS_REQUEUE,
                                             1 + below(run, 2) * UINT64_C(1000000000), QS_ERROR));
        default:
            return went_well(qs_channel_nack(run->channel, tag, QS_REQUEUE, 0, QS_ERROR));
        }
    }
    return true;
}

static void open_channel(struct run *run)
{
    char tag[256];

    for (uint32_t i = 0; i < run->count; i++) {
        run->messages[i].tag = 0; /* the one before gave them back */
    }
    QS_CHECK_OK(qs_channel_open(&run->channel, run->store, QS_ERROR));
    if (below(run, 2) == 0) {
        QS_CHECK_OK(qs_channel_consume(run->channel, text("q"), NONE, 0, NONE, tag, QS_ERROR));
    }
}

static bool work(struct run *run)
{
    switch (below(run, 12)) {
    case 0:
    case 1:
        return publish(run);
    case 2:
    case 3:
        return take_one(run, false);
    case 4:
        return take_one(run, true);
    case 5:
        return take_batch(run);
    case 6:
        return sync_store(run, below(run, 2) == 0);
    case 7:
        if (below(run, 3) == 0) {
            qs_channel_close(run->channel);
            open_channel(run);
        }
        return true;
    default:
        return run->count == 0 || settle(run);
    }
}

/* ---- a run ---- */

static void declare(struct run *run)
{
    struct qs_test_fields fields = {.used = 0};

    qs_test_put_long(&fields, "x-delivery-limit", LIMIT);
    qs_test_put_text(&fields, "x-dead-letter-exchange", "");
    qs_test_put_text(&fields, "x-dead-letter-routing-key", "dead");
    QS_CHECK_OK(qs_test_declare_as(run->channel, "dead", QS_DURABLE, NONE));
    qs_test_declare(run->channel, "q", QS_DURABLE, &fields);
}

enum end { BY_KILL, BY_CUT, BY_CLOSE };

static void end_store(struct run *run)
{
    qs_channel_close(run->channel);
    if (qs_store_close(run->store, QS_ERROR) != QS_OK) {
        /* A call of it had failed. */
    }
}

/* One generation; what it leaves is the next one's disk.  False: a call failed. */
static bool live(struct run *run, enum end end, qs_env **disk_out)
{
    bool goes_on = true;

    if (below(run, 3) == 0) {
        qsi_env_fault_arm(run->env, below(run, 3) == 0 ? QSI_FAULT_SYNC : QSI_FAULT_WRITE,
                          below(run, 2) == 0 ? QSI_FAULT_EIO : QSI_FAULT_SHORT_EIO,
                          1 + below(run, 60), false);
    }
    run->cuts = true;
    for (int i = 0; i < OPS && goes_on; i++) {
        qsi_env_sim_advance(run->sim, 1000000);
        goes_on = work(run);
    }
    run->cuts = false;
    qsi_env_fault_arm(run->env, QSI_FAULT_WRITE, QSI_FAULT_EIO, 0, false);
    if (end == BY_CLOSE && goes_on) {
        qs_channel_close(run->channel);
        QS_CHECK_OK(qs_store_close(run->store, QS_ERROR));
    }
    *disk_out = qsi_env_sim_cut(run->sim,
                                end != BY_CUT        ? QSI_CUT_KEEP_ALL
                                : below(run, 2) == 0 ? QSI_CUT_RANDOM
                                                     : QSI_CUT_DROP_ALL,
                                run->random);
    if (end != BY_CLOSE || !goes_on) {
        end_store(run);
    }
    return goes_on;
}

static void start(struct run *run, qs_env *disk, bool by_kill)
{
    qs_options options = make_options();

    run->sim =
        disk == NULL ? qsi_env_sim_create(run->random) : qsi_env_sim_from_mem(disk, run->random);
    run->env = qsi_env_fault_create(run->sim);
    qsi_env_sim_on_step(run->sim, on_step, run);
    QS_CHECK_OK(qs_store_open(&run->store, "store", &options, run->env, QS_ERROR));
    if (disk != NULL) {
        check_store(run, run->store, by_kill, true);
    } else {
        QS_CHECK_OK(qs_channel_open(&run->channel, run->store, QS_ERROR));
        declare(run);
        qs_channel_close(run->channel);
    }
    run->under_way = 0;
    open_channel(run);
}

static void run_generations(struct run *run)
{
    qs_env *disk = NULL;
    bool by_kill = true;

    for (int i = 0; i < GENERATIONS && !run->is_over; i++) {
        enum end end = (enum end)below(run, 3);
        start(run, disk, by_kill);
        by_kill = live(run, end, &disk) && end != BY_CUT;
        qsi_env_fault_destroy(run->env);
        qsi_env_sim_destroy(run->sim);
    }
    if (!run->is_over) {
        start(run, disk, by_kill);
        end_store(run);
        qsi_env_fault_destroy(run->env);
        qsi_env_sim_destroy(run->sim);
    } else {
        qsi_env_mem_destroy(disk);
    }
}

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);
    uint64_t wanted = argc > 2 ? strtoull(argv[2], NULL, 0) : 6000;
    uint64_t states = 0, handed = 0;

    for (; states < wanted; seed++) {
        struct run run = {.random = seed};
        run_generations(&run);
        states += run.states;
        handed += run.handed;
    }
    printf("%" PRIu64 " states, %" PRIu64 " deliveries\n", states, handed);
    QS_CHECK(handed > 0);
    return 0;
}
