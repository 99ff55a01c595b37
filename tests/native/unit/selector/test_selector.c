/* The grammar of selectors, their three values of truth, and what is said of what is none: tables
 * of conditions and what each comes to for one message. */
#include "qs_test_alloc.h"
#include "selector_fixture.h"

struct row {
    const char *selector;
    char truth;
};

static struct message message;

static void fill_message(void)
{
    static const uint8_t true_byte = 1, small = 200, float_bits[4] = {0x40, 0x20, 0, 0};
    static const uint8_t decimal[5] = {2, 0, 0, 0, 125}, empty[4] = {0, 0, 0, 0};
    static const uint8_t large[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    struct qsi_properties *properties = &message.properties;

    put_integer(&message, "one", 1);
    put_integer(&message, "seven", 7);
    put_double(&message, "half", 0.5);
    put_double(&message, "nan", 0.0 / 0.0);
    put_text_as(&message, "name", 'S', "Bj\xc3\xb6rn");
    put_text_as(&message, "side", 'S', "buy");
    put_text_as(&message, "rate", 'S', "10% off_");
    put_text_as(&message, "bytes", 'x', "buy");
    put_text_as(&message, "$_9", 'S', "it's");
    put_field(&message, "yes", 't', &true_byte, 1);
    put_field(&message, "small", 'B', &small, 1);
    put_field(&message, "float", 'f', float_bits, 4); /* 2.5 */
    put_field(&message, "decimal", 'D', decimal, 5);  /* 1.25 */
    put_field(&message, "unsigned", 'T', large, 8);
    put_field(&message, "void", 'V', "", 0);
    put_field(&message, "list", 'A', empty, 4);
    put_integer(&message, "least", INT64_MIN);
    put_integer(&message, "most", INT64_MAX);
    properties->delivery_mode = 2;
    properties->priority = 8;
    properties->timestamp = 1700000000;
    properties->present = qsi_property_flag(QSI_PROPERTY_DELIVERY_MODE) |
                          qsi_property_flag(QSI_PROPERTY_PRIORITY) |
                          qsi_property_flag(QSI_PROPERTY_TIMESTAMP);
    qsi_properties_set(properties, QSI_PROPERTY_TYPE, text("order"));
    qsi_properties_set(properties, QSI_PROPERTY_MESSAGE_ID, text("ID:1"));
    qsi_properties_set(properties, QSI_PROPERTY_EXPIRATION, text("60000"));
}

static void check_all(const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        check_truth(&message, rows[i].selector, rows[i].truth);
    }
}

#define CHECK_ALL(rows) check_all(rows, sizeof(rows) / sizeof(rows)[0])

QS_TEST(test_comparisons_of_numbers_ignore_their_types)
{
    static const struct row rows[] = {
        {"one = 1", 'T'},
        {"one = 1.0", 'T'},
        {"one <> 1", 'F'},
        {"one < 2", 'T'},
        {"one <= 1", 'T'},
        {"one > half", 'T'},
        {"one >= seven", 'F'},
        {"seven = 0x7 AND seven = 07 AND seven = 7L", 'T'},
        {"15 = 017 AND 31 = 0x1F AND 31=0X1f", 'T'},
        {"1.5E3 = 1500 AND 1e-1 = .1 AND 5. = 5", 'T'},
        {"small = 200 AND float = 2.5 AND decimal = 1.25", 'T'},
        {"unsigned > 9223372036854775807", 'T'},
        {"least = -9223372036854775808", 'T'},
        {"most = 9223372036854775807", 'T'},
        {"9007199254740993 = 9007199254740992.0", 'F'},
        {"9007199254740993 > 9007199254740992.0", 'T'},
        {"most < 9223372036854775808.0", 'T'},
        {"least = -9223372036854775808.0", 'T'},
        {"1e300 > most AND -1e300 < least", 'T'},
        {"1 < 1.5 AND -1 > -1.5 AND 1.5 > 1 AND -1.5 < -1", 'T'},
        {"nan = nan", '?'},
        {"nan IS NULL", 'F'},
    };

    CHECK_ALL(rows);
}

