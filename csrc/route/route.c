/* The router: exchanges, destinations and the bindings between them.
 *
 * Invariants: a binding is in router->bindings, in its exchange's list, in its destination's
 * list and in the set of its exchange's matcher, or in none of them; every change that can
 * change a route raises the version; a failed call has changed nothing. */
#include "route.h"

#include "alloc.h"
#include "check.h"
#include "error.h"
#include "field_print.h"
#include "match.h"
#include "properties.h"

#include <string.h>

#define RESERVED_PREFIX "amq."
#define RESERVED_PREFIX_BYTES 4u
#define ALTERNATE "alternate-exchange"

/* For "%.*s". */
#define PRINT(slice) (int)(slice).bytes, (const char *)(slice).data

/* -- slices ----------------------------------------------------------------------------------- */

/* Unlike qsi_slice_equals, with an empty slice and a null one the same: both are a key of no
 * bytes. */
static bool same_bytes(struct qsi_slice a, struct qsi_slice b)
{
    return a.bytes == b.bytes && (a.bytes == 0 || memcmp(a.data, b.data, a.bytes) == 0);
}

/* Copies to *at and moves it on. */
static struct qsi_slice copy_slice(uint8_t **at, struct qsi_slice slice)
{
    uint8_t *start = *at;

    if (slice.bytes > 0) {
        memcpy(start, slice.data, slice.bytes);
    }
    *at += slice.bytes;
    return qsi_slice_make(start, slice.bytes);
}

static qs_status out_of_memory(qs_error *error)
{
    return qsi_fail(error, QS_ENOMEM, "routing table");
}

static qs_status check_name_bytes(struct qsi_slice name, const char *what, qs_error *error)
{
    if (name.bytes > QSI_ROUTE_NAME_BYTES_MAX) {
        return qsi_fail(error, QS_EINVAL, "%s of %u bytes, more than %u", what, name.bytes,
                        QSI_ROUTE_NAME_BYTES_MAX);
    }
    return QS_OK;
}

/* -- exchange types --------------------------------------------------------------------------- */

static const struct qsi_exchange_type *const types[] = {
    &qsi_match_direct,
    &qsi_match_fanout,
    &qsi_match_headers,
    &qsi_match_topic,
};

static qs_status find_type(struct qsi_slice name, const struct qsi_exchange_type **type_out,
                           qs_error *error)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (same_bytes(types[i]->name, name)) {
            *type_out = types[i];
            return QS_OK;
        }
    }
    return qsi_fail(error, QS_COMMAND_INVALID, "unknown exchange type '%.*s'", PRINT(name));
}

struct qsi_slice qsi_exchange_type_name(const struct qsi_exchange *exchange)
{
    return exchange->type->name;
}

/* -- alternate exchanges ---------------------------------------------------------------------- */

/* False: the arguments have none. */
static bool find_alternate(struct qsi_slice arguments, struct qsi_field *alternate_out)
{
    return qsi_table_find(arguments, QSI_SLICE_LITERAL(ALTERNATE), alternate_out);
}

/* No bytes when there is none. */
static struct qsi_slice alternate_of(struct qsi_slice arguments)
{
    struct qsi_field alternate;

    if (find_alternate(arguments, &alternate) && alternate.type == 'S') {
        return alternate.value;
    }
    return QSI_SLICE_NULL;
}

static qs_status check_alternate(struct qsi_slice name, const struct qsi_exchange_options *options,
                                 qs_error *error)
{
    struct qsi_field alternate;

    if (!options->replayed && find_alternate(options->arguments, &alternate) &&
        alternate.type != 'S') {
        return qsi_fail(error, QS_PRECONDITION_FAILED,
                        "invalid type '%s' for arg '" ALTERNATE "' in exchange '%.*s'",
                        qsi_field_type_name(alternate.type), PRINT(name));
    }
    return QS_OK;
}

