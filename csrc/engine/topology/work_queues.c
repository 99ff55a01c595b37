/* Declaring work queues: where they begin.
 *
 * "first", a time or "1h" are looked up once.  The declaration in the journal has the offset that
 * was found, so a replay needs no look-up, and a queue that is declared again is the same. */
#include "work_queues.h"

#include "clock.h"
#include "error.h"
#include "queue_life.h"
#include "store_work.h"
#include "stream_policy.h"
#include "work_record.h"

/* Releases the lock meanwhile; the stream stays. */
static qs_status find_time(struct qs_store *store, struct store_queue *source, uint64_t time_us,
                           uint64_t *first_out, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_stream_seek seek;
    qs_status status = qsi_stream_seek_begin(&seek, &source->stream->log, time_us);

    if (status != QS_OK) {
        return qsi_fail(error, status, "stream '%.*s'", QSI_NAME(source->name));
    }
    qsi_store_unlock(store);
    status = qsi_stream_seek_run(&seek, error);
    qsi_store_lock(store);
    *first_out = seek.offset;
    qsi_stream_seek_end(&seek);
    return status;
}

/* Releases the lock meanwhile; the stream stays. */
static qs_status find_last(struct qs_store *store, struct store_queue *source, uint64_t *first_out,
                           qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_stream *log = &source->stream->log;
    struct qsi_stream_view view;
    qs_status status;

    *first_out = log->container.next_seq;
    if (log->container.next_seq == log->first) {
        return QS_OK;
    }
    status = qsi_stream_view_take(&view, log, log->container.next_seq - 1, 1, 0);
    if (status != QS_OK) {
        return qsi_fail(error, status, "stream '%.*s'", QSI_NAME(source->name));
    }
    qsi_store_unlock(store);
    status = qsi_stream_block_start(&view, view.next - 1, first_out, error);
    qsi_store_lock(store);
    qsi_stream_view_fini(&view);
    return status;
}

static qs_status find_start(struct qs_store *store, struct store_queue *source,
                            const struct qsi_stream_start_spec *start, uint64_t *first_out,
                            qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_stream *log = &source->stream->log;

    switch (start->at) {
    case QSI_START_FIRST:
        *first_out = log->first;
        return QS_OK;
    case QSI_START_NEXT:
        *first_out = log->container.next_seq;
        return QS_OK;
    case QSI_START_OFFSET: /* as RabbitMQ's consumers: what is not there is the nearest that is */
        *first_out = start->offset > log->first ? start->offset : log->first;
        *first_out = *first_out < log->container.next_seq ? *first_out : log->container.next_seq;
        return QS_OK;
    case QSI_START_TIME:
        return find_time(store, source, start->time_us, first_out, error);
    case QSI_START_LAST:
        return find_last(store, source, first_out, error);
    }
    return qsi_fail(error, QS_EINVAL, "start");
}

qs_status qsi_work_queue_start(struct qs_store *store, struct qsi_slice name, uint32_t flags,
                               struct qsi_slice arguments, uint64_t *first_out, qs_error *error)
{
    struct qsi_stream_start_spec start;
    struct store_queue *source;
    qs_status status;

    QS_ASSERT_HELD(&store->mutex);
    QS_TRY(qsi_work_policy_check(arguments, flags, name.bytes == 0, name, error));
    QS_TRY(qsi_work_find_source(store, arguments, name, &source, error));
    QS_TRY(qsi_stream_start_parse(&start, arguments, qsi_clock_us(store), name, error));
    source->jobs += 1;
    status = find_start(store, source, &start, first_out, error);
    QS_DCHECK(source->jobs > 0);
    source->jobs -= 1;
    qsi_free_queue_if_done(source);
    return status;
}

qs_status qsi_work_queue_replay(struct qs_store *store, struct store_queue *queue,
                                struct qsi_slice source, qs_error *error)
{
    struct qsi_work_source from;
    struct store_queue *found;

    QS_ASSERT_HELD(&store->mutex);
    QS_TRY(qsi_work_source_decode(&from, source, error));
    found = qsi_map_get_number(&store->queues_by_id, from.stream_id);
    if (found != NULL && found->stream == NULL) {
        found = NULL;
    }
    if (found == NULL && from.stream_id != QSI_WORK_SOURCE_LOST &&
        store->options.recovery != QS_RECOVERY_SALVAGE) {
        return qsi_fail(error, QS_ECORRUPT, "queue '%.*s' reads stream %llu, which is not there",
                        QSI_NAME(queue->name), (unsigned long long)from.stream_id);
    }
    if (from.first > UINT64_MAX / 4) {
        return qsi_fail(error, QS_ECORRUPT, "queue '%.*s' begins at %llu", QSI_NAME(queue->name),
                        (unsigned long long)from.first);
    }
    qsi_work_attach(store, queue, found, from.first);
    return QS_OK;
}
