/* Routes through several exchanges, in graphs made up by chance: they agree with a search that
 * looks at every binding.  The seed is printed and is the first argument. */
#include "walk_fixture.h"

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
                                   slice_of(&arguments), QSI_AUTO_DELETE_GOES, &changed,
                                   NULL) == QS_OK &&
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

QS_SEED_TEST(test_random_graphs_agree_with_a_search)
{
    srand((unsigned)seed);
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
            qsi_router_check(&router);
        }
        qsi_router_fini(&router);
    }
}
