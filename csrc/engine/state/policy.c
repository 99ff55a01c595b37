/* Queue arguments.  Each one that means something has a row in a table; all others are kept, and
 * that is all. */
#include "policy.h"

#include "qstore/qstore.h"

#include "buf.h"
#include "check.h"
#include "error.h"
#include "field_print.h"
#include "field_text.h"
#include "properties.h"
#include "stream_policy.h"

#include <stddef.h>
#include <string.h>

#define TIMER_MS_MAX UINT64_C(315360000000) /* ten years, as RabbitMQ */
#define CHOICES_MAX 3
#define QUEUE_TYPE "x-queue-type"
#define DEAD_LETTER_EXCHANGE "x-dead-letter-exchange"
#define DEAD_LETTER_KEY "x-dead-letter-routing-key"
#define SINGLE_ACTIVE "x-single-active-consumer"

struct number_argument {
    const char *name;
    size_t at; /* of a uint64_t */
    uint64_t least, most;
};

struct choice_argument {
    const char *name;
    size_t at; /* of a uint32_t, the index of the choice */
    const char *choices[CHOICES_MAX];
};

/* What the arguments say, one by one; absent is unlimited, the first choice, or a null slice. */
struct parsed {
    uint64_t message_ttl_ms, expires_ms, messages_max, body_bytes_max, deliveries_max, priority_max;
    uint32_t overflow, strategy, mode;
    struct qsi_slice dead_letter, dead_letter_key;
    bool single_active_consumer;
};

static const struct number_argument numbers[] = {
    {"x-message-ttl", offsetof(struct parsed, message_ttl_ms), 0, TIMER_MS_MAX},
    {"x-expires", offsetof(struct parsed, expires_ms), 1, TIMER_MS_MAX},
    {"x-max-length", offsetof(struct parsed, messages_max), 0, INT64_MAX},
    {"x-max-length-bytes", offsetof(struct parsed, body_bytes_max), 0, INT64_MAX},
    {"x-delivery-limit", offsetof(struct parsed, deliveries_max), 0,
     UINT8_MAX - 1}, /* the count of one too many fits */
    {"x-max-priority", offsetof(struct parsed, priority_max), 0, QSI_PRIORITY_MAX},
};

static const struct choice_argument choices[] = {
    {"x-overflow",
     offsetof(struct parsed, overflow),
     {"drop-head", "reject-publish", "reject-publish-dlx"}},
    {"x-dead-letter-strategy",
     offsetof(struct parsed, strategy),
     {"at-most-once", "at-least-once"}},
    {"x-queue-mode", offsetof(struct parsed, mode), {"default", "lazy"}},
};

static const char *const other_arguments[] = {QUEUE_TYPE, DEAD_LETTER_EXCHANGE, DEAD_LETTER_KEY,
                                              SINGLE_ACTIVE};

/* stream_policy.c reads them */
static const char *const stream_arguments[] = {"x-max-age", "x-max-messages",
                                               "x-stream-max-segment-size-bytes"};
/* store_work.c reads them */
#define SOURCE "x-stream-source"
static const char *const work_arguments[] = {SOURCE, "x-stream-pin", "x-stream-offset"};

#define COUNT(table) ((uint32_t)(sizeof(table) / sizeof(table)[0]))

const char *qs_queue_argument_name(uint32_t index)
{
    if (index < COUNT(numbers)) {
        return numbers[index].name;
    }
    index -= COUNT(numbers);
    if (index < COUNT(choices)) {
        return choices[index].name;
    }
    index -= COUNT(choices);
    if (index < COUNT(other_arguments)) {
        return other_arguments[index];
    }
    index -= COUNT(other_arguments);
    if (index < COUNT(stream_arguments)) {
        return stream_arguments[index];
    }
    index -= COUNT(stream_arguments);
    return index < COUNT(work_arguments) ? work_arguments[index] : NULL;
}

/* What asks for copies on other machines, beside a queue type. */
struct refused_argument {
    const char *name;
    bool is_prefix;
    const char *what; /* there are none here */
};

