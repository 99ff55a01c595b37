/* Power cuts and failing calls over streams: published to with and without a queue beside, with
 * cursors in transactions, over checkpoints, paging and retention.
 *
 * After each cut:
 *
 *   - what was durable is in the stream, nothing is there that was not published, and all of it at
 *     its offset, whole, without a gap;
 *   - the queue has exactly what the stream's messages brought to it;
 *   - a cursor is where some commit put it, not before the last durable one, and never behind the
 *     messages that its transaction published;
 *   - what retention dropped stays dropped, once that is durable.
 *
 * Bugs are planted, and found.  Arguments: seed, number of runs. */
#include "qstore/qstore.h"

#include "check.h"
#include "crash_model.h"
#include "env_test.h"
#include "qs_test_fields.h"
#include "store.h"
#include "store_stream.h"

#include <stdlib.h>

#define MESSAGES_MAX 3000
#define STEPS 50
#define CUTS_OF_STEP 40 /* every so many disk steps a cut is taken, and the one that drops all */
#define BODY_MAX 3000

enum bug {
    NO_BUG,
    NOT_SYNCED,     /* a checkpoint counts before the blocks that it names are durable */
    SHARED_PAGE,    /* a block is added to a page that has one that a checkpoint names */
    CURSOR_DIVIDED, /* a cursor is no part of the group of its messages */
    EARLY_REMOVAL,  /* files go before the checkpoint that drops them counts */
};

struct run {
    qs_env *sim;
    qs_options options;
    qs_store *store;
    qs_channel *channel, *tx;
    uint64_t lsns[MESSAGES_MAX]; /* by offset; CRASH_UNDER_WAY: during the call */
    uint64_t count;              /* offsets that were published, or may have been */
    uint64_t certain;            /* of them: accepted */
    uint64_t first, durable_first;
    uint64_t cursor, durable_cursor; /* the highest that may be there, and the least that must */
    uint64_t random, durable_lsn, cuts, violations, read;
    enum bug bug;
    bool is_small; /* checkpoints carry little, so blocks are written */
};

static uint32_t below(struct run *run, uint32_t limit)
{
    run->random = run->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((run->random >> 33) % limit);
}

static qs_slice text(const char *string)
{
    return (qs_slice){string, strlen(string)};
}

/* ---- messages: all follows from the offset ---- */

static uint32_t body_bytes(uint64_t offset)
{
    return offset % 9 == 0 ? BODY_MAX : 8 + (uint32_t)(offset % 5) * 150;
}

static bool is_persistent(uint64_t offset)
{
    return offset % 3 != 1;
}

static bool goes_to_queue(uint64_t offset)
{
    return offset % 4 < 2;
}

static void fill(uint8_t *body, uint64_t offset)
{
    for (uint32_t i = 0; i < body_bytes(offset); i++) {
        body[i] = (uint8_t)(offset * 31 + i * 7);
    }
    memcpy(body, &offset, sizeof offset);
}

static bool is_body(qs_slice body, uint64_t offset)
{
    uint8_t expected[BODY_MAX];

    fill(expected, offset);
    return body.bytes == body_bytes(offset) && memcmp(body.data, expected, body.bytes) == 0;
}

/* ---- what a recovered store shows ---- */

static void check(struct run *run, bool holds, const char *what, uint64_t number)
{
    if (!holds) {
        run->violations += 1;
        if (run->bug == NO_BUG) {
            fprintf(stderr, "%s: %" PRIu64 " (first %" PRIu64 ", count %" PRIu64 ")\n", what,
                    number, run->first, run->count);
            QS_CHECK(!"a violation");
        }
    }
}

static qs_slice cell(const struct ArrowArray *body, int64_t row)
{
    const int32_t *offsets = body->buffers[1];

    return (qs_slice){(const char *)body->buffers[2] + offsets[row],
                      (size_t)(offsets[row + 1] - offsets[row])};
}

