/* Finding the live records of a message file, and copying them into its next generation. */
#include "qstore/codec.h"

#include "compaction.h"
#include "file.h"
#include "le.h"
#include "message_store.h"
#include "message_walk.h"

static void unwant(struct qsi_compaction *job, uint32_t slot)
{
    job->wanted[slot / 8] = (uint8_t)(job->wanted[slot / 8] & ~(1u << (slot % 8)));
    job->wanted_count--;
}

static qs_status copy_found(struct qsi_compaction *job, struct qsi_message_output *output,
                            const struct qsi_message_view *view, const struct qsi_body_ref *ref,
                            bool *copied_out, qs_error *error)
{
    QS_TRY(qsi_output_copy(output, view, ref, copied_out, error));
    if (*copied_out) {
        output->offsets[ref->slot] = output->flushed + output->used - qsi_body_packed_bytes(ref);
        unwant(job, ref->slot);
    }
    return QS_OK;
}

/* skips: trusts the headers of dead records, and neither reads nor searches their bodies. */
static qs_status sweep(struct qsi_compaction *job, struct qsi_message_output *output,
                       struct qsi_message_walk *walk, bool skips, qs_error *error)
{
    struct qsi_body_ref ref;
    bool found = true;

    walk->position = QSI_MESSAGE_HEADER_BYTES;
    walk->slot_min = 0;
    while (job->wanted_count > 0) {
        bool wanted;
        bool copied = false;

        qs_status status = qsi_walk_next(walk, &ref, &found, error);
        if (status != QS_OK) {
            return qsi_message_file_fail_unread(error, status, job->from->id);
        }
        if (!found) {
            break;
        }
        wanted = ref.slot < job->slot_count && qsi_compaction_has(job->wanted, ref.slot);
        if (wanted) {
            QS_TRY(copy_found(job, output, walk->view, &ref, &copied, error));
        }
        if (copied || (skips && !wanted)) {
            qsi_walk_skip(walk, &ref);
        } else {
            walk->position += QSI_BODY_PACKED_ALIGNMENT;
        }
    }
    return QS_OK;
}

static qs_status fail_unread(const struct qsi_compaction *job, qs_status status, qs_error *error)
{
    status = qsi_message_file_fail(error, status, job->from->id);
    return qsi_message_file_fail_unread(error, status, job->from->id);
}

/* Reads slots [first, first + *count_out) of the old file's table into the buffer.  *count_out 0:
 * the table or the file ends here. */
static qs_status read_table(const struct qsi_compaction *job, struct qsi_message_output *output,
                            const struct qsi_message_view *view, uint32_t first,
                            uint32_t *count_out, qs_error *error)
{
    uint32_t slots = view->header.table_slots;
    uint32_t left = first < slots ? slots - first : 0;
    uint32_t count = left < QSI_TABLE_STEP ? left : QSI_TABLE_STEP;
    size_t read;
    qs_status status = qsi_file_read(output->env, view->handle, output->buffer, (size_t)count * 8,
                                     view->header.table_offset + (uint64_t)first * 8, &read, error);

    *count_out = (uint32_t)(read / 8);
    return status == QS_OK ? QS_OK : fail_unread(job, status, error);
}

static qs_status is_table_whole(const struct qsi_compaction *job, struct qsi_message_output *output,
                                const struct qsi_message_view *view, bool *whole_out,
                                qs_error *error)
{
    uint64_t end = view->header.table_offset + (uint64_t)view->header.table_slots * 8;
    uint32_t slot = 0;
    uint32_t crc = 0;
    uint32_t count;
    uint8_t stored[4];
    size_t read;
    qs_status status;

    do {
        QS_TRY(read_table(job, output, view, slot, &count, error));
        crc = qs_crc32c(crc, output->buffer, (size_t)count * 8);
        slot += count;
    } while (count > 0);
    status = qsi_file_read(output->env, view->handle, stored, sizeof stored, end, &read, error);
    if (status != QS_OK) {
        return fail_unread(job, status, error);
    }
    *whole_out =
        slot == view->header.table_slots && read == sizeof stored && qsi_get_u32(stored) == crc;
    return QS_OK;
}

/* Does not search again for records that an earlier compaction has lost.  A damaged table has no
 * information, so all are searched for. */
static qs_status forget_lost(struct qsi_compaction *job, struct qsi_message_output *output,
                             const struct qsi_message_view *view, qs_error *error)
{
    uint32_t slot = 0;
    uint32_t count = 0;
    bool whole = false;

    if (view->file->id.generation > 0) {
        QS_TRY(is_table_whole(job, output, view, &whole, error));
    }
    while (whole) {
        QS_TRY(read_table(job, output, view, slot, &count, error));
        for (uint32_t i = 0; i < count; i++, slot++) {
            if (slot < job->slot_count && qsi_get_u64(output->buffer + (size_t)i * 8) == 0 &&
                qsi_compaction_has(job->wanted, slot)) {
                unwant(job, slot);
            }
        }
        whole = count > 0;
    }
    return QS_OK;
}

qs_status qsi_compaction_copy_live(struct qsi_message_store *messages, struct qsi_compaction *job,
                                   struct qsi_message_output *output,
                                   const struct qsi_message_view *view, qs_error *error)
{
    uint64_t end = view->file->id.generation == 0 ? view->bytes : view->header.table_offset;
    struct qsi_message_walk walk;
    qs_status status;

    QS_TRY(forget_lost(job, output, view, error));
    status = qsi_walk_init(&walk, messages->env, view, end, error);
    if (status == QS_OK) {
        status = sweep(job, output, &walk, true, error);
    }
    /* The header of an abandoned place may have led the first sweep past a record: search
     * everywhere. */
    if (status == QS_OK && job->wanted_count > 0) {
        status = sweep(job, output, &walk, false, error);
    }
    qsi_walk_fini(&walk);
    if (status == QS_OK) {
        status = qsi_output_flush(output, error);
    }
    return status;
}
