/* Types that route each message to one destination, chosen by a hash: x-consistent-hash and
 * x-modulus-hash.
 *
 * The ring has a span of buckets for each destination, in the order of its oldest binding.  The
 * span has as many buckets as the weight in the binding's key, or one for a modulus exchange.  A
 * consistent hash (the jump hash of Lamping and Veach) chooses a bucket.  With it, new buckets
 * after the others take their share from all of them, and no other key changes its bucket.
 *
 * A key has the same destination in every process, also after a restart: the hash does not depend
 * on the process, and the ring depends only on the bindings.
 *
 * Invariant: the ring has room for a span of each binding. */
#include "alloc.h"
#include "check.h"
#include "error.h"
#include "field_print.h"
#include "field_table.h"
#include "match.h"
#include "route_internal.h"
#include "shard.h"

#define HASH_HEADER "hash-header"
#define HASH_PROPERTY "hash-property"
#define WEIGHT_MAX INT32_MAX

struct span {
    uint64_t end; /* end of its buckets */
    struct qsi_destination *destination;
};

struct ring {
    struct span *spans;
    uint32_t count, capacity;
    bool is_stale; /* bindings have changed */
};

/* ---- weights ---- */

/* False: it is no whole number.  A value above WEIGHT_MAX becomes WEIGHT_MAX + 1. */
static bool parse_weight(struct qsi_slice key, int64_t *weight_out)
{
    bool is_signed = key.bytes > 0 && (key.data[0] == '-' || key.data[0] == '+');
    uint32_t at = is_signed ? 1 : 0;
    int64_t weight = 0;

    if (at == key.bytes) {
        return false;
    }
    for (; at < key.bytes; at++) {
        if (key.data[at] < '0' || key.data[at] > '9') {
            return false;
        }
        weight = weight * 10 + (key.data[at] - '0');
        weight = weight > WEIGHT_MAX ? (int64_t)WEIGHT_MAX + 1 : weight;
    }
    *weight_out = is_signed && key.data[0] == '-' ? -weight : weight;
    return true;
}

static qs_status check_weight(struct qsi_slice key, struct qsi_slice arguments, qs_error *error)
{
    int64_t weight;

    (void)arguments;
    if (!parse_weight(key, &weight)) {
        return qsi_fail(error, QS_PRECONDITION_FAILED,
                        "The binding key must be an integer: <<\"%.*s\">>", QSI_PRINT(key));
    }
    if (weight < 1) {
        return qsi_fail(error, QS_PRECONDITION_FAILED, "The binding key must be greater than 0");
    }
    if (weight > WEIGHT_MAX) {
        return qsi_fail(error, QS_PRECONDITION_FAILED,
                        "The binding key is a weight of %d at most: %.*s", WEIGHT_MAX,
                        QSI_PRINT(key));
    }
    return QS_OK;
}

/* ---- the ring ---- */

static qs_status create(void **matcher_out)
{
    *matcher_out = qsi_zalloc(sizeof(struct ring));
    return *matcher_out != NULL ? QS_OK : QS_ENOMEM;
}

static void destroy(struct qsi_router *router, void *matcher)
{
    struct ring *ring = matcher;

    (void)router;
    qsi_free(ring->spans);
    qsi_free(ring);
}

static qs_status add(struct qsi_router *router, struct qsi_binding *binding)
{
    struct ring *ring = binding->exchange->matcher;
    uint32_t needed = binding->exchange->binding_count + 1;

    (void)router;
    if (needed > ring->capacity) {
        struct span *spans = qsi_grow(ring->spans, &ring->capacity, 8, sizeof *spans);
        if (spans == NULL) {
            return QS_ENOMEM;
        }
        ring->spans = spans;
    }
    QS_DCHECK(needed <= ring->capacity);
    ring->is_stale = true;
    return QS_OK;
}

static void remove_binding(struct qsi_router *router, struct qsi_binding *binding)
{
    struct ring *ring = binding->exchange->matcher;

    (void)router;
    ring->is_stale = true;
}

static uint64_t weight_of(const struct qsi_binding *binding)
{
    int64_t weight = 1;

    if (binding->exchange->type == &qsi_match_consistent_hash) {
        bool is_weight = parse_weight(binding->key, &weight);
        QS_ASSERT(is_weight && weight >= 1 && weight <= WEIGHT_MAX);
    }
    return (uint64_t)weight;
}

/* A destination that is bound twice counts once, by its oldest binding. */
static qs_status make_ring(struct ring *ring, const struct qsi_exchange *exchange,
                           struct qsi_map *known)
{
    uint64_t end = 0;

    ring->count = 0;
    for (const struct qsi_list *node = exchange->bindings.next; node != &exchange->bindings;
         node = node->next) {
        const struct qsi_binding *binding =
            QSI_LIST_OWNER(node, const struct qsi_binding, in_exchange);
        struct qsi_destination *destination = binding->destination;
        if (qsi_map_get(known, &destination, sizeof destination) == NULL) {
            QS_TRY(qsi_map_put(known, &destination, sizeof destination, destination));
            end += weight_of(binding);
            QS_ASSERT(ring->count < ring->capacity);
            ring->spans[ring->count++] = (struct span){end, destination};
        }
    }
    QS_DCHECK(ring->count <= exchange->binding_count);
    ring->is_stale = false;
    return QS_OK;
}

