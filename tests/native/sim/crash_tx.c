/* Transactions of the work. */
#include "crash_work.h"

/* -- transactions ----------------------------------------------------------------------------- */

struct crash_tx_part {         /* of a transaction that is not committed yet */
    struct crash_queue *queue; /* NULL: the fanout exchange */
    uint64_t id;
    uint32_t bytes;
    struct crash_copy *acked; /* instead of a publish */
};

static bool crash_tx_publish(struct crash_work *work, struct crash_tx_part *part)
{
    qs_receipt receipt;
    bool is_kept;

    *part = (struct crash_tx_part){
        .queue = crash_chance(work, 75) ? crash_any_queue(work) : NULL,
        .id = work->model->next_id++,
        .bytes = crash_any_bytes(work),
    };
    is_kept = part->queue != NULL && part->queue->keeps_all;
    return crash_done(work,
                      crash_publish_one(work, CRASH_TX_CHANNEL, part->queue != NULL ? "" : "fan",
                                        part->queue != NULL ? part->queue->name : "", part->id,
                                        part->bytes, !is_kept, &receipt),
                      "publish in a transaction");
}

static bool crash_tx_ack(struct crash_work *work, struct crash_tx_part *part)
{
    *part = (struct crash_tx_part){0};
    part->acked = crash_get(work, crash_any_queue(work), CRASH_TX_CHANNEL, 0);
    if (part->acked == NULL) {
        return !work->is_over;
    }
    return crash_done(
        work, qs_channel_ack(work->channels[CRASH_TX_CHANNEL], part->acked->tag, 0, QS_ERROR),
        "ack in a transaction");
}

static uint32_t crash_tx_fill(struct crash_work *work, struct crash_tx_part *parts)
{
    uint32_t count = 1 + crash_below(work, CRASH_TX_PARTS_MAX);

    for (uint32_t i = 0; i < count; i++) {
        if (!(crash_chance(work, 60) ? crash_tx_publish(work, &parts[i])
                                     : crash_tx_ack(work, &parts[i]))) {
            return 0;
        }
    }
    return count;
}

static void crash_tx_expect(struct crash_work *work, const struct crash_tx_part *part, uint32_t tx)
{
    if (part->acked != NULL) {
        part->acked->settle_lsn = CRASH_UNDER_WAY;
        part->acked->settle_tx = tx;
    } else if (part->queue != NULL) {
        crash_expect(work, part->queue, part->id, part->bytes, true, tx);
    } else {
        for (int i = 0; part->bytes > 0 && i < CRASH_QUEUES; i++) {
            if (work->model->queues[i].is_bound == CRASH_PRESENT) {
                crash_expect(work, &work->model->queues[i], part->id, part->bytes, true, tx);
            }
        }
    }
}

static void crash_tx_committed(struct crash_work *work, uint32_t tx)
{
    work->model->txs[tx - 1] = CRASH_PRESENT;
    crash_note_durable(work);
    for (int i = 0; i < CRASH_QUEUES; i++) {
        struct crash_queue *queue = &work->model->queues[i];

        for (uint32_t k = 0; k < queue->count; k++) {
            struct crash_copy *copy = &queue->copies[k];

            if (copy->publish_tx == tx) {
                copy->publish_lsn = work->model->durable_lsn;
            }
            if (copy->settle_tx == tx) {
                copy->settle_lsn = work->model->durable_lsn;
            }
        }
    }
}

void crash_tx(struct crash_work *work, bool rolls_back)
{
    struct crash_tx_part parts[CRASH_TX_PARTS_MAX];
    uint32_t count, tx = work->model->tx_count + 1;
    bool repeated = false;
    char text[16];

    count = tx <= CRASH_TXS_MAX ? crash_tx_fill(work, parts) : 0;
    if (count == 0) {
        return;
    }
    if (rolls_back) { /* nothing of it happened, then */
        crash_done(work, qs_channel_tx_rollback(work->channels[CRASH_TX_CHANNEL], QS_ERROR),
                   "rollback");
        return;
    }
    work->model->tx_count = tx;
    work->model->txs[tx - 1] = CRASH_UNCERTAIN;
    /* Acks first: adding copies moves the others. */
    for (int is_ack = 1; is_ack >= 0; is_ack--) {
        for (uint32_t i = 0; i < count; i++) {
            if ((parts[i].acked != NULL) == (is_ack == 1)) {
                crash_tx_expect(work, &parts[i], tx);
            }
        }
    }
    if (crash_done(work,
                   qs_channel_tx_commit(work->channels[CRASH_TX_CHANNEL],
                                        crash_tx_key(text, tx - 1), 0, &repeated, QS_ERROR),
                   "commit")) {
        crash_tx_committed(work, tx);
    }
}

void crash_work_tx(struct crash_work *work)
{
    crash_tx(work, crash_chance(work, 15));
}