static const struct refused_argument refused[] = {
    {"ha-", true, "mirrored queues"},
    {"x-ha-", true, "mirrored queues"},
    {"x-queue-master-locator", false, "mirrored queues"},
    {"x-queue-leader-locator", false, "quorum queues"},
    {"x-quorum-", true, "quorum queues"},
};

static bool is_text(struct qsi_slice slice, const char *text)
{
    return qsi_slice_equals(slice, qsi_slice_make(text, (uint32_t)strlen(text)));
}

static qs_status invalid(const char *name, struct qsi_slice queue, const char *why, qs_error *error)
{
    return qsi_fail(error, QS_PRECONDITION_FAILED, "invalid arg '%s' for queue %.*s: %s", name,
                    (int)queue.bytes, (const char *)queue.data, why);
}

/* False: not a whole number; a timestamp is none. */
static bool read_number(const struct qsi_field *field, int64_t *number_out)
{
    struct qsi_number number;

    if (field->type == 'T' || !qsi_field_integer(field, &number)) {
        return false;
    }
    *number_out = (int64_t)number.bits;
    return true;
}

static qs_status parse_number(struct parsed *parsed, const struct number_argument *argument,
                              const struct qsi_field *field, struct qsi_slice queue,
                              qs_error *error)
{
    int64_t number;

    if (!read_number(field, &number)) {
        return invalid(argument->name, queue, "a whole number is needed", error);
    }
    if (number < 0) {
        return invalid(argument->name, queue, "it is negative", error);
    }
    if ((uint64_t)number < argument->least) {
        return invalid(argument->name, queue, "it is zero", error);
    }
    if ((uint64_t)number > argument->most) {
        return qsi_fail(error, QS_PRECONDITION_FAILED,
                        "invalid arg '%s' for queue %.*s: %lld is more than %llu", argument->name,
                        (int)queue.bytes, (const char *)queue.data, (long long)number,
                        (unsigned long long)argument->most);
    }
    *(uint64_t *)(void *)((char *)parsed + argument->at) = (uint64_t)number;
    return QS_OK;
}

static qs_status parse_choice(struct parsed *parsed, const struct choice_argument *argument,
                              const struct qsi_field *field, struct qsi_slice queue,
                              qs_error *error)
{
    const char *const *known = argument->choices;

    for (uint32_t i = 0; field->type == 'S' && i < CHOICES_MAX && known[i] != NULL; i++) {
        if (is_text(field->value, known[i])) {
            *(uint32_t *)(void *)((char *)parsed + argument->at) = i;
            return QS_OK;
        }
    }
    return qsi_fail(error, QS_PRECONDITION_FAILED,
                    "invalid arg '%s' for queue %.*s: '%s', '%s'%s%s%s is needed", argument->name,
                    (int)queue.bytes, (const char *)queue.data, known[0], known[1],
                    known[2] != NULL ? " or '" : "", known[2] != NULL ? known[2] : "",
                    known[2] != NULL ? "'" : "");
}

static qs_status parse_text(struct qsi_slice *text_out, const char *name,
                            const struct qsi_field *field, struct qsi_slice queue, qs_error *error)
{
    if (field->type != 'S' || field->value.bytes > QSI_SHORTSTR_BYTES_MAX) {
        return invalid(name, queue, "a string of at most 255 bytes is needed", error);
    }
    *text_out = field->value;
    return QS_OK;
}

static qs_status parse_field(struct parsed *parsed, const struct qsi_field *field,
                             struct qsi_slice queue, qs_error *error)
{
    for (size_t i = 0; i < COUNT(numbers); i++) {
        if (is_text(field->name, numbers[i].name)) {
            return parse_number(parsed, &numbers[i], field, queue, error);
        }
    }
    for (size_t i = 0; i < COUNT(choices); i++) {
        if (is_text(field->name, choices[i].name)) {
            return parse_choice(parsed, &choices[i], field, queue, error);
        }
    }
    if (is_text(field->name, DEAD_LETTER_EXCHANGE)) {
        return parse_text(&parsed->dead_letter, DEAD_LETTER_EXCHANGE, field, queue, error);
    }
    if (is_text(field->name, DEAD_LETTER_KEY)) {
        return parse_text(&parsed->dead_letter_key, DEAD_LETTER_KEY, field, queue, error);
    }
    if (is_text(field->name, SINGLE_ACTIVE)) {
        if (field->type != 't') {
            return invalid(SINGLE_ACTIVE, queue, "a boolean is needed", error);
        }
        parsed->single_active_consumer = field->value.data[0] != 0;
    }
    return QS_OK;
}

