/* The kinds of queues there are, and the plain one among them. */
#include "store_kinds.h"

#include "check.h"
#include "store.h"

static const struct qsi_store_kind *const kinds[] = {
    &qsi_classic_queue,
    &qsi_stream_queue,
    &qsi_work_queue,
};
#define KINDS (sizeof kinds / sizeof kinds[0])

const struct qsi_store_kind *qsi_kind_of(enum qsi_queue_kind arguments)
{
    size_t i = 0;

    while (i + 1 < KINDS && kinds[i]->arguments != arguments) {
        i++;
    }
    QS_ASSERT(kinds[i]->arguments == arguments);
    return kinds[i];
}

const struct qsi_store_kind *qsi_kind_declared(uint8_t type)
{
    for (size_t i = 0; i < KINDS; i++) {
        if (type != 0 &&
            (type == kinds[i]->declares || type == kinds[i]->declares_with_priorities)) {
            return kinds[i];
        }
    }
    return NULL;
}

void qsi_describe_queue(const struct qsi_store_queue *queue,
                        struct qsi_declaration *declaration_out)
{
    const struct qsi_store_kind *kind = queue->kind;

    QS_ASSERT(!queue->policy.has_priorities || kind->declares_with_priorities != 0);
    declaration_out->topology = (struct qsi_topology){
        .type = queue->policy.has_priorities ? kind->declares_with_priorities : kind->declares,
        .flags = queue->flags,
        .number = queue->container.id,
        .strings = {queue->name, queue->arguments},
    };
    if (kind->describe != NULL) {
        kind->describe(queue, declaration_out);
    }
}

/* ---- the plain kind ---- */

static qs_status make(struct qs_store *store, struct qsi_store_queue *queue, uint64_t id,
                      const struct qsi_arguments *asked, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    (void)asked;
    (void)error;
    QS_ASSERT_HELD(&store->mutex);
    qsi_queue_init(&queue->core, &store->shared, id, (queue->flags & QS_DURABLE) != 0);
    queue->messages = &queue->container;
    return QS_OK;
}

const struct qsi_store_kind qsi_classic_queue = {
    .arguments = QSI_CLASSIC_QUEUE,
    .declares = QSI_RECORD_QUEUE_DECLARE,
    .declares_with_priorities = QSI_RECORD_PRIORITY_QUEUE_DECLARE,
    .make = make,
};
