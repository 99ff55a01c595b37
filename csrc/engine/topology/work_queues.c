/* Declaring work queues: where they begin.
 *
 * "first", a time or "1h" are looked up once.  The declaration in the journal has the resulting
 * offset, so a replay needs no look-up, and a queue that is declared again is the same. */
#include "work_queues.h"

#include "argument_values.h"
#include "arguments.h"
#include "clock.h"
#include "error.h"
#include "queue_life.h"
#include "store_work.h"
#include "stream_start.h"
#include "title.h"
#include "work_record.h"

/* Releases the lock meanwhile; the stream may be gone afterwards.  As for RabbitMQ's consumers, a
 * missing offset becomes the nearest one. */
static qs_status find_start(struct qs_store *store, struct qsi_store_queue *source,
                            const struct qsi_stream_start_spec *start, uint64_t *first_out,
                            qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_stream *log = &source->stream->log;
    qs_status status;

    source->jobs += 1;
    status = qsi_stream_find_start(store, source, start, first_out, error);
    if (status == QS_OK && *first_out > log->container.next_seq) {
        *first_out = log->container.next_seq;
    }
    QS_DCHECK(source->jobs > 0);
    source->jobs -= 1;
    qsi_free_queue_if_done(source);
    return status;
}

qs_status qsi_work_queue_start(struct qs_store *store, struct qsi_slice name, uint32_t flags,
                               struct qsi_slice arguments, uint64_t *first_out, qs_error *error)
{
    struct qsi_stream_start_spec start;
    struct qsi_store_queue *source;
    struct qsi_title title;
    struct qsi_slice called = qsi_title_of(&title, store, name);

    QS_ASSERT_HELD(&store->mutex);
    QS_TRY(qsi_arguments_check(arguments, flags, name.bytes == 0, called, error));
    QS_TRY(qsi_work_find_source(store, arguments, called, &source, error));
    QS_TRY(qsi_stream_start_parse(&start, arguments, qsi_clock_us(store), called, error));
    return find_start(store, source, &start, first_out, error);
}
