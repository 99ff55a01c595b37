/* Getting messages as one Arrow record batch. */
#include "check.h"
#include "clock.h"
#include "counts.h"
#include "deliveries.h"
#include "enter.h"
#include "error.h"
#include "limits.h"
#include "pager.h"
#include "priorities.h"
#include "queue_life.h"
#include "queue_take.h"
#include "receive.h"
#include "record.h"
#include "settle.h"
#include "store.h"
#include "taken.h"
#include "trace.h"
#include "wake.h"

#include <string.h>

#define NS_PER_US UINT64_C(1000)

/* ---- a batch ---- */

struct get_batch {
    struct qs_channel *channel;
    struct qsi_slice queue;
    uint64_t max_messages;
    uint64_t bytes_left;
    bool is_paged; /* the next message is on the disk */
    bool no_ack;
    bool has_waited;
    struct qsi_taken_batch batch;
    uint64_t first_tag, last_tag;
};

/* The number of messages of the stretch that fit into the remaining bytes, at least one if nothing
 * was taken yet. */
static uint32_t fitting(struct get_batch *get, const struct qsi_stretch *stretch)
{
    const struct qsi_run *run = stretch->run;
    struct qsi_messages view;
    uint32_t count = 0;

    if (!run->messages.single_records && run->messages.rows == NULL && !run->has_stored) {
        uint64_t bytes;
        qsi_messages_view(&view, run->messages.chunk->data + run->messages.record_at);
        bytes = qsi_get_u32(view.body_offsets + 4 * ((size_t)stretch->run_row + stretch->count)) -
                qsi_get_u32(view.body_offsets + 4 * (size_t)stretch->run_row);
        if (bytes <= get->bytes_left) {
            QS_DCHECK(get->bytes_left >= bytes);
            get->bytes_left -= bytes;
            get->batch.body_bytes += bytes;
            return stretch->count;
        }
    }
    for (; count < stretch->count; count++) {
        uint32_t record_row;
        uint32_t bytes;
        qsi_messages_view(&view, qsi_run_record(run, stretch->run_row + count, &record_row));
        bytes = qsi_messages_body_bytes(&view, record_row);
        if (bytes > get->bytes_left && get->batch.message_count + count > 0) {
            get->bytes_left = 0;
            break;
        }
        get->bytes_left -= bytes < get->bytes_left ? bytes : get->bytes_left;
        get->batch.body_bytes += bytes;
    }
    return count;
}

/* Notes the stretch, divided where its messages have another form.  Not inlined: its loop takes a
 * step for each message, and needs the registers (10 instructions a message, measured). */
static __attribute__((noinline)) qs_status note_taken(struct get_batch *get,
                                                      const struct qsi_stretch *stretch,
                                                      uint64_t first_tag)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_run *run = stretch->run;
    const struct qsi_segment *segment = stretch->segment;
    uint32_t i = 0;

    while (i < stretch->count) {
        uint32_t record_row, slot = stretch->slot + i;
        struct qsi_taken *last = NULL, next = {.count = 1, .first_tag = first_tag + i};
        next.record = qsi_run_record(run, stretch->run_row + i, &record_row);
        next.row = record_row;
        next.redelivered = qsi_segment_was_seen(segment, slot);
        next.delivery_count = qsi_segment_deliveries(segment, slot);
        while (!run->messages.single_records && i + next.count < stretch->count &&
               (run->messages.rows == NULL ||
                run->messages.rows[stretch->run_row + i + next.count] == next.row + next.count) &&
               qsi_segment_was_seen(segment, slot + next.count) == next.redelivered &&
               qsi_segment_deliveries(segment, slot + next.count) == next.delivery_count) {
            next.count += 1;
        }
        i += next.count;
        if (get->batch.taken.bytes > 0) {
            last = (struct qsi_taken *)(void *)(get->batch.taken.data + get->batch.taken.bytes) - 1;
        }
        if (last != NULL && last->record == next.record && last->row + last->count == next.row &&
            last->first_tag + last->count == next.first_tag &&
            last->redelivered == next.redelivered && last->delivery_count == next.delivery_count) {
            last->count += next.count;
        } else if (qsi_buf_append(&get->batch.taken, &next, sizeof next) != QS_OK) {
            return QS_ENOMEM;
        } else {
            last = (struct qsi_taken *)(void *)(get->batch.taken.data + get->batch.taken.bytes) - 1;
            last->chunk = qsi_chunk_ref(run->messages.chunk);
        }
    }
    return QS_OK;
}

