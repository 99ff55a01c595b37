/* Queue arguments: what each may be, and what it says when it is not. */
#include "error.h"
#include "le.h"
#include "policy.h"
#include "qs_test.h"

#include <string.h>

struct table {
    uint8_t bytes[1024];
    uint32_t used;
};

static void put_name(struct table *table, const char *name, uint8_t type)
{
    size_t length = strlen(name);

    table->bytes[table->used++] = (uint8_t)length;
    memcpy(table->bytes + table->used, name, length);
    table->used += (uint32_t)length;
    table->bytes[table->used++] = type;
}

static void put_long(struct table *table, const char *name, int64_t value)
{
    put_name(table, name, 'l');
    for (int shift = 56; shift >= 0; shift -= 8) {
        table->bytes[table->used++] = (uint8_t)((uint64_t)value >> shift);
    }
}

static void put_text(struct table *table, const char *name, const char *value)
{
    put_name(table, name, 'S');
    qsi_put_be32(table->bytes + table->used, (uint32_t)strlen(value));
    memcpy(table->bytes + table->used + 4, value, strlen(value));
    table->used += 4 + (uint32_t)strlen(value);
}

static qs_status parse(const struct table *table, struct qsi_queue_policy *policy_out,
                       qs_error *error)
{
    return qsi_queue_policy_parse(policy_out, qsi_slice_make(table->bytes, table->used),
                                  qsi_slice_make("orders", 6), error);
}

static void test_no_arguments_ask_for_nothing(void)
{
    struct table table = {.used = 0};
    struct qsi_queue_policy policy;

    QS_CHECK_OK(parse(&table, &policy, QS_ERROR));
    QS_CHECK(policy.message_ttl_ms == QSI_UNLIMITED && policy.expires_ms == QSI_UNLIMITED);
    QS_CHECK(policy.messages_max == QSI_UNLIMITED && policy.body_bytes_max == QSI_UNLIMITED);
    QS_CHECK(policy.deliveries_max == QSI_UNLIMITED && policy.overflow == QSI_DROP_HEAD);
    QS_CHECK(!policy.has_dead_letter_exchange && !policy.has_priorities && !policy.lazy);
    QS_CHECK(!policy.single_active_consumer && !policy.at_least_once);
}

static void test_each_argument_is_read(void)
{
    struct table table = {.used = 0};
    struct qsi_queue_policy policy;

    put_long(&table, "x-message-ttl", 0);
    put_long(&table, "x-expires", 1);
    put_long(&table, "x-max-length", 7);
    put_long(&table, "x-max-length-bytes", 8);
    put_long(&table, "x-delivery-limit", 9);
    put_long(&table, "x-max-priority", 255);
    put_text(&table, "x-overflow", "reject-publish-dlx");
    put_text(&table, "x-dead-letter-exchange", "");
    put_text(&table, "x-dead-letter-routing-key", "dead");
    put_text(&table, "x-dead-letter-strategy", "at-least-once");
    put_text(&table, "x-queue-mode", "lazy");
    put_name(&table, "x-single-active-consumer", 't');
    table.bytes[table.used++] = 1;
    put_name(&table, "x-of-somebody-else", 'V');
    QS_CHECK_OK(parse(&table, &policy, QS_ERROR));
    QS_CHECK(policy.message_ttl_ms == 0 && policy.expires_ms == 1 && policy.messages_max == 7);
    QS_CHECK(policy.body_bytes_max == 8 && policy.deliveries_max == 9);
    QS_CHECK(policy.has_priorities && policy.priority_max == 255);
    QS_CHECK(policy.overflow == QSI_REJECT_PUBLISH_DLX && policy.at_least_once && policy.lazy);
    QS_CHECK(policy.has_dead_letter_exchange && policy.dead_letter.bytes == 0);
    QS_CHECK(policy.has_dead_letter_key && policy.dead_letter_key.bytes == 4);
    QS_CHECK(policy.single_active_consumer);
}

static void test_every_integer_type_is_a_number(void)
{
    static const struct {
        uint8_t type;
        uint8_t bytes;
    } types[] = {{'b', 1}, {'B', 1}, {'s', 2}, {'u', 2}, {'I', 4}, {'i', 4}, {'l', 8}};

    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct table table = {.used = 0};
        struct qsi_queue_policy policy;
        put_name(&table, "x-max-length", types[i].type);
        memset(table.bytes + table.used, 0, types[i].bytes);
        table.used += types[i].bytes;
        table.bytes[table.used - 1] = 100;
        QS_CHECK_OK(parse(&table, &policy, QS_ERROR));
        QS_CHECK(policy.messages_max == 100);
    }
}

static void check_refused(const struct table *table, const char *text)
{
    struct qsi_queue_policy policy;
    qs_error error;

    QS_CHECK(parse(table, &policy, &error) == QS_PRECONDITION_FAILED);
    QS_CHECK(strstr(error.text, text) != NULL);
}

static void test_what_an_argument_cannot_be_is_refused_by_name(void)
{
    static const struct {
        const char *name;
        int64_t value;
        const char *text;
    } numbers[] = {
        {"x-message-ttl", -1, "invalid arg 'x-message-ttl' for queue 'orders': it is negative"},
        {"x-message-ttl", INT64_C(1) << 32, "4294967296 is more than 4294967295"},
        {"x-expires", 0, "it is zero"},
        {"x-max-length", -5, "it is negative"},
        {"x-max-priority", 256, "256 is more than 255"},
    };

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct table table = {.used = 0};
        put_long(&table, numbers[i].name, numbers[i].value);
        check_refused(&table, numbers[i].text);
    }
    struct table words = {.used = 0};
    put_text(&words, "x-overflow", "drop");
    check_refused(&words, "'drop-head', 'reject-publish' or 'reject-publish-dlx' is needed");
    struct table text = {.used = 0};
    put_text(&text, "x-max-length", "5");
    check_refused(&text, "a whole number is needed");
    struct table key = {.used = 0};
    put_text(&key, "x-dead-letter-routing-key", "k");
    check_refused(&key, "there is no 'x-dead-letter-exchange'");
    struct table exchange = {.used = 0};
    put_long(&exchange, "x-dead-letter-exchange", 5);
    check_refused(&exchange, "a string of at most 255 bytes is needed");
}

static void test_bytes_that_are_no_table_are_refused(void)
{
    struct table table = {.used = 3};
    struct qsi_queue_policy policy;

    table.bytes[0] = 200;
    QS_CHECK(parse(&table, &policy, QS_ERROR) == QS_EINVAL);
}

int main(void)
{
    test_no_arguments_ask_for_nothing();
    test_each_argument_is_read();
    test_every_integer_type_is_a_number();
    test_what_an_argument_cannot_be_is_refused_by_name();
    test_bytes_that_are_no_table_are_refused();
    return 0;
}
