/* Moving messages to the dead-letter exchange of their queue.  Invariant: a message that is moved is published and settled in one
 * group of the journal; until then it is out, and back in its queue after a crash. */
#include "check.h"
#include "death.h"
#include "departures.h"
#include "error.h"
#include "publish.h"

#include <string.h>

#define GROUP_LETTERS 256
#define GROUP_BYTES (1u << 20)
#define US_PER_S UINT64_C(1000000)

enum fate { FATE_GONE, FATE_STUCK };

/* May release the lock.  The message of an outstanding tag, body and all; the caller's to release.  QS_EEMPTY: it is not
 * outstanding any more. */
static qs_status read_message(struct qs_channel *channel, uint64_t tag, qs_message *message,
                              struct store_queue **queue_out, qs_error *error)
{
    struct qs_store *store = channel->store;
    struct qsi_body_ref ref;
    uint32_t reader;
    qs_status status;

    memset(message, 0, sizeof *message);
    for (;;) {
        const struct qsi_extent *extent = qsi_unacked_find(&channel->unacked, tag);
        const struct qsi_run *run;
        uint32_t slot;
        uint64_t seq;
        if (extent == NULL) {
            return QS_EEMPTY;
        }
        *queue_out = qsi_queue_of_core(extent->queue);
        slot = extent->first_slot + (uint32_t)(tag - extent->first_tag);
        seq = qsi_segment_first_seq(extent->queue->shared, extent->segment) + slot;
        run = qsi_queue_run_of(extent->queue, seq);
        if (run != NULL) {
            QS_TRY(qsi_view_message(run, (uint32_t)(seq - run->first_seq), message, &ref, error));
            break;
        }
        QS_TRY(qsi_page_in_one(store, *queue_out, extent->segment, slot, error));
    }
    if (message->hold != NULL) {
        return QS_OK;
    }
    reader = qsi_reader_begin(store);
    qsi_mutex_unlock(&store->mutex);
    status = qsi_deliver_body(store, message, &ref, error);
    qsi_mutex_lock(&store->mutex);
    qsi_reader_end(store, reader);
    return status;
}

static const char *reason_name(enum qsi_reason reason)
{
    static const char *const names[] = {"expired", "maxlen", "rejected", "delivery_limit"};

    return names[reason];
}

static qs_status publish_letter(struct qs_channel *channel, const struct store_queue *queue,
                                const qs_message *message, enum qsi_reason reason,
                                uint32_t *queue_count_out, qs_error *error)
{
    const struct qsi_queue_policy *policy = &queue->policy;
    struct qsi_buf properties = {NULL};
    struct qsi_death death = {
        .queue = queue->name,
        .exchange = qsi_slice_of(message->exchange),
        .key = qsi_slice_of(message->routing_key),
        .reason = reason_name(reason),
        .time_s = channel->store->env->wall_us(channel->store->env) / US_PER_S,
        .has_new_key = policy->has_dead_letter_key,
    };
    struct letter letter = {
        .exchange = policy->dead_letter,
        .key = policy->has_dead_letter_key ? policy->dead_letter_key : death.key,
        .body = qsi_slice_of(message->body),
        .may_go_round = reason == QSI_REJECTED,
    };
    qs_status status = qsi_death_tell(&properties, qsi_slice_of(message->properties), &death);

    if (status == QS_ECORRUPT) { /* a caller of the C interface may have published anything */
        status = qsi_death_tell(&properties, qsi_slice_make("", 0), &death);
    }
    if (status != QS_OK) {
        status = qsi_fail(error, status, "dead letter");
    } else {
        letter.properties = qsi_slice_make(properties.data, (uint32_t)properties.bytes);
        status = qsi_publish_letter(channel, &letter, queue_count_out, error);
    }
    qsi_buf_fini(&properties);
    return status;
}

/* May release the lock.  Publishes what becomes of one message in the channel's open transaction. */
static qs_status write_letter(struct qs_channel *channel, uint64_t tag, enum qsi_reason reason,
                              enum fate *fate_out, qs_error *error)
{
    struct store_queue *queue = NULL;
    qs_message message;
    uint32_t queue_count = 0;
    qs_status status = read_message(channel, tag, &message, &queue, error);

    *fate_out = FATE_GONE;
    if (status == QS_OK && qsi_has_dead_letters(queue)) {
        queue->jobs += 1;
        status = publish_letter(channel, queue, &message, reason, &queue_count, error);
        *fate_out = queue_count == 0 && queue->policy.at_least_once && !queue->deleted ? FATE_STUCK
                                                                                       : FATE_GONE;
        queue->jobs -= 1;
        qsi_free_queue_if_done(channel->store, queue);
        channel->store->stats.dead_lettered += status == QS_OK && queue_count > 0 ? 1 : 0;
    }
    qs_message_release(&message);
    return status == QS_EEMPTY ? QS_OK : status;
}

