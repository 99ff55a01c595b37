/* Verifying: the records of the checkpoint and of the journal, read twice. */
#include "check.h"
#include "error.h"
#include "key_file.h"
#include "lost_files.h"
#include "restore.h"
#include "scan.h"
#include "stream_record.h"
#include "verify_internal.h"
#include "work_record.h"

#include <string.h>

#define KEY_FILTER_BYTES 512u /* the filter is read, but not needed */

/* ---- the checkpoint ---- */

static qs_status check_key_file(struct qsi_verify *verify, const uint8_t *record, qs_error *error)
{
    struct qsi_key_dir dir = {
        .env = verify->env, .dir = verify->checkpoint_dir, .filter_bytes_max = KEY_FILTER_BYTES};
    struct qsi_key_file_entry entry;
    qs_error detail = {0};
    qs_status status = qsi_key_file_decode(&entry, record, &detail);

    memcpy(dir.uuid, verify->manifest.uuid, sizeof dir.uuid);
    if (status == QS_OK) {
        status = qsi_key_file_check(&dir, entry.number, entry.header_crc, &detail);
        qsi_verify_progress(verify, entry.bytes);
    }
    return qsi_verify_found(verify, status, &detail, error);
}

static qs_status record_former(struct qsi_verify *verify, const uint8_t *record, qs_error *error)
{
    struct qsi_known_former former;

    QS_TRY(qsi_former_file_decode(&former.file, &former.end, record, error));
    if (former.end > verify->manifest.segment_entries) {
        return qsi_fail(error, QS_ECORRUPT, "former file of a segment with %u slots", former.end);
    }
    return qsi_buf_append(&verify->formers, &former, sizeof former) == QS_OK
               ? QS_OK
               : qsi_fail(error, QS_ENOMEM, "files of segments");
}

static qs_status record_from_checkpoint(struct qsi_verify *verify, const uint8_t *record,
                                        qs_error *error)
{
    struct qsi_key_file_entry keys;
    struct qsi_queue_state state;
    struct qsi_stream_state stream;
    struct qsi_work_state work;
    struct qsi_work_segment work_segment;
    uint64_t next_queue_id;

    switch (qsi_record_type(record)) {
    case QSI_RECORD_QUEUE_STATE:
        return qsi_queue_state_decode(&state, record, error);
    case QSI_RECORD_STREAM_STATE:
        return qsi_stream_state_decode(&stream, record, error);
    case QSI_RECORD_WORK_STATE:
        return qsi_work_state_decode(&work, record, error);
    case QSI_RECORD_WORK_SEGMENT:
        return qsi_work_segment_decode(&work_segment, record, error);
    case QSI_RECORD_FORMER_FILE:
        return record_former(verify, record, error);
    case QSI_RECORD_STORE_STATE:
        return qsi_store_state_decode(&next_queue_id, record, error);
    case QSI_RECORD_KEY_FILE:
        return qsi_key_file_decode(&keys, record, error);
    case QSI_RECORD_MESSAGE_FILE:
        return qsi_message_store_restore(verify->messages, record, error);
    default:
        return qsi_verify_collect_record(verify, record, error);
    }
}

/* Reads the checkpoint's records, up to one of invalid length. */
static qs_status record_checkpoint(struct qsi_verify *verify, qs_error *error)
{
    uint64_t at = QSI_CHECKPOINT_HEADER_BYTES;
    uint32_t count = 0;
    qs_error detail = {0};

    for (; at < verify->checkpoint_bytes; count++) {
        const uint8_t *record = verify->checkpoint + at;
        qs_status status;
        if (!qsi_record_fits(record, verify->checkpoint_bytes - at)) {
            qsi_fail_corrupt(&detail, verify->checkpoint_path, at, "a record leaves the file");
            return qsi_verify_found(verify, QS_ECORRUPT, &detail, error);
        }
        status = record_from_checkpoint(verify, record, &detail);
        if (status == QS_ECORRUPT) {
            qs_error inner = detail;
            qsi_fail_corrupt(&detail, verify->checkpoint_path, at, "%s", inner.text);
        }
        QS_TRY(qsi_verify_found(verify, status, &detail, error));
        QS_DCHECK(at % QSI_RECORD_ALIGN == 0);
        verify->verified->checkpoint_records += 1;
        at += qsi_record_length(record);
    }
    if (count != verify->header.record_count) {
        qsi_fail_corrupt(&detail, verify->checkpoint_path, 48, "%u records; the header says %u",
                         count, verify->header.record_count);
        return qsi_verify_found(verify, QS_ECORRUPT, &detail, error);
    }
    return QS_OK;
}

qs_status qsi_verify_load_checkpoint(struct qsi_verify *verify, qs_error *error)
{
    qs_error detail = {0};
    qs_status status;

    QS_DCHECK(verify->checkpoint == NULL);
    if (verify->manifest.checkpoint_number == 0) {
        return QS_OK;
    }
    qsi_checkpoint_path(verify->checkpoint_path, verify->manifest.checkpoint_number);
    status =
        qsi_checkpoint_load(verify->env, verify->checkpoint_dir, &verify->manifest, &verify->header,
                            &verify->checkpoint, &verify->checkpoint_bytes, &detail);
    if (status != QS_OK) {
        return qsi_verify_found(verify, status, &detail, error);
    }
    qsi_verify_progress(verify, verify->checkpoint_bytes);
    return record_checkpoint(verify, error);
}

