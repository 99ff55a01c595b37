/* The table of arguments.  Each argument with a meaning has a row; all others are only kept.
 * Errors of a stream that RabbitMQ (3.10) reports, too, have its texts. */
#include "arguments.h"

#include "qstore/qstore.h"

#include "argument_values.h"
#include "check.h"
#include "error.h"
#include "field_table.h"
#include "stream.h"

#include <stddef.h>
#include <string.h>

#define TIMER_MS_MAX UINT64_C(315360000000)    /* ten years, as RabbitMQ */
#define SEGMENT_BYTES_MAX UINT64_C(3000000000) /* as RabbitMQ's */
#define CHOICES_MAX 3
#define QUEUE_TYPE "x-queue-type"
#define DEAD_LETTER_EXCHANGE "x-dead-letter-exchange"
#define DEAD_LETTER_KEY "x-dead-letter-routing-key"
#define SOURCE "x-stream-source"
#define SEGMENT "x-stream-max-segment-size-bytes"
#define COUNT(table) ((uint32_t)(sizeof(table) / sizeof(table)[0]))
#define PRINT(slice) (int)(slice).bytes, (const char *)(slice).data

enum type {
    ANYTHING, /* it has no meaning here */
    NUMBER,   /* whole, least to most, at a uint64_t */
    CHOICE,   /* one of choices, its index at an enum */
    EITHER,   /* one of two choices, at a bool: whether it is the second */
    PRIORITY, /* a number, of which both fields of the policy are set */
    TEXT,     /* of at most 255 bytes, at a slice */
    BOOLEAN,  /* at a bool */
    AGE,      /* microseconds at a uint64_t */
    NAME,     /* of a stream, at a slice */
    START,    /* where a work queue begins, which its record tells */
    KIND,     /* which its record tells */
};

enum {
    CLASSIC = QSI_CLASSIC_QUEUE,
    STREAM = QSI_STREAM_QUEUE,
    WORK = QSI_WORK_QUEUE,
    QUEUES = CLASSIC | WORK,
    ALL = CLASSIC | STREAM | WORK
};

#define OF_QUEUE(field) offsetof(struct qsi_arguments, queue.field)
#define OF_STREAM(field) offsetof(struct qsi_arguments, stream.field)
#define OF_WORK(field) offsetof(struct qsi_arguments, work.field)

struct argument {
    const char *name;
    uint32_t takers; /* of QSI_CLASSIC_QUEUE and so on: other queues refuse it */
    enum type type;
    size_t at; /* in struct qsi_arguments */
    uint64_t least, most;
    const char *choices[CHOICES_MAX];
    bool is_not_compared; /* when a queue is declared again */
};

