/* Bindings: creation, lookup by identity, deletion of one. */
#include "alloc.h"
#include "check.h"
#include "match.h"
#include "route_internal.h"

/* The identity of a binding: both ends, the length of the key, the key, the arguments.  The ends
 * are addresses, because identities stay in memory. */
#define IDENTITY_FIXED_BYTES (2 * sizeof(void *) + sizeof(uint32_t))

static qs_status make_identity(struct qsi_buf *identity, const struct qsi_exchange *exchange,
                               const struct qsi_destination *destination, struct qsi_slice key,
                               struct qsi_slice arguments)
{
    qsi_buf_clear(identity);
    QS_TRY(qsi_buf_append(identity, &exchange, sizeof exchange));
    QS_TRY(qsi_buf_append(identity, &destination, sizeof destination));
    QS_TRY(qsi_buf_append(identity, &key.bytes, sizeof key.bytes));
    QS_TRY(qsi_buf_append(identity, key.data, key.bytes));
    QS_TRY(qsi_buf_append(identity, arguments.data, arguments.bytes));
    QS_DCHECK(identity->bytes == IDENTITY_FIXED_BYTES + key.bytes + (uint64_t)arguments.bytes);
    return identity->bytes <= UINT32_MAX ? QS_OK : QS_ENOMEM;
}

/* Creates a binding from router->identity; it is in no list and no set yet. */
static struct qsi_binding *create_binding(struct qsi_router *router, struct qsi_exchange *exchange,
                                          struct qsi_destination *destination, uint32_t key_bytes)
{
    uint32_t identity_bytes = (uint32_t)router->identity.bytes;
    struct qsi_binding *binding = qsi_zalloc(sizeof *binding + identity_bytes);
    uint8_t *key;

    QS_DCHECK(identity_bytes >= IDENTITY_FIXED_BYTES + key_bytes);
    if (binding == NULL) {
        return NULL;
    }
    memcpy(binding->identity, router->identity.data, identity_bytes);
    key = binding->identity + IDENTITY_FIXED_BYTES;
    binding->identity_bytes = identity_bytes;
    binding->exchange = exchange;
    binding->destination = destination;
    binding->key = qsi_slice_make(key, key_bytes);
    binding->arguments = qsi_slice_make(
        key + key_bytes, identity_bytes - (uint32_t)IDENTITY_FIXED_BYTES - key_bytes);
    qsi_list_init(&binding->in_exchange);
    qsi_list_init(&binding->in_destination);
    qsi_list_init(&binding->in_set);
    return binding;
}

static void count_onward(const struct qsi_binding *binding, int change)
{
    QS_DCHECK(change == 1 || change == -1);
    if (binding->destination->exchange != NULL) {
        QS_DCHECK(change > 0 || binding->exchange->onward_count > 0);
        binding->exchange->onward_count += (uint32_t)change;
        qsi_exchange_update_is_plain(binding->exchange);
    }
}

static qs_status add_binding(struct qsi_router *router, struct qsi_binding *binding)
{
    QS_TRY(qsi_map_put(&router->bindings, binding->identity, binding->identity_bytes, binding));
    if (binding->exchange->type->add(router, binding) != QS_OK) {
        qsi_map_remove(&router->bindings, binding->identity, binding->identity_bytes);
        return QS_ENOMEM;
    }
    qsi_list_push_back(&binding->exchange->bindings, &binding->in_exchange);
    qsi_list_push_back(&binding->destination->bindings, &binding->in_destination);
    binding->exchange->binding_count++;
    count_onward(binding, 1);
    QS_DCHECK(binding->exchange->onward_count <= binding->exchange->binding_count);
    router->version++;
    return QS_OK;
}

void qsi_router_drop_binding(struct qsi_router *router, struct qsi_binding *binding)
{
    struct qsi_exchange *exchange = binding->exchange;

    QS_ASSERT(exchange->binding_count > 0);
    exchange->type->remove(router, binding);
    exchange->binding_count--;
    count_onward(binding, -1);
    qsi_list_remove(&binding->in_exchange);
    qsi_list_remove(&binding->in_destination);
    QS_DCHECK(binding->identity_bytes >= IDENTITY_FIXED_BYTES);
    qsi_map_remove(&router->bindings, binding->identity, binding->identity_bytes);
    qsi_free(binding);
    router->version++;
}

qs_status qsi_router_find_binding(struct qsi_router *router, const struct qsi_exchange *exchange,
                                  const struct qsi_destination *destination, struct qsi_slice key,
                                  struct qsi_slice arguments, struct qsi_binding **binding_out,
                                  qs_error *error)
{
    if (make_identity(&router->identity, exchange, destination, key, arguments) != QS_OK) {
        return qsi_router_out_of_memory(error);
    }
    *binding_out = qsi_map_get(&router->bindings, router->identity.data, router->identity.bytes);
    return QS_OK;
}

qs_status qsi_binding_check_ends(const struct qsi_exchange *exchange,
                                 const struct qsi_destination *destination, qs_error *error)
{
    QS_TRY(qsi_exchange_check_name(exchange->name, error));
    return destination->exchange != NULL ? qsi_exchange_check_name(destination->name, error)
                                         : QS_OK;
}

qs_status qsi_router_check_binding(const struct qsi_exchange *exchange, struct qsi_slice key,
                                   struct qsi_slice arguments, qs_error *error)
{
    return exchange->type->check != NULL ? exchange->type->check(key, arguments, error) : QS_OK;
}

qs_status qsi_router_bind_again(struct qsi_router *router, struct qsi_exchange *exchange,
                                struct qsi_destination *destination, struct qsi_slice key,
                                struct qsi_slice arguments, bool *bound_out, qs_error *error)
{
    struct qsi_binding *binding = NULL;

    QS_TRY(qsi_binding_check_ends(exchange, destination, error));
    if (destination->takes_none) {
        return qsi_router_fail_takes_none(router, destination->name, error);
    }
    QS_TRY(qsi_route_check_name_bytes(key, "routing key", error));
    if (exchange->type->needs_check) {
        QS_TRY(qsi_router_check_binding(exchange, key, arguments, error));
    }
    QS_TRY(qsi_router_find_binding(router, exchange, destination, key, arguments, &binding, error));
    *bound_out = binding == NULL;
    if (binding != NULL) {
        return QS_OK;
    }
    QS_DCHECK(key.bytes <= QSI_ROUTE_NAME_BYTES_MAX);
    binding = create_binding(router, exchange, destination, key.bytes);
    if (binding == NULL || add_binding(router, binding) != QS_OK) {
        qsi_free(binding);
        return qsi_router_out_of_memory(error);
    }
    return QS_OK;
}

qs_status qsi_router_bind(struct qsi_router *router, struct qsi_exchange *exchange,
                          struct qsi_destination *destination, struct qsi_slice key,
                          struct qsi_slice arguments, bool *bound_out, qs_error *error)
{
    QS_TRY(qsi_binding_check_ends(exchange, destination, error));
    QS_TRY(qsi_route_check_name_bytes(key, "routing key", error));
    QS_TRY(qsi_router_check_binding(exchange, key, arguments, error));
    return qsi_router_bind_again(router, exchange, destination, key, arguments, bound_out, error);
}