static qs_status settle_in_tx(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                              uint8_t kind, qs_error *error)
{
    struct tx_settle settle = {first_tag, last_tag, kind};
    struct tx_settle *last =
        (struct tx_settle *)(void *)(channel->tx_settles.data + channel->tx_settles.bytes);

    if (channel->tx_settles.bytes > 0 && last[-1].last_tag + 1 == first_tag &&
        last[-1].kind == kind) {
        last[-1].last_tag = last_tag;
        return QS_OK;
    }
    return qsi_buf_append(&channel->tx_settles, &settle, sizeof settle) == QS_OK
               ? QS_OK
               : qsi_fail(error, QS_ENOMEM, "dead letter");
}

/* ---- departures ---- */

static qs_status end_group(struct qs_channel *holder, qs_error *error)
{
    uint64_t lsn;
    qs_status status = QS_OK;

    if (holder->tx_settles.bytes > 0) {
        status = qsi_tx_apply(holder, &lsn, error);
    }
    qsi_tx_drop(holder);
    return status;
}

static bool is_large(const struct qs_channel *holder, uint32_t letters)
{
    return letters >= GROUP_LETTERS ||
           (holder->tx_pieces != NULL && holder->tx_pieces->journal_bytes >= GROUP_BYTES);
}

static qs_status keep_stuck(struct qsi_buf *stuck, uint64_t tag, enum qsi_reason reason,
                            qs_error *error)
{
    struct departure one = {tag, tag, reason};

    return qsi_buf_append(stuck, &one, sizeof one) == QS_OK
               ? QS_OK
               : qsi_fail(error, QS_ENOMEM, "dead letter");
}

qs_status qsi_dead_letter(struct qs_store *store, const struct departure *departure,
                          struct qsi_buf *stuck_out, qs_error *error)
{
    struct qs_channel *holder = store->departures.holder;
    qs_status status = QS_OK;
    uint32_t letters = 0;

    for (uint64_t tag = departure->first_tag; status == QS_OK && tag <= departure->last_tag;
         tag++) {
        enum fate fate;
        status = write_letter(holder, tag, departure->reason, &fate, error);
        if (status == QS_OK && fate == FATE_STUCK) {
            status = keep_stuck(stuck_out, tag, departure->reason, error);
        } else if (status == QS_OK) {
            status = settle_in_tx(holder, tag, tag, QSI_SETTLE_ACK, error);
        }
        letters += 1;
        if (status == QS_OK && is_large(holder, letters)) {
            status = end_group(holder, error);
            letters = 0;
        }
    }
    if (status == QS_OK) {
        return end_group(holder, error);
    }
    qsi_tx_drop(holder);
    return status;
}

/* ---- rejects of a transaction ---- */

/* One range of rejects: acks where a letter says what becomes of the message, or nothing is to; the others are seen off after the
 * commit. */
static qs_status write_letters(struct qs_channel *channel, const struct tx_settle *rejects,
                               qs_error *error)
{
    for (uint64_t tag = rejects->first_tag; tag <= rejects->last_tag; tag++) {
        enum fate fate;
        QS_TRY(write_letter(channel, tag, QSI_REJECTED, &fate, error));
        QS_TRY(settle_in_tx(channel, tag, tag,
                            fate == FATE_STUCK ? QSI_SETTLE_REJECT : QSI_SETTLE_ACK, error));
    }
    return QS_OK;
}

static bool any_reject(const struct qsi_buf *settles)
{
    const struct tx_settle *items = (const struct tx_settle *)(const void *)settles->data;

    for (size_t i = 0; i < settles->bytes / sizeof *items; i++) {
        if (items[i].kind == QSI_SETTLE_REJECT) {
            return true;
        }
    }
    return false;
}

qs_status qsi_dead_letter_in_tx(struct qs_channel *channel, qs_error *error)
{
    struct qsi_buf before = channel->tx_settles;
    const struct tx_settle *items = (const struct tx_settle *)(const void *)before.data;
    qs_status status = QS_OK;

    if (!any_reject(&before)) {
        return QS_OK;
    }
    channel->tx_settles = (struct qsi_buf){NULL};
    for (size_t i = 0; status == QS_OK && i < before.bytes / sizeof *items; i++) {
        status = items[i].kind == QSI_SETTLE_REJECT
                     ? write_letters(channel, &items[i], error)
                     : settle_in_tx(channel, items[i].first_tag, items[i].last_tag, items[i].kind,
                                    error);
    }
    qsi_buf_fini(&before);
    return status;
}
