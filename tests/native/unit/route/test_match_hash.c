/* x-consistent-hash and x-modulus-hash: shares by weight, what moves when bindings change, and
 * where keys lead, which no later version may change. */
#include "header_table.h"

#define KEYS 20000

static struct queue queues[8];

static void start(struct qsi_router *router)
{
    QS_CHECK(qsi_router_init(router, NULL, NULL, NULL) == QS_OK);
    for (int i = 0; i < 8; i++) {
        add_queue(router, &queues[i], i);
    }
}

static void finish(struct qsi_router *router)
{
    qsi_router_fini(router);
}

QS_TEST_FIXTURE(run_routed, struct qsi_router, start(&fixture), finish(&fixture))
#define ROUTER_TEST(name) QS_TEST_BY(run_routed, name, (struct qsi_router * router))

/* The queue that key leads to; -1: none. */
static int queue_of(struct qsi_router *router, struct qsi_exchange *exchange, int key)
{
    char name[16];
    const struct qsi_route *route;

    snprintf(name, sizeof name, "k%d", key);
    route = lookup(router, exchange, text(name));
    QS_CHECK(route->count <= 1);
    return route->count == 0 ? -1 : route->destinations[0]->name.data[1] - '0';
}

static void count_all(struct qsi_router *router, struct qsi_exchange *exchange, int counts_out[8])
{
    memset(counts_out, 0, 8 * sizeof counts_out[0]);
    for (int key = 0; key < KEYS; key++) {
        counts_out[queue_of(router, exchange, key)]++;
    }
}

static bool is_about(int count, double share)
{
    return count > 0.9 * share * KEYS && count < 1.1 * share * KEYS;
}

ROUTER_TEST(test_messages_are_shared_out_by_weight)
{
    int counts[8];
    struct qsi_exchange *exchange = declare(router, "hash", "x-consistent-hash");

    QS_CHECK(queue_of(router, exchange, 1) == -1);
    bind(router, exchange, &queues[0], text("1"));
    bind(router, exchange, &queues[1], text("1"));
    bind(router, exchange, &queues[2], text("2"));
    bind(router, exchange, &queues[3], text("+4"));
    count_all(router, exchange, counts);
    QS_CHECK(is_about(counts[0], 0.125) && is_about(counts[1], 0.125));
    QS_CHECK(is_about(counts[2], 0.25) && is_about(counts[3], 0.5));
}

ROUTER_TEST(test_a_new_binding_takes_its_share_and_moves_nothing_else)
{
    static int before[KEYS];
    int moved = 0;
    struct qsi_exchange *exchange = declare(router, "hash", "x-consistent-hash");

    for (int i = 0; i < 4; i++) {
        bind(router, exchange, &queues[i], text("10"));
    }
    for (int key = 0; key < KEYS; key++) {
        before[key] = queue_of(router, exchange, key);
    }
    bind(router, exchange, &queues[4], text("10"));
    for (int key = 0; key < KEYS; key++) {
        int now = queue_of(router, exchange, key);
        QS_CHECK(now == before[key] || now == 4);
        moved += now != before[key];
    }
    QS_CHECK(is_about(moved, 0.2));
    unbind(router, exchange, &queues[4], text("10"));
    for (int key = 0; key < KEYS; key++) {
        QS_CHECK(queue_of(router, exchange, key) == before[key]);
    }
}

ROUTER_TEST(test_keys_lead_where_they_always_did)
{
    static const char consistent[] = "0001330000123032";
    static const char modulus[] = "2110323013000320";
    struct qsi_exchange *hash, *mod;
    char found[2][17] = {{0}, {0}};

    hash = declare(router, "hash", "x-consistent-hash");
    mod = declare(router, "mod", "x-modulus-hash");
    for (int i = 0; i < 4; i++) {
        bind(router, hash, &queues[i], text("3"));
        bind(router, mod, &queues[i], text("any key"));
    }
    for (int key = 0; key < 16; key++) {
        found[0][key] = (char)('0' + queue_of(router, hash, key));
        found[1][key] = (char)('0' + queue_of(router, mod, key));
    }
    QS_CHECK(strcmp(found[0], consistent) == 0);
    QS_CHECK(strcmp(found[1], modulus) == 0);
}

