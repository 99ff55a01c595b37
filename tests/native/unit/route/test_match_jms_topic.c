/* x-jms-topic: the key as in a topic exchange, then the selector; routes through other exchanges;
 * what is remembered when selectors come and go. */
#include "header_table.h"
#include "properties.h"

static struct queue queues[4];
static struct qsi_router router;
static struct qsi_exchange *exchange;

static void start(void)
{
    QS_CHECK(qsi_router_init(&router, NULL, NULL, NULL) == QS_OK);
    for (int i = 0; i < 4; i++) {
        add_queue(&router, &queues[i], i);
    }
    exchange = declare(&router, "jms", "x-jms-topic");
}

static void finish(void)
{
    qsi_router_check(&router);
    qsi_router_fini(&router);
}

static void run_between(void (*test)(void))
{
    start();
    test();
    finish();
}
#define TOPIC_TEST(name) QS_TEST_BY(run_between, name, (void))

static struct table selector_arguments(const char *selector)
{
    struct table arguments = {.used = 0};

    put_text(&arguments, "x-jms-selector", selector);
    return arguments;
}

static bool bind_to(struct qsi_exchange *from, struct qsi_destination *to, const char *key,
                    const char *selector)
{
    struct table arguments = selector_arguments(selector);
    bool bound;

    QS_CHECK_OK(
        qsi_router_bind(&router, from, to, text(key), slice_of(&arguments), &bound, QS_ERROR));
    return bound;
}

static bool select_into(struct queue *queue, const char *key, const char *selector)
{
    return bind_to(exchange, &queue->destination, key, selector);
}

static bool drop(struct queue *queue, const char *key, const char *selector)
{
    struct table arguments = selector_arguments(selector);
    bool unbound;

    QS_CHECK_OK(qsi_router_unbind(&router, exchange, &queue->destination, text(key),
                                  slice_of(&arguments), QSI_AUTO_DELETE_GOES, &unbound, QS_ERROR));
    return unbound;
}

static const struct qsi_route *route_from(struct qsi_exchange *from, const char *key,
                                          const char *headers,
                                          const struct qsi_properties *properties)
{
    static struct table table;
    const struct qsi_route *route = NULL;
    struct qsi_routing routing = {.key = text(key), .properties = properties};

    table = table_of(headers);
    routing.headers = slice_of(&table);
    QS_CHECK(qsi_exchange_lookup(&router, from, &routing, &route, NULL) == QS_OK);
    return route;
}

/* "13": the queues that the message leads to. */
static void check_route(const char *key, const char *headers, const char *expected)
{
    const struct qsi_route *route = route_from(exchange, key, headers, NULL);

    QS_CHECK(route->count == strlen(expected));
    for (size_t i = 0; i < strlen(expected); i++) {
        QS_CHECK(leads_to(route, &queues[expected[i] - '0']));
    }
}

TOPIC_TEST(test_the_key_decides_first_and_the_selector_then)
{
    QS_CHECK(select_into(&queues[0], "eu.#", "side = 'buy'"));
    QS_CHECK(select_into(&queues[1], "eu.*", "side = 'sell' OR side IS NULL"));
    QS_CHECK(bind(&router, exchange, &queues[2], text("#")));
    QS_CHECK(select_into(&queues[3], "*.x", ""));
    check_route("eu.x", "side=buy", "023");
    check_route("eu.x", "side=sell", "123");
    check_route("eu.x", "", "123");
    check_route("eu.x", "side=none", "23");
    check_route("us.y", "side=buy", "2");
    check_route("eu.x.y", "side=buy", "02");
}

TOPIC_TEST(test_properties_are_known_to_decide_while_a_selector_reads_them)
{
    struct qsi_properties properties = {.priority = 7,
                                        .present = qsi_property_flag(QSI_PROPERTY_PRIORITY)};
    const struct qsi_route *route;

    QS_CHECK(select_into(&queues[0], "#", "JMSPriority > 5"));
    QS_CHECK(select_into(&queues[1], "#", "side = 'buy'"));
    route = route_from(exchange, "k", "", &properties);
    QS_CHECK(route->count == 1 && leads_to(route, &queues[0]) && route->by_headers);
    QS_CHECK(route->by_properties == qsi_property_flag(QSI_PROPERTY_PRIORITY));
    properties.priority = 5;
    QS_CHECK(route_from(exchange, "k", "", &properties)->count == 0);
    QS_CHECK(drop(&queues[0], "#", "JMSPriority > 5"));
    route = route_from(exchange, "k", "side=buy", &properties);
    QS_CHECK(route->count == 1 && route->by_properties == 0 && route->by_headers);
    QS_CHECK(drop(&queues[1], "#", "side = 'buy'"));
    QS_CHECK(!route_from(exchange, "k", "side=buy", &properties)->by_headers);
}

TOPIC_TEST(test_routes_are_remembered_only_without_selectors)
{
    QS_CHECK(bind(&router, exchange, &queues[0], text("a")));
    check_route("a", "", "0");
    QS_CHECK(exchange->is_plain && router.remembered_bytes > 0);
    QS_CHECK(select_into(&queues[1], "a", "n = '1'"));
    QS_CHECK(!exchange->is_plain);
    check_route("a", "n=1", "01");
    check_route("a", "n=2", "0");
    QS_CHECK(drop(&queues[1], "a", "n = '1'"));
    QS_CHECK(exchange->is_plain);
    check_route("a", "n=1", "0");
}

