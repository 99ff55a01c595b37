/* Arguments of streams: what each may be, and RabbitMQ's words for what it may not. */
#include "qstore/qstore.h"

#include "argument_values.h"
#include "arguments.h"
#include "qs_test_fields.h"

#define SECOND UINT64_C(1000000)

static struct qsi_slice slice_of(const struct qs_test_fields *table)
{
    return qsi_slice_make(table->bytes, table->used);
}

static struct qsi_slice name(void)
{
    return QSI_SLICE_LITERAL("'q' in this store");
}

static const struct qs_test_fields *as_stream(const struct qs_test_fields *table)
{
    static struct qs_test_fields typed;

    typed = *table;
    if (qsi_arguments_kind(slice_of(&typed)) != QSI_STREAM_QUEUE) {
        qs_test_put_text(&typed, "x-queue-type", "stream");
    }
    return &typed;
}

static struct qsi_stream_policy read_policy(const struct qs_test_fields *table)
{
    struct qsi_arguments arguments;

    QS_CHECK(qsi_arguments_read(&arguments, QSI_STREAM_QUEUE, slice_of(table), name(), NULL) == 0);
    return arguments.stream;
}

static void check_refused(const struct qs_test_fields *table, uint32_t flags, bool is_server_named,
                          const char *words)
{
    qs_error error = {0};

    QS_CHECK(qsi_arguments_check(slice_of(as_stream(table)), flags, is_server_named, name(),
                                 &error) == QS_PRECONDITION_FAILED);
    if (strcmp(error.text, words) != 0) {
        fprintf(stderr, "%s\n", error.text);
    }
    QS_CHECK(strcmp(error.text, words) == 0);
}

QS_TEST(test_flags_that_no_stream_has_are_refused)
{
    const struct qs_test_fields none = {.used = 0};

    check_refused(&none, 0, false, "invalid property 'non-durable' for queue 'q' in this store");
    check_refused(&none, QS_EXCLUSIVE, false,
                  "invalid property 'exclusive-owner' for queue 'q' in this store");
    check_refused(&none, QS_DURABLE | QS_AUTO_DELETE, false,
                  "invalid property 'auto-delete' for queue 'q' in this store");
    check_refused(&none, QS_DURABLE, true,
                  "Cannot declare a server-named queue for type rabbit_stream_queue");
    QS_CHECK_OK(
        qsi_arguments_check(slice_of(as_stream(&none)), QS_DURABLE, false, name(), QS_ERROR));
}

QS_TEST(test_arguments_that_no_stream_has_are_refused)
{
    static const char *const names[] = {
        "x-message-ttl",
        "x-expires",
        "x-max-length",
        "x-max-priority",
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-overflow",
        "x-single-active-consumer",
        "x-queue-mode",
        "x-delivery-limit",
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct qs_test_fields table = {.used = 0};
        char words[128];
        qs_test_put_long(&table, names[i], 1);
        snprintf(words, sizeof words,
                 "invalid arg '%s' for queue 'q' in this store of queue type rabbit_stream_queue",
                 names[i]);
        check_refused(&table, QS_DURABLE, false, words);
    }
}

QS_TEST(test_values_that_cannot_be_are_refused)
{
    static const char *const ages[] = {"",    "7",   "D",    "0D",  "7d",
                                       "7DD", "-7D", "1.5h", "7 D", "99999999999999999999Y"};
    struct qs_test_fields large = {.used = 0}, zero = {.used = 0}, negative = {.used = 0};

    for (size_t i = 0; i < sizeof ages / sizeof ages[0]; i++) {
        struct qs_test_fields table = {.used = 0};
        qs_test_put_text(&table, "x-max-age", ages[i]);
        check_refused(&table, QS_DURABLE, false,
                      "invalid arg 'x-max-age' for queue 'q' in this store: invalid_max_age");
    }
    qs_test_put_long(&large, "x-stream-max-segment-size-bytes", INT64_C(3000000001));
    check_refused(&large, QS_DURABLE, false,
                  "Exceeded max value for x-stream-max-segment-size-bytes");
    qs_test_put_long(&zero, "x-stream-max-segment-size-bytes", 0);
    check_refused(
        &zero, QS_DURABLE, false,
        "invalid arg 'x-stream-max-segment-size-bytes' for queue 'q' in this store: it is zero");
    for (int i = 0; i < 2; i++) { /* no limit is no argument */
        static const char *const names[] = {"x-max-length-bytes", "x-max-messages"};
        struct qs_test_fields none = {.used = 0};
        char expected[100];
        qs_test_put_long(&none, names[i], 0);
        snprintf(expected, sizeof expected,
                 "invalid arg '%s' for queue 'q' in this store: it is zero", names[i]);
        check_refused(&none, QS_DURABLE, false, expected);
    }
    qs_test_put_long(&negative, "x-max-length-bytes", -1);
    check_refused(
        &negative, QS_DURABLE, false,
        "invalid arg 'x-max-length-bytes' for queue 'q' in this store: a whole number that is not "
        "negative is needed");
}