/* Takes one stretch; false when there is no more to take. */
static bool take_stretch(struct get_batch *get, struct qsi_store_queue *queue, qs_status *status_io,
                         qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_channel *channel = get->channel;
    uint64_t left = get->max_messages - get->batch.message_count;
    struct qsi_stretch stretch;
    enum qsi_take take;
    uint8_t *room;
    uint32_t count, redelivered;
    bool counts;

    if (left == 0 || (get->bytes_left == 0 && get->batch.message_count > 0)) {
        return false;
    }
    if (qsi_unacked_reserve(&channel->unacked, 1) != QS_OK ||
        qsi_buf_reserve(&get->batch.taken, QSI_WORD_BITS * sizeof(struct qsi_taken), &room) !=
            QS_OK) {
        *status_io = qsi_fail(error, QS_ENOMEM, "batch");
        return false;
    }
    queue = qsi_head_subqueue(queue);
    counts = qsi_policy_counts_deliveries(&queue->policy);
    take = qsi_container_take(&queue->container,
                              left < QSI_WORD_BITS ? (uint32_t)left : QSI_WORD_BITS, &stretch);
    if (take != QSI_TAKE_TAKEN) {
        get->is_paged = take == QSI_TAKE_PAGED;
        return false;
    }
    if (QS_UNLIKELY(counts)) {
        *status_io = qsi_deliveries_screen(channel->store, queue, &stretch, error);
        if (*status_io != QS_OK || stretch.count == 0) {
            return *status_io == QS_OK;
        }
    }
    count = fitting(get, &stretch);
    if (count < stretch.count) {
        qsi_container_untake(&queue->container, &stretch, count);
    }
    if (count == 0) {
        return false;
    }
    get->last_tag = channel->unacked.last_tag + count;
    if (note_taken(get, &stretch, channel->unacked.last_tag + 1) != QS_OK) {
        QS_ASSERT(false); /* room was reserved */
    }
    redelivered = qsi_stretch_mark_seen(&stretch);
    if (QS_UNLIKELY(counts)) {
        qsi_deliveries_count(channel, queue, &stretch);
    }
    qsi_unacked_add(&channel->unacked, &queue->container, &stretch, NULL);
    get->batch.message_count += count;
    qsi_count_delivered(channel, queue, count, redelivered, true, get->no_ack);
    if (qsi_is_traced(channel->store)) {
        qsi_trace_taken(channel, QS_TRACE_DELIVER, queue, get->last_tag - count + 1, count);
    }
    return true;
}

static qs_status check_open(const struct qs_channel *channel, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    return channel->closed ? qsi_fail(error,
                                      channel->store->life >= QSI_LIFE_SHUT ? QS_ESTORE_CLOSED
                                                                            : QS_ECHANNEL_CLOSED,
                                      "closed meanwhile")
                           : QS_OK;
}

/* Returns how long a getter may sleep: without a timer thread it must itself release messages that
 * fall due. */
static uint64_t until_due_ns(const struct qs_store *store, const struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t now = qsi_clock_us(store);
    uint64_t earliest = store->options.background ? QSI_NEVER : qsi_earliest(queue);

    if (earliest == QSI_NEVER) {
        return QS_FOREVER;
    }
    return NS_PER_US * (earliest > now + QSI_US_PER_MS ? earliest - now : QSI_US_PER_MS);
}

static void sleep_at(struct get_batch *get, struct qsi_store_queue *queue, uint64_t timeout_ns)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = get->channel->store;
    struct qsi_waiter waiter;
    struct qsi_in_line place;
    uint64_t due_ns = until_due_ns(store, queue);

    get->has_waited = true;
    get->channel->waiter = &waiter; /* for who closes it */
    qsi_line_join(store, queue, &place, &waiter);
    qsi_waiter_sleep(store, &waiter, timeout_ns < due_ns ? timeout_ns : due_ns);
    qsi_line_leave(store, &place);
    get->channel->waiter = NULL;
}

/* The thread was perhaps woken for more messages than it takes, or takes nothing: wakes another
 * thread. */
static void pass_on(const struct get_batch *get) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = get->channel->store;
    struct qsi_store_queue *queue = get->has_waited ? qsi_find_queue(store, get->queue) : NULL;

    if (queue != NULL) {
        qsi_record_use(store, queue); /* the queue was not idle while a thread waited */
        qsi_line_wake_next(store, queue, qsi_ready_count(queue));
    }
}

/* Waits for the first message if needed, as long as there is time.  *queue_out: NULL if none
 * came. */
