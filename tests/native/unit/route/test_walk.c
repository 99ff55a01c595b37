/* Routes through several exchanges: bindings between them, alternate exchanges, several keys.
 *
 * Method: small topologies spelled out, their answers those of a RabbitMQ 3.10 broker; random ones
 * compared with a search that looks at every binding; every allocation failed in turn. */
#include "header_table.h"

static struct queue queues[8];

static void start(struct qsi_router *router)
{
    QS_CHECK(qsi_router_init(router, NULL, NULL, NULL) == QS_OK);
    for (int i = 0; i < 8; i++) {
        add_queue(router, &queues[i], i);
    }
}

static struct table alternate_table(const char *name)
{
    struct table table = {.used = 0};

    put_text(&table, "alternate-exchange", name);
    return table;
}

static struct qsi_exchange *declare_alternate(struct qsi_router *router, const char *name,
                                              const char *type, const char *alternate)
{
    struct table arguments = alternate_table(alternate);
    const struct qsi_exchange_options options = {.type = text(type),
                                                 .arguments = slice_of(&arguments)};
    bool created;

    QS_CHECK(qsi_router_declare(router, text(name), &options, &created, NULL) == QS_OK);
    return qsi_router_find(router, text(name));
}

static void join(struct qsi_router *router, struct qsi_exchange *source,
                 struct qsi_exchange *destination, const char *key)
{
    bool bound;

    QS_CHECK(qsi_router_bind(router, source, &destination->destination, text(key), NO_ARGUMENTS,
                             &bound, NULL) == QS_OK);
}

static void part(struct qsi_router *router, struct qsi_exchange *source,
                 struct qsi_exchange *destination, const char *key)
{
    bool unbound;

    QS_CHECK(qsi_router_unbind(router, source, &destination->destination, text(key), NO_ARGUMENTS,
                               &unbound, NULL) == QS_OK &&
             unbound);
}

/* The queues' numbers as digits, in route order. */
static const char *reached(struct qsi_router *router, struct qsi_exchange *exchange,
                           const char *key)
{
    static char digits[9];
    const struct qsi_route *route = lookup(router, exchange, text(key));

    for (uint32_t i = 0; i < route->count; i++) {
        digits[i] = (char)route->destinations[i]->name.data[1];
    }
    digits[route->count] = 0;
    return digits;
}
#define CHECK_REACHED(exchange, key, digits) \
    QS_CHECK(strcmp(reached(&router, exchange, key), digits) == 0)

static void test_bindings_between_exchanges_carry_on_with_the_same_key(void)
{
    struct qsi_router router;
    struct qsi_exchange *source, *topic, *fanout;

    start(&router);
    source = declare(&router, "source", "direct");
    topic = declare(&router, "topic", "topic");
    fanout = declare(&router, "fanout", "fanout");
    bind(&router, source, &queues[0], text("a.b"));
    bind(&router, topic, &queues[1], text("a.*"));
    bind(&router, topic, &queues[2], text("c"));
    bind(&router, fanout, &queues[3], text(""));
    CHECK_REACHED(source, "a.b", "0");
    join(&router, source, topic, "a.b");
    CHECK_REACHED(source, "a.b", "01");
    CHECK_REACHED(source, "c", "");
    join(&router, topic, fanout, "#.b");
    CHECK_REACHED(source, "a.b", "013");
    CHECK_REACHED(topic, "c", "2");
    part(&router, topic, fanout, "#.b");
    CHECK_REACHED(source, "a.b", "01");
    unbind(&router, topic, &queues[1], text("a.*")); /* a change behind the first exchange */
    CHECK_REACHED(source, "a.b", "0");
    part(&router, source, topic, "a.b");
    QS_CHECK(source->is_plain);
    CHECK_REACHED(source, "a.b", "0");
    qsi_router_fini(&router);
}

static void test_circles_end_and_each_queue_is_met_once(void)
{
    struct qsi_router router;
    struct qsi_exchange *a, *b, *c;

    start(&router);
    a = declare(&router, "a", "fanout");
    b = declare(&router, "b", "fanout");
    c = declare(&router, "c", "fanout");
    join(&router, a, b, "");
    join(&router, a, c, "");
    join(&router, b, c, "");
    join(&router, c, a, "");
    join(&router, c, c, "");
    bind(&router, c, &queues[5], text(""));
    bind(&router, a, &queues[5], text(""));
    bind(&router, b, &queues[2], text(""));
    CHECK_REACHED(a, "", "25");
    CHECK_REACHED(b, "", "25");
    CHECK_REACHED(c, "", "25");
    qsi_router_fini(&router);
}