static qs_status fail_alternate(const struct qsi_exchange *exchange,
                                const struct qsi_field *received, const struct qsi_field *current,
                                qs_error *error)
{
    char first[QSI_FIELD_PRINT_BYTES], second[QSI_FIELD_PRINT_BYTES];

    qsi_field_print_value(first, received);
    qsi_field_print_value(second, current);
    if (current == NULL) {
        return qsi_fail(error, QS_PRECONDITION_FAILED,
                        "inequivalent arg '" ALTERNATE "' for exchange '%.*s': received the value "
                        "'%s' of type '%s' but current is none",
                        PRINT(exchange->name), first, qsi_field_type_name(received->type));
    }
    if (received == NULL) {
        return qsi_fail(error, QS_PRECONDITION_FAILED,
                        "inequivalent arg '" ALTERNATE "' for exchange '%.*s': received none but "
                        "current is the value '%s' of type '%s'",
                        PRINT(exchange->name), second, qsi_field_type_name(current->type));
    }
    return qsi_fail(error, QS_PRECONDITION_FAILED,
                    "inequivalent arg '" ALTERNATE "' for exchange '%.*s': received '%s' but "
                    "current is '%s'",
                    PRINT(exchange->name), first, second);
}

static qs_status check_same_alternate(const struct qsi_exchange *exchange,
                                      struct qsi_slice arguments, qs_error *error)
{
    struct qsi_field received, current;
    bool is_received = find_alternate(arguments, &received);
    bool is_current = find_alternate(exchange->arguments, &current);

    if (is_received == is_current &&
        (!is_received ||
         (received.type == current.type && same_bytes(received.value, current.value)))) {
        return QS_OK;
    }
    return fail_alternate(exchange, is_received ? &received : NULL, is_current ? &current : NULL,
                          error);
}

/* -- exchanges -------------------------------------------------------------------------------- */

static void note_is_plain(struct qsi_exchange *exchange)
{
    exchange->is_plain = exchange->type->lookup != NULL && exchange->onward_count == 0 &&
                         exchange->alternate.bytes == 0;
}

static void destroy_exchange(struct qsi_router *router, struct qsi_exchange *exchange)
{
    if (exchange != NULL) {
        qsi_route_cache_forget(router, &exchange->walked);
        exchange->type->destroy(router, exchange->matcher);
        qsi_free(exchange);
    }
}

/* As bindings from other exchanges see it. */
static void init_destination(struct qsi_exchange *exchange)
{
    exchange->destination.name = exchange->name;
    exchange->destination.exchange = exchange;
    qsi_list_init(&exchange->destination.bindings);
}

static struct qsi_exchange *create_exchange(struct qsi_slice name,
                                            const struct qsi_exchange_type *type,
                                            const struct qsi_exchange_options *options)
{
    struct qsi_exchange *exchange =
        qsi_zalloc(sizeof *exchange + (size_t)name.bytes + options->arguments.bytes);
    uint8_t *at;

    if (exchange == NULL) {
        return NULL;
    }
    at = exchange->bytes;
    exchange->name = copy_slice(&at, name);
    exchange->arguments = copy_slice(&at, options->arguments);
    exchange->type = type;
    exchange->durable = options->durable;
    exchange->auto_delete = options->auto_delete;
    exchange->internal = options->internal;
    exchange->alternate = alternate_of(exchange->arguments);
    qsi_list_init(&exchange->in_router);
    qsi_list_init(&exchange->in_done);
    qsi_list_init(&exchange->bindings);
    init_destination(exchange);
    note_is_plain(exchange);
    if (type->create(&exchange->matcher) != QS_OK) {
        qsi_free(exchange);
        return NULL;
    }
    return exchange;
}

static qs_status add_exchange(struct qsi_router *router, struct qsi_slice name,
                              const struct qsi_exchange_type *type,
                              const struct qsi_exchange_options *options,
                              struct qsi_exchange **exchange_out, qs_error *error)
{
    struct qsi_exchange *exchange = create_exchange(name, type, options);

    if (exchange == NULL ||
        qsi_map_put(&router->exchange_names, name.data, name.bytes, exchange) != QS_OK) {
        destroy_exchange(router, exchange);
        return out_of_memory(error);
    }
    qsi_list_push_back(&router->exchanges, &exchange->in_router);
    router->version++;
    *exchange_out = exchange;
    return QS_OK;
}

