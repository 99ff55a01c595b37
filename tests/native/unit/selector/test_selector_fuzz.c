/* Selectors put together from words, and mutated: each is refused with the place, or evaluated to
 * one of three values, the same each time, and with NOT in front to the opposite.  Field tables are
 * mutated too.  Meant for the address sanitizer, which also sees what is read behind a text.
 *
 * Arguments: seed, rounds. */
#include "selector_fixture.h"

static uint64_t state;

static uint32_t random_below(uint32_t bound)
{
    uint64_t mixed;

    state += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (state ^ (state >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((mixed ^ (mixed >> 31)) % bound);
}

static const char *const words[] = {
    "AND",
    "OR",
    "NOT",
    "IS",
    "NULL",
    "LIKE",
    "ESCAPE",
    "IN",
    "BETWEEN",
    "TRUE",
    "FALSE",
    "a",
    "b",
    "c",
    "d",
    "e",
    "'x'",
    "'%x_'",
    "'!'",
    "''",
    "1",
    "0x1f",
    "017",
    "1.5E3",
    "2L",
    "(",
    ")",
    ",",
    "=",
    "<>",
    "<",
    "<=",
    ">",
    ">=",
    "+",
    "-",
    "*",
    "/",
    "--",
    "/*",
    "*/",
    "\n",
    "'",
    "JMSType",
    "$_",
    ".5",
    "1e",
    "0x",
    "XPATH",
    "\xc3\xb6",
    "a=1",
    "b='x'",
    "c LIKE '%'",
    "d IS NULL",
    "e IN ('x','y')",
    "a BETWEEN 1 AND 2",
    "9223372036854775808",
    "JMSPriority",
    "JMSExpiration",
    "(a=1 OR b='x')",
    "NOT (d = TRUE)",
};

/* A copy that ends where its bytes end. */
static uint8_t *make_text(uint32_t *bytes_out)
{
    static char text[4096];
    uint32_t used = 0, count = 1 + random_below(24);
    uint8_t *copy;

    for (uint32_t i = 0; i < count; i++) {
        used += (uint32_t)snprintf(text + used, sizeof text - used, "%s%s",
                                   words[random_below(sizeof words / sizeof words[0])],
                                   random_below(8) != 0 ? " " : "");
    }
    for (uint32_t i = random_below(3); i > 0 && random_below(2) != 0; i--) {
        text[random_below(used)] = (char)random_below(256);
    }
    used -= random_below(4) == 0 ? random_below(used) : 0;
    copy = malloc(used > 0 ? used : 1);
    QS_CHECK(copy != NULL);
    memcpy(copy, text, used);
    *bytes_out = used;
    return copy;
}

/* A table of all kinds of values, some of its bytes changed. */
static uint8_t *make_table(uint32_t *bytes_out)
{
    struct message message = {.used = 0};
    uint8_t *copy;

    put_integer(&message, "a", (int64_t)random_below(4));
    put_text_as(&message, "b", 'S', random_below(2) != 0 ? "x" : "xxxy");
    put_text_as(&message, "c", random_below(2) != 0 ? 'S' : 'x', "\xff\xfe\xc3");
    put_field(&message, "d", 't', "\1", 1);
    put_double(&message, "e", (double)random_below(100) / 10);
    for (uint32_t i = random_below(4); i > 0; i--) {
        message.bytes[random_below(message.used)] = (uint8_t)random_below(256);
    }
    message.used -= random_below(3) == 0 ? random_below(message.used) : 0;
    copy = malloc(message.used > 0 ? message.used : 1);
    QS_CHECK(copy != NULL);
    memcpy(copy, message.bytes, message.used);
    *bytes_out = message.used;
    return copy;
}

static void check_negation(struct qsi_slice selector, const struct qsi_selector_subject *subject,
                           enum qsi_truth truth)
{
    char negated[4200];
    struct qsi_selector *compiled = NULL;
    enum qsi_truth opposite = truth == QSI_TRUTH_UNKNOWN ? truth
                              : truth == QSI_TRUTH_TRUE  ? QSI_TRUTH_FALSE
                                                         : QSI_TRUTH_TRUE;
    int bytes = snprintf(negated, sizeof negated, "NOT (%.*s\n)", (int)selector.bytes,
                         (const char *)selector.data);
    qs_status status =
        qsi_selector_compile(qsi_slice_make(negated, (uint32_t)bytes), &compiled, QS_ERROR);

    QS_CHECK(status == QS_OK); /* depths are far from their limit */
    QS_CHECK(qsi_selector_evaluate(compiled, subject) == opposite);
    qsi_selector_destroy(compiled);
}

/* Returns whether the text was a selector. */
static bool run_round(void)
{
    uint32_t text_bytes, table_bytes;
    QS_TEST_FREED uint8_t *text_copy = make_text(&text_bytes), *table = make_table(&table_bytes);
    struct qsi_slice selector = qsi_slice_make(text_copy, text_bytes);
    const struct qsi_selector_subject subject = {qsi_slice_make(table, table_bytes), NULL};
    struct qsi_selector *compiled = NULL;
    qs_error error = {0};
    qs_status status = qsi_selector_compile(selector, &compiled, &error);

    QS_CHECK(status == QS_OK || status == QS_PRECONDITION_FAILED);
    if (status == QS_OK) {
        enum qsi_truth truth = qsi_selector_evaluate(compiled, &subject);
        QS_CHECK(qsi_selector_evaluate(compiled, &subject) == truth);
        check_negation(selector, &subject, truth);
    } else {
        QS_CHECK(strncmp(error.text, "selector: at character ", 23) == 0);
    }
    qsi_selector_destroy(compiled);
    return status == QS_OK;
}

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);
    uint64_t rounds = argc > 2 ? strtoull(argv[2], NULL, 0) : 200000, accepted = 0;

    for (uint64_t i = 0; i < rounds; i++) {
        state = seed + i; /* round n of seed s is round 0 of seed s + n */
        accepted += run_round() ? 1 : 0;
    }
    QS_CHECK(accepted > rounds / 200); /* enough of them are evaluated */
    return 0;
}
