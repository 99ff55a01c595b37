/* Routes through several exchanges: bindings between them, alternate exchanges, several keys.
 *
 * Method: small topologies spelled out, their answers those of a RabbitMQ 3.10 broker; every
 * allocation failed in turn.  test_walk_random.c compares random ones with a search. */
#include "qs_test_sweep.h"
#include "walk_fixture.h"

ROUTER_TEST(test_bindings_between_exchanges_carry_on_with_the_same_key)
{
    struct qsi_exchange *source, *topic, *fanout;

    source = declare(router, "source", "direct");
    topic = declare(router, "topic", "topic");
    fanout = declare(router, "fanout", "fanout");
    bind(router, source, &queues[0], text("a.b"));
    bind(router, topic, &queues[1], text("a.*"));
    bind(router, topic, &queues[2], text("c"));
    bind(router, fanout, &queues[3], text(""));
    CHECK_REACHED(source, "a.b", "0");
    join(router, source, topic, "a.b");
    CHECK_REACHED(source, "a.b", "01");
    CHECK_REACHED(source, "c", "");
    join(router, topic, fanout, "#.b");
    CHECK_REACHED(source, "a.b", "013");
    CHECK_REACHED(topic, "c", "2");
    part(router, topic, fanout, "#.b");
    CHECK_REACHED(source, "a.b", "01");
    unbind(router, topic, &queues[1], text("a.*")); /* a change behind the first exchange */
    CHECK_REACHED(source, "a.b", "0");
    part(router, source, topic, "a.b");
    QS_CHECK(source->is_plain);
    CHECK_REACHED(source, "a.b", "0");
}

ROUTER_TEST(test_circles_end_and_each_queue_is_met_once)
{
    struct qsi_exchange *a, *b, *c;

    a = declare(router, "a", "fanout");
    b = declare(router, "b", "fanout");
    c = declare(router, "c", "fanout");
    join(router, a, b, "");
    join(router, a, c, "");
    join(router, b, c, "");
    join(router, c, a, "");
    join(router, c, c, "");
    bind(router, c, &queues[5], text(""));
    bind(router, a, &queues[5], text(""));
    bind(router, b, &queues[2], text(""));
    CHECK_REACHED(a, "", "25");
    CHECK_REACHED(b, "", "25");
    CHECK_REACHED(c, "", "25");
}

ROUTER_TEST(test_an_alternate_takes_what_no_binding_matches)
{
    struct qsi_exchange *source, *middle, *last, *nowhere;

    source = declare_alternate(router, "source", "direct", "middle");
    bind(router, source, &queues[0], text("k"));
    CHECK_REACHED(source, "other", ""); /* it need not be there */
    middle = declare_alternate(router, "middle", "topic", "last");
    CHECK_REACHED(source, "other", "");
    last = declare_alternate(router, "last", "fanout", "source"); /* a circle */
    CHECK_REACHED(source, "other", "");
    bind(router, last, &queues[2], text(""));
    CHECK_REACHED(source, "other", "2");
    CHECK_REACHED(source, "k", "0");
    bind(router, middle, &queues[1], text("#"));
    CHECK_REACHED(source, "other", "1");
    /* A binding that leads to an exchange matches, wherever that leads. */
    nowhere = declare(router, "nowhere", "direct");
    join(router, source, nowhere, "other");
    CHECK_REACHED(source, "other", "");
    qsi_router_delete(router, nowhere, QSI_AUTO_DELETE_GOES);
    CHECK_REACHED(source, "other", "1");
    qsi_router_delete(router, middle, QSI_AUTO_DELETE_GOES);
    CHECK_REACHED(source, "other", "");
    middle = declare(router, "middle", "fanout");
    bind(router, middle, &queues[4], text(""));
    CHECK_REACHED(source, "other", "4");
}

ROUTER_TEST(test_an_alternate_of_a_destination_counts_and_the_default_exchange_is_none)
{
    struct qsi_exchange *source, *middle, *to_default;

    source = declare(router, "source", "fanout");
    middle = declare_alternate(router, "middle", "direct", "amq.fanout");
    join(router, source, middle, "");
    bind(router, qsi_router_find(router, text("amq.fanout")), &queues[3], text(""));
    CHECK_REACHED(source, "k", "3");
    to_default = declare_alternate(router, "to_default", "direct", "");
    CHECK_REACHED(to_default, "q1", "");
}