static const char *text_of(bool flag)
{
    return flag ? "true" : "false";
}

static qs_status check_flag(const struct qsi_exchange *exchange, const char *flag, bool received,
                            bool current, qs_error *error)
{
    if (received != current) {
        return qsi_fail(
            error, QS_PRECONDITION_FAILED,
            "inequivalent arg '%s' for exchange '%.*s': received '%s' but current is '%s'", flag,
            PRINT(exchange->name), text_of(received), text_of(current));
    }
    return QS_OK;
}

static qs_status check_equivalent(const struct qsi_exchange *exchange,
                                  const struct qsi_exchange_type *type,
                                  const struct qsi_exchange_options *options, qs_error *error)
{
    if (exchange->type != type) {
        return qsi_fail(error, QS_PRECONDITION_FAILED,
                        "inequivalent arg 'type' for exchange '%.*s': received '%.*s' but current "
                        "is '%.*s'",
                        PRINT(exchange->name), PRINT(type->name), PRINT(exchange->type->name));
    }
    QS_TRY(check_flag(exchange, "durable", options->durable, exchange->durable, error));
    QS_TRY(check_flag(exchange, "auto_delete", options->auto_delete, exchange->auto_delete, error));
    QS_TRY(check_flag(exchange, "internal", options->internal, exchange->internal, error));
    return check_same_alternate(exchange, options->arguments, error);
}

static qs_status refuse_default(struct qsi_slice name, qs_error *error)
{
    if (name.bytes == 0) {
        return qsi_fail(error, QS_ACCESS_REFUSED,
                        "operation not permitted on the default exchange");
    }
    return QS_OK;
}

static bool is_reserved(struct qsi_slice name)
{
    return name.bytes >= RESERVED_PREFIX_BYTES &&
           memcmp(name.data, RESERVED_PREFIX, RESERVED_PREFIX_BYTES) == 0;
}

static qs_status refuse_reserved(struct qsi_slice name, qs_error *error)
{
    if (is_reserved(name)) {
        return qsi_fail(error, QS_ACCESS_REFUSED,
                        "exchange name '%.*s' contains reserved prefix '" RESERVED_PREFIX "*'",
                        PRINT(name));
    }
    return QS_OK;
}

qs_status qsi_router_declare(struct qsi_router *router, struct qsi_slice name,
                             const struct qsi_exchange_options *options, bool *created_out,
                             qs_error *error)
{
    const struct qsi_exchange_type *type = NULL;
    struct qsi_exchange *exchange;

    QS_TRY(find_type(options->type, &type, error));
    QS_TRY(refuse_default(name, error));
    QS_TRY(check_name_bytes(name, "exchange name", error));
    exchange = qsi_router_find(router, name);
    if (exchange != NULL) {
        *created_out = false;
        return check_equivalent(exchange, type, options, error);
    }
    QS_TRY(refuse_reserved(name, error));
    QS_TRY(check_alternate(name, options, error));
    QS_TRY(add_exchange(router, name, type, options, &exchange, error));
    *created_out = true;
    return QS_OK;
}

struct qsi_exchange *qsi_router_find(struct qsi_router *router, struct qsi_slice name)
{
    struct qsi_exchange *exchange = router->recent;

    if (exchange == NULL || !same_bytes(exchange->name, name)) {
        exchange = qsi_map_get(&router->exchange_names, name.data, name.bytes);
        if (exchange != NULL) {
            router->recent = exchange;
        }
    }
    return exchange;
}

qs_status qsi_router_require(struct qsi_router *router, struct qsi_slice name,
                             struct qsi_exchange **exchange_out, qs_error *error)
{
    *exchange_out = qsi_router_find(router, name);
    if (*exchange_out == NULL) {
        return qsi_fail(error, QS_NOT_FOUND, "no exchange '%.*s' in this store", PRINT(name));
    }
    return QS_OK;
}

qs_status qsi_exchange_check_name(struct qsi_slice name, qs_error *error)
{
    return refuse_default(name, error);
}

