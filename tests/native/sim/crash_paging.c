/* Work on memory and disk: checkpoints, compaction, queues that page. */
#include "crash_work.h"
#include "pager.h"

/* -- memory and disk -------------------------------------------------------------------------- */

void crash_work_checkpoint(struct crash_work *work)
{
    uint64_t lsn = crash_appended_lsn(work);
    qs_status status = qs_store_checkpoint(work->store, QS_ERROR);

    if (status == QS_ECORRUPT && work->env->unread_percent > 0) {
        return; /* it is held up: the journal has everything */
    }
    if (crash_done(work, status, "checkpoint")) {
        crash_note_durable(work);
        if (lsn > work->model->durable_lsn) {
            crash_violation(work->report, "a checkpoint came to its end before the journal did");
        }
    }
}

bool crash_compact(qs_store *store, uint32_t limit, qs_status *status_out)
{
    uint32_t count = 0;
    qs_error error = {0};

    qsi_mutex_lock(&store->mutex);
    *status_out = store->failed ? QS_ESTORE_FAILED : qsi_pager_release(store, &error);
    while (*status_out == QS_OK && count < limit && qsi_pager_compact(store, &error)) {
        *status_out = qsi_pager_release(store, &error);
        count++;
    }
    if (store->failed) {
        *status_out = QS_ESTORE_FAILED;
        error = store->failure;
    }
    qsi_mutex_unlock(&store->mutex);
    if (*status_out != QS_OK) {
        qs_test_error = error;
    }
    return count < CRASH_COMPACTIONS_MAX;
}

void crash_work_compact(struct crash_work *work)
{
    qs_status status;

    if (!crash_compact(work->store,
                       crash_chance(work, 50) ? 1 + crash_below(work, 3) : CRASH_COMPACTIONS_MAX,
                       &status)) {
        crash_violation(work->report, "compaction never ends");
    }
    crash_done(work, status, "compact");
}

void crash_work_mode(struct crash_work *work)
{
    struct crash_queue *queue = crash_any_queue(work);

    if (queue->exists == CRASH_PRESENT) {
        bool lazy = crash_chance(work, 50);

        CRASH_CHANGE(work, queue->is_lazy, lazy ? CRASH_PRESENT : CRASH_ABSENT, "set mode",
                     qs_store_set_queue_mode(work->store, crash_queue_name(queue), lazy, QS_ERROR));
    }
}

void crash_work_bulk(struct crash_work *work)
{
    struct crash_queue *queue = crash_any_queue(work);
    uint32_t channel = crash_below(work, 2);
    uint32_t count = 4 + crash_below(work, 60);
    uint32_t bytes_max = crash_chance(work, 60) ? 16 + crash_below(work, 300) : 3000;

    if (crash_chance(work, 50)) {
        crash_publish_rows(work, channel, queue, count, bytes_max);
        return;
    }
    for (count /= 2; count > 0 && !work->is_over; count--) {
        crash_publish(work, channel, queue, 8 + crash_below(work, bytes_max - 8),
                      crash_chance(work, 90));
    }
}

void crash_work_fan_bulk(struct crash_work *work)
{
    uint32_t count = 1 + crash_below(work, 20);

    for (int i = 0; i < CRASH_QUEUES && !work->is_over; i++) {
        struct crash_queue *queue = &work->model->queues[i];

        if (queue->is_bound == CRASH_ABSENT && queue->exists == CRASH_PRESENT) {
            crash_bind(work, queue);
        }
    }
    while (count-- > 0 && !work->is_over) {
        crash_fan_out(work, crash_below(work, 2), 8 + crash_below(work, 200));
    }
}

void crash_work_take_many(struct crash_work *work)
{
    uint32_t channel = crash_below(work, 2);
    uint32_t count = 1 + crash_below(work, 80);
    uint32_t acked = crash_below(work, 101);
    struct crash_queue *queue = crash_any_queue(work);

    while (count-- > 0 && !work->is_over) {
        struct crash_copy *copy = crash_get(work, queue, channel, 0);

        if (copy == NULL) {
            return;
        }
        if (crash_chance(work, acked)) {
            crash_ack(work, channel, copy, false, crash_chance(work, 30));
        }
    }
}

void crash_work_get_batch(struct crash_work *work)
{
    uint32_t count = 1 + crash_below(work, 60);
    uint64_t bytes = crash_chance(work, 50) ? 1 << 20 : 1 + crash_below(work, 20000);
    struct crash_queue *queue = crash_any_queue(work);
    struct ArrowSchema schema;
    struct ArrowArray array;
    uint64_t left = count;

    if (queue->exists != CRASH_PRESENT) {
        return;
    }
    for (uint32_t i = 0; i < queue->count && left > 0; i++) {
        if (queue->copies[i].tag == 0 && queue->copies[i].settle_lsn == 0) {
            queue->copies[i].settle_lsn = CRASH_UNDER_WAY;
            left--;
        }
    }
    if (!crash_done(work,
                    qs_channel_get_batch(work->channels[CRASH_PLAIN_CHANNEL],
                                         crash_queue_name(queue), count, bytes, QS_NO_ACK, 0,
                                         &schema, &array, QS_ERROR),
                    "get batch")) {
        return;
    }
    if ((uint64_t)array.length > count - left || (array.length == 0 && left < count)) {
        crash_violation(work->report, "%s: %d rows where %d messages are ready", queue->name,
                        (int)array.length, (int)(count - left));
    }
    left = (uint64_t)array.length;
    for (uint32_t i = 0; i < queue->count; i++) {
        struct crash_copy *copy = &queue->copies[i];

        if (copy->settle_lsn == CRASH_UNDER_WAY) {
            copy->settle_lsn = left > 0 ? crash_appended_lsn(work) : 0;
            left -= left > 0;
        }
    }
    array.release(&array);
    schema.release(&schema);
}
