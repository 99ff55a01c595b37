/* Values of selectors: calculation, comparison, patterns. */
#include "check.h"
#include "selector_program.h"

static struct qsi_selector_value unknown(void)
{
    return (struct qsi_selector_value){.kind = QSI_VALUE_UNKNOWN};
}

static bool is_number(const struct qsi_selector_value *value)
{
    return value->kind == QSI_VALUE_INTEGER || value->kind == QSI_VALUE_REAL;
}

static double real_of(const struct qsi_selector_value *value)
{
    QS_DCHECK(is_number(value));
    return value->kind == QSI_VALUE_REAL ? value->as.real : (double)value->as.integer;
}

static struct qsi_selector_value integer_value(int64_t integer)
{
    return (struct qsi_selector_value){.kind = QSI_VALUE_INTEGER, .as.integer = integer};
}

static struct qsi_selector_value real_value(double real)
{
    if (real != real) { /* a NaN */
        return unknown();
    }
    return (struct qsi_selector_value){.kind = QSI_VALUE_REAL, .as.real = real};
}

/* ---- calculating ---- */

struct qsi_selector_value qsi_selector_negate(const struct qsi_selector_value *value)
{
    if (!is_number(value)) {
        return unknown();
    }
    if (value->kind == QSI_VALUE_INTEGER && value->as.integer != INT64_MIN) {
        return integer_value(-value->as.integer);
    }
    return real_value(-real_of(value));
}

/* False: the result exceeds 64 bits. */
static bool calculate_integers(enum qsi_selector_operation operation, int64_t left, int64_t right,
                               int64_t *result_out)
{
    switch (operation) {
    case QSI_DO_ADD:
        return !__builtin_add_overflow(left, right, result_out);
    case QSI_DO_SUBTRACT:
        return !__builtin_sub_overflow(left, right, result_out);
    case QSI_DO_MULTIPLY:
        return !__builtin_mul_overflow(left, right, result_out);
    default:
        QS_ASSERT(operation == QSI_DO_DIVIDE && right != 0);
        if (left == INT64_MIN && right == -1) {
            return false;
        }
        *result_out = left / right;
        return true;
    }
}

static double calculate_reals(enum qsi_selector_operation operation, double left, double right)
{
    switch (operation) {
    case QSI_DO_ADD:
        return left + right;
    case QSI_DO_SUBTRACT:
        return left - right;
    case QSI_DO_MULTIPLY:
        return left * right;
    default:
        QS_ASSERT(operation == QSI_DO_DIVIDE);
        return left / right;
    }
}

struct qsi_selector_value qsi_selector_calculate(enum qsi_selector_operation operation,
                                                 const struct qsi_selector_value *left,
                                                 const struct qsi_selector_value *right)
{
    int64_t result;

    if (!is_number(left) || !is_number(right) ||
        (operation == QSI_DO_DIVIDE && real_of(right) == 0)) {
        return unknown();
    }
    if (left->kind == QSI_VALUE_INTEGER && right->kind == QSI_VALUE_INTEGER &&
        calculate_integers(operation, left->as.integer, right->as.integer, &result)) {
        return integer_value(result);
    }
    return real_value(calculate_reals(operation, real_of(left), real_of(right)));
}

/* ---- comparing ---- */

/* Compares exactly: a double cannot represent all integers of 64 bits. */
static int compare_mixed(int64_t integer, double real)
{
    int64_t whole;

    QS_DCHECK(real == real);
    if (real >= 9223372036854775808.0) {
        return -1;
    }
    if (real < -9223372036854775808.0) {
        return 1;
    }
    whole = (int64_t)real;
    if (integer != whole) {
        return integer < whole ? -1 : 1;
    }
    return ((double)whole > real) - ((double)whole < real);
}

static int compare_numbers(const struct qsi_selector_value *left,
                           const struct qsi_selector_value *right)
{
    if (left->kind == QSI_VALUE_INTEGER && right->kind == QSI_VALUE_INTEGER) {
        return (left->as.integer > right->as.integer) - (left->as.integer < right->as.integer);
    }
    if (left->kind == QSI_VALUE_INTEGER) {
        return compare_mixed(left->as.integer, right->as.real);
    }
    if (right->kind == QSI_VALUE_INTEGER) {
        return -compare_mixed(right->as.integer, left->as.real);
    }
    return (left->as.real > right->as.real) - (left->as.real < right->as.real);
}

static enum qsi_truth truth_of(bool is_true)
{
    return is_true ? QSI_TRUTH_TRUE : QSI_TRUTH_FALSE;
}

static enum qsi_truth holds(enum qsi_selector_operation operation, int order)
{
    switch (operation) {
    case QSI_DO_EQUAL:
        return truth_of(order == 0);
    case QSI_DO_NOT_EQUAL:
        return truth_of(order != 0);
    case QSI_DO_LESS:
        return truth_of(order < 0);
    case QSI_DO_LESS_OR_EQUAL:
        return truth_of(order <= 0);
    case QSI_DO_GREATER:
        return truth_of(order > 0);
    default:
        QS_ASSERT(operation == QSI_DO_GREATER_OR_EQUAL);
        return truth_of(order >= 0);
    }
}

static bool is_truth(const struct qsi_selector_value *value)
{
    return value->kind == QSI_VALUE_TRUE || value->kind == QSI_VALUE_FALSE;
}

enum qsi_truth qsi_selector_compare(enum qsi_selector_operation operation,
                                    const struct qsi_selector_value *left,
                                    const struct qsi_selector_value *right)
{
    bool is_equality = operation == QSI_DO_EQUAL || operation == QSI_DO_NOT_EQUAL;

    if (is_number(left) && is_number(right)) {
        return holds(operation, compare_numbers(left, right));
    }
    if (is_equality && left->kind == QSI_VALUE_TEXT && right->kind == QSI_VALUE_TEXT) {
        return holds(operation, qsi_slice_compare(left->as.text, right->as.text));
    }
    if (is_equality && is_truth(left) && is_truth(right)) {
        return holds(operation, left->kind != right->kind);
    }
    return QSI_TRUTH_UNKNOWN;
}

/* ---- patterns ---- */

/* The bytes of the character at at, or 1 for invalid UTF-8. */
static uint32_t character_bytes(struct qsi_slice text, uint32_t at)
{
    uint32_t bytes = 1;

    while (text.data[at] >= 0xc0 && bytes < 4 && at + bytes < text.bytes &&
           (text.data[at + bytes] & 0xc0) == 0x80) {
        bytes++;
    }
    return bytes;
}

/* After a mismatch it suffices to let the last % take one more character. */
bool qsi_selector_like(struct qsi_slice text, struct qsi_slice pattern)
{
    uint32_t at = 0, wanted = 0, behind_any = 0, taken = 0;
    bool has_any = false;

    for (;;) {
        uint8_t sign = wanted < pattern.bytes ? pattern.data[wanted] : 0;
        if (wanted < pattern.bytes && sign == QSI_PATTERN_ANY) {
            behind_any = ++wanted;
            taken = at;
            has_any = true;
            if (wanted == pattern.bytes) {
                return true;
            }
        } else if (wanted < pattern.bytes && at < text.bytes && sign == QSI_PATTERN_ONE) {
            at += character_bytes(text, at);
            wanted++;
        } else if (wanted < pattern.bytes && at < text.bytes && text.data[at] == sign) {
            at++;
            wanted++;
        } else if (wanted == pattern.bytes && at == text.bytes) {
            return true;
        } else if (has_any && taken < text.bytes) {
            taken += character_bytes(text, taken);
            at = taken;
            wanted = behind_any;
        } else {
            return false;
        }
    }
}