qs_status qsi_exchange_check_delete_name(struct qsi_slice name, qs_error *error)
{
    QS_TRY(refuse_default(name, error));
    if (is_reserved(name)) {
        return qsi_fail(error, QS_ACCESS_REFUSED, "deletion of system exchange '%.*s' not allowed",
                        PRINT(name));
    }
    return QS_OK;
}

qs_status qsi_exchange_check_delete(const struct qsi_exchange *exchange, bool if_unused,
                                    qs_error *error)
{
    QS_TRY(qsi_exchange_check_delete_name(exchange->name, error));
    if (if_unused && exchange->binding_count > 0) {
        return qsi_fail(error, QS_PRECONDITION_FAILED, "exchange '%.*s' in use",
                        PRINT(exchange->name));
    }
    return QS_OK;
}

static void drop_binding(struct qsi_router *router, struct qsi_binding *binding);

/* After a binding of exchange was dropped: an auto-delete exchange without any is done. */
static void note_if_done(struct qsi_router *router, struct qsi_exchange *exchange)
{
    if (exchange->auto_delete && exchange->binding_count == 0 && !router->keeps_auto_delete) {
        qsi_list_push_back(&router->done, &exchange->in_done);
    }
}

/* Bindings to it, which others may have lost with that. */
static void drop_bindings_to(struct qsi_router *router, struct qsi_destination *destination)
{
    while (!qsi_list_is_empty(&destination->bindings)) {
        struct qsi_binding *binding =
            QSI_LIST_OWNER(destination->bindings.next, struct qsi_binding, in_destination);
        struct qsi_exchange *exchange = binding->exchange;

        drop_binding(router, binding);
        note_if_done(router, exchange);
    }
}

static void drop_exchange(struct qsi_router *router, struct qsi_exchange *exchange)
{
    while (!qsi_list_is_empty(&exchange->bindings)) {
        drop_binding(router,
                     QSI_LIST_OWNER(exchange->bindings.next, struct qsi_binding, in_exchange));
    }
    QS_ASSERT(exchange->binding_count == 0 && exchange->onward_count == 0);
    drop_bindings_to(router, &exchange->destination);
    if (router->recent == exchange) {
        router->recent = NULL;
    }
    qsi_map_remove(&router->exchange_names, exchange->name.data, exchange->name.bytes);
    qsi_list_remove(&exchange->in_router);
    destroy_exchange(router, exchange);
    router->version++;
}

/* One that goes may take another along; a list, because a chain of them may be long. */
static void delete_done(struct qsi_router *router)
{
    while (!qsi_list_is_empty(&router->done)) {
        struct qsi_exchange *exchange =
            QSI_LIST_OWNER(router->done.next, struct qsi_exchange, in_done);

        qsi_list_remove(&exchange->in_done);
        if (router->deleted != NULL) {
            router->deleted(router->deleted_context, exchange);
        }
        drop_exchange(router, exchange);
    }
}

void qsi_router_delete(struct qsi_router *router, struct qsi_exchange *exchange)
{
    QS_ASSERT(!exchange->predeclared);
    drop_exchange(router, exchange);
    delete_done(router);
}

/* -- destinations ----------------------------------------------------------------------------- */

qs_status qsi_router_add_destination(struct qsi_router *router, struct qsi_destination *destination,
                                     qs_error *error)
{
    struct qsi_slice name = destination->name;

    QS_ASSERT(qsi_router_find_destination(router, name) == NULL);
    if (qsi_map_put(&router->destinations, name.data, name.bytes, destination) != QS_OK) {
        return out_of_memory(error);
    }
    qsi_list_init(&destination->bindings);
    destination->exchange = NULL;
    destination->self = destination;
    destination->own_route = (struct qsi_route){1, &destination->self};
    destination->order = router->next_order++;
    destination->mark = 0;
    router->version++;
    return QS_OK;
}

void qsi_router_remove_destination(struct qsi_router *router, struct qsi_destination *destination)
{
    struct qsi_slice name = destination->name;
    const struct qsi_destination *removed;

    drop_bindings_to(router, destination);
    delete_done(router);
    router->recent_destination = NULL;
    removed = qsi_map_remove(&router->destinations, name.data, name.bytes);
    QS_ASSERT(removed == destination);
    router->version++;
}

