/* From text to program: operator precedence parsing, with checks of the operands' kinds.
 *
 * An expression reads an operand, then operators of at least the given precedence.  It calls itself
 * for operands of operators and for parentheses.  The depth is limited, and so are the C stack and
 * the program's stack. */
#include "alloc.h"
#include "check.h"
#include "error.h"
#include "selector_compile.h"

/* A higher number binds more strongly. */
enum level {
    LEVEL_OR = 1,
    LEVEL_AND,
    LEVEL_NOT,
    LEVEL_EQUAL,
    LEVEL_ORDER,
    LEVEL_ADD,
    LEVEL_MULTIPLY,
    LEVEL_SIGN
};

/* The kind of an expression, as far as it is known without a message. */
enum kind { KIND_ANY, KIND_CONDITION, KIND_NUMBER, KIND_TEXT };

struct operand {
    enum kind kind;
    const uint8_t *at; /* the begin of its text */
};

static qs_status parse(struct qsi_compiler *compiler, enum level level,
                       struct operand *operand_out);

/* ---- checks ---- */

static const char *name_of(enum kind kind)
{
    return kind == KIND_CONDITION ? "a condition" : kind == KIND_NUMBER ? "a number" : "a text";
}

static qs_status require(const struct qsi_compiler *compiler, const struct operand *operand,
                         enum kind kind, const char *needs)
{
    if (operand->kind == KIND_ANY || operand->kind == kind) {
        return QS_OK;
    }
    return qsi_selector_fail(&compiler->scan, operand->at, "%s takes %s, and this is %s", needs,
                             name_of(kind), name_of(operand->kind));
}

static qs_status require_like(const struct qsi_compiler *compiler, const struct operand *left,
                              const struct operand *right)
{
    if (left->kind == KIND_ANY || right->kind == KIND_ANY || left->kind == right->kind) {
        return QS_OK;
    }
    return qsi_selector_fail(&compiler->scan, right->at, "%s is compared with %s",
                             name_of(left->kind), name_of(right->kind));
}

static qs_status expect(struct qsi_compiler *compiler, enum qsi_selector_token_kind kind,
                        const char *what)
{
    if (compiler->scan.token.kind != kind) {
        return qsi_selector_fail_expected(&compiler->scan, what);
    }
    return qsi_selector_scan_next(&compiler->scan);
}

static qs_status expect_sign(struct qsi_compiler *compiler, const char *sign, const char *what)
{
    if (!qsi_token_is(&compiler->scan.token, sign)) {
        return qsi_selector_fail_expected(&compiler->scan, what);
    }
    return qsi_selector_scan_next(&compiler->scan);
}

/* ---- operands ---- */

static qs_status parse_name(struct qsi_compiler *compiler)
{
    static const struct {
        const char *name;
        enum qsi_property property;
    } properties[] = {
        {"JMSPriority", QSI_PROPERTY_PRIORITY},
        {"JMSDeliveryMode", QSI_PROPERTY_DELIVERY_MODE},
        {"JMSMessageID", QSI_PROPERTY_MESSAGE_ID},
        {"JMSCorrelationID", QSI_PROPERTY_CORRELATION_ID},
        {"JMSType", QSI_PROPERTY_TYPE},
        {"JMSTimestamp", QSI_PROPERTY_TIMESTAMP},
        {"JMSExpiration", QSI_PROPERTY_EXPIRATION},
    };
    struct qsi_slice name = compiler->scan.token.text;
    const struct qsi_selector_value constant = {.kind = QSI_VALUE_TEXT, .as.text = name};
    struct qsi_selector_instruction instruction = {.operation = QSI_DO_NAME};

    for (size_t i = 0; i < sizeof properties / sizeof properties[0]; i++) {
        if (name.bytes == strlen(properties[i].name) &&
            memcmp(name.data, properties[i].name, name.bytes) == 0) {
            instruction.operation = QSI_DO_PROPERTY;
            instruction.property = (uint8_t)properties[i].property;
            compiler->selector->properties |= qsi_property_flag(properties[i].property);
        }
    }
    if ((compiler->selector->properties & qsi_property_flag(QSI_PROPERTY_EXPIRATION)) != 0) {
        compiler->selector->properties |= qsi_property_flag(QSI_PROPERTY_TIMESTAMP);
    }
    QS_TRY(qsi_selector_add_constant(compiler, &constant, &instruction.at));
    return qsi_selector_emit(compiler, instruction, 1);
}