/* Checks segments, files of transaction keys, and bodies of the messages in the checkpoint. */
qs_status qsi_verify_checkpoint(struct qsi_verify *verify, qs_error *error)
{
    uint64_t at = QSI_CHECKPOINT_HEADER_BYTES;

    while (at < verify->checkpoint_bytes &&
           qsi_record_fits(verify->checkpoint + at, verify->checkpoint_bytes - at)) {
        const uint8_t *record = verify->checkpoint + at;
        if (qsi_record_type(record) == QSI_RECORD_QUEUE_STATE) {
            QS_TRY(qsi_verify_queue_state(verify, record, error));
        } else if (qsi_record_type(record) == QSI_RECORD_STREAM_STATE) {
            QS_TRY(qsi_verify_stream_state(verify, record, error));
        } else if (qsi_record_type(record) == QSI_RECORD_KEY_FILE) {
            QS_TRY(check_key_file(verify, record, error));
        } else {
            qs_error detail = {0};
            qs_status status = qsi_verify_record_bodies(verify, record, true, &detail);
            QS_TRY(qsi_verify_found(verify, status, &detail, error));
        }
        at += qsi_record_length(record);
    }
    return QS_OK;
}

/* ---- the journal ---- */

static void blame_block(const struct qsi_scan_block *block, qs_status status, qs_error *detail)
{
    char path[QSI_JOURNAL_PATH_BYTES];
    qs_error inner = *detail;

    if (status == QS_ECORRUPT && detail->path[0] == 0) {
        qsi_journal_path(path, block->block.file_number);
        qsi_fail_corrupt(detail, path, block->offset, "%s", inner.text);
    }
}

/* For both readings of the journal: visits the records of a block that are not in the
 * checkpoint. */
static qs_status walk_block(struct qsi_verify *verify, const struct qsi_scan_block *block,
                            bool of_bodies, bool is_certain, qs_error *error)
{
    uint64_t at = block->from;
    uint64_t end = block->from + block->block.payload_bytes;
    uint64_t needed_from = qsi_manifest_needed_from(&verify->manifest);

    QS_DCHECK(end <= block->chunk->capacity);
    for (; at < end; at += qsi_record_length(block->chunk->data + at)) {
        const uint8_t *record = block->chunk->data + at;
        qs_error detail = {0};
        qs_status status;
        if (block->block.lsn + (at - block->from) < needed_from) {
            continue;
        }
        status = of_bodies ? qsi_verify_record_bodies(verify, record, is_certain, &detail)
                           : qsi_verify_collect_record(verify, record, &detail);
        blame_block(block, status, &detail);
        QS_TRY(qsi_verify_found(verify, status, &detail, error));
    }
    return QS_OK;
}

static qs_status record_block(void *context, const struct qsi_scan_block *block, qs_error *error)
{
    struct qsi_verify *verify = context;

    verify->proven =
        block->block.durable_upto > verify->proven ? block->block.durable_upto : verify->proven;
    verify->verified->journal_records += block->block.record_count;
    verify->verified->journal_bytes += block->block.payload_bytes;
    return walk_block(verify, block, false, true, error);
}

static qs_status check_block(void *context, const struct qsi_scan_block *block, qs_error *error)
{
    struct qsi_verify *verify = context;
    bool is_certain = block->session + 1 < verify->manifest.session_count ||
                      qsi_manifest_is_ended(&verify->manifest) || block->block.lsn < verify->proven;

    return walk_block(verify, block, true, is_certain, error);
}

static void journal_progress(void *context, uint64_t bytes_done, uint64_t bytes_total)
{
    struct qsi_verify *verify = context;

    QS_DCHECK(bytes_done <= bytes_total);
    (void)bytes_total;
    verify->bytes_done = verify->bytes_before + bytes_done;
    qsi_verify_report(verify, QSI_VERIFY_REPORT_BYTES);
}

static qs_status scan(struct qsi_verify *verify, qsi_scan_visitor *visit, qs_error *error)
{
    struct qsi_scan_options options = {
        .salvage = verify->salvage,
        .progress = visit == record_block ? journal_progress : NULL,
        .progress_context = verify,
    };
    struct qsi_scan_result result;

    QS_DCHECK(visit == record_block || visit == check_block);
    verify->bytes_before = verify->bytes_done;
    QS_TRY(qsi_journal_scan(verify->env, verify->journal_dir, &verify->manifest, &options, visit,
                            verify, &result, error));
    return verify->salvage ? QS_OK
                           : qsi_check_checkpoints(verify->env, verify->checkpoint_dir,
                                                   &verify->manifest, result.end_lsn, error);
}

/* Damage of the journal is reported once; whole blocks after it are still read. */
qs_status qsi_verify_read_journal(struct qsi_verify *verify, qs_error *error)
{
    qs_error detail = {0};
    qs_status status = scan(verify, record_block, &detail);

    if (status != QS_ECORRUPT) {
        return qsi_verify_found(verify, status, &detail, error);
    }
    QS_TRY(qsi_verify_found(verify, status, &detail, error));
    QS_DCHECK(!verify->salvage);
    verify->salvage = true;
    verify->bytes_done = verify->bytes_before;
    verify->verified->journal_records = verify->verified->journal_bytes = 0;
    status = scan(verify, record_block, &detail);
    return qsi_verify_found(verify, status == QS_ECORRUPT ? QS_OK : status, &detail, error);
}

qs_status qsi_verify_journal(struct qsi_verify *verify, qs_error *error)
{
    return scan(verify, check_block, error);
}
