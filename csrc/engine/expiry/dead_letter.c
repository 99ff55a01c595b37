/* Moving messages to the dead-letter exchange of their queue.  Invariant: a message that is moved
 * is published and settled in one group of the journal; until then it is out, and back in its queue
 * after a crash. */
#include "check.h"
#include "content.h"
#include "death.h"
#include "error.h"
#include "pager.h"
#include "publish.h"
#include "queue_life.h"
#include "removals.h"
#include "store.h"
#include "store_work.h"
#include "thread_safety.h"
#include "tx.h"
#include "wake.h"

#include <string.h>

#define GROUP_DEAD_LETTERS 256
#define GROUP_BYTES (1u << 20)

enum fate { FATE_GONE, FATE_SENT, FATE_STUCK };

static uint8_t kind_of(enum fate fate)
{
    return fate == FATE_STUCK  ? QSI_SETTLE_REJECT
           : fate == FATE_SENT ? QSI_SETTLE_DEAD_LETTERED
                               : QSI_SETTLE_DROPPED;
}

/* The outcome of a message. */
struct written {
    enum fate fate;
    /* its dead letter takes room in a queue that refuses: the next one must see that */
    bool ends_group;
};

/* May release the lock.  The message of an outstanding tag, with its body, which the caller
 * releases.  QS_EEMPTY: it is not outstanding any more.  REQUIRES a job on its queue. */
static qs_status read_message(struct qs_channel *channel, uint64_t tag, qs_message *message,
                              qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = channel->store;
    struct qsi_body body;
    uint32_t reader;
    qs_status status;

    memset(message, 0, sizeof *message);
    for (;;) {
        const struct qsi_extent *extent = qsi_unacked_find(&channel->unacked, tag);
        struct qsi_store_queue *queue;
        const struct qsi_run *run;
        uint32_t slot;
        uint64_t seq;
        if (extent == NULL) {
            return QS_EEMPTY;
        }
        slot = qsi_extent_slot(extent, qsi_extent_message(extent, tag));
        queue = qsi_queue_of_container(extent->container);
        seq = qsi_queue_first_seq(&queue->core, extent->segment) + slot;
        run = qsi_queue_run_of(&queue->core, seq);
        if (run != NULL) {
            qsi_view_message(run, (uint32_t)(seq - run->first_seq), message, &body);
            break;
        }
        QS_DCHECK(queue->jobs > 0);
        QS_TRY(qsi_page_in_one(store, queue, extent->segment, slot, error));
    }
    if (body.kind == QSI_BODY_EMBEDDED) {
        return QS_OK;
    }
    reader = qsi_reader_begin(store);
    qsi_store_unlock(store);
    status = qsi_deliver_body(store, message, &body, error);
    qsi_store_lock(store);
    qsi_reader_end(store, reader);
    return status;
}

static const char *reason_name(enum qsi_reason reason)
{
    static const char *const names[] = {"expired", "maxlen", "rejected", "delivery_limit"};

    QS_ASSERT((size_t)reason < sizeof names / sizeof names[0]);
    return names[reason];
}

static qs_status publish_dead_letter(struct qs_channel *channel,
                                     const struct qsi_store_queue *queue, const qs_message *message,
                                     enum qsi_reason reason, uint32_t *queue_count_out,
                                     struct written *written_out, enum qsi_wait wait,
                                     qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_queue_policy *policy = &queue->policy;
    struct qsi_buf properties = {NULL};
    struct qsi_death death = {
        .queue = queue->name,
        .exchange = qsi_slice_of(message->exchange),
        .key = qsi_slice_of(message->routing_key),
        .reason = reason_name(reason),
        .time_s = channel->store->env->wall_us(channel->store->env) / QSI_US_PER_S,
        .has_new_key = policy->dead_letter_key.data != NULL,
    };
    struct qsi_dead_letter dead_letter = {
        .exchange = policy->dead_letter,
        .key = policy->dead_letter_key.data != NULL ? policy->dead_letter_key : death.key,
        .body = qsi_slice_of(message->body),
        .may_go_round = reason == QSI_REJECTED,
    };
    qs_status status = qsi_death_write(&properties, qsi_slice_of(message->properties), &death);

    QS_DCHECK(qsi_has_dead_letters(queue));
    if (status == QS_ECORRUPT) { /* a caller of the C interface may have published any bytes */
        status = qsi_death_write(&properties, qsi_slice_make("", 0), &death);
    }
    if (status != QS_OK) {
        status = qsi_fail(error, status, "dead letter");
    } else {
        dead_letter.properties = qsi_slice_make(properties.data, (uint32_t)properties.bytes);
        status = qsi_publish_dead_letter(channel, &dead_letter, queue_count_out,
                                         &written_out->ends_group, wait, error);
    }
    qsi_buf_fini(&properties);
    return status;
}

