/* What a store with streams shows, compared with the model. */
#include "crash_log.h"

#define COLUMNS (QS_STREAM_COLUMN_TIMESTAMP | QS_STREAM_COLUMN_BODY)

/* What was seen of one stream. */
struct seen {
    bool is_there;
    qs_stream_status status;
    uint64_t cursors[LOG_GROUPS];
    struct log_row *rows; /* from status.first on */
    uint64_t count;
};

struct check {
    struct log_model *model;
    struct crash_report *report;
    qs_store *store;
    qs_channel *channel;
    struct seen streams[LOG_STREAMS];
    struct log_message *queue;
    uint32_t queue_count;
    uint32_t durable; /* the last call that is so for certain */
};

qs_slice log_stream_name(uint32_t stream)
{
    static const char *const names[LOG_STREAMS] = {"s0", "s1", "s2"};

    return text(names[stream]);
}

/* ---- looking ---- */

static qs_slice cell(const struct ArrowArray *bodies, int64_t row)
{
    const int32_t *offsets = bodies->buffers[1];

    return (qs_slice){(const char *)bodies->buffers[2] + offsets[row],
                      (size_t)(offsets[row + 1] - offsets[row])};
}

/* A message by itself: its bytes are those of the message that it says it is. */
static struct log_row row_of(struct crash_report *report, const struct ArrowArray *array, int64_t i,
                             uint64_t offset)
{
    const uint64_t *offsets = array->children[0]->buffers[1];
    const int64_t *times = array->children[1]->buffers[1];
    qs_slice body = cell(array->children[2], i);
    struct log_row row = {.time_us = (uint64_t)times[i], .body_bytes = (uint32_t)body.bytes};

    if (offsets[i] != offset) {
        crash_violation(report, "offset %" PRIu64 " comes where %" PRIu64 " should", offsets[i],
                        offset);
    }
    if (body.bytes >= sizeof row.id) {
        row.id = crash_body_id(body);
    }
    if (!crash_body_is_right(body, row.id, row.body_bytes)) {
        crash_violation(report, "the message at %" PRIu64 " has wrong bytes", offset);
    }
    return row;
}

static void see_rows(struct check *check, uint32_t stream)
{
    const qs_stream_read read = {.start = {.at = QS_STREAM_FIRST}, .columns = COLUMNS};
    struct seen *seen = &check->streams[stream];
    uint64_t room = seen->status.next - seen->status.first, last_us = 0;
    struct ArrowSchema schema;
    struct ArrowArray array;
    qs_stream_reader *reader;
    qs_status status;

    seen->rows = malloc((room + 1) * sizeof *seen->rows);
    QS_CHECK(seen->rows != NULL);
    QS_CHECK_OK(
        qs_stream_reader_open(&reader, check->store, log_stream_name(stream), &read, QS_ERROR));
    while ((status = qs_stream_reader_next(reader, 500, UINT64_MAX, 0, &schema, &array,
                                           QS_ERROR)) == QS_OK) {
        for (int64_t i = 0; i < array.length && seen->count < room; i++) {
            struct log_row row = row_of(check->report, &array, i, seen->status.first + seen->count);
            if (row.time_us < last_us) {
                crash_violation(check->report, "s%u: time goes back at %" PRIu64, stream,
                                seen->status.first + seen->count);
            }
            last_us = row.time_us;
            seen->rows[seen->count++] = row;
        }
        array.release(&array);
        schema.release(&schema);
    }
    qs_stream_reader_close(reader);
    if (status != QS_EEMPTY || seen->count != room) {
        crash_violation(check->report, "s%u: reading ends at %" PRIu64 " of %" PRIu64 ": %s: %s",
                        stream, seen->status.first + seen->count, seen->status.next,
                        qs_status_name(status), qs_test_error.text);
    }
}

static void see_stream(struct check *check, uint32_t stream)
{
    static const char *const groups[LOG_GROUPS] = {"a", "b", "c"};
    struct seen *seen = &check->streams[stream];

    seen->is_there =
        qs_store_stream_status(check->store, log_stream_name(stream), &seen->status, NULL) == QS_OK;
    for (uint32_t group = 0; seen->is_there && group < LOG_GROUPS; group++) {
        qs_cursor cursor;
        qs_status status = qs_store_cursor(check->store, log_stream_name(stream),
                                           text(groups[group]), &cursor, QS_ERROR);
        seen->cursors[group] = status == QS_OK ? cursor.offset : LOG_NO_CURSOR;
    }
    if (seen->is_there) {
        see_rows(check, stream);
    }
}

