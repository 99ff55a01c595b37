/* The counters by index, generated from counts.def. */
#include "qstore/admin.h"

static const qs_count channel_counts[] = {
#define QS_CHANNEL_COUNT(name, text) {#name, text},
#include "qstore/counts.def"
};
static const qs_count exchange_counts[] = {
#define QS_EXCHANGE_COUNT(name, text) {#name, text},
#include "qstore/counts.def"
};
static const qs_count queue_counts[] = {
#define QS_QUEUE_COUNT(name, text) {#name, text},
#include "qstore/counts.def"
};
static const qs_count route_counts[] = {
#define QS_ROUTE_COUNT(name, text) {#name, text},
#include "qstore/counts.def"
};

#define TABLE(counts) {counts, sizeof(counts) / sizeof(counts)[0]}

bool qs_count_at(uint32_t of, uint32_t index, qs_count *count_out)
{
    static const struct {
        const qs_count *counts;
        size_t length;
    } tables[] = {
        [QS_COUNTS_CHANNEL] = TABLE(channel_counts),
        [QS_COUNTS_EXCHANGE] = TABLE(exchange_counts),
        [QS_COUNTS_QUEUE] = TABLE(queue_counts),
        [QS_COUNTS_ROUTE] = TABLE(route_counts),
        [QS_COUNTS_ALL_CHANNELS] = TABLE(channel_counts),
        [QS_COUNTS_CONNECTION] = TABLE(channel_counts),
    };

    if (of >= sizeof tables / sizeof tables[0] || index >= tables[of].length) {
        return false;
    }
    *count_out = tables[of].counts[index];
    return true;
}
