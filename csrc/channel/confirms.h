/* A channel's publish numbers and what became of them.
 *
 * Numbers count up from 1.  What was journalled is confirmed when its LSN is durable, in order
 * and coalesced; what needs no disk, or needs it no more, is confirmed at once, ahead of the others
 * if there are any. */
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
        uint64_t queue_id; /* of refused ones: who refused them */
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
    bool nacked;    /* since the last wait */
    bool nack_told; /* a wait has told of nacks that are not reported yet */
    bool has_early; /* among immediate */
    uint64_t last_number;
    uint64_t reported;                  /* highest number acked or nacked with multiple */
    struct qsi_number_ranges pending;   /* wait for their LSN */
    struct qsi_number_ranges immediate; /* may be reported now, each on its own; in order */
    struct qsi_number_ranges refused;   /* nacks, before anything else */
};

void qsi_confirms_fini(struct qsi_confirms *confirms);
/* Room for one more publish, of any count of messages.  What is durable by now becomes one range
 * when there is none left, so that confirms that nobody reads take no more memory than those of
 * messages on their way to the disk. */
qs_status qsi_confirms_reserve(struct qsi_confirms *confirms, uint64_t durable_lsn) QS_MUST_CHECK;
/* count messages were accepted; lsn 0: nothing to wait for.  REQUIRES room.  Returns the first
 * number. */
uint64_t qsi_confirms_add(struct qsi_confirms *confirms, uint64_t count, uint64_t lsn);
/* Room for one more publish of count messages, any of which may be refused. */
qs_status qsi_confirms_reserve_batch(struct qsi_confirms *confirms, uint64_t count,
                                     uint64_t durable_lsn) QS_MUST_CHECK;
/* As add; each of those that a queue refused is nacked instead.  refusing: the queue's id for each
 * message, 0: none did; NULL: none did any.  REQUIRES that room. */
uint64_t qsi_confirms_add_batch(struct qsi_confirms *confirms, uint64_t count, uint64_t lsn,
                                const uint64_t *refusing);
/* This number is confirmed ahead of its LSN.  False: it has or had its verdict, or there is no
 * memory to confirm it ahead.  REQUIRES that it was added alone. */
bool qsi_confirms_early(struct qsi_confirms *confirms, uint64_t number);
/* The next stretch of numbers in [from, upto] that wait for the disk; false: none do. */
bool qsi_confirms_next_pending(const struct qsi_confirms *confirms, uint64_t durable_lsn,
                               uint64_t from, uint64_t upto, uint64_t *first_out,
                               uint64_t *last_out);
/* The LSN after which nothing of this channel is pending; 0: nothing is. */
uint64_t qsi_confirms_last_lsn(const struct qsi_confirms *confirms);

/* Would the next call tell of one? */
bool qsi_confirms_has_verdict(const struct qsi_confirms *confirms, uint64_t durable_lsn,
                              bool failed);
enum qsi_verdict { QSI_VERDICT_NONE, QSI_VERDICT_ACK, QSI_VERDICT_NACK };
/* The next verdict to report.  failed: what is not durable by now never will be.  *count_out:
 * messages it covers; *refusing_out: of a nack the id of the queue that is full, 0: the store
 * failed. */
enum qsi_verdict qsi_confirms_next(struct qsi_confirms *confirms, uint64_t durable_lsn, bool failed,
                                   uint64_t *number_out, bool *multiple_out, uint64_t *count_out,
                                   uint64_t *refusing_out);

/* Debug builds: asserts the order of all ranges.  In release builds it is nothing. */
#ifdef NDEBUG
#define qsi_confirms_check(confirms) ((void)(confirms))
#else
void qsi_confirms_check(const struct qsi_confirms *confirms);
#endif

#endif
