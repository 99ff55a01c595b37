/* Running a flush for a checkpoint that carries the tail: it becomes records.
 *
 * Invariant: a run that fails leaves the carried records as they were. */
#include "error.h"
#include "record_build.h"
#include "stream_flush_job.h"

#define CARRIED_RECORD_BYTES (1u << 20)

static qs_status finish_record(const struct qsi_stream_flush_job *self,
                               struct qsi_record_build *build, uint64_t first_offset,
                               uint64_t time_us, qs_error *error)
{
    uint64_t bytes;
    uint8_t *room;

    QS_TRY(qsi_record_build_measure(build, &bytes, error));
    QS_TRY(qsi_buf_reserve(&self->carried->records, bytes, &room));
    qsi_record_build_write(build, room, self->job.container->id, first_offset, time_us, NULL);
    self->carried->records.bytes += bytes;
    self->carried->record_count += 1;
    qsi_record_build_clear(build);
    return QS_OK;
}

/* Each record has one time: rows with another time begin the next. */
static qs_status carry_piece(const struct qsi_stream_flush_job *self,
                             const struct qsi_stream_tail *piece, struct qsi_record_build *build,
                             qs_error *error)
{
    for (uint32_t i = 0; i < piece->count;) {
        uint64_t time_us = qsi_stream_tail_time(piece, i), first = piece->first_offset + i;
        bool is_full = false;
        while (!is_full && i < piece->count && qsi_stream_tail_time(piece, i) == time_us) {
            struct qsi_row_stretch stretch =
                qsi_messages_ref_stretch(&piece->messages, i, piece->count);
            uint32_t taken;
            QS_TRY(qsi_record_build_add(build, &stretch, UINT32_MAX, CARRIED_RECORD_BYTES, &taken,
                                        error));
            is_full = taken < stretch.count;
            i += taken;
        }
        QS_TRY(finish_record(self, build, first, time_us, error));
    }
    return QS_OK;
}

qs_status qsi_stream_flush_carried(struct qsi_job *job, qs_error *error)
{
    struct qsi_stream_flush_job *self = qsi_stream_flush_job_of(job);
    struct qsi_record_build *build = qsi_record_build_create(QSI_BUILD_KEEP_STORED, NULL, NULL);
    size_t bytes = self->carried->records.bytes;
    uint32_t count = self->carried->record_count;
    qs_status status = build != NULL ? QS_OK : qsi_fail(error, QS_ENOMEM, "a record");

    for (uint32_t i = 0; status == QS_OK && i < qsi_stream_flush_piece_count(self); i++) {
        status = carry_piece(self, &qsi_stream_flush_pieces(self)[i], build, error);
    }
    if (status != QS_OK) {
        self->carried->records.bytes = bytes;
        self->carried->record_count = count;
    }
    qsi_record_build_destroy(build);
    return status;
}
