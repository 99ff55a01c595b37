/* Verifying: the files of streams, block by block. */
#include "block_read.h"
#include "check.h"
#include "error.h"
#include "stream_record.h"
#include "verify.h"

struct block_visit {
    struct verify *verify;
    qs_error *error;
    qs_status status;
};

static void visit_block(void *context, const struct qsi_block_entry *entry, const qs_error *damage)
{
    struct block_visit *visit = context;

    qsi_verify_progress(visit->verify, entry->bytes);
    if (damage != NULL && visit->status == QS_OK) {
        visit->status = qsi_verify_found(visit->verify, damage->status, damage, visit->error);
    }
}

static qs_status check_file(struct verify *verify, uint64_t stream_id,
                            const struct qsi_stream_state_segment *segment, qs_error *error)
{
    const struct qsi_block_file file = {
        .owner = stream_id,
        .number = segment->first,
        .salt = segment->salt,
        .end = segment->end,
        .last_at = segment->last_at,
        .block_count = segment->block_count,
        .sealed = segment->sealed,
    };
    struct block_visit visit = {.verify = verify, .error = error};
    uint64_t damages = verify->verified->damages;
    qs_error detail = {0};
    qs_status status = qsi_block_file_check(verify->blocks, &file, visit_block, &visit, &detail);

    QS_TRY(visit.status);
    verify->verified->segments += 1;
    /* What blocks told of is not told again of the file. */
    return status == QS_ECORRUPT && verify->verified->damages > damages
               ? QS_OK
               : qsi_verify_found(verify, status, &detail, error);
}

/* One that is not well formed was told of already. */
qs_status qsi_verify_stream_state(struct verify *verify, const uint8_t *record, qs_error *error)
{
    struct qsi_stream_state state;

    if (qsi_stream_state_decode(&state, record, NULL) != QS_OK || verify->blocks == NULL) {
        return QS_OK;
    }
    for (uint32_t i = 0; i < state.segment_count; i++) {
        struct qsi_stream_state_segment segment;
        qsi_stream_state_segment(&state, i, &segment);
        QS_DCHECK(segment.first < segment.next); /* decoding checked it */
        QS_TRY(check_file(verify, state.stream_id, &segment, error));
    }
    return QS_OK;
}
