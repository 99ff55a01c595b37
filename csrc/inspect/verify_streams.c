/* Verifying: the files of streams, block by block. */
#include "block_read.h"
#include "check.h"
#include "error.h"
#include "stream.h"
#include "stream_record.h"
#include "verify_internal.h"

struct block_visit {
    struct qsi_verify *verify;
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

/* Counts a FIFO or a link in place of a file as damage, since no system call failed.  The cause of
 * a failed system call may be temporary. */
static qs_status judge_open(const struct qsi_block_file *file, struct qsi_verify *verify,
                            qs_status status, qs_error *detail)
{
    char path[QSI_BLOCK_PATH_BYTES];

    qsi_block_file_path(path, verify->blocks, file);
    return detail->os_errno == 0 ? qsi_fail_unread(detail, status, path) : status;
}

static qs_status check_file(struct qsi_verify *verify, uint64_t stream_id,
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
        .adopted = segment->adopted,
        .time_us = segment->first_time_us,
    };
    struct block_visit visit = {.verify = verify, .error = error};
    uint64_t damages = verify->verified->damages;
    qs_error detail = {0};
    qs_status status = qsi_block_file_check(verify->blocks, &file, visit_block, &visit, &detail);

    QS_TRY(visit.status);
    status = judge_open(&file, verify, status, &detail);
    verify->verified->segments += 1;
    /* Damage of blocks is not reported again for the file. */
    return status == QS_ECORRUPT && verify->verified->damages > damages
               ? QS_OK
               : qsi_verify_found(verify, status, &detail, error);
}

/* A malformed record was reported before. */
qs_status qsi_verify_stream_state(struct qsi_verify *verify, const uint8_t *record, qs_error *error)
{
    struct qsi_stream_state state;

    if (qsi_stream_state_decode(&state, record, NULL) != QS_OK || verify->blocks == NULL) {
        return QS_OK;
    }
    for (uint32_t i = 0; i < state.segment_count; i++) {
        struct qsi_stream_state_segment segment;
        qsi_stream_state_segment(&state, i, &segment);
        QS_DCHECK(segment.first < segment.next); /* checked by decoding */
        QS_TRY(check_file(verify, state.stream_id, &segment, error));
    }
    return QS_OK;
}

/* ---- files that the journal names ---- */

struct written_file {
    uint64_t stream_id;
    struct qsi_stream_state_segment segment;
};

static struct written_file *written_files(const struct qsi_verify *verify, size_t *count_out)
{
    *count_out = verify->written.bytes / sizeof(struct written_file);
    return (struct written_file *)(void *)verify->written.data;
}

/* Replaces what is known of these segments and later ones, as recovery does. */
static qs_status record_written(struct qsi_verify *verify, const struct qsi_stream_written *written,
                                qs_error *error)
{
    struct qsi_stream_state_segment first;
    struct written_file *files;
    size_t count, kept = 0;

    qsi_stream_written_segment(written, 0, &first);
    files = written_files(verify, &count);
    for (size_t i = 0; i < count; i++) {
        if (files[i].stream_id != written->stream_id || files[i].segment.first < first.first) {
            files[kept++] = files[i];
        }
    }
    verify->written.bytes = kept * sizeof *files;
    for (uint32_t i = 0; i < written->segment_count; i++) {
        struct written_file file = {.stream_id = written->stream_id};
        qsi_stream_written_segment(written, i, &file.segment);
        if (qsi_buf_append(&verify->written, &file, sizeof file) != QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "files that the journal names");
        }
    }
    return QS_OK;
}

/* A malformed record was reported before. */
qs_status qsi_verify_written(struct qsi_verify *verify, const uint8_t *record, bool is_certain,
                             qs_error *error)
{
    struct qsi_stream_written written;
    struct qsi_stream_shared shared = {.blocks = verify->blocks};
    const struct qsi_known_queue *queue;

    if (qsi_stream_written_decode(&written, record, NULL) != QS_OK) {
        return QS_OK;
    }
    queue = qsi_verify_find_subqueue(verify, written.stream_id);
    if (queue == NULL || queue->gone) {
        return QS_OK;
    }
    if (!is_certain || verify->blocks == NULL) {
        qs_status status = qsi_stream_check_written(&shared, &written, error);
        if (status != QS_OK) { /* the write of the last commit may have been interrupted */
            return status == QS_ECORRUPT && !is_certain ? QS_OK : status;
        }
    }
    return record_written(verify, &written, error);
}

qs_status qsi_verify_written_files(struct qsi_verify *verify, qs_error *error)
{
    size_t count;
    const struct written_file *files = written_files(verify, &count);

    for (size_t i = 0; i < count; i++) {
        QS_DCHECK(files[i].segment.first < files[i].segment.next);
        QS_TRY(check_file(verify, files[i].stream_id, &files[i].segment, error));
    }
    return QS_OK;
}
