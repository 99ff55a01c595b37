/* The router but for topic matching: what is refused, where messages go, how long routes last.
 *
 * Method: a small topology per test and its routes spelled out; every allocation of one long
 * sequence of calls failed in turn; churn compared with a plain table of what is bound. */
#include "qs_test_sweep.h"
#include "route_fixture.h"

static struct queue queues[200];

static void start(struct qsi_router *router, int queue_count)
{
    QS_CHECK(qsi_router_init(router, NULL, NULL, NULL) == QS_OK);
    for (int i = 0; i < queue_count; i++) {
        add_queue(router, &queues[i], i);
    }
}

QS_TEST_FIXTURE(run_router, struct qsi_router, start(&fixture, 3), qsi_router_fini(&fixture))
#define ROUTER_TEST(name) QS_TEST_BY(run_router, name, (struct qsi_router * router))

ROUTER_TEST(test_default_exchange_leads_to_the_queue_of_that_name)
{
    const struct qsi_route *route;

    QS_CHECK(qsi_router_lookup(router, text(""), routing_of(text("q1")), &route, NULL) == QS_OK);
    QS_CHECK(route->count == 1 && route->destinations[0] == &queues[1].destination);
    QS_CHECK(qsi_router_lookup(router, QSI_SLICE_NULL, routing_of(text("q3")), &route, NULL) ==
             QS_OK);
    QS_CHECK(route->count == 0);
    QS_CHECK(qsi_router_find_destination(router, text("q0")) == &queues[0].destination);
    qsi_router_remove_destination(router, &queues[1].destination, QSI_AUTO_DELETE_GOES);
    QS_CHECK(qsi_router_lookup(router, text(""), routing_of(text("q1")), &route, NULL) == QS_OK);
    QS_CHECK(route->count == 0);
}

ROUTER_TEST(test_direct_leads_to_queues_bound_with_the_key_in_order_of_declaration)
{
    const struct qsi_route *route;
    struct qsi_exchange *exchange = declare(router, "x", "direct");

    bind(router, exchange, &queues[2], text("a"));
    bind(router, exchange, &queues[0], text("a"));
    bind(router, exchange, &queues[1], text("b"));
    bind(router, exchange, &queues[1], text(""));
    route = lookup(router, exchange, text("a"));
    QS_CHECK(route->count == 2);
    QS_CHECK(route->destinations[0] == &queues[0].destination);
    QS_CHECK(route->destinations[1] == &queues[2].destination);
    QS_CHECK(lookup(router, exchange, text("b"))->count == 1);
    QS_CHECK(lookup(router, exchange, text("c"))->count == 0);
    QS_CHECK(leads_to(lookup(router, exchange, QSI_SLICE_NULL), &queues[1]));
}

ROUTER_TEST(test_fanout_leads_to_each_queue_once_whatever_the_keys)
{
    const struct qsi_route *route;
    struct qsi_exchange *exchange = declare(router, "x", "fanout");

    QS_CHECK(lookup(router, exchange, text("k"))->count == 0);
    bind(router, exchange, &queues[0], text("a"));
    bind(router, exchange, &queues[0], text("b"));
    bind(router, exchange, &queues[2], text(""));
    route = lookup(router, exchange, text("unheard of"));
    QS_CHECK(route->count == 2 && leads_to(route, &queues[0]) && leads_to(route, &queues[2]));
    unbind(router, exchange, &queues[0], text("a"));
    QS_CHECK(leads_to(lookup(router, exchange, text("")), &queues[0]));
    unbind(router, exchange, &queues[0], text("b"));
    QS_CHECK(!leads_to(lookup(router, exchange, text("")), &queues[0]));
}

ROUTER_TEST(test_binding_is_idempotent_and_told_apart_by_all_four_parts)
{
    struct qsi_exchange *x;
    struct qsi_exchange *y;
    bool bound;

    x = declare(router, "x", "direct");
    y = declare(router, "y", "direct");
    QS_CHECK(bind(router, x, &queues[0], text("ab")));
    QS_CHECK(!bind(router, x, &queues[0], text("ab")));
    QS_CHECK(bind(router, x, &queues[1], text("ab")));
    QS_CHECK(bind(router, y, &queues[0], text("ab")));
    QS_CHECK(qsi_router_bind(router, x, &queues[0].destination, text("a"), text("b"), &bound,
                             NULL) == QS_OK &&
             bound);
    QS_CHECK(x->binding_count == 3 && y->binding_count == 1);
    QS_CHECK(!unbind(router, x, &queues[0], text("a")));
    QS_CHECK(unbind(router, x, &queues[0], text("ab")));
    QS_CHECK(!unbind(router, x, &queues[0], text("ab")));
    QS_CHECK(x->binding_count == 2);
}