static qs_status refresh_ring(const struct qsi_exchange *exchange)
{
    struct ring *ring = exchange->matcher;
    struct qsi_map known = {0};
    qs_status status;

    if (QS_LIKELY(!ring->is_stale)) {
        return QS_OK;
    }
    status = make_ring(ring, exchange, &known);
    qsi_map_fini(&known);
    return status;
}

/* ---- choosing ---- */

/* The destination of the bucket.  REQUIRES a bucket below the last end. */
static struct qsi_destination *find_span(const struct ring *ring, uint64_t bucket)
{
    uint32_t low = 0, high = ring->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (ring->spans[middle].end <= bucket) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    QS_ASSERT(low < ring->count);
    return ring->spans[low].destination;
}

/* NULL: there are no bindings. */
static qs_status choose(const struct qsi_exchange *exchange, uint64_t hash,
                        struct qsi_destination **destination_out)
{
    const struct ring *ring = exchange->matcher;
    uint64_t bucket_count;

    QS_TRY(refresh_ring(exchange));
    QS_DCHECK(!ring->is_stale);
    bucket_count = ring->count > 0 ? ring->spans[ring->count - 1].end : 0;
    *destination_out = NULL;
    if (bucket_count > 0) {
        bool is_consistent = exchange->type == &qsi_match_consistent_hash;
        *destination_out = find_span(ring, is_consistent ? qsi_shard_jump(hash, bucket_count)
                                                         : hash % bucket_count);
    }
    return QS_OK;
}

/* ---- hash of the routing key, or of a header ---- */

static bool looks_at_headers(struct qsi_slice arguments)
{
    struct qsi_field field;

    return qsi_table_find(arguments, QSI_SLICE_LITERAL(HASH_HEADER), &field) && field.type == 'S';
}

/* Text and bytes hash like a routing key with these bytes, whole numbers by their value independent
 * of their type, and a missing header like an empty one. */
static uint64_t hash_header(const struct qsi_exchange *exchange, struct qsi_slice headers)
{
    struct qsi_field name, field;
    struct qsi_number number;

    if (!qsi_table_find(exchange->arguments, QSI_SLICE_LITERAL(HASH_HEADER), &name) ||
        !qsi_table_find(headers, name.value, &field)) {
        return qsi_shard_hash(NULL, 0);
    }
    if (qsi_field_integer(&field, &number)) {
        return qsi_shard_hash(&number.bits, sizeof number.bits);
    }
    return qsi_shard_hash(field.value.data, field.value.bytes);
}

static qs_status check_arguments(struct qsi_slice arguments, qs_error *error)
{
    struct qsi_field header, property;
    bool has_header = qsi_table_find(arguments, QSI_SLICE_LITERAL(HASH_HEADER), &header);
    bool has_property = qsi_table_find(arguments, QSI_SLICE_LITERAL(HASH_PROPERTY), &property);

    if (has_header && has_property) {
        return qsi_fail(error, QS_PRECONDITION_FAILED,
                        HASH_HEADER " and " HASH_PROPERTY " are mutually exclusive");
    }
    if (has_header && header.type != 'S') {
        return qsi_fail(error, QS_PRECONDITION_FAILED,
                        "invalid type '%s' for arg '" HASH_HEADER "': a string is needed",
                        qsi_field_type_name(header.type));
    }
    if (has_property) {
        return qsi_fail(
            error, QS_PRECONDITION_FAILED,
            "Unsupported property: %.*s: nothing but a header is hashed here, say '" HASH_HEADER
            "'",
            property.type == 'S' ? (int)property.value.bytes : 0,
            (const char *)property.value.data);
    }
    return QS_OK;
}

/* ---- the types ---- */

static qs_status lookup(struct qsi_router *router, struct qsi_exchange *exchange,
                        struct qsi_slice key, const struct qsi_route **route_out)
{
    struct qsi_destination *destination;

    (void)router;
    QS_TRY(choose(exchange, qsi_shard_hash(key.data, key.bytes), &destination));
    *route_out = destination != NULL ? &destination->own_route : &qsi_route_empty;
    return QS_OK;
}

/* Keys of CC and BCC are further routing keys; the first key decides, as in RabbitMQ. */
static qs_status collect(struct qsi_collection *collection, struct qsi_exchange *exchange,
                         const struct qsi_routing *routing)
{
    struct qsi_destination *destination;
    uint64_t hash = exchange->by_headers ? hash_header(exchange, routing->headers)
                                         : qsi_shard_hash(routing->key.data, routing->key.bytes);

    QS_TRY(choose(exchange, hash, &destination));
    return destination != NULL ? qsi_collect_destination(collection, destination) : QS_OK;
}

const struct qsi_exchange_type qsi_match_consistent_hash = {
    .name = {(const uint8_t *)"x-consistent-hash", 17},
    .create = create,
    .destroy = destroy,
    .add = add,
    .remove = remove_binding,
    .lookup = lookup,
    .collect = collect,
    .check = check_weight,
    .needs_check = true,
    .check_arguments = check_arguments,
    .looks_at_headers = looks_at_headers,
};

const struct qsi_exchange_type qsi_match_modulus_hash = {
    .name = {(const uint8_t *)"x-modulus-hash", 14},
    .create = create,
    .destroy = destroy,
    .add = add,
    .remove = remove_binding,
    .lookup = lookup,
    .collect = collect,
};
