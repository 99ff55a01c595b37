/* Queue arguments: what each may be, and what it says when it is not. */
#include "qstore/qstore.h"

#include "argument_values.h"
#include "arguments.h"
#include "check.h"
#include "error.h"
#include "qs_test_fields.h"

static qs_status parse(const struct qs_test_fields *table, struct qsi_queue_policy *policy_out,
                       qs_error *error)
{
    struct qsi_slice slice = qsi_slice_make(table->bytes, table->used);
    struct qsi_arguments arguments;

    QS_TRY(qsi_arguments_check(slice, 0, false, QSI_SLICE_LITERAL("'orders'"), error));
    QS_CHECK(qsi_arguments_read(&arguments, QSI_CLASSIC_QUEUE, slice, QSI_SLICE_NULL, NULL) == 0);
    *policy_out = arguments.queue;
    return QS_OK;
}

static uint32_t read_as(const struct qs_test_fields *table, enum qsi_queue_kind kind,
                        struct qsi_arguments *out, qs_error *error)
{
    return qsi_arguments_read(out, kind, qsi_slice_make(table->bytes, table->used),
                              QSI_SLICE_LITERAL("'orders'"), error);
}

QS_TEST(test_no_arguments_ask_for_nothing)
{
    struct qs_test_fields table = {.used = 0};
    struct qsi_queue_policy policy;

    QS_CHECK_OK(parse(&table, &policy, QS_ERROR));
    QS_CHECK(policy.message_ttl_ms == QSI_UNLIMITED && policy.expires_ms == QSI_UNLIMITED);
    QS_CHECK(policy.messages_max == QSI_UNLIMITED && policy.body_bytes_max == QSI_UNLIMITED);
    QS_CHECK(policy.deliveries_max == QSI_UNLIMITED && policy.overflow == QSI_DROP_HEAD);
    QS_CHECK(policy.dead_letter.data == NULL && !policy.has_priorities && !policy.lazy);
    QS_CHECK(!policy.single_active_consumer && !policy.at_least_once);
}

QS_TEST(test_each_argument_is_read)
{
    struct qs_test_fields table = qs_test_fields_of(
        "x-message-ttl=0 x-expires=1 x-max-length=7 x-max-length-bytes=8 x-delivery-limit=9 "
        "x-max-priority=255 x-overflow=reject-publish-dlx x-dead-letter-exchange= "
        "x-dead-letter-routing-key=dead x-dead-letter-strategy=at-least-once x-queue-mode=lazy");
    struct qsi_queue_policy policy;

    qs_test_put_name(&table, "x-single-active-consumer", 't');
    table.bytes[table.used++] = 1;
    qs_test_put_name(&table, "x-of-somebody-else", 'V');
    QS_CHECK_OK(parse(&table, &policy, QS_ERROR));
    QS_CHECK(policy.message_ttl_ms == 0 && policy.expires_ms == 1 && policy.messages_max == 7);
    QS_CHECK(policy.body_bytes_max == 8 && policy.deliveries_max == 9);
    QS_CHECK(policy.has_priorities && policy.priority_max == 255);
    QS_CHECK(policy.overflow == QSI_REJECT_PUBLISH_DLX && policy.at_least_once && policy.lazy);
    QS_CHECK(policy.dead_letter.data != NULL && policy.dead_letter.bytes == 0);
    QS_CHECK(policy.dead_letter_key.data != NULL && policy.dead_letter_key.bytes == 4);
    QS_CHECK(policy.single_active_consumer);
}

QS_TEST(test_every_integer_type_is_a_number)
{
    static const struct {
        uint8_t type;
        uint8_t bytes;
    } types[] = {{'b', 1}, {'B', 1}, {'s', 2}, {'u', 2}, {'I', 4}, {'i', 4}, {'l', 8}};

    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct qs_test_fields table = {.used = 0};
        struct qsi_queue_policy policy;
        qs_test_put_name(&table, "x-max-length", types[i].type);
        memset(table.bytes + table.used, 0, types[i].bytes);
        table.used += types[i].bytes;
        table.bytes[table.used - 1] = 100;
        QS_CHECK_OK(parse(&table, &policy, QS_ERROR));
        QS_CHECK(policy.messages_max == 100);
    }
}

static void check_refused(const struct qs_test_fields *table, const char *text)
{
    struct qsi_queue_policy policy;
    qs_error error;

    QS_CHECK(parse(table, &policy, &error) == QS_PRECONDITION_FAILED);
    QS_CHECK(strstr(error.text, text) != NULL);
}