QS_TEST(test_declare_refuses_what_a_broker_refuses)
{
    struct qsi_router router;
    struct qsi_exchange_options options = {.type = text("direct")};
    qs_error error;
    char long_name[256];
    bool created = false;

    start(&router, 0);
    QS_CHECK(qsi_router_declare(&router, text(""), &options, &created, &error) ==
             QS_ACCESS_REFUSED);
    QS_CHECK(qsi_router_declare(&router, text("amq.x"), &options, &created, &error) ==
             QS_ACCESS_REFUSED);
    QS_CHECK(strstr(error.text, "amq.x") != NULL);
    memset(long_name, 'x', sizeof long_name);
    QS_CHECK(qsi_router_declare(&router, qsi_slice_make(long_name, 256), &options, &created,
                                &error) == QS_EINVAL);
    QS_CHECK(qsi_router_declare(&router, qsi_slice_make(long_name, 255), &options, &created,
                                &error) == QS_OK &&
             created);
    options.type = text("x-none");
    QS_CHECK(qsi_router_declare(&router, text("x"), &options, &created, &error) ==
             QS_COMMAND_INVALID);
    QS_CHECK(qsi_router_find(&router, text("x")) == NULL);
    qsi_router_fini(&router);
}

QS_TEST(test_redeclare_succeeds_only_with_the_same_type_and_flags)
{
    struct qsi_router router;
    struct qsi_exchange_options options = {.type = text("topic"), .durable = true};
    qs_error error;
    bool created;

    start(&router, 0);
    QS_CHECK(qsi_router_declare(&router, text("x"), &options, &created, NULL) == QS_OK && created);
    QS_CHECK(qsi_router_declare(&router, text("x"), &options, &created, NULL) == QS_OK && !created);
    QS_CHECK(qsi_router_declare(&router, text("amq.topic"), &options, &created, NULL) == QS_OK);
    QS_CHECK(!created);
    options.durable = false;
    QS_CHECK(qsi_router_declare(&router, text("x"), &options, &created, &error) ==
             QS_PRECONDITION_FAILED);
    QS_CHECK(strstr(error.text, "'durable'") != NULL);
    options = (struct qsi_exchange_options){.type = text("fanout"), .durable = true};
    QS_CHECK(qsi_router_declare(&router, text("x"), &options, &created, &error) ==
             QS_PRECONDITION_FAILED);
    QS_CHECK(strstr(error.text, "'type'") != NULL);
    qsi_router_fini(&router);
}

ROUTER_TEST(test_delete_is_checked_and_drops_the_bindings)
{
    struct qsi_exchange *exchange = declare(router, "x", "topic");

    bind(router, exchange, &queues[0], text("a.*"));
    QS_CHECK(qsi_router_check_delete(router, exchange, true, NULL) == QS_PRECONDITION_FAILED);
    QS_CHECK(qsi_router_check_delete(router, exchange, false, NULL) == QS_OK);
    qsi_router_delete(router, exchange, QSI_AUTO_DELETE_GOES);
    QS_CHECK(qsi_router_find(router, text("x")) == NULL);
    QS_CHECK(qsi_list_is_empty(&queues[0].destination.bindings));
    QS_CHECK(qsi_router_check_delete(router, qsi_router_find(router, text("")), false, NULL) ==
             QS_ACCESS_REFUSED);
    QS_CHECK(qsi_router_check_delete(router, qsi_router_find(router, text("amq.topic")), false,
                                     NULL) == QS_ACCESS_REFUSED);
    QS_CHECK(qsi_router_check_delete_name(router, text("amq.none"), NULL) == QS_ACCESS_REFUSED);
    QS_CHECK(qsi_router_check_delete_name(router, text("x"), NULL) == QS_OK);
}

