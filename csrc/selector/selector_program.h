/* A compiled selector: instructions for a stack machine. */
#ifndef QSI_SELECTOR_PROGRAM_H
#define QSI_SELECTOR_PROGRAM_H

#include "buf.h"
#include "selector.h"
#include "slice.h"

/* Each open expression has at most two values on the stack (BETWEEN), and makes one. */
#define QSI_SELECTOR_STACK_MAX (2 * QSI_SELECTOR_DEPTH_MAX + 2)

enum qsi_selector_kind {
    QSI_VALUE_FALSE = QSI_TRUTH_FALSE,
    QSI_VALUE_TRUE = QSI_TRUTH_TRUE,
    QSI_VALUE_UNKNOWN = QSI_TRUTH_UNKNOWN,
    QSI_VALUE_INTEGER,
    QSI_VALUE_REAL, /* never a NaN */
    QSI_VALUE_TEXT,
    QSI_VALUE_OTHER, /* bytes, arrays, tables: present, and not comparable */
};

struct qsi_selector_value {
    enum qsi_selector_kind kind;
    union {
        int64_t integer;
        double real;
        struct qsi_slice text;
    } as;
};

enum qsi_selector_operation {
    QSI_DO_CONSTANT, /* pushes constants[at] */
    QSI_DO_NAME,     /* pushes the header field with the name constants[at] */
    QSI_DO_PROPERTY, /* the same; if there is no such field, the property */
    QSI_DO_NEGATE,   /* this and the following replace their operands by one value */
    QSI_DO_ADD,
    QSI_DO_SUBTRACT,
    QSI_DO_MULTIPLY,
    QSI_DO_DIVIDE,
    QSI_DO_EQUAL,
    QSI_DO_NOT_EQUAL,
    QSI_DO_LESS,
    QSI_DO_LESS_OR_EQUAL,
    QSI_DO_GREATER,
    QSI_DO_GREATER_OR_EQUAL,
    QSI_DO_BETWEEN,
    QSI_DO_LIKE, /* with the pattern constants[at] */
    QSI_DO_IN,   /* with count constants from at on */
    QSI_DO_IS_NULL,
    QSI_DO_NOT,
    QSI_DO_AND,
    QSI_DO_OR,
    QSI_DO_SKIP_IF_FALSE, /* continues at instruction at, and keeps the value */
    QSI_DO_SKIP_IF_TRUE,
};

struct qsi_selector_instruction {
    uint8_t operation; /* enum qsi_selector_operation */
    uint8_t property;  /* enum qsi_property */
    uint32_t at;
    uint32_t count;
};

struct qsi_selector {
    struct qsi_buf instructions; /* struct qsi_selector_instruction */
    struct qsi_buf constants;    /* struct qsi_selector_value */
    uint16_t properties;         /* those that it reads */
    uint8_t *unquoted;           /* texts and patterns, stored after the text */
    uint32_t unquoted_bytes;
    uint32_t text_bytes;
    uint8_t text[];
};

/* Wildcards in a pattern: bytes that do not occur in UTF-8. */
#define QSI_PATTERN_ANY 0xff /* % */
#define QSI_PATTERN_ONE 0xfe /* _ */

/* ---- selector_value.c ---- */

/* Negates, adds and so on.  Unknown if a value or the result is no number; beyond 64 bits the
 * result is a real number. */
struct qsi_selector_value qsi_selector_negate(const struct qsi_selector_value *value);
struct qsi_selector_value qsi_selector_calculate(enum qsi_selector_operation operation,
                                                 const struct qsi_selector_value *left,
                                                 const struct qsi_selector_value *right);
/* = <> < <= > >=.  Unknown for values that are not comparable, and for the order of values that are
 * not numbers. */
enum qsi_truth qsi_selector_compare(enum qsi_selector_operation operation,
                                    const struct qsi_selector_value *left,
                                    const struct qsi_selector_value *right);
bool qsi_selector_like(struct qsi_slice text, struct qsi_slice pattern);

#endif