struct qsi_destination *qsi_router_find_destination(struct qsi_router *router,
                                                    struct qsi_slice name)
{
    struct qsi_destination *destination = router->recent_destination;

    if (destination == NULL || !same_bytes(destination->name, name)) {
        destination = qsi_map_get(&router->destinations, name.data, name.bytes);
        if (destination != NULL) {
            router->recent_destination = destination;
        }
    }
    return destination;
}

/* -- bindings --------------------------------------------------------------------------------- */

/* What makes a binding the same: both ends, the length of the key, the key, the arguments.  The
 * ends are addresses, as this never leaves memory. */
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
    return identity->bytes <= UINT32_MAX ? QS_OK : QS_ENOMEM;
}

/* From router->identity; in no list and no set yet. */
static struct qsi_binding *create_binding(struct qsi_router *router, struct qsi_exchange *exchange,
                                          struct qsi_destination *destination, uint32_t key_bytes)
{
    uint32_t identity_bytes = (uint32_t)router->identity.bytes;
    struct qsi_binding *binding = qsi_zalloc(sizeof *binding + identity_bytes);
    uint8_t *key;

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
    if (binding->destination->exchange != NULL) {
        binding->exchange->onward_count += (uint32_t)change;
        note_is_plain(binding->exchange);
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
    router->version++;
    return QS_OK;
}

static void drop_binding(struct qsi_router *router, struct qsi_binding *binding)
{
    struct qsi_exchange *exchange = binding->exchange;

    QS_ASSERT(exchange->binding_count > 0);
    exchange->type->remove(router, binding);
    exchange->binding_count--;
    count_onward(binding, -1);
    qsi_list_remove(&binding->in_exchange);
    qsi_list_remove(&binding->in_destination);
    qsi_map_remove(&router->bindings, binding->identity, binding->identity_bytes);
    qsi_free(binding);
    router->version++;
}

static qs_status find_binding(struct qsi_router *router, const struct qsi_exchange *exchange,
                              const struct qsi_destination *destination, struct qsi_slice key,
                              struct qsi_slice arguments, struct qsi_binding **binding_out,
                              qs_error *error)
{
    if (make_identity(&router->identity, exchange, destination, key, arguments) != QS_OK) {
        return out_of_memory(error);
    }
    *binding_out = qsi_map_get(&router->bindings, router->identity.data, router->identity.bytes);
    return QS_OK;
}

static qs_status refuse_default_ends(const struct qsi_exchange *exchange,
                                     const struct qsi_destination *destination, qs_error *error)
{
    QS_TRY(refuse_default(exchange->name, error));
    return destination->exchange != NULL ? refuse_default(destination->name, error) : QS_OK;
}

qs_status qsi_router_bind(struct qsi_router *router, struct qsi_exchange *exchange,
                          struct qsi_destination *destination, struct qsi_slice key,
                          struct qsi_slice arguments, bool *bound_out, qs_error *error)
{
    struct qsi_binding *binding = NULL;

    QS_TRY(refuse_default_ends(exchange, destination, error));
    QS_TRY(check_name_bytes(key, "routing key", error));
    if (exchange->type->check != NULL) {
        QS_TRY(exchange->type->check(arguments, error));
    }
    QS_TRY(find_binding(router, exchange, destination, key, arguments, &binding, error));
    *bound_out = binding == NULL;
    if (binding != NULL) {
        return QS_OK;
    }
    binding = create_binding(router, exchange, destination, key.bytes);
    if (binding == NULL || add_binding(router, binding) != QS_OK) {
        qsi_free(binding);
        return out_of_memory(error);
    }
    return QS_OK;
}

qs_status qsi_router_unbind(struct qsi_router *router, struct qsi_exchange *exchange,
                            struct qsi_destination *destination, struct qsi_slice key,
                            struct qsi_slice arguments, bool *unbound_out, qs_error *error)
{
    struct qsi_binding *binding = NULL;