static void see_queue(struct check *check)
{
    qs_queue_status found;
    qs_message message;
    qs_status status;

    if (qs_store_queue_status(check->store, text("q"), &found, NULL) != QS_OK) {
        return;
    }
    check->queue = malloc((found.messages_ready + 1) * sizeof *check->queue);
    QS_CHECK(check->queue != NULL);
    while ((status = qs_channel_get(check->channel, text("q"), 0, &message, QS_ERROR)) == QS_OK) {
        struct log_message seen = {.id = crash_body_id(message.body),
                                   .body_bytes = (uint32_t)message.body.bytes};
        if (!crash_body_is_right(message.body, seen.id, seen.body_bytes)) {
            crash_violation(check->report, "q: a message has wrong bytes");
        }
        if (check->queue_count < found.messages_ready) {
            check->queue[check->queue_count++] = seen;
        }
        qs_message_release(&message);
    }
    if (status != QS_EEMPTY) {
        crash_violation(check->report, "q: get: %s", qs_test_error.text);
    }
}

/* ---- comparing ---- */

static bool has_rows(const struct check *check, uint32_t stream,
                     const struct log_stream_state *state)
{
    const struct seen *seen = &check->streams[stream];
    const struct log_life *life = &check->model->lives[stream][state->life - 1];

    for (uint64_t i = 0; i < seen->count; i++) {
        const struct log_row *row = &seen->rows[i], *expected;
        if (seen->status.first + i >= life->count) {
            return false;
        }
        expected = &life->rows[seen->status.first + i];
        if (row->id != expected->id || row->body_bytes != expected->body_bytes ||
            (expected->time_us != 0 && row->time_us != expected->time_us)) {
            return false;
        }
    }
    return true;
}

/* What retention had dropped behind the call before is dropped; of what the next call drops, some
 * may be.  A number of messages is kept of those that there were then. */
static bool has_first(const struct check *check, uint32_t k, uint32_t stream)
{
    const struct log_model *model = check->model;
    const struct log_stream_state *state = &model->states[k].streams[stream];
    const struct log_stream_state *before = k > 0 ? &model->states[k - 1].streams[stream] : state;
    bool is_followed = k < model->last + (model->is_under_way ? 1 : 0);
    const struct log_stream_state *after =
        is_followed ? &model->states[k + 1].streams[stream] : state;
    uint64_t first = check->streams[stream].status.first, last;

    before = before->life == state->life ? before : state;
    after = after->life == state->life ? after : state;
    last = k < model->last ? after->first : model->is_under_way ? after->next : state->first;
    if (stream == 0 && first > LOG_MAX_MESSAGES && first > before->first &&
        first > after->next - LOG_MAX_MESSAGES) {
        return false;
    }
    return first >= before->first && first <= last;
}

/* NULL: it is as behind the k-th call.  Else what is different. */
static const char *differs_in_stream(const struct check *check, uint32_t k, uint32_t stream)
{
    const struct seen *seen = &check->streams[stream];
    const struct log_stream_state *state = &check->model->states[k].streams[stream];

    if (seen->is_there != (state->life > 0)) {
        return "being there";
    }
    if (!seen->is_there) {
        return NULL;
    }
    if (seen->status.next > state->next ||
        seen->status.next < (k == check->durable ? state->next : state->least)) {
        return "its end";
    }
    if (memcmp(seen->cursors, state->cursors, sizeof seen->cursors) != 0) {
        return "cursors";
    }
    return !has_first(check, k, stream)      ? "its beginning"
           : !has_rows(check, stream, state) ? "its messages"
                                             : NULL;
}

static bool has_queue(const struct check *check, uint32_t k)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < check->model->queue_count; i++) {
        const struct log_message *message = &check->model->queue[i];
        if (message->is_transient || message->published > k || message->settled <= k) {
            continue;
        }
        if (at == check->queue_count || check->queue[at].id != message->id ||
            check->queue[at].body_bytes != message->body_bytes) {
            return false;
        }
        at++;
    }
    return at == check->queue_count;
}

static const char *differs(const struct check *check, uint32_t k, uint32_t *stream_out)
{
    for (uint32_t i = 0; i < LOG_STREAMS; i++) {
        const char *what = differs_in_stream(check, k, i);
        if (what != NULL) {
            *stream_out = i;
            return what;
        }
    }
    *stream_out = LOG_STREAMS;
    return has_queue(check, k) ? NULL : "the queue";
}

static void tell(struct check *check, uint32_t low, uint32_t high)
{
    for (uint32_t k = low; k <= high && k < low + 3; k++) {
        uint32_t stream = 0;
        const char *what = differs(check, k, &stream);
        const struct log_stream_state *state =
            &check->model->states[k].streams[stream < LOG_STREAMS ? stream : 0];
        const struct seen *seen = &check->streams[stream < LOG_STREAMS ? stream : 0];
        crash_violation(check->report,
                        "not as behind call %u of %u to %u (under way: %d): s%u differs in %s: "
                        "[%" PRIu64 ", %" PRIu64 ") where [%" PRIu64 ", %" PRIu64 ") was",
                        k, low, high, check->model->is_under_way, stream, what, seen->status.first,
                        seen->status.next, state->first, state->next);
    }
}

/* ---- the truth ---- */