QS_TEST(test_each_argument_is_read)
{
    struct qs_test_fields table = {.used = 0};
    struct qsi_stream_policy policy = read_policy(&table);

    QS_CHECK(policy.age_us_max == QSI_UNLIMITED && policy.bytes_max == QSI_UNLIMITED);
    QS_CHECK(policy.messages_max == QSI_UNLIMITED && policy.segment_bytes == 500000000);
    QS_CHECK(qsi_arguments_kind(slice_of(&table)) == QSI_CLASSIC_QUEUE);
    qs_test_put_text(&table, "x-queue-type", "stream");
    qs_test_put_text(&table, "x-max-age", "2h");
    qs_test_put_long(&table, "x-max-length-bytes", 20000000000);
    qs_test_put_long(&table, "x-max-messages", 7);
    qs_test_put_long(&table, "x-stream-max-segment-size-bytes", 100000);
    qs_test_put_long(&table, "x-initial-cluster-size", 1);
    QS_CHECK(qsi_arguments_kind(slice_of(&table)) == QSI_STREAM_QUEUE);
    QS_CHECK_OK(qsi_arguments_check(slice_of(&table), QS_DURABLE, false, name(), QS_ERROR));
    policy = read_policy(&table);
    QS_CHECK(policy.age_us_max == 7200 * SECOND && policy.bytes_max == 20000000000);
    QS_CHECK(policy.messages_max == 7 && policy.segment_bytes == 100000);
}

/* Left out, a segment is an eighth of the limit, but neither tiny nor huge. */
QS_TEST(test_a_segment_follows_the_limit_of_bytes)
{
    static const struct {
        int64_t limit;
        uint64_t segment;
    } cases[] = {{1, 1 << 20},
                 {8 << 20, 1 << 20},
                 {80 << 20, 10 << 20},
                 {INT64_C(4000000000), 500000000},
                 {INT64_MAX, 500000000}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct qs_test_fields table = {.used = 0};
        struct qsi_stream_policy policy;

        qs_test_put_long(&table, "x-max-length-bytes", cases[i].limit);
        policy = read_policy(&table);
        QS_CHECK(policy.segment_bytes == cases[i].segment && policy.segments_follow);
        qs_test_put_long(&table, "x-stream-max-segment-size-bytes", 7);
        policy = read_policy(&table);
        QS_CHECK(policy.segment_bytes == 7 && !policy.segments_follow);
    }
}

QS_TEST(test_ages_have_rabbits_units)
{
    static const struct {
        const char *text;
        uint64_t seconds;
    } ages[] = {{"3s", 3},
                {"2m", 120},
                {"1h", 3600},
                {"1D", 24 * 3600},
                {"1M", 30 * 86400},
                {"1Y", 365 * 86400},
                {"100Y", 36500ull * 86400}};

    for (size_t i = 0; i < sizeof ages / sizeof ages[0]; i++) {
        uint64_t us;
        QS_CHECK(
            qsi_max_age_parse(qsi_slice_make(ages[i].text, (uint32_t)strlen(ages[i].text)), &us));
        QS_CHECK(us == ages[i].seconds * SECOND);
    }
}

static struct qsi_stream_start_spec start_of(const struct qs_test_fields *table)
{
    struct qsi_stream_start_spec start;

    QS_CHECK_OK(qsi_stream_start_parse(&start, slice_of(table), 10000 * SECOND, name(), QS_ERROR));
    return start;
}

static struct qsi_stream_start_spec start_at_word(const char *word)
{
    struct qs_test_fields table = {.used = 0};

    qs_test_put_text(&table, "x-stream-offset", word);
    return start_of(&table);
}

QS_TEST(test_a_reader_may_begin_at_a_word_an_offset_or_a_time)
{
    struct qs_test_fields none = {.used = 0}, offset = {.used = 0}, below = {.used = 0},
                          time = {.used = 0}, bad = {.used = 0};
    struct qsi_stream_start_spec start;

    QS_CHECK(start_of(&none).at == QSI_START_NEXT);
    QS_CHECK(start_at_word("first").at == QSI_START_FIRST);
    QS_CHECK(start_at_word("last").at == QSI_START_LAST);
    QS_CHECK(start_at_word("next").at == QSI_START_NEXT);
    start = start_at_word("1h");
    QS_CHECK(start.at == QSI_START_TIME && start.time_us == 6400 * SECOND);
    start = start_at_word("1Y");
    QS_CHECK(start.at == QSI_START_TIME && start.time_us == 0);
    start = start_at_word("1970-01-01T00:00:01.25Z");
    QS_CHECK(start.at == QSI_START_TIME && start.time_us == 1250000);
    qs_test_put_long(&offset, "x-stream-offset", 12345);
    start = start_of(&offset);
    QS_CHECK(start.at == QSI_START_OFFSET && start.offset == 12345);
    qs_test_put_long(&below, "x-stream-offset", -1);
    QS_CHECK(start_of(&below).at == QSI_START_FIRST);
    qs_test_put_name(&time, "x-stream-offset", 'T');
    memcpy(time.bytes + time.used, "\0\0\0\0\0\0\1\0", 8);
    time.used += 8;
    start = start_of(&time);
    QS_CHECK(start.at == QSI_START_TIME && start.time_us == 256 * SECOND);
    qs_test_put_text(&bad, "x-stream-offset", "yesterday");
    QS_CHECK(qsi_stream_start_parse(&start, slice_of(&bad), 0, name(), NULL) ==
             QS_PRECONDITION_FAILED);
}
