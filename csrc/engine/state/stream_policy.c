/* Arguments of streams.  What RabbitMQ (3.10) refuses is refused in its words. */
#include "stream_policy.h"

#include "qstore/qstore.h"

#include "check.h"
#include "error.h"
#include "policy.h"
#include "properties.h"
#include "time_text.h"

#include <string.h>

#define COUNT(table) ((uint32_t)(sizeof(table) / sizeof(table)[0]))
#define MAX_AGE "x-max-age"
#define MAX_BYTES "x-max-length-bytes"
#define MAX_MESSAGES "x-max-messages"
#define SEGMENT_BYTES "x-stream-max-segment-size-bytes"
#define SEGMENT_BYTES_DEFAULT UINT64_C(500000000)
#define SEGMENT_BYTES_MAX UINT64_C(3000000000) /* as RabbitMQ's */
#define OFFSET "x-stream-offset"
#define PRINT(slice) (int)(slice).bytes, (const char *)(slice).data

static bool is_text(struct qsi_slice slice, const char *text)
{
    return qsi_slice_equals(slice, qsi_slice_make(text, (uint32_t)strlen(text)));
}

bool qsi_is_stream_type(struct qsi_slice arguments)
{
    struct qsi_field type;

    return qsi_table_find(arguments, QSI_SLICE_LITERAL("x-queue-type"), &type) &&
           type.type == 'S' && is_text(type.value, "stream");
}

/* ---- what no stream has ---- */

static qs_status check_flags(uint32_t flags, bool is_server_named, struct qsi_slice queue,
                             qs_error *error)
{
    const char *property = (flags & QS_AUTO_DELETE) != 0 ? "auto-delete"
                           : (flags & QS_EXCLUSIVE) != 0 ? "exclusive-owner"
                           : (flags & QS_DURABLE) == 0   ? "non-durable"
                                                         : NULL;

    if (is_server_named) {
        return qsi_fail(error, QS_PRECONDITION_FAILED,
                        "Cannot declare a server-named queue for type rabbit_stream_queue");
    }
    if (property != NULL) {
        return qsi_fail(error, QS_PRECONDITION_FAILED, "invalid property '%s' for queue %.*s",
                        property, PRINT(queue));
    }
    return QS_OK;
}

static qs_status check_name(struct qsi_slice name, struct qsi_slice queue, qs_error *error)
{
    static const char *const refused[] = {
        "x-message-ttl",
        "x-expires",
        "x-max-length",
        "x-max-priority",
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-dead-letter-strategy",
        "x-single-active-consumer",
        "x-overflow",
        "x-queue-mode",
        "x-queue-version",
        "x-delivery-limit",
        "x-max-in-memory-length",
        "x-max-in-memory-bytes",
    };

    for (uint32_t i = 0; i < COUNT(refused); i++) {
        if (is_text(name, refused[i])) {
            return qsi_fail(error, QS_PRECONDITION_FAILED,
                            "invalid arg '%s' for queue %.*s of queue type "
                            "rabbit_stream_queue",
                            refused[i], PRINT(queue));
        }
    }
    return QS_OK;
}

/* ---- values ---- */

