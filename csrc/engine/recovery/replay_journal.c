/* Replaying the journal: which of its blocks are valid, and in which order they are applied.
 *
 * A block is applied when a later one proves that it was durable.  The last blocks lack that proof:
 * their write may have reached the disk without the message bodies that they name.  There, atomic
 * groups are applied as a whole or not at all, and only if every body that they name exists;
 * dropped groups cannot have anything that was confirmed. */
#include "replay_journal.h"

#include "alloc.h"
#include "check.h"
#include "enter.h"
#include "error.h"
#include "lost_files.h"
#include "pager_steps.h"
#include "replay.h"
#include "salvage.h"
#include "scan.h"
#include "store_work.h"
#include "stream_record.h"
#include "thread_safety.h"
#include "transactions.h"

#include <string.h>

struct replay {
    struct qs_store *store;
    struct qsi_scan_block *held; /* scanned, not applied */
    uint32_t held_count;
    uint32_t held_capacity;
    uint32_t session; /* of the last applied block */
    uint64_t end_lsn; /* of the last one that was visited */
    bool is_checked;  /* the journal is whole, as far as can be determined */
};

/* ---- before anything is written ---- */

static qs_status pass_over(void *context, const struct qsi_scan_block *block, qs_error *error)
{
    (void)context;
    (void)block;
    (void)error;
    return QS_OK;
}

/* An open that refuses the store changes nothing in it: the whole journal is read once before the
 * replay writes the first segment. */
static qs_status check_journal(struct replay *replay, qs_error *error)
{
    struct qs_store *store = replay->store;
    static const struct qsi_scan_options options;
    struct qsi_scan_result result;

    if (replay->is_checked || store->options.recovery == QS_RECOVERY_SALVAGE) {
        return QS_OK;
    }
    QS_TRY(qsi_journal_scan(store->env, store->journal_dir, &store->manifest, &options, pass_over,
                            NULL, &result, error));
    QS_TRY(qsi_check_checkpoints(store->env, store->checkpoint_dir, &store->manifest,
                                 result.end_lsn, error));
    QS_DCHECK(!store->options.read_only);
    replay->is_checked = true;
    return QS_OK;
}

/* ---- blocks ---- */

static qs_status blame(const struct qsi_scan_block *block, qs_status status, qs_error *error)
{
    char path[QSI_JOURNAL_PATH_BYTES];
    qs_error inner;

    QS_DCHECK(status != QS_OK);
    if (status == QS_EINVAL ||
        status >= QS_CONTENT_TOO_LARGE) { /* what routing says of a record that makes no sense */
        status = QS_ECORRUPT;
    }
    if (status != QS_ECORRUPT || error == NULL) {
        return status;
    }
    inner = *error;
    qsi_journal_path(path, block->block.file_number);
    return qsi_fail_corrupt(error, path, block->offset, "%s", inner.text);
}

static qs_status mark_all_seen(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);

    qsi_work_recover(store); /* they had all messages of their streams */
    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        if (qsi_container_mark_all_seen(&((struct qsi_store_queue *)cursor.value)->container) !=
            QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "counts of deliveries");
        }
    }
    return QS_OK;
}

/* The deliveries of a session that crashed are unknown, except in queues that count deliveries: all
 * its messages count as delivered once. */