ROUTER_TEST(test_lookup_names_what_is_missing_and_refuses_internal_exchanges)
{
    struct qsi_exchange_options options = {.type = text("fanout"), .internal = true};
    const struct qsi_route *route;
    qs_error error;
    bool bound;

    QS_CHECK(qsi_router_lookup(router, text("x"), routing_of(text("k")), &route, &error) ==
             QS_NOT_FOUND);
    QS_CHECK(strcmp(error.text, "no exchange 'x' in this store") == 0);
    QS_CHECK(qsi_router_declare(router, text("x"), &options, &bound, NULL) == QS_OK);
    QS_CHECK(qsi_router_lookup(router, text("x"), routing_of(text("k")), &route, &error) ==
             QS_ACCESS_REFUSED);
    QS_CHECK(lookup(router, qsi_router_find(router, text("x")), text("k"))->count == 0);
    QS_CHECK(qsi_router_bind(router, qsi_router_find(router, text("")), &queues[0].destination,
                             text("k"), NO_ARGUMENTS, &bound, &error) == QS_ACCESS_REFUSED);
    QS_CHECK(qsi_router_unbind(router, qsi_router_find(router, text("")), &queues[0].destination,
                               text("k"), NO_ARGUMENTS, QSI_AUTO_DELETE_GOES, &bound,
                               &error) == QS_ACCESS_REFUSED);
}

static void remember_name(void *context, const struct qsi_exchange *exchange)
{
    char *names = context;

    strncat(names, (const char *)exchange->name.data, exchange->name.bytes);
    strcat(names, " ");
}

static void declare_auto_delete(struct qsi_router *router, const char *name, const char *type)
{
    const struct qsi_exchange_options options = {.type = text(type), .auto_delete = true};
    bool created;

    QS_CHECK(qsi_router_declare(router, text(name), &options, &created, NULL) == QS_OK && created);
}

QS_TEST(test_auto_delete_exchange_goes_with_its_last_binding)
{
    struct qsi_router router;
    char names[64] = "";

    QS_CHECK(qsi_router_init(&router, remember_name, names, NULL) == QS_OK);
    add_queue(&router, &queues[0], 0);
    declare_auto_delete(&router, "never", "topic");
    declare_auto_delete(&router, "one", "topic");
    declare_auto_delete(&router, "two", "direct");
    bind(&router, qsi_router_find(&router, text("one")), &queues[0], text("#"));
    bind(&router, qsi_router_find(&router, text("one")), &queues[0], text("*"));
    bind(&router, qsi_router_find(&router, text("two")), &queues[0], text("k"));
    QS_CHECK(unbind(&router, qsi_router_find(&router, text("two")), &queues[0], text("k")));
    QS_CHECK(strcmp(names, "two ") == 0);
    qsi_router_remove_destination(&router, &queues[0].destination, QSI_AUTO_DELETE_GOES);
    QS_CHECK(strcmp(names, "two one ") == 0);
    QS_CHECK(qsi_router_find(&router, text("one")) == NULL);
    QS_CHECK(qsi_router_find(&router, text("never")) != NULL);
    qsi_router_fini(&router);
    QS_CHECK(strcmp(names, "two one ") == 0);
}

ROUTER_TEST(test_removing_a_destination_takes_it_out_of_every_route)
{
    static const char *const types[] = {"direct", "fanout", "topic"};
    struct qsi_exchange *exchanges[3];

    for (int i = 0; i < 3; i++) {
        exchanges[i] = declare(router, types[i], types[i]);
        for (int q = 0; q < 3; q++) {
            bind(router, exchanges[i], &queues[q], text("k"));
        }
        QS_CHECK(lookup(router, exchanges[i], text("k"))->count == 3);
    }
    qsi_router_remove_destination(router, &queues[1].destination, QSI_AUTO_DELETE_GOES);
    for (int i = 0; i < 3; i++) {
        const struct qsi_route *route = lookup(router, exchanges[i], text("k"));

        QS_CHECK(route->count == 2 && !leads_to(route, &queues[1]));
        QS_CHECK(exchanges[i]->binding_count == 2);
    }
}

