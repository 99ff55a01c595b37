/* Dividing a selector into tokens.  Numbers are parsed here; texts keep their quotes. */
#define _GNU_SOURCE 1 /* strtod_l */

#include "selector_scan.h"

#include "check.h"
#include "error.h"
#include "selector.h"

#include <errno.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif

#define NUMBER_BYTES_MAX 400 /* of a number with a point or an exponent */
#define SHOWN_BYTES_MAX 40   /* of a token in an error */

/* ---- errors ---- */

/* The position of a character, from 1; continuation bytes of UTF-8 do not count. */
static unsigned character_of(const struct qsi_selector_scan *scan, const uint8_t *at)
{
    unsigned character = 1;

    QS_DCHECK(at >= scan->text.data && at <= scan->text.data + scan->text.bytes);
    for (const uint8_t *byte = scan->text.data; byte < at; byte++) {
        character += (*byte & 0xc0) != 0x80 ? 1 : 0;
    }
    return character;
}

qs_status qsi_selector_fail(const struct qsi_selector_scan *scan, const uint8_t *at,
                            const char *format, ...)
{
    char text[QS_ERROR_TEXT_BYTES];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return qsi_fail(scan->error, QS_PRECONDITION_FAILED, "selector: at character %u: %s",
                    character_of(scan, at), text);
}

/* The bytes of a token to show in an error; a UTF-8 character is not cut. */
static int shown_bytes(struct qsi_slice text)
{
    uint32_t bytes = text.bytes < SHOWN_BYTES_MAX ? text.bytes : SHOWN_BYTES_MAX;

    while (bytes < text.bytes && bytes > 0 && (text.data[bytes] & 0xc0) == 0x80) {
        bytes--;
    }
    return (int)bytes;
}

qs_status qsi_selector_fail_expected(const struct qsi_selector_scan *scan, const char *what)
{
    char after[SHOWN_BYTES_MAX + 16] = "", found[SHOWN_BYTES_MAX + 16] = "the end";
    struct qsi_slice token = scan->token.text;

    if (!qsi_slice_is_null(scan->previous)) {
        snprintf(after, sizeof after, " after %.*s", shown_bytes(scan->previous),
                 (const char *)scan->previous.data);
    }
    if (scan->token.kind != QSI_TOKEN_END) {
        snprintf(found, sizeof found, "%.*s", shown_bytes(token), (const char *)token.data);
    }
    return qsi_selector_fail(scan, token.data, "expected %s%s, found %s", what, after, found);
}

/* ---- characters ---- */

static bool is_digit(uint8_t byte)
{
    return byte >= '0' && byte <= '9';
}

static bool begins_name(uint8_t byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_' ||
           byte == '$';
}

static bool continues_name(uint8_t byte)
{
    return begins_name(byte) || is_digit(byte);
}

/* The byte that is ahead bytes after the current position; 0: the end. */
static uint8_t peek(const struct qsi_selector_scan *scan, uint32_t ahead)
{
    return ahead < scan->text.bytes - scan->at ? scan->text.data[scan->at + ahead] : 0;
}

static const uint8_t *here(const struct qsi_selector_scan *scan)
{
    return scan->text.data + scan->at;
}

/* Takes the token of that many bytes at the current position. */
static void take(struct qsi_selector_scan *scan, enum qsi_selector_token_kind kind, uint32_t bytes)
{
    QS_ASSERT(bytes <= scan->text.bytes - scan->at);
    scan->token =
        (struct qsi_selector_token){.kind = kind, .text = qsi_slice_make(here(scan), bytes)};
    scan->at += bytes;
}

/* The bytes of the UTF-8 character that begins here; 0: it is invalid. */
static uint32_t character_bytes(const uint8_t *at, uint32_t bytes)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t count = at[0] < 0x80 ? 1 : at[0] < 0xc0 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    uint32_t code = count > 1 ? at[0] & (0x7fu >> count) : at[0];

    if (count == 0 || at[0] >= 0xf8 || count > bytes) {
        return 0;
    }
    for (uint32_t i = 1; i < count; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
        code = code << 6 | (at[i] & 0x3f);
    }
    return code < least[count] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : count;
}

static qs_status check_text(const struct qsi_selector_scan *scan)
{
    uint32_t count;

    for (uint32_t at = 0; at < scan->text.bytes; at += count) {
        count = character_bytes(scan->text.data + at, scan->text.bytes - at);
        if (count == 0) {
            return qsi_selector_fail(scan, scan->text.data + at, "this is no UTF-8");
        }
        if (scan->text.data[at] == 0) {
            return qsi_selector_fail(scan, scan->text.data + at, "a character of value 0");
        }
    }
    return QS_OK;
}

/* ---- numbers ---- */