static qs_status wait_for_first(struct get_batch *get, uint64_t timeout_ns,
                                struct qsi_store_queue **queue_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_channel *channel = get->channel;
    struct qs_store *store = channel->store;
    uint64_t now = store->env->monotonic_ns(store->env);
    uint64_t deadline = now + timeout_ns < now ? UINT64_MAX : now + timeout_ns;
    struct qsi_store_queue *queue = NULL;
    bool released;

    for (*queue_out = NULL;;) {
        QS_TRY(check_open(channel, error));
        QS_TRY(qsi_make_settle_room(channel, get->no_ack, &released, QSI_MAY_WAIT, error));
        QS_TRY(qsi_require_queue(channel, get->queue, &queue, error));
        QS_TRY(qsi_refuse_stream(channel->store, queue, "basic.get", error));
        qsi_record_use(store, queue);
        QS_TRY(qsi_expire(store, queue, error));
        released = false;
        QS_TRY(qsi_deliveries_make_room(channel, queue, &released, QSI_MAY_WAIT, error));
        if (released) {
            continue;
        }
        if (qsi_has_ready(queue)) {
            *queue_out = queue;
            return QS_OK;
        }
        now = store->env->monotonic_ns(store->env);
        if (timeout_ns == 0 || now >= deadline) {
            qsi_count_empty(channel, queue);
            return QS_OK;
        }
        sleep_at(get, queue, deadline - now);
    }
}

/* Waits for the first message if needed, then takes all that fit. */
static qs_status take_batch(struct get_batch *get, uint64_t timeout_ns, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_channel *channel = get->channel;
    struct qs_store *store = channel->store;
    struct qsi_store_queue *queue;
    qs_status status = wait_for_first(get, timeout_ns, &queue, error);

    if (status != QS_OK || queue == NULL) {
        return status;
    }
    get->first_tag = channel->unacked.last_tag + 1;
    get->last_tag = channel->unacked.last_tag;
    for (;;) {
        get->is_paged = false;
        while (take_stretch(get, queue, &status, error)) {
        }
        if (status != QS_OK || !get->is_paged) {
            break;
        }
        /* A queue that pages returns as much as one that never pages: all that fit. */
        status = qsi_page_in(store, queue, get->batch.message_count == 0 ? channel : NULL,
                             QSI_MAY_WAIT, error);
        if (status == QS_OK) {
            status = check_open(channel, error);
        }
        if (status == QS_OK) {
            status = qsi_require_queue(channel, get->queue, &queue, error);
        }
        if (status == QS_OK) {
            status = qsi_expire(store, queue, error);
        }
        if (status != QS_OK) {
            return get->batch.message_count > 0 && !channel->closed ? QS_OK : status;
        }
    }
    qsi_pager_look_ahead(store, qsi_head_subqueue(queue));
    return status;
}

/* After a batch that could not be built, all messages are handed back as if they had not been
 * taken; a message that cannot be read is withheld, so that the next batch gets past it. */
static void give_back(struct get_batch *get, uint64_t bad_tag) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_channel *channel = get->channel;

    if (channel->closed || !qsi_deliveries_room_to_take_back(
                               channel, qsi_unacked_stretches(&channel->unacked, get->first_tag,
                                                              get->last_tag, false))) {
        return; /* it was handed back already */
    }
    if (bad_tag != 0) {
        qsi_withhold_tags(channel, bad_tag, bad_tag);
    }
    qsi_hand_back_tags(channel, get->first_tag, get->last_tag);
}

qs_status qs_channel_get_batch(qs_channel *channel, qs_slice queue, uint64_t max_messages,
                               uint64_t bytes_max, uint32_t flags, uint64_t timeout_ns,
                               struct ArrowSchema *schema_out, struct ArrowArray *array_out,
                               qs_error *error)
{
    struct get_batch get = {
        .channel = channel,
        .queue = qsi_slice_of(queue),
        .max_messages = max_messages,
        .no_ack = (flags & QS_NO_ACK) != 0,
        .bytes_left = bytes_max < QSI_ARROW_BODY_BYTES_MAX ? bytes_max : QSI_ARROW_BODY_BYTES_MAX,
    };
    uint64_t bad_tag = 0;
    qs_status status;

    QS_TRY(qsi_channel_enter(channel, error));
    status = take_batch(&get, timeout_ns, error);
    pass_on(&get);
    if (status == QS_OK) {
        status = qsi_deliveries_write(channel, error);
    }
    if (status == QS_OK) {
        uint32_t reader = qsi_reader_begin(channel->store);
        qsi_store_unlock(channel->store);
        status =
            qsi_taken_build(channel->store, &get.batch, &bad_tag, schema_out, array_out, error);
        qsi_store_lock(channel->store);
        qsi_reader_end(channel->store, reader);
    }
    if (get.batch.message_count > 0 && status != QS_OK) {
        give_back(&get, bad_tag);
    } else if (get.batch.message_count > 0 && get.no_ack && !channel->closed) {
        qsi_settle_no_ack(channel, get.first_tag, get.last_tag, QSI_MAY_WAIT);
    }
    qsi_taken_release(&get.batch.taken);
    return qsi_channel_leave(channel, status);
}
