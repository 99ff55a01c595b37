/* The tokens of a selector. */
#ifndef QSI_SELECTOR_SCAN_H
#define QSI_SELECTOR_SCAN_H

#include "qstore/status.h"

#include "slice.h"

enum qsi_selector_token_kind {
    QSI_TOKEN_END,
    QSI_TOKEN_NAME,
    QSI_TOKEN_TEXT,    /* with its quotes; quotes inside are doubled */
    QSI_TOKEN_INTEGER, /* value */
    QSI_TOKEN_LEAST,   /* 9223372036854775808: a number only after a minus */
    QSI_TOKEN_REAL,    /* real */
    QSI_TOKEN_SIGN,    /* of one or two characters: = <> < <= > >= ( ) , + - * / */
    QSI_TOKEN_OR,      /* keywords */
    QSI_TOKEN_AND,
    QSI_TOKEN_NOT,
    QSI_TOKEN_IS,
    QSI_TOKEN_NULL,
    QSI_TOKEN_LIKE,
    QSI_TOKEN_ESCAPE,
    QSI_TOKEN_BETWEEN,
    QSI_TOKEN_IN,
    QSI_TOKEN_TRUE,
    QSI_TOKEN_FALSE,
};

struct qsi_selector_token {
    enum qsi_selector_token_kind kind;
    struct qsi_slice text; /* part of the selector's text */
    int64_t integer;
    double real;
};

struct qsi_selector_scan {
    struct qsi_slice text;
    uint32_t at;
    struct qsi_selector_token token; /* the current token */
    struct qsi_slice previous;       /* the text of the token before it; null: none */
    void *locale;                    /* for reading numbers */
    qs_error *error;
};

/* Reads the first token.  REQUIRES scan->text of at most QSI_SELECTOR_BYTES_MAX bytes, and error
 * set.  QS_PRECONDITION_FAILED; QS_ENOMEM. */
qs_status qsi_selector_scan_begin(struct qsi_selector_scan *scan) QS_MUST_CHECK;
void qsi_selector_scan_end(struct qsi_selector_scan *scan);
/* Reads the next token in place of the current one.  QS_PRECONDITION_FAILED. */
qs_status qsi_selector_scan_next(struct qsi_selector_scan *scan) QS_MUST_CHECK;

/* QS_PRECONDITION_FAILED; the error has the position of the character at "at", then the formatted
 * text. */
qs_status qsi_selector_fail(const struct qsi_selector_scan *scan, const uint8_t *at,
                            const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same for the current token: "expected WHAT after PREVIOUS, found TOKEN". */
qs_status qsi_selector_fail_expected(const struct qsi_selector_scan *scan, const char *what);

static inline int qsi_token_is(const struct qsi_selector_token *token, const char *sign)
{
    return token->kind == QSI_TOKEN_SIGN && token->text.bytes == strlen(sign) &&
           memcmp(token->text.data, sign, token->text.bytes) == 0;
}

#endif
