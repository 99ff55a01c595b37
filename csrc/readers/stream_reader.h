/* A reader of a stream: declarations shared by opening one and reading batches. */
#ifndef QSI_STREAM_READER_H
#define QSI_STREAM_READER_H

#include "qstore/stream.h"

#include "slice.h"
#include "store.h"
#include "wake.h"

struct qs_stream_reader {
    struct qs_store *store;
    uint64_t stream_id;
    uint64_t position;
    uint32_t columns;
    bool clamps;
    struct qsi_in_line place;
    struct qsi_slice name;
    size_t key_count;
    struct qsi_slice *keys;
    uint8_t bytes[]; /* of name and keys */
};

/* QS_NOT_FOUND: the stream was deleted. */
qs_status qsi_stream_reader_find(const struct qs_stream_reader *reader,
                                 struct qsi_store_queue **queue_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Waits until one of their streams grows or is deleted, or the store is closed; it may return
 * early. */
void qsi_stream_readers_sleep(struct qs_stream_reader *const *readers, size_t count,
                              uint64_t timeout_ns) QSI_REQUIRES(qsi_store_mutex);
/* Returns QS_EOFFSET. */
qs_status qsi_stream_fail_dropped(const struct qsi_store_queue *queue, uint64_t offset,
                                  qs_error *error) QSI_REQUIRES(qsi_store_mutex);

#endif
