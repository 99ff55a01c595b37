/* Power cuts and failing calls over work queues: two of them read one stream and settle what they
 * got in every way, over checkpoints, paging, retention and restarts.
 *
 *   w   settles as it comes: acks, requeues, rejects that become dead letters in d, transactions
 *       that publish into the stream what they made of a message, purges; retention passes it
 *   p   x-stream-pin: retention waits for it; a message is delivered three times at most
 *
 * After each cut, of the messages that are in the stream or were, each
 *
 *   - that was durable and that nobody settled is in the queue, once, whole and in order; in w
 *     unless retention passed it, in p whatever retention did;
 *   - that was settled durably is not;
 *   - that was rejected is in w or in d, not in both;
 *
 * and nothing is there that the stream does not have.  While it runs nobody gets what is not
 * durable.  Bugs are planted, and found.  Arguments: seed, number of states. */
#include "qstore/qstore.h"

#include "check.h"
#include "crash_run.h"
#include "failing_calls.h"
#include "qs_test_calls.h"
#include "qs_test_fields.h"
#include "qs_test_slices.h"
#include "store.h"
#include "store_stream.h"
#include "store_work.h"
#include "work.h"

#define MESSAGES_MAX 1200
#define HELD_MAX 64
#define STEPS 60
#define BODY_MAX 2600
#define STATES 40000     /* of plain runs */
#define BUG_STATES 20000 /* after which a planted bug must have been found */

/* Each failing call in turn; with the sanitizer, which takes ten times as long, one in four. */
#ifdef __SANITIZE_ADDRESS__
#define SWEEP_STEP 4
#else
#define SWEEP_STEP 1
#endif

enum bug {
    NO_BUG,
    SEEN_EARLY,  /* a work queue gets what is not durable yet */
    NOT_PINNED,  /* retention passes a queue with x-stream-pin */
    STATE_AHEAD, /* a checkpoint says that a message was settled which was not */
    STATE_BEHIND /* and the other way round */
};

enum fate { LIVE, TRIED, SETTLED, UNKNOWN }; /* not settled; perhaps; durably */

struct reader {
    const char *name;
    bool pins;
    qs_channel *channel;
    uint8_t fates[MESSAGES_MAX];
    uint64_t tags[HELD_MAX], offsets[HELD_MAX];
    uint32_t held;
};

struct run {
    qs_env *sim;
    qs_options options;
    qs_store *store;
    qs_channel *channel;
    struct reader w, p;
    uint8_t rejected[MESSAGES_MAX]; /* of w: perhaps a dead letter; fates say nothing of them */
    uint64_t lsns[MESSAGES_MAX];    /* by offset; CRASH_UNDER_WAY: during the call */
    uint64_t count, certain;        /* offsets that may have been published, and that were */
    uint64_t random, durable_lsn, cuts, violations, settled;
    uint32_t cut_share; /* one in so many disk steps has cuts, by chance */
    enum bug bug;
};

static uint32_t below(struct run *run, uint32_t limit)
{
    return (uint32_t)qsi_splitmix_below(&run->random, limit);
}

static void check(struct run *run, bool holds, const char *what, uint64_t number)
{
    if (!holds) {
        run->violations += 1;
        if (run->bug == NO_BUG) {
            fprintf(stderr, "%s: %" PRIu64 " (count %" PRIu64 ")\n", what, number, run->count);
            QS_CHECK(!"a violation");
        }
    }
}

/* ---- messages: all follows from the offset ---- */

static uint32_t body_bytes(uint64_t offset)
{
    return offset % 11 == 0 ? BODY_MAX : 8 + (uint32_t)(offset % 5) * 100;
}

static bool goes_to_queue(uint64_t offset) /* and so its body is in the message store, if large */
{
    return offset % 4 == 0;
}

/* Bytes of all bodies: each has a stretch of them behind its offset. */
static uint8_t pattern[256 + BODY_MAX];

static const uint8_t *bytes_of(uint64_t offset)
{
    return pattern + (offset * 31 & 255);
}

static void fill(uint8_t *body, uint64_t offset)
{
    memcpy(body, bytes_of(offset), body_bytes(offset));
    memcpy(body, &offset, sizeof offset);
}