QS_TEST(test_arithmetic_binds_as_it_does_everywhere)
{
    static const struct row rows[] = {
        {"1 + 2 * 3 = 7", 'T'},
        {"(1 + 2) * 3 = 9", 'T'},
        {"10 - 3 - 2 = 5", 'T'},
        {"24 / 4 / 2 = 3", 'T'},
        {"-seven + 8 = 1", 'T'},
        {"- (seven) * 2 = -14", 'T'},
        {"2 * -3 = -6 AND +2 = 2 AND - -2 = 2", 'T'},
        {"7 / 2 = 3 AND -7 / 2 = -3", 'T'},
        {"7 / 2.0 = 3.5", 'T'},
        {"1 / 0 = 1", '?'},
        {"1 / 0.0 IS NULL", 'T'},
        {"most + 1 = 9223372036854775808.0", 'T'},
        {"most * 2 > most AND least - 1 < 0 AND -least > most AND least / -1 > most", 'T'},
        {"side + 1 = 1", '?'},
        {"missing * 0 = 0", '?'},
        {"-side IS NULL AND +side IS NULL", 'T'},
        {"1 < 2 = TRUE", 'T'}, /* an order binds more strongly than an equality */
        {"one + 1 BETWEEN 2 AND 1 + 1", 'T'},
    };

    CHECK_ALL(rows);
}

QS_TEST(test_logic_has_three_values)
{
    static const char *const terms[] = {"yes", "one = 2", "missing = 1"};
    static const char values[] = "TF?";
    static const char and_table[3][4] = {"TF?", "FFF", "?F?"};
    static const char or_table[3][4] = {"TTT", "TF?", "T??"};
    static const struct row rows[] = {
        {"NOT yes", 'F'},     {"NOT one = 2", 'T'},  {"NOT missing = 1", '?'},
        {"NOT missing", '?'}, {"side AND yes", '?'}, /* a text is no condition */
        {"side OR yes", 'T'},
    };
    char selector[80];

    for (int left = 0; left < 3; left++) {
        check_truth(&message, terms[left], values[left]);
        for (int right = 0; right < 3; right++) {
            snprintf(selector, sizeof selector, "%s AND %s", terms[left], terms[right]);
            check_truth(&message, selector, and_table[left][right]);
            snprintf(selector, sizeof selector, "%s OR %s", terms[left], terms[right]);
            check_truth(&message, selector, or_table[left][right]);
        }
    }
    CHECK_ALL(rows);
}

QS_TEST(test_not_binds_before_and_and_and_before_or)
{
    static const struct row rows[] = {
        {"TRUE OR TRUE AND FALSE", 'T'},
        {"(TRUE OR TRUE) AND FALSE", 'F'},
        {"FALSE AND FALSE OR TRUE", 'T'},
        {"NOT FALSE OR TRUE", 'T'},
        {"NOT (FALSE OR TRUE)", 'F'},
        {"NOT TRUE AND FALSE", 'F'},
        {"NOT (TRUE AND FALSE)", 'T'},
        {"NOT one = 2 AND NOT NOT yes", 'T'},
        {"not False Or tRUE aNd fALSE", 'T'},
        {"one BETWEEN 0 AND 2 AND yes", 'T'},
        {"FALSE OR FALSE OR FALSE OR TRUE", 'T'},
        {"TRUE AND TRUE AND TRUE AND FALSE", 'F'},
    };

    CHECK_ALL(rows);
}

