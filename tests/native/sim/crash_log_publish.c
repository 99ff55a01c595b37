/* Work on streams that publishes, takes and commits offsets, alone and in transactions. */
#include "crash_log.h"
#include "qs_test_batch.h"

#define TX_CHANGES_MAX 10

static const char *const targets[] = {"s0", "s1", "s2", "q"}; /* the last LOG_STREAMS + 1 */

static uint32_t any_bytes(struct log_work *work)
{
    return log_below(work, 8) == 0 ? 200 + log_below(work, 3000) : 8 + log_below(work, 200);
}

/* ---- publishing ---- */

static void expect(struct log_work *work, struct log_state *state, uint32_t target, uint64_t id,
                   uint32_t bytes, bool persistent)
{
    if (target == LOG_STREAMS) {
        log_model_add_queued(work->model, id, bytes, !persistent);
    } else if (state->streams[target].life > 0) {
        log_model_add(work->model, state, target, id, bytes);
    }
}

static qs_status publish_to(struct log_work *work, struct log_state *state, qs_channel *channel,
                            uint32_t target, uint32_t bytes)
{
    bool is_persistent = log_below(work, 5) > 0, fans = target > LOG_STREAMS;
    uint64_t id = work->model->next_id++;
    uint8_t body[4096];
    qs_receipt receipt;

    for (uint32_t i = 0; fans && i <= LOG_STREAMS; i++) {
        if (i == LOG_STREAMS || state->streams[i].is_bound) {
            expect(work, state, i, id, bytes, is_persistent);
        }
    }
    if (!fans) {
        expect(work, state, target, id, bytes, is_persistent);
    }
    crash_body_fill(body, id, bytes);
    return qs_channel_publish(
        channel, text(fans ? "fan" : ""), text(fans ? "eu.rome" : targets[target]),
        is_persistent ? PERSISTENT : TRANSIENT, (qs_slice){body, bytes}, 0, 0, &receipt, QS_ERROR);
}

static uint32_t any_target(struct log_work *work)
{
    return log_below(work, LOG_STREAMS + 2);
}

void log_publish(struct log_work *work)
{
    for (uint32_t n = 1 + log_below(work, 25); n > 0 && !work->is_over; n--) {
        struct log_state *state = log_model_begin(work->model);
        log_end_call(work,
                     publish_to(work, state, work->channel, any_target(work), any_bytes(work)),
                     "publish");
    }
}

/* Rows to all (target LOG_STREAMS + 1), or to one stream alone; then they may be large. */
void log_publish_batch(struct log_work *work, uint32_t only, uint32_t rows, bool is_large)
{
    struct log_state *state = log_model_begin(work->model), before = *state;
    struct qs_test_batch batch;
    qs_receipt receipt;
    qs_batch made;

    qs_test_batch_init(&batch);
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t target = only <= LOG_STREAMS ? only : log_below(work, LOG_STREAMS + 1);
        uint32_t bytes = is_large ? 1000 + log_below(work, 2000) : 8 + log_below(work, 300);
        uint64_t id = work->model->next_id++;
        bool is_persistent = log_below(work, 5) > 0;
        crash_body_fill(qs_test_batch_add(&batch, targets[target], bytes), id, bytes);
        qs_test_batch_set_mode(&batch, is_persistent ? 2 : 1);
        expect(work, state, target, id, bytes, is_persistent);
    }
    if (is_large && only < LOG_STREAMS) {
        state->streams[only].least = before.streams[only].next;
    }
    made = qs_test_batch_finish(&batch);
    log_end_call(work, qs_channel_publish_batch(work->channel, &made, &receipt, QS_ERROR),
                 "publish a batch");
    qs_test_batch_fini(&batch);
}