QS_TEST(test_what_an_argument_cannot_be_is_refused_by_name)
{
    static const struct {
        const char *name;
        int64_t value;
        const char *text;
    } numbers[] = {
        {"x-message-ttl", -1, "invalid arg 'x-message-ttl' for queue 'orders': it is negative"},
        {"x-message-ttl", INT64_C(315360000001), "315360000001 is more than 315360000000"},
        {"x-expires", 0, "it is zero"},
        {"x-max-length", -5, "it is negative"},
        {"x-max-priority", 256, "256 is more than 255"},
    };

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct qs_test_fields table = {.used = 0};
        qs_test_put_long(&table, numbers[i].name, numbers[i].value);
        check_refused(&table, numbers[i].text);
    }
    struct qs_test_fields words = qs_test_fields_of("x-overflow=drop");
    check_refused(&words, "'drop-head', 'reject-publish' or 'reject-publish-dlx' is needed");
    struct qs_test_fields text = {.used = 0};
    qs_test_put_text(&text, "x-max-length", "5");
    check_refused(&text, "a whole number is needed");
    struct qs_test_fields key = qs_test_fields_of("x-dead-letter-routing-key=k");
    check_refused(&key, "there is no 'x-dead-letter-exchange'");
    struct qs_test_fields exchange = qs_test_fields_of("x-dead-letter-exchange=5");
    check_refused(&exchange, "a string of at most 255 bytes is needed");
}

static qs_status check_declared(const struct qs_test_fields *table, qs_error *error)
{
    return qsi_arguments_check(qsi_slice_make(table->bytes, table->used), QS_DURABLE, false,
                               QSI_SLICE_LITERAL("'orders'"), error);
}

static qs_status check_type(const struct qs_test_fields *table, qs_error *error)
{
    return qsi_arguments_check(qsi_slice_make(table->bytes, table->used), 0, false,
                               QSI_SLICE_LITERAL("'orders'"), error);
}

QS_TEST(test_only_classic_queues_and_streams_can_be_had)
{
    static const char *const others[] = {"quorum", "Stream", "Classic", "classical", ""};
    struct qs_test_fields none = {.used = 0}, classic = {.used = 0}, number = {.used = 0};
    struct qsi_arguments arguments;
    qs_error error;

    QS_CHECK_OK(check_type(&none, QS_ERROR));
    qs_test_put_long(&classic, "x-max-length", 7);
    qs_test_put_text(&classic, "x-queue-type", "classic");
    QS_CHECK_OK(check_type(&classic, QS_ERROR));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct qs_test_fields table = {.used = 0};
        char words[128];
        qs_test_put_text(&table, "x-queue-type", others[i]);
        QS_CHECK(check_type(&table, &error) == QS_PRECONDITION_FAILED);
        snprintf(words, sizeof words,
                 "invalid arg 'x-queue-type' for queue 'orders': there are no '%s' queues here,"
                 " say 'classic' or 'stream'",
                 others[i]);
        QS_CHECK(strcmp(error.text, words) == 0);
        /* A store that has one opens. */
        QS_CHECK(read_as(&table, QSI_CLASSIC_QUEUE, &arguments, &error) == 1);
    }
    qs_test_put_long(&number, "x-queue-type", 1);
    QS_CHECK(check_type(&number, &error) == QS_PRECONDITION_FAILED);
    QS_CHECK(strcmp(error.text, "invalid arg 'x-queue-type' for queue 'orders': a string is needed,"
                                " 'classic' or 'stream'") == 0);
}

static qs_status check_again(uint8_t type, uint8_t bytes, uint8_t number)
{
    struct qs_test_fields is = {.used = 0}, asked = {.used = 0};
    qs_error error;

    qs_test_put_long(&is, "x-max-length", 100);
    qs_test_put_name(&asked, "x-max-length", type);
    memset(asked.bytes + asked.used, 0, bytes);
    asked.used += bytes;
    asked.bytes[asked.used - 1] = number;
    return qsi_queue_arguments_check(qsi_slice_make(is.bytes, is.used),
                                     qsi_slice_make(asked.bytes, asked.used),
                                     QSI_SLICE_LITERAL("'orders'"), &error);
}

QS_TEST(test_a_classic_queue_is_one_whether_it_says_so_or_not)
{
    struct qs_test_fields plain = {.used = 0}, classic = {.used = 0}, quorum = {.used = 0};
    struct qs_test_fields *tables[] = {&plain, &classic, &quorum};
    qs_error error;

    qs_test_put_text(&classic, "x-queue-type", "classic");
    qs_test_put_text(&quorum, "x-queue-type", "quorum");
    for (size_t i = 0; i < 3; i++) {
        qs_test_put_long(tables[i], "x-tail", 1);
    }
    for (size_t i = 0; i < 9; i++) {
        const struct qs_test_fields *is = tables[i / 3], *asked = tables[i % 3];
        qs_status status = qsi_queue_arguments_check(qsi_slice_make(is->bytes, is->used),
                                                     qsi_slice_make(asked->bytes, asked->used),
                                                     QSI_SLICE_LITERAL("'orders'"), &error);
        QS_CHECK((status == QS_OK) == ((is == &quorum) == (asked == &quorum)));
    }
    QS_CHECK(strstr(error.text, "received 'classic' but current is 'quorum'") != NULL);
}

