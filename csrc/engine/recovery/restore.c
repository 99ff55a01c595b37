/* The checkpoint at open: its records are replayed like those of the journal, before the journal's
 * records after its LSN. */
#include "restore.h"

#include "qstore/codec.h"

#include "alloc.h"
#include "check.h"
#include "checkpoint_format.h"
#include "commit.h"
#include "env_call.h"
#include "error.h"
#include "failure.h"
#include "file.h"
#include "priorities.h"
#include "queue_life.h"
#include "queue_replay.h"
#include "replay.h"
#include "salvage.h"
#include "states.h"
#include "thread_safety.h"
#include "transactions_restore.h"

#include <string.h>

#define CHECKPOINT_BYTES_MAX (UINT64_C(1) << 32)

/* ---- a queue's state ---- */

/* Messages will be added to the segment, which needs its state; without the state the queue
 * continues after it. */
static qs_status load_last_segment(struct qs_store *store, struct qsi_store_queue *queue,
                                   qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_queue *core = &queue->core;
    struct qsi_segment *last =
        qsi_queue_find_segment(core, core->container.next_seq / store->shared.entries);
    qs_status status = last != NULL ? qsi_load_segment_state(store, queue, last, error) : QS_OK;

    QS_DCHECK(qsi_takes(queue));
    if (status != QS_OK && qsi_pass_over(store, status) == QS_OK) {
        qsi_queue_end_segment(core, last);
        status = QS_OK;
    }
    return status;
}

/* What a snapshot of a container encoded. */
static qs_status restore_record(struct qsi_store_queue *queue, const uint8_t *record,
                                qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    qs_status status =
        qsi_container_restore(queue->messages, record, &queue->restored_next_seq, error);

    if (status != QS_OK) {
        qsi_error_prefix(error, "queue '%.*s'", (int)queue->name.bytes,
                         (const char *)queue->name.data);
    }
    return status;
}

static qs_status replay_state(struct qs_store *store, uint64_t id, const uint8_t *record,
                              qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_queue *queue;

    QS_TRY(qsi_is_salvage(store) ? qsi_salvage_queue(store, id, &queue, error)
                                 : qsi_require_by_id(store, id, &queue, error));
    if (queue == NULL) {
        return qsi_fail(error, QS_ECORRUPT, "the state of queue %llu, which is not there",
                        (unsigned long long)id);
    }
    QS_TRY(restore_record(queue, record, error));
    if (!qsi_takes(queue) || !qsi_appends(queue)) { /* it has no messages in segments */
        return QS_OK;
    }
    if (qsi_is_salvage(store)) {
        QS_TRY(qsi_salvage_segments(store, queue, error));
    }
    return load_last_segment(store, queue, error);
}

/* What belongs to a state that came before. */
static qs_status replay_rest(struct qs_store *store, uint64_t id, const uint8_t *record,
                             qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_queue *queue = qsi_map_get_number(&store->queues_by_id, id);
    qs_status status =
        queue != NULL ? restore_record(queue, record, error)
                      : qsi_fail(error, QS_ECORRUPT, "a segment of queue %llu, which is not there",
                                 (unsigned long long)id);

    /* Salvage may have dropped what it is about. */
    return status == QS_ECORRUPT && qsi_is_salvage(store) ? QS_OK : status;
}

static qs_status replay_container(struct qs_store *store, const uint8_t *record, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    if (qsi_record_length(record) < QSI_RECORD_HEAD_BYTES + sizeof(uint64_t)) {
        return qsi_fail(error, QS_ECORRUPT, "a queue's record of %u bytes",
                        qsi_record_length(record));
    }
    return qsi_record_type(record) == QSI_RECORD_FORMER_FILE ||
                   qsi_record_type(record) == QSI_RECORD_WORK_SEGMENT
               ? replay_rest(store, qsi_get_u64(record + 8), record, error)
               : replay_state(store, qsi_get_u64(record + 8), record, error);
}

/* ---- the file ---- */

#define HELP                                                                                    \
    ": put it back from a backup; recovery=\"salvage\" together with read_only shows what the " \
    "journal has without it"