static bool read_number(const struct qsi_field *field, uint64_t *number_out)
{
    struct qsi_number number;

    if (field->type == 'T' || !qsi_field_integer(field, &number) || number.is_negative ||
        number.bits > INT64_MAX) {
        return false;
    }
    *number_out = number.bits;
    return true;
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

static qs_status invalid(const char *name, struct qsi_slice queue, const char *why, qs_error *error)
{
    return qsi_fail(error, QS_PRECONDITION_FAILED, "invalid arg '%s' for queue %.*s: %s", name,
                    PRINT(queue), why);
}

static qs_status check_number(const struct qsi_field *field, const char *name,
                              struct qsi_slice queue, qs_error *error)
{
    uint64_t number;

    if (!read_number(field, &number)) {
        return invalid(name, queue, "a whole number that is not negative is needed", error);
    }
    return number > 0 ? QS_OK : invalid(name, queue, "it is zero", error);
}

static qs_status check_segment_bytes(const struct qsi_field *field, struct qsi_slice queue,
                                     qs_error *error)
{
    uint64_t bytes = 0;

    QS_TRY(check_number(field, SEGMENT_BYTES, queue, error));
    if (read_number(field, &bytes) && bytes > SEGMENT_BYTES_MAX) {
        return qsi_fail(error, QS_PRECONDITION_FAILED, "Exceeded max value for " SEGMENT_BYTES);
    }
    return QS_OK;
}

static qs_status check_field(const struct qsi_field *field, struct qsi_slice queue, qs_error *error)
{
    uint64_t age_us;

    if (is_text(field->name, MAX_AGE)) {
        return field->type == 'S' && qsi_max_age_parse(field->value, &age_us)
                   ? QS_OK
                   : invalid(MAX_AGE, queue, "invalid_max_age", error);
    }
    if (is_text(field->name, MAX_BYTES)) {
        return check_number(field, MAX_BYTES, queue, error);
    }
    if (is_text(field->name, MAX_MESSAGES)) {
        return check_number(field, MAX_MESSAGES, queue, error);
    }
    if (is_text(field->name, SEGMENT_BYTES)) {
        return check_segment_bytes(field, queue, error);
    }
    return check_name(field->name, queue, error);
}

qs_status qsi_stream_policy_check(struct qsi_slice arguments, uint32_t flags, bool is_server_named,
                                  struct qsi_slice queue, qs_error *error)
{
    struct qsi_field_walk walk = qsi_table_walk(arguments);
    struct qsi_field field;

    QS_TRY(check_flags(flags, is_server_named, queue, error));
    while (qsi_field_next(&walk, &field)) {
        QS_TRY(check_field(&field, queue, error));
    }
    return QS_OK;
}

static uint64_t number_of(struct qsi_slice arguments, const char *name, uint64_t otherwise)
{
    struct qsi_field field;
    uint64_t number;

    return qsi_table_find(arguments, qsi_slice_make(name, (uint32_t)strlen(name)), &field) &&
                   read_number(&field, &number)
               ? number
               : otherwise;
}

void qsi_stream_policy_parse(struct qsi_stream_policy *policy_out, struct qsi_slice arguments)
{
    struct qsi_field age;
    uint64_t age_us = QSI_UNLIMITED;

    if (qsi_table_find(arguments, QSI_SLICE_LITERAL(MAX_AGE), &age) &&
        (age.type != 'S' || !qsi_max_age_parse(age.value, &age_us))) {
        age_us = QSI_UNLIMITED;
    }
    *policy_out = (struct qsi_stream_policy){
        .age_us_max = age_us,
        .bytes_max = number_of(arguments, MAX_BYTES, QSI_UNLIMITED),
        .messages_max = number_of(arguments, MAX_MESSAGES, QSI_UNLIMITED),
        .segment_bytes = number_of(arguments, SEGMENT_BYTES, SEGMENT_BYTES_DEFAULT),
    };
}

/* ---- where a reader begins ---- */

static bool parse_word(struct qsi_slice word, uint64_t now_us,
                       struct qsi_stream_start_spec *start_out)
{
    uint64_t age_us;

    if (is_text(word, "first")) {
        start_out->at = QSI_START_FIRST;
    } else if (is_text(word, "last")) {
        start_out->at = QSI_START_LAST;
    } else if (is_text(word, "next")) {
        start_out->at = QSI_START_NEXT;
    } else if (qsi_max_age_parse(word, &age_us)) {
        start_out->at = QSI_START_TIME;
        start_out->time_us = age_us < now_us ? now_us - age_us : 0;
    } else {
        return false;
    }
    return true;
}

qs_status qsi_stream_start_parse(struct qsi_stream_start_spec *start_out,
                                 struct qsi_slice arguments, uint64_t now_us,
                                 struct qsi_slice queue, qs_error *error)
{
    struct qsi_field field;
    struct qsi_number number;
    bool is_word;

    *start_out = (struct qsi_stream_start_spec){.at = QSI_START_NEXT};
    if (!qsi_table_find(arguments, QSI_SLICE_LITERAL(OFFSET), &field)) {
        return QS_OK;
    }
    is_word = field.type == 'S' || field.type == 'x';
    if (is_word && parse_word(field.value, now_us, start_out)) {
        return QS_OK;
    }
    if (is_word && qsi_time_parse(field.value, &start_out->time_us)) {
        start_out->at = QSI_START_TIME;
        return QS_OK;
    }
    if (is_word || !qsi_field_integer(&field, &number)) {
        return invalid(OFFSET, queue,
                       "'first', 'last', 'next', an offset, a timestamp, a time such as "
                       "'2026-01-31T12:00:00.5Z', or a time before now such as '1h' is needed",
                       error);
    }
    if (field.type == 'T') {
        start_out->at = QSI_START_TIME;
        start_out->time_us =
            number.bits > UINT64_MAX / 1000000 ? UINT64_MAX : number.bits * 1000000;
        return QS_OK;
    }
    start_out->at = number.is_negative ? QSI_START_FIRST : QSI_START_OFFSET;
    start_out->offset = number.is_negative ? 0 : number.bits;
    return QS_OK;
}
