/* The numbers of a store by index, generated from stats.def. */
#include "qstore/admin.h"

enum {
#define QS_STAT(type, name, kind, text) STAT_##name,
#include "qstore/stats.def"
#undef QS_STAT
};

bool qs_stats_at(const qs_stats *stats, uint32_t index, qs_stat *stat_out)
{
    switch (index) {
#define QS_STAT(type, name, kind, text)                                           \
    case STAT_##name:                                                             \
        *stat_out = (qs_stat){#name, text, QS_STAT_##kind, (int64_t)stats->name}; \
        return true;
#include "qstore/stats.def"
#undef QS_STAT
    }
    return false;
}