qs_status qsi_queue_policy_parse(struct qsi_queue_policy *policy_out, struct qsi_slice arguments,
                                 struct qsi_slice queue, qs_error *error)
{
    struct qsi_field_walk walk = qsi_table_walk(arguments);
    struct qsi_field field;
    struct parsed parsed = {
        .message_ttl_ms = QSI_UNLIMITED,
        .expires_ms = QSI_UNLIMITED,
        .messages_max = QSI_UNLIMITED,
        .body_bytes_max = QSI_UNLIMITED,
        .deliveries_max = QSI_UNLIMITED,
        .priority_max = QSI_UNLIMITED,
    };

    if (!qsi_table_check(arguments)) {
        return qsi_fail(error, QS_EINVAL, "the arguments are not an AMQP field table");
    }
    while (qsi_field_next(&walk, &field)) {
        QS_TRY(parse_field(&parsed, &field, queue, error));
    }
    if (parsed.dead_letter_key.data != NULL && parsed.dead_letter.data == NULL) {
        return invalid(DEAD_LETTER_KEY, queue, "there is no '" DEAD_LETTER_EXCHANGE "'", error);
    }
    *policy_out = (struct qsi_queue_policy){
        .message_ttl_ms = parsed.message_ttl_ms,
        .expires_ms = parsed.expires_ms,
        .messages_max = parsed.messages_max,
        .body_bytes_max = parsed.body_bytes_max,
        .deliveries_max = parsed.deliveries_max,
        .overflow = (enum qsi_overflow)parsed.overflow,
        .at_least_once = parsed.strategy == 1,
        .has_dead_letter_exchange = parsed.dead_letter.data != NULL,
        .has_dead_letter_key = parsed.dead_letter_key.data != NULL,
        .dead_letter = parsed.dead_letter,
        .dead_letter_key = parsed.dead_letter_key,
        .has_priorities = parsed.priority_max != QSI_UNLIMITED,
        .priority_max = parsed.priority_max != QSI_UNLIMITED ? (uint8_t)parsed.priority_max : 0,
        .single_active_consumer = parsed.single_active_consumer,
        .lazy = parsed.mode == 1,
    };
    return QS_OK;
}

static bool is_classic(const struct qsi_field *type)
{
    return type->type == 'S' && is_text(type->value, "classic");
}

static qs_status check_type(const struct qsi_field *type, struct qsi_slice queue, qs_error *error)
{
    if (is_classic(type) || (type->type == 'S' && is_text(type->value, "stream"))) {
        return QS_OK;
    }
    if (type->type != 'S') {
        return invalid(QUEUE_TYPE, queue, "a string is needed, 'classic' or 'stream'", error);
    }
    return qsi_fail(error, QS_PRECONDITION_FAILED,
                    "invalid arg '" QUEUE_TYPE "' for queue %.*s:"
                    " there are no '%.*s' queues here, say 'classic' or 'stream'",
                    (int)queue.bytes, (const char *)queue.data, (int)type->value.bytes,
                    (const char *)type->value.data);
}

static bool is_refused(const struct refused_argument *argument, struct qsi_slice name)
{
    uint32_t bytes = (uint32_t)strlen(argument->name);

    return argument->is_prefix
               ? name.bytes >= bytes && memcmp(name.data, argument->name, bytes) == 0
               : is_text(name, argument->name);
}

static qs_status check_name(struct qsi_slice name, struct qsi_slice queue, qs_error *error)
{
    for (size_t i = 0; i < COUNT(refused); i++) {
        if (is_refused(&refused[i], name)) {
            return qsi_fail(error, QS_PRECONDITION_FAILED,
                            "invalid arg '%.*s' for queue %.*s: there are no %s here, leave it out",
                            (int)name.bytes, (const char *)name.data, (int)queue.bytes,
                            (const char *)queue.data, refused[i].what);
        }
    }
    return QS_OK;
}

