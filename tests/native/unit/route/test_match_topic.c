/* Topic matching.
 *
 * Method: a table of patterns, keys and answers with the examples of RabbitMQ's documentation
 * and the corner cases of its word rules; then random topologies, bound and unbound, whose every
 * answer is compared with a matcher of ten lines. */
#include "route_fixture.h"

#define QUEUE_COUNT 40
#define ROUND_COUNT 60000

static const struct {
    const char *pattern;
    const char *key;
    bool matches;
} table[] = {
    /* The animals of the tutorial. */
    {"*.orange.*", "quick.orange.rabbit", true},
    {"*.*.rabbit", "quick.orange.rabbit", true},
    {"lazy.#", "quick.orange.rabbit", false},
    {"lazy.#", "lazy.orange.elephant", true},
    {"*.orange.*", "lazy.orange.elephant", true},
    {"*.*.rabbit", "lazy.orange.elephant", false},
    {"*.orange.*", "quick.orange.fox", true},
    {"lazy.#", "lazy.brown.fox", true},
    {"*.*.rabbit", "lazy.pink.rabbit", true},
    {"*.orange.*", "quick.brown.fox", false},
    {"*.*.rabbit", "quick.brown.fox", false},
    {"*.orange.*", "orange", false},
    {"*.orange.*", "quick.orange.new.rabbit", false},
    {"*.*.rabbit", "quick.orange.new.rabbit", false},
    {"lazy.#", "lazy.orange.new.rabbit", true},
    {"lazy.#", "lazy", true},
    {"lazy.#", "lazier.orange", false},
    /* Stars and hashes. */
    {"#", "", true},
    {"#", "a.b.c", true},
    {"#.#", "", true},
    {"#.#", "a", true},
    {"#.#.#", "a.b.c.d", true},
    {"*.#", "", false},
    {"*.#", "a", true},
    {"#.*", "", false},
    {"#.*", "a.b", true},
    {"#.*.#", "a", true},
    {"#.a.#", "a", true},
    {"#.a.#", "b.a.b", true},
    {"#.a.#", "b.b", false},
    {"#.a", "a.b", false},
    {"#.a", "a.b.a", true},
    {"a.#.b", "a.b", true},
    {"a.#.b", "a.x.y.b", true},
    {"a.#.b", "a.x.y", false},
    {"a.*.#", "a", false},
    {"a.*.#", "a.b.c.d", true},
    {"#.a.#.a.#", "a", false},
    {"#.a.#.a.#", "b.a.b.a", true},
    {"*", "a", true},
    {"*", "a.b", false},
    /* A key of no bytes has no words; otherwise words may be empty. */
    {"", "", true},
    {"", "a", false},
    {"*", "", false},
    {"a", "", false},
    {"*", ".", false},
    {"*.*", ".", true},
    {"a.*", "a.", true},
    {"a.#", "a.", true},
    {"a", "a.", false},
    {"a..b", "a..b", true},
    {"a.*.b", "a..b", true},
    {"a.#.b", "a..b", true},
    {"a.b", "a..b", false},
    {".", ".", true},
    {".a", ".a", true},
    {"*.a", ".a", true},
    /* Wildcards are whole words, and of patterns only. */
    {"a*", "a*", true},
    {"a*", "ab", false},
    {"**", "a", false},
    {"##", "a", false},
    {"a", "*", false},
    {"a", "#", false},
    {"a.b", "a.#", false},
    {"*", "*", true},
    {"*", "#", true},
    {"#", "#.#", true},
    {"a", "A", false},
};

QS_TEST(test_patterns_match_as_documented)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct qsi_router router;
        struct queue queue;
        struct qsi_exchange *exchange;
        bool matches;

        QS_CHECK(qsi_router_init(&router, NULL, NULL, NULL) == QS_OK);
        add_queue(&router, &queue, 0);
        exchange = declare(&router, "x", "topic");
        bind(&router, exchange, &queue, text(table[i].pattern));
        matches = lookup(&router, exchange, text(table[i].key))->count == 1;
        if (matches != table[i].matches) {
            fprintf(stderr, "'%s' against '%s'\n", table[i].pattern, table[i].key);
            exit(1);
        }
        unbind(&router, exchange, &queue, text(table[i].pattern));
        QS_CHECK(lookup(&router, exchange, text(table[i].key))->count == 0);
        qsi_router_fini(&router);
    }
}

