/* Counters by index: each kind has its own, in the order of the table. */
#include "qstore/qstore.h"

#include "qs_test.h"

static void check_names(uint32_t of, const char *const *names, uint32_t count)
{
    qs_count found;

    for (uint32_t i = 0; i < count; i++) {
        QS_CHECK(qs_count_at(of, i, &found));
        QS_CHECK(strcmp(found.name, names[i]) == 0);
        QS_CHECK(found.text != NULL && found.text[0] != 0);
    }
    QS_CHECK(!qs_count_at(of, count, &found));
    QS_CHECK(!qs_count_at(of, UINT32_MAX, &found));
}

QS_TEST(test_each_kind_lists_its_counters_in_order)
{
#define QS_CHANNEL_COUNT(name, text) #name,
    static const char *const channel[] = {
#include "qstore/counts.def"
    };
#define QS_EXCHANGE_COUNT(name, text) #name,
    static const char *const exchange[] = {
#include "qstore/counts.def"
    };
#define QS_QUEUE_COUNT(name, text) #name,
    static const char *const queue[] = {
#include "qstore/counts.def"
    };
#define QS_ROUTE_COUNT(name, text) #name,
    static const char *const route[] = {
#include "qstore/counts.def"
    };

    check_names(QS_COUNTS_CHANNEL, channel, sizeof channel / sizeof channel[0]);
    check_names(QS_COUNTS_EXCHANGE, exchange, sizeof exchange / sizeof exchange[0]);
    check_names(QS_COUNTS_QUEUE, queue, sizeof queue / sizeof queue[0]);
    check_names(QS_COUNTS_ROUTE, route, sizeof route / sizeof route[0]);
    check_names(QS_COUNTS_ALL_CHANNELS, channel, sizeof channel / sizeof channel[0]);
    check_names(QS_COUNTS_CONNECTION, channel, sizeof channel / sizeof channel[0]);
}

QS_TEST(test_there_is_no_other_kind)
{
    qs_count found;

    QS_CHECK(!qs_count_at(QS_COUNTS_CONNECTION + 1, 0, &found));
    QS_CHECK(!qs_count_at(UINT32_MAX, 0, &found));
}
