/* Whether space comes back. */
#include "crash_space.h"

static bool crash_space_done(struct crash_space *space, qs_status status, const char *what)
{
    if (status != QS_OK) {
        crash_violation(space->report, "%s after recovery: %s: %s", what, qs_status_name(status),
                        qs_test_error.text);
    }
    return status == QS_OK;
}

/* In the order of their tags, which is that of the check. */
static bool crash_space_settle(struct crash_space *space, uint64_t kept)
{
    for (int i = 0; i < CRASH_QUEUES; i++) {
        struct crash_queue *queue = &space->model->queues[i];
        bool keeps = (kept >> i & 1) != 0;
        qs_status status;

        if (queue->last_tag == 0) {
            continue;
        }
        status = keeps ? qs_channel_nack(space->channel, queue->last_tag, QS_MULTIPLE | QS_REQUEUE,
                                         0, QS_ERROR)
                       : qs_channel_ack(space->channel, queue->last_tag, QS_MULTIPLE, QS_ERROR);
        if (!crash_space_done(space, status, "settle")) {
            return false;
        }
        if (!keeps) {
            queue->last_tag = 0;
        }
    }
    return true;
}

static bool crash_space_give_back(struct crash_space *space)
{
    qs_status status;

    if (!crash_space_done(space, qs_store_checkpoint(space->store, QS_ERROR), "checkpoint")) {
        return false;
    }
    if (!crash_compact(space->store, CRASH_COMPACTIONS_MAX, &status)) {
        crash_violation(space->report, "compaction never ends");
    }
    return crash_space_done(space, status, "compaction") &&
           crash_space_done(space, qs_store_checkpoint(space->store, QS_ERROR), "checkpoint");
}

/* The messages that a check found are there, flagged, with their bytes, and no others. */
static void crash_space_drain(struct crash_space *space, struct crash_queue *queue)
{
    uint32_t position = 0;
    qs_message message;
    qs_status status;

    while ((status = qs_channel_get(space->channel, crash_queue_name(queue), 0, &message,
                                    QS_ERROR)) == QS_OK) {
        uint64_t id = crash_body_id(message.body);

        while (position < queue->count && !queue->copies[position].is_found) {
            position++;
        }
        if (position == queue->count || queue->copies[position].id != id ||
            !crash_body_is_right(message.body, id, queue->copies[position].body_bytes)) {
            crash_violation(space->report, "%s: %" PRIu64 " comes back for %" PRIu64, queue->name,
                            id, position < queue->count ? queue->copies[position].id : 0);
        } else if (!message.redelivered) {
            crash_violation(space->report, "%s: %" PRIu64 " comes back unflagged", queue->name, id);
        }
        position++;
        queue->last_tag = message.delivery_tag;
        qs_message_release(&message);
    }
    while (position < queue->count && !queue->copies[position].is_found) {
        position++;
    }
    if (status != QS_EEMPTY) {
        crash_violation(space->report, "%s: get: %s: %s", queue->name, qs_status_name(status),
                        qs_test_error.text);
    } else if (position < queue->count) {
        crash_violation(space->report, "%s: %" PRIu64 " does not come back", queue->name,
                        queue->copies[position].id);
    }
}

struct crash_leftovers {
    struct crash_report *report;
    const char *dir;
    const char *suffix;
};

static bool crash_visit_leftover(void *context, const char *name)
{
    const struct crash_leftovers *leftovers = context;

    if (strstr(name, leftovers->suffix) != NULL) {
        crash_violation(leftovers->report, "%s/%s is left without messages", leftovers->dir, name);
    }
    return true;
}

static void crash_space_look(struct crash_space *space, const char *name, const char *suffix)
{
    struct crash_leftovers leftovers = {space->report, name, suffix};
    qs_dir *root = NULL, *dir = NULL;
    bool created;

    QS_CHECK_OK(
        space->env->dir_open_root(space->env, CRASH_PATH, false, &root, &created, QS_ERROR));
    if (space->env->dir_open(space->env, root, name, false, &dir, &created, NULL) == QS_OK) {
        QS_CHECK_OK(
            space->env->dir_list(space->env, dir, crash_visit_leftover, &leftovers, QS_ERROR));
        space->env->dir_close(space->env, dir);
    }
    space->env->dir_close(space->env, root);
}

/* What is left is the message file in use, if bodies were added in this session, and nothing in
 * it. */
static void crash_check_messages(struct crash_report *report, qs_store *store)
{
    struct qsi_message_space left;

    qsi_message_store_space(store->messages, &left);
    if (left.live_bytes > 0 || left.doomed_bytes > 0 || left.file_count > 1) {
        crash_violation(report,
                        "%" PRIu64 " message files with %" PRIu64 " live bytes, %" PRIu64
                        " doomed, without messages",
                        left.file_count, left.live_bytes, left.doomed_bytes);
    }
}

void crash_check_space(struct crash_model *model, struct crash_report *report, qs_store *store,
                       qs_channel *channel, qs_env *env, uint64_t seed)
{
    struct crash_space space = {model, report, store, channel, env};
    uint64_t kept = seed >> 8;

    if (!crash_space_settle(&space, kept) || !crash_space_give_back(&space)) {
        return;
    }
    for (int i = 0; i < CRASH_QUEUES; i++) {
        if (model->queues[i].last_tag != 0) {
            crash_space_drain(&space, &model->queues[i]);
        }
    }
    if (!crash_space_settle(&space, 0) || !crash_space_give_back(&space)) {
        return;
    }
    crash_space_look(&space, "index", ".seg");
    crash_space_look(&space, "transient", ".seg");
    crash_check_messages(report, store);
}

/* -- of a store that is at work --------------------------------------------------------------- */

/* Everything out is given back, everything ready is purged: what is left is the message file in
 * use, and nothing in it. */
static void crash_empty(struct crash_work *work)
{
    crash_close_channels(work);
    for (uint32_t i = 0; i < CRASH_CHANNELS; i++) {
        crash_each_out(work, i, 0, crash_set_ready, 0);
    }
    if (work->env->is_dead || !crash_open_channels(work)) {
        work->is_over = true;
        return;
    }
    for (int i = 0; i < CRASH_QUEUES && !work->is_over; i++) {
        crash_purge(work, &work->model->queues[i]);
    }
}

static void crash_empty_give_back(struct crash_work *work)
{
    qs_status status = QS_OK;

    if (!work->is_over) {
        crash_work_checkpoint(work);
    }
    if (!work->is_over) {
        if (!crash_compact(work->store, CRASH_COMPACTIONS_MAX, &status)) {
            crash_violation(work->report, "compaction never ends");
        }
        crash_done(work, status, "compact");
    }
    if (!work->is_over) {
        crash_work_checkpoint(work);
    }
}

void crash_check_empty(struct crash_work *work)
{
    struct crash_space space = {.report = work->report, .env = &work->env->env};

    crash_empty(work);
    crash_empty_give_back(work);
    if (work->is_over) {
        return;
    }
    crash_space_look(&space, "index", ".seg");
    crash_space_look(&space, "transient", ".seg");
    crash_check_messages(work->report, work->store);
}