static qs_status load_file(qs_env *env, qs_dir *dir, const struct qsi_manifest *manifest,
                           const char *path, uint8_t **data_out, size_t *bytes_out, qs_error *error)
{
    char name[QSI_CHECKPOINT_NAME_BYTES];
    qs_status status;

    qsi_checkpoint_name(name, manifest->checkpoint_number);
    status = qsi_file_load(env, dir, name, CHECKPOINT_BYTES_MAX, data_out, bytes_out, error);
    if (status == QS_ENOENT) {
        return qsi_fail_corrupt(error, path, 0, "the checkpoint is missing" HELP);
    }
    QS_TRY(status);
    if (*bytes_out != manifest->checkpoint_bytes) {
        return qsi_fail_corrupt(error, path, 0, "%zu bytes; MANIFEST says %llu" HELP, *bytes_out,
                                (unsigned long long)manifest->checkpoint_bytes);
    }
    if (*bytes_out < QSI_CHECKPOINT_HEADER_BYTES) {
        return qsi_fail_corrupt(error, path, 0, "%zu bytes: less than its header", *bytes_out);
    }
    if (qs_crc32c(0, *data_out, *bytes_out) != manifest->checkpoint_crc) {
        return qsi_fail_corrupt(error, path, 0, "checksum mismatch" HELP);
    }
    return QS_OK;
}

qs_status qsi_checkpoint_load(qs_env *env, qs_dir *dir, const struct qsi_manifest *manifest,
                              struct qsi_checkpoint_header *header_out, uint8_t **data_out,
                              size_t *bytes_out, qs_error *error)
{
    char path[QSI_CHECKPOINT_PATH_BYTES];
    qs_status status;

    QS_DCHECK(manifest->checkpoint_number != 0);
    *data_out = NULL;
    qsi_checkpoint_path(path, manifest->checkpoint_number);
    status = load_file(env, dir, manifest, path, data_out, bytes_out, error);
    if (status == QS_OK) {
        status = qsi_checkpoint_header_decode(header_out, *data_out, path, manifest->uuid,
                                              manifest->checkpoint_number, error);
    }
    if (status != QS_OK) {
        qsi_free(*data_out);
        *data_out = NULL;
    }
    return status;
}

/* Messages get memory of their own, shared with nothing else. */
static qs_status replay_one(struct qs_store *store, const uint8_t *record, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t bytes = qsi_record_length(record);
    struct qsi_chunk *chunk = NULL;
    uint64_t at;

    switch (qsi_record_type(record)) {
    case QSI_RECORD_QUEUE_STATE:
    case QSI_RECORD_STREAM_STATE:
    case QSI_RECORD_FORMER_FILE:
    case QSI_RECORD_WORK_STATE:
    case QSI_RECORD_WORK_SEGMENT:
        return replay_container(store, record, error);
    case QSI_RECORD_STORE_STATE:
        return qsi_store_state_decode(&store->next_queue_id, record, error);
    case QSI_RECORD_KEY_FILE:
        return qsi_transactions_replay_file(store, record, error);
    case QSI_RECORD_MESSAGE_FILE:
        return qsi_message_store_restore(store->messages, record, error);
    default:
        QS_TRY(qsi_arena_place(store, true, bytes, &chunk, error));
        at = chunk->used;
        QS_ASSERT(bytes <= chunk->capacity - at);
        memcpy(chunk->data + at, record, bytes);
        chunk->used += bytes;
        return qsi_replay_record(store, chunk, at, error);
    }
}

static qs_status replay_records(struct qs_store *store, const char *path, const uint8_t *data,
                                size_t bytes, uint32_t record_count, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t at = QSI_CHECKPOINT_HEADER_BYTES;
    uint32_t count = 0;

    for (; at < bytes; count++) {
        qs_error detail = {0};
        qs_status status;
        if (!qsi_record_fits(data + at, bytes - at)) {
            return qsi_fail_corrupt(error, path, at, "a record leaves the file");
        }
        status = replay_one(store, data + at, &detail);
        if (status == QS_ECORRUPT || status == QS_EINVAL || status >= QS_CONTENT_TOO_LARGE) {
            return qsi_fail_corrupt(error, path, at, "%s", detail.text);
        }
        if (status != QS_OK) {
            if (error != NULL) {
                *error = detail;
            }
            return status;
        }
        at += qsi_record_length(data + at);
    }
    return count == record_count
               ? QS_OK
               : qsi_fail_corrupt(error, path, 48, "%u records; the header says %u", count,
                                  record_count);
}

/* Sequences between the last carried message and the next new one were assigned as well. */
static qs_status skip_to_next(struct qs_store *store, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);

    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        struct qsi_store_queue *queue = cursor.value;
        if (qsi_container_skip_to(queue->messages, queue->restored_next_seq) != QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "queue");
        }
        QS_DCHECK(queue->messages->next_seq >= queue->restored_next_seq);
        if (qsi_takes(queue) && queue->container.ram_count == 0) {
            qsi_container_start_at(&queue->container, queue->container.next_seq);
        }
    }
    return QS_OK;
}

static bool is_named(void *context, const struct qsi_segment_file *file)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qs_store *store = context;
    struct qsi_store_queue *queue = qsi_map_get_number(&store->queues_by_id, file->queue_id);
    const struct qsi_queue *core = queue != NULL ? qsi_container_queue(&queue->container) : NULL;

    QS_ASSERT_HELD(&store->mutex);
    return core != NULL && qsi_queue_has_file(core, file);
}

