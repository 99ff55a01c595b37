/* Adding instructions and constants to a program. */
#include "check.h"
#include "error.h"
#include "selector_compile.h"

static qs_status no_memory(const struct qsi_compiler *compiler)
{
    return qsi_fail(compiler->scan.error, QS_ENOMEM, "selector");
}

uint32_t qsi_selector_instruction_count(const struct qsi_compiler *compiler)
{
    return (uint32_t)(compiler->selector->instructions.bytes /
                      sizeof(struct qsi_selector_instruction));
}

qs_status qsi_selector_emit(struct qsi_compiler *compiler,
                            struct qsi_selector_instruction instruction, int pushed)
{
    compiler->stack = (unsigned)((int)compiler->stack + pushed);
    QS_ASSERT(compiler->stack >= 1 && compiler->stack <= QSI_SELECTOR_STACK_MAX);
    if (qsi_buf_append(&compiler->selector->instructions, &instruction, sizeof instruction) !=
        QS_OK) {
        return no_memory(compiler);
    }
    return QS_OK;
}

qs_status qsi_selector_emit_plain(struct qsi_compiler *compiler,
                                  enum qsi_selector_operation operation, int pushed)
{
    const struct qsi_selector_instruction instruction = {.operation = (uint8_t)operation};

    return qsi_selector_emit(compiler, instruction, pushed);
}

qs_status qsi_selector_add_constant(struct qsi_compiler *compiler,
                                    const struct qsi_selector_value *constant, uint32_t *index_out)
{
    struct qsi_buf *constants = &compiler->selector->constants;

    *index_out = (uint32_t)(constants->bytes / sizeof *constant);
    return qsi_buf_append(constants, constant, sizeof *constant) == QS_OK ? QS_OK
                                                                          : no_memory(compiler);
}

qs_status qsi_selector_emit_constant(struct qsi_compiler *compiler,
                                     struct qsi_selector_value constant)
{
    struct qsi_selector_instruction instruction = {.operation = QSI_DO_CONSTANT};

    QS_TRY(qsi_selector_add_constant(compiler, &constant, &instruction.at));
    return qsi_selector_emit(compiler, instruction, 1);
}