static const struct argument table[] = {
    {"x-message-ttl", CLASSIC, NUMBER, .at = OF_QUEUE(message_ttl_ms), .most = TIMER_MS_MAX},
    {"x-expires", QUEUES, NUMBER, .at = OF_QUEUE(expires_ms), .least = 1, .most = TIMER_MS_MAX},
    {"x-max-length", CLASSIC, NUMBER, .at = OF_QUEUE(messages_max), .most = INT64_MAX},
    {"x-max-length-bytes", CLASSIC, NUMBER, .at = OF_QUEUE(body_bytes_max), .most = INT64_MAX},
    {"x-max-length-bytes", STREAM, NUMBER, .at = OF_STREAM(bytes_max), .least = 1,
     .most = INT64_MAX},
    /* the count of one too many fits */
    {"x-delivery-limit", QUEUES, NUMBER, .at = OF_QUEUE(deliveries_max), .most = UINT8_MAX - 1},
    {"x-max-priority", CLASSIC, PRIORITY, .most = QSI_PRIORITY_MAX},
    {"x-overflow", CLASSIC, CHOICE, .at = OF_QUEUE(overflow),
     .choices = {"drop-head", "reject-publish", "reject-publish-dlx"}},
    {"x-dead-letter-strategy", QUEUES, EITHER, .at = OF_QUEUE(at_least_once),
     .choices = {"at-most-once", "at-least-once"}},
    {"x-queue-mode", CLASSIC, EITHER, .at = OF_QUEUE(lazy), .choices = {"default", "lazy"}},
    {QUEUE_TYPE, ALL, KIND, .at = 0},
    {DEAD_LETTER_EXCHANGE, QUEUES, TEXT, .at = OF_QUEUE(dead_letter)},
    {DEAD_LETTER_KEY, QUEUES, TEXT, .at = OF_QUEUE(dead_letter_key)},
    {"x-single-active-consumer", QUEUES, BOOLEAN, .at = OF_QUEUE(single_active_consumer)},
    {"x-persistent", CLASSIC, BOOLEAN, .at = OF_QUEUE(keeps_all), .is_not_compared = true},
    {"x-max-age", STREAM, AGE, .at = OF_STREAM(age_us_max)},
    {"x-max-messages", STREAM, NUMBER, .at = OF_STREAM(messages_max), .least = 1,
     .most = INT64_MAX},
    {SEGMENT, STREAM, NUMBER, .at = OF_STREAM(segment_bytes), .least = 1,
     .most = SEGMENT_BYTES_MAX},
    {SOURCE, WORK, NAME, .at = OF_WORK(source)},
    {"x-stream-pin", WORK, BOOLEAN, .at = OF_WORK(pins)},
    {QSI_OFFSET_ARGUMENT, WORK, START, .at = 0},
    /* Arguments that RabbitMQ compares or refuses, and that have no meaning here. */
    {"x-queue-version", QUEUES, ANYTHING, .at = 0},
    {"x-initial-cluster-size", ALL, ANYTHING, .at = 0},
    {"x-queue-leader-locator", ALL, ANYTHING, .at = 0},
    {"x-max-in-memory-length", QUEUES, ANYTHING, .is_not_compared = true},
    {"x-max-in-memory-bytes", QUEUES, ANYTHING, .is_not_compared = true},
};

/* Arguments that ask for copies on other machines, beside a queue type: never ignored. */
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

/* The row for such a queue, else another one of that name; NULL: the argument has no meaning. */
static const struct argument *find(struct qsi_slice name, uint32_t kind)
{
    const struct argument *other = NULL;

    for (uint32_t i = 0; i < COUNT(table); i++) {
        if (!qsi_is_text(name, table[i].name)) {
            continue;
        }
        if ((table[i].takers & kind) != 0) {
            return &table[i];
        }
        other = &table[i];
    }
    return other;
}

const char *qs_queue_argument_name(uint32_t index)
{
    for (uint32_t i = 0; i < COUNT(table); i++) {
        bool is_second = i > 0 && strcmp(table[i].name, table[i - 1].name) == 0;
        if (table[i].type != ANYTHING && !is_second && index-- == 0) {
            return table[i].name;
        }
    }
    return NULL;
}

bool qsi_argument_is_compared(struct qsi_slice name)
{
    const struct argument *found = find(name, ALL);

    return found != NULL && !found->is_not_compared;
}

static bool is_stream_type(struct qsi_slice arguments)
{
    struct qsi_field type;

    return qsi_table_find(arguments, QSI_SLICE_LITERAL(QUEUE_TYPE), &type) && type.type == 'S' &&
           qsi_is_text(type.value, "stream");
}

enum qsi_queue_kind qsi_arguments_kind(struct qsi_slice arguments)
{
    struct qsi_field source;

    return qsi_table_find(arguments, QSI_SLICE_LITERAL(SOURCE), &source) ? QSI_WORK_QUEUE
           : is_stream_type(arguments)                                   ? QSI_STREAM_QUEUE
                                                                         : QSI_CLASSIC_QUEUE;
}

/* ---- one argument ---- */