static qs_status parse_sign(struct qsi_compiler *compiler, struct operand *operand)
{
    const struct qsi_selector_token *token = &compiler->scan.token;
    bool is_minus = qsi_token_is(token, "-");
    struct qsi_selector_value least = {.kind = QSI_VALUE_INTEGER, .as.integer = INT64_MIN};
    struct operand signed_operand;

    QS_TRY(qsi_selector_scan_next(&compiler->scan));
    operand->kind = KIND_NUMBER;
    if (is_minus && token->kind == QSI_TOKEN_LEAST) {
        QS_TRY(qsi_selector_emit_constant(compiler, least));
        return qsi_selector_scan_next(&compiler->scan);
    }
    QS_TRY(parse(compiler, LEVEL_SIGN, &signed_operand));
    QS_TRY(require(compiler, &signed_operand, KIND_NUMBER, is_minus ? "-" : "+"));
    /* A plus makes the operand a number, too: a text becomes unknown. */
    QS_TRY(qsi_selector_emit_plain(compiler, QSI_DO_NEGATE, 0));
    return is_minus ? QS_OK : qsi_selector_emit_plain(compiler, QSI_DO_NEGATE, 0);
}

static qs_status parse_parentheses(struct qsi_compiler *compiler, struct operand *operand)
{
    struct operand inner;

    QS_TRY(qsi_selector_scan_next(&compiler->scan));
    QS_TRY(parse(compiler, LEVEL_OR, &inner));
    operand->kind = inner.kind;
    return expect_sign(compiler, ")", "an operator or )");
}

static qs_status parse_not(struct qsi_compiler *compiler, enum level level, struct operand *operand)
{
    struct operand negated;

    if (level > LEVEL_NOT) {
        return qsi_selector_fail_expected(&compiler->scan, "a value");
    }
    QS_TRY(qsi_selector_scan_next(&compiler->scan));
    QS_TRY(parse(compiler, LEVEL_NOT, &negated));
    QS_TRY(require(compiler, &negated, KIND_CONDITION, "NOT"));
    operand->kind = KIND_CONDITION;
    return qsi_selector_emit_plain(compiler, QSI_DO_NOT, 0);
}

static qs_status parse_literal(struct qsi_compiler *compiler, struct operand *operand)
{
    const struct qsi_selector_token *token = &compiler->scan.token;
    struct qsi_selector_value constant = {.kind = QSI_VALUE_UNKNOWN};

    switch (token->kind) {
    case QSI_TOKEN_INTEGER:
        constant = (struct qsi_selector_value){QSI_VALUE_INTEGER, .as.integer = token->integer};
        operand->kind = KIND_NUMBER;
        break;
    case QSI_TOKEN_REAL:
        constant = (struct qsi_selector_value){QSI_VALUE_REAL, .as.real = token->real};
        operand->kind = KIND_NUMBER;
        break;
    case QSI_TOKEN_TEXT:
        constant = qsi_selector_unquote(compiler);
        operand->kind = KIND_TEXT;
        break;
    case QSI_TOKEN_TRUE:
    case QSI_TOKEN_FALSE:
        constant.kind = token->kind == QSI_TOKEN_TRUE ? QSI_VALUE_TRUE : QSI_VALUE_FALSE;
        operand->kind = KIND_CONDITION;
        break;
    case QSI_TOKEN_LEAST:
        return qsi_selector_fail(&compiler->scan, token->text.data,
                                 "a number of more than 64 bits");
    default:
        return qsi_selector_fail_expected(&compiler->scan, "a name or a value");
    }
    QS_TRY(qsi_selector_emit_constant(compiler, constant));
    return qsi_selector_scan_next(&compiler->scan);
}

static qs_status parse_operand(struct qsi_compiler *compiler, enum level level,
                               struct operand *operand)
{
    const struct qsi_selector_token *token = &compiler->scan.token;

