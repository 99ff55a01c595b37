/* Messages that a queue refuses because it is full. */
#ifndef QSI_REFUSE_H
#define QSI_REFUSE_H

#include "arrivals.h"
#include "pending_records.h"

/* They were pushed, and are settled again in the same group of the journal. */
struct qsi_refusals {
    /* For each message of the call the id of the queue that refused it first, 0: none did; NULL: no
     * queue refuses any. */
    uint64_t *queues;
    uint64_t row_count;
    struct qsi_chunk *settles; /* room for their records */
    uint64_t count;            /* rows that were refused */
};
/* The bytes that refusing may add to the journal. */
uint64_t qsi_refusals_bytes(struct qs_store *store,
                            const struct qsi_pending_records *pending_records)
    QSI_REQUIRES(qsi_store_mutex);
/* Reserves room for any refusal of these messages, row_count in the call: neither take nor accept
 * can fail then. */
qs_status qsi_refusals_reserve(struct qsi_refusals *refusals, struct qs_store *store,
                               const struct qsi_pending_records *pending_records,
                               uint64_t row_count, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* REQUIRES that room.  Removes those of the messages just pushed to a destination of the pending
 * record that the queue refuses; their records are in refusals->settles.  Returns the number of
 * records. */
struct qsi_pushed {
    uint64_t first_seq;
    uint32_t count;
    const uint32_t *rows; /* of the record; NULL: all of them */
    bool journalled;
};
uint32_t qsi_refusals_take(struct qsi_refusals *refusals, struct qs_store *store,
                           struct qsi_store_queue *queue,
                           const struct qsi_pending_record *pending_record,
                           const struct qsi_pushed *pushed) QSI_REQUIRES(qsi_store_mutex);
/* The dead letter was just pushed: if the queue refuses it, it goes on to the queue's own dead
 * letters.  REQUIRES room for a stretch to be removed. */
void qsi_dead_letter_pass_on(struct qs_store *store, struct qsi_store_queue *queue,
                             uint64_t dead_letter_seq) QSI_REQUIRES(qsi_store_mutex);
/* Their number, the first rows, and the queue that refused the first, for the publisher. */
void qsi_refusals_report_rows(const struct qsi_refusals *refusals, struct qs_store *store,
                              qs_receipt *receipt) QSI_REQUIRES(qsi_store_mutex);
static inline void qsi_refusals_report(const struct qsi_refusals *refusals, struct qs_store *store,
                                       qs_receipt *receipt) QSI_REQUIRES(qsi_store_mutex)
{
    if (QS_UNLIKELY(refusals->count > 0)) {
        qsi_refusals_report_rows(refusals, store, receipt);
    }
}
void qsi_refusals_fini(struct qsi_refusals *refusals);
/* REQUIRES the arrivals of qsi_pending_records_reserve.  A transaction is refused as a whole:
 * QS_PRECONDITION_FAILED. */
qs_status qsi_refusals_check(const struct qsi_arrivals *arrivals, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
