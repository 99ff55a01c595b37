/* Four buckets for each doubling. */
#include "histogram.h"

#define STEPS 4

static uint32_t bucket_of(uint64_t us)
{
    uint32_t log;

    if (us < STEPS) {
        return (uint32_t)us;
    }
    log = 63 - (uint32_t)__builtin_clzll(us);
    return (log - 1) * STEPS + (uint32_t)(us >> (log - 2) & (STEPS - 1));
}

uint64_t qsi_histogram_top_us(uint32_t bucket)
{
    uint32_t log;

    if (bucket < STEPS) {
        return bucket;
    }
    log = bucket / STEPS + 1;
    return ((uint64_t)(STEPS + bucket % STEPS + 1) << (log - 2)) - 1;
}

void qsi_histogram_add(struct qsi_histogram *histogram, uint64_t ns)
{
    uint64_t us = ns / 1000;
    uint32_t bucket = bucket_of(us);

    histogram->counts[bucket < QSI_HISTOGRAM_BUCKETS ? bucket : QSI_HISTOGRAM_BUCKETS - 1] += 1;
    histogram->count += 1;
    histogram->max_us = us > histogram->max_us ? us : histogram->max_us;
}

uint64_t qsi_histogram_percentile_us(const struct qsi_histogram *histogram, double percentile)
{
    uint64_t wanted = (uint64_t)((double)histogram->count * percentile / 100.0 + 0.5);
    uint64_t seen = 0;

    for (uint32_t i = 0; i < QSI_HISTOGRAM_BUCKETS && histogram->count > 0; i++) {
        seen += histogram->counts[i];
        if (seen >= wanted && seen > 0) {
            uint64_t top = qsi_histogram_top_us(i);
            return top < histogram->max_us ? top : histogram->max_us;
        }
    }
    return histogram->max_us;
}
