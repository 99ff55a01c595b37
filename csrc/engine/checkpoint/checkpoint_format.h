/* The bytes of a checkpoint (docs/FORMAT.md, "Checkpoint"): a header, and records as in the
 * journal, with the effect of the journal up to the checkpoint's LSN. */
#ifndef QSI_CHECKPOINT_FORMAT_H
#define QSI_CHECKPOINT_FORMAT_H

#include "buf.h"
#include "file_head.h"
#include "manifest.h"
#include "record.h"

#define QSI_CHECKPOINT_HEADER_BYTES 64u
#define QSI_CHECKPOINT_NAME_BYTES 16 /* "0000000001.ckp" and a NUL */
#define QSI_CHECKPOINT_PATH_BYTES 26 /* "checkpoint/0000000001.ckp": what errors call it */

struct qsi_checkpoint_header {
    uint8_t uuid[QSI_UUID_BYTES];
    uint64_t number;
    uint64_t lsn;
    uint32_t record_count;
};
void qsi_checkpoint_name(char name_out[QSI_CHECKPOINT_NAME_BYTES], uint64_t number);
void qsi_checkpoint_path(char path_out[QSI_CHECKPOINT_PATH_BYTES], uint64_t number);
bool qsi_checkpoint_number(const char *name, uint64_t *number_out);
void qsi_checkpoint_header_encode(uint8_t out[QSI_CHECKPOINT_HEADER_BYTES],
                                  const struct qsi_checkpoint_header *header);
/* QS_ECORRUPT: not the header of that checkpoint of that store; QS_EVERSION. */
qs_status qsi_checkpoint_header_decode(struct qsi_checkpoint_header *header_out, const uint8_t *in,
                                       const char *path, const uint8_t uuid[QSI_UUID_BYTES],
                                       uint64_t number, qs_error *error) QS_MUST_CHECK;

/* What no other record has: the next queue's id. */
qs_status qsi_store_state_encode(struct qsi_buf *out, uint64_t next_queue_id) QS_MUST_CHECK;
qs_status qsi_store_state_decode(uint64_t *next_queue_id_out, const uint8_t *record,
                                 qs_error *error) QS_MUST_CHECK;

#endif