/* A message that cannot be read stays, and blocks no other.  A transaction is tried again as long
 * as it may succeed. */
static bool is_unreadable(const struct qs_channel *channel, qs_status status)
    QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_is_unreadable(status) && (status != QS_EIO || qsi_channel_is_internal(channel));
}

/* In a work queue: the stream has dropped it, so it will never be readable. */
static bool is_passed(const struct qs_channel *channel, uint64_t tag) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_extent *extent = qsi_unacked_find(&channel->unacked, tag);
    struct qsi_store_queue *queue;

    if (extent == NULL || extent->segment == NULL) {
        return false;
    }
    queue = qsi_queue_of_container(extent->container);
    return qsi_work_pass_one(queue, qsi_queue_first_seq(&queue->core, extent->segment) +
                                        qsi_extent_slot(extent, qsi_extent_message(extent, tag)));
}

/* May release the lock.  REQUIRES a job on the queue. */
static qs_status move_message(struct qs_channel *channel, struct qsi_store_queue *queue,
                              uint64_t tag, enum qsi_reason reason, struct written *written_out,
                              enum qsi_wait wait, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    qs_message message;
    uint32_t queue_count = 0;
    qs_status status = read_message(channel, tag, &message, error);

    QS_DCHECK(queue->jobs > 0);
    if (status == QS_OK) {
        status = publish_dead_letter(channel, queue, &message, reason, &queue_count, written_out,
                                     wait, error);
        if (status == QS_OK && queue_count == 0 && queue->policy.at_least_once && !queue->deleted) {
            written_out->fate = FATE_STUCK;
        }
        if (status == QS_OK && queue_count > 0) {
            channel->tx_dead_letters += 1;
            written_out->fate = FATE_SENT;
        }
    } else if (is_unreadable(channel, status)) {
        written_out->fate = is_passed(channel, tag) ? FATE_GONE : FATE_STUCK;
        status = QS_OK;
    }
    qs_message_release(&message);
    return status == QS_EEMPTY ? QS_OK : status;
}

/* May release the lock.  Publishes the outcome of one message in the channel's open transaction. */
static qs_status write_dead_letter(struct qs_channel *channel, uint64_t tag, enum qsi_reason reason,
                                   struct written *written_out, enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_extent *extent = qsi_unacked_find(&channel->unacked, tag);
    struct qsi_store_queue *queue;
    qs_status status;

    *written_out = (struct written){.fate = FATE_GONE};
    if (extent == NULL) {
        return QS_OK;
    }
    queue = qsi_queue_of_container(extent->container);
    if (!qsi_has_dead_letters(queue)) {
        return QS_OK;
    }
    queue->jobs += 1; /* it may be deleted, and the message be taken from the channel, meanwhile */
    status = move_message(channel, queue, tag, reason, written_out, wait, error);
    qsi_end_queue_job(queue);
    return status;
}

/* Room for count more ranges, and for two if one of them is divided. */
static qs_status reserve_settles(struct qsi_buf *settles, size_t count, qs_error *error)
{
    uint8_t *room;

    return qsi_buf_reserve(settles, (count + 2) * sizeof(struct qsi_tx_settle), &room) == QS_OK
               ? QS_OK
               : qsi_fail(error, QS_ENOMEM, "dead letter");
}

