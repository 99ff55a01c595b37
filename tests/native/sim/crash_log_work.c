/* Work on streams and a queue, with the model told of each call before it is made. */
#include "clock.h"
#include "commit.h"
#include "crash_log.h"
#include "crash_work.h"
#include "error.h"
#include "limits.h"
#include "pager.h"
#include "qs_test_fields.h"

qs_options log_options(uint64_t random)
{
    static const uint64_t embeds[] = {1, 100, 1000, 1 << 20};
    static const uint64_t budgets[] = {64 << 10, 256 << 10, 16 << 20};
    static const uint64_t checkpoints[] = {0, 16 << 10, 256 << 10};
    static const uint64_t files[] = {64 << 10, 64 << 10, 512 << 10};
    qs_options options = crash_options();

    (void)qsi_splitmix_next(&random);
    options.segment_entries = 64;
    options.embed_below = embeds[qsi_splitmix_below(&random, 4)];
    options.memory_budget = budgets[qsi_splitmix_below(&random, 3)];
    options.checkpoint_bytes = checkpoints[qsi_splitmix_below(&random, 3)];
    options.journal_file_bytes = files[qsi_splitmix_below(&random, 3)];
    options.checkpoint_interval_ms = 0;
    if (qsi_splitmix_below(&random, 2) == 0) { /* large batches are one record, written directly */
        options.memory_budget = 16 << 20;
        options.journal_file_bytes = 512 << 10;
    }
    return options;
}

uint32_t log_below(struct log_work *work, uint32_t limit)
{
    return (uint32_t)qsi_splitmix_below(&work->random, limit);
}

/* ---- calls ---- */

bool log_done(struct log_work *work, qs_status status, const char *what)
{
    bool is_done = crash_went_well(work->env, work->report, work->has_faults, status, what);

    work->is_over = work->is_over || !is_done;
    return is_done;
}

/* What the call changed is known now, and where retention has got to meanwhile. */
static void note(struct log_work *work)
{
    struct log_model *model = work->model;
    struct log_state *state = &model->states[model->last + 1];
    qs_stats stats;

    for (uint32_t i = 0; i < LOG_STREAMS; i++) {
        qs_stream_status status;
        if (state->streams[i].life == 0) {
            continue;
        }
        QS_CHECK_OK(qs_store_stream_status(work->store, log_stream_name(i), &status, QS_ERROR));
        if (status.next != state->streams[i].next) {
            crash_violation(work->report, "s%u ends at %" PRIu64 ", not at %" PRIu64, i,
                            status.next, state->streams[i].next);
        }
        state->streams[i].first = status.first;
    }
    qs_store_stats(work->store, &stats);
    log_model_end(model, stats.appended_lsn);
    model->durable_lsn = qs_store_durable_lsn(work->store);
}

void log_end_call(struct log_work *work, qs_status status, const char *what)
{
    if (log_done(work, status, what)) {
        note(work);
    }
}

/* ---- topology ---- */

static qs_status declare_stream(struct log_work *work, uint32_t stream)
{
    struct qs_test_fields arguments = {.used = 0};
    qs_declare_ok ok;

    if (stream == 0) {
        qs_test_put_long(&arguments, "x-max-messages", LOG_MAX_MESSAGES);
    } else if (stream == 1) {
        qs_test_put_long(&arguments, "x-max-length-bytes", 60000);
    } else {
        qs_test_put_text(&arguments, "x-max-age", "30s");
    }
    qs_test_put_text(&arguments, "x-queue-type", "stream");
    qs_test_put_long(&arguments, "x-stream-max-segment-size-bytes", stream == 2 ? 100000 : 20000);
    return qs_channel_queue_declare(work->channel, log_stream_name(stream), QS_DURABLE,
                                    qs_test_fields_slice(&arguments), &ok, QS_ERROR);
}

void log_declare(struct log_work *work, uint32_t stream)
{
    struct log_state *state = log_model_begin(work->model);
    uint32_t life = 0;

    while (work->model->lives[stream][life].rows != NULL) {
        life++;
        QS_CHECK(life < LOG_LIVES_MAX);
    }
    work->model->lives[stream][life].rows = calloc(1, sizeof(struct log_row));
    work->model->lives[stream][life].capacity = 1;
    state->streams[stream] = (struct log_stream_state){.life = life + 1};
    for (uint32_t group = 0; group < LOG_GROUPS; group++) {
        state->streams[stream].cursors[group] = LOG_NO_CURSOR;
    }
    log_end_call(work, declare_stream(work, stream), "declare");
}