static qs_status parse_number(uint64_t *number_out, const struct argument *argument,
                              const struct qsi_field *field, struct qsi_slice queue,
                              qs_error *error)
{
    bool is_of_streams = argument->takers == STREAM;
    int64_t number;

    if (!qsi_argument_number(field, &number) || (is_of_streams && number < 0)) {
        return qsi_argument_invalid(argument->name, queue,
                                    is_of_streams ? "a whole number that is not negative is needed"
                                                  : "a whole number is needed",
                                    error);
    }
    if (number < 0) {
        return qsi_argument_invalid(argument->name, queue, "it is negative", error);
    }
    if ((uint64_t)number < argument->least) {
        return qsi_argument_invalid(argument->name, queue, "it is zero", error);
    }
    if ((uint64_t)number > argument->most) {
        return is_of_streams ? qsi_fail(error, QS_PRECONDITION_FAILED, "Exceeded max value for %s",
                                        argument->name)
                             : qsi_fail(error, QS_PRECONDITION_FAILED,
                                        "invalid arg '%s' for queue %.*s: %lld is more than %llu",
                                        argument->name, PRINT(queue), (long long)number,
                                        (unsigned long long)argument->most);
    }
    *number_out = (uint64_t)number;
    return QS_OK;
}

static qs_status parse_choice(uint32_t *index_out, const struct argument *argument,
                              const struct qsi_field *field, struct qsi_slice queue,
                              qs_error *error)
{
    const char *const *known = argument->choices;

    for (uint32_t i = 0; field->type == 'S' && i < CHOICES_MAX && known[i] != NULL; i++) {
        if (qsi_is_text(field->value, known[i])) {
            *index_out = i;
            return QS_OK;
        }
    }
    return qsi_fail(error, QS_PRECONDITION_FAILED,
                    "invalid arg '%s' for queue %.*s: '%s', '%s'%s%s%s is needed", argument->name,
                    PRINT(queue), known[0], known[1], known[2] != NULL ? " or '" : "",
                    known[2] != NULL ? known[2] : "", known[2] != NULL ? "'" : "");
}

static qs_status check_type(const struct qsi_field *type, struct qsi_slice queue, qs_error *error)
{
    if (type->type != 'S') {
        return qsi_argument_invalid(QUEUE_TYPE, queue, "a string is needed, 'classic' or 'stream'",
                                    error);
    }
    if (qsi_is_text(type->value, "classic") || qsi_is_text(type->value, "stream")) {
        return QS_OK;
    }
    return qsi_fail(error, QS_PRECONDITION_FAILED,
                    "invalid arg '" QUEUE_TYPE "' for queue %.*s:"
                    " there are no '%.*s' queues here, say 'classic' or 'stream'",
                    PRINT(queue), PRINT(type->value));
}

/* *out is unchanged if the value is invalid. */
static qs_status parse_value(struct qsi_arguments *out, const struct argument *argument,
                             const struct qsi_field *field, struct qsi_slice queue, qs_error *error)
{
    void *at = (char *)out + argument->at;
    struct qsi_stream_start_spec start;
    const char *needed = NULL;
    uint64_t number = 0;
    uint32_t index = 0;

    switch (argument->type) {
    case ANYTHING:
        return QS_OK;
    case KIND:
        return check_type(field, queue, error);
    case NUMBER:
        return parse_number(at, argument, field, queue, error);
    case CHOICE:
        return parse_choice(at, argument, field, queue, error);
    case EITHER:
        QS_TRY(parse_choice(&index, argument, field, queue, error));
        *(bool *)at = index == 1;
        break;
    case PRIORITY:
        QS_TRY(parse_number(&number, argument, field, queue, error));
        out->queue.has_priorities = true;
        out->queue.priority_max = (uint8_t)number;
        break;
    case TEXT:
    case NAME:
        if (field->type != 'S' ||
            (argument->type == TEXT ? field->value.bytes > 255 : field->value.bytes == 0)) {
            needed = argument->type == TEXT ? "a string of at most 255 bytes is needed"
                                            : "the name of a stream is needed";
        } else {
            *(struct qsi_slice *)at = field->value;
        }
        break;
    case BOOLEAN:
        if (field->type != 't') {
            needed = "a boolean is needed";
        } else {
            *(bool *)at = field->value.data[0] != 0;
        }
        break;
    case AGE:
        if (field->type != 'S' || !qsi_max_age_parse(field->value, &number)) {
            needed = "invalid_max_age";
        } else {
            *(uint64_t *)at = number;
        }
        break;
    case START:
        needed = qsi_stream_start_read(field, 0, &start) ? NULL : QSI_OFFSET_NEEDED;
        break;
    }
    return needed == NULL ? QS_OK : qsi_argument_invalid(argument->name, queue, needed, error);
}