/* MESSAGES_MAX: it is none of them. */
static uint64_t offset_of(qs_slice body)
{
    uint64_t offset = MESSAGES_MAX;
    size_t head = sizeof offset;

    if (body.bytes < head) {
        return MESSAGES_MAX;
    }
    memcpy(&offset, body.data, head);
    return offset < MESSAGES_MAX && body.bytes == body_bytes(offset) &&
                   memcmp((const uint8_t *)body.data + head, bytes_of(offset) + head,
                          body.bytes - head) == 0
               ? offset
               : MESSAGES_MAX;
}

/* ---- what a recovered store shows ---- */

/* How often each message is in the queue, whose order is that of the stream. */
static void drain(struct run *run, qs_store *store, const char *queue, bool in_order,
                  uint8_t counts[MESSAGES_MAX])
{
    uint64_t next = 0;
    qs_channel *channel;
    qs_message message;
    qs_status status;

    memset(counts, 0, MESSAGES_MAX);
    QS_CHECK_OK(qs_channel_open(&channel, store, QS_ERROR));
    while ((status = qs_channel_get(channel, text(queue), QS_NO_ACK, &message, QS_ERROR)) ==
           QS_OK) {
        uint64_t offset = offset_of(message.body);
        check(run, offset < run->count, "a message that nobody published", offset);
        check(run, !in_order || offset >= next, "out of order", offset);
        next = offset + 1;
        if (offset < MESSAGES_MAX) {
            counts[offset] += 1;
        }
        qs_message_release(&message);
    }
    check(run, status == QS_EEMPTY || status == QS_NOT_FOUND, "draining ended with", status);
    if (status != QS_NOT_FOUND) {
        qs_channel_close(channel);
    } else {
        qs_channel_close(channel);
        memset(counts, UINT8_MAX, MESSAGES_MAX);
    }
}

static void check_reader(struct run *run, const struct reader *reader, const uint8_t *counts,
                         const uint8_t *dead, uint64_t first, uint64_t next, uint64_t durable)
{
    for (uint64_t offset = 0; offset < run->count; offset++) {
        enum fate fate = (enum fate)reader->fates[offset];
        uint32_t found = counts[offset] + (dead != NULL ? dead[offset] : 0u);
        bool passed = !reader->pins && offset < first;
        check(run, found <= 1, "twice in the queue", offset);
        check(run, found == 0 || offset < next, "not in the stream", offset);
        check(run, fate != SETTLED || found == 0, "settled, and back", offset);
        if (fate == LIVE && offset < durable && !passed) {
            check(run, found == 1, reader->pins ? "p lacks" : "w lacks", offset);
        }
        check(run, dead == NULL || dead[offset] == 0 || run->rejected[offset] != 0,
              "a dead letter of what was not rejected", offset);
    }
}

static void check_disk(struct run *run, qs_env *disk)
{
    static uint8_t of_w[MESSAGES_MAX], of_p[MESSAGES_MAX], dead[MESSAGES_MAX];
    uint64_t durable = run->count;
    qs_stream_status status;
    qs_store *store;
    qs_status opened = qs_store_open(&store, "store", &run->options, disk, QS_ERROR);

    check(run, opened == QS_OK, qs_test_error.text, opened);
    if (opened != QS_OK) {
        return;
    }
    if (qs_store_stream_status(store, text("s"), &status, NULL) == QS_OK) {
        while (durable > 0 && run->lsns[durable - 1] > run->durable_lsn) {
            durable -= 1;
        }
        drain(run, store, "w", true, of_w);
        drain(run, store, "p", true, of_p);
        drain(run, store, "d", false, dead);
        if (of_w[0] == UINT8_MAX || of_p[0] == UINT8_MAX || dead[0] == UINT8_MAX) {
            check(run, run->certain == 0, "a queue is gone", 0);
        } else {
            check_reader(run, &run->w, of_w, dead, status.first, status.next, durable);
            check_reader(run, &run->p, of_p, NULL, status.first, status.next, durable);
        }
    } else {
        check(run, run->certain == 0, "no stream", 0);
    }
    QS_CHECK_OK(qs_store_close(store, QS_ERROR));
}

static void take_cut(struct run *run, enum qsi_cut_how how, uint64_t seed)
{
    qs_env *disk = qsi_env_sim_cut(run->sim, how, seed);

    check_disk(run, disk);
    qsi_env_mem_destroy(disk);
    run->cuts += 1;
}

