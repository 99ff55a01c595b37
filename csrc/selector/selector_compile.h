/* While a selector is compiled: what its parts share. */
#ifndef QSI_SELECTOR_COMPILE_H
#define QSI_SELECTOR_COMPILE_H

#include "selector_program.h"
#include "selector_scan.h"

struct qsi_compiler {
    struct qsi_selector_scan scan;
    struct qsi_selector *selector;
    unsigned depth;
    unsigned stack; /* values on it at this place of the program */
};

/* ---- selector_emit.c; all of them QS_ENOMEM ---- */

uint32_t qsi_selector_instruction_count(const struct qsi_compiler *compiler);
/* pushed: how many values more are on the stack behind it. */
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

/* The text of the token at hand, without its quotes.  REQUIRES a QSI_TOKEN_TEXT. */
struct qsi_selector_value qsi_selector_unquote(struct qsi_compiler *compiler);
/* Reads 'pattern' [ESCAPE 'c'], which begins with the token at hand.  QS_PRECONDITION_FAILED. */
qs_status qsi_selector_read_pattern(struct qsi_compiler *compiler,
                                    struct qsi_selector_value *pattern_out) QS_MUST_CHECK;

#endif