static qs_status enter_session(struct replay *replay, uint32_t session, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QSI_REQUIRES(qsi_manifest_mutex)
{
    while (replay->session < session) {
        replay->session += 1;
        QS_ASSERT(replay->session < replay->store->manifest.session_count);
        if (replay->store->manifest.sessions[replay->session].after_crash) {
            QS_TRY(mark_all_seen(replay->store, error));
        }
    }
    return QS_OK;
}

/* Enters the first session, before any of its blocks.  If the session before it crashed without a
 * record behind the checkpoint, it took that session's place, and the checkpoint was written before
 * the deliveries.  A session that begins before the checkpoint wrote the checkpoint itself. */
static qs_status enter_first(struct replay *replay, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
    QSI_REQUIRES(qsi_manifest_mutex)
{
    const struct qs_store *store = replay->store;
    const struct qsi_session *first = store->manifest.sessions;

    if (store->manifest.session_count == 0) {
        return QS_OK;
    }
    replay->end_lsn = first->base_lsn;
    return first->after_crash && first->base_lsn == store->checkpoint.lsn
               ? mark_all_seen(replay->store, error)
               : QS_OK;
}

/* A journal that exceeds the budget is replayed all the same: later messages go to segments. */
static qs_status relieve_memory(struct replay *replay, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = replay->store;
    bool is_much = qsi_budget_bytes(store->budget) > store->options.memory_budget / 2;

    if (store->options.read_only || (!is_much && !qsi_transactions_want_spill(store))) {
        return QS_OK;
    }
    QS_TRY(check_journal(replay, error));
    if (qsi_transactions_want_spill(store)) {
        QS_TRY(qsi_transactions_spill(store, error));
    }
    while (qsi_budget_bytes(store->budget) > store->options.memory_budget / 2 &&
           qsi_pager_step(store)) {
    }
    return qsi_store_check_failed(store, error);
}

static qs_status apply(struct replay *replay, const struct qsi_scan_block *block, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex, qsi_manifest_mutex)
{
    struct qs_store *store = replay->store;
    uint64_t at = block->from;
    uint64_t end = block->from + block->block.payload_bytes;

    QS_DCHECK(replay->session <= block->session || qsi_is_salvage(store)); /* in their order */
    QS_TRY(enter_session(replay, block->session, error));
    while (at < end) {
        uint64_t lsn = block->block.lsn + (at - block->from);
        qs_status status =
            lsn < store->checkpoint.lsn ? QS_OK : qsi_replay_record(store, block->chunk, at, error);
        status = qsi_salvage_record(store, status, qsi_record_length(block->chunk->data + at));
        if (status != QS_OK) {
            return blame(block, status, error);
        }
        at += qsi_record_length(block->chunk->data + at);
    }
    QS_TRY(relieve_memory(replay, error));
    QS_DCHECK(at == end);
    replay->store->recovery.records += block->block.record_count;
    replay->store->recovery.bytes += block->block.payload_bytes;
    return QS_OK;
}

static void drop_held(struct replay *replay, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        qsi_chunk_unref(replay->held[i].chunk);
    }
    QS_DCHECK(replay->held_count >= count);
    replay->held_count -= count;
    if (count > 0) {
        memmove(replay->held, replay->held + count, replay->held_count * sizeof *replay->held);
    }
}

/* Applies the held blocks before lsn. */
static qs_status apply_before(struct replay *replay, uint64_t lsn, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex, qsi_manifest_mutex)
{
    uint32_t count = 0;
    qs_status status = QS_OK;

    while (status == QS_OK && count < replay->held_count && replay->held[count].block.lsn < lsn) {
        status = apply(replay, &replay->held[count++], error);
    }
    QS_DCHECK(count <= replay->held_count);
    drop_held(replay, count);
    return status;
}

static qs_status hold(struct replay *replay, const struct qsi_scan_block *block, qs_error *error)
{
    QS_DCHECK(qsi_is_salvage(replay->store) || replay->held_count == 0 ||
              replay->held[replay->held_count - 1].block.lsn < block->block.lsn);
    if (replay->held_count == replay->held_capacity) {
        struct qsi_scan_block *grown =
            qsi_grow(replay->held, &replay->held_capacity, 8, sizeof *grown);
        if (grown == NULL) {
            return qsi_fail(error, QS_ENOMEM, "held blocks");
        }
        replay->held = grown;
    }
    replay->held[replay->held_count] = *block;
    qsi_chunk_ref(block->chunk);
    replay->held_count += 1;
    return QS_OK;
}

static qs_status visit_block(void *context, const struct qsi_scan_block *block, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex, qsi_manifest_mutex)
{
    struct replay *replay = context;
    uint64_t proven = replay->store->checkpoint.lsn; /* made when all before was durable */
    bool new_session = replay->held_count > 0 && replay->held[0].session != block->session;

    QS_ASSERT_HELD(&replay->store->mutex);
    if (block->block.lsn > replay->end_lsn && block->block.lsn > replay->store->checkpoint.lsn) {
        replay->store->recovery.has_lost_records = true; /* only salvage gets here */
    }
    QS_DCHECK(block->block.lsn >= replay->end_lsn || qsi_is_salvage(replay->store));
    replay->end_lsn = block->block.lsn + block->block.payload_bytes;
    /* The end of an earlier session was decided when the next one began. */
    if (block->chunk->budget == NULL) {
        qsi_chunk_charge(block->chunk, replay->store->budget);
    }
    proven = block->block.durable_upto > proven ? block->block.durable_upto : proven;
    QS_TRY(apply_before(replay, new_session ? block->block.lsn : proven, error));
    return hold(replay, block, error);
}

/* ---- the tail ---- */

/* Whether all bodies that a block names exist.  QS_ECORRUPT if not. */
static qs_status check_bodies(struct qs_store *store, const struct qsi_scan_block *block,
                              qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t at = block->from;
    uint64_t end = block->from + block->block.payload_bytes;

    for (; at < end; at += qsi_record_length(block->chunk->data + at)) {
        const uint8_t *record = block->chunk->data + at;
        struct qsi_messages view;
        if (qsi_is_stream_written(record)) {
            struct qsi_stream_written written;
            QS_TRY(qsi_stream_written_decode(&written, record, error));
            QS_TRY(qsi_stream_check_written(&store->streams, &written, error));
        }
        if (qsi_record_type(record) != QSI_RECORD_MESSAGES) {
            continue;
        }
        QS_TRY(qsi_messages_check(record, error));
        qsi_messages_view(&view, record);
        for (uint32_t row = 0; view.stored != NULL && row < view.row_count; row++) {
            struct qsi_body_ref ref;
            if (!qsi_messages_is_stored(&view, row)) {
                continue;
            }
            ref = qsi_messages_body_ref(&view, row);
            QS_TRY(qsi_message_store_check(store->messages, &ref, error));
        }
    }
    return QS_OK;
}

/* How many of the held blocks are the first complete group, with all its bodies; 0: there is
 * none. */
static qs_status complete_group(struct replay *replay, uint32_t *count_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t count = 0;

    *count_out = 0;
    while (count < replay->held_count) {
        const struct qsi_scan_block *block = &replay->held[count++];
        qs_error detail = {0};
        qs_status status = check_bodies(replay->store, block, &detail);
        if (status == QS_ECORRUPT) {
            return QS_OK;
        }
        if (status != QS_OK) {
            if (error != NULL) {
                *error = detail;
            }
            return status;
        }
        if ((block->block.flags & QSI_BLOCK_MORE) == 0) {
            QS_DCHECK(count > 0);
            *count_out = count;
            return QS_OK;
        }
    }
    return QS_OK;
}

/* The end of the held blocks was recorded: by a close, by a commit that failed, or by the recovery
 * that began the next session.  The bodies that they name may be gone since, because they are not
 * needed any more. */
static bool is_decided(const struct replay *replay)
{
    const struct qsi_manifest *manifest = &replay->store->manifest;

    return qsi_manifest_is_ended(manifest) ||
           (replay->held_count > 0 && replay->held[0].session + 1 < manifest->session_count);
}

/* Applies what is whole and truncates the rest. */
static qs_status finish_tail(struct replay *replay, struct qsi_scan_result *result, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex, qsi_manifest_mutex)
{
    if (is_decided(replay)) {
        return apply_before(replay, UINT64_MAX, error);
    }
    QS_TRY(apply_before(replay, replay->store->checkpoint.lsn, error));
    while (replay->held_count > 0) {
        uint32_t count = 0;
        QS_TRY(complete_group(replay, &count, error));
        if (count == 0) {
            break;
        }
        QS_TRY(apply_before(replay, replay->held[count - 1].block.lsn + 1, error));
    }
    if (replay->held_count > 0) {
        const struct qsi_scan_block *first = &replay->held[0];
        for (uint32_t i = 0; i < replay->held_count; i++) {
            result->torn_bytes += qsi_block_bytes(replay->held[i].block.payload_bytes);
        }
        QS_ASSERT(first->block.lsn >= replay->store->checkpoint.lsn); /* what it has counts */
        result->end_lsn = first->block.lsn;
    }
    drop_held(replay, replay->held_count);
    return QS_OK;
}

qs_status qsi_replay_journal(struct qs_store *store, struct qsi_scan_result *result,
                             qs_error *error)
{
    struct replay replay = {.store = store};
    struct qsi_scan_options options = {
        .salvage = store->options.recovery == QS_RECOVERY_SALVAGE,
        .progress = store->options.progress,
        .progress_context = store->options.progress_context,
    };
    qs_status status = QS_OK;

    if (options.salvage) {
        status =
            qsi_journal_adopt_sessions(store->env, store->journal_dir, &store->manifest, error);
    }
    if (status == QS_OK) {
        status = enter_first(&replay, error);
    }
    if (status == QS_OK) {
        status = qsi_journal_scan(store->env, store->journal_dir, &store->manifest, &options,
                                  visit_block, &replay, result, error);
    }
    if (status == QS_OK) {
        status = finish_tail(&replay, result, error);
    }
    if (status == QS_OK && !options.salvage) {
        status = qsi_check_checkpoints(store->env, store->checkpoint_dir, &store->manifest,
                                       result->end_lsn, error);
    }
    if (status == QS_OK) {
        qsi_work_recover(store);
    }
    if (status == QS_OK && store->manifest.session_count > 0) {
        status = enter_session(&replay, store->manifest.session_count - 1, error);
        if (status == QS_OK && !store->manifest.clean) {
            status = mark_all_seen(store, error);
        }
    }
    drop_held(&replay, replay.held_count);
    qsi_free(replay.held);
    return status;
}
