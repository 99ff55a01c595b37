/* A stream's references to bodies of the message store.
 *
 * Invariants: each stored body of a run has one reference counted, and so has each in `kept`.
 *
 * A flush copies bodies into blocks, so the runs' references are dropped with the runs.  In a
 * recovery that is too early: the blocks that it writes become valid only with the next checkpoint,
 * and a crash before that reads the same journal again, which names the bodies.  So references that
 * recovery drops are kept until the next checkpoint's cut. */
#include "check.h"
#include "stream_internal.h"

typedef void body_visitor(void *context, const struct qsi_body_ref *ref)
    QSI_REQUIRES(qsi_store_mutex);

static void visit_stored(const struct qsi_messages_ref *messages_ref, uint32_t from, uint32_t count,
                         body_visitor *visit, void *context) QSI_REQUIRES(qsi_store_mutex)
{
    const uint8_t *viewed = NULL;
    struct qsi_messages view;

    for (uint32_t i = from; i < from + count; i++) {
        uint32_t row;
        const uint8_t *record = qsi_messages_ref_record(messages_ref, i, &row);
        struct qsi_body body;
        if (record != viewed) {
            qsi_messages_view(&view, record);
            viewed = record;
        }
        if (!qsi_messages_is_stored(&view, row)) {
            continue;
        }
        qsi_messages_read_body(&view, row, &body);
        if (body.kind == QSI_BODY_STORED) {
            visit(context, &body.ref);
        }
    }
}

struct counting {
    struct qsi_message_store *messages;
    bool transient, adds;
};

static void count_one(void *context, const struct qsi_body_ref *ref) QSI_REQUIRES(qsi_store_mutex)
{
    const struct counting *counting = context;
    uint32_t durable = counting->transient ? 0 : 1;

    if (counting->adds) {
        qsi_message_store_add_refs(counting->messages, ref, durable, 1 - durable);
    } else {
        qsi_message_store_drop_ref(counting->messages, ref, counting->transient);
    }
}

void qsi_stream_count_refs(struct qsi_message_store *messages,
                           const struct qsi_messages_ref *messages_ref, uint32_t from,
                           uint32_t count, bool transient, bool adds)
{
    struct counting counting = {.messages = messages, .transient = transient, .adds = adds};

    visit_stored(messages_ref, from, count, count_one, &counting);
}

void qsi_stream_add_refs(struct qsi_stream *stream, const struct qsi_run *run, uint32_t from)
{
    if (run->has_stored && stream->shared->messages != NULL) {
        qsi_stream_count_refs(stream->shared->messages, &run->messages, from, run->count - from,
                              false, true);
    }
}

void qsi_stream_drop_refs(struct qsi_stream *stream, const struct qsi_run *run)
{
    if (run->has_stored && stream->shared->messages != NULL) {
        qsi_stream_count_refs(stream->shared->messages, &run->messages, 0, run->count, false,
                              false);
    }
}

static void keep_one(void *context, const struct qsi_body_ref *ref) QSI_REQUIRES(qsi_store_mutex)
{
    /* There is room for it. */
    QS_ASSERT(qsi_buf_append(context, ref, sizeof *ref) == QS_OK);
}

qs_status qsi_stream_keep_refs(struct qsi_stream *stream, const struct qsi_run *run)
{
    uint8_t *room;

    if (!run->has_stored || stream->shared->messages == NULL) {
        return QS_OK;
    }
    QS_TRY(qsi_buf_reserve(&stream->kept, run->count * sizeof(struct qsi_body_ref), &room));
    visit_stored(&run->messages, 0, run->count, keep_one, &stream->kept);
    return QS_OK;
}

void qsi_stream_drop_kept(struct qsi_stream *stream)
{
    const struct qsi_body_ref *refs = (const struct qsi_body_ref *)(const void *)stream->kept.data;

    for (size_t i = 0; i < stream->kept.bytes / sizeof *refs; i++) {
        qsi_message_store_drop_ref(stream->shared->messages, &refs[i], false);
    }
    qsi_buf_fini(&stream->kept);
    stream->kept = (struct qsi_buf){0};
}