ROUTER_TEST(test_version_changes_with_the_topology_and_only_then)
{
    uint64_t version;
    struct qsi_exchange *exchange = declare(router, "x", "topic");

    version = router->version;
    QS_CHECK(bind(router, exchange, &queues[0], text("a.#")));
    QS_CHECK(router->version != version);
    version = router->version;
    QS_CHECK(lookup(router, exchange, text("a.b"))->count == 1);
    QS_CHECK(!bind(router, exchange, &queues[0], text("a.#")));
    QS_CHECK(!unbind(router, exchange, &queues[1], text("a.#")));
    qsi_router_trim(router); /* little is remembered, so nothing goes */
    QS_CHECK(router->version == version);
    QS_CHECK(bind(router, exchange, &queues[1], text("*.b")));
    QS_CHECK(router->version != version);
    QS_CHECK(lookup(router, exchange, text("a.b"))->count == 2);
    version = router->version;
    QS_CHECK(unbind(router, exchange, &queues[0], text("a.#")));
    QS_CHECK(router->version != version);
    QS_CHECK(lookup(router, exchange, text("a.b"))->count == 1);
}

ROUTER_TEST(test_trim_drops_remembered_routes_only_beyond_the_limit)
{
    const struct qsi_route *first;
    uint64_t version;
    char key[32];
    int n = 0;
    struct qsi_exchange *exchange = declare(router, "x", "topic");

    bind(router, exchange, &queues[0], text("#"));
    bind(router, exchange, &queues[1], text("#"));
    version = router->version;
    first = lookup(router, exchange, text("k"));
    while (router->remembered_bytes <= QSI_ROUTE_CACHE_BYTES_MAX) {
        snprintf(key, sizeof key, "key.%d", n++);
        QS_CHECK(lookup(router, exchange, text(key)) == first);
    }
    QS_CHECK(router->version == version && first->count == 2);
    qsi_router_trim(router);
    QS_CHECK(router->version != version && router->remembered_bytes == 0);
    QS_CHECK(lookup(router, exchange, text("k"))->count == 2);
}

struct listing {
    char lines[256];
};

static void list_exchange(void *context, const struct qsi_exchange *exchange)
{
    struct listing *listing = context;
    size_t used = strlen(listing->lines);
    struct qsi_slice type = qsi_exchange_type_name(exchange);

    snprintf(listing->lines + used, sizeof listing->lines - used, "%.*s:%.*s ",
             (int)exchange->name.bytes, (const char *)exchange->name.data, (int)type.bytes,
             (const char *)type.data);
}

static void list_binding(void *context, const struct qsi_binding *binding)
{
    struct listing *listing = context;
    size_t used = strlen(listing->lines);

    snprintf(listing->lines + used, sizeof listing->lines - used, "%.*s-%.*s-%.*s-%.*s ",
             (int)binding->exchange->name.bytes, (const char *)binding->exchange->name.data,
             (int)binding->key.bytes, (const char *)binding->key.data,
             (int)binding->destination->name.bytes, (const char *)binding->destination->name.data,
             (int)binding->arguments.bytes, (const char *)binding->arguments.data);
}

ROUTER_TEST(test_visitors_list_everything_in_order)
{
    struct listing exchanges = {""};
    struct listing bindings = {""};
    bool bound;
    struct qsi_exchange *exchange = declare(router, "x", "topic");

    bind(router, qsi_router_find(router, text("amq.direct")), &queues[1], text("k"));
    bind(router, exchange, &queues[1], text("b"));
    QS_CHECK(qsi_router_bind(router, exchange, &queues[0].destination, text("a"), text("args"),
                             &bound, NULL) == QS_OK);
    qsi_router_visit_exchanges(router, list_exchange, &exchanges);
    qsi_router_visit_bindings(router, list_binding, &bindings);
    QS_CHECK(strcmp(exchanges.lines, ":direct amq.direct:direct amq.fanout:fanout "
                                     "amq.headers:headers amq.match:headers amq.topic:topic "
                                     "amq.rabbitmq.trace:topic x:topic ") == 0);
    QS_CHECK(strcmp(bindings.lines, "amq.direct-k-q1- x-b-q1- x-a-q0-args ") == 0);
}