    *operand = (struct operand){KIND_ANY, token->text.data};
    if (token->kind == QSI_TOKEN_NOT) {
        return parse_not(compiler, level, operand);
    }
    if (qsi_token_is(token, "-") || qsi_token_is(token, "+")) {
        return parse_sign(compiler, operand);
    }
    if (qsi_token_is(token, "(")) {
        return parse_parentheses(compiler, operand);
    }
    if (token->kind == QSI_TOKEN_NAME) {
        QS_TRY(parse_name(compiler));
        return qsi_selector_scan_next(&compiler->scan);
    }
    return parse_literal(compiler, operand);
}

/* ---- operators ---- */

struct binary {
    const char *sign;
    enum level level;
    enum qsi_selector_operation operation;
};

/* The binary operator of the token, if it is a sign; NULL: it is none. */
static const struct binary *find_binary(const struct qsi_selector_token *token)
{
    static const struct binary operators[] = {
        {"=", LEVEL_EQUAL, QSI_DO_EQUAL},       {"<>", LEVEL_EQUAL, QSI_DO_NOT_EQUAL},
        {"<", LEVEL_ORDER, QSI_DO_LESS},        {"<=", LEVEL_ORDER, QSI_DO_LESS_OR_EQUAL},
        {">", LEVEL_ORDER, QSI_DO_GREATER},     {">=", LEVEL_ORDER, QSI_DO_GREATER_OR_EQUAL},
        {"+", LEVEL_ADD, QSI_DO_ADD},           {"-", LEVEL_ADD, QSI_DO_SUBTRACT},
        {"*", LEVEL_MULTIPLY, QSI_DO_MULTIPLY}, {"/", LEVEL_MULTIPLY, QSI_DO_DIVIDE},
    };

    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) {
        if (qsi_token_is(token, operators[i].sign)) {
            return &operators[i];
        }
    }
    return NULL;
}

/* Parses a binary operator; the current token is a sign. */
static qs_status parse_binary(struct qsi_compiler *compiler, const struct binary *binary,
                              struct operand *left)
{
    struct operand right;

    QS_TRY(qsi_selector_scan_next(&compiler->scan));
    QS_TRY(parse(compiler, binary->level + 1, &right));
    if (binary->level == LEVEL_EQUAL) {
        QS_TRY(require_like(compiler, left, &right));
    } else {
        QS_TRY(require(compiler, left, KIND_NUMBER, binary->sign));
        QS_TRY(require(compiler, &right, KIND_NUMBER, binary->sign));
    }
    left->kind = binary->level >= LEVEL_ADD ? KIND_NUMBER : KIND_CONDITION;
    return qsi_selector_emit_plain(compiler, binary->operation, -1);
}

/* If the left side decides alone, the instructions of the right side are skipped. */
static qs_status parse_logic(struct qsi_compiler *compiler, struct operand *left)
{
    bool is_and = compiler->scan.token.kind == QSI_TOKEN_AND;
    const struct qsi_selector_instruction skip = {.operation = is_and ? QSI_DO_SKIP_IF_FALSE
                                                                      : QSI_DO_SKIP_IF_TRUE};
    uint32_t skips = qsi_selector_instruction_count(compiler);
    struct qsi_selector_instruction *program;
    struct operand right;

    QS_TRY(require(compiler, left, KIND_CONDITION, is_and ? "AND" : "OR"));
    QS_TRY(qsi_selector_scan_next(&compiler->scan));
    QS_TRY(qsi_selector_emit(compiler, skip, 0));
    QS_TRY(parse(compiler, is_and ? LEVEL_AND + 1 : LEVEL_OR + 1, &right));
    QS_TRY(require(compiler, &right, KIND_CONDITION, is_and ? "AND" : "OR"));
    QS_TRY(qsi_selector_emit_plain(compiler, is_and ? QSI_DO_AND : QSI_DO_OR, -1));
    program = (void *)compiler->selector->instructions.data;
    program[skips].at = qsi_selector_instruction_count(compiler);
    left->kind = KIND_CONDITION;
    return QS_OK;
}

