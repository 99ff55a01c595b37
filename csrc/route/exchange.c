/* Exchanges: declaration, comparison, and what may be deleted. */
#include "alloc.h"
#include "check.h"
#include "error.h"
#include "field_print.h"
#include "field_table.h"
#include "match.h"
#include "route_internal.h"

#define RESERVED_PREFIX "amq."
#define RESERVED_PREFIX_BYTES 4u
#define ALTERNATE "alternate-exchange"

/* Copies slice to *at, and advances *at. */
static struct qsi_slice copy_slice(uint8_t **at, struct qsi_slice slice)
{
    uint8_t *start = *at;

    if (slice.bytes > 0) {
        memcpy(start, slice.data, slice.bytes);
    }
    *at += slice.bytes;
    return qsi_slice_make(start, slice.bytes);
}

qs_status qsi_route_check_name_bytes(struct qsi_slice name, const char *what, qs_error *error)
{
    if (name.bytes > QSI_ROUTE_NAME_BYTES_MAX) {
        return qsi_fail(error, QS_EINVAL, "%s of %u bytes, more than %u", what, name.bytes,
                        QSI_ROUTE_NAME_BYTES_MAX);
    }
    return QS_OK;
}

/* -- exchange types --------------------------------------------------------------------------- */

static const struct qsi_exchange_type *const types[] = {
    &qsi_match_direct,          &qsi_match_fanout,       &qsi_match_headers,   &qsi_match_topic,
    &qsi_match_consistent_hash, &qsi_match_modulus_hash, &qsi_match_jms_topic,
};

static qs_status find_type(struct qsi_slice name, const struct qsi_exchange_type **type_out,
                           qs_error *error)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (qsi_same_bytes(types[i]->name, name)) {
            *type_out = types[i];
            return QS_OK;
        }
    }
    return qsi_fail(error, QS_COMMAND_INVALID, "unknown exchange type '%.*s'", QSI_PRINT(name));
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

/* An empty slice: there is none. */
static struct qsi_slice alternate_of(struct qsi_slice arguments)
{
    struct qsi_field alternate;

    if (find_alternate(arguments, &alternate) && alternate.type == 'S') {
        return alternate.value;
    }
    return QSI_SLICE_NULL;
}

static qs_status check_alternate(struct qsi_slice name, const struct qsi_exchange_options *options,
                                 const char *place, qs_error *error)
{
    struct qsi_field alternate;

    if (!options->replayed && find_alternate(options->arguments, &alternate) &&
        alternate.type != 'S') {
        return qsi_fail(error, QS_PRECONDITION_FAILED,
                        "invalid type '%s' for arg '" ALTERNATE "' in exchange '%.*s'%s",
                        qsi_field_type_name(alternate.type), QSI_PRINT(name), place);
    }
    return QS_OK;
}

static qs_status fail_alternate(const struct qsi_exchange *exchange,
                                const struct qsi_field *received, const struct qsi_field *current,
                                const char *place, qs_error *error)
{
    char first[QSI_FIELD_PRINT_BYTES], second[QSI_FIELD_PRINT_BYTES];

    QS_DCHECK(received != NULL || current != NULL);
    qsi_field_print_value(first, received);
    qsi_field_print_value(second, current);
    if (current == NULL) {
        return qsi_fail(
            error, QS_PRECONDITION_FAILED,
            "inequivalent arg '" ALTERNATE "' for exchange '%.*s'%s: received the value "
            "'%s' of type '%s' but current is none",
            QSI_PRINT(exchange->name), place, first, qsi_field_type_name(received->type));
    }
    if (received == NULL) {
        return qsi_fail(error, QS_PRECONDITION_FAILED,
                        "inequivalent arg '" ALTERNATE "' for exchange '%.*s'%s: received none but "
                        "current is the value '%s' of type '%s'",
                        QSI_PRINT(exchange->name), place, second,
                        qsi_field_type_name(current->type));
    }
    return qsi_fail(error, QS_PRECONDITION_FAILED,
                    "inequivalent arg '" ALTERNATE "' for exchange '%.*s'%s: received '%s' but "
                    "current is '%s'",
                    QSI_PRINT(exchange->name), place, first, second);
}

static qs_status check_same_alternate(const struct qsi_exchange *exchange,
                                      struct qsi_slice arguments, const char *place,
                                      qs_error *error)
{
    struct qsi_field received, current;
    bool is_received = find_alternate(arguments, &received);
    bool is_current = find_alternate(exchange->arguments, &current);

    if (is_received == is_current &&
        (!is_received ||
         (received.type == current.type && qsi_same_bytes(received.value, current.value)))) {
        return QS_OK;
    }
    return fail_alternate(exchange, is_received ? &received : NULL, is_current ? &current : NULL,
                          place, error);
}

/* -- exchanges -------------------------------------------------------------------------------- */

void qsi_exchange_update_is_plain(struct qsi_exchange *exchange)
{
    exchange->is_plain = exchange->type->lookup != NULL && !exchange->by_headers &&
                         exchange->onward_count == 0 && exchange->alternate.bytes == 0;
}