/* The store may not be asked now: durable is what was so before the call under way. */
static void at_step(void *context, uint64_t step)
{
    struct run *run = context;
    uint64_t random = run->random ^ step;

    if (qsi_splitmix_below(&random, run->cut_share) == 0 && run->violations == 0) {
        take_cut(run, QSI_CUT_DROP_ALL, step);
        take_cut(run, QSI_CUT_KEEP_ALL, step);
        take_cut(run, QSI_CUT_RANDOM, step);
    }
}

/* ---- what is done ---- */

static void plant_in(struct run *run, struct qsi_store_queue *queue)
{
    struct qsi_queue *core = &queue->core;

    if (run->bug == SEEN_EARLY) {
        (void)qsi_work_raise(core, queue->source->messages->next_seq);
    } else if (run->bug == NOT_PINNED) {
        queue->pins = false;
    } else if (run->bug == STATE_AHEAD && qsi_work_rest(core) > 0 && below(run, 4) == 0) {
        qsi_work_lose(core, core->container.next_seq, core->container.next_seq + 1);
    } else if (run->bug == STATE_BEHIND) {
        for (uint32_t i = 0; i < core->segment_count; i++) {
            struct qsi_segment *segment = core->segments[core->first_segment + i];
            uint64_t wrong = segment->settled != NULL ? segment->settled[0] : 0;
            uint64_t seq =
                qsi_queue_first_seq(core, segment) + (uint64_t)segment->word_base * QSI_WORD_BITS;
            wrong &= -wrong;
            if (wrong != 0 && segment->ready_count > 0 &&
                qsi_queue_run_of(core, seq + (uint32_t)__builtin_ctzll(wrong)) == NULL) {
                segment->settled[0] &= ~wrong;
                segment->first_word = segment->word_base;
                segment->ready_count += 1;
                core->ready_count += 1;
                return;
            }
        }
    }
}

static void plant(struct run *run)
{
    struct qsi_map_cursor walk = qsi_map_begin(&run->store->queues_by_id);

    while (run->bug != NO_BUG && qsi_map_next(&run->store->queues_by_id, &walk)) {
        struct qsi_store_queue *queue = walk.value;
        if (queue->source != NULL) {
            plant_in(run, queue);
        }
    }
}

static void note_durable(struct run *run)
{
    run->durable_lsn = qs_store_durable_lsn(run->store);
}

static void settle_tried(struct reader *reader)
{
    for (uint32_t i = 0; i < MESSAGES_MAX; i++) {
        reader->fates[i] = reader->fates[i] == TRIED ? SETTLED : reader->fates[i];
    }
}

/* Whatever was done is durable. */
static qs_status sync_all(struct run *run)
{
    QS_TRY(qs_store_sync(run->store, QS_ERROR));
    note_durable(run);
    settle_tried(&run->w);
    settle_tried(&run->p);
    return QS_OK;
}

static qs_status publish_on(struct run *run, qs_channel *channel)
{
    uint64_t offset = run->count;
    uint8_t body[BODY_MAX];
    qs_receipt receipt;

    fill(body, offset);
    run->lsns[offset] = CRASH_UNDER_WAY;
    run->count += 1;
    QS_TRY(qs_channel_publish(channel, text(goes_to_queue(offset) ? "both" : ""), text("s"),
                              PERSISTENT, (qs_slice){body, body_bytes(offset)}, 0, 0, &receipt,
                              QS_ERROR));
    if (channel == run->channel) {
        run->lsns[offset] = receipt.lsn;
        run->certain = run->count;
    }
    return QS_OK;
}

static qs_status publish(struct run *run, uint32_t count)
{
    for (; count > 0 && run->count < MESSAGES_MAX; count--) {
        QS_TRY(publish_on(run, run->channel));
    }
    note_durable(run);
    return QS_OK;
}

static qs_status get(struct run *run, struct reader *reader)
{
    qs_message message;
    qs_status status;
    uint64_t offset;

    if (reader->held == HELD_MAX) {
        return QS_OK;
    }
    status = qs_channel_get(reader->channel, text(reader->name), 0, &message, QS_ERROR);
    if (status == QS_EEMPTY) {
        return QS_OK;
    }
    QS_TRY(status);
    offset = offset_of(message.body);
    check(run, offset < run->count, "got what nobody published", offset);
    note_durable(run);
    if (offset < run->count) {
        check(run, run->lsns[offset] <= run->durable_lsn, "got what is not durable", offset);
        check(run, reader->fates[offset] == LIVE || reader->fates[offset] == UNKNOWN,
              "got what was settled", offset);
        reader->tags[reader->held] = message.delivery_tag;
        reader->offsets[reader->held++] = offset;
    }
    qs_message_release(&message);
    return QS_OK;
}

