/* Texts and patterns of a selector. */
#include "check.h"
#include "selector_compile.h"

/* Appends an unquoted byte.  There is room: unquoted text is not longer than quoted text. */
static void put_unquoted(struct qsi_selector *selector, uint8_t byte)
{
    QS_ASSERT(selector->unquoted_bytes < selector->text_bytes);
    selector->unquoted[selector->unquoted_bytes++] = byte;
}

static struct qsi_selector_value end_unquoted(const struct qsi_compiler *compiler, uint32_t start)
{
    const struct qsi_selector *selector = compiler->selector;

    return (struct qsi_selector_value){
        .kind = QSI_VALUE_TEXT,
        .as.text = qsi_slice_make(selector->unquoted + start, selector->unquoted_bytes - start),
    };
}

struct qsi_selector_value qsi_selector_unquote(struct qsi_compiler *compiler)
{
    struct qsi_slice text = compiler->scan.token.text;
    uint32_t start = compiler->selector->unquoted_bytes;

    QS_ASSERT(compiler->scan.token.kind == QSI_TOKEN_TEXT && text.bytes >= 2);
    for (uint32_t at = 1; at < text.bytes - 1; at++) {
        put_unquoted(compiler->selector, text.data[at]);
        at += text.data[at] == '\'' ? 1 : 0; /* skips the second of two quotes */
    }
    return end_unquoted(compiler, start);
}

/* The bytes of the character at at, in checked UTF-8. */
static uint32_t character_bytes(struct qsi_slice text, uint32_t at)
{
    uint32_t bytes = 1;

    while (at + bytes < text.bytes && (text.data[at + bytes] & 0xc0) == 0x80) {
        bytes++;
    }
    return bytes;
}

static bool is_escape(struct qsi_slice text, uint32_t at, struct qsi_slice escape)
{
    return escape.bytes > 0 && escape.bytes <= text.bytes - at &&
           memcmp(text.data + at, escape.data, escape.bytes) == 0;
}

/* Replaces wildcards by bytes that do not occur in UTF-8.  quoted: for errors.  The pattern is
 * written over the text, which is not shorter. */
static qs_status make_pattern(const struct qsi_compiler *compiler, struct qsi_slice *text_io,
                              struct qsi_slice escape, const uint8_t *quoted)
{
    static const uint8_t any = QSI_PATTERN_ANY, one = QSI_PATTERN_ONE;
    struct qsi_slice text = *text_io;
    uint8_t *out = (uint8_t *)(uintptr_t)text.data;
    uint32_t bytes, made = 0;

    for (uint32_t at = 0; at < text.bytes; at += bytes) {
        bytes = character_bytes(text, at);
        if (is_escape(text, at, escape)) {
            at += escape.bytes;
            if (at == text.bytes) {
                return qsi_selector_fail(&compiler->scan, quoted,
                                         "the pattern ends with its escape character");
            }
            bytes = character_bytes(text, at);
        } else if (text.data[at] == '%' || text.data[at] == '_') {
            out[made++] = text.data[at] == '%' ? any : one;
            continue;
        }
        memmove(out + made, text.data + at, bytes);
        made += bytes;
    }
    text_io->bytes = made;
    return QS_OK;
}

qs_status qsi_selector_read_pattern(struct qsi_compiler *compiler,
                                    struct qsi_selector_value *pattern_out)
{
    const uint8_t *quoted = compiler->scan.token.text.data;
    struct qsi_slice escape = QSI_SLICE_NULL;

    if (compiler->scan.token.kind != QSI_TOKEN_TEXT) {
        return qsi_selector_fail_expected(&compiler->scan, "a 'pattern'");
    }
    *pattern_out = qsi_selector_unquote(compiler);
    QS_TRY(qsi_selector_scan_next(&compiler->scan));
    if (compiler->scan.token.kind == QSI_TOKEN_ESCAPE) {
        QS_TRY(qsi_selector_scan_next(&compiler->scan));
        if (compiler->scan.token.kind != QSI_TOKEN_TEXT) {
            return qsi_selector_fail_expected(&compiler->scan, "an 'escape character'");
        }
        escape = qsi_selector_unquote(compiler).as.text;
        if (escape.bytes == 0 || character_bytes(escape, 0) != escape.bytes) {
            return qsi_selector_fail(&compiler->scan, compiler->scan.token.text.data,
                                     "ESCAPE takes one character");
        }
        QS_TRY(qsi_selector_scan_next(&compiler->scan));
    }
    return make_pattern(compiler, &pattern_out->as.text, escape, quoted);
}