QS_TEST(test_texts_and_truths_are_equal_or_not)
{
    static const struct row rows[] = {
        {"side = 'buy'", 'T'},  {"side <> 'sell'", 'T'},
        {"side = 'Buy'", 'F'},  {"$_9 = 'it''s'", 'T'},
        {"side = ''", 'F'},     {"yes = TRUE AND yes <> FALSE AND TRUE = yes", 'T'},
        {"yes = (1 = 1)", 'T'}, {"side = one", '?'},  /* unlike types */
        {"yes = one", '?'},     {"side < name", '?'}, /* texts have no order here */
        {"bytes = 'buy'", '?'}, {"bytes IS NOT NULL AND list IS NOT NULL", 'T'},
        {"list = list", '?'},   {"NOT side = one", '?'},
    };

    CHECK_ALL(rows);
}

QS_TEST(test_what_is_missing_is_null_and_unknown)
{
    static const struct row rows[] = {
        {"missing IS NULL", 'T'},       {"missing IS NOT NULL", 'F'},
        {"void IS NULL", 'T'},          {"side IS NULL", 'F'},
        {"side IS NOT NULL", 'T'},      {"Side IS NULL", 'T'},
        {"missing = missing", '?'},     {"missing <> 1", '?'},
        {"missing LIKE '%'", '?'},      {"missing IN ('a')", '?'},
        {"missing NOT IN ('a')", '?'},  {"missing BETWEEN 1 AND 2", '?'},
        {"one + missing IS NULL", 'T'}, {"(missing = 1) IS NULL", 'T'},
    };

    CHECK_ALL(rows);
}

QS_TEST(test_between_and_in)
{
    static const struct row rows[] = {
        {"seven BETWEEN 7 AND 7", 'T'},
        {"seven BETWEEN 8 AND 9", 'F'},
        {"seven NOT BETWEEN 8 AND 9", 'T'},
        {"seven BETWEEN 9 AND 5", 'F'},
        {"seven BETWEEN 8 AND missing", 'F'}, /* false whatever is missing */
        {"seven BETWEEN 1 AND missing", '?'},
        {"side BETWEEN 1 AND 2", '?'},
        {"side IN ('sell', 'buy')", 'T'},
        {"side IN ('sell')", 'F'},
        {"side NOT IN ('sell')", 'T'},
        {"one IN ('1')", '?'},
        {"'a' IN ('a')", 'T'},
    };

    CHECK_ALL(rows);
}

QS_TEST(test_patterns)
{
    static const struct row rows[] = {
        {"side LIKE 'buy'", 'T'},
        {"side LIKE 'b%'", 'T'},
        {"side LIKE '%'", 'T'},
        {"side LIKE '%%y'", 'T'},
        {"side LIKE '_u_'", 'T'},
        {"side LIKE '__'", 'F'},
        {"side LIKE '____'", 'F'},
        {"side LIKE ''", 'F'},
        {"'' LIKE ''", 'T'},
        {"'' LIKE '%'", 'T'},
        {"side LIKE 'BUY'", 'F'},
        {"side NOT LIKE 's%'", 'T'},
        {"name LIKE 'Bj_rn'", 'T'}, /* one character of two bytes */
        {"name LIKE 'Bj__rn'", 'F'},
        {"name LIKE '%\xc3\xb6%'", 'T'},
        {"rate LIKE '10\\% %' ESCAPE '\\'", 'T'},
        {"rate LIKE '10|% off|_' ESCAPE '|'", 'T'},
        {"rate LIKE '10_ off_'", 'T'},
        {"rate LIKE '10|_ off_' ESCAPE '|'", 'F'},
        {"rate LIKE '10\xc3\xb6% %' ESCAPE '\xc3\xb6'", 'T'},
        {"'a''b' LIKE 'a''''b' ESCAPE ''''", 'T'},
        {"'abcabd' LIKE '%abd'", 'T'},
        {"'aaab' LIKE '%aab' AND 'mississippi' LIKE '%iss%ip%i'", 'T'},
        {"'mississippi' LIKE '%iss%ipx%'", 'F'},
        {"one LIKE '1'", '?'},
    };

    CHECK_ALL(rows);
}