/* digits: offset of the digits after the prefix of the base.  An invalid digit and a number that is
 * too large are errors. */
static qs_status read_integer(struct qsi_selector_scan *scan, uint32_t digits, uint32_t base)
{
    static const uint64_t least = (uint64_t)INT64_MAX + 1;
    uint64_t value = 0;
    uint32_t at = digits;
    bool overflows = false;

    for (; continues_name(peek(scan, at)); at++) {
        uint8_t byte = peek(scan, at);
        uint32_t digit = is_digit(byte) ? byte - (uint32_t)'0' : (byte | 0x20u) - 'a' + 10;
        if ((byte == 'l' || byte == 'L') && at > digits && !continues_name(peek(scan, at + 1))) {
            at++;
            break;
        }
        if (!(is_digit(byte) || begins_name(byte)) || digit >= base) {
            return qsi_selector_fail(scan, here(scan) + at, "%c does not belong to a number", byte);
        }
        overflows = overflows || __builtin_mul_overflow(value, base, &value) ||
                    __builtin_add_overflow(value, digit, &value);
    }
    if (at == digits) {
        return qsi_selector_fail(scan, here(scan) + at, "expected a digit after 0x");
    }
    if (overflows || value > least) {
        return qsi_selector_fail(scan, here(scan), "a number of more than 64 bits");
    }
    take(scan, value == least ? QSI_TOKEN_LEAST : QSI_TOKEN_INTEGER, at);
    scan->token.integer = value == least ? 0 : (int64_t)value;
    return QS_OK;
}

/* The bytes of a number with a point or an exponent; 0: it has neither. */
static uint32_t real_bytes(const struct qsi_selector_scan *scan)
{
    uint32_t at = 0;
    bool is_real = false;

    while (is_digit(peek(scan, at))) {
        at++;
    }
    if (peek(scan, at) == '.') {
        is_real = true;
        at++;
        while (is_digit(peek(scan, at))) {
            at++;
        }
    }
    if (peek(scan, at) == 'e' || peek(scan, at) == 'E') {
        uint32_t sign = peek(scan, at + 1) == '+' || peek(scan, at + 1) == '-' ? 1 : 0;
        if (is_digit(peek(scan, at + 1 + sign))) {
            is_real = true;
            at += 1 + sign;
            while (is_digit(peek(scan, at))) {
                at++;
            }
        }
    }
    return is_real ? at : 0;
}

static qs_status read_real(struct qsi_selector_scan *scan, uint32_t bytes)
{
    char text[NUMBER_BYTES_MAX + 1];
    double value;

    if (bytes > NUMBER_BYTES_MAX) {
        return qsi_selector_fail(scan, here(scan), "a number of more than %d characters",
                                 NUMBER_BYTES_MAX);
    }
    if (continues_name(peek(scan, bytes))) {
        return qsi_selector_fail(scan, here(scan) + bytes, "%c does not belong to a number",
                                 peek(scan, bytes));
    }
    memcpy(text, here(scan), bytes);
    text[bytes] = 0;
    value = strtod_l(text, NULL, (locale_t)scan->locale);
    if (value - value != 0) { /* infinite */
        return qsi_selector_fail(scan, here(scan), "a number that is too large");
    }
    take(scan, QSI_TOKEN_REAL, bytes);
    scan->token.real = value;
    return QS_OK;
}

static qs_status read_number(struct qsi_selector_scan *scan)
{
    bool is_hexadecimal = peek(scan, 0) == '0' && (peek(scan, 1) | 0x20) == 'x';
    uint32_t bytes = is_hexadecimal ? 0 : real_bytes(scan);

    if (bytes > 0) {
        return read_real(scan, bytes);
    }
    if (is_hexadecimal) {
        return read_integer(scan, 2, 16);
    }
    return read_integer(scan, 0, peek(scan, 0) == '0' ? 8 : 10);
}

/* ---- words and texts ---- */

static bool is_word(struct qsi_slice word, const char *keyword)
{
    if (word.bytes != strlen(keyword)) {
        return false;
    }
    for (uint32_t i = 0; i < word.bytes; i++) {
        uint8_t byte = word.data[i];
        if ((byte >= 'a' && byte <= 'z' ? byte - 32 : byte) != keyword[i]) {
            return false;
        }
    }
    return true;
}

