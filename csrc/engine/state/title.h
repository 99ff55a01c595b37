/* How a queue is called in texts of errors: 'orders' in vhost '/'. */
#ifndef QSI_TITLE_H
#define QSI_TITLE_H

#include "store.h"
#include "thread_safety.h"

#include <string.h>

struct qsi_title {
    char text[2 + QSI_EXCHANGE_BYTES_MAX + QSI_PLACE_BYTES];
};

/* In title_out.  Of a name that is too long as much as fits. */
static inline struct qsi_slice qsi_title_of(struct qsi_title *title_out,
                                            const struct qs_store *store, struct qsi_slice name)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t name_bytes = name.bytes < QSI_EXCHANGE_BYTES_MAX ? name.bytes : QSI_EXCHANGE_BYTES_MAX;
    uint32_t place_bytes = (uint32_t)strlen(store->place);
    char *at = title_out->text;

    *at++ = '\'';
    if (name_bytes > 0) {
        memcpy(at, name.data, name_bytes);
    }
    at[name_bytes] = '\'';
    memcpy(at + name_bytes + 1, store->place, place_bytes);
    return qsi_slice_make(title_out->text, 2 + name_bytes + place_bytes);
}

#endif
