/* What streams and the queue hold, behind each call. */
#include "crash_log.h"

void log_model_init(struct log_model *model)
{
    memset(model, 0, sizeof *model);
    model->states = calloc(LOG_OPS_MAX + 2, sizeof *model->states);
    QS_CHECK(model->states != NULL);
    model->next_id = 1;
    for (uint32_t i = 0; i < LOG_STREAMS; i++) {
        for (uint32_t group = 0; group < LOG_GROUPS; group++) {
            model->states[0].streams[i].cursors[group] = LOG_NO_CURSOR;
        }
    }
}

void log_model_fini(struct log_model *model)
{
    for (uint32_t i = 0; i < LOG_STREAMS; i++) {
        for (uint32_t life = 0; life < LOG_LIVES_MAX; life++) {
            free(model->lives[i][life].rows);
        }
    }
    free(model->queue);
    free(model->states);
}

static void *copy_of(const void *data, size_t bytes)
{
    void *copy = malloc(bytes + 1);

    QS_CHECK(copy != NULL);
    if (bytes > 0) {
        memcpy(copy, data, bytes);
    }
    return copy;
}

void log_model_copy(struct log_model *to, const struct log_model *from)
{
    *to = *from;
    for (uint32_t i = 0; i < LOG_STREAMS; i++) {
        for (uint32_t k = 0; k < LOG_LIVES_MAX && from->lives[i][k].rows != NULL; k++) {
            to->lives[i][k].rows = copy_of(from->lives[i][k].rows,
                                           from->lives[i][k].capacity * sizeof(struct log_row));
        }
    }
    to->queue = copy_of(from->queue, from->queue_capacity * sizeof *from->queue);
    to->states = copy_of(from->states, (LOG_OPS_MAX + 2) * sizeof *from->states);
}

struct log_state *log_model_begin(struct log_model *model)
{
    struct log_state *state = &model->states[model->last + 1];

    QS_CHECK(!model->is_under_way && model->last < LOG_OPS_MAX);
    *state = model->states[model->last];
    state->lsn = CRASH_UNDER_WAY;
    for (uint32_t i = 0; i < LOG_STREAMS; i++) {
        state->streams[i].least = state->streams[i].next;
    }
    model->is_under_way = true;
    return state;
}

void log_model_end(struct log_model *model, uint64_t lsn)
{
    QS_CHECK(model->is_under_way);
    model->last += 1;
    model->states[model->last].lsn = lsn;
    model->is_under_way = false;
}

struct log_life *log_life_of(struct log_model *model, const struct log_state *state,
                             uint32_t stream)
{
    QS_CHECK(state->streams[stream].life > 0);
    return &model->lives[stream][state->streams[stream].life - 1];
}

void log_model_add(struct log_model *model, struct log_state *state, uint32_t stream, uint64_t id,
                   uint32_t body_bytes)
{
    struct log_life *life = log_life_of(model, state, stream);
    uint64_t offset = state->streams[stream].next++;

    if (offset >= life->capacity) {
        life->capacity = 2 * offset + 64;
        life->rows = realloc(life->rows, life->capacity * sizeof *life->rows);
        QS_CHECK(life->rows != NULL);
    }
    life->rows[offset] = (struct log_row){.id = id, .body_bytes = body_bytes};
    life->count = offset + 1;
    state->streams[stream].least = offset + 1;
}

void log_model_add_queued(struct log_model *model, uint64_t id, uint32_t body_bytes,
                          bool is_transient)
{
    if (model->queue_count == model->queue_capacity) {
        model->queue_capacity = 2 * model->queue_capacity + 64;
        model->queue = realloc(model->queue, model->queue_capacity * sizeof *model->queue);
        QS_CHECK(model->queue != NULL);
    }
    model->queue[model->queue_count++] = (struct log_message){.id = id,
                                                              .body_bytes = body_bytes,
                                                              .is_transient = is_transient,
                                                              .published = model->last + 1,
                                                              .settled = LOG_EVER};
}

void log_model_close(struct log_model *model)
{
    for (uint32_t i = 0; i < model->queue_count; i++) {
        if (model->queue[i].is_transient && model->queue[i].settled == LOG_EVER) {
            model->queue[i].settled = 0;
        }
    }
    model->durable_lsn = model->states[model->last].lsn;
}