static void check_inequivalent(struct qsi_router *router, const char *name,
                               struct qsi_slice arguments, const char *expected)
{
    const struct qsi_exchange_options options = {.type = text("direct"), .arguments = arguments};
    qs_error error;
    bool created;

    QS_CHECK(qsi_router_declare(router, text(name), &options, &created, &error) ==
             QS_PRECONDITION_FAILED);
    if (strcmp(error.text, expected) != 0) {
        fprintf(stderr, "'%s', not '%s'\n", error.text, expected);
        exit(1);
    }
}

ROUTER_TEST(test_alternate_exchange_is_checked_in_the_words_of_a_broker)
{
    struct table one = alternate_table("one"), two = alternate_table("two");
    struct table number = {.used = 0}, flag = {.used = 0}, other = table_of("other=z");

    put_field(&number, "alternate-exchange", 'I', "\0\0\0\5", 4);
    put_field(&flag, "alternate-exchange", 't', "\1", 1);
    declare(router, "without", "direct");
    declare_alternate(router, "with", "direct", "one");
    declare_alternate(router, "with", "direct", "one");
    check_inequivalent(
        router, "without", slice_of(&one),
        "inequivalent arg 'alternate-exchange' for exchange 'without' in this store: received "
        "the value 'one' of type 'longstr' but current is none");
    check_inequivalent(
        router, "without", slice_of(&number),
        "inequivalent arg 'alternate-exchange' for exchange 'without' in this store: received "
        "the value '5' of type 'signedint' but current is none");
    check_inequivalent(
        router, "with", slice_of(&other),
        "inequivalent arg 'alternate-exchange' for exchange 'with' in this store: received none "
        "but current is the value 'one' of type 'longstr'");
    check_inequivalent(
        router, "with", slice_of(&two),
        "inequivalent arg 'alternate-exchange' for exchange 'with' in this store: received 'two' "
        "but current is 'one'");
    check_inequivalent(
        router, "with", slice_of(&number),
        "inequivalent arg 'alternate-exchange' for exchange 'with' in this store: received '5' "
        "but current is 'one'");
    check_inequivalent(
        router, "new", slice_of(&flag),
        "invalid type 'bool' for arg 'alternate-exchange' in exchange 'new' in this store");
    QS_CHECK(qsi_router_find(router, text("new")) == NULL);
}

ROUTER_TEST(test_several_keys_reach_what_any_of_them_does)
{
    const struct qsi_slice copies[] = {text("q1"), text("q5"), text("q1"), text("none")};
    const struct qsi_routing routing = {.key = text("q2"), .copies = copies, .copy_count = 4};
    static const char *const types[] = {"direct", "topic", "fanout"};
    const struct qsi_route *route;

    QS_CHECK(qsi_router_lookup(router, text(""), &routing, &route, NULL) == QS_OK);
    QS_CHECK(route->count == 3 && leads_to(route, &queues[1]) && leads_to(route, &queues[2]) &&
             leads_to(route, &queues[5]));
    for (int i = 0; i < 3; i++) {
        struct qsi_exchange *exchange = declare_alternate(router, types[i], types[i], "last");

        bind(router, exchange, &queues[1], text("q1"));
        bind(router, exchange, &queues[2], text("q2"));
        bind(router, exchange, &queues[3], text("q3"));
        QS_CHECK(qsi_exchange_lookup(router, exchange, &routing, &route, NULL) == QS_OK);
        QS_CHECK(route->count == (i == 2 ? 3 : 2) && leads_to(route, &queues[2]));
    }
    /* One key that matches is enough to keep the alternate out. */
    bind(router, declare(router, "last", "fanout"), &queues[7], text(""));
    unbind(router, qsi_router_find(router, text("direct")), &queues[2], text("q2"));
    QS_CHECK(qsi_router_lookup(router, text("direct"), &routing, &route, NULL) == QS_OK);
    QS_CHECK(route->count == 1 && leads_to(route, &queues[1]));
    unbind(router, qsi_router_find(router, text("direct")), &queues[1], text("q1"));
    QS_CHECK(qsi_router_lookup(router, text("direct"), &routing, &route, NULL) == QS_OK);
    QS_CHECK(route->count == 1 && leads_to(route, &queues[7]));
}