static void bind(struct log_work *work, uint32_t stream)
{
    struct log_state *state = log_model_begin(work->model);

    state->streams[stream].is_bound = true;
    log_end_call(work,
                 qs_channel_change_binding(work->channel, log_stream_name(stream), text("fan"),
                                           text(""), text(""), 0, QS_ERROR),
                 "bind");
}

void log_delete(struct log_work *work, uint32_t stream)
{
    struct log_state *state = log_model_begin(work->model);
    uint64_t count;

    state->streams[stream].life = 0;
    state->streams[stream].is_bound = false;
    log_end_call(
        work, qs_channel_queue_delete(work->channel, log_stream_name(stream), 0, &count, QS_ERROR),
        "delete");
}

/* Whatever is missing.  The queue and the exchange stay for good. */
void log_set_up(struct log_work *work)
{
    qs_declare_ok ok;

    if (!log_done(
            work,
            qs_channel_queue_declare(work->channel, text("q"), QS_DURABLE, text(""), &ok, QS_ERROR),
            "declare") ||
        !log_done(work,
                  qs_channel_exchange_declare(work->channel, text("fan"), text("fanout"),
                                              QS_DURABLE, text(""), QS_ERROR),
                  "declare") ||
        !log_done(work,
                  qs_channel_change_binding(work->channel, text("q"), text("fan"), text(""),
                                            text(""), 0, QS_ERROR),
                  "bind")) {
        return;
    }
    for (uint32_t i = 0; i < LOG_STREAMS && !work->is_over; i++) {
        const struct log_model *model = work->model;
        if (model->states[model->last].streams[i].life == 0) {
            log_declare(work, i);
        }
        if (!work->is_over && !model->states[model->last].streams[i].is_bound && i < 2) {
            bind(work, i);
        }
    }
}

static void change_topology(struct log_work *work)
{
    uint32_t stream = log_below(work, LOG_STREAMS);

    if (work->model->states[work->model->last].streams[stream].life == 0) {
        log_declare(work, stream);
    } else {
        log_delete(work, stream);
    }
    if (!work->is_over && log_below(work, 3) > 0) {
        log_set_up(work);
    }
}

/* ---- disk and clock ---- */

void log_sync(struct log_work *work)
{
    (void)log_model_begin(work->model);
    log_end_call(work, qs_store_sync(work->store, QS_ERROR), "sync");
}

/* By a file that cannot be read: the journal has everything, and it is tried again. */
static qs_status held_up(const struct log_work *work, qs_status status)
{
    return status == QS_ECORRUPT && work->env->unread_percent > 0 ? QS_OK : status;
}

void log_checkpoint(struct log_work *work)
{
    if (work->bug == LOG_WRITTEN_NAME_NOT_SYNCED) {
        return; /* it needs names, too */
    }
    (void)log_model_begin(work->model);
    log_end_call(work, held_up(work, qs_store_checkpoint(work->store, QS_ERROR)), "checkpoint");
}

/* What the pager's thread would do. */
static qs_status flush_streams(struct log_work *work, uint32_t streams, bool drops)
{
    struct qs_store *store = work->store;
    struct qsi_map_cursor walk = qsi_map_begin(&store->queues_by_id);
    qs_status status = QS_OK;

    while (status == QS_OK && qsi_map_next(&store->queues_by_id, &walk)) {
        struct qsi_store_queue *queue = walk.value;
        if (queue->stream == NULL || (streams & 1) == 0) {
            streams = queue->stream == NULL ? streams : streams >> 1;
            continue;
        }
        streams >>= 1;
        status = qsi_pager_flush(store, queue, QS_ERROR);
        status = status == QS_EEMPTY ? QS_OK : status;
        if (status == QS_OK && drops) {
            qsi_container_drop_content(queue->messages, 0, UINT64_MAX);
        }
    }
    if (status != QS_OK && qs_test_error.text[0] == '\0') {
        qsi_fail(QS_ERROR, status, "flush");
    }
    if (store->failed) {
        status = QS_ESTORE_FAILED;
        qs_test_error = store->failure;
    }
    return status;
}

void log_flush(struct log_work *work, uint32_t streams, bool drops)
{
    qs_status status;

    (void)log_model_begin(work->model);
    qsi_mutex_lock(&work->store->mutex);
    status = flush_streams(work, streams, drops);
    qsi_mutex_unlock(&work->store->mutex);
    log_end_call(work, held_up(work, status), "flush");
}

/* And the timer's. */
void log_retain(struct log_work *work)
{
    (void)log_model_begin(work->model);
    qsi_mutex_lock(&work->store->mutex);
    qsi_retain_streams(work->store);
    qsi_mutex_unlock(&work->store->mutex);
    log_end_call(work, QS_OK, "retain");
}