ROUTER_TEST(test_a_modulus_exchange_shares_out_evenly_whatever_the_binding_keys_are)
{
    int counts[8];
    struct qsi_exchange *exchange = declare(router, "mod", "x-modulus-hash");

    for (int i = 0; i < 5; i++) {
        bind(router, exchange, &queues[i], text(i % 2 == 0 ? "" : "not a number"));
    }
    count_all(router, exchange, counts);
    for (int i = 0; i < 5; i++) {
        QS_CHECK(is_about(counts[i], 0.2));
    }
}

ROUTER_TEST(test_a_queue_bound_twice_counts_once)
{
    int counts[8];
    struct qsi_exchange *exchange = declare(router, "hash", "x-consistent-hash");

    bind(router, exchange, &queues[0], text("1"));
    bind(router, exchange, &queues[0], text("98"));
    bind(router, exchange, &queues[1], text("1"));
    count_all(router, exchange, counts);
    QS_CHECK(is_about(counts[0], 0.5) && is_about(counts[1], 0.5));
    unbind(router, exchange, &queues[0], text("1"));
    count_all(router, exchange, counts);
    QS_CHECK(is_about(counts[0], 0.99));
}

static void check_refused(struct qsi_router *router, struct qsi_exchange *exchange, const char *key,
                          const char *words)
{
    qs_error error = {0};
    bool bound;

    QS_CHECK(qsi_router_bind(router, exchange, &queues[0].destination, text(key), NO_ARGUMENTS,
                             &bound, &error) == QS_PRECONDITION_FAILED);
    QS_CHECK(strcmp(error.text, words) == 0);
}

ROUTER_TEST(test_a_weight_that_is_none_is_refused_as_by_the_plugin)
{
    struct qsi_exchange *exchange = declare(router, "hash", "x-consistent-hash");

    check_refused(router, exchange, "abc", "The binding key must be an integer: <<\"abc\">>");
    check_refused(router, exchange, "", "The binding key must be an integer: <<\"\">>");
    check_refused(router, exchange, "-", "The binding key must be an integer: <<\"-\">>");
    check_refused(router, exchange, "1.5", "The binding key must be an integer: <<\"1.5\">>");
    check_refused(router, exchange, "0", "The binding key must be greater than 0");
    check_refused(router, exchange, "-7", "The binding key must be greater than 0");
    check_refused(router, exchange, "99999999999999999999999",
                  "The binding key is a weight of 2147483647 at most: 99999999999999999999999");
    QS_CHECK(exchange->binding_count == 0);
}

static struct qsi_exchange *declare_with(struct qsi_router *router, const char *name,
                                         const struct table *arguments, const char *refusal)
{
    const struct qsi_exchange_options options = {.type = text("x-consistent-hash"),
                                                 .arguments = slice_of(arguments)};
    qs_error error = {0};
    bool created;

    if (refusal == NULL) {
        QS_CHECK(qsi_router_declare(router, text(name), &options, &created, &error) == QS_OK);
    } else {
        QS_CHECK(qsi_router_declare(router, text(name), &options, &created, &error) ==
                 QS_PRECONDITION_FAILED);
        QS_CHECK(strcmp(error.text, refusal) == 0);
    }
    return qsi_router_find(router, text(name));
}

static int queue_of_header(struct qsi_router *router, struct qsi_exchange *exchange,
                           const struct table *headers)
{
    const struct qsi_routing routing = {.key = text("x"), .headers = slice_of(headers)};
    const struct qsi_route *route = NULL;

    QS_CHECK(qsi_exchange_lookup(router, exchange, &routing, &route, NULL) == QS_OK);
    QS_CHECK(route->count == 1 && route->by_headers);
    return route->destinations[0]->name.data[1] - '0';
}