ROUTER_TEST(test_headers_behind_an_exchange_are_looked_at_each_time)
{
    struct table one = table_of("a=1"), two = table_of("a=2");
    struct qsi_routing routing = {.key = text("k"), .headers = slice_of(&one)};
    struct qsi_exchange *source, *headers;
    const struct qsi_route *route;
    bool bound;

    source = declare(router, "source", "direct");
    headers = declare(router, "headers", "headers");
    join(router, source, headers, "k");
    QS_CHECK(qsi_router_bind(router, headers, &queues[1].destination, text(""), slice_of(&one),
                             &bound, NULL) == QS_OK);
    QS_CHECK(qsi_router_lookup(router, text("source"), &routing, &route, NULL) == QS_OK);
    QS_CHECK(route->count == 1 && route->by_headers);
    routing.headers = slice_of(&two);
    QS_CHECK(qsi_router_lookup(router, text("source"), &routing, &route, NULL) == QS_OK);
    QS_CHECK(route->count == 0 && route->by_headers);
    routing.key = text("other");
    QS_CHECK(qsi_router_lookup(router, text("source"), &routing, &route, NULL) == QS_OK);
    QS_CHECK(route->count == 0 && !route->by_headers);
}

ROUTER_TEST(test_the_default_exchange_is_refused_at_either_end)
{
    struct qsi_exchange *plain, *defaults;
    bool flag;

    plain = declare(router, "plain", "direct");
    defaults = qsi_router_find(router, text(""));
    QS_CHECK(qsi_router_bind(router, plain, &defaults->destination, text("k"), NO_ARGUMENTS, &flag,
                             NULL) == QS_ACCESS_REFUSED);
    QS_CHECK(qsi_router_bind(router, defaults, &plain->destination, text("k"), NO_ARGUMENTS, &flag,
                             NULL) == QS_ACCESS_REFUSED);
    QS_CHECK(qsi_router_unbind(router, plain, &defaults->destination, text("k"), NO_ARGUMENTS,
                               QSI_AUTO_DELETE_GOES, &flag, NULL) == QS_ACCESS_REFUSED);
}

/* ---- deleting ---- */

static void remember_name(void *context, const struct qsi_exchange *exchange)
{
    char *names = context;

    strncat(names, (const char *)exchange->name.data, exchange->name.bytes);
    strcat(names, " ");
}

static struct qsi_exchange *declare_auto_delete(struct qsi_router *router, const char *name)
{
    const struct qsi_exchange_options options = {.type = text("direct"), .auto_delete = true};
    bool created;

    QS_CHECK(qsi_router_declare(router, text(name), &options, &created, NULL) == QS_OK);
    return qsi_router_find(router, text(name));
}

QS_TEST(test_deleting_drops_bindings_both_ways_and_sources_that_are_done)
{
    struct qsi_router made, *router = &made;
    struct qsi_exchange *first, *second, *third, *kept;
    char names[64] = "";

    QS_CHECK(qsi_router_init(router, remember_name, names, NULL) == QS_OK);
    add_queue(router, &queues[0], 0);
    first = declare_auto_delete(router, "first");
    second = declare_auto_delete(router, "second");
    third = declare(router, "third", "fanout");
    kept = declare(router, "kept", "direct");
    join(router, first, second, "k");
    join(router, second, third, "k");
    join(router, third, kept, "k");
    join(router, kept, third, "k");
    bind(router, third, &queues[0], text("k"));
    QS_CHECK(router->bindings.count == 5);
    qsi_router_delete(router, third, QSI_AUTO_DELETE_GOES);
    QS_CHECK(strcmp(names, "second first ") == 0);
    QS_CHECK(router->bindings.count == 0 && kept->binding_count == 0 && kept->is_plain);
    QS_CHECK(qsi_list_is_empty(&kept->destination.bindings));
    QS_CHECK(qsi_router_find(router, text("first")) == NULL);
    CHECK_REACHED(kept, "k", "");
    /* Where it is the destination does not count, and it may have led to itself. */
    second = declare_auto_delete(router, "second");
    join(router, kept, second, "k");
    part(router, kept, second, "k");
    QS_CHECK(qsi_router_find(router, text("second")) == second);
    join(router, second, second, "k");
    part(router, second, second, "k");
    QS_CHECK(qsi_router_find(router, text("second")) == NULL);
    qsi_router_fini(router);
}