/* Without the refusal, callers would wait in vain for what such a queue does not have. */
static qs_status refuse_misfit(const struct argument *argument, enum qsi_queue_kind kind,
                               struct qsi_slice queue, qs_error *error)
{
    if (kind == QSI_WORK_QUEUE) { /* the messages are the stream's, which decides */
        return qsi_argument_invalid(argument->name, queue,
                                    "a queue with '" SOURCE "' has its stream's messages", error);
    }
    if (argument->takers == WORK) {
        return qsi_argument_invalid(argument->name, queue, "there is no '" SOURCE "'", error);
    }
    return qsi_fail(error, QS_PRECONDITION_FAILED,
                    "invalid arg '%s' for queue %.*s of queue type %s", argument->name,
                    PRINT(queue),
                    kind == QSI_STREAM_QUEUE ? "rabbit_stream_queue" : "rabbit_classic_queue");
}

static qs_status parse_field(struct qsi_arguments *out, enum qsi_queue_kind kind,
                             const struct qsi_field *field, struct qsi_slice queue, qs_error *error)
{
    const struct argument *argument = find(field->name, kind);

    if (argument == NULL) {
        return QS_OK;
    }
    return (argument->takers & kind) != 0 ? parse_value(out, argument, field, queue, error)
                                          : refuse_misfit(argument, kind, queue, error);
}

/* Without arguments: numbers are unlimited, choices the first, slices null. */
static void begin(struct qsi_arguments *out)
{
    *out = (struct qsi_arguments){.queue = {.overflow = QSI_DROP_HEAD}};
    for (uint32_t i = 0; i < COUNT(table); i++) {
        if (table[i].type == NUMBER || table[i].type == AGE) {
            *(uint64_t *)(void *)((char *)out + table[i].at) = QSI_UNLIMITED;
        }
    }
}

/* Only whole segments are dropped: those of a stream with a limit are a fraction of it. */
static uint64_t follow_limit(uint64_t bytes_max)
{
    uint64_t bytes = bytes_max / QSI_STREAM_SEGMENTS_KEPT;

    return bytes < QSI_STREAM_SEGMENT_LEAST   ? QSI_STREAM_SEGMENT_LEAST
           : bytes > QSI_STREAM_SEGMENT_BYTES ? QSI_STREAM_SEGMENT_BYTES
                                              : bytes;
}

/* Sets what follows from several arguments.  Fails for a key alone, which has no meaning and is
 * treated as absent. */
static qs_status end(struct qsi_arguments *out, struct qsi_slice queue, qs_error *error)
{
    struct qsi_queue_policy *policy = &out->queue;

    policy->asks_more =
        policy->overflow != QSI_DROP_HEAD || policy->has_priorities || policy->keeps_all;
    out->stream.segments_follow = out->stream.segment_bytes == QSI_UNLIMITED;
    if (out->stream.segments_follow) {
        out->stream.segment_bytes = follow_limit(out->stream.bytes_max);
    }
    if (policy->dead_letter_key.data == NULL || policy->dead_letter.data != NULL) {
        return QS_OK;
    }
    policy->dead_letter_key = QSI_SLICE_NULL;
    return qsi_argument_invalid(DEAD_LETTER_KEY, queue, "there is no '" DEAD_LETTER_EXCHANGE "'",
                                error);
}