    QS_TRY(refuse_default_ends(exchange, destination, error));
    QS_TRY(find_binding(router, exchange, destination, key, arguments, &binding, error));
    *unbound_out = binding != NULL;
    if (binding != NULL) {
        drop_binding(router, binding);
        note_if_done(router, exchange);
        delete_done(router);
    }
    return QS_OK;
}

/* -- lookup ----------------------------------------------------------------------------------- */

/* The alternate exchange, unless there is none or it was reached before.  It is found by name at
 * each use: it may be declared later than what names it, deleted, and declared again.  The default
 * exchange has no bindings that could match, as in RabbitMQ. */
static qs_status reach_alternate(struct qsi_router *router, const struct qsi_exchange *exchange)
{
    struct qsi_exchange *alternate;

    if (exchange->alternate.bytes == 0) {
        return QS_OK;
    }
    alternate =
        qsi_map_get(&router->exchange_names, exchange->alternate.data, exchange->alternate.bytes);
    return alternate != NULL ? qsi_collect_destination(router, &alternate->destination) : QS_OK;
}

/* Collects from exchange and all that lie behind it.  Whoever is reached is marked, so each is
 * visited once; those that wait for their turn are the rest of router->reached. */
static qs_status walk(struct qsi_router *router, struct qsi_exchange *exchange,
                      const struct qsi_routing *routing)
{
    qsi_collect_begin(router);
    QS_TRY(qsi_collect_destination(router, &exchange->destination));
    for (size_t at = 0; at < router->reached.bytes; at += sizeof exchange) {
        memcpy(&exchange, router->reached.data + at, sizeof exchange);
        router->has_matched = false;
        router->by_headers = router->by_headers || exchange->type == &qsi_match_headers;
        QS_TRY(exchange->type->collect(router, exchange, routing));
        if (!router->has_matched) {
            QS_TRY(reach_alternate(router, exchange));
        }
    }
    router->walked = qsi_collect_finish(router);
    return QS_OK;
}

/* Routes through several exchanges are remembered at the first of them, until anything changes. */
static qs_status walk_or_remember(struct qsi_router *router, struct qsi_exchange *exchange,
                                  const struct qsi_routing *routing,
                                  const struct qsi_route **route_out)
{
    bool is_one_key = routing->copy_count == 0;

    if (exchange->walked_version != router->version) {
        qsi_route_cache_forget(router, &exchange->walked);
        exchange->walked_version = router->version;
    }
    *route_out = is_one_key ? qsi_route_cache_get(&exchange->walked, routing->key) : NULL;
    if (*route_out != NULL) {
        return QS_OK;
    }
    QS_TRY(walk(router, exchange, routing));
    *route_out = &router->walked;
    if (is_one_key && !router->by_headers) {
        return qsi_route_cache_put(router, &exchange->walked, routing->key, &router->walked,
                                   route_out);
    }
    return QS_OK;
}

/* Inline: every message takes this way. */
static inline qs_status look_up(struct qsi_router *router, struct qsi_exchange *exchange,
                                const struct qsi_routing *routing,
                                const struct qsi_route **route_out, qs_error *error)
{
    qs_status status;

    router->by_headers = false;
    if (QS_LIKELY(exchange->is_plain && routing->copy_count == 0)) {
        status = exchange->type->lookup(router, exchange, routing->key, route_out);
    } else {
        status = walk_or_remember(router, exchange, routing, route_out);
    }
    return QS_LIKELY(status == QS_OK) ? QS_OK : out_of_memory(error);
}

qs_status qsi_exchange_lookup(struct qsi_router *router, struct qsi_exchange *exchange,
                              const struct qsi_routing *routing, const struct qsi_route **route_out,
                              qs_error *error)
{
    return look_up(router, exchange, routing, route_out, error);
}

qs_status qsi_router_lookup(struct qsi_router *router, struct qsi_slice exchange,
                            const struct qsi_routing *routing, const struct qsi_route **route_out,
                            qs_error *error)
{
    struct qsi_exchange *found;

    QS_TRY(qsi_router_require(router, exchange, &found, error));
    if (QS_UNLIKELY(found->internal)) {
        return qsi_fail(error, QS_ACCESS_REFUSED, "cannot publish to internal exchange '%.*s'",
                        PRINT(exchange));
    }
    return look_up(router, found, routing, route_out, error);
}

static struct qsi_exchange *exchange_at(const struct qsi_list *node)
{
    return QSI_LIST_OWNER(node, struct qsi_exchange, in_router);
}

void qsi_router_forget(struct qsi_router *router)
{
    for (struct qsi_list *node = router->exchanges.next; node != &router->exchanges;
         node = node->next) {
        struct qsi_exchange *exchange = exchange_at(node);

        qsi_route_cache_forget(router, &exchange->walked);
        if (exchange->type->forget != NULL) {
            exchange->type->forget(router, exchange->matcher);
        }
    }
    QS_ASSERT(router->remembered_bytes == 0);
    router->version++;
}

/* -- visiting --------------------------------------------------------------------------------- */

void qsi_router_visit_exchanges(const struct qsi_router *router,
                                void (*visit)(void *context, const struct qsi_exchange *exchange),
                                void *context)
{
    for (struct qsi_list *node = router->exchanges.next; node != &router->exchanges;
         node = node->next) {
        visit(context, exchange_at(node));
    }
}

void qsi_router_visit_bindings(const struct qsi_router *router,
                               void (*visit)(void *context, const struct qsi_binding *binding),
                               void *context)
{
    for (struct qsi_list *node = router->exchanges.next; node != &router->exchanges;
         node = node->next) {
        const struct qsi_list *bindings = &exchange_at(node)->bindings;

        for (struct qsi_list *at = bindings->next; at != bindings; at = at->next) {
            visit(context, QSI_LIST_OWNER(at, struct qsi_binding, in_exchange));
        }
    }
}

/* -- the whole -------------------------------------------------------------------------------- */

static qs_status predeclare(struct qsi_router *router, struct qsi_slice name,
                            const struct qsi_exchange_type *type, qs_error *error)
{
    const struct qsi_exchange_options options = {.durable = true};
    struct qsi_exchange *exchange;

    QS_TRY(add_exchange(router, name, type, &options, &exchange, error));
    exchange->predeclared = true;
    return QS_OK;
}

static qs_status predeclare_all(struct qsi_router *router, qs_error *error)
{
    QS_TRY(predeclare(router, QSI_SLICE_LITERAL(""), &qsi_match_default, error));
    QS_TRY(predeclare(router, QSI_SLICE_LITERAL("amq.direct"), &qsi_match_direct, error));
    QS_TRY(predeclare(router, QSI_SLICE_LITERAL("amq.fanout"), &qsi_match_fanout, error));
    QS_TRY(predeclare(router, QSI_SLICE_LITERAL("amq.headers"), &qsi_match_headers, error));
    QS_TRY(predeclare(router, QSI_SLICE_LITERAL("amq.match"), &qsi_match_headers, error));
    return predeclare(router, QSI_SLICE_LITERAL("amq.topic"), &qsi_match_topic, error);
}

qs_status qsi_router_init(struct qsi_router *router, qsi_exchange_deleted *deleted, void *context,
                          qs_error *error)
{
    qs_status status;

    *router = (struct qsi_router){.deleted = deleted, .deleted_context = context};
    qsi_list_init(&router->exchanges);
    qsi_list_init(&router->done);
    status = predeclare_all(router, error);
    if (status != QS_OK) {
        qsi_router_fini(router);
    }
    return status;
}

void qsi_router_fini(struct qsi_router *router)
{
    if (router == NULL || router->exchanges.next == NULL) {
        return; /* zeroed memory */
    }
    router->keeps_auto_delete = true; /* all of them go here, one by one */
    while (!qsi_list_is_empty(&router->exchanges)) {
        drop_exchange(router, exchange_at(router->exchanges.next));
    }
    QS_ASSERT(router->bindings.count == 0);
    qsi_map_fini(&router->exchange_names);
    qsi_map_fini(&router->destinations);
    qsi_map_fini(&router->bindings);
    qsi_buf_fini(&router->collected);
    qsi_buf_fini(&router->reached);
    qsi_buf_fini(&router->identity);
    *router = (struct qsi_router){0};
}