static void forget(struct reader *reader, uint32_t i)
{
    reader->held -= 1;
    reader->tags[i] = reader->tags[reader->held];
    reader->offsets[i] = reader->offsets[reader->held];
}

static qs_status ack(struct run *run, struct reader *reader, uint32_t i)
{
    uint64_t tag = reader->tags[i];

    reader->fates[reader->offsets[i]] = TRIED;
    forget(reader, i);
    run->settled += 1;
    return qs_channel_ack(reader->channel, tag, 0, QS_ERROR);
}

/* Of p: the third time is the last.  How often is not modelled: it may be gone from now on. */
static qs_status requeue(struct run *run, struct reader *reader, uint32_t i)
{
    uint64_t tag = reader->tags[i];

    if (reader == &run->p) {
        return ack(run, reader, i);
    }
    forget(reader, i);
    return qs_channel_nack(reader->channel, tag, QS_REQUEUE, 0, QS_ERROR);
}

static qs_status reject(struct run *run, struct reader *reader, uint32_t i)
{
    uint64_t tag = reader->tags[i];

    if (reader == &run->p) {
        return ack(run, reader, i);
    }
    run->rejected[reader->offsets[i]] = 1;
    reader->fates[reader->offsets[i]] = LIVE; /* here or there */
    forget(reader, i);
    return qs_channel_nack(reader->channel, tag, 0, 0, QS_ERROR);
}

static qs_status transact_on(struct run *run, struct reader *reader, qs_channel *tx)
{
    uint64_t from = run->count;

    QS_TRY(qs_channel_tx_select(tx, QS_ERROR));
    for (uint32_t i = 0; i < 3; i++) {
        qs_message message;
        qs_status status = qs_channel_get(tx, text(reader->name), 0, &message, QS_ERROR);
        if (status == QS_EEMPTY) {
            break;
        }
        QS_TRY(status);
        reader->fates[offset_of(message.body)] = TRIED;
        qs_message_release(&message);
        QS_TRY(qs_channel_ack(tx, message.delivery_tag, 0, QS_ERROR));
        QS_TRY(publish_on(run, tx));
    }
    QS_TRY(qs_test_commit(tx, text(""), 0));
    note_durable(run);
    if (run->count == from) { /* nothing was committed, and nothing waited for */
        return QS_OK;
    }
    for (uint64_t i = from; i < run->count; i++) {
        run->lsns[i] = run->durable_lsn;
    }
    run->certain = run->count;
    settle_tried(&run->w);
    settle_tried(&run->p);
    return QS_OK;
}

/* The message, and what was made of it, in one group. */
static qs_status transact(struct run *run, struct reader *reader)
{
    qs_channel *tx;
    qs_status status;

    if (run->count + 3 > MESSAGES_MAX || reader->held > 0) {
        return QS_OK;
    }
    QS_TRY(qs_channel_open(&tx, run->store, QS_ERROR));
    status = transact_on(run, reader, tx);
    qs_channel_close(tx);
    return status;
}

static qs_status purge(struct run *run, struct reader *reader)
{
    uint64_t count;

    for (uint64_t i = 0; i < run->count; i++) {
        bool held = false;
        for (uint32_t k = 0; k < reader->held; k++) {
            held = held || reader->offsets[k] == i;
        }
        /* what is not visible yet stays, and so do dead letters, wherever they are */
        if (!held && run->lsns[i] <= qs_store_durable_lsn(run->store)) {
            reader->fates[i] = reader == &run->w && run->rejected[i] != 0 ? UNKNOWN : TRIED;
        }
    }
    QS_TRY(qs_channel_queue_purge(reader->channel, text(reader->name), 0, &count, QS_ERROR));
    note_durable(run);
    if (count > 0) { /* else nothing was committed, and nothing waited for */
        settle_tried(reader);
    }
    return QS_OK;
}

/* ---- the store ---- */