/* REQUIRES that room.  Neighbours of a kind are one range. */
static void record_settle(struct qsi_buf *settles, uint64_t first_tag, uint64_t last_tag,
                          uint8_t kind, uint64_t due_us)
{
    struct qsi_tx_settle settle = {first_tag, last_tag, kind, due_us};
    struct qsi_tx_settle *last = (struct qsi_tx_settle *)(void *)(settles->data + settles->bytes);

    QS_DCHECK(first_tag <= last_tag);
    if (settles->bytes > 0 && last[-1].last_tag + 1 == first_tag && last[-1].kind == kind &&
        last[-1].due_us == due_us) {
        last[-1].last_tag = last_tag;
    } else if (qsi_buf_append(settles, &settle, sizeof settle) != QS_OK) {
        QS_ASSERT(false); /* room was reserved */
    }
}

/* ---- removals ---- */

static qs_status end_group(struct qs_channel *internal_channel, enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t lsn;
    qs_status status = QS_OK;

    QS_ASSERT(qsi_channel_is_internal(internal_channel));
    if (internal_channel->tx_settles.bytes > 0) {
        status = qsi_tx_apply(internal_channel, &lsn, wait, error);
        if (status == QS_OK && lsn != 0) {
            qsi_commit_wake(internal_channel->store);
        }
    }
    qsi_tx_drop(internal_channel);
    return status;
}

static bool is_large(const struct qs_channel *internal_channel, uint32_t dead_letters)
    QSI_REQUIRES(qsi_store_mutex)
{
    return dead_letters >= GROUP_DEAD_LETTERS ||
           (internal_channel->tx_records != NULL &&
            internal_channel->tx_records->journal_bytes >= GROUP_BYTES);
}

static qs_status keep_stuck(struct qsi_buf *stuck, uint64_t tag, enum qsi_reason reason,
                            qs_error *error)
{
    struct qsi_removal one = {tag, tag, reason};

    QS_DCHECK(tag > 0);
    return qsi_buf_append(stuck, &one, sizeof one) == QS_OK
               ? QS_OK
               : qsi_fail(error, QS_ENOMEM, "dead letter");
}

qs_status qsi_dead_letter(struct qs_store *store, const struct qsi_removal *removal,
                          struct qsi_buf *stuck_out, enum qsi_wait wait, qs_error *error)
{
    struct qs_channel *internal_channel = store->removals.internal_channel;
    qs_status status = QS_OK;
    uint32_t dead_letters = 0;

    QS_ASSERT(removal->first_tag <= removal->last_tag);
    QS_ASSERT_HELD(&store->mutex);
    for (uint64_t tag = removal->first_tag; status == QS_OK && tag <= removal->last_tag; tag++) {
        struct written written = {.fate = FATE_GONE};
        status = reserve_settles(&internal_channel->tx_settles, 1, error);
        QS_ASSERT_HELD(&store->mutex);
        if (status == QS_OK) {
            status =
                write_dead_letter(internal_channel, tag, removal->reason, &written, wait, error);
        }
        if (status == QS_OK && written.fate == FATE_STUCK) {
            status = keep_stuck(stuck_out, tag, removal->reason, error);
        } else if (status == QS_OK) {
            record_settle(&internal_channel->tx_settles, tag, tag, kind_of(written.fate), 0);
        }
        dead_letters += 1;
        if (status == QS_OK && (written.ends_group || is_large(internal_channel, dead_letters))) {
            status = end_group(internal_channel, wait, error);
            dead_letters = 0;
        }
    }
    if (status == QS_OK) {
        return end_group(internal_channel, wait, error);
    }
    qsi_tx_drop(internal_channel);
    return status;
}

/* ---- rejects of a transaction ---- */

/* Tags of an earlier verb of the transaction, in the order of the verbs. */
struct taken {
    const struct qsi_tx_settle *items;
    size_t count;
    uint64_t highest; /* tag of them */
    size_t left;      /* verbs behind these, the one at hand included */
};

static bool is_taken(const struct taken *taken, uint64_t tag)
{
    for (size_t i = 0; tag <= taken->highest && i < taken->count; i++) {
        if (tag >= taken->items[i].first_tag && tag <= taken->items[i].last_tag) {
            return true;
        }
    }
    return false;
}