static qs_status read_word(struct qsi_selector_scan *scan)
{
    static const struct {
        const char *word;
        enum qsi_selector_token_kind kind;
    } keywords[] = {
        {"OR", QSI_TOKEN_OR},           {"AND", QSI_TOKEN_AND},     {"NOT", QSI_TOKEN_NOT},
        {"IS", QSI_TOKEN_IS},           {"NULL", QSI_TOKEN_NULL},   {"LIKE", QSI_TOKEN_LIKE},
        {"ESCAPE", QSI_TOKEN_ESCAPE},   {"IN", QSI_TOKEN_IN},       {"TRUE", QSI_TOKEN_TRUE},
        {"BETWEEN", QSI_TOKEN_BETWEEN}, {"FALSE", QSI_TOKEN_FALSE},
    };
    uint32_t bytes = 1;

    while (continues_name(peek(scan, bytes))) {
        bytes++;
    }
    take(scan, QSI_TOKEN_NAME, bytes);
    for (size_t i = 0; i < sizeof keywords / sizeof keywords[0]; i++) {
        if (is_word(scan->token.text, keywords[i].word)) {
            scan->token.kind = keywords[i].kind;
        }
    }
    if (is_word(scan->token.text, "XPATH") || is_word(scan->token.text, "XQUERY")) {
        return qsi_selector_fail(scan, scan->token.text.data,
                                 "%.*s is not supported: bodies are not looked at",
                                 (int)scan->token.text.bytes, (const char *)scan->token.text.data);
    }
    if (bytes > QSI_SHORTSTR_BYTES_MAX) {
        return qsi_selector_fail(scan, scan->token.text.data,
                                 "a name of %u bytes, more than a header field's %d", bytes,
                                 QSI_SHORTSTR_BYTES_MAX);
    }
    return QS_OK;
}

static qs_status read_text(struct qsi_selector_scan *scan)
{
    uint32_t at = 1;

    while (peek(scan, at) != 0) {
        if (peek(scan, at) != '\'') {
            at++;
        } else if (peek(scan, at + 1) == '\'') {
            at += 2;
        } else {
            take(scan, QSI_TOKEN_TEXT, at + 1);
            return QS_OK;
        }
    }
    return qsi_selector_fail(scan, here(scan), "a text without a ' at its end");
}

static qs_status read_sign(struct qsi_selector_scan *scan)
{
    uint8_t first = peek(scan, 0), second = peek(scan, 1);

    if ((first == '<' && (second == '>' || second == '=')) || (first == '>' && second == '=')) {
        take(scan, QSI_TOKEN_SIGN, 2);
        return QS_OK;
    }
    if (strchr("=<>(),+-*/", first) == NULL) {
        return qsi_selector_fail(scan, here(scan), "%.*s has no meaning here",
                                 (int)character_bytes(here(scan), scan->text.bytes - scan->at),
                                 (const char *)here(scan));
    }
    take(scan, QSI_TOKEN_SIGN, 1);
    return QS_OK;
}

/* ---- tokens ---- */

/* Skips white space and comments between two tokens. */
static qs_status skip(struct qsi_selector_scan *scan)
{
    for (;;) {
        const uint8_t *start = here(scan);
        uint8_t first = peek(scan, 0);
        if (first == ' ' || (first >= '\t' && first <= '\r')) {
            scan->at++;
        } else if (first == '-' && peek(scan, 1) == '-') {
            while (peek(scan, 0) != 0 && peek(scan, 0) != '\n') {
                scan->at++;
            }
        } else if (first == '/' && peek(scan, 1) == '*') {
            scan->at += 2;
            while (!(peek(scan, 0) == '*' && peek(scan, 1) == '/')) {
                if (peek(scan, 0) == 0) {
                    return qsi_selector_fail(scan, start, "a comment without */ at its end");
                }
                scan->at++;
            }
            scan->at += 2;
        } else {
            return QS_OK;
        }
    }
}

qs_status qsi_selector_scan_next(struct qsi_selector_scan *scan)
{
    uint8_t first;

    scan->previous = scan->token.text;
    QS_TRY(skip(scan));
    first = peek(scan, 0);
    if (first == 0) {
        take(scan, QSI_TOKEN_END, 0);
        return QS_OK;
    }
    if (begins_name(first)) {
        return read_word(scan);
    }
    if (is_digit(first) || (first == '.' && is_digit(peek(scan, 1)))) {
        return read_number(scan);
    }
    return first == '\'' ? read_text(scan) : read_sign(scan);
}

qs_status qsi_selector_scan_begin(struct qsi_selector_scan *scan)
{
    QS_ASSERT(scan->text.bytes <= QSI_SELECTOR_BYTES_MAX);
    QS_TRY(check_text(scan));
    scan->locale = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (scan->locale == NULL) {
        return qsi_fail(scan->error, QS_ENOMEM, "selector");
    }
    return qsi_selector_scan_next(scan);
}

void qsi_selector_scan_end(struct qsi_selector_scan *scan)
{
    if (scan->locale != NULL) {
        freelocale((locale_t)scan->locale);
        scan->locale = NULL;
    }
}