static qs_status parse_is(struct qsi_compiler *compiler, struct operand *left)
{
    bool is_negated;

    QS_TRY(qsi_selector_scan_next(&compiler->scan));
    is_negated = compiler->scan.token.kind == QSI_TOKEN_NOT;
    if (is_negated) {
        QS_TRY(qsi_selector_scan_next(&compiler->scan));
    }
    QS_TRY(expect(compiler, QSI_TOKEN_NULL, is_negated ? "NULL" : "NULL or NOT NULL"));
    left->kind = KIND_CONDITION;
    QS_TRY(qsi_selector_emit_plain(compiler, QSI_DO_IS_NULL, 0));
    return is_negated ? qsi_selector_emit_plain(compiler, QSI_DO_NOT, 0) : QS_OK;
}

static qs_status parse_between(struct qsi_compiler *compiler, const struct operand *left)
{
    struct operand low, high;

    QS_TRY(require(compiler, left, KIND_NUMBER, "BETWEEN"));
    QS_TRY(qsi_selector_scan_next(&compiler->scan));
    QS_TRY(parse(compiler, LEVEL_ADD, &low));
    QS_TRY(require(compiler, &low, KIND_NUMBER, "BETWEEN"));
    QS_TRY(expect(compiler, QSI_TOKEN_AND, "AND"));
    QS_TRY(parse(compiler, LEVEL_ADD, &high));
    QS_TRY(require(compiler, &high, KIND_NUMBER, "BETWEEN"));
    return qsi_selector_emit_plain(compiler, QSI_DO_BETWEEN, -2);
}

static qs_status parse_like(struct qsi_compiler *compiler, const struct operand *left)
{
    struct qsi_selector_instruction instruction = {.operation = QSI_DO_LIKE};
    struct qsi_selector_value pattern;

    QS_TRY(require(compiler, left, KIND_TEXT, "LIKE"));
    QS_TRY(qsi_selector_scan_next(&compiler->scan));
    QS_TRY(qsi_selector_read_pattern(compiler, &pattern));
    QS_TRY(qsi_selector_add_constant(compiler, &pattern, &instruction.at));
    return qsi_selector_emit(compiler, instruction, 0);
}

static qs_status parse_in(struct qsi_compiler *compiler, const struct operand *left)
{
    struct qsi_selector_instruction instruction = {.operation = QSI_DO_IN};
    struct qsi_selector_value text;
    uint32_t index;

    QS_TRY(require(compiler, left, KIND_TEXT, "IN"));
    QS_TRY(qsi_selector_scan_next(&compiler->scan));
    QS_TRY(expect_sign(compiler, "(", "("));
    for (;; instruction.count++) {
        if (compiler->scan.token.kind != QSI_TOKEN_TEXT) {
            return qsi_selector_fail_expected(&compiler->scan, "a 'text'");
        }
        text = qsi_selector_unquote(compiler);
        QS_TRY(qsi_selector_add_constant(compiler, &text, &index));
        instruction.at = instruction.count == 0 ? index : instruction.at;
        QS_TRY(qsi_selector_scan_next(&compiler->scan));
        if (!qsi_token_is(&compiler->scan.token, ",")) {
            break;
        }
        QS_TRY(qsi_selector_scan_next(&compiler->scan));
    }
    instruction.count++;
    QS_TRY(expect_sign(compiler, ")", ", or )"));
    return qsi_selector_emit(compiler, instruction, 0);
}

/* Parses BETWEEN, LIKE and IN, with or without NOT. */
static qs_status parse_test(struct qsi_compiler *compiler, struct operand *left)
{
    bool is_negated = compiler->scan.token.kind == QSI_TOKEN_NOT;

    if (is_negated) {
        QS_TRY(qsi_selector_scan_next(&compiler->scan));
    }
    switch (compiler->scan.token.kind) {
    case QSI_TOKEN_BETWEEN:
        QS_TRY(parse_between(compiler, left));
        break;
    case QSI_TOKEN_LIKE:
        QS_TRY(parse_like(compiler, left));
        break;
    case QSI_TOKEN_IN:
        QS_TRY(parse_in(compiler, left));
        break;
    default:
        return qsi_selector_fail_expected(&compiler->scan, "LIKE, BETWEEN or IN");
    }
    left->kind = KIND_CONDITION;
    return is_negated ? qsi_selector_emit_plain(compiler, QSI_DO_NOT, 0) : QS_OK;
}