/* One range of rejects: they become acks if a dead letter replaces the message, or none is needed;
 * the others are removed after the commit.  After a failure the rest are still rejects. */
static qs_status write_dead_letters(struct qs_channel *channel, const struct qsi_tx_settle *rejects,
                                    const struct taken *taken, struct qsi_buf *settles,
                                    qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_unacked *unacked = &channel->unacked;
    uint64_t from = rejects->first_tag; /* what is settled before a tag may be told along with it */

    QS_DCHECK(rejects->kind == QSI_SETTLE_REJECT && taken->left > 0);
    for (uint64_t tag = from; qsi_unacked_next(unacked, tag, &tag) && tag <= rejects->last_tag;
         tag++) {
        struct written written;
        qs_status status;
        if (is_taken(taken, tag)) {
            from = tag + 1;
            continue;
        }
        status = reserve_settles(settles, taken->left, error);
        if (status == QS_OK) {
            status = write_dead_letter(channel, tag, QSI_REJECTED, &written, QSI_MAY_WAIT, error);
        }
        if (status != QS_OK) {
            record_settle(settles, from, rejects->last_tag, QSI_SETTLE_REJECT, 0);
            return status;
        }
        record_settle(settles, from, tag, kind_of(written.fate), 0);
        from = tag + 1;
    }
    return QS_OK;
}

static bool any_reject(const struct qsi_buf *settles)
{
    const struct qsi_tx_settle *items = (const struct qsi_tx_settle *)(const void *)settles->data;

    for (size_t i = 0; i < settles->bytes / sizeof *items; i++) {
        if (items[i].kind == QSI_SETTLE_REJECT) {
            return true;
        }
    }
    return false;
}

/* REQUIRES room for them.  On any failure settles gets the remaining work of all verbs: the commit
 * may be tried again. */
static qs_status write_all(struct qs_channel *channel, const struct qsi_buf *verbs,
                           struct qsi_buf *settles, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct taken taken = {.items = (const struct qsi_tx_settle *)(const void *)verbs->data,
                          .left = verbs->bytes / sizeof *taken.items};
    qs_status status = QS_OK;

    for (; taken.left > 0; taken.count++, taken.left--) {
        const struct qsi_tx_settle *verb = &taken.items[taken.count];
        QS_DCHECK(verb->first_tag <= verb->last_tag);
        if (status == QS_OK && verb->kind == QSI_SETTLE_REJECT) {
            status = write_dead_letters(channel, verb, &taken, settles, error);
        } else {
            record_settle(settles, verb->first_tag, verb->last_tag, verb->kind, verb->due_us);
        }
        taken.highest = verb->last_tag > taken.highest ? verb->last_tag : taken.highest;
    }
    return status;
}

qs_status qsi_dead_letter_in_tx(struct qs_channel *channel, qs_error *error)
{
    struct qsi_buf verbs = channel->tx_settles, settles = {NULL};
    qs_status status;

    QS_ASSERT_HELD(&channel->store->mutex);
    if (!any_reject(&verbs)) {
        return QS_OK;
    }
    QS_TRY(reserve_settles(&settles, verbs.bytes / sizeof(struct qsi_tx_settle), error));
    channel->tx_settles = (struct qsi_buf){NULL}; /* for what comes while the lock is released */
    status = write_all(channel, &verbs, &settles, error);
    qsi_buf_fini(&verbs);
    if (channel->closed) { /* meanwhile, and its transaction is gone */
        qsi_tx_drop(channel);
        qsi_buf_fini(&settles);
        return status;
    }
    verbs = channel->tx_settles;
    channel->tx_settles = settles;
    if (verbs.bytes > 0 && qsi_buf_append(&channel->tx_settles, verbs.data, verbs.bytes) != QS_OK) {
        qsi_tx_drop(channel);
        status = qsi_fail(error, QS_ENOMEM, "transaction: it was rolled back");
    }
    qsi_buf_fini(&verbs);
    return status;
}
