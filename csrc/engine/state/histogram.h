/* Latencies in microseconds, in buckets that grow by a factor of 2^(1/4): percentiles within 19
 * %. */
#ifndef QSI_HISTOGRAM_H
#define QSI_HISTOGRAM_H
#include <stdint.h>
#define QSI_HISTOGRAM_BUCKETS 160
struct qsi_histogram {
    uint64_t counts[QSI_HISTOGRAM_BUCKETS];
    uint64_t count;
    uint64_t max_us;
};
void qsi_histogram_add(struct qsi_histogram *histogram, uint64_t ns);
uint64_t qsi_histogram_percentile_us(const struct qsi_histogram *histogram,
                                     double percentile); /* 0 when empty */
/* The largest value of a bucket. */
uint64_t qsi_histogram_top_us(uint32_t bucket);
#endif
