/* Power cuts over queues that messages leave by themselves: they expire, are too many, are
 * refused, rejected or delivered too often.
 *
 * Where a message is at any moment is nobody's promise; that it is somewhere, once, is:
 *
 *   - a confirmed message that was neither acked nor dropped for good is in its source queue or
 *     in each target of its dead
 *     letters, and never in both;
 *   - it tells of its death in a target, and in its source it does not;
 *   - what expired is not delivered by its queue any more, and what was refused is not there;
 *   - a transaction of rejects and publishes happened whole or not at all.
 *
 * All of a run follows from its seed. */
#ifndef CRASH_REMOVALS_H
#define CRASH_REMOVALS_H

#include "crash_life.h"
#include "crash_work.h"
#include "journal_internal.h"
#include "qs_test_fields.h"

#define REMOVAL_MESSAGES_MAX 4096
#define REMOVAL_OUTS_MAX 512
#define REMOVAL_NEVER UINT64_MAX

enum removal_queue {
    REMOVAL_LENGTH,   /* drops the oldest of too many */
    REMOVAL_BYTES,    /* of too many bytes; dead letters go to two queues */
    REMOVAL_TTL,      /* expire; likewise */
    REMOVAL_LIMIT,    /* delivered once and again, but no more */
    REMOVAL_LEAST,    /* at-least-once */
    REMOVAL_OVERFLOW, /* refuses, and passes on what it refuses */
    REMOVAL_REFUSE,   /* refuses */
    REMOVAL_GONE,     /* expire, and are dropped */
    REMOVAL_PLAIN,
    REMOVAL_SOURCES,
    REMOVAL_FIRST = REMOVAL_SOURCES, /* the targets */
    REMOVAL_SECOND,
    REMOVAL_QUEUES,
};

struct removal_kind {
    const char *name;
    const char *exchange; /* of its dead letters; NULL: none */
    bool has_two;         /* targets */
    uint32_t ttl_ms;      /* 0: none */
    struct {
        const char *name;
        int64_t number;   /* 0: text */
        const char *text; /* NULL: no more */
    } arguments[3];
};
extern const struct removal_kind removal_kinds[REMOVAL_QUEUES];

/* Where a message may be. */
enum removal_place { REMOVAL_AT_SOURCE, REMOVAL_AT_FIRST, REMOVAL_AT_SECOND, REMOVAL_PLACES };

struct removal_message {
    uint32_t body_bytes;
    uint8_t source; /* enum removal_queue */
    bool is_transient;
    bool was_refused;
    bool is_gone;                           /* an earlier recovery showed it */
    uint64_t expires_us;                    /* in its source; REMOVAL_NEVER */
    uint64_t publish_lsn;                   /* durable up to here: it must be somewhere */
    uint64_t settle_lsns[REMOVAL_PLACES];   /* 0: nobody acked or dropped it there */
    uint64_t published_with, rejected_with; /* the marker of the transaction that did; 0: none */
};

struct removal_model {
    struct removal_message messages[REMOVAL_MESSAGES_MAX]; /* by id - 1 */
    uint32_t count;
    uint64_t durable_lsn;
};

/* What a check found. */
struct removal_found {
    uint8_t counts[REMOVAL_MESSAGES_MAX][REMOVAL_PLACES];
};

/* A delivery that is out. */
struct removal_out {
    uint64_t id, tag;
    uint32_t channel;
    enum removal_place place;
};

struct removal_work {
    struct crash_work base; /* the store, its channels and what went wrong */
    struct removal_model *model;
    qs_env *sim; /* whose clock is turned */
    struct removal_out outs[REMOVAL_OUTS_MAX];
    uint32_t out_count;
    uint64_t confirm_ids[CRASH_CONFIRMS_MAX]; /* by publish number */
};

enum removal_verb { REMOVAL_ACK, REMOVAL_REJECT, REMOVAL_REQUEUE };

struct removal_run {
    struct crash_life life;
    qs_options store_options;
    struct removal_model model, frozen;
    struct removal_found found;
    struct crash_model shell; /* what crash_work asks for */
    struct removal_work work;
};

/* Takes everything; it stays out on the channel.  What is to move moves while its queue is
 * looked at, and those it moves to come last. */
void removal_check_store(const struct removal_model *model, struct crash_report *report,
                         qs_store *store, qs_channel *channel, struct crash_env *env,
                         struct removal_found *found);

/* What a recovery showed is the truth from then on; only where a message is may still change. */
void removal_adopt(struct removal_model *model, const struct removal_found *found);
uint64_t removal_new(struct removal_work *work, enum removal_queue queue, uint32_t bytes,
                     bool persistent, uint32_t expiration_ms);
uint32_t removal_any_bytes(struct removal_work *work);
bool removal_has_failed(const struct removal_work *work);

/* What was refused is known at once.  A store that fails nacks as well, and nobody knows what
 * of. */
void removal_hear_nacks(struct removal_work *work);
void removal_published(struct removal_work *work, uint64_t first_id, const qs_receipt *receipt);
qs_status removal_publish_as(struct removal_work *work, uint32_t channel, uint64_t id,
                             uint32_t expiration_ms, qs_receipt *receipt);
void removal_work_publish(struct removal_work *work);
void removal_publish_batch(struct removal_work *work, enum removal_queue queue, uint32_t count);
void removal_work_batch(struct removal_work *work);

/* Not from the queue of the markers. */
void removal_get(struct removal_work *work, uint32_t channel, enum removal_queue queue);
void removal_work_get(struct removal_work *work);
/* Does the verb end the message there?  Rejects of a queue without dead letters do. */
bool removal_ends(const struct removal_work *work, const struct removal_out *out,
                  enum removal_verb verb);
qs_status removal_call(struct removal_work *work, const struct removal_out *by, bool multiple,
                       enum removal_verb verb);
void removal_settle(struct removal_work *work, struct removal_out by, bool multiple,
                    enum removal_verb verb);
void removal_work_settle(struct removal_work *work);
void removal_work_tx(struct removal_work *work);
void removal_set_up(struct removal_work *work);

/* As if the end of a group in the open end of the journal were none. */
void removal_plant(struct removal_work *work);
void removal_work_once(struct removal_work *work);
void removal_check_cut(struct removal_run *run, enum qsi_cut_how how, const char *name);

void removal_run(const struct crash_run_options *options, struct crash_report *report,
                 uint64_t seed);

#endif