/* The precedence of the current operator; 0: there is none. */
static enum level level_of(const struct qsi_selector_token *token)
{
    const struct binary *binary = find_binary(token);

    switch (token->kind) {
    case QSI_TOKEN_OR:
        return LEVEL_OR;
    case QSI_TOKEN_AND:
        return LEVEL_AND;
    case QSI_TOKEN_IS:
        return LEVEL_EQUAL;
    case QSI_TOKEN_NOT:
    case QSI_TOKEN_LIKE:
    case QSI_TOKEN_BETWEEN:
    case QSI_TOKEN_IN:
        return LEVEL_ORDER;
    default:
        return binary != NULL ? binary->level : 0;
    }
}

static qs_status parse_operator(struct qsi_compiler *compiler, struct operand *left)
{
    const struct qsi_selector_token *token = &compiler->scan.token;

    switch (token->kind) {
    case QSI_TOKEN_OR:
    case QSI_TOKEN_AND:
        return parse_logic(compiler, left);
    case QSI_TOKEN_IS:
        return parse_is(compiler, left);
    case QSI_TOKEN_SIGN:
        return parse_binary(compiler, find_binary(token), left);
    default:
        return parse_test(compiler, left);
    }
}

static qs_status parse(struct qsi_compiler *compiler, enum level level, struct operand *operand_out)
{
    const struct qsi_selector_token *token = &compiler->scan.token;

    if (compiler->depth == QSI_SELECTOR_DEPTH_MAX) {
        return qsi_selector_fail(&compiler->scan, token->text.data,
                                 "more than %u expressions inside each other",
                                 QSI_SELECTOR_DEPTH_MAX);
    }
    compiler->depth++;
    QS_TRY(parse_operand(compiler, level, operand_out));
    while (level_of(token) >= level && level_of(token) > 0) {
        QS_TRY(parse_operator(compiler, operand_out));
    }
    compiler->depth--;
    return QS_OK;
}

/* ---- the selector ---- */

static qs_status compile(struct qsi_compiler *compiler)
{
    struct operand whole;
    qs_status status;

    QS_TRY(qsi_selector_scan_begin(&compiler->scan));
    QS_TRY(parse(compiler, LEVEL_OR, &whole));
    if (compiler->scan.token.kind != QSI_TOKEN_END) {
        return qsi_selector_fail_expected(&compiler->scan, "an operator or the end");
    }
    status = require(compiler, &whole, KIND_CONDITION, "a selector");
    QS_ASSERT(status != QS_OK || (compiler->stack == 1 && compiler->depth == 0));
    return status;
}

qs_status qsi_selector_compile(struct qsi_slice text, struct qsi_selector **selector_out,
                               qs_error *error)
{
    struct qsi_compiler compiler = {.scan.error = error};
    struct qsi_selector *selector;
    qs_status status;

    if (text.bytes > QSI_SELECTOR_BYTES_MAX) {
        return qsi_fail(error, QS_PRECONDITION_FAILED, "selector: %u bytes, more than %u",
                        text.bytes, QSI_SELECTOR_BYTES_MAX);
    }
    selector = qsi_zalloc(sizeof *selector + 2 * (size_t)text.bytes);
    if (selector == NULL) {
        return qsi_fail(error, QS_ENOMEM, "selector");
    }
    qsi_slice_put(selector->text, text);
    selector->text_bytes = text.bytes;
    selector->unquoted = selector->text + text.bytes;
    compiler.selector = selector;
    compiler.scan.text = qsi_slice_make(selector->text, text.bytes);
    status = compile(&compiler);
    qsi_selector_scan_end(&compiler.scan);
    if (status != QS_OK) {
        qsi_selector_destroy(selector);
        return status;
    }
    *selector_out = selector;
    return QS_OK;
}

void qsi_selector_destroy(struct qsi_selector *selector)
{
    if (selector != NULL) {
        qsi_buf_fini(&selector->instructions);
        qsi_buf_fini(&selector->constants);
        qsi_free(selector);
    }
}

uint16_t qsi_selector_properties(const struct qsi_selector *selector)
{
    return selector->properties;
}
