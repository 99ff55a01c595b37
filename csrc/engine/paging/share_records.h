/* Bodies of a chunk are written to the message store, and its records built again, for
 * share_bodies.c, which chooses the bodies and moves the queues to the new records. */
#ifndef QSI_SHARE_RECORDS_H
#define QSI_SHARE_RECORDS_H

#include "buf.h"
#include "store.h"

/* A messages record of the chunk. */
struct qsi_moved_record {
    uint32_t at, new_at;
    uint32_t first_row; /* index of its first row in refs; UINT32_MAX: its bodies stay embedded */
};

struct qsi_sharing {
    struct qs_store *store;
    struct qsi_chunk *chunk;
    struct qsi_chunk *new_chunk;
    struct qsi_buf records; /* struct qsi_moved_record, ascending */
    /* struct qsi_body_ref of each row of records whose bodies are shared; file 0: not needed */
    struct qsi_buf refs;
    struct qsi_buf places; /* struct qsi_place of the packs */
};

#define ITEMS(buf, type) ((type *)(void *)(buf).data)
#define COUNT(buf, type) ((uint32_t)((buf).bytes / sizeof(type)))

/* Both without the lock: write the bodies to the message store, then the records, with references
 * in place of them, to new_chunk.  QS_EINVAL: the records do not fit into a chunk any more. */
qs_status qsi_sharing_write(struct qsi_sharing *sharing, qs_error *error) QS_MUST_CHECK;
qs_status qsi_sharing_build(struct qsi_sharing *sharing) QS_MUST_CHECK;

#endif