static qs_status declare_reader(struct run *run, struct reader *reader)
{
    struct qs_test_fields arguments = {.used = 0};

    if (!reader->pins) {
        qs_test_put_text(&arguments, "x-dead-letter-exchange", "");
        qs_test_put_text(&arguments, "x-dead-letter-routing-key", "d");
    } else {
        qs_test_put_long(&arguments, "x-delivery-limit", 50);
    }
    qs_test_put_text(&arguments, "x-stream-offset", "first");
    if (reader->pins) {
        qs_test_put_name(&arguments, "x-stream-pin", 't');
        arguments.bytes[arguments.used++] = 1;
    }
    qs_test_put_text(&arguments, "x-stream-source", "s");
    QS_TRY(qs_test_declare_as(run->channel, reader->name, QS_DURABLE,
                              qs_test_fields_slice(&arguments)));
    return qs_channel_open(&reader->channel, run->store, QS_ERROR);
}

static qs_status declare_all(struct run *run)
{
    struct qs_test_fields arguments = qs_test_fields_of(
        "x-max-messages=100 x-queue-type=stream x-stream-max-segment-size-bytes=15000");

    QS_TRY(qs_test_declare_as(run->channel, "s", QS_DURABLE, qs_test_fields_slice(&arguments)));
    QS_TRY(qs_test_declare_as(run->channel, "d", QS_DURABLE, text("")));
    QS_TRY(qs_test_declare_as(run->channel, "q", QS_DURABLE, text("")));
    QS_TRY(qs_test_declare_exchange(run->channel, "both", "fanout", QS_DURABLE));
    QS_TRY(qs_test_bind(run->channel, "q", "both", "", 0));
    QS_TRY(qs_test_bind(run->channel, "s", "both", "", 0));
    QS_TRY(declare_reader(run, &run->w));
    return declare_reader(run, &run->p);
}

static qs_status open_store(struct run *run, qs_env *env)
{
    QS_TRY(qs_store_open(&run->store, "store", &run->options, env, QS_ERROR));
    QS_TRY(qs_channel_open(&run->channel, run->store, QS_ERROR));
    return declare_all(run);
}

static void close_channels(struct run *run)
{
    qs_channel_close(run->w.channel);
    qs_channel_close(run->p.channel);
    qs_channel_close(run->channel);
    run->w.channel = run->p.channel = run->channel = NULL;
    run->w.held = run->p.held = 0;
}

static qs_status close_store(struct run *run)
{
    qs_store *store = run->store;

    close_channels(run);
    run->store = NULL;
    return qs_store_close(store, QS_ERROR);
}

static qs_status work(struct run *run, struct reader *reader)
{
    for (uint32_t n = below(run, 30); n > 0; n--) {
        QS_TRY(get(run, reader));
        if (reader->held > 0 && below(run, 4) != 0) {
            uint32_t i = below(run, reader->held), how = below(run, 10);
            QS_TRY(how == 0   ? requeue(run, reader, i)
                   : how == 1 ? reject(run, reader, i)
                              : ack(run, reader, i));
        }
    }
    note_durable(run);
    return QS_OK;
}

static qs_status step(struct run *run)
{
    struct reader *reader = below(run, 3) == 0 ? &run->p : &run->w;

    plant(run);
    switch (below(run, 12)) {
    case 0:
    case 1:
    case 2:
        return publish(run, below(run, 40));
    case 3:
    case 4:
    case 5:
    case 6:
        return work(run, reader);
    case 7:
        return transact(run, reader);
    case 8:
        QS_TRY(below(run, 8) == 0 ? purge(run, reader) : QS_OK);
        return sync_all(run);
    case 9:
        QS_TRY(sync_all(run));
        return qs_store_checkpoint(run->store, QS_ERROR);
    case 10:
        if (below(run, 3) == 0) {
            QS_TRY(sync_all(run));
            QS_TRY(close_store(run));
            return open_store(run, run->sim);
        }
        return sync_all(run);
    default:
        return qs_store_checkpoint(run->store, QS_ERROR);
    }
}

static struct run *begin(uint64_t seed, enum bug bug)
{
    struct run *run = calloc(1, sizeof *run);

    QS_CHECK(run != NULL);
    run->random = seed * UINT64_C(1000003);
    run->cut_share = bug == NO_BUG ? 4 + below(run, 12) : 2;
    run->bug = bug;
    run->w.name = "w";
    run->p.name = "p";
    run->p.pins = true;
    run->sim = qsi_env_sim_create(seed);
    run->options = qs_test_small_options();
    run->options.segment_entries = 64;
    run->options.embed_below = 1000;
    run->options.checkpoint_bytes = below(run, 2) == 0 ? 16 << 10 : 64 << 20;
    run->options.memory_budget = below(run, 2) == 0 ? 128 << 10 : 64 << 20;
    return run;
}

