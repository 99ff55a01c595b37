/* Queues that are declared again: whether the arguments are the same. */
#include "argument_values.h"
#include "arguments.h"
#include "buf.h"
#include "check.h"
#include "error.h"
#include "field_print.h"
#include "field_table.h"
#include "field_text.h"

#include <string.h>

static qs_status append_text(struct qsi_buf *text, const char *words)
{
    return qsi_buf_append(text, words, strlen(words));
}

/* In RabbitMQ's words: none, the value, or its type if its value is not shown. field NULL: there is
 * none. */
static qs_status describe(struct qsi_buf *text, const struct qsi_field *field,
                          const struct qsi_field *other)
{
    bool tells_type = other == NULL;

    if (field == NULL) {
        return qsi_buf_append(text, "none", sizeof "none");
    }
    QS_TRY(append_text(text, tells_type ? "the value '" : "'"));
    QS_TRY(qsi_field_text_append(text, field));
    QS_TRY(append_text(text, tells_type ? "' of type '" : ""));
    QS_TRY(append_text(text, tells_type ? qsi_field_type_name(field->type) : ""));
    return qsi_buf_append(text, "'", sizeof "'");
}

static qs_status fail_inequivalent(const struct qsi_field *current,
                                   const struct qsi_field *received, struct qsi_slice queue,
                                   qs_error *error)
{
    const struct qsi_field *either = current != NULL ? current : received;
    struct qsi_buf is = {0}, asked = {0};
    qs_status status = QS_ENOMEM;

    if (describe(&is, current, received) == QS_OK && describe(&asked, received, current) == QS_OK) {
        status = QS_PRECONDITION_FAILED;
    }
    status = qsi_fail(
        error, status, "inequivalent arg '%.*s' for queue %.*s: received %s but current is %s",
        (int)either->name.bytes, (const char *)either->name.data, (int)queue.bytes,
        (const char *)queue.data, status == QS_ENOMEM ? "?" : (const char *)asked.data,
        status == QS_ENOMEM ? "?" : (const char *)is.data);
    qsi_buf_fini(&is);
    qsi_buf_fini(&asked);
    return status;
}

/* Whether both are the same time, in any form; a timestamp has no fraction to compare. */
static bool is_same_start(const struct qsi_field *a, const struct qsi_field *b)
{
    struct qsi_stream_start_spec start, other;
    uint64_t unit = a->type == 'T' || b->type == 'T' ? 1000000 : 1;

    return qsi_stream_start_read(a, UINT64_MAX, &start) &&
           qsi_stream_start_read(b, UINT64_MAX, &other) && start.at == QSI_START_TIME &&
           other.at == QSI_START_TIME && start.time_us / unit == other.time_us / unit;
}

/* Whole numbers are equal whatever their widths. */
static bool is_same(const struct qsi_field *a, const struct qsi_field *b)
{
    int64_t number, other;

    if (qsi_is_text(a->name, QSI_OFFSET_ARGUMENT) && is_same_start(a, b)) {
        return true;
    }
    if (qsi_argument_number(a, &number) && qsi_argument_number(b, &other)) {
        return number == other;
    }
    return a->type == b->type && qsi_slice_equals(a->value, b->value);
}

/* Arguments of one name, of which one may be missing: then the other may have the default value. */
static bool is_equivalent(const struct qsi_field *a, const struct qsi_field *b)
{
    const struct qsi_field *either = a != NULL ? a : b;

    if (a != NULL && b != NULL) {
        return is_same(a, b);
    }
    return qsi_is_text(either->name, "x-queue-type") && either->type == 'S' &&
           qsi_is_text(either->value, "classic");
}

qs_status qsi_queue_arguments_check(struct qsi_slice current, struct qsi_slice received,
                                    struct qsi_slice queue, qs_error *error)
{
    struct qsi_field_walk is = qsi_table_walk(current), asked = qsi_table_walk(received);
    struct qsi_field old_field, new_field;
    bool has_old, has_new;

    if (qsi_slice_equals(current, received)) {
        return QS_OK;
    }
    if (!qsi_table_check(received)) {
        return qsi_fail(error, QS_EINVAL, "the arguments are not an AMQP field table");
    }
    has_old = qsi_field_next(&is, &old_field);
    has_new = qsi_field_next(&asked, &new_field);
    while (has_old || has_new) {
        int order = !has_new   ? -1
                    : !has_old ? 1
                               : qsi_slice_compare(old_field.name, new_field.name);
        const struct qsi_field *old = order <= 0 ? &old_field : NULL;
        const struct qsi_field *new = order >= 0 ? &new_field : NULL;
        if (!is_equivalent(old, new) &&
            qsi_argument_is_compared(old != NULL ? old->name : new->name)) {
            return fail_inequivalent(old, new, queue, error);
        }
        has_old = old != NULL ? qsi_field_next(&is, &old_field) : has_old;
        has_new = new != NULL ? qsi_field_next(&asked, &new_field) : has_new;
    }
    return QS_OK;
}