QS_TEST(test_a_number_is_the_same_in_any_width)
{
    QS_CHECK(check_again('b', 1, 100) == QS_OK);
    QS_CHECK(check_again('I', 4, 100) == QS_OK);
    QS_CHECK(check_again('I', 4, 101) == QS_PRECONDITION_FAILED);
    QS_CHECK(check_again('d', 8, 100) == QS_PRECONDITION_FAILED);
}

QS_TEST(test_bytes_that_are_no_table_are_refused)
{
    struct qs_test_fields table = {.used = 3};
    struct qsi_queue_policy policy;

    table.bytes[0] = 200;
    QS_CHECK(parse(&table, &policy, QS_ERROR) == QS_EINVAL);
}

/* Values that some argument may have, and others may not. */
static void put_value(struct qs_test_fields *table, const char *name, int which)
{
    switch (which) {
    case 0:
        qs_test_put_long(table, name, -1);
        break;
    case 1:
        qs_test_put_long(table, name, INT64_MAX);
        break;
    case 2:
        qs_test_put_text(table, name, "");
        break;
    case 3:
        qs_test_put_text(table, name, "2h");
        break;
    case 4:
        qs_test_put_text(table, name, "reject-publish");
        break;
    case 5:
        qs_test_put_name(table, name, 't');
        table->bytes[table->used++] = 1;
        break;
    default:
        qs_test_put_name(table, name, 'V');
    }
}

static void check_same(const struct qsi_arguments *a, const struct qsi_arguments *b)
{
    QS_CHECK(a->queue.message_ttl_ms == b->queue.message_ttl_ms);
    QS_CHECK(a->queue.expires_ms == b->queue.expires_ms);
    QS_CHECK(a->queue.messages_max == b->queue.messages_max);
    QS_CHECK(a->queue.body_bytes_max == b->queue.body_bytes_max);
    QS_CHECK(a->queue.deliveries_max == b->queue.deliveries_max);
    QS_CHECK(a->queue.overflow == b->queue.overflow && a->queue.lazy == b->queue.lazy);
    QS_CHECK(a->queue.at_least_once == b->queue.at_least_once);
    QS_CHECK(a->queue.dead_letter.data == b->queue.dead_letter.data);
    QS_CHECK(a->queue.dead_letter_key.data == b->queue.dead_letter_key.data);
    QS_CHECK(a->queue.has_priorities == b->queue.has_priorities);
    QS_CHECK(a->queue.single_active_consumer == b->queue.single_active_consumer);
    QS_CHECK(a->stream.age_us_max == b->stream.age_us_max);
    QS_CHECK(a->stream.bytes_max == b->stream.bytes_max);
    QS_CHECK(a->stream.messages_max == b->stream.messages_max);
    QS_CHECK(a->stream.segment_bytes == b->stream.segment_bytes);
    QS_CHECK(a->work.pins == b->work.pins);
}

/* With each argument, each value, and each kind of queue: what a declaration refuses is ignored
 * where it is stored, and told. */
QS_TEST(test_what_is_refused_is_ignored_where_it_is_stored)
{
    static const enum qsi_queue_kind kinds[] = {QSI_CLASSIC_QUEUE, QSI_STREAM_QUEUE,
                                                QSI_WORK_QUEUE};
    const char *name;

    for (uint32_t i = 0; (name = qs_queue_argument_name(i)) != NULL; i++) {
        for (int at = 0; at < 3 * 7; at++) {
            enum qsi_queue_kind kind = kinds[at / 7];
            struct qs_test_fields table = {.used = 0};
            struct qsi_arguments read, alone;
            qs_error told = {0}, error = {0};
            bool is_source = strcmp(name, "x-stream-source") == 0;

            if (kind == QSI_STREAM_QUEUE) {
                qs_test_put_text(&table, "x-queue-type", "stream");
            } else if (kind == QSI_WORK_QUEUE && !is_source) {
                qs_test_put_text(&table, "x-stream-source", "log");
            }
            QS_CHECK(read_as(&table, kind, &alone, NULL) == 0);
            put_value(&table, name, at % 7);
            if (strcmp(name, "x-queue-type") == 0 || (is_source && kind != QSI_WORK_QUEUE)) {
                continue; /* it makes another kind of it */
            }
            if (check_declared(&table, &error) == QS_OK) {
                QS_CHECK(read_as(&table, kind, &read, &told) == 0);
                continue;
            }
            QS_CHECK(read_as(&table, kind, &read, &told) == 1);
            QS_CHECK(strcmp(told.text, error.text) == 0);
            check_same(&read, &alone);
        }
    }
}
