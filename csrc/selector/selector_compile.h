/* Compiling a selector: what selector_parse.c, which parses the text, shares with the files that
 * emit instructions and read texts. */
#ifndef QSI_SELECTOR_COMPILE_H
#define QSI_SELECTOR_COMPILE_H

#include "selector_program.h"
#include "selector_scan.h"

struct qsi_compiler {
    struct qsi_selector_scan scan;
    struct qsi_selector *selector;
    unsigned depth;
    unsigned stack; /* size of the program's stack at this point */
};

/* ---- selector_emit.c; all of them QS_ENOMEM ---- */

uint32_t qsi_selector_instruction_count(const struct qsi_compiler *compiler);
/* pushed: the change of the stack's size by the instruction. */
qs_status qsi_selector_emit(struct qsi_compiler *compiler,
                            struct qsi_selector_instruction instruction, int pushed) QS_MUST_CHECK;
qs_status qsi_selector_emit_plain(struct qsi_compiler *compiler,
                                  enum qsi_selector_operation operation, int pushed) QS_MUST_CHECK;
qs_status qsi_selector_emit_constant(struct qsi_compiler *compiler,
                                     struct qsi_selector_value constant) QS_MUST_CHECK;
qs_status qsi_selector_add_constant(struct qsi_compiler *compiler,
                                    const struct qsi_selector_value *constant,
                                    uint32_t *index_out) QS_MUST_CHECK;

/* ---- selector_texts.c ---- */

/* The current token's text without its quotes.  REQUIRES a QSI_TOKEN_TEXT. */
struct qsi_selector_value qsi_selector_unquote(struct qsi_compiler *compiler);
/* Reads 'pattern' [ESCAPE 'c'], which begins with the current token.  QS_PRECONDITION_FAILED. */
qs_status qsi_selector_read_pattern(struct qsi_compiler *compiler,
                                    struct qsi_selector_value *pattern_out) QS_MUST_CHECK;

#endif
