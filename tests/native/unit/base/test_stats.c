/* The numbers of a store by index: each member once, in order, with its name and value. */
#include "qstore/qstore.h"

#include "qs_test.h"

enum {
#define QS_STAT(type, name, kind, text) STAT_##name,
#include "qstore/stats.def"
#undef QS_STAT
    STAT_COUNT
};

QS_TEST(test_every_member_is_listed_with_its_value)
{
    qs_stats stats = {0};
    qs_stat stat;
    uint32_t index = 0;
    int64_t value = 1000;

#define QS_STAT(type, name, kind, text) stats.name = (type)value++;
#include "qstore/stats.def"
#undef QS_STAT
#define QS_STAT(type, member, kind_word, text_of)  \
    QS_CHECK(qs_stats_at(&stats, index++, &stat)); \
    QS_CHECK(strcmp(stat.name, #member) == 0);     \
    QS_CHECK(strcmp(stat.text, text_of) == 0);     \
    QS_CHECK(stat.kind == QS_STAT_##kind_word);    \
    QS_CHECK(stat.value == (int64_t)stats.member);
#include "qstore/stats.def"
#undef QS_STAT
    QS_CHECK(index == STAT_COUNT && value == 1000 + STAT_COUNT);
}

QS_TEST(test_nothing_is_behind_the_last_member)
{
    qs_stats stats = {0};
    qs_stat stat;

    QS_CHECK(qs_stats_at(&stats, STAT_COUNT - 1, &stat));
    QS_CHECK(!qs_stats_at(&stats, STAT_COUNT, &stat));
    QS_CHECK(!qs_stats_at(&stats, UINT32_MAX, &stat));
}

QS_TEST(test_a_clock_that_is_behind_is_below_zero)
{
    qs_stats stats = {.clock_ahead_us = -5};
    qs_stat stat;

    QS_CHECK(qs_stats_at(&stats, STAT_clock_ahead_us, &stat));
    QS_CHECK(stat.value == -5);
}
