/* Encoded records on their way into queues and journal. */
#ifndef QSI_PENDING_RECORDS_H
#define QSI_PENDING_RECORDS_H

#include "record.h"
#include "store.h"

/* An encoded record on its way into queues and journal.  Its destinations were looked up when it
 * was published; reserving looks them up again by queue id, and skips a queue that was deleted
 * meanwhile.
 *
 * A batch, a transaction, a dead letter and a message that a full queue may refuse are pending
 * records.  A single message that is accepted at once takes the same steps for each queue
 * (pushed.h), without memory of its own: it is in the chunk that small records share, and queues
 * note it without a run. */
struct qsi_pending_destination {
    uint64_t queue_id;
    struct qsi_store_queue *queue; /* from reserve to accept; NULL: it was deleted */
    struct qsi_run *run;           /* ready to be pushed */
};
struct qsi_pending_record {
    struct qsi_chunk *chunk; /* holds this record and nothing else */
    struct qsi_pending_destination *destinations;
    struct qsi_place *places; /* of stored bodies */
    uint32_t destination_count;
    uint32_t place_count;
    uint32_t row_count;
    uint64_t first_row; /* of row 0, among the messages of the call that published them */
    /* a dead letter: no queue refuses it, since it fitted when it was written */
    bool is_dead_letter;
    bool is_mandatory; /* one message, which is returned if all its queues are gone */
    bool journalled;
    bool has_expiration; /* some rows have their own expiration */
    bool has_due;        /* or a due time */
};
struct qsi_pending_records {
    struct qsi_pending_record *items;
    uint32_t count;
    uint32_t capacity;
    uint32_t written_count; /* of the first ones, which are in their stream's file, and pushed */
    uint64_t journal_bytes; /* of the journalled ones */
    uint64_t entry_bytes_max;
    uint64_t memory_bytes; /* of those in a transaction, without items */
};

/* Adds a zeroed record at the end; NULL: out of memory. */
struct qsi_pending_record *qsi_pending_records_add(struct qsi_pending_records *pending_records);
/* Memory for one record: a chunk as long as the record, and room for its destinations and
 * places. */
qs_status qsi_pending_record_create(struct qsi_pending_record *pending_record,
                                    const struct qsi_messages_layout *layout, uint32_t place_count,
                                    struct qsi_budget *budget) QS_MUST_CHECK;
/* One more destination of an encoded record: row_count of its rows, or all of them with rows NULL.
 * Takes rows on success. */
qs_status qsi_pending_record_lead_to(struct qsi_pending_record *pending_record, uint64_t queue_id,
                                     uint32_t *rows, uint32_t row_count,
                                     bool journalled) QS_MUST_CHECK;
void qsi_pending_records_add_bytes(struct qsi_pending_records *pending_records,
                                   const struct qsi_pending_record *pending_record);
/* The memory of its parts, without the struct. */
uint64_t qsi_pending_record_memory(const struct qsi_pending_record *pending_record);
/* Frees them, and abandons their places. */
void qsi_pending_records_fini(struct qsi_pending_records *pending_records,
                              struct qsi_message_store *messages);

#endif
