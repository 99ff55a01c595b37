/* The headers type: what equals what, x-match, the bindings that a message meets.
 *
 * Method: tables of what a RabbitMQ 3.10 broker answered when asked the same; random patterns and
 * messages compared with a matcher that looks at every binding; every allocation failed in turn. */
#include "header_table.h"
#include "qs_test_sweep.h"

#define QUEUE_COUNT 12
#define ROUND_COUNT 20000

static bool bind_table(struct qsi_router *router, struct qsi_exchange *exchange,
                       struct queue *queue, const struct table *arguments)
{
    bool bound;

    QS_CHECK(qsi_router_bind(router, exchange, &queue->destination, text(""), slice_of(arguments),
                             &bound, NULL) == QS_OK);
    return bound;
}

static bool unbind_table(struct qsi_router *router, struct qsi_exchange *exchange,
                         struct queue *queue, const struct table *arguments)
{
    bool unbound;

    QS_CHECK(qsi_router_unbind(router, exchange, &queue->destination, text(""), slice_of(arguments),
                               QSI_AUTO_DELETE_GOES, &unbound, NULL) == QS_OK);
    return unbound;
}

static const struct qsi_route *
lookup_table(struct qsi_router *router, struct qsi_exchange *exchange, const struct table *headers)
{
    const struct qsi_routing routing = {.headers = slice_of(headers)};
    const struct qsi_route *route = NULL;

    QS_CHECK(qsi_exchange_lookup(router, exchange, &routing, &route, NULL) == QS_OK);
    QS_CHECK(route->by_headers);
    return route;
}

/* ---- equality ---- */

/* Values of one group equal each other and no others. */
static const struct {
    int group;
    char type;
    const char *bytes;
    size_t size;
} values[] = {
#define VALUE(group, type, bytes) {group, type, bytes, sizeof(bytes) - 1}
    VALUE(1, 't', "\1"),
    VALUE(1, 't', "\7"),
    VALUE(2, 't', "\0"),
    VALUE(3, 'b', "\1"),
    VALUE(3, 'B', "\1"),
    VALUE(3, 's', "\0\1"),
    VALUE(3, 'u', "\0\1"),
    VALUE(3, 'I', "\0\0\0\1"),
    VALUE(3, 'i', "\0\0\0\1"),
    VALUE(3, 'l', "\0\0\0\0\0\0\0\1"),
    VALUE(3, 'T', "\0\0\0\0\0\0\0\1"),
    VALUE(3, 'f', "\x3f\x80\0\0"),
    VALUE(3, 'd', "\x3f\xf0\0\0\0\0\0\0"),
    VALUE(4, 'D', "\0\0\0\0\1"),
    VALUE(5, 'D', "\1\0\0\0\x0a"),
    VALUE(6, 'S', "\0\0\0\0011"),
    VALUE(6, 'x', "\0\0\0\0011"),
    VALUE(7, 'b', "\xff"),
    VALUE(7, 'l', "\xff\xff\xff\xff\xff\xff\xff\xff"),
    VALUE(8, 'B', "\xff"),
    VALUE(8, 'l', "\0\0\0\0\0\0\0\xff"),
    VALUE(9, 'T', "\xff\xff\xff\xff\xff\xff\xff\xff"),
    VALUE(10, 'S', "\0\0\0\4true"),
    VALUE(11, 'S', "\0\0\0\0"),
    VALUE(11, 'x', "\0\0\0\0"),
    VALUE(12, 'A', "\0\0\0\0"),
    VALUE(12, 'F', "\0\0\0\0"),
    VALUE(13, 'A', "\0\0\0\5I\0\0\0\1"),
    VALUE(14, 'A', "\0\0\0\x09l\0\0\0\0\0\0\0\1"),
    VALUE(15, 'A',
          "\0\0\0\x09"
          "d\0\0\0\0\0\0\0\0"),
    VALUE(15, 'A',
          "\0\0\0\x09"
          "d\x80\0\0\0\0\0\0\0"),
    VALUE(16, 'A', "\0\0\0\6S\0\0\0\0011"),
    VALUE(17, 'A', "\0\0\0\6x\0\0\0\0011"),
    VALUE(18, 'F', "\0\0\0\x0a\1aI\0\0\0\1\1bV"),
    VALUE(19, 'F', "\0\0\0\x0a\1bV\1aI\0\0\0\1"),
    VALUE(20, 'd', "\0\0\0\0\0\0\0\0"),
    VALUE(20, 'd', "\x80\0\0\0\0\0\0\0"),
    VALUE(20, 'I', "\0\0\0\0"),
    VALUE(21, 'l', "\0\x20\0\0\0\0\0\1"),
    VALUE(22, 'l', "\0\x20\0\0\0\0\0\0"),
    VALUE(22, 'd', "\x43\x40\0\0\0\0\0\0"),
    VALUE(23, 'd', "\x3f\xb9\x99\x99\x99\x99\x99\x9a"),
    VALUE(24, 'f', "\x3d\xcc\xcc\xcd"),
    VALUE(24, 'd', "\x3f\xb9\x99\x99\xa0\0\0\0"),
    VALUE(25, 'l', "\x7f\xff\xff\xff\xff\xff\xff\xff"),
    VALUE(25, 'T', "\x7f\xff\xff\xff\xff\xff\xff\xff"),
    VALUE(26, 'T', "\x80\0\0\0\0\0\0\0"),
    VALUE(26, 'd', "\x43\xe0\0\0\0\0\0\0"),
    VALUE(27, 'd', "\x7f\xf0\0\0\0\0\0\0"),
    VALUE(28, 'l', "\x80\0\0\0\0\0\0\0"),
    VALUE(28, 'd', "\xc3\xe0\0\0\0\0\0\0"),
    VALUE(29, 'A', "\0\0\0\2t\1"),
    VALUE(29, 'A', "\0\0\0\2t\7"),
#undef VALUE
};
#define VALUE_COUNT (sizeof values / sizeof values[0])