void qsi_exchange_destroy(struct qsi_router *router, struct qsi_exchange *exchange)
{
    if (exchange != NULL) {
        QS_DCHECK(qsi_list_is_empty(&exchange->bindings) && exchange->binding_count == 0);
        qsi_route_cache_forget(router, &exchange->walked);
        exchange->type->destroy(router, exchange->matcher);
        qsi_free(exchange);
    }
}

/* Initialises the exchange as a destination of bindings. */
static void init_destination(struct qsi_exchange *exchange)
{
    exchange->destination.name = exchange->name;
    exchange->destination.exchange = exchange;
    qsi_list_init(&exchange->destination.bindings);
    qsi_list_init(&exchange->destination.tallies);
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
    exchange->by_headers =
        type->looks_at_headers != NULL && type->looks_at_headers(exchange->arguments);
    qsi_list_init(&exchange->in_router);
    qsi_list_init(&exchange->in_done);
    qsi_list_init(&exchange->bindings);
    qsi_list_init(&exchange->tallies);
    QS_DCHECK(at == exchange->bytes + name.bytes + options->arguments.bytes);
    init_destination(exchange);
    qsi_exchange_update_is_plain(exchange);
    if (type->create(&exchange->matcher) != QS_OK) {
        qsi_free(exchange);
        return NULL;
    }
    return exchange;
}

qs_status qsi_router_add_exchange(struct qsi_router *router, struct qsi_slice name,
                                  const struct qsi_exchange_type *type,
                                  const struct qsi_exchange_options *options,
                                  struct qsi_exchange **exchange_out, qs_error *error)
{
    struct qsi_exchange *exchange = create_exchange(name, type, options);

    if (exchange == NULL ||
        qsi_map_put(&router->exchange_names, name.data, name.bytes, exchange) != QS_OK) {
        qsi_exchange_destroy(router, exchange);
        return qsi_router_out_of_memory(error);
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
                            bool current, const char *place, qs_error *error)
{
    if (received != current) {
        return qsi_fail(
            error, QS_PRECONDITION_FAILED,
            "inequivalent arg '%s' for exchange '%.*s'%s: received '%s' but current is '%s'", flag,
            QSI_PRINT(exchange->name), place, text_of(received), text_of(current));
    }
    return QS_OK;
}

static qs_status check_equivalent(const struct qsi_exchange *exchange,
                                  const struct qsi_exchange_type *type,
                                  const struct qsi_exchange_options *options, const char *place,
                                  qs_error *error)
{
    if (exchange->type != type) {
        return qsi_fail(error, QS_PRECONDITION_FAILED,
                        "inequivalent arg 'type' for exchange '%.*s'%s: received '%.*s' but "
                        "current is '%.*s'",
                        QSI_PRINT(exchange->name), place, QSI_PRINT(type->name),
                        QSI_PRINT(exchange->type->name));
    }
    QS_TRY(check_flag(exchange, "durable", options->durable, exchange->durable, place, error));
    QS_TRY(check_flag(exchange, "auto_delete", options->auto_delete, exchange->auto_delete, place,
                      error));
    QS_TRY(check_flag(exchange, "internal", options->internal, exchange->internal, place, error));
    return check_same_alternate(exchange, options->arguments, place, error);
}

qs_status qsi_exchange_check_name(struct qsi_slice name, qs_error *error)
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
                        QSI_PRINT(name));
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
    QS_TRY(qsi_exchange_check_name(name, error));
    QS_TRY(qsi_route_check_name_bytes(name, "exchange name", error));
    exchange = qsi_router_find(router, name);
    if (exchange != NULL) {
        *created_out = false;
        return check_equivalent(exchange, type, options, router->place, error);
    }
    QS_TRY(refuse_reserved(name, error));
    QS_TRY(check_alternate(name, options, router->place, error));
    if (type->check_arguments != NULL && !options->replayed) {
        QS_TRY(type->check_arguments(options->arguments, error));
    }
    QS_DCHECK(name.bytes > 0 && name.bytes <= QSI_ROUTE_NAME_BYTES_MAX);
    QS_TRY(qsi_router_add_exchange(router, name, type, options, &exchange, error));
    *created_out = true;
    return QS_OK;
}

qs_status qsi_router_check_delete_name(const struct qsi_router *router, struct qsi_slice name,
                                       qs_error *error)
{
    QS_TRY(qsi_exchange_check_name(name, error));
    if (is_reserved(name)) {
        return qsi_fail(error, QS_ACCESS_REFUSED,
                        "deletion of system exchange '%.*s'%s not allowed", QSI_PRINT(name),
                        router->place);
    }
    return QS_OK;
}

qs_status qsi_router_check_delete(const struct qsi_router *router,
                                  const struct qsi_exchange *exchange, bool if_unused,
                                  qs_error *error)
{
    QS_TRY(qsi_router_check_delete_name(router, exchange->name, error));
    if (if_unused && exchange->binding_count > 0) {
        return qsi_fail(error, QS_PRECONDITION_FAILED, "exchange '%.*s'%s in use",
                        QSI_PRINT(exchange->name), router->place);
    }
    return QS_OK;
}