QS_TEST(test_properties_have_names_of_their_own)
{
    static const struct row rows[] = {
        {"JMSPriority = 8 AND JMSDeliveryMode = 'PERSISTENT'", 'T'},
        {"JMSType = 'order' AND JMSMessageID LIKE 'ID:%'", 'T'},
        {"JMSCorrelationID IS NULL", 'T'},
        {"JMSTimestamp = 1700000000000", 'T'},
        {"JMSExpiration = 1700000060000", 'T'},
        {"JMSpriority IS NULL", 'T'},
    };
    static const struct message none;
    static struct message named = {.used = 0};

    CHECK_ALL(rows);
    check_truth(&none, "JMSPriority = 0", '?');
    check_truth(&none, "JMSDeliveryMode = 'NON_PERSISTENT'", 'T');
    check_truth(&none, "JMSExpiration IS NULL AND JMSTimestamp IS NULL", 'T');
    named.properties = message.properties;
    put_integer(&named, "JMSPriority", 3);
    check_truth(&named, "JMSPriority = 3", 'T');
    named.properties.timestamp = UINT64_MAX;
    check_truth(&named, "JMSTimestamp > 9223372036854775807", 'T');
    named.properties.present &= (uint16_t)~qsi_property_flag(QSI_PROPERTY_TIMESTAMP);
    check_truth(&named, "JMSExpiration IS NULL", 'T');
}

QS_TEST(test_the_properties_that_are_read_are_known)
{
    static const struct {
        const char *selector;
        uint16_t properties;
    } rows[] = {
        {"side = 'buy'", 0},
        {"JMSPriority > 3", 1u << (15 - QSI_PROPERTY_PRIORITY)},
        {"JMSType = 'a' OR JMSExpiration > 0", 1u << (15 - QSI_PROPERTY_TYPE) |
                                                   1u << (15 - QSI_PROPERTY_EXPIRATION) |
                                                   1u << (15 - QSI_PROPERTY_TIMESTAMP)},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct qsi_selector *selector = compile(rows[i].selector);
        QS_CHECK(qsi_selector_properties(selector) == rows[i].properties);
        qsi_selector_destroy(selector);
    }
}

QS_TEST(test_comments_and_white_space_part_words)
{
    static const struct row rows[] = {
        {"\t one\r\n=\f1 ", 'T'},
        {"one/* 'of' -- them */=/**/1", 'T'},
        {"one -- the first\n = 1", 'T'},
        {"one = 1 -- the end", 'T'},
        {"one = 1 --", 'T'},
        {"'--' = '--' AND '/*' = '/*'", 'T'},
        {"3--2\n-1=2", 'T'},
    };

    CHECK_ALL(rows);
}