static struct table value_table(size_t i)
{
    struct table table = {.used = 0};

    put_field(&table, "k", values[i].type, values[i].bytes, values[i].size);
    return table;
}

QS_TEST(test_values_equal_as_a_broker_compares_them)
{
    static struct queue queues[VALUE_COUNT];
    struct queue present;
    struct qsi_router router;
    struct qsi_exchange *exchange;
    struct table table = table_of("k");

    QS_CHECK(qsi_router_init(&router, NULL, NULL, NULL) == QS_OK);
    exchange = qsi_router_find(&router, text("amq.headers"));
    add_queue(&router, &present, 1000);
    bind_table(&router, exchange, &present, &table);
    QS_CHECK(lookup_table(&router, exchange, &table)->count == 1); /* void is there */
    for (size_t i = 0; i < VALUE_COUNT; i++) {
        add_queue(&router, &queues[i], (int)i);
        table = value_table(i);
        bind_table(&router, exchange, &queues[i], &table);
    }
    for (size_t i = 0; i < VALUE_COUNT; i++) {
        const struct qsi_route *route;

        table = value_table(i);
        route = lookup_table(&router, exchange, &table);
        QS_CHECK(leads_to(route, &present));
        for (size_t k = 0; k < VALUE_COUNT; k++) {
            if (leads_to(route, &queues[k]) != (values[i].group == values[k].group)) {
                fprintf(stderr, "values %zu and %zu\n", i, k);
                exit(1);
            }
        }
    }
    qsi_router_fini(&router);
}