/* Offsets and bodies only: columns 0 and 1. */
static void check_messages(struct run *run, qs_store *store, uint64_t first, uint64_t next)
{
    const qs_stream_read read = {.start = {.at = QS_STREAM_FIRST},
                                 .columns = QS_STREAM_COLUMN_BODY};
    struct ArrowSchema schema;
    struct ArrowArray array;
    qs_stream_reader *reader;
    uint64_t offset = first;
    qs_status status;

    QS_CHECK_OK(qs_stream_reader_open(&reader, store, text("s"), &read, QS_ERROR));
    while ((status = qs_stream_reader_next(reader, 500, UINT64_MAX, 0, &schema, &array,
                                           QS_ERROR)) == QS_OK) {
        const uint64_t *offsets = array.children[0]->buffers[1];
        for (int64_t row = 0; row < array.length; row++, offset++) {
            check(run, offsets[row] == offset, "a gap at", offset);
            check(run, is_body(cell(array.children[1], row), offset), "another body at", offset);
        }
        run->read += (uint64_t)array.length;
        array.release(&array);
        schema.release(&schema);
    }
    check(run, status == QS_EEMPTY, "reading ended with status", status);
    check(run, offset == next, "messages up to", offset);
    qs_stream_reader_close(reader);
}

static void check_queue(struct run *run, qs_store *store, uint64_t next)
{
    qs_channel *channel;
    qs_message message;

    QS_CHECK_OK(qs_channel_open(&channel, store, QS_ERROR));
    for (uint64_t i = 0; i < next; i++) {
        qs_status status;
        if (!goes_to_queue(i) || !is_persistent(i)) {
            continue;
        }
        status = qs_channel_get(channel, text("q"), QS_NO_ACK, &message, QS_ERROR);
        check(run, status == QS_OK && is_body(message.body, i), "the queue lacks", i);
        qs_message_release(&message);
    }
    check(run, qs_channel_get(channel, text("q"), QS_NO_ACK, &message, QS_ERROR) == QS_EEMPTY,
          "the queue has more than", next);
    qs_message_release(&message);
    qs_channel_close(channel);
}

static void check_cursor(struct run *run, qs_store *store, uint64_t next)
{
    qs_cursor cursor = {0};
    qs_status status = qs_store_cursor(store, text("s"), text("g"), &cursor, QS_ERROR);

    QS_CHECK(status == QS_OK || status == QS_EEMPTY);
    check(run, cursor.offset >= run->durable_cursor, "a cursor went back to", cursor.offset);
    check(run, cursor.offset <= run->cursor && cursor.offset <= next, "a cursor at", cursor.offset);
}

static void check_disk(struct run *run, qs_env *disk)
{
    uint64_t durable = run->count;
    qs_stream_status status;
    qs_store *store;
    qs_status opened = qs_store_open(&store, "store", &run->options, disk, QS_ERROR);

    check(run, opened == QS_OK, qs_test_error.text, opened);
    if (opened != QS_OK) {
        return;
    }
    if (qs_store_stream_status(store, text("s"), &status, NULL) != QS_OK) {
        check(run, run->certain == 0, "no stream", 0);
    } else {
        while (durable > 0 && run->lsns[durable - 1] > run->durable_lsn) {
            durable -= 1;
        }
        check(run, status.next >= durable, "durable messages are gone from", status.next);
        check(run, status.next <= run->count, "messages appear up to", status.next);
        check(run, status.first >= run->durable_first, "dropped messages are back from",
              status.first);
        check(run, status.first <= run->first, "messages were dropped up to", status.first);
        check_messages(run, store, status.first, status.next);
        check_queue(run, store, status.next);
        check_cursor(run, store, status.next);
    }
    QS_CHECK_OK(qs_store_close(store, QS_ERROR));
}

static void take_cut(struct run *run, enum qsi_cut_how how, uint64_t seed)
{
    qs_env *disk = qsi_env_sim_cut(run->sim, how, seed);

    QS_CHECK(disk != NULL);
    check_disk(run, disk);
    qsi_env_mem_destroy(disk);
    run->cuts += 1;
}

/* The store may not be asked now: durable is what was so before the call under way. */
static void at_step(void *context, uint64_t step)
{
    struct run *run = context;

    if (step % CUTS_OF_STEP < 3) {
        take_cut(run, (enum qsi_cut_how)(step % CUTS_OF_STEP), run->random + step);
    }
}

