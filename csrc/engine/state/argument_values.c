/* Values of arguments.  Errors that RabbitMQ (3.10) reports, too, have its texts. */
#include "argument_values.h"

#include "error.h"
#include "time_text.h"

#include <string.h>

bool qsi_is_text(struct qsi_slice slice, const char *text)
{
    return qsi_slice_equals(slice, qsi_slice_make(text, (uint32_t)strlen(text)));
}

bool qsi_argument_number(const struct qsi_field *field, int64_t *number_out)
{
    struct qsi_number number;

    if (field->type == 'T' || !qsi_field_integer(field, &number)) {
        return false;
    }
    *number_out = (int64_t)number.bits;
    return true;
}

qs_status qsi_argument_invalid(const char *name, struct qsi_slice queue, const char *why,
                               qs_error *error)
{
    return qsi_fail(error, QS_PRECONDITION_FAILED, "invalid arg '%s' for queue %.*s: %s", name,
                    (int)queue.bytes, (const char *)queue.data, why);
}

static uint64_t unit_seconds(uint8_t unit)
{
    switch (unit) {
    case 'Y':
        return UINT64_C(365) * 24 * 3600;
    case 'M':
        return UINT64_C(30) * 24 * 3600;
    case 'D':
        return UINT64_C(24) * 3600;
    case 'h':
        return 3600;
    case 'm':
        return 60;
    case 's':
        return 1;
    default:
        return 0;
    }
}

bool qsi_max_age_parse(struct qsi_slice text, uint64_t *us_out)
{
    uint64_t seconds = text.bytes < 2 ? 0 : unit_seconds(text.data[text.bytes - 1]);
    uint64_t most = seconds == 0 ? 0 : UINT64_MAX / 4 / seconds / 1000000;
    uint64_t number = 0;

    for (uint32_t i = 0; i + 1 < text.bytes; i++) {
        if (text.data[i] < '0' || text.data[i] > '9' || number > most / 10) {
            return false;
        }
        number = number * 10 + (uint64_t)(text.data[i] - '0');
    }
    *us_out = number * seconds * 1000000;
    return seconds != 0 && number > 0 && number <= most;
}

/* ---- where a reader begins ---- */

static bool parse_word(struct qsi_slice word, uint64_t now_us,
                       struct qsi_stream_start_spec *start_out)
{
    uint64_t age_us;

    if (qsi_is_text(word, "first")) {
        start_out->at = QSI_START_FIRST;
    } else if (qsi_is_text(word, "last")) {
        start_out->at = QSI_START_LAST;
    } else if (qsi_is_text(word, "next")) {
        start_out->at = QSI_START_NEXT;
    } else if (qsi_max_age_parse(word, &age_us)) {
        start_out->at = QSI_START_TIME;
        start_out->time_us = age_us < now_us ? now_us - age_us : 0;
    } else if (qsi_time_parse(word, &start_out->time_us)) {
        start_out->at = QSI_START_TIME;
    } else {
        return false;
    }
    return true;
}

bool qsi_stream_start_read(const struct qsi_field *field, uint64_t now_us,
                           struct qsi_stream_start_spec *start_out)
{
    struct qsi_number number;

    if (field->type == 'S' || field->type == 'x') {
        return parse_word(field->value, now_us, start_out);
    }
    if (!qsi_field_integer(field, &number)) {
        return false;
    }
    if (field->type == 'T') {
        start_out->at = QSI_START_TIME;
        start_out->time_us =
            number.bits > UINT64_MAX / 1000000 ? UINT64_MAX : number.bits * 1000000;
        return true;
    }
    start_out->at = number.is_negative ? QSI_START_FIRST : QSI_START_OFFSET;
    start_out->offset = number.is_negative ? 0 : number.bits;
    return true;
}

qs_status qsi_stream_start_parse(struct qsi_stream_start_spec *start_out,
                                 struct qsi_slice arguments, uint64_t now_us,
                                 struct qsi_slice queue, qs_error *error)
{
    struct qsi_field field;

    *start_out = (struct qsi_stream_start_spec){.at = QSI_START_NEXT};
    if (!qsi_table_find(arguments, QSI_SLICE_LITERAL(QSI_OFFSET_ARGUMENT), &field) ||
        qsi_stream_start_read(&field, now_us, start_out)) {
        return QS_OK;
    }
    return qsi_argument_invalid(QSI_OFFSET_ARGUMENT, queue, QSI_OFFSET_NEEDED, error);
}

/* ---- consumers ---- */

qs_status qsi_consumer_priority_parse(int64_t *priority_out, struct qsi_slice arguments,
                                      struct qsi_slice queue, qs_error *error)
{
    struct qsi_field_walk walk = qsi_table_walk(arguments);
    struct qsi_field field;

    *priority_out = 0;
    if (!qsi_table_check(arguments)) {
        return qsi_fail(error, QS_EINVAL, "the arguments are not an AMQP field table");
    }
    while (qsi_field_next(&walk, &field)) {
        if (qsi_is_text(field.name, "x-priority") && !qsi_argument_number(&field, priority_out)) {
            return qsi_argument_invalid("x-priority", queue, "a whole number is needed", error);
        }
    }
    return QS_OK;
}
