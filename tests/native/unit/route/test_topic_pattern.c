/* Single topic patterns: they match what a topic exchange with that binding does. */
#include "route_fixture.h"
#include "topic_pattern.h"

static bool exchange_matches(const char *pattern, const char *key)
{
    struct qsi_router router;
    struct qsi_exchange *exchange;
    static struct queue queue;
    bool matches;

    QS_CHECK(qsi_router_init(&router, NULL, NULL, NULL) == QS_OK);
    add_queue(&router, &queue, 0);
    exchange = declare(&router, "topic", "topic");
    bind(&router, exchange, &queue, text(pattern));
    matches = lookup(&router, exchange, text(key))->count == 1;
    qsi_router_fini(&router);
    return matches;
}

static void check(const char *pattern, const char *key)
{
    bool expected = exchange_matches(pattern, key);

    if (qsi_topic_pattern_matches(text(pattern), text(key)) != expected) {
        fprintf(stderr, "'%s' '%s': the exchange says %d\n", pattern, key, expected);
        exit(1);
    }
}

QS_TEST(test_patterns_match_as_bindings_do)
{
    static const char *const patterns[] = {"",      "#",     "*",    "a",   "a.b",   "a.*",
                                           "*.b",   "a.#",   "#.b",  "#.#", "a.#.b", "#.a.#",
                                           "*.#",   "#.*",   "a..b", ".",   "*.*",   "a.*.#.b",
                                           "#.a.*", "a.#.*", "eu.#", "a.",  ".a",    "#.a.#.b.#"};
    static const char *const keys[] = {
        "",     "a",       "b",  "a.b",       "a.c.b",   "a.b.b",   "b.a",     "a.a",
        "a..b", ".",       "..", "x.a.y.b.z", "eu.x",    "eu",      "eu.x.y",  "a.",
        ".a",   "a.a.a.b", "ab", "b.b.b",     "a.b.a.b", "x.a.b.y", "a.b.c.d", "c"};

    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
            check(patterns[i], keys[k]);
        }
    }
}

static void random_text(unsigned *seed, const char *letters, char *out)
{
    int length = rand_r(seed) % 10;

    for (int i = 0; i < length; i++) {
        out[i] = letters[(size_t)rand_r(seed) % strlen(letters)];
    }
    out[length] = 0;
}

QS_TEST(test_random_patterns_match_as_bindings_do)
{
    unsigned seed = 1;
    char pattern[16], key[16];

    for (int i = 0; i < 20000; i++) {
        random_text(&seed, "ab..*#", pattern);
        random_text(&seed, "ab..", key);
        check(pattern, key);
    }
}