static void test_an_alternate_takes_what_no_binding_matches(void)
{
    struct qsi_router router;
    struct qsi_exchange *source, *middle, *last, *nowhere;

    start(&router);
    source = declare_alternate(&router, "source", "direct", "middle");
    bind(&router, source, &queues[0], text("k"));
    CHECK_REACHED(source, "other", ""); /* it need not be there */
    middle = declare_alternate(&router, "middle", "topic", "last");
    CHECK_REACHED(source, "other", "");
    last = declare_alternate(&router, "last", "fanout", "source"); /* a circle */
    CHECK_REACHED(source, "other", "");
    bind(&router, last, &queues[2], text(""));
    CHECK_REACHED(source, "other", "2");
    CHECK_REACHED(source, "k", "0");
    bind(&router, middle, &queues[1], text("#"));
    CHECK_REACHED(source, "other", "1");
    /* A binding that leads to an exchange matches, wherever that leads. */
    nowhere = declare(&router, "nowhere", "direct");
    join(&router, source, nowhere, "other");
    CHECK_REACHED(source, "other", "");
    qsi_router_delete(&router, nowhere);
    CHECK_REACHED(source, "other", "1");
    qsi_router_delete(&router, middle);
    CHECK_REACHED(source, "other", "");
    middle = declare(&router, "middle", "fanout");
    bind(&router, middle, &queues[4], text(""));
    CHECK_REACHED(source, "other", "4");
    qsi_router_fini(&router);
}