static void adopt_streams(struct check *check, struct log_state *state)
{
    struct log_model *model = check->model;

    for (uint32_t i = 0; i < LOG_STREAMS; i++) {
        const struct seen *seen = &check->streams[i];
        struct log_life *life;
        if (!seen->is_there) {
            continue;
        }
        life = log_life_of(model, state, i);
        state->streams[i].first = seen->status.first;
        state->streams[i].next = state->streams[i].least = seen->status.next;
        life->count = seen->status.next;
        for (uint64_t k = 0; k < seen->count; k++) {
            life->rows[seen->status.first + k].time_us = seen->rows[k].time_us;
        }
    }
}

static void adopt(struct check *check, uint32_t k)
{
    struct log_model *model = check->model;
    struct log_state state = model->states[k];
    uint32_t kept = 0;

    adopt_streams(check, &state);
    state.lsn = 0;
    for (uint32_t i = 0; i < model->queue_count; i++) {
        struct log_message message = model->queue[i];
        if (!message.is_transient && message.published <= k && message.settled > k) {
            message.published = 0;
            message.settled = LOG_EVER;
            model->queue[kept++] = message;
        }
    }
    model->queue_count = kept;
    model->states[0] = state;
    model->last = 0;
    model->is_under_way = false;
    model->durable_lsn = 0;
}

void log_check(struct log_model *model, struct crash_report *report, qs_store *store,
               qs_channel *channel, const struct crash_env *adopts)
{
    struct check check = {.model = model, .report = report, .store = store, .channel = channel};
    uint32_t high = model->last + (model->is_under_way ? 1 : 0), low = model->last, k, stream;

    for (uint32_t i = 0; i < LOG_STREAMS; i++) {
        see_stream(&check, i);
    }
    see_queue(&check);
    while (low > 0 && model->states[low].lsn > model->durable_lsn) {
        low -= 1;
    }
    check.durable = low;
    for (k = low; k <= high && differs(&check, k, &stream) != NULL; k++) {
    }
    if (k > high) {
        tell(&check, low, high);
        k = low;
    }
    if (adopts != NULL && !adopts->is_dead) {
        adopt(&check, k);
    }
    for (uint32_t i = 0; i < LOG_STREAMS; i++) {
        free(check.streams[i].rows);
    }
    free(check.queue);
}

/* ---- a store that is at work ---- */

static bool is_known(const struct log_row *known, const struct log_row *row)
{
    return row->id == known->id && row->body_bytes == known->body_bytes &&
           (known->time_us == 0 || known->time_us == row->time_us);
}

/* Notes the times that it sees: everyone will see these. */
static qs_status read_on(struct crash_report *report, qs_stream_reader *reader,
                         struct log_row *known, uint64_t *offset_io, uint64_t next,
                         uint64_t rows_max)
{
    struct ArrowSchema schema;
    struct ArrowArray array;
    qs_status status;

    while ((status = qs_stream_reader_next(reader, rows_max, UINT64_MAX, 0, &schema, &array,
                                           QS_ERROR)) == QS_OK) {
        for (int64_t i = 0; i < array.length && *offset_io < next; i++, *offset_io += 1) {
            struct log_row row = row_of(report, &array, i, *offset_io);
            if (!is_known(&known[*offset_io], &row)) {
                crash_violation(report, "a reader gets another message at %" PRIu64, *offset_io);
            }
            known[*offset_io].time_us = row.time_us;
        }
        array.release(&array);
        schema.release(&schema);
    }
    return status == QS_EEMPTY ? QS_OK : status;
}

/* The time of a message leads to the first one with that time. */
static qs_status check_seek(struct crash_report *report, qs_store *store, uint32_t stream,
                            const struct log_row *known, uint64_t first, uint64_t offset)
{
    uint64_t time_us = known[offset].time_us, sought;
    qs_status status =
        qs_store_stream_offset_at(store, log_stream_name(stream), time_us, &sought, QS_ERROR);

    if (status == QS_OK && (sought > offset || known[sought].time_us > time_us ||
                            (sought > first && known[sought - 1].time_us >= time_us))) {
        crash_violation(report, "s%u: the time of %" PRIu64 " leads to %" PRIu64, stream, offset,
                        sought);
    }
    return status;
}

qs_status log_check_reading(struct log_model *model, struct crash_report *report, qs_store *store,
                            uint32_t stream, uint64_t random)
{
    const struct log_state *state = &model->states[model->last];
    const struct log_stream_state *of = &state->streams[stream];
    uint64_t first = of->next > of->first ? of->first + random % (of->next - of->first) : of->next;
    const qs_stream_read read = {.start = {.at = QS_STREAM_OFFSET, .offset = first},
                                 .columns = COLUMNS};
    struct log_row *known = log_life_of(model, state, stream)->rows;
    uint64_t offset = first;
    qs_stream_reader *reader;
    qs_status status =
        qs_stream_reader_open(&reader, store, log_stream_name(stream), &read, QS_ERROR);

    if (status == QS_OK) {
        status = read_on(report, reader, known, &offset, of->next, 1 + random % 100);
        qs_stream_reader_close(reader);
    }
    if (status == QS_OK && offset > first) {
        status =
            check_seek(report, store, stream, known, of->first, first + random % (offset - first));
    }
    return status;
}
