/* Reporting publishes to traces. */
#include "publish_trace.h"

#include "alloc.h"
#include "check.h"
#include "priorities.h"
#include "publish_counts.h"
#include "trace.h"

static void trace(struct qs_store *store, struct qsi_trace_step *what, qs_trace_step step)
    QSI_REQUIRES(qsi_store_mutex)
{
    what->step = step;
    qsi_trace(store, what);
}

static void trace_routed(struct qs_store *store, struct qsi_trace_step *what)
    QSI_REQUIRES(qsi_store_mutex)
{
    trace(store, what, QS_TRACE_PUBLISH);
    what->time_us = 0;
    trace(store, what, QS_TRACE_ROUTE);
}

/* The same for one message, whose content goes with its route. */
static void trace_one_routed(struct qs_store *store, struct qsi_trace_step *what,
                             const struct qsi_trace_content *content) QSI_REQUIRES(qsi_store_mutex)
{
    trace(store, what, QS_TRACE_PUBLISH);
    what->time_us = 0;
    what->content = content;
    trace(store, what, QS_TRACE_ROUTE);
    what->content = NULL;
}

/* It is in its queues, and in the journal if it has an LSN. */
static void trace_accepted(struct qs_store *store, struct qsi_trace_step *what, bool mandatory,
                           uint64_t lsn, bool awaits_confirm) QSI_REQUIRES(qsi_store_mutex)
{
    if (what->queue_count > 0) {
        trace(store, what, QS_TRACE_ENQUEUE);
    } else if (mandatory) {
        trace(store, what, QS_TRACE_RETURN);
    }
    what->lsn = what->queue_count > 0 ? lsn : 0; /* nothing waits for the record of a refusal */
    if (what->lsn != 0) {
        trace(store, what, QS_TRACE_RECORD);
    }
    qsi_trace_await(store, what, awaits_confirm);
}

/* The queues that have it: all but the one that refused it. */
static void leave_out(struct qsi_trace_step *what, struct qsi_destination **others,
                      uint64_t refusing) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < what->queue_count; i++) {
        if (qsi_queue_of(what->queues[i])->container.id != refusing) {
            others[count++] = what->queues[i];
        }
    }
    what->queues = others;
    what->queue_count = count;
}

static void trace_refused(struct qs_store *store, const struct qsi_trace_step *what,
                          uint64_t refusing, uint64_t lsn, bool confirms)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_trace_step all = *what, others = *what;
    struct qsi_destination **kept = qsi_alloc((size_t)what->queue_count * sizeof *kept);

    if (kept != NULL) {
        leave_out(&others, kept, refusing);
        trace_accepted(store, &others, false, lsn, false);
        qsi_free(kept);
    }
    if (confirms) {
        qsi_trace_await(store, &all, true); /* the publisher learns of the refusal */
    } else {
        trace(store, &all, QS_TRACE_NACK);
    }
}

void qsi_trace_published(const struct qsi_publishing *publishing, const qs_receipt *receipt,
                         const struct qsi_refusals *refusals, uint64_t began_us)
{
    const struct qs_channel *channel = publishing->channel;
    struct qs_store *store = channel->store;
    bool confirms = channel->confirms.selected && !channel->tx_selected;
    const struct qsi_trace_content content = {
        .channel = channel, .properties = publishing->properties, .body = publishing->body};
    struct qsi_trace_step what = {
        .time_us = began_us,
        .number = confirms ? receipt->first_number : 0,
        .count = 1,
        .channel = channel->number,
        .exchange = &publishing->exchange,
        .key = publishing->routing.key,
        .queues = publishing->route->destinations,
        .queue_count = publishing->route->count,
    };

    QS_ASSERT_HELD(&store->mutex);
    trace_one_routed(store, &what, &content);
    if (channel->tx_selected) {
        return;
    }
    if (QS_UNLIKELY(refusals->count > 0)) {
        trace_refused(store, &what, refusals->queues[0], receipt->lsn, confirms);
    } else {
        trace_accepted(store, &what, qsi_publishing_is_mandatory(publishing), receipt->lsn,
                       confirms);
    }
}

/* Queues of a note that still exist; NULL: no memory. */
static struct qsi_destination **queues_of(struct qs_store *store,
                                          const struct qsi_published_note *note,
                                          uint32_t *count_out) QSI_REQUIRES(qsi_store_mutex)
{
    const uint64_t *ids = qsi_published_note_ids(note);
    struct qsi_destination **queues = qsi_alloc(((size_t)note->queue_count + 1) * sizeof *queues);

    *count_out = 0;
    for (uint32_t i = 0; queues != NULL && i < note->queue_count; i++) {
        struct qsi_store_queue *queue = qsi_find_by_id(store, qsi_queue_in(ids[i]));
        if (queue != NULL) {
            queues[(*count_out)++] = &queue->destination;
        }
    }
    return queues;
}

static void trace_note(const struct qs_channel *channel, const struct qsi_published_note *note,
                       const qs_receipt *receipt, bool is_commit) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = channel->store;
    bool confirms = channel->confirms.selected && !channel->tx_selected;
    struct qsi_slice exchange = qsi_published_note_exchange(note);
    struct qsi_trace_step what = {
        .number = confirms ? receipt->first_number : 0,
        .last_number = confirms ? receipt->last_number : 0,
        .count = note->count,
        .channel = channel->number,
        .exchange = &exchange,
        .key = qsi_slice_make("", 0),
    };
    struct qsi_destination **queues = queues_of(store, note, &what.queue_count);

    what.queues = queues;
    if (queues == NULL) {
        return;
    }
    if (!is_commit) {
        trace_routed(store, &what);
    }
    if (is_commit || !channel->tx_selected) {
        trace_accepted(store, &what, note->mandatory, receipt->lsn, confirms);
    }
    qsi_free(queues);
}

void qsi_trace_batch(const struct qs_channel *channel, const struct qsi_published_notes *notes,
                     const qs_receipt *receipt)
{
    const struct qsi_published_note *note = qsi_published_note_next(notes, NULL);

    QS_ASSERT_HELD(&channel->store->mutex);
    for (; note != NULL; note = qsi_published_note_next(notes, note)) {
        trace_note(channel, note, receipt, false);
    }
}

void qsi_trace_committed(const struct qs_channel *channel, const struct qsi_published_notes *notes,
                         uint64_t lsn)
{
    const struct qsi_published_note *note = qsi_published_note_next(notes, NULL);
    const qs_receipt receipt = {.lsn = lsn};

    QS_ASSERT_HELD(&channel->store->mutex);
    for (; note != NULL; note = qsi_published_note_next(notes, note)) {
        trace_note(channel, note, &receipt, true);
    }
}