static void test_an_alternate_of_a_destination_counts_and_the_default_exchange_is_none(void)
{
    struct qsi_router router;
    struct qsi_exchange *source, *middle, *to_default;

    start(&router);
    source = declare(&router, "source", "fanout");
    middle = declare_alternate(&router, "middle", "direct", "amq.fanout");
    join(&router, source, middle, "");
    bind(&router, qsi_router_find(&router, text("amq.fanout")), &queues[3], text(""));
    CHECK_REACHED(source, "k", "3");
    to_default = declare_alternate(&router, "to_default", "direct", "");
    CHECK_REACHED(to_default, "q1", "");
    qsi_router_fini(&router);
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

static void test_alternate_exchange_is_checked_in_the_words_of_a_broker(void)
{
    struct qsi_router router;
    struct table one = alternate_table("one"), two = alternate_table("two");
    struct table number = {.used = 0}, flag = {.used = 0}, other = table_of("other=z");

    put_field(&number, "alternate-exchange", 'I', "\0\0\0\5", 4);
    put_field(&flag, "alternate-exchange", 't', "\1", 1);
    start(&router);
    declare(&router, "without", "direct");
    declare_alternate(&router, "with", "direct", "one");
    declare_alternate(&router, "with", "direct", "one");
    check_inequivalent(&router, "without", slice_of(&one),
                       "inequivalent arg 'alternate-exchange' for exchange 'without': received "
                       "the value 'one' of type 'longstr' but current is none");
    check_inequivalent(&router, "without", slice_of(&number),
                       "inequivalent arg 'alternate-exchange' for exchange 'without': received "
                       "the value '5' of type 'signedint' but current is none");
    check_inequivalent(&router, "with", slice_of(&other),
                       "inequivalent arg 'alternate-exchange' for exchange 'with': received none "
                       "but current is the value 'one' of type 'longstr'");
    check_inequivalent(&router, "with", slice_of(&two),
                       "inequivalent arg 'alternate-exchange' for exchange 'with': received 'two' "
                       "but current is 'one'");
    check_inequivalent(&router, "with", slice_of(&number),
                       "inequivalent arg 'alternate-exchange' for exchange 'with': received '5' "
                       "but current is 'one'");
    check_inequivalent(&router, "new", slice_of(&flag),
                       "invalid type 'bool' for arg 'alternate-exchange' in exchange 'new'");
    QS_CHECK(qsi_router_find(&router, text("new")) == NULL);
    qsi_router_fini(&router);
}

static void test_several_keys_reach_what_any_of_them_does(void)
{
    const struct qsi_slice copies[] = {text("q1"), text("q5"), text("q1"), text("none")};
    const struct qsi_routing routing = {.key = text("q2"), .copies = copies, .copy_count = 4};
    static const char *const types[] = {"direct", "topic", "fanout"};
    const struct qsi_route *route;
    struct qsi_router router;

    start(&router);
    QS_CHECK(qsi_router_lookup(&router, text(""), &routing, &route, NULL) == QS_OK);
    QS_CHECK(route->count == 3 && leads_to(route, &queues[1]) && leads_to(route, &queues[2]) &&
             leads_to(route, &queues[5]));
    for (int i = 0; i < 3; i++) {
        struct qsi_exchange *exchange = declare_alternate(&router, types[i], types[i], "last");

        bind(&router, exchange, &queues[1], text("q1"));
        bind(&router, exchange, &queues[2], text("q2"));
        bind(&router, exchange, &queues[3], text("q3"));
        QS_CHECK(qsi_exchange_lookup(&router, exchange, &routing, &route, NULL) == QS_OK);
        QS_CHECK(route->count == (i == 2 ? 3 : 2) && leads_to(route, &queues[2]));
    }
    /* One key that matches is enough to keep the alternate out. */
    bind(&router, declare(&router, "last", "fanout"), &queues[7], text(""));
    unbind(&router, qsi_router_find(&router, text("direct")), &queues[2], text("q2"));
    QS_CHECK(qsi_router_lookup(&router, text("direct"), &routing, &route, NULL) == QS_OK);
    QS_CHECK(route->count == 1 && leads_to(route, &queues[1]));
    unbind(&router, qsi_router_find(&router, text("direct")), &queues[1], text("q1"));
    QS_CHECK(qsi_router_lookup(&router, text("direct"), &routing, &route, NULL) == QS_OK);
    QS_CHECK(route->count == 1 && leads_to(route, &queues[7]));
    qsi_router_fini(&router);
}

static void test_headers_behind_an_exchange_are_looked_at_each_time(void)
{
    struct table one = table_of("a=1"), two = table_of("a=2");
    struct qsi_routing routing = {.key = text("k"), .headers = slice_of(&one)};
    struct qsi_exchange *source, *headers;
    const struct qsi_route *route;
    struct qsi_router router;
    bool bound;

    start(&router);
    source = declare(&router, "source", "direct");
    headers = declare(&router, "headers", "headers");
    join(&router, source, headers, "k");
    QS_CHECK(qsi_router_bind(&router, headers, &queues[1].destination, text(""), slice_of(&one),
                             &bound, NULL) == QS_OK);
    QS_CHECK(qsi_router_lookup(&router, text("source"), &routing, &route, NULL) == QS_OK);
    QS_CHECK(route->count == 1 && route->by_headers);
    routing.headers = slice_of(&two);
    QS_CHECK(qsi_router_lookup(&router, text("source"), &routing, &route, NULL) == QS_OK);
    QS_CHECK(route->count == 0 && route->by_headers);
    routing.key = text("other");
    QS_CHECK(qsi_router_lookup(&router, text("source"), &routing, &route, NULL) == QS_OK);
    QS_CHECK(route->count == 0 && !route->by_headers);
    qsi_router_fini(&router);
}

static void test_the_default_exchange_is_refused_at_either_end(void)
{
    struct qsi_router router;
    struct qsi_exchange *plain, *defaults;
    bool flag;

    start(&router);
    plain = declare(&router, "plain", "direct");
    defaults = qsi_router_find(&router, text(""));
    QS_CHECK(qsi_router_bind(&router, plain, &defaults->destination, text("k"), NO_ARGUMENTS, &flag,
                             NULL) == QS_ACCESS_REFUSED);
    QS_CHECK(qsi_router_bind(&router, defaults, &plain->destination, text("k"), NO_ARGUMENTS, &flag,
                             NULL) == QS_ACCESS_REFUSED);
    QS_CHECK(qsi_router_unbind(&router, plain, &defaults->destination, text("k"), NO_ARGUMENTS,
                               &flag, NULL) == QS_ACCESS_REFUSED);
    qsi_router_fini(&router);
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

static void test_deleting_drops_bindings_both_ways_and_sources_that_are_done(void)
{
    struct qsi_router router;
    struct qsi_exchange *first, *second, *third, *kept;
    char names[64] = "";

    QS_CHECK(qsi_router_init(&router, remember_name, names, NULL) == QS_OK);
    add_queue(&router, &queues[0], 0);
    first = declare_auto_delete(&router, "first");
    second = declare_auto_delete(&router, "second");
    third = declare(&router, "third", "fanout");
    kept = declare(&router, "kept", "direct");
    join(&router, first, second, "k");
    join(&router, second, third, "k");
    join(&router, third, kept, "k");
    join(&router, kept, third, "k");
    bind(&router, third, &queues[0], text("k"));
    QS_CHECK(router.bindings.count == 5);
    qsi_router_delete(&router, third);
    QS_CHECK(strcmp(names, "second first ") == 0);
    QS_CHECK(router.bindings.count == 0 && kept->binding_count == 0 && kept->is_plain);
    QS_CHECK(qsi_list_is_empty(&kept->destination.bindings));
    QS_CHECK(qsi_router_find(&router, text("first")) == NULL);
    CHECK_REACHED(kept, "k", "");
    /* Where it is the destination does not count, and it may have led to itself. */
    second = declare_auto_delete(&router, "second");
    join(&router, kept, second, "k");
    part(&router, kept, second, "k");
    QS_CHECK(qsi_router_find(&router, text("second")) == second);
    join(&router, second, second, "k");
    part(&router, second, second, "k");
    QS_CHECK(qsi_router_find(&router, text("second")) == NULL);
    qsi_router_fini(&router);
}

static void test_a_long_chain_of_auto_delete_exchanges_goes_at_once(void)
{
    struct qsi_exchange *last = NULL;
    struct qsi_router router;
    char name[16];

    start(&router);
    for (int i = 0; i < 50000; i++) {
        struct qsi_exchange *next;

        snprintf(name, sizeof name, "x%d", i);
        next = declare_auto_delete(&router, name);
        if (last != NULL) {
            join(&router, next, last, "k");
        }
        last = next;
    }
    bind(&router, qsi_router_find(&router, text("x0")), &queues[0], text("k"));
    CHECK_REACHED(last, "k", "0");
    unbind(&router, qsi_router_find(&router, text("x0")), &queues[0], text("k"));
    QS_CHECK(router.exchange_names.count == 6 && router.bindings.count == 0);
    qsi_router_fini(&router);
}

/* ---- against a search that looks at every binding ---- */

#define EXCHANGE_COUNT 6
#define EDGE_COUNT 40
#define KEY_COUNT 5
static const char *const graph_types[] = {"direct", "fanout", "topic", "headers"};
static const char *const graph_keys[KEY_COUNT] = {"a", "b", "a.b", "#", "*.b"};
static const char *const graph_headers[KEY_COUNT] = {"h=1", "h=2", "h", "x-match=any h=1", ""};

struct edge {
    bool there;
    int source, key, queue, exchange; /* queue or exchange: -1 */
};
struct graph {
    int type[EXCHANGE_COUNT];
    int alternate[EXCHANGE_COUNT]; /* -1: none */
    struct edge edges[EDGE_COUNT];
};

static bool topic_matches(int pattern, const char *key)
{
    switch (pattern) {
    case 3:
        return true;
    case 4:
        return strcmp(key, "a.b") == 0;
    default:
        return strcmp(graph_keys[pattern], key) == 0;
    }
}

/* header: 0 none, 1 or 2 the value of h. */
static bool edge_matches(const struct graph *graph, const struct edge *edge, const char *key,
                         int header)
{
    switch (graph->type[edge->source]) {
    case 0:
        return strcmp(graph_keys[edge->key], key) == 0;
    case 1:
        return true;
    case 2:
        return topic_matches(edge->key, key);
    default:
        return edge->key == 4 || (edge->key == 2 && header != 0) ||
               (edge->key != 2 && header == (edge->key == 1 ? 2 : 1));
    }
}

static void search(const struct graph *graph, int exchange, const char *key, int header,
                   bool *visited, bool *met)
{
    bool matched = false;

    if (visited[exchange]) {
        return;
    }
    visited[exchange] = true;
    for (int i = 0; i < EDGE_COUNT; i++) {
        const struct edge *edge = &graph->edges[i];

        if (!edge->there || edge->source != exchange || !edge_matches(graph, edge, key, header)) {
            continue;
        }
        matched = true;
        if (edge->queue >= 0) {
            met[edge->queue] = true;
        } else {
            search(graph, edge->exchange, key, header, visited, met);
        }
    }
    if (!matched && graph->alternate[exchange] >= 0) {
        search(graph, graph->alternate[exchange], key, header, visited, met);
    }
}

static struct qsi_exchange *exchange_at(struct qsi_router *router, int i)
{
    char name[] = {'x', (char)('0' + i), 0};

    return qsi_router_find(router, text(name));
}

static void declare_graph(struct qsi_router *router, struct graph *graph)
{
    for (int i = 0; i < EXCHANGE_COUNT; i++) {
        char name[] = {'x', (char)('0' + i), 0};
        char alternate[] = {'x', 0, 0};

        graph->type[i] = rand() % 4;
        graph->alternate[i] = rand() % 2 == 0 ? -1 : rand() % EXCHANGE_COUNT;
        alternate[1] = (char)('0' + graph->alternate[i]);
        if (graph->alternate[i] < 0) {
            declare(router, name, graph_types[graph->type[i]]);
        } else {
            declare_alternate(router, name, graph_types[graph->type[i]], alternate);
        }
    }
}

static void toggle(struct qsi_router *router, const struct graph *graph, struct edge *edge)
{
    struct qsi_exchange *source;
    struct qsi_destination *destination;
    struct table arguments;
    bool changed;

    if (!edge->there) {
        edge->source = rand() % EXCHANGE_COUNT;
        edge->key = rand() % KEY_COUNT;
        edge->queue = rand() % 2 == 0 ? rand() % 8 : -1;
        edge->exchange = rand() % EXCHANGE_COUNT;
    }
    source = exchange_at(router, edge->source);
    destination = edge->queue >= 0 ? &queues[edge->queue].destination
                                   : &exchange_at(router, edge->exchange)->destination;
    arguments = table_of(graph->type[edge->source] == 3 ? graph_headers[edge->key] : "");
    if (edge->there) {
        QS_CHECK(qsi_router_unbind(router, source, destination, text(graph_keys[edge->key]),
                                   slice_of(&arguments), &changed, NULL) == QS_OK &&
                 changed);
        edge->there = false;
    } else {
        QS_CHECK(qsi_router_bind(router, source, destination, text(graph_keys[edge->key]),
                                 slice_of(&arguments), &changed, NULL) == QS_OK);
        edge->there = changed; /* else another edge is the same */
    }
}

static void check_graph(struct qsi_router *router, const struct graph *graph)
{
    int exchange = rand() % EXCHANGE_COUNT, key = rand() % 3, header = rand() % 3;
    char headers[8] = "";
    struct table table;
    struct qsi_routing routing = {.key = text(graph_keys[key])};
    const struct qsi_route *route;
    bool visited[EXCHANGE_COUNT] = {false}, met[8] = {false};

    if (header != 0) {
        snprintf(headers, sizeof headers, "h=%d", header);
    }
    table = table_of(headers);
    routing.headers = slice_of(&table);
    search(graph, exchange, graph_keys[key], header, visited, met);
    QS_CHECK(qsi_exchange_lookup(router, exchange_at(router, exchange), &routing, &route, NULL) ==
             QS_OK);
    for (int q = 0; q < 8; q++) {
        QS_CHECK(leads_to(route, &queues[q]) == met[q]);
    }
    for (uint32_t i = 1; i < route->count; i++) {
        QS_CHECK(route->destinations[i - 1]->order < route->destinations[i]->order);
    }
}

static void test_random_graphs_agree_with_a_search(unsigned seed)
{
    printf("seed %u\n", seed);
    srand(seed);
    for (int round = 0; round < 60; round++) {
        struct qsi_router router;
        struct graph graph = {0};

        start(&router);
        declare_graph(&router, &graph);
        for (int step = 0; step < 500; step++) {
            if (rand() % 3 == 0) {
                toggle(&router, &graph, &graph.edges[rand() % EDGE_COUNT]);
            }
            check_graph(&router, &graph);
        }
        qsi_router_fini(&router);
    }
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

static void test_every_failed_allocation_leaves_a_working_router(void)
{
    qs_status status = QS_ENOMEM;

    for (uint64_t n = 1; status != QS_OK; n++) {
        struct failing failing = {.fail_at = n};
        struct qsi_router router;

        use_failing(&failing);
        status = qsi_router_init(&router, NULL, NULL, NULL);
        if (status == QS_OK) {
            status = run_sequence(&router);
            failing.fail_at = 0;
            QS_CHECK(
                lookup(&router, qsi_router_find(&router, text("amq.topic")), text("a"))->count <=
                2);
            qsi_router_fini(&router);
        }
        QS_CHECK(status == QS_OK || status == QS_ENOMEM);
        QS_CHECK(failing.alive == 0);
        qs_allocator_set(NULL);
    }
}

int main(int argc, char **argv)
{
    test_bindings_between_exchanges_carry_on_with_the_same_key();
    test_circles_end_and_each_queue_is_met_once();
    test_an_alternate_takes_what_no_binding_matches();
    test_an_alternate_of_a_destination_counts_and_the_default_exchange_is_none();
    test_alternate_exchange_is_checked_in_the_words_of_a_broker();
    test_several_keys_reach_what_any_of_them_does();
    test_headers_behind_an_exchange_are_looked_at_each_time();
    test_the_default_exchange_is_refused_at_either_end();
    test_deleting_drops_bindings_both_ways_and_sources_that_are_done();
    test_a_long_chain_of_auto_delete_exchanges_goes_at_once();
    test_random_graphs_agree_with_a_search(argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1);
    test_every_failed_allocation_leaves_a_working_router();
    return 0;
}
