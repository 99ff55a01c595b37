/* The counters' structs, made from qstore/counts.def: their members are in the order of the
 * table, and nothing else is in them. */
#ifndef QSI_COUNTERS_H
#define QSI_COUNTERS_H

#include <stdint.h>

struct qsi_channel_counts {
#define QS_CHANNEL_COUNT(name, text) uint64_t name; /* text */
#include "qstore/counts.def"
};
struct qsi_exchange_counts {
#define QS_EXCHANGE_COUNT(name, text) uint64_t name; /* text */
#include "qstore/counts.def"
};
struct qsi_queue_counts {
#define QS_QUEUE_COUNT(name, text) uint64_t name; /* text */
#include "qstore/counts.def"
};
struct qsi_route_counts {
#define QS_ROUTE_COUNT(name, text) uint64_t name; /* text */
#include "qstore/counts.def"
};

#endif