/* 200 queues and 7 keys on a direct and a fanout exchange, bound and unbound at random. */
QS_TEST(test_churn_leaves_exactly_what_is_bound)
{
    static bool bound[200][7];
    struct qsi_router router;
    struct qsi_exchange *direct;
    struct qsi_exchange *fanout;

    srand(42);
    start(&router, 200);
    direct = declare(&router, "d", "direct");
    fanout = declare(&router, "f", "fanout");
    for (int round = 0; round < 20000; round++) {
        int q = rand() % 200;
        int k = rand() % 7;
        char key[2] = {(char)('a' + k), 0};
        bool change = bound[q][k];

        if (change) {
            QS_CHECK(unbind(&router, direct, &queues[q], text(key)));
            QS_CHECK(unbind(&router, fanout, &queues[q], text(key)));
        } else {
            QS_CHECK(bind(&router, direct, &queues[q], text(key)));
            QS_CHECK(bind(&router, fanout, &queues[q], text(key)));
        }
        bound[q][k] = !change;
        if (round % 100 == 0) {
            const struct qsi_route *by_key = lookup(&router, direct, text(key));
            const struct qsi_route *all = lookup(&router, fanout, text(key));

            for (int i = 0; i < 200; i++) {
                bool any = false;

                for (int j = 0; j < 7; j++) {
                    any = any || bound[i][j];
                }
                QS_CHECK(leads_to(by_key, &queues[i]) == bound[i][k]);
                QS_CHECK(leads_to(all, &queues[i]) == any);
            }
        }
    }
    qsi_router_fini(&router);
}

/* A sequence that allocates in every way there is; stops at the first failure. */
static qs_status run_sequence(struct qsi_router *router)
{
    static const char *const types[] = {"direct", "fanout", "topic"};
    const struct qsi_route *route;
    bool flag;

    for (int i = 0; i < 3; i++) {
        queues[i].destination.name = text(types[i]);
        queues[i].destination.takes_none = false;
        QS_TRY(qsi_router_add_destination(router, &queues[i].destination, NULL));
    }
    for (int i = 0; i < 3; i++) {
        const struct qsi_exchange_options options = {.type = text(types[i])};
        struct qsi_exchange *exchange;

        QS_TRY(qsi_router_declare(router, text(types[i]), &options, &flag, NULL));
        exchange = qsi_router_find(router, text(types[i]));
        for (int q = 0; q < 3; q++) {
            QS_TRY(qsi_router_bind(router, exchange, &queues[q].destination, text("a.#.b.*"),
                                   text("arguments"), &flag, NULL));
            QS_TRY(qsi_router_bind(router, exchange, &queues[q].destination, text("a.c"),
                                   NO_ARGUMENTS, &flag, NULL));
        }
        QS_TRY(qsi_router_lookup(router, text(types[i]), routing_of(text("a.c")), &route, NULL));
        QS_CHECK(route->count == 3);
        QS_TRY(qsi_router_unbind(router, exchange, &queues[1].destination, text("a.c"),
                                 NO_ARGUMENTS, QSI_AUTO_DELETE_GOES, &flag, NULL));
        QS_TRY(qsi_router_lookup(router, text(types[i]), routing_of(text("a.c")), &route, NULL));
        QS_CHECK(route->count == (i == 1 ? 3 : 2));
    }
    return QS_OK;
}

QS_TEST(test_every_failed_allocation_leaves_a_working_router)
{
    for (struct qs_test_sweep sweep = {.has_own_memory = true}; qs_test_sweep_on(&sweep);) {
        struct qsi_router router;
        const struct qsi_route *route;
        qs_status status;

        qs_test_sweep_allocations(&sweep);
        status = qsi_router_init(&router, NULL, NULL, NULL);
        if (status == QS_OK) {
            status = run_sequence(&router);
            qs_test_sweep_rest(&sweep);
            /* Whatever is bound by now can be looked up. */
            QS_CHECK(qsi_router_lookup(&router, text("amq.topic"), routing_of(text("a")), &route,
                                       NULL) == QS_OK);
            for (int i = 0; i < 3; i++) {
                struct qsi_exchange *exchange =
                    qsi_router_find(&router, queues[i].destination.name);

                if (exchange != NULL) {
                    QS_CHECK(lookup(&router, exchange, text("a.b.d"))->count <= 3);
                }
            }
            qsi_router_fini(&router);
        }
        qs_test_sweep_rest(&sweep);
        QS_CHECK(status == (sweep.has_failed ? QS_ENOMEM : QS_OK));
    }
}
