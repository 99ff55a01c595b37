/* Selectors: conditions on a message's headers and properties, a subset of SQL-92 as JMS has it.
 *
 *   condition   OR, AND, NOT; =, <>, <, <=, >, >=; IS [NOT] NULL; [NOT] LIKE 's' [ESCAPE 'c'];
 *               [NOT] BETWEEN a AND b; [NOT] IN ('s', ...)
 *   value       +, -, *, /, a sign, parentheses; 'text' with '' for a quote; 1, 1L, 0x1, 017
 *               (octal), 1.5E3; TRUE, FALSE; a name: [A-Za-z_$][A-Za-z0-9_$]*
 *   comments    -- to the end of the line, and those of C
 *
 * Names are those of header fields, in their case; keywords are in any.  JMSPriority,
 * JMSDeliveryMode, JMSMessageID, JMSCorrelationID, JMSType, JMSTimestamp and JMSExpiration are
 * properties, unless a header field has that name.
 *
 * Logic has three values.  What is missing, what has no value (a division by zero) and a comparison
 * of unlike types are unknown; a message is selected when the condition is true.  Numbers are like
 * each other whatever their types, and compared exactly.
 *
 * A selector is compiled once; evaluating neither allocates nor recurses. */
#ifndef QSI_SELECTOR_H
#define QSI_SELECTOR_H

#include "qstore/status.h"

#include "properties.h"
#include "slice.h"

/* Limit of a selector's text. */
#define QSI_SELECTOR_BYTES_MAX 16384u
/* Limit for operators that wait for a value, and for nested parentheses. */
#define QSI_SELECTOR_DEPTH_MAX 100u

struct qsi_selector;

/* The message to evaluate. */
struct qsi_selector_subject {
    struct qsi_slice headers;                /* a field table; null: none */
    const struct qsi_properties *properties; /* NULL: none */
};

enum qsi_truth { QSI_TRUTH_FALSE, QSI_TRUTH_TRUE, QSI_TRUTH_UNKNOWN };

/* Compiles a selector, which keeps a copy of the text.  QS_PRECONDITION_FAILED: the text is no
 * selector; the error has the position of the character and the expected token.  QS_ENOMEM. */
qs_status qsi_selector_compile(struct qsi_slice text, struct qsi_selector **selector_out,
                               qs_error *error) QS_MUST_CHECK;
void qsi_selector_destroy(struct qsi_selector *selector); /* NULL is fine */

enum qsi_truth qsi_selector_evaluate(const struct qsi_selector *selector,
                                     const struct qsi_selector_subject *subject);

/* The properties that it reads: qsi_property_flag() of each. */
uint16_t qsi_selector_properties(const struct qsi_selector *selector);

#endif
