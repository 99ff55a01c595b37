/* A channel's publish numbers and their verdicts.
 *
 * Numbers count up from 1.  Journalled messages are confirmed when their LSN is durable, in order
 * and combined.  Messages that do not need the disk, or not any more, are confirmed at once,
 * possibly before earlier ones. */
#ifndef QSI_CONFIRMS_H
#define QSI_CONFIRMS_H

#include "qstore/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qsi_number_range {
    uint64_t first;
    uint64_t last;
    union {
        uint64_t lsn;
        uint64_t queue_id; /* of refused messages: the queue that refused them */
    };
};

struct qsi_number_ranges {
    struct qsi_number_range *items; /* [first, first + count) */
    uint32_t first;
    uint32_t count;
    uint32_t capacity;
};

struct qsi_confirms {
    bool selected;
    bool nacked;        /* a message was nacked since the last wait */
    bool nack_reported; /* a wait has returned nacks that are not reported yet */
    bool has_early;     /* some of immediate were confirmed early */
    uint64_t last_number;
    uint64_t reported;                  /* highest number acked or nacked with multiple */
    struct qsi_number_ranges pending;   /* waiting for their LSN */
    struct qsi_number_ranges immediate; /* may be reported now, one by one; in order */
    struct qsi_number_ranges refused;   /* nacks, reported first */
};

void qsi_confirms_fini(struct qsi_confirms *confirms);
/* Makes room for one more publish, of any count of messages.  If there is none, durable ranges are
 * joined into one, so confirms that are not read take no more memory than messages that are not
 * durable. */
qs_status qsi_confirms_reserve(struct qsi_confirms *confirms, uint64_t durable_lsn) QS_MUST_CHECK;
/* Adds count accepted messages; lsn 0: they need no disk.  REQUIRES room.  Returns the first
 * number. */
uint64_t qsi_confirms_add(struct qsi_confirms *confirms, uint64_t count, uint64_t lsn);
/* Makes room for one more publish of count messages, any of which may be refused. */
qs_status qsi_confirms_reserve_batch(struct qsi_confirms *confirms, uint64_t count,
                                     uint64_t durable_lsn) QS_MUST_CHECK;
/* Like add, but refused messages are nacked.  refusing: for each message the id of the queue that
 * refused it, or 0; NULL: none was refused.  REQUIRES that room. */
uint64_t qsi_confirms_add_batch(struct qsi_confirms *confirms, uint64_t count, uint64_t lsn,
                                const uint64_t *refusing);
/* Confirms a number before its LSN is durable.  False: it is confirmed or nacked already, or there
 * is no memory.  REQUIRES that it was added alone. */
bool qsi_confirms_early(struct qsi_confirms *confirms, uint64_t number);
/* The next stretch of numbers in [from, upto] that wait for the disk; false: there is none. */
bool qsi_confirms_next_pending(const struct qsi_confirms *confirms, uint64_t durable_lsn,
                               uint64_t from, uint64_t upto, uint64_t *first_out,
                               uint64_t *last_out);
/* The highest LSN for which this channel waits; 0: it waits for none. */
uint64_t qsi_confirms_last_lsn(const struct qsi_confirms *confirms);

/* Whether qsi_confirms_next would return a verdict. */
bool qsi_confirms_has_verdict(const struct qsi_confirms *confirms, uint64_t durable_lsn,
                              bool failed);
enum qsi_verdict { QSI_VERDICT_NONE, QSI_VERDICT_ACK, QSI_VERDICT_NACK };
/* Returns the next verdict.  failed: messages that are not durable now never will be.  *count_out:
 * messages of the verdict; *refusing_out: for a nack the id of the full queue, 0: the store
 * failed. */
enum qsi_verdict qsi_confirms_next(struct qsi_confirms *confirms, uint64_t durable_lsn, bool failed,
                                   uint64_t *number_out, bool *multiple_out, uint64_t *count_out,
                                   uint64_t *refusing_out);

/* Debug builds: asserts the order of all ranges.  Release builds do nothing. */
#ifdef NDEBUG
#define qsi_confirms_check(confirms) ((void)(confirms))
#else
void qsi_confirms_check(const struct qsi_confirms *confirms);
#endif

#endif