QS_TEST(test_errors_name_the_character_and_what_was_expected)
{
    static const struct {
        const char *selector, *error;
    } rows[] = {
        {"", "1: expected a name or a value, found the end"},
        {"  -- nothing", "13: expected a name or a value, found the end"},
        {"a = 1 AND", "10: expected a name or a value after AND, found the end"},
        {"side = 'b' AND AND", "16: expected a name or a value after AND, found AND"},
        {"a = 1 b", "7: expected an operator or the end after 1, found b"},
        {"(a = 1", "7: expected an operator or ) after 1, found the end"},
        {"a = 1)", "6: expected an operator or the end after 1, found )"},
        {"a = 'x", "5: a text without a ' at its end"},
        {"a = /* x", "5: a comment without */ at its end"},
        {"a ! b", "3: ! has no meaning here"},
        {"a == 1", "4: expected a name or a value after =, found ="},
        {"\xc3\xb6 = 1", "1: \xc3\xb6 has no meaning here"},
        {"'\xc3\xb6\xc3\xb6' = # 1", "8: # has no meaning here"},
        {"a = 12x", "7: x does not belong to a number"},
        {"a = 09", "6: 9 does not belong to a number"},
        {"a = 0x", "7: expected a digit after 0x"},
        {"a = 0xg", "7: g does not belong to a number"},
        {"a = 1.5f", "8: f does not belong to a number"},
        {"a = 9223372036854775808", "5: a number of more than 64 bits"},
        {"a = 99999999999999999999", "5: a number of more than 64 bits"},
        {"a = -9223372036854775809", "6: a number of more than 64 bits"},
        {"a = 1e999", "5: a number that is too large"},
        {"a LIKE b", "8: expected a 'pattern' after LIKE, found b"},
        {"a LIKE 'x' ESCAPE", "18: expected an 'escape character' after ESCAPE, found the end"},
        {"a LIKE 'x' ESCAPE 'ab'", "19: ESCAPE takes one character"},
        {"a LIKE 'x' ESCAPE ''", "19: ESCAPE takes one character"},
        {"a LIKE 'x!' ESCAPE '!'", "8: the pattern ends with its escape character"},
        {"a IN (1)", "7: expected a 'text' after (, found 1"},
        {"a IN ()", "7: expected a 'text' after (, found )"},
        {"a IN ('x'", "10: expected , or ) after 'x', found the end"},
        {"a IN 'x'", "6: expected ( after IN, found 'x'"},
        {"a NOT 1", "7: expected LIKE, BETWEEN or IN after NOT, found 1"},
        {"a IS 1", "6: expected NULL or NOT NULL after IS, found 1"},
        {"a IS NOT 1", "10: expected NULL after NOT, found 1"},
        {"a BETWEEN 1", "12: expected AND after 1, found the end"},
        {"a = NOT b", "5: expected a value after =, found NOT"},
        {"a = NULL", "5: expected a name or a value after =, found NULL"},
        {"1 AND a", "1: AND takes a condition, and this is a number"},
        {"a OR 'x'", "6: OR takes a condition, and this is a text"},
        {"NOT 'x'", "5: NOT takes a condition, and this is a text"},
        {"a + 'x' = 1", "5: + takes a number, and this is a text"},
        {"a < 'x'", "5: < takes a number, and this is a text"},
        {"(a = 1) < 2", "1: < takes a number, and this is a condition"},
        {"- TRUE = 1", "3: - takes a number, and this is a condition"},
        {"1 LIKE 'x'", "1: LIKE takes a text, and this is a number"},
        {"'a' BETWEEN 1 AND 2", "1: BETWEEN takes a number, and this is a text"},
        {"1 = 'a'", "5: a number is compared with a text"},
        {"'a' <> TRUE", "8: a text is compared with a condition"},
        {"1 + 1", "1: a selector takes a condition, and this is a number"},
        {"XPATH '//a'", "1: XPATH is not supported: bodies are not looked at"},
        {"a = 1 AND xquery 'a'", "11: xquery is not supported: bodies are not looked at"},
        {"a = 'an unusually long text, which is not shown to its end' 1",
         "61: expected an operator or the end after 'an unusually long text, which is not sh, "
         "found 1"},
    };
    char expected[300];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct qsi_selector *selector = NULL;
        qs_error error = {0};
        snprintf(expected, sizeof expected, "selector: at character %s", rows[i].error);
        QS_CHECK(qsi_selector_compile(text(rows[i].selector), &selector, &error) ==
                 QS_PRECONDITION_FAILED);
        if (strcmp(error.text, expected) != 0) {
            fprintf(stderr, "%s\n  got      %s\n  expected %s\n", rows[i].selector, error.text,
                    expected);
            exit(1);
        }
    }
}

static qs_status compile_bytes(const void *data, size_t bytes)
{
    struct qsi_selector *selector = NULL;
    qs_status status = qsi_selector_compile(qsi_slice_make(data, (uint32_t)bytes), &selector, NULL);

    qsi_selector_destroy(selector);
    return status;
}