/* Whoever asks for what a stream has and does not say that it is one would wait for it in vain. */
static qs_status check_not_of_streams(struct qsi_slice name, struct qsi_slice queue,
                                      qs_error *error)
{
    for (size_t i = 0; i < COUNT(stream_arguments); i++) {
        if (is_text(name, stream_arguments[i])) {
            return qsi_fail(error, QS_PRECONDITION_FAILED,
                            "invalid arg '%s' for queue %.*s of queue type "
                            "rabbit_classic_queue",
                            stream_arguments[i], (int)queue.bytes, (const char *)queue.data);
        }
    }
    return QS_OK;
}

/* Likewise of what only a work queue has. */
static qs_status check_not_of_work(struct qsi_slice name, struct qsi_slice queue, qs_error *error)
{
    for (size_t i = 0; i < COUNT(work_arguments); i++) {
        if (is_text(name, work_arguments[i])) {
            return invalid(work_arguments[i], queue, "there is no '" SOURCE "'", error);
        }
    }
    return QS_OK;
}

/* Who asks for a quorum queue or a mirrored queue asks for copies on other machines:
 * never ignored. */
qs_status qsi_queue_type_check(struct qsi_slice arguments, struct qsi_slice queue, qs_error *error)
{
    struct qsi_field_walk walk = qsi_table_walk(arguments);
    struct qsi_field field;
    bool is_stream = qsi_is_stream_type(arguments);
    bool is_work = qsi_table_find(arguments, QSI_SLICE_LITERAL(SOURCE), &field);

    while (qsi_field_next(&walk, &field)) {
        QS_TRY(is_stream ? QS_OK : check_not_of_streams(field.name, queue, error));
        QS_TRY(is_work ? QS_OK : check_not_of_work(field.name, queue, error));
        QS_TRY(is_text(field.name, QUEUE_TYPE) ? check_type(&field, queue, error)
                                               : check_name(field.name, queue, error));
    }
    return QS_OK;
}

/* ---- declared again ---- */

static qs_status append_text(struct qsi_buf *text, const char *words)
{
    return qsi_buf_append(text, words, strlen(words));
}

/* In RabbitMQ's words: none, the value, and its type where there is no other.  field NULL: there
 * is none. */
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

/* Whole numbers are equal whatever they are wide. */
static bool is_same(const struct qsi_field *a, const struct qsi_field *b)
{
    int64_t number, other;

    if (read_number(a, &number) && read_number(b, &other)) {
        return number == other;
    }
    return a->type == b->type && qsi_slice_equals(a->value, b->value);
}

/* Arguments of one name, of which one may be missing: then the other may say what goes without
 * saying. */
static bool is_equivalent(const struct qsi_field *a, const struct qsi_field *b)
{
    const struct qsi_field *either = a != NULL ? a : b;

    if (a != NULL && b != NULL) {
        return is_same(a, b);
    }
    return is_text(either->name, QUEUE_TYPE) && is_classic(either);
}

/* What RabbitMQ compares and what means nothing here. */
static const char *const compared[] = {"x-queue-version", "x-initial-cluster-size",
                                       "x-queue-leader-locator"};

static bool is_compared(struct qsi_slice name)
{
    const char *known;

    for (uint32_t i = 0; i < COUNT(compared); i++) {
        if (is_text(name, compared[i])) {
            return true;
        }
    }
    for (uint32_t i = 0; (known = qs_queue_argument_name(i)) != NULL; i++) {
        if (is_text(name, known)) {
            return true;
        }
    }
    return false;
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
        if (!is_equivalent(old, new) && is_compared(old != NULL ? old->name : new->name)) {
            return fail_inequivalent(old, new, queue, error);
        }
        has_old = old != NULL ? qsi_field_next(&is, &old_field) : has_old;
        has_new = new != NULL ? qsi_field_next(&asked, &new_field) : has_new;
    }
    return QS_OK;
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
        if (is_text(field.name, "x-priority") && !read_number(&field, priority_out)) {
            return invalid("x-priority", queue, "a whole number is needed", error);
        }
    }
    return QS_OK;
}