ROUTER_TEST(test_a_header_leads_where_a_routing_key_with_its_bytes_does)
{
    struct table arguments = {.used = 0};
    struct qsi_exchange *by_key, *by_header;
    uint8_t small = 7, large[8] = {0, 0, 0, 0, 0, 0, 0, 7};
    struct table as_small = {.used = 0}, as_large = {.used = 0};

    put_text(&arguments, "hash-header", "customer");
    by_key = declare(router, "by_key", "x-consistent-hash");
    by_header = declare_with(router, "by_header", &arguments, NULL);
    for (int i = 0; i < 8; i++) {
        bind(router, by_key, &queues[i], text("2"));
        bind(router, by_header, &queues[i], text("2"));
    }
    for (int key = 0; key < 1000; key++) {
        struct table headers = {.used = 0};
        char name[16];
        snprintf(name, sizeof name, "k%d", key);
        put_text(&headers, "other", "no");
        put_text(&headers, "customer", name);
        QS_CHECK(queue_of_header(router, by_header, &headers) == queue_of(router, by_key, key));
    }
    put_field(&as_small, "customer", 'b', &small, 1);
    put_field(&as_large, "customer", 'l', large, 8);
    QS_CHECK(queue_of_header(router, by_header, &as_small) ==
             queue_of_header(router, by_header, &as_large));
}

ROUTER_TEST(test_arguments_that_cannot_be_kept_are_refused)
{
    struct table number = {.used = 0}, property = {.used = 0}, both = {.used = 0};
    uint8_t one[4] = {0, 0, 0, 1};

    put_field(&number, "hash-header", 'I', one, 4);
    put_text(&property, "hash-property", "message_id");
    put_text(&both, "hash-property", "message_id");
    put_text(&both, "hash-header", "customer");
    QS_CHECK(declare_with(router, "a", &number,
                          "invalid type 'signedint' for arg 'hash-header': a string is needed") ==
             NULL);
    QS_CHECK(declare_with(router, "b", &property,
                          "Unsupported property: message_id: nothing but a header is hashed here, "
                          "say 'hash-header'") == NULL);
    QS_CHECK(declare_with(router, "c", &both,
                          "hash-header and hash-property are mutually exclusive") == NULL);
}

ROUTER_TEST(test_a_hash_exchange_may_lie_on_the_way_from_another)
{
    struct qsi_exchange *source, *hash;
    bool bound;

    source = declare(router, "source", "fanout");
    hash = declare(router, "hash", "x-consistent-hash");
    bind(router, hash, &queues[1], text("1"));
    bind(router, hash, &queues[2], text("1"));
    bind(router, source, &queues[0], text(""));
    QS_CHECK(qsi_router_bind(router, source, &hash->destination, text(""), NO_ARGUMENTS, &bound,
                             NULL) == QS_OK);
    for (int key = 0; key < 100; key++) {
        char name[16];
        const struct qsi_route *route;
        int direct = queue_of(router, hash, key);
        snprintf(name, sizeof name, "k%d", key);
        route = lookup(router, source, text(name));
        QS_CHECK(route->count == 2 && leads_to(route, &queues[0]) &&
                 leads_to(route, &queues[direct]));
    }
    /* made anew in the middle of a collection, which takes each queue once all the same */
    unbind(router, hash, &queues[1], text("1"));
    bind(router, hash, &queues[0], text("1"));
    unbind(router, hash, &queues[2], text("1"));
    QS_CHECK(lookup(router, source, text("k1"))->count == 1);
}

QS_TEST(test_a_failed_allocation_changes_nothing)
{
    struct qs_test_alloc failing = {0};

    qs_test_alloc_use(&failing);
    for (uint64_t fail_at = 1; fail_at < 200; fail_at++) {
        struct qsi_router router;
        const struct qsi_route *route = NULL;
        struct qsi_exchange *exchange;
        bool bound;
        int done = 0;

        failing = (struct qs_test_alloc){0};
        start(&router);
        exchange = declare(&router, "hash", "x-consistent-hash");
        failing.calls = 0;
        failing.fail_at = fail_at;
        for (int i = 0; i < 8; i++) {
            done += qsi_router_bind(&router, exchange, &queues[i].destination, text("5"),
                                    NO_ARGUMENTS, &bound, NULL) == QS_OK;
        }
        QS_CHECK(done >= 7 && exchange->binding_count == (uint32_t)done);
        if (qsi_exchange_lookup(&router, exchange, routing_of(text("k")), &route, NULL) != QS_OK) {
            QS_CHECK(qsi_exchange_lookup(&router, exchange, routing_of(text("k")), &route, NULL) ==
                     QS_OK);
        }
        QS_CHECK(route->count == 1);
        failing.fail_at = 0;
        finish(&router);
        QS_CHECK(failing.alive == 0);
    }
    qs_allocator_set(NULL);
}