/* "((...a=1...))", "a+(a+(...", "NOT NOT ... a", "a=1 AND a=1 ..." and so on. */
static qs_status compile_nested(unsigned depth, const char *before, const char *inner,
                                const char *after)
{
    static char selector[QSI_SELECTOR_BYTES_MAX];
    size_t used = 0;

    for (unsigned i = 0; i < depth; i++) {
        used += (size_t)snprintf(selector + used, sizeof selector - used, "%s", before);
    }
    used += (size_t)snprintf(selector + used, sizeof selector - used, "%s", inner);
    for (unsigned i = 0; i < depth; i++) {
        used += (size_t)snprintf(selector + used, sizeof selector - used, "%s", after);
    }
    QS_CHECK(used < sizeof selector);
    return compile_bytes(selector, used);
}

QS_TEST(test_depth_and_size_have_limits_and_length_alone_costs_no_depth)
{
    static char longest[QSI_SELECTOR_BYTES_MAX + 1];

    QS_CHECK(compile_nested(99, "(", "a = 1", ")") == QS_PRECONDITION_FAILED); /* = is one more */
    QS_CHECK(compile_nested(98, "(", "a = 1", ")") == QS_OK);
    QS_CHECK(compile_nested(99, "NOT ", "a", "") == QS_OK);
    QS_CHECK(compile_nested(100, "NOT ", "a", "") == QS_PRECONDITION_FAILED);
    QS_CHECK(compile_nested(49, "a=(a BETWEEN a AND ", "a", ")") == QS_OK);
    QS_CHECK(compile_nested(1000, "a = 1 AND ", "a", "") == QS_OK);
    QS_CHECK(compile_nested(1000, "", "1 = a", " + 1") == QS_OK);
    memset(longest, ' ', sizeof longest);
    memcpy(longest, "a", 1);
    QS_CHECK(compile_bytes(longest, QSI_SELECTOR_BYTES_MAX) == QS_OK);
    QS_CHECK(compile_bytes(longest, QSI_SELECTOR_BYTES_MAX + 1) == QS_PRECONDITION_FAILED);
    QS_CHECK(compile_bytes("a\0", 2) == QS_PRECONDITION_FAILED);
    QS_CHECK(compile_bytes("'\xc3'", 3) == QS_PRECONDITION_FAILED);
    QS_CHECK(compile_bytes("'\xed\xa0\x80'", 5) == QS_PRECONDITION_FAILED);
    memset(longest, 'a', 300);
    QS_CHECK(compile_bytes(longest, 256) == QS_PRECONDITION_FAILED);
    QS_CHECK(compile_bytes(longest, 255) == QS_OK);
}

/* ---- memory ---- */

QS_TEST(test_compiling_survives_failed_allocations_and_evaluating_makes_none)
{
    static const char selector[] = "a = 'x' AND b LIKE '%y' OR c IN ('1', '2') AND d > 1.5";
    struct qs_test_alloc failing;
    struct qsi_selector *compiled = NULL;
    qs_status status = QS_ENOMEM;

    qs_test_alloc_install(&failing);
    for (failing.fail_at = 1; status == QS_ENOMEM; failing.fail_at++) {
        failing.calls = 0;
        status = qsi_selector_compile(text(selector), &compiled, NULL);
        QS_CHECK(status == QS_OK || failing.alive == 0);
    }
    QS_CHECK(status == QS_OK && failing.fail_at > 3);
    failing.calls = 0;
    failing.fail_at = 1;
    QS_CHECK(qsi_selector_evaluate(compiled, &(struct qsi_selector_subject){{0}, NULL}) ==
             QSI_TRUTH_UNKNOWN);
    QS_CHECK(failing.calls == 0);
    qsi_selector_destroy(compiled);
    qs_test_alloc_end(&failing);
}

int main(void)
{
    fill_message();
    qs_test_run_all();
    return 0;
}
