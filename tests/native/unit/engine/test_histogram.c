/* Percentiles within the width of a bucket. */
#include "histogram.h"
#include "qs_test.h"

QS_TEST(test_an_empty_histogram_tells_nothing)
{
    struct qsi_histogram histogram = {0};

    QS_CHECK(qsi_histogram_percentile_us(&histogram, 50) == 0);
    QS_CHECK(qsi_histogram_percentile_us(&histogram, 100) == 0);
}

QS_TEST(test_one_value_is_every_percentile)
{
    for (uint64_t us = 0; us < UINT64_C(1) << 40; us = us * 3 / 2 + 1) {
        struct qsi_histogram histogram = {0};

        qsi_histogram_add(&histogram, us * 1000 + 999);
        for (int percentile = 0; percentile <= 100; percentile += 25) {
            QS_CHECK(qsi_histogram_percentile_us(&histogram, percentile) == us);
        }
        QS_CHECK(histogram.max_us == us && histogram.count == 1);
    }
}

QS_TEST(test_percentiles_of_many_values)
{
    struct qsi_histogram histogram = {0};

    for (uint64_t us = 1; us <= 100000; us++) {
        qsi_histogram_add(&histogram, us * 1000);
    }
    for (int percentile = 1; percentile <= 100; percentile++) {
        uint64_t exact = 1000 * (uint64_t)percentile;
        uint64_t told = qsi_histogram_percentile_us(&histogram, percentile);

        QS_CHECK(told >= exact && (double)told <= (double)exact * 1.26);
    }
    QS_CHECK(qsi_histogram_percentile_us(&histogram, 100) == 100000);
}

QS_TEST(test_values_beyond_the_buckets_are_counted)
{
    struct qsi_histogram histogram = {0};

    qsi_histogram_add(&histogram, UINT64_MAX);
    qsi_histogram_add(&histogram, 1000);
    QS_CHECK(histogram.count == 2 && histogram.max_us == UINT64_MAX / 1000);
    QS_CHECK(qsi_histogram_percentile_us(&histogram, 50) == 1);
    QS_CHECK(qsi_histogram_percentile_us(&histogram, 100) > 1000000);
}