ROUTER_TEST(test_a_long_chain_of_auto_delete_exchanges_goes_at_once)
{
    struct qsi_exchange *last = NULL;
    char name[16];

    for (int i = 0; i < 50000; i++) {
        struct qsi_exchange *next;

        snprintf(name, sizeof name, "x%d", i);
        next = declare_auto_delete(router, name);
        if (last != NULL) {
            join(router, next, last, "k");
        }
        last = next;
    }
    bind(router, qsi_router_find(router, text("x0")), &queues[0], text("k"));
    CHECK_REACHED(last, "k", "0");
    unbind(router, qsi_router_find(router, text("x0")), &queues[0], text("k"));
    QS_CHECK(router->exchange_names.count == 7 && router->bindings.count == 0);
}

/* ---- failures ---- */

static qs_status run_sequence(struct qsi_router *router)
{
    static const char *const types[] = {"direct", "fanout", "topic", "headers"};
    const struct qsi_slice copies[] = {text("b")};
    struct table alternate = alternate_table("amq.fanout");
    const struct qsi_route *route;
    bool flag;

    for (int i = 0; i < 3; i++) {
        queues[i].destination.name = text(queues[i].name);
        queues[i].destination.takes_none = false;
        QS_TRY(qsi_router_add_destination(router, &queues[i].destination, NULL));
    }
    QS_TRY(qsi_router_bind(router, qsi_router_find(router, text("amq.fanout")),
                           &queues[0].destination, text(""), NO_ARGUMENTS, &flag, NULL));
    for (int i = 0; i < 4; i++) {
        const struct qsi_exchange_options options = {.type = text(types[i]),
                                                     .arguments = slice_of(&alternate)};
        struct qsi_routing routing = {.key = text("a")};
        struct qsi_exchange *exchange;

        QS_TRY(qsi_router_declare(router, text(types[i]), &options, &flag, NULL));
        exchange = qsi_router_find(router, text(types[i]));
        QS_TRY(qsi_router_lookup(router, text(types[i]), &routing, &route, NULL));
        QS_CHECK(route->count == 1);
        QS_TRY(qsi_router_bind(router, exchange,
                               &qsi_router_find(router, text("amq.topic"))->destination, text("a"),
                               NO_ARGUMENTS, &flag, NULL));
        QS_TRY(qsi_router_bind(router, qsi_router_find(router, text("amq.topic")),
                               &queues[1].destination, text("#"), NO_ARGUMENTS, &flag, NULL));
        QS_TRY(qsi_router_bind(router, qsi_router_find(router, text("amq.topic")),
                               &queues[2].destination, text("#"), NO_ARGUMENTS, &flag, NULL));
        for (int again = 0; again < 2; again++) {
            QS_TRY(qsi_router_lookup(router, text(types[i]), &routing, &route, NULL));
            QS_CHECK(route->count == 2);
        }
        routing.copies = copies;
        routing.copy_count = 1;
        QS_TRY(qsi_router_lookup(router, text(types[i]), &routing, &route, NULL));
        QS_CHECK(route->count == 2);
    }
    return QS_OK;
}

QS_TEST(test_every_failed_allocation_leaves_a_working_router)
{
    for (struct qs_test_sweep sweep = {.has_own_memory = true}; qs_test_sweep_on(&sweep);) {
        struct qsi_router made, *router = &made;
        qs_status status;

        qs_test_sweep_allocations(&sweep);
        status = qsi_router_init(router, NULL, NULL, NULL);
        if (status == QS_OK) {
            status = run_sequence(router);
            qs_test_sweep_rest(&sweep);
            QS_CHECK(lookup(router, qsi_router_find(router, text("amq.topic")), text("a"))->count <=
                     2);
            qsi_router_fini(router);
        }
        qs_test_sweep_rest(&sweep);
        QS_CHECK(status == (sweep.has_failed ? QS_ENOMEM : QS_OK));
    }
}