QS_TEST(test_a_nan_equals_nothing_and_is_present)
{
    static const char nan_bytes[] = "\x7f\xf8\0\0\0\0\0\0";
    struct queue equal, present;
    struct qsi_router router;
    struct qsi_exchange *exchange;
    const struct qsi_route *route;
    struct table table = {.used = 0};
    struct table presence = table_of("k");

    QS_CHECK(qsi_router_init(&router, NULL, NULL, NULL) == QS_OK);
    exchange = qsi_router_find(&router, text("amq.match"));
    add_queue(&router, &equal, 0);
    add_queue(&router, &present, 1);
    put_field(&table, "k", 'd', nan_bytes, 8);
    bind_table(&router, exchange, &equal, &table);
    bind_table(&router, exchange, &present, &presence);
    route = lookup_table(&router, exchange, &table);
    QS_CHECK(route->count == 1 && leads_to(route, &present));
    qsi_router_fini(&router);
}

/* ---- x-match ---- */

QS_TEST(test_modes_match_as_a_broker_does)
{
    static const struct {
        const char *arguments, *headers;
        bool matches;
    } rows[] = {
        {"", "", true},
        {"", "a=b", true},
        {"x-match=any", "", false},
        {"x-match=any", "a=b", false},
        {"x-match=all", "a=b", true},
        {"x-match=all x-a=1", "", true},
        {"x-match=any x-a=1", "x-a=1", false},
        {"x-match=all-with-x x-a=1", "x-a=1", true},
        {"x-match=all-with-x x-a=1", "", false},
        {"x-match=any-with-x x-a=1", "x-a=1", true},
        {"x-match=any-with-x x-a=1", "x-a=2", false},
        {"x-match=any-with-x", "x-match=any-with-x", false},
        {"x-match=all-with-x", "", true},
        {"x-match=any-with-x", "", false},
        {"x-match=all x=1", "", false},
        {"x-match=all X-a=1", "", false},
        {"x-match=all a", "a=z", true},
        {"x-match=any a", "a=z", true},
        {"x-match=any a", "b=z", false},
        {"x-match=any a=1 b=2", "b=2", true},
        {"x-match=any a=1 b=2", "a=2 b=1", false},
        {"a=1 b=2", "b=2", false},
        {"a=1 b=2", "b=2 a=1", true},
        {"b=2 a=1", "a=1 b=2 c=3", true},
        {"a=1", "b=2 a=1", true},
        {"a", "a", true},
        {"a=q", "a", false},
        {"a=1 a=2", "a=1", false}, /* what comes twice is asked for twice */
        {"a=1 a=2", "a=1 a=2", true},
        {"a=1 a=2", "a=2 a=1", false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct table arguments = table_of(rows[i].arguments);
        struct table headers = table_of(rows[i].headers);
        struct qsi_router router;
        struct qsi_exchange *exchange;
        struct queue queue;

        QS_CHECK(qsi_router_init(&router, NULL, NULL, NULL) == QS_OK);
        add_queue(&router, &queue, 0);
        exchange = declare(&router, "h", "headers");
        QS_CHECK(bind_table(&router, exchange, &queue, &arguments));
        if ((lookup_table(&router, exchange, &headers)->count == 1) != rows[i].matches) {
            fprintf(stderr, "'%s' and '%s'\n", rows[i].arguments, rows[i].headers);
            exit(1);
        }
        QS_CHECK(unbind_table(&router, exchange, &queue, &arguments));
        QS_CHECK(lookup_table(&router, exchange, &headers)->count == 0);
        qsi_router_fini(&router);
    }
}

static void check_refusal(char type, const char *value, size_t bytes, const char *expected)
{
    struct table arguments = {.used = 0};
    struct qsi_router router;
    struct queue queue;
    qs_error error;
    bool bound;

    put_field(&arguments, "x-match", type, value, bytes);
    QS_CHECK(qsi_router_init(&router, NULL, NULL, NULL) == QS_OK);
    add_queue(&router, &queue, 0);
    QS_CHECK(qsi_router_bind(&router, qsi_router_find(&router, text("amq.match")),
                             &queue.destination, text(""), slice_of(&arguments), &bound,
                             &error) == QS_PRECONDITION_FAILED);
    if (strcmp(error.text, expected) != 0) {
        fprintf(stderr, "'%s', not '%s'\n", error.text, expected);
        exit(1);
    }
    QS_CHECK(qsi_router_bind(&router, qsi_router_find(&router, text("amq.direct")),
                             &queue.destination, text(""), slice_of(&arguments), &bound,
                             &error) == QS_OK); /* only a headers exchange asks */
    QS_CHECK(
        !unbind_table(&router, qsi_router_find(&router, text("amq.match")), &queue, &arguments));
    qsi_router_fini(&router);
}

QS_TEST(test_an_unknown_x_match_is_refused_in_the_words_of_a_broker)
{
#define REFUSED_VALUE "; expected all, any, all-with-x, or any-with-x"
    check_refusal('S', "\0\0\0\3foo", 7, "Invalid x-match field value <<\"foo\">>" REFUSED_VALUE);
    check_refusal('S', "\0\0\0\0", 4, "Invalid x-match field value <<>>" REFUSED_VALUE);
    check_refusal('S', "\0\0\0\3ALL", 7, "Invalid x-match field value <<\"ALL\">>" REFUSED_VALUE);
    check_refusal('I', "\0\0\0\5", 4,
                  "Invalid x-match field type signedint (value 5); expected longstr");
    check_refusal('l', "\xff\xff\xff\xff\xff\xff\xff\xfb", 8,
                  "Invalid x-match field type long (value -5); expected longstr");
    check_refusal('V', "", 0,
                  "Invalid x-match field type void (value undefined); expected longstr");
    check_refusal('t', "\1", 1, "Invalid x-match field type bool (value true); expected longstr");
    check_refusal('x', "\0\0\0\3all", 7,
                  "Invalid x-match field type binary (value <<\"all\">>); expected longstr");
    check_refusal('A', "\0\0\0\2t\1", 6,
                  "Invalid x-match field type array (value [...]); expected longstr");
}

/* ---- against a matcher that looks at every binding ---- */

#define NAME_COUNT 5
static const char *const names[NAME_COUNT] = {"a", "b", "c", "x-d", "x-e"};
static const char *const modes[] = {NULL, "all", "any", "all-with-x", "any-with-x"};

struct fields {
    int value[NAME_COUNT]; /* 0: not there; 1: void; 2..: text */
};
struct pattern {
    bool bound;
    int mode; /* in modes */
    struct fields fields;
};

static void random_fields(struct fields *fields)
{
    for (int i = 0; i < NAME_COUNT; i++) {
        fields->value[i] = rand() % 2 == 0 ? 0 : 1 + rand() % 4;
    }
}

/* In an order of its own. */
static struct table encode(const struct fields *fields, const char *mode)
{
    struct table table = {.used = 0};
    int first = rand() % NAME_COUNT;

    if (mode != NULL) {
        put_text(&table, "x-match", mode);
    }
    for (int n = 0; n < NAME_COUNT; n++) {
        int i = (first + n) % NAME_COUNT;
        char value[2] = {(char)('0' + fields->value[i]), 0};

        if (fields->value[i] == 1) {
            put_void(&table, names[i]);
        } else if (fields->value[i] > 1) {
            put_text(&table, names[i], value);
        }
    }
    return table;
}

static bool naive_match(const struct pattern *pattern, const struct fields *message)
{
    bool is_any = pattern->mode == 2 || pattern->mode == 4;
    bool has_x = pattern->mode >= 3;

    for (int i = 0; i < NAME_COUNT; i++) {
        int wanted = pattern->fields.value[i];
        bool agrees = wanted == 1 ? message->value[i] != 0 : wanted == message->value[i];

        if (wanted == 0 || (!has_x && names[i][0] == 'x')) {
            continue;
        }
        if (agrees == is_any) {
            return is_any;
        }
    }
    return !is_any;
}

QS_SEED_TEST(test_random_patterns_agree_with_a_naive_matcher)
{
    static struct queue queues[QUEUE_COUNT];
    struct pattern patterns[QUEUE_COUNT] = {{0}};
    struct table arguments[QUEUE_COUNT];
    struct qsi_router router;
    struct qsi_exchange *exchange;

    srand((unsigned)seed);
    QS_CHECK(qsi_router_init(&router, NULL, NULL, NULL) == QS_OK);
    exchange = declare(&router, "h", "headers");
    for (int q = 0; q < QUEUE_COUNT; q++) {
        add_queue(&router, &queues[q], q);
    }
    for (int round = 0; round < ROUND_COUNT; round++) {
        int q = rand() % QUEUE_COUNT;
        const struct qsi_route *route;
        struct fields message;
        struct table headers;

        if (rand() % 4 == 0 && patterns[q].bound) {
            QS_CHECK(unbind_table(&router, exchange, &queues[q], &arguments[q]));
            patterns[q].bound = false;
        } else if (rand() % 4 == 0 && !patterns[q].bound) {
            patterns[q].mode = rand() % 5;
            random_fields(&patterns[q].fields);
            arguments[q] = encode(&patterns[q].fields, modes[patterns[q].mode]);
            QS_CHECK(bind_table(&router, exchange, &queues[q], &arguments[q]));
            patterns[q].bound = true;
        }
        random_fields(&message);
        headers = encode(&message, NULL);
        route = lookup_table(&router, exchange, &headers);
        for (q = 0; q < QUEUE_COUNT; q++) {
            QS_CHECK(leads_to(route, &queues[q]) ==
                     (patterns[q].bound && naive_match(&patterns[q], &message)));
        }
    }
    qsi_router_fini(&router);
}

/* ---- failures ---- */

static qs_status run_sequence(struct qsi_router *router, struct queue *queues)
{
    static const char *const arguments[] = {"a=1 b=2 c", "x-match=any a=1 b=2 c", "c", ""};
    const struct qsi_exchange_options options = {.type = text("headers")};
    const struct qsi_route *route;
    struct qsi_routing routing;
    struct table table;
    bool flag;

    for (int i = 0; i < 4; i++) {
        snprintf(queues[i].name, sizeof queues[i].name, "q%d", i);
        queues[i].destination.name = text(queues[i].name);
        queues[i].destination.takes_none = false;
        QS_TRY(qsi_router_add_destination(router, &queues[i].destination, NULL));
    }
    QS_TRY(qsi_router_declare(router, text("h"), &options, &flag, NULL));
    for (int i = 0; i < 4; i++) {
        table = table_of(arguments[i]);
        put_field(&table, "list", 'A', "\0\0\0\2t\1", i == 3 ? 0 : 6);
        if (i == 3) {
            table.used = 0;
        }
        QS_TRY(qsi_router_bind(router, qsi_router_find(router, text("h")), &queues[i].destination,
                               text(""), slice_of(&table), &flag, NULL));
    }
    table = table_of("b=2 a=1 c=3");
    put_field(&table, "list", 'A', "\0\0\0\2t\1", 6);
    routing = (struct qsi_routing){.headers = slice_of(&table)};
    QS_TRY(qsi_router_lookup(router, text("h"), &routing, &route, NULL));
    QS_CHECK(route->count == 4);
    return QS_OK;
}

QS_TEST(test_every_failed_allocation_leaves_a_working_exchange)
{
    for (struct qs_test_sweep sweep = {.has_own_memory = true}; qs_test_sweep_on(&sweep);) {
        struct table headers = table_of("a=1");
        struct queue queues[4];
        struct qsi_router router;
        qs_status status;

        qs_test_sweep_allocations(&sweep);
        status = qsi_router_init(&router, NULL, NULL, NULL);
        if (status == QS_OK) {
            status = run_sequence(&router, queues);
            qs_test_sweep_rest(&sweep);
            if (qsi_router_find(&router, text("h")) != NULL) {
                QS_CHECK(
                    lookup_table(&router, qsi_router_find(&router, text("h")), &headers)->count <=
                    2);
            }
            qsi_router_fini(&router);
        }
        qs_test_sweep_rest(&sweep);
        QS_CHECK(status == (sweep.has_failed ? QS_ENOMEM : QS_OK));
    }
}