TOPIC_TEST(test_equal_selectors_are_one_and_other_ones_are_other_bindings)
{
    QS_CHECK(select_into(&queues[0], "a", "n = '1'"));
    QS_CHECK(select_into(&queues[0], "a", "n = '2'"));
    QS_CHECK(select_into(&queues[1], "b", "n = '1'"));
    QS_CHECK(!select_into(&queues[1], "b", "n = '1'"));
    QS_CHECK(exchange->binding_count == 3);
    check_route("a", "n=1", "0");
    check_route("a", "n=2", "0");
    QS_CHECK(drop(&queues[0], "a", "n = '1'"));
    QS_CHECK(!drop(&queues[0], "a", "n = '1'"));
    check_route("a", "n=1", "");
    check_route("a", "n=2", "0");
    check_route("b", "n=1", "1");
}

TOPIC_TEST(test_selectors_decide_on_the_way_to_and_from_other_exchanges)
{
    struct qsi_exchange *topic, *fanout;
    const struct qsi_route *route;

    topic = declare(&router, "topic", "topic");
    fanout = declare(&router, "fanout", "fanout");
    QS_CHECK(bind_to(topic, &exchange->destination, "eu.#", ""));
    QS_CHECK(bind_to(exchange, &fanout->destination, "#", "n = '1'"));
    QS_CHECK(bind(&router, fanout, &queues[2], text("")));
    QS_CHECK(select_into(&queues[1], "eu.x", "n <> '1'"));
    route = route_from(topic, "eu.x", "n=1", NULL);
    QS_CHECK(route->count == 1 && leads_to(route, &queues[2]) && route->by_headers);
    route = route_from(topic, "eu.x", "n=2", NULL);
    QS_CHECK(route->count == 1 && leads_to(route, &queues[1]));
    QS_CHECK(route_from(topic, "us.x", "n=1", NULL)->count == 0);
}

TOPIC_TEST(test_what_no_selector_selects_goes_to_the_alternate_exchange)
{
    struct table arguments = table_of("alternate-exchange=rest");
    struct qsi_exchange_options options = {.type = text("x-jms-topic"),
                                           .arguments = slice_of(&arguments)};
    struct qsi_exchange *rest;
    bool created;

    rest = declare(&router, "rest", "fanout");
    QS_CHECK(bind(&router, rest, &queues[3], text("")));
    QS_CHECK_OK(qsi_router_declare(&router, text("some"), &options, &created, QS_ERROR));
    exchange = qsi_router_find(&router, text("some"));
    QS_CHECK(select_into(&queues[0], "#", "n = '1'"));
    check_route("k", "n=1", "0");
    check_route("k", "n=2", "3");
}

static void check_refused(const struct table *arguments, const char *expected)
{
    qs_error error = {0};
    bool bound;

    QS_CHECK(qsi_router_bind(&router, exchange, &queues[0].destination, text("k"),
                             slice_of(arguments), &bound, &error) == QS_PRECONDITION_FAILED);
    if (strcmp(error.text, expected) != 0) {
        fprintf(stderr, "got '%s'\n", error.text);
        exit(1);
    }
    QS_CHECK(exchange->binding_count == 0 && exchange->is_plain);
}

TOPIC_TEST(test_bindings_with_bad_selectors_are_refused)
{
    struct table wrong = selector_arguments("n = ");
    struct table erlang = table_of("rjms_erlang_selector=true. rjms_version=1.1");
    struct table not_text = table_of("x-jms-selector");

    check_refused(&wrong, "selector: at character 5: expected a name or a value after =, found the "
                          "end");
    check_refused(&erlang, "binding argument 'rjms_erlang_selector' is not supported: give the "
                           "selector's text as 'x-jms-selector'");
    check_refused(&not_text, "invalid type 'void' for binding argument 'x-jms-selector': a string "
                             "is needed");
}

static qs_status try_bind(const char *selector)
{
    struct table arguments = selector_arguments(selector);
    bool bound;

    return qsi_router_bind(&router, exchange, &queues[1].destination, text("a.b.c"),
                           slice_of(&arguments), &bound, NULL);
}

QS_TEST(test_a_failed_allocation_changes_nothing)
{
    struct qs_test_alloc failing = {0};
    qs_status status = QS_ENOMEM;

    qs_test_alloc_use(&failing);
    for (uint64_t at = 1; status == QS_ENOMEM; at++) {
        start();
        QS_CHECK(select_into(&queues[0], "#", "n = '1'"));
        failing.calls = 0;
        failing.fail_at = at;
        status = try_bind("m = 'x' AND n LIKE '%'");
        failing.fail_at = 0;
        check_route("a.b.c", "n=1", "0");
        QS_CHECK(exchange->binding_count == (status == QS_OK ? 2 : 1));
        finish();
        QS_CHECK(failing.alive == 0);
    }
    QS_CHECK(status == QS_OK);
    qs_allocator_set(NULL);
}