QS_TEST(test_queue_bound_twice_to_matching_patterns_is_met_once)
{
    struct qsi_router router;
    struct queue queue;
    struct qsi_exchange *exchange;

    QS_CHECK(qsi_router_init(&router, NULL, NULL, NULL) == QS_OK);
    add_queue(&router, &queue, 0);
    exchange = declare(&router, "x", "topic");
    bind(&router, exchange, &queue, text("lazy.#"));
    bind(&router, exchange, &queue, text("*.*.rabbit"));
    bind(&router, exchange, &queue, text("#.#.#"));
    QS_CHECK(lookup(&router, exchange, text("lazy.pink.rabbit"))->count == 1);
    qsi_router_fini(&router);
}

/* Trying one way after the other would take some 10^15 steps here. */
QS_TEST(test_many_hashes_cost_no_more_than_nodes_times_words)
{
    struct qsi_router router;
    struct queue queue;
    struct qsi_exchange *exchange;
    char pattern[256] = "";
    char key[256] = "";

    for (int i = 0; i < 30; i++) {
        strcat(pattern, "#.a.");
        strcat(key, "a.a.a.a.");
    }
    strcat(pattern, "b");
    strcat(key, "c");
    QS_CHECK(qsi_router_init(&router, NULL, NULL, NULL) == QS_OK);
    add_queue(&router, &queue, 0);
    exchange = declare(&router, "x", "topic");
    bind(&router, exchange, &queue, text(pattern));
    QS_CHECK(lookup(&router, exchange, text(key))->count == 0);
    qsi_router_fini(&router);
}

/* ---- against a matcher that can be read at a glance ---- */

/* Words here are single characters, written without their dots; ',' is the empty word. */
static bool words_match(const char *pattern, const char *key)
{
    if (*pattern == 0) {
        return *key == 0;
    }
    if (*pattern == '#') {
        return words_match(pattern + 1, key) || (*key != 0 && words_match(pattern, key + 1));
    }
    return *key != 0 && (*pattern == '*' || *pattern == *key) && words_match(pattern + 1, key + 1);
}

/* One ',' alone would be a key of no bytes, which has no words. */
static void random_words(char *words, const char *alphabet)
{
    int count = rand() % 6;

    for (int i = 0; i < count; i++) {
        words[i] = alphabet[(size_t)rand() % strlen(alphabet)];
    }
    words[count] = 0;
    if (strcmp(words, ",") == 0) {
        words[0] = 'a';
    }
}

static void join(char *key, const char *words)
{
    size_t used = 0;

    for (size_t i = 0; words[i] != 0; i++) {
        if (i > 0) {
            key[used++] = '.';
        }
        if (words[i] != ',') {
            key[used++] = words[i];
        }
    }
    key[used] = 0;
}

static void check_against_model(struct qsi_router *router, struct qsi_exchange *exchange,
                                const struct queue *queues, char (*patterns)[8])
{
    const struct qsi_route *route;
    char words[8];
    char key[16];

    random_words(words, "aaabb,*#");
    join(key, words);
    route = lookup(router, exchange, text(key));
    for (int q = 0; q < QUEUE_COUNT; q++) {
        bool expected = patterns[q][0] != '-' && words_match(patterns[q], words);

        if (leads_to(route, &queues[q]) != expected) {
            fprintf(stderr, "pattern '%s', key '%s'\n", patterns[q], words);
            exit(1);
        }
    }
    for (uint32_t i = 1; i < route->count; i++) {
        QS_CHECK(route->destinations[i - 1]->order < route->destinations[i]->order);
    }
}

/* Each queue has one binding or none; "-" is none. */
QS_SEED_TEST(test_random_topologies_agree_with_a_recursive_matcher)
{
    static struct queue queues[QUEUE_COUNT];
    char patterns[QUEUE_COUNT][8];
    struct qsi_router router;
    struct qsi_exchange *exchange;
    char key[16];

    srand((unsigned)seed);
    QS_CHECK(qsi_router_init(&router, NULL, NULL, NULL) == QS_OK);
    exchange = declare(&router, "x", "topic");
    for (int q = 0; q < QUEUE_COUNT; q++) {
        add_queue(&router, &queues[q], q);
        strcpy(patterns[q], "-");
    }
    for (int round = 0; round < ROUND_COUNT; round++) {
        int q = rand() % QUEUE_COUNT;

        if (rand() % 8 == 0) {
            if (patterns[q][0] == '-') {
                random_words(patterns[q], "ab,**##");
                join(key, patterns[q]);
                QS_CHECK(bind(&router, exchange, &queues[q], text(key)));
            } else {
                join(key, patterns[q]);
                QS_CHECK(unbind(&router, exchange, &queues[q], text(key)));
                strcpy(patterns[q], "-");
            }
        }
        check_against_model(&router, exchange, queues, patterns);
    }
    qsi_router_fini(&router);
}