/* ---- what is done ---- */

static void plant(struct run *run)
{
    struct qsi_map_cursor walk = qsi_map_begin(&run->store->queues_by_id);

    while (qsi_map_next(&run->store->queues_by_id, &walk)) {
        const struct store_queue *queue = walk.value;
        if (queue->stream == NULL) {
            continue;
        }
        if (run->bug == NOT_SYNCED) {
            queue->stream->log.synced_next = queue->stream->log.synced_segment = UINT64_MAX;
        } else if (run->bug == SHARED_PAGE) {
            queue->stream->log.page_aligned = false;
        }
    }
    if (run->bug == EARLY_REMOVAL) {
        const struct qsi_block_file *dead = (const void *)run->store->streams.dead.data;
        for (size_t i = 0; i < run->store->streams.dead.bytes / sizeof *dead; i++) {
            (void)!qsi_block_file_remove(run->store->streams.blocks, &dead[i], NULL);
        }
    }
}

static void note_durable(struct run *run)
{
    run->durable_lsn = qs_store_durable_lsn(run->store);
}

/* Whatever was done is durable. */
static qs_status sync_all(struct run *run)
{
    qs_stream_status status;

    QS_TRY(qs_store_sync(run->store, QS_ERROR));
    QS_TRY(qs_store_stream_status(run->store, text("s"), &status, QS_ERROR));
    note_durable(run);
    run->durable_first = status.first;
    run->durable_cursor = run->cursor;
    return QS_OK;
}

/* Retention may drop during any call that makes a checkpoint. */
static void note_first(struct run *run)
{
    qs_stream_status status;

    QS_CHECK_OK(qs_store_stream_status(run->store, text("s"), &status, QS_ERROR));
    run->first = status.first;
}

static qs_status publish_on(struct run *run, qs_channel *channel)
{
    static const uint8_t persistent[] = {0x10, 0, 2}, transient[] = {0x10, 0, 1};
    uint64_t offset = run->count;
    uint8_t body[BODY_MAX];
    qs_receipt receipt;

    fill(body, offset);
    run->lsns[offset] = CRASH_UNDER_WAY;
    run->count += 1;
    QS_TRY(qs_channel_publish(channel, text(goes_to_queue(offset) ? "both" : ""), text("s"),
                              (qs_slice){is_persistent(offset) ? persistent : transient, 3},
                              (qs_slice){body, body_bytes(offset)}, 0, &receipt, QS_ERROR));
    if (channel == run->channel) {
        run->lsns[offset] = receipt.lsn;
        run->certain = run->count;
    }
    return QS_OK;
}

static qs_status publish(struct run *run)
{
    return run->count < MESSAGES_MAX ? publish_on(run, run->channel) : QS_OK;
}

/* What a consumer does that reads, processes and writes: its results and how far it is. */
static qs_status transact(struct run *run, uint32_t count)
{
    uint64_t from = run->count;
    bool repeated, rolls_back = below(run, 4) == 0;
    qs_channel *committer = run->bug == CURSOR_DIVIDED ? run->channel : run->tx;

    if (run->count + count > MESSAGES_MAX) {
        return QS_OK;
    }
    if (rolls_back) { /* as if it had not been */
        for (uint32_t i = 0; i < count; i++) {
            QS_TRY(publish_on(run, run->tx));
        }
        QS_TRY(qs_channel_commit_offset(run->tx, text("s"), text("g"), UINT64_MAX - 1, text(""), 0,
                                        NULL, QS_ERROR));
        run->count = from;
        return qs_channel_tx_rollback(run->tx, QS_ERROR);
    }
    run->cursor = from + count;
    QS_TRY(qs_channel_commit_offset(committer, text("s"), text("g"), from + count, text("own"), 0,
                                    NULL, QS_ERROR));
    for (uint32_t i = 0; i < count; i++) {
        QS_TRY(publish_on(run, run->tx));
    }
    QS_TRY(qs_channel_tx_commit(run->tx, text(""), &repeated, QS_ERROR));
    note_durable(run);
    for (uint64_t i = from; i < run->count; i++) {
        run->lsns[i] = run->durable_lsn;
    }
    run->certain = run->count;
    run->durable_cursor = run->cursor;
    return QS_OK;
}

