/* Files that a segment had before.  If a file could not be appended to, or could not get a state,
 * because it was damaged or missing, it is left, and the segment continues in a new one.
 * Invariants: a slot that was written before its file was left is looked for there and nowhere
 * else; the state of all slots is in the new file; a file that was left is not written to, and is
 * removed with its segment. */
#include "alloc.h"
#include "check.h"
#include "queue_internal.h"

#include <string.h>

static struct qsi_former_file *append(struct qsi_segment *segment) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_former_file *grown =
        qsi_realloc(segment->formers, (segment->former_count + UINT64_C(1)) * sizeof *grown);

    if (grown == NULL) {
        return NULL;
    }
    segment->formers = grown;
    return &grown[segment->former_count++];
}

qs_status qsi_segment_leave_file(struct qsi_segment *segment, bool of_transients, uint32_t end)
{
    struct qsi_segment_file *file = of_transients ? &segment->transient_file : &segment->file;
    struct qsi_former_file *former = append(segment);
    uint32_t generation = file->generation + 1;

    QS_DCHECK(segment->settled != NULL);
    if (former == NULL) {
        return QS_ENOMEM;
    }
    QS_DCHECK(file->heap_end > 0);
    *former = (struct qsi_former_file){.file = *file,
                                       .end = end,
                                       .of_transients = of_transients,
                                       .is_dirty = segment->content_dirty && !of_transients,
                                       .named = segment->named};
    former->file.state_area = 0;
    former->file.state_crc = 0;
    *file = (struct qsi_segment_file){
        .queue_id = file->queue_id, .number = file->number, .generation = generation};
    if (!of_transients) {
        segment->durable_area = 0;
        segment->file_dirty = segment->content_dirty = false;
    }
    QS_DCHECK(file->heap_end == 0 && file->generation == former->file.generation + 1);
    qsi_segment_dirty_state(segment);
    return QS_OK;
}

qs_status qsi_segment_restore_former(struct qsi_segment *segment,
                                     const struct qsi_segment_file *file, uint32_t end)
{
    struct qsi_former_file *former = append(segment);

    if (former == NULL) {
        return QS_ENOMEM;
    }
    *former = (struct qsi_former_file){.file = *file, .end = end, .named = true};
    return QS_OK;
}

const struct qsi_segment_file *qsi_segment_file_of(const struct qsi_segment *segment, uint32_t slot,
                                                   bool of_transients, uint32_t *end_io)
{
    QS_DCHECK(slot < *end_io);
    for (uint32_t i = 0; i < segment->former_count; i++) {
        const struct qsi_former_file *former = &segment->formers[i];
        if (former->of_transients == of_transients && slot < former->end) {
            *end_io = former->end < *end_io ? former->end : *end_io;
            return &former->file;
        }
    }
    return of_transients ? &segment->transient_file : &segment->file;
}

bool qsi_segment_has_own_file(const struct qsi_segment *segment)
{
    bool has_one = segment->file.heap_end > 0;

    for (uint32_t i = 0; !has_one && i < segment->former_count; i++) {
        has_one = !segment->formers[i].of_transients;
    }
    return has_one;
}

void qsi_segment_free_formers(struct qsi_segment *segment)
{
    qsi_free(segment->formers);
    segment->formers = NULL;
    segment->former_count = 0;
}
