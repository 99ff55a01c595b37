/* Salvage: opens a store with damage, and serves everything that can be served.  Invariants:
 * nothing on the disk is changed or removed; losses are counted; references to the message store
 * are never dropped for unreadable messages. */
#include "salvage.h"

#include "check.h"
#include "error.h"
#include "priorities.h"
#include "queue_life.h"
#include "queue_replay.h"
#include "states.h"
#include "store_kinds.h"
#include "stream_record.h"

#include <stdio.h>

/* ---- segments ---- */

qs_status qsi_salvage_segments(struct qs_store *store, struct qsi_store_queue *queue,
                               qs_error *error)
{
    struct qsi_queue *core = &queue->core;
    uint32_t i = 0;

    QS_ASSERT(qsi_is_salvage(store));
    QS_ASSERT_HELD(&store->mutex);
    while (i < qsi_queue_segment_count(core)) {
        struct qsi_segment *segment = qsi_queue_segment_at(core, i);
        qs_status status = qsi_load_segment_state(store, queue, segment, error);
        if (qsi_is_unreadable(status)) {
            store->recovery.lost_segments += 1;
            store->recovery.lost_messages += qsi_segment_live_count(segment);
            qsi_queue_lose_segment(core, segment);
            continue;
        }
        QS_TRY(status);
        qsi_segment_drop_state(core, segment);
        i += 1;
    }
    return QS_OK;
}

/* ---- queues ---- */

#define NAME_BYTES 64

static struct qsi_slice name_recovered(struct qs_store *store, uint64_t id,
                                       char name_out[NAME_BYTES])
{
    int bytes =
        snprintf(name_out, NAME_BYTES, "recovered.%llu", (unsigned long long)qsi_queue_in(id));

    if (qsi_priority_in(id) != 0) {
        bytes += snprintf(name_out + bytes, NAME_BYTES - (size_t)bytes, ".%u", qsi_priority_in(id));
    }
    while (qsi_find_queue(store, qsi_slice_make(name_out, (uint32_t)bytes)) != NULL &&
           bytes + 1 < NAME_BYTES) { /* a queue already has the name */
        name_out[bytes++] = '_';
    }
    QS_DCHECK(bytes > 0 && bytes < NAME_BYTES);
    return qsi_slice_make(name_out, (uint32_t)bytes);
}

static qs_status make_queue(struct qs_store *store, const struct qsi_store_kind *kind, uint64_t id,
                            struct qsi_store_queue **queue_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    char name[NAME_BYTES];
    qs_status status;

    QS_ASSERT(qsi_is_salvage(store) && store->recovery.has_lost_records);
    QS_TRY(qsi_new_queue(store, kind, id, QS_DURABLE, name_recovered(store, id, name),
                         qsi_slice_make("", 0), queue_out, error));
    status = qsi_add_queue(store, *queue_out, error);
    if (status != QS_OK) {
        qsi_free_queue(*queue_out);
        *queue_out = NULL;
        return status;
    }
    store->recovery.queues += 1;
    return QS_OK;
}

qs_status qsi_salvage_queue(struct qs_store *store, uint64_t id, struct qsi_store_queue **queue_out,
                            qs_error *error)
{
    QS_ASSERT_HELD(&store->mutex);
    *queue_out = qsi_find_by_id(store, id);
    if (*queue_out == NULL && qsi_find_by_id(store, qsi_queue_in(id)) != NULL) {
        return qsi_require_by_id(store, id, queue_out, error);
    }
    return *queue_out != NULL || !store->recovery.has_lost_records
               ? QS_OK
               : make_queue(store, &qsi_classic_queue, id, queue_out, error);
}

/* ---- streams ---- */

/* The record's files have all earlier messages from its first offset on. */
static bool are_in_files(const struct qsi_store_queue *queue,
                         const struct qsi_stream_written *written) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_queue *core = &queue->core;
    struct qsi_stream_state_segment first;

    QS_DCHECK(!qsi_container_is_direct(queue->messages) && written->segment_count > 0);
    qsi_stream_written_segment(written, 0, &first);
    return qsi_queue_segment_count(core) == 0 ||
           first.first <= qsi_queue_first_seq(core, qsi_queue_segment_at(core, 0));
}

static qs_status make_stream(struct qs_store *store, const struct qsi_stream_written *written,
                             struct qsi_store_queue *before, struct qsi_store_queue **queue_out,
                             qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t id = written->stream_id;

    QS_ASSERT(store->recovery.has_lost_records);
    QS_DCHECK(before == NULL || (before->parent == NULL && before->consumer_count == 0));
    if (store->streams.blocks == NULL) {
        return qsi_fail(error, QS_ECORRUPT, "the directory of streams is missing");
    }
    if (before != NULL && !are_in_files(before, written)) {
        return qsi_fail(error, QS_ECORRUPT,
                        "stream %llu: its declaration is lost, and files of messages before %llu",
                        (unsigned long long)id, (unsigned long long)written->first);
    }
    if (before != NULL) {
        qsi_drop_queue(store, before, QSI_AUTO_DELETE_STAYS);
        store->recovery.queues -= 1;
    }
    return make_queue(store, &qsi_stream_queue, id, queue_out, error);
}

qs_status qsi_salvage_stream(struct qs_store *store, const struct qsi_stream_written *written,
                             struct qsi_store_queue **queue_io, qs_error *error)
{
    struct qsi_store_queue *queue = *queue_io;
    bool is_there = queue != NULL && qsi_container_is_direct(queue->messages);

    QS_ASSERT(qsi_is_salvage(store));
    QS_ASSERT_HELD(&store->mutex);
    if (!is_there && !store->recovery.has_lost_records) {
        return QS_OK;
    }
    /* Lost messages count, and earlier ones in memory stay. */
    QS_TRY(qsi_stream_check_written(&store->streams, written, error));
    return is_there ? QS_OK : make_stream(store, written, queue, queue_io, error);
}

/* ---- records ---- */

qs_status qsi_salvage_record(struct qs_store *store, qs_status status, uint64_t bytes)
{
    bool is_nonsense =
        status == QS_ECORRUPT || status == QS_EINVAL || status >= QS_CONTENT_TOO_LARGE;

    QS_ASSERT_HELD(&store->mutex);
    if (!qsi_is_salvage(store) || !is_nonsense) {
        return status;
    }
    store->recovery.has_lost_records = true;
    store->recovery.lost_ranges += 1;
    store->recovery.lost_bytes += bytes;
    return QS_OK;
}
