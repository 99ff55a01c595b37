/* Declarations on their way into the journal: names and arguments, room and records. */
#include "topology.h"

#include "arguments.h"
#include "check.h"
#include "commit.h"
#include "enter.h"
#include "error.h"
#include "field_table.h"
#include "queue_life.h"
#include "store_kinds.h"
#include "table_canonical.h"
#include "title.h"
#include "wake.h"

#include <string.h>

qs_status qsi_check_new_name(qs_slice name, const char *what, qs_error *error)
{
    const char *nul;

    if (name.bytes > QSI_EXCHANGE_BYTES_MAX) {
        return qsi_fail(error, QS_EINVAL, "%s of %zu bytes: %d at most", what, name.bytes,
                        QSI_EXCHANGE_BYTES_MAX);
    }
    nul = name.bytes > 0 ? memchr(name.data, 0, name.bytes) : NULL;
    if (nul != NULL) {
        return qsi_fail(error, QS_EINVAL, "%s with a NUL at byte %zu: no name has one", what,
                        (size_t)(nul - (const char *)name.data));
    }
    return QS_OK;
}

qs_status qsi_check_new_argument(struct qsi_slice arguments, const char *name, qs_error *error)
{
    struct qsi_field field;

    if (!qsi_table_find(arguments, qsi_slice_make(name, (uint32_t)strlen(name)), &field) ||
        field.type != 'S') {
        return QS_OK; /* another type is refused for that */
    }
    return qsi_check_new_name((qs_slice){field.value.data, field.value.bytes}, name, error);
}

qs_status qsi_check_table(struct qsi_slice arguments, qs_error *error)
{
    if (!qsi_table_check(arguments)) {
        return qsi_fail(error, QS_EINVAL, "the arguments are not an AMQP field table");
    }
    return QS_OK;
}

qs_status qsi_order_arguments(struct qsi_buf *sorted, qs_slice *arguments_io, qs_error *error)
{
    struct qsi_slice arguments = qsi_slice_of(*arguments_io);

    if (arguments_io->bytes == 0 || !qsi_table_check(arguments) ||
        qsi_table_is_canonical(arguments)) {
        return QS_OK;
    }
    QS_TRY(qsi_table_canonical(sorted, arguments, error));
    *arguments_io = (qs_slice){sorted->data, sorted->bytes};
    return QS_OK;
}

/* ---- journalling ---- */

/* A place for the record, made before anything changes: qsi_append_topology cannot fail then. */
qs_status qsi_reserve_topology(struct qs_store *store, const struct qsi_topology *topology,
                               struct qsi_chunk **chunk_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_ASSERT_HELD(&store->mutex);
    if (qsi_journal_reserve(store->journal, 1) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "journal");
    }
    return qsi_arena_place(store, true, qsi_topology_bytes(topology), chunk_out, error);
}

uint64_t qsi_append_topology(struct qs_store *store, const struct qsi_topology *topology,
                             struct qsi_chunk *chunk)
{
    uint64_t from = chunk->used;
    uint64_t bytes = qsi_topology_bytes(topology);

    QS_ASSERT(!store->options.read_only);
    QS_ASSERT(bytes <= chunk->capacity - from);
    QS_ASSERT_HELD(&store->mutex);
    qsi_topology_encode(chunk->data + from, topology);
    chunk->used += bytes;
    qsi_commit_wake(store);
    store->topology_lsn = qsi_store_append(store, chunk, from, bytes, 1, false);
    return store->topology_lsn;
}

qs_status qsi_enter_topology(struct qs_channel *channel, uint64_t bytes, enum qsi_wait wait,
                             qs_error *error)
{
    bool released;
    qs_status status;

    QS_TRY(qsi_channel_enter(channel, error));
    status =
        qsi_commit_make_room(channel->store, QSI_TOPOLOGY_ROOM + bytes, QSI_TOPOLOGY_ROOM + bytes,
                             QSI_ROOM_REMOVE, &released, wait, error);
    QS_ASSERT_HELD(&channel->store->mutex);
    if (status == QS_OK && channel->closed) {
        status = qsi_fail(error, QS_ECHANNEL_CLOSED, "the channel was closed meanwhile");
    }
    if (status != QS_OK) {
        qsi_store_leave(channel->store);
    }
    return status;
}