static bool is_named_by_stream(void *context, const struct qsi_block_file *file)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qs_store *store = context;
    const struct qsi_store_queue *queue = qsi_map_get_number(&store->queues_by_id, file->owner);

    QS_ASSERT_HELD(&store->mutex);
    return queue != NULL && qsi_container_has_file(queue->messages, file->number, false);
}

struct old_checkpoints {
    struct qs_store *store;
    qs_status status;
};

static bool remove_old_checkpoint(void *context, const char *name) QSI_REQUIRES(qsi_manifest_mutex)
{
    struct old_checkpoints *old = context;
    uint64_t number;

    if ((qsi_checkpoint_number(name, &number) &&
         number != old->store->manifest.checkpoint_number) ||
        qsi_transactions_is_leftover(old->store, name)) {
        old->status = qsi_env_remove(old->store->env, old->store->checkpoint_dir, name, NULL);
    }
    return true;
}

qs_status qsi_list_leftovers(struct qs_store *store, struct qsi_leftovers *leftovers_out,
                             qs_error *error)
{
    QS_ASSERT_HELD(&store->mutex);
    QS_TRY(qsi_index_list_others(store->index, is_named, store, &leftovers_out->segments, error));
    return store->streams.blocks == NULL
               ? QS_OK
               : qsi_block_dir_list_others(store->streams.blocks, is_named_by_stream, store,
                                           &leftovers_out->blocks, error);
}

static bool keep_none(void *context, const struct qsi_segment_file *file)
{
    (void)context;
    (void)file;
    return false;
}

qs_status qsi_remove_leftovers(struct qs_store *store, const struct qsi_leftovers *leftovers,
                               qs_error *error)
{
    struct old_checkpoints old = {store, QS_OK};
    uint64_t removed;

    QS_ASSERT(!store->options.read_only);
    QS_ASSERT_HELD(&store->mutex);
    QS_TRY(qsi_index_remove_others(store->transient_index, keep_none, NULL, &removed, error));
    if (store->options.recovery == QS_RECOVERY_SALVAGE) {
        return QS_OK;
    }
    QS_TRY(qsi_index_remove_listed(store->index, &leftovers->segments, is_named, store, &removed,
                                   error));
    QS_TRY(qsi_block_dir_remove_listed(store->streams.blocks, &leftovers->blocks,
                                       is_named_by_stream, store, &removed, error));
    return qsi_env_dir_list(store->env, store->checkpoint_dir, remove_old_checkpoint, &old, error);
}

/* With the checkpoint it is lost which segments and message files are valid: new files could take
 * their names.  So the store is only read, as far as the journal goes. */
static qs_status lose_checkpoint(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex, qsi_manifest_mutex)
{
    struct qsi_buf segments = {0};
    qs_status status = qsi_index_list_others(store->index, keep_none, NULL, &segments, error);

    QS_ASSERT(store->options.read_only); /* its names could be given again */
    if (status == QS_OK) {
        store->recovery.has_lost_records = true;
        store->recovery.lost_ranges += 1;
        store->recovery.lost_bytes += store->manifest.checkpoint_bytes;
        store->recovery.lost_segments += segments.bytes / sizeof(struct qsi_segment_file);
    }
    qsi_buf_fini(&segments);
    return status;
}

qs_status qsi_restore(struct qs_store *store, qs_error *error)
{
    struct qsi_checkpoint_header header;
    char path[QSI_CHECKPOINT_PATH_BYTES];
    uint8_t *data = NULL;
    size_t bytes = 0;
    qs_status status;

    QS_ASSERT_HELD(&store->mutex);
    if (store->manifest.checkpoint_number == 0) {
        return QS_OK;
    }
    qsi_checkpoint_path(path, store->manifest.checkpoint_number);
    status = qsi_checkpoint_load(store->env, store->checkpoint_dir, &store->manifest, &header,
                                 &data, &bytes, error);
    if (qsi_is_unreadable(status) && qsi_is_salvage(store) && store->options.read_only) {
        return lose_checkpoint(store, error);
    }
    if (status == QS_OK) {
        /* The counts that it records include the references of the messages that it carries. */
        store->shared.messages = store->streams.messages = NULL;
        status = replay_records(store, path, data, bytes, header.record_count, error);
        store->shared.messages = store->streams.messages = store->messages;
    }
    qsi_free(data);
    QS_TRY(status);
    QS_TRY(skip_to_next(store, error));
    store->checkpoint.number = store->manifest.checkpoint_number;
    store->checkpoint.lsn = store->recovery.from_lsn = store->manifest.checkpoint_lsn;
    return QS_OK;
}