static void turn_clock(struct log_work *work)
{
    work->env->wall_shift_us += (uint64_t)log_below(work, 20) * 1000000;
    if (log_below(work, 3) == 0) {
        work->env->wall_shift_us -= UINT64_C(40) * 1000000; /* seen when a store is opened */
    }
}

static void reopen(struct log_work *work)
{
    (void)log_model_begin(work->model);
    log_close_store(work);
    if (!work->is_over && log_open_store(work)) {
        note(work);
        log_set_up(work);
    }
}

/* ---- bugs in memory ---- */

static void remove_dead(struct qs_store *store)
{
    const struct qsi_block_file *dead = (const void *)store->streams.dead.data;

    for (size_t i = 0; i < store->streams.dead.bytes / sizeof *dead; i++) {
        (void)!qsi_block_file_remove(store->streams.blocks, &dead[i], NULL);
    }
}

static void plant(struct log_work *work)
{
    struct qs_store *store = work->store;
    struct qsi_map_cursor walk;

    qsi_mutex_lock(&store->mutex);
    walk = qsi_map_begin(&store->queues_by_id);
    while (qsi_map_next(&store->queues_by_id, &walk)) {
        const struct qsi_store_queue *queue = walk.value;
        struct qsi_stream *log = queue->stream != NULL ? &queue->stream->log : NULL;
        if (log == NULL) {
            continue;
        }
        if (work->bug == LOG_SHARED_PAGE) {
            log->page_aligned = false;
        } else if (work->bug == LOG_WRITTEN_BEHIND) {
            log->named_next = log->container.next_seq;
        } else if (work->bug == LOG_TRIM_UNRECORDED) {
            uint64_t first = qsi_stream_trim_offset(log, qsi_clock_us(store));
            QS_CHECK_OK(qsi_container_trim_to(&log->container,
                                              first < log->synced_next ? first : log->first));
        }
    }
    if (work->bug == LOG_EARLY_REMOVAL) {
        remove_dead(store);
    } else if (work->bug == LOG_WRITTEN_NOT_SYNCED) {
        qsi_commit_forget_blocks(store);
    }
    qsi_mutex_unlock(&store->mutex);
}

/* ---- all of it ---- */

bool log_open_store(struct log_work *work)
{
    return log_done(
               work,
               qs_store_open(&work->store, CRASH_PATH, &work->options, &work->env->env, QS_ERROR),
               "open store") &&
           log_done(work, qs_channel_open(&work->channel, work->store, QS_ERROR), "open") &&
           log_done(work, qs_channel_open(&work->tx, work->store, QS_ERROR), "open") &&
           log_done(work, qs_channel_tx_select(work->tx, QS_ERROR), "tx");
}

void log_close_store(struct log_work *work)
{
    qs_status status;

    qs_channel_close(work->channel);
    qs_channel_close(work->tx);
    work->channel = work->tx = NULL;
    status = qs_store_close(work->store, QS_ERROR);
    work->store = NULL;
    if (!work->is_over && log_done(work, status, "close")) {
        log_model_close(work->model);
    }
}

void log_read(struct log_work *work, uint32_t stream)
{
    const struct log_model *model = work->model;

    if (model->states[model->last].streams[stream].life > 0) {
        (void)log_done(work,
                       log_check_reading(work->model, work->report, work->store, stream,
                                         qsi_splitmix_next(&work->random) >> 32),
                       "read");
    }
}

void log_work_once(struct log_work *work)
{
    uint32_t ticket = log_below(work, 100);

    if (work->bug >= LOG_SHARED_PAGE) {
        plant(work);
    }
    if (ticket < 22) {
        log_publish(work);
    } else if (ticket < 36) {
        log_publish_any_batch(work);
    } else if (ticket < 50) {
        log_transact(work);
    } else if (ticket < 53) {
        log_commit_cursor(work);
    } else if (ticket < 56) {
        log_consume(work);
    } else if (ticket < 60) {
        log_get(work);
    } else if (ticket < 68) {
        log_sync(work);
    } else if (ticket < 78) {
        log_checkpoint(work);
    } else if (ticket < 84) {
        log_flush(work, log_below(work, 1 << LOG_STREAMS), log_below(work, 2) == 0);
    } else if (ticket < 87) {
        log_retain(work);
    } else if (ticket < 91) {
        log_read(work, log_below(work, LOG_STREAMS));
    } else if (ticket < 94) {
        turn_clock(work);
    } else if (ticket < 97) {
        change_topology(work);
    } else {
        reopen(work);
    }
}