void log_publish_any_batch(struct log_work *work)
{
    bool is_large = log_below(work, 4) == 0;

    if (is_large || log_below(work, 3) == 0) {
        log_publish_batch(work, log_below(work, LOG_STREAMS),
                          is_large ? LOG_LARGE_ROWS : 1 + log_below(work, 30), is_large);
    } else {
        log_publish_batch(work, LOG_STREAMS + 1, 1 + log_below(work, 30), false);
    }
}

/* ---- cursors and transactions ---- */

static qs_status commit_offset(struct log_work *work, struct log_state *state, qs_channel *channel,
                               uint32_t stream)
{
    static const char *const groups[] = {"a", "b"};
    uint32_t group = log_below(work, LOG_GROUPS - 1);
    uint64_t offset = log_below(work, 1000);

    state->streams[stream].cursors[group] = offset;
    return qs_channel_commit_offset(channel, log_stream_name(stream), text(groups[group]), offset,
                                    text("own"), 0, NULL, QS_ERROR);
}

void log_commit_cursor(struct log_work *work)
{
    uint32_t stream = log_below(work, LOG_STREAMS);
    struct log_state *state;

    if (work->model->states[work->model->last].streams[stream].life > 0) {
        state = log_model_begin(work->model);
        log_end_call(work, commit_offset(work, state, work->channel, stream), "commit an offset");
    }
}

static struct log_message *queue_head(struct log_model *model)
{
    for (uint32_t i = 0; i < model->queue_count; i++) {
        if (model->queue[i].settled == LOG_EVER && model->queue[i].published <= model->last) {
            return &model->queue[i];
        }
    }
    return NULL;
}

/* The first message of the queue, which goes with this call. */
static qs_status take(struct log_work *work, qs_channel *channel)
{
    struct log_message *head = queue_head(work->model);
    qs_message message;
    qs_status status;

    if (head == NULL) {
        return QS_OK;
    }
    head->settled = work->model->last + 1;
    QS_TRY(qs_channel_get(channel, text("q"), channel == work->tx ? 0 : QS_NO_ACK, &message,
                          QS_ERROR));
    if (crash_body_id(message.body) != head->id) {
        crash_violation(work->report, "q: %" PRIu64 " comes where %" PRIu64 " should",
                        crash_body_id(message.body), head->id);
    }
    status = channel == work->tx ? qs_channel_ack(channel, message.delivery_tag, false, QS_ERROR)
                                 : QS_OK;
    qs_message_release(&message);
    return status;
}

static qs_status transact_once(struct log_work *work, struct log_state *state, bool settles)
{
    uint32_t stream = log_below(work, LOG_STREAMS);

    switch (log_below(work, 4)) {
    case 0:
        return settles ? take(work, work->tx) : QS_OK;
    case 1:
        return state->streams[stream].life == 0
                   ? QS_OK
                   : commit_offset(work, state,
                                   work->bug == LOG_CURSOR_DIVIDED ? work->channel : work->tx,
                                   stream);
    default:
        return publish_to(work, state, work->tx, any_target(work), any_bytes(work));
    }
}

void log_transact(struct log_work *work)
{
    struct log_state *state = log_model_begin(work->model), before = *state;
    bool rolls_back = log_below(work, 4) == 0, repeated;
    uint32_t queued = work->model->queue_count;

    for (uint32_t n = 1 + log_below(work, TX_CHANGES_MAX); n > 0; n--) {
        if (!log_done(work, transact_once(work, state, !rolls_back), "transact")) {
            return;
        }
    }
    if (rolls_back) {
        *state = before;
        work->model->queue_count = queued;
        log_end_call(work, qs_channel_tx_rollback(work->tx, QS_ERROR), "roll back");
    } else {
        log_end_call(work, qs_channel_tx_commit(work->tx, text(""), 0, &repeated, QS_ERROR),
                     "commit");
    }
}

void log_get(struct log_work *work)
{
    for (uint32_t n = log_below(work, 20); n > 0 && !work->is_over; n--) {
        (void)log_model_begin(work->model);
        log_end_call(work, take(work, work->channel), "get");
    }
}
