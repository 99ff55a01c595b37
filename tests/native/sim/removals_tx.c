/* Transactions over such queues, and all of that work. */
#include "crash_removals.h"

/* -- transactions ----------------------------------------------------------------------------- */

#define REMOVAL_TX_MAX 24

struct removal_tx {
    struct removal_out outs[REMOVAL_TX_MAX];
    enum removal_verb verbs[REMOVAL_TX_MAX];
    uint32_t out_count;
    uint64_t first_id, marker; /* of what it publishes */
};

/* Takes messages and settles each of them. */
static void removal_tx_settle(struct removal_work *work, struct removal_tx *tx)
{
    static const enum removal_queue sources[] = {REMOVAL_LEAST, REMOVAL_LEAST, REMOVAL_LENGTH,
                                                 REMOVAL_TTL,   REMOVAL_BYTES, REMOVAL_FIRST};
    uint32_t count = 1 + crash_below(&work->base, 8), before = work->out_count;

    while (count-- > 0 && !work->base.is_over) {
        removal_get(work, CRASH_TX_CHANNEL, sources[crash_below(&work->base, 6)]);
    }
    for (uint32_t i = before; i < work->out_count && !work->base.is_over; i++) {
        tx->outs[tx->out_count] = work->outs[i];
        tx->verbs[tx->out_count] = crash_chance(&work->base, 70) ? REMOVAL_REJECT : REMOVAL_ACK;
        crash_done(&work->base, removal_call(work, &work->outs[i], false, tx->verbs[tx->out_count]),
                   "settle in a transaction");
        tx->out_count++;
    }
    work->out_count = before; /* they are the transaction's */
}

static void removal_tx_publish(struct removal_work *work, struct removal_tx *tx)
{
    static const enum removal_queue sources[] = {REMOVAL_LENGTH, REMOVAL_BYTES, REMOVAL_TTL,
                                                 REMOVAL_LEAST};
    uint32_t count = crash_below(&work->base, 4);
    qs_receipt receipt;

    tx->first_id = work->model->count + 1;
    for (uint32_t i = 0; i <= count && !work->base.is_over; i++) {
        enum removal_queue queue =
            i == count ? REMOVAL_PLAIN : sources[crash_below(&work->base, 4)];
        tx->marker = removal_new(work, queue, removal_any_bytes(work), true, 0);
        crash_done(&work->base, removal_publish_as(work, CRASH_TX_CHANNEL, tx->marker, 0, &receipt),
                   "publish in a transaction");
    }
}

/* Told before the commit: it may have happened from now on.  lsn: of what it settles. */
static void removal_tx_expect(struct removal_work *work, const struct removal_tx *tx, uint64_t lsn)
{
    struct removal_model *model = work->model;

    for (uint64_t id = tx->first_id; id <= tx->marker; id++) {
        model->messages[id - 1].published_with = tx->marker;
        model->messages[id - 1].publish_lsn = lsn;
    }
    for (uint32_t i = 0; i < tx->out_count; i++) {
        struct removal_message *message = &model->messages[tx->outs[i].id - 1];
        if (removal_ends(work, &tx->outs[i], tx->verbs[i])) {
            message->settle_lsns[tx->outs[i].place] = lsn;
        } else {
            message->rejected_with = tx->marker;
        }
    }
}

static void removal_new_channel(struct removal_work *work, uint32_t channel)
{
    qs_channel_close(work->base.channels[channel]);
    work->base.channels[channel] = NULL;
    if (crash_done(&work->base,
                   qs_channel_open(&work->base.channels[channel], work->base.store, QS_ERROR),
                   "open") &&
        channel == CRASH_TX_CHANNEL) {
        crash_done(&work->base, qs_channel_tx_select(work->base.channels[channel], QS_ERROR), "tx");
    }
}

void removal_work_tx(struct removal_work *work)
{
    struct removal_tx tx = {.out_count = 0};
    bool repeated;
    qs_status status;

    removal_tx_settle(work, &tx);
    if (!work->base.is_over) {
        removal_tx_publish(work, &tx);
    }
    if (work->base.is_over) {
        return;
    }
    if (crash_chance(&work->base, 15)) {
        for (uint64_t id = tx.first_id; id <= tx.marker; id++) {
            work->model->messages[id - 1].is_gone = true;
        }
        removal_new_channel(work, CRASH_TX_CHANNEL);
        return;
    }
    removal_tx_expect(work, &tx, CRASH_UNDER_WAY);
    status = qs_channel_tx_commit(work->base.channels[CRASH_TX_CHANNEL], (qs_slice){0}, 0,
                                  &repeated, QS_ERROR);
    if (crash_done(&work->base, status, "commit")) {
        removal_hear_nacks(work);
        removal_tx_expect(work, &tx, work->model->durable_lsn);
    }
}