/* ---- declared ---- */

static bool is_refused(const struct refused_argument *argument, struct qsi_slice name)
{
    uint32_t bytes = (uint32_t)strlen(argument->name);

    return argument->is_prefix
               ? name.bytes >= bytes && memcmp(name.data, argument->name, bytes) == 0
               : qsi_is_text(name, argument->name);
}

static qs_status check_name(struct qsi_slice name, struct qsi_slice queue, qs_error *error)
{
    for (uint32_t i = 0; i < COUNT(refused); i++) {
        if (is_refused(&refused[i], name)) {
            return qsi_fail(error, QS_PRECONDITION_FAILED,
                            "invalid arg '%.*s' for queue %.*s: there are no %s here, leave it out",
                            PRINT(name), PRINT(queue), refused[i].what);
        }
    }
    return QS_OK;
}

static qs_status check_flags(enum qsi_queue_kind kind, uint32_t flags, bool is_server_named,
                             struct qsi_slice queue, qs_error *error)
{
    const char *property = (flags & QS_AUTO_DELETE) != 0 ? "auto-delete"
                           : (flags & QS_EXCLUSIVE) != 0 ? "exclusive-owner"
                           : (flags & QS_DURABLE) == 0   ? "non-durable"
                                                         : NULL;
    bool is_stream = kind == QSI_STREAM_QUEUE;

    if (kind == QSI_CLASSIC_QUEUE) {
        return QS_OK;
    }
    if (is_server_named) {
        return qsi_fail(error, QS_PRECONDITION_FAILED, "Cannot declare a server-named queue %s",
                        is_stream ? "for type rabbit_stream_queue" : "that reads a stream");
    }
    return property == NULL
               ? QS_OK
               : qsi_fail(error, QS_PRECONDITION_FAILED, "invalid property '%s' for queue %.*s%s",
                          property, PRINT(queue), is_stream ? "" : ": it reads a stream");
}

qs_status qsi_arguments_check(struct qsi_slice arguments, uint32_t flags, bool is_server_named,
                              struct qsi_slice queue, qs_error *error)
{
    struct qsi_field_walk walk = qsi_table_walk(arguments);
    struct qsi_field field;
    struct qsi_arguments read;
    enum qsi_queue_kind kind;

    if (!qsi_table_check(arguments)) {
        return qsi_fail(error, QS_EINVAL, "the arguments are not an AMQP field table");
    }
    kind = qsi_arguments_kind(arguments);
    if (kind == QSI_WORK_QUEUE && is_stream_type(arguments)) {
        return qsi_argument_invalid(SOURCE, queue, "a stream reads no other", error);
    }
    QS_TRY(check_flags(kind, flags, is_server_named, queue, error));
    begin(&read);
    while (qsi_field_next(&walk, &field)) {
        QS_TRY(check_name(field.name, queue, error));
        QS_TRY(parse_field(&read, kind, &field, queue, error));
    }
    return end(&read, queue, error);
}

/* ---- read ---- */

/* Of several errors the first is kept. */
static uint32_t count_failed(qs_status status, uint32_t before, const qs_error *found,
                             qs_error *error)
{
    if (status == QS_OK) {
        return before;
    }
    if (before == 0 && error != NULL) {
        *error = *found;
    }
    return before + 1;
}

uint32_t qsi_arguments_read(struct qsi_arguments *out, enum qsi_queue_kind kind,
                            struct qsi_slice arguments, struct qsi_slice queue, qs_error *error)
{
    struct qsi_field_walk walk = qsi_table_walk(arguments);
    struct qsi_field field;
    qs_error found;
    uint32_t ignored = 0;

    QS_DCHECK(qsi_table_check(arguments));
    begin(out);
    while (qsi_field_next(&walk, &field)) {
        ignored =
            count_failed(parse_field(out, kind, &field, queue, &found), ignored, &found, error);
    }
    ignored = count_failed(end(out, queue, &found), ignored, &found, error);
    return ignored;
}