static qs_status declare_all(struct run *run)
{
    struct qs_test_fields arguments = {.used = 0};
    qs_declare_ok ok;

    qs_test_put_long(&arguments, "x-max-messages", 100);
    qs_test_put_text(&arguments, "x-queue-type", "stream");
    qs_test_put_long(&arguments, "x-stream-max-segment-size-bytes", 20000);
    QS_TRY(qs_channel_queue_declare(run->channel, text("q"), QS_DURABLE, text(""), &ok, QS_ERROR));
    QS_TRY(qs_channel_exchange_declare(run->channel, text("both"), text("fanout"), QS_DURABLE,
                                       text(""), QS_ERROR));
    QS_TRY(
        qs_channel_queue_bind(run->channel, text("q"), text("both"), text(""), text(""), QS_ERROR));
    QS_TRY(qs_channel_queue_declare(run->channel, text("s"), QS_DURABLE,
                                    qs_test_fields_slice(&arguments), &ok, QS_ERROR));
    return qs_channel_queue_bind(run->channel, text("s"), text("both"), text(""), text(""),
                                 QS_ERROR);
}

static qs_status open_store(struct run *run, qs_env *env)
{
    QS_TRY(qs_store_open(&run->store, "store", &run->options, env, QS_ERROR));
    QS_TRY(qs_channel_open(&run->channel, run->store, QS_ERROR));
    QS_TRY(qs_channel_open(&run->tx, run->store, QS_ERROR));
    QS_TRY(qs_channel_tx_select(run->tx, QS_ERROR));
    return declare_all(run);
}

static qs_status close_store(struct run *run)
{
    qs_store *store = run->store;

    run->first = run->count; /* a checkpoint at the end may drop whatever it can */
    qs_channel_close(run->tx);
    qs_channel_close(run->channel);
    run->store = NULL;
    return qs_store_close(store, QS_ERROR);
}

static qs_status checkpoint(struct run *run)
{
    run->first = run->count;
    QS_TRY(qs_store_checkpoint(run->store, QS_ERROR));
    note_first(run);
    return QS_OK;
}

static void step(struct run *run)
{
    if (run->bug != NO_BUG) {
        plant(run);
    }
    switch (below(run, 8)) {
    case 0:
    case 1:
    case 2:
        run->first = run->count; /* a checkpoint for want of room */
        for (uint32_t n = below(run, 40); n > 0; n--) {
            QS_CHECK_OK(publish(run));
        }
        note_first(run);
        break;
    case 3:
    case 4:
        run->first = run->count;
        QS_CHECK_OK(transact(run, 1 + below(run, 8)));
        note_first(run);
        break;
    case 5:
        QS_CHECK_OK(sync_all(run));
        break;
    default:
        if (below(run, 4) == 0) {
            QS_CHECK_OK(sync_all(run));
            QS_CHECK_OK(close_store(run));
            QS_CHECK_OK(open_store(run, run->sim));
            note_first(run);
        } else {
            QS_CHECK_OK(checkpoint(run));
        }
    }
    note_durable(run);
}

static struct run *begin(uint64_t seed, enum bug bug)
{
    struct run *run = calloc(1, sizeof *run);

    QS_CHECK(run != NULL);
    run->random = seed * UINT64_C(1000003);
    run->bug = bug;
    run->sim = qsi_env_sim_create(seed);
    QS_CHECK(run->sim != NULL);
    qs_options_default(&run->options);
    run->options.background = false;
    run->options.segment_entries = 64;
    run->options.journal_file_bytes = 64 << 10;
    run->options.message_file_bytes = 64 << 10;
    run->options.embed_below = 1000;
    run->options.checkpoint_bytes = below(run, 2) == 0 || bug != NO_BUG ? 16 << 10 : 64 << 20;
    run->options.memory_budget = below(run, 2) == 0 || bug != NO_BUG ? 128 << 10 : 64 << 20;
    return run;
}

static void end(struct run *run)
{
    qsi_env_sim_destroy(run->sim);
    free(run);
}