/* -- all of it -------------------------------------------------------------------------------- */

void removal_set_up(struct removal_work *work)
{
    qs_channel *channel = work->base.channels[CRASH_PLAIN_CHANNEL];
    qs_declare_ok ok;

    for (int i = 0; i < 2 && !work->base.is_over; i++) {
        crash_done(&work->base,
                   qs_channel_exchange_declare(channel, text(i == 0 ? "one" : "two"),
                                               text("fanout"), QS_DURABLE, (qs_slice){0}, QS_ERROR),
                   "declare exchange");
    }
    for (int i = REMOVAL_QUEUES;
         i-- > 0 && !work->base.is_over;) { /* what is there has its targets */
        const struct removal_kind *kind = &removal_kinds[i];
        struct qs_test_fields fields = {.used = 0};
        if (kind->exchange != NULL) {
            qs_test_put_text(&fields, "x-dead-letter-exchange", kind->exchange);
        }
        for (int k = 0; k < 3 && kind->arguments[k].name != NULL; k++) {
            if (kind->arguments[k].number != 0) {
                qs_test_put_long(&fields, kind->arguments[k].name, kind->arguments[k].number);
            } else {
                qs_test_put_text(&fields, kind->arguments[k].name, kind->arguments[k].text);
            }
        }
        crash_done(&work->base,
                   qs_channel_queue_declare(channel, text(kind->name), QS_DURABLE,
                                            qs_test_fields_slice(&fields), &ok, QS_ERROR),
                   "declare");
        for (int k = 0; i >= REMOVAL_SOURCES && k < 2 && !work->base.is_over; k++) {
            if (k == 1 || i == REMOVAL_FIRST) {
                crash_done(&work->base,
                           qs_channel_change_binding(channel, text(kind->name),
                                                     text(k == 0 ? "one" : "two"), (qs_slice){0},
                                                     (qs_slice){0}, 0, QS_ERROR),
                           "bind");
            }
        }
    }
}

void removal_plant(struct removal_work *work)
{
    struct qsi_entries *open;

    if (work->base.env->bug != CRASH_GROUP_DIVIDED) {
        return;
    }
    qsi_mutex_lock(&work->base.store->mutex);
    open = &work->base.store->journal->open;
    for (uint32_t i = 0; i < open->count; i++) {
        open->items[i].more = false;
    }
    qsi_mutex_unlock(&work->base.store->mutex);
}

static void removal_work_time(struct removal_work *work)
{
    qsi_env_sim_advance(work->sim, crash_below(&work->base, 2500) * UINT64_C(1000000));
}

static void removal_work_reopen(struct removal_work *work)
{
    crash_close_store(&work->base);
    work->out_count = 0;
    if (!work->base.is_over) {
        for (uint32_t i = 0; i < work->model->count; i++) {
            work->model->messages[i].is_gone =
                work->model->messages[i].is_gone || work->model->messages[i].is_transient;
        }
        crash_open_store(&work->base);
    }
    if (!work->base.is_over) {
        removal_hear_nacks(work);
    }
}

void removal_work_once(struct removal_work *work)
{
    uint32_t ticket = crash_below(&work->base, 100);

    if (ticket < 24) {
        removal_work_publish(work);
    } else if (ticket < 34) {
        removal_work_batch(work);
    } else if (ticket < 52) {
        removal_work_get(work);
    } else if (ticket < 68) {
        removal_work_settle(work);
    } else if (ticket < 78) {
        removal_work_tx(work);
    } else if (ticket < 85) {
        removal_work_time(work);
    } else if (ticket < 91) {
        crash_work_sync(&work->base);
    } else if (ticket < 94) {
        crash_work_checkpoint(&work->base);
    } else if (ticket < 96) {
        crash_work_compact(&work->base);
    } else if (ticket < 98) {
        removal_new_channel(work, CRASH_PLAIN_CHANNEL);
        work->out_count = 0;
    } else {
        removal_work_reopen(work);
    }
    if (!work->base.is_over) {
        crash_note_durable(&work->base);
        work->model->durable_lsn = work->base.model->durable_lsn;
    }
}
