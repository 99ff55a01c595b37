/* Running a selector's program on a message. */
#include "check.h"
#include "field_table.h"
#include "le.h"
#include "selector_program.h"

typedef struct qsi_selector_value value;

static value of_kind(enum qsi_selector_kind kind)
{
    return (value){.kind = kind};
}

static value of_integer(int64_t integer)
{
    return (value){.kind = QSI_VALUE_INTEGER, .as.integer = integer};
}

static value of_real(double real)
{
    return real == real ? (value){.kind = QSI_VALUE_REAL, .as.real = real}
                        : of_kind(QSI_VALUE_OTHER);
}

static value of_text(struct qsi_slice text)
{
    return (value){.kind = QSI_VALUE_TEXT, .as.text = text};
}

static value of_truth(enum qsi_truth truth)
{
    return of_kind((enum qsi_selector_kind)truth);
}

/* ---- values of names ---- */

static double real_of(const struct qsi_field *field)
{
    double number;
    float shorter;

    if (field->type == 'f') {
        uint32_t bits = qsi_get_be32(field->value.data);
        memcpy(&shorter, &bits, sizeof shorter);
        return (double)shorter;
    }
    uint64_t bits = qsi_get_be64(field->value.data);
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* A scale, the number of digits after the point, and a number. */
static double decimal_of(const struct qsi_field *field)
{
    double number = (double)(int32_t)qsi_get_be32(field->value.data + 1), power = 1;

    for (uint8_t scale = field->value.data[0]; scale > 0; scale--) {
        power *= 10;
    }
    return number / power;
}

static value of_field(const struct qsi_field *field)
{
    struct qsi_number number;

    switch (field->type) {
    case 'S':
        return of_text(field->value);
    case 't':
        return of_kind(field->value.data[0] != 0 ? QSI_VALUE_TRUE : QSI_VALUE_FALSE);
    case 'V':
        return of_kind(QSI_VALUE_UNKNOWN);
    case 'f':
    case 'd':
        return of_real(real_of(field));
    case 'D':
        return of_real(decimal_of(field));
    default:
        break;
    }
    if (!qsi_field_integer(field, &number)) {
        return of_kind(QSI_VALUE_OTHER);
    }
    if (!number.is_negative && number.bits > INT64_MAX) {
        return of_real((double)number.bits);
    }
    return of_integer((int64_t)number.bits);
}

static value milliseconds_of(uint64_t seconds, uint64_t more_ms)
{
    uint64_t ms;

    if (qsi_mul_overflows(seconds, 1000, &ms) || qsi_add_overflows(ms, more_ms, &ms) ||
        ms > INT64_MAX) {
        return of_real((double)seconds * 1000 + (double)more_ms);
    }
    return of_integer((int64_t)ms);
}

/* The time at which the message expires, computed from its timestamp and its expiration. */
static value expiration_of(const struct qsi_properties *properties)
{
    uint32_t ms;

    if (!qsi_properties_has(properties, QSI_PROPERTY_TIMESTAMP) ||
        qsi_expiration_parse(properties->text[QSI_PROPERTY_EXPIRATION], &ms, NULL) != QS_OK) {
        return of_kind(QSI_VALUE_UNKNOWN);
    }
    return milliseconds_of(properties->timestamp, ms);
}

static value of_property(const struct qsi_properties *properties, enum qsi_property property)
{
    static const struct qsi_properties none = {.present = 0};

    properties = properties != NULL ? properties : &none;
    if (property == QSI_PROPERTY_DELIVERY_MODE) {
        bool is_persistent =
            qsi_properties_has(properties, property) && properties->delivery_mode == 2;
        return of_text(is_persistent ? QSI_SLICE_LITERAL("PERSISTENT")
                                     : QSI_SLICE_LITERAL("NON_PERSISTENT"));
    }
    if (!qsi_properties_has(properties, property)) {
        return of_kind(QSI_VALUE_UNKNOWN);
    }
    switch (property) {
    case QSI_PROPERTY_PRIORITY:
        return of_integer(properties->priority);
    case QSI_PROPERTY_TIMESTAMP:
        return milliseconds_of(properties->timestamp, 0);
    case QSI_PROPERTY_EXPIRATION:
        return expiration_of(properties);
    default:
        return of_text(properties->text[property]);
    }
}

static value look_up(const struct qsi_selector_instruction *instruction, struct qsi_slice name,
                     const struct qsi_selector_subject *subject)
{
    struct qsi_field field;

    if (subject->headers.bytes > 0 && qsi_table_find(subject->headers, name, &field)) {
        return of_field(&field);
    }
    return instruction->operation == QSI_DO_PROPERTY
               ? of_property(subject->properties, instruction->property)
               : of_kind(QSI_VALUE_UNKNOWN);
}

/* ---- logic ---- */

/* Values that are no truth are unknown. */
static enum qsi_truth truth_of(const value *of)
{
    return of->kind <= QSI_VALUE_UNKNOWN ? (enum qsi_truth)of->kind : QSI_TRUTH_UNKNOWN;
}

static enum qsi_truth negate(enum qsi_truth truth)
{
    return truth == QSI_TRUTH_UNKNOWN ? truth
           : truth == QSI_TRUTH_TRUE  ? QSI_TRUTH_FALSE
                                      : QSI_TRUTH_TRUE;
}

static enum qsi_truth both(enum qsi_truth left, enum qsi_truth right)
{
    if (left == QSI_TRUTH_FALSE || right == QSI_TRUTH_FALSE) {
        return QSI_TRUTH_FALSE;
    }
    return left == QSI_TRUTH_TRUE && right == QSI_TRUTH_TRUE ? QSI_TRUTH_TRUE : QSI_TRUTH_UNKNOWN;
}

static enum qsi_truth either(enum qsi_truth left, enum qsi_truth right)
{
    return negate(both(negate(left), negate(right)));
}

static enum qsi_truth between(const value *tested)
{
    return both(qsi_selector_compare(QSI_DO_GREATER_OR_EQUAL, &tested[0], &tested[1]),
                qsi_selector_compare(QSI_DO_LESS_OR_EQUAL, &tested[0], &tested[2]));
}

static enum qsi_truth is_among(const value *tested, const value *among, uint32_t count)
{
    if (tested->kind != QSI_VALUE_TEXT) {
        return QSI_TRUTH_UNKNOWN;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (qsi_slice_compare(tested->as.text, among[i].as.text) == 0) {
            return QSI_TRUTH_TRUE;
        }
    }
    return QSI_TRUTH_FALSE;
}

static enum qsi_truth is_like(const value *tested, struct qsi_slice pattern)
{
    if (tested->kind != QSI_VALUE_TEXT) {
        return QSI_TRUTH_UNKNOWN;
    }
    return qsi_selector_like(tested->as.text, pattern) ? QSI_TRUTH_TRUE : QSI_TRUTH_FALSE;
}

/* ---- running ---- */

/* An operation with two or three values; its result replaces the first. */
static value combine(enum qsi_selector_operation operation, const value *values)
{
    switch (operation) {
    case QSI_DO_AND:
        return of_truth(both(truth_of(&values[0]), truth_of(&values[1])));
    case QSI_DO_OR:
        return of_truth(either(truth_of(&values[0]), truth_of(&values[1])));
    case QSI_DO_BETWEEN:
        return of_truth(between(values));
    case QSI_DO_ADD:
    case QSI_DO_SUBTRACT:
    case QSI_DO_MULTIPLY:
    case QSI_DO_DIVIDE:
        return qsi_selector_calculate(operation, &values[0], &values[1]);
    default:
        return of_truth(qsi_selector_compare(operation, &values[0], &values[1]));
    }
}

/* An operation with one value. */
static value change(const struct qsi_selector_instruction *instruction, const value *constants,
                    const value *changed)
{
    switch ((enum qsi_selector_operation)instruction->operation) {
    case QSI_DO_NEGATE:
        return qsi_selector_negate(changed);
    case QSI_DO_NOT:
        return of_truth(negate(truth_of(changed)));
    case QSI_DO_IS_NULL:
        return of_kind(changed->kind == QSI_VALUE_UNKNOWN ? QSI_VALUE_TRUE : QSI_VALUE_FALSE);
    case QSI_DO_LIKE:
        return of_truth(is_like(changed, constants[instruction->at].as.text));
    default:
        QS_ASSERT(instruction->operation == QSI_DO_IN);
        return of_truth(is_among(changed, &constants[instruction->at], instruction->count));
    }
}

enum qsi_truth qsi_selector_evaluate(const struct qsi_selector *selector,
                                     const struct qsi_selector_subject *subject)
{
    const struct qsi_selector_instruction *program = (const void *)selector->instructions.data;
    const value *constants = (const void *)selector->constants.data;
    uint32_t count = (uint32_t)(selector->instructions.bytes / sizeof *program), top = 0;
    value stack[QSI_SELECTOR_STACK_MAX];

    for (uint32_t at = 0; at < count; at++) {
        const struct qsi_selector_instruction *instruction = &program[at];
        switch ((enum qsi_selector_operation)instruction->operation) {
        case QSI_DO_CONSTANT:
            stack[top++] = constants[instruction->at];
            break;
        case QSI_DO_NAME:
        case QSI_DO_PROPERTY:
            stack[top++] = look_up(instruction, constants[instruction->at].as.text, subject);
            break;
        case QSI_DO_NEGATE:
        case QSI_DO_NOT:
        case QSI_DO_IS_NULL:
        case QSI_DO_LIKE:
        case QSI_DO_IN:
            stack[top - 1] = change(instruction, constants, &stack[top - 1]);
            break;
        case QSI_DO_SKIP_IF_FALSE:
            at = stack[top - 1].kind == QSI_VALUE_FALSE ? instruction->at - 1 : at;
            break;
        case QSI_DO_SKIP_IF_TRUE:
            at = stack[top - 1].kind == QSI_VALUE_TRUE ? instruction->at - 1 : at;
            break;
        default:
            top -= instruction->operation == QSI_DO_BETWEEN ? 2 : 1;
            stack[top - 1] = combine(instruction->operation, &stack[top - 1]);
            break;
        }
        QS_DCHECK(top >= 1 && top <= QSI_SELECTOR_STACK_MAX);
    }
    QS_ASSERT(top == 1);
    return truth_of(&stack[0]);
}