static void end(struct run *run)
{
    qsi_env_sim_destroy(run->sim);
    free(run);
}

static uint64_t play(uint64_t seed, enum bug bug, uint64_t *cuts_io, uint64_t *settled_io)
{
    struct run *run = begin(seed, bug);
    uint64_t violations;

    QS_CHECK_OK(open_store(run, run->sim));
    qsi_env_sim_on_step(run->sim, at_step, run);
    for (int i = 0; i < STEPS && (bug == NO_BUG || run->violations == 0); i++) {
        QS_CHECK_OK(step(run));
    }
    QS_CHECK_OK(sync_all(run));
    QS_CHECK_OK(close_store(run));
    qsi_env_sim_on_step(run->sim, NULL, NULL);
    take_cut(run, QSI_CUT_DROP_ALL, seed);
    *cuts_io += run->cuts;
    *settled_io += run->settled;
    violations = run->violations;
    end(run);
    return violations;
}

static void test_planted_bugs_are_found(uint64_t seed)
{
    static const char *const names[] = {"none", "seen early", "not pinned", "state ahead",
                                        "state behind"};

    for (enum bug bug = SEEN_EARLY; bug <= STATE_BEHIND; bug++) {
        uint64_t found = 0, cuts = 0, settled = 0;
        for (uint64_t run = seed; found == 0 && cuts < BUG_STATES; run++) {
            found = play(run, bug, &cuts, &settled);
        }
        printf("%s: %s after %" PRIu64 " states\n", names[bug], found > 0 ? "found" : "NOT FOUND",
               cuts);
        QS_CHECK(found > 0);
    }
}

/* ---- failing calls ---- */

static qs_status try_all(struct run *run)
{
    for (int round = 0; round < 4; round++) {
        QS_TRY(publish(run, 40));
        QS_TRY(sync_all(run));
        QS_TRY(work(run, &run->w));
        QS_TRY(transact(run, &run->p));
        QS_TRY(work(run, &run->p));
        QS_TRY(sync_all(run));
        QS_TRY(qs_store_checkpoint(run->store, QS_ERROR));
    }
    return QS_OK;
}

/* The n-th call fails: what was durable is there behind a power cut; what was settled is not. */
static bool fail_one(uint64_t seed, uint64_t n, enum qsi_fault_how how)
{
    struct run *run = begin(seed, NO_BUG);
    qs_env *fault = qsi_env_fault_create(run->sim);
    bool fired;

    run->options.checkpoint_bytes = 16 << 10;
    QS_CHECK_OK(open_store(run, fault));
    qsi_env_fault_arm(fault, QSI_FAULT_ANY, how, n, false);
    (void)!try_all(run);
    fired = qsi_env_fault_fired(fault);
    close_channels(run);
    (void)qs_store_close(run->store, NULL);
    take_cut(run, QSI_CUT_KEEP_ALL, seed + n);
    take_cut(run, QSI_CUT_DROP_ALL, seed + n);
    take_cut(run, QSI_CUT_RANDOM, seed + n);
    qsi_env_fault_destroy(fault);
    end(run);
    return fired;
}

static void test_work_queues_behind_a_call_that_failed(uint64_t seed)
{
    uint64_t count = fail_each_call(fail_one, seed, SWEEP_STEP);

    printf("%" PRIu64 " calls, one in %d fails\n", count, SWEEP_STEP);
    QS_CHECK(count > 50);
}

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv), states = 0, settled = 0;
    uint64_t state_count = crash_state_count(argc, argv, STATES);
    double began = crash_seconds();

    for (size_t i = 0; i < sizeof pattern; i++) {
        pattern[i] = (uint8_t)(i * 7);
    }
    for (uint64_t run = seed; states < state_count; run++) {
        play(run, NO_BUG, &states, &settled);
    }
    printf("%" PRIu64 " crash states, %" PRIu64 " messages settled, %.0f states/s\n", states,
           settled, (double)states / (crash_seconds() - began));
    QS_CHECK(settled > states / 10);
    test_planted_bugs_are_found(seed);
    test_work_queues_behind_a_call_that_failed(seed);
    return 0;
}
