/* A message file in a checkpoint: the reference counts of its bodies. */
#ifndef QSI_MESSAGE_FILE_RECORD_H
#define QSI_MESSAGE_FILE_RECORD_H

#include "qstore/status.h"

#include "le.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QSI_MESSAGE_FILE_HEADER_BYTES 48
#define QSI_MESSAGE_FILE_RUN_BYTES 8

enum {
    QSI_MESSAGE_FILE_SETTLED = 1, /* synced, and truncated to its final size */
};

/* A run is a stretch of consecutive slots with the same count. */
struct qsi_message_file_record {
    uint32_t number;
    uint32_t generation;
    uint64_t salt;
    uint64_t end;        /* end of the records; of later generations, the file's size */
    uint64_t live_bytes; /* of bodies with references, packed */
    uint32_t slot_count;
    bool is_settled;
    uint32_t run_count;
    const uint8_t *runs; /* count u32, length u32 each; decoded: inside the record */
};
/* Check before encoding that this is below 4 GiB, the limit of a record. */
uint64_t qsi_message_file_record_bytes(uint32_t run_count);
/* Encodes the record without the runs. */
void qsi_message_file_record_encode(uint8_t *record_out,
                                    const struct qsi_message_file_record *file);
static inline void qsi_message_file_put_run(uint8_t *record, uint32_t index, uint32_t count,
                                            uint32_t length)
{
    uint8_t *at =
        record + QSI_MESSAGE_FILE_HEADER_BYTES + (size_t)index * QSI_MESSAGE_FILE_RUN_BYTES;

    qsi_put_u32(at, count);
    qsi_put_u32(at + 4, length);
}
static inline void qsi_message_file_run(const struct qsi_message_file_record *file, uint32_t index,
                                        uint32_t *count_out, uint32_t *length_out)
{
    const uint8_t *at = file->runs + (size_t)index * QSI_MESSAGE_FILE_RUN_BYTES;

    *count_out = qsi_get_u32(at);
    *length_out = qsi_get_u32(at + 4);
}
/* Checks everything that the record alone allows. */
qs_status qsi_message_file_record_decode(struct qsi_message_file_record *file_out,
                                         const uint8_t *record, qs_error *error) QS_MUST_CHECK;

#endif