static uint64_t play(uint64_t seed, enum bug bug, uint64_t *cuts_io, uint64_t *read_io)
{
    struct run *run = begin(seed, bug);
    uint64_t violations;

    QS_CHECK_OK(open_store(run, run->sim));
    qsi_env_sim_on_step(run->sim, at_step, run);
    for (int i = 0; i < STEPS && (bug == NO_BUG || run->violations == 0); i++) {
        step(run);
    }
    QS_CHECK_OK(sync_all(run));
    QS_CHECK_OK(close_store(run));
    qsi_env_sim_on_step(run->sim, NULL, NULL);
    take_cut(run, QSI_CUT_DROP_ALL, seed);
    *cuts_io += run->cuts;
    *read_io += run->read;
    violations = run->violations;
    end(run);
    return violations;
}

static void test_planted_bugs_are_found(uint64_t seed)
{
    static const char *const names[] = {"none", "not synced", "shared page", "cursor divided",
                                        "early removal"};

    for (enum bug bug = NOT_SYNCED; bug <= EARLY_REMOVAL; bug++) {
        uint64_t found = 0, cuts = 0, read = 0, runs = 0;
        for (; found == 0 && runs < 400; runs++) {
            found = play(seed + runs, bug, &cuts, &read);
        }
        printf("%s: %s after %" PRIu64 " runs, %" PRIu64 " cuts\n", names[bug],
               found > 0 ? "found" : "NOT FOUND", runs, cuts);
        QS_CHECK(found > 0);
    }
}

/* ---- failing calls ---- */

static qs_status try_all(struct run *run)
{
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 40; i++) {
            QS_TRY(publish(run));
        }
        QS_TRY(transact(run, 4));
        QS_TRY(sync_all(run));
        run->first = run->count;
        QS_TRY(qs_store_checkpoint(run->store, QS_ERROR));
    }
    return QS_OK;
}

/* The n-th call fails: as much as was durable is there behind a power cut. */
static bool fail_one(uint64_t seed, uint64_t n, enum qsi_fault_how how)
{
    struct run *run = begin(seed, NO_BUG);
    qs_env *fault = qsi_env_fault_create(run->sim);
    bool fired;

    QS_CHECK(fault != NULL);
    run->options.checkpoint_bytes = 16 << 10;
    QS_CHECK_OK(open_store(run, fault));
    qsi_env_fault_arm(fault, QSI_FAULT_ANY, how, n, false);
    (void)!try_all(run);
    fired = qsi_env_fault_fired(fault);
    run->first = run->count;
    qs_channel_close(run->tx);
    qs_channel_close(run->channel);
    (void)qs_store_close(run->store, NULL);
    take_cut(run, QSI_CUT_KEEP_ALL, seed + n);
    take_cut(run, QSI_CUT_DROP_ALL, seed + n);
    take_cut(run, QSI_CUT_RANDOM, seed + n);
    qsi_env_fault_destroy(fault);
    end(run);
    return fired;
}

static void test_streams_behind_a_call_that_failed(uint64_t seed)
{
    static const enum qsi_fault_how hows[] = {QSI_FAULT_EIO, QSI_FAULT_ENOSPC, QSI_FAULT_SHORT_EIO,
                                              QSI_FAULT_SYNC_LOST};
    uint64_t count = 0;

    for (size_t i = 0; i < sizeof hows / sizeof hows[0]; i++) {
        uint64_t n = 1;
        while (fail_one(seed, n, hows[i])) {
            n += 1;
        }
        count += n - 1;
    }
    printf("%" PRIu64 " failing calls\n", count);
    QS_CHECK(count > 50);
}

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);
    uint64_t runs = argc > 2 ? strtoull(argv[2], NULL, 10) : 40, cuts = 0, read = 0;

    for (uint64_t i = 0; i < runs; i++) {
        play(seed + i, NO_BUG, &cuts, &read);
    }
    printf("%" PRIu64 " cuts, %" PRIu64 " messages read\n", cuts, read);
    QS_CHECK(cuts > 10 * runs && read > runs);
    test_planted_bugs_are_found(seed);
    test_streams_behind_a_call_that_failed(seed);
    return 0;
}
