/* Pending records: encoded records between publish and accept. */
#include "pending_records.h"

#include "alloc.h"
#include "check.h"

#include <string.h>

struct qsi_pending_record *qsi_pending_records_add(struct qsi_pending_records *pending_records)
{
    QS_DCHECK(pending_records->count <= pending_records->capacity);
    if (pending_records->count == pending_records->capacity) {
        struct qsi_pending_record *grown =
            qsi_grow(pending_records->items, &pending_records->capacity, 4, sizeof *grown);
        if (grown == NULL) {
            return NULL;
        }
        pending_records->items = grown;
    }
    memset(&pending_records->items[pending_records->count], 0, sizeof pending_records->items[0]);
    return &pending_records->items[pending_records->count++];
}

qs_status qsi_pending_record_create(struct qsi_pending_record *pending_record,
                                    const struct qsi_messages_layout *layout, uint32_t place_count,
                                    struct qsi_budget *budget)
{
    QS_DCHECK(pending_record->chunk == NULL && layout->row_count > 0);
    pending_record->row_count = layout->row_count;
    pending_record->has_expiration = (layout->flags & QSI_MESSAGES_HAS_EXPIRATION) != 0;
    pending_record->has_due = (layout->flags & QSI_MESSAGES_HAS_DUE) != 0;
    pending_record->chunk = qsi_chunk_create(layout->record_bytes);
    pending_record->destinations =
        qsi_zalloc((layout->destination_count + 1) * sizeof *pending_record->destinations);
    pending_record->places =
        place_count > 0 ? qsi_zalloc(place_count * sizeof *pending_record->places) : NULL;
    if (pending_record->chunk == NULL || pending_record->destinations == NULL ||
        (place_count > 0 && pending_record->places == NULL)) {
        return QS_ENOMEM;
    }
    qsi_chunk_populate(pending_record->chunk);
    qsi_chunk_charge(pending_record->chunk, budget);
    pending_record->chunk->used = layout->record_bytes;
    return QS_OK;
}

qs_status qsi_pending_record_lead_to(struct qsi_pending_record *pending_record, uint64_t queue_id,
                                     uint32_t *rows, uint32_t row_count, bool journalled)
{
    uint32_t index = pending_record->destination_count;
    struct qsi_pending_destination *destination = &pending_record->destinations[index];

    QS_DCHECK(row_count > 0 && row_count <= pending_record->row_count);
    QS_TRY(qsi_run_create(&destination->run, pending_record->chunk, 0, row_count, rows,
                          pending_record->journalled && journalled));
    destination->queue_id = queue_id;
    destination->run->ram_bytes =
        pending_record->chunk->used * row_count / pending_record->row_count;
    qsi_messages_put_destination(pending_record->chunk->data, index, queue_id, 0, row_count);
    pending_record->destination_count += 1;
    return QS_OK;
}

void qsi_pending_records_add_bytes(struct qsi_pending_records *pending_records,
                                   const struct qsi_pending_record *pending_record)
{
    QS_DCHECK(pending_record->chunk->used > 0);
    if (pending_record->journalled) {
        pending_records->journal_bytes += pending_record->chunk->used;
        pending_records->entry_bytes_max =
            pending_record->chunk->used > pending_records->entry_bytes_max
                ? pending_record->chunk->used
                : pending_records->entry_bytes_max;
    }
}

uint64_t qsi_pending_record_memory(const struct qsi_pending_record *pending_record)
{
    const struct qsi_chunk *chunk = pending_record->chunk;
    uint64_t bytes = sizeof *chunk + chunk->capacity + QSI_ALLOCATION_BYTES;

    bytes +=
        (pending_record->destination_count + UINT64_C(1)) * sizeof(struct qsi_pending_destination);
    bytes += QSI_ALLOCATION_BYTES;
    if (pending_record->places != NULL) { /* room for at least one */
        uint32_t count = pending_record->place_count > 1 ? pending_record->place_count : 1;
        bytes += count * sizeof(struct qsi_place) + QSI_ALLOCATION_BYTES;
    }
    for (uint32_t i = 0; i < pending_record->destination_count; i++) {
        const struct qsi_run *run = pending_record->destinations[i].run;
        bytes += sizeof *run + QSI_ALLOCATION_BYTES;
        if (run->messages.rows != NULL) {
            bytes += run->count * sizeof *run->messages.rows + QSI_ALLOCATION_BYTES;
        }
    }
    return bytes;
}

void qsi_pending_records_fini(struct qsi_pending_records *pending_records,
                              struct qsi_message_store *messages)
{
    for (uint32_t i = 0; i < pending_records->count; i++) {
        struct qsi_pending_record *pending_record = &pending_records->items[i];
        for (uint32_t k = 0; k < pending_record->destination_count; k++) {
            qsi_run_destroy(pending_record->destinations[k].run);
        }
        for (uint32_t k = 0; k < pending_record->place_count; k++) {
            qsi_message_store_abandon(messages, &pending_record->places[k]);
        }
        qsi_free(pending_record->destinations);
        qsi_free(pending_record->places);
        qsi_chunk_unref(pending_record->chunk);
    }
    qsi_free(pending_records->items);
    memset(pending_records, 0, sizeof *pending_records);
}
