/* Power cuts over queues that messages leave by themselves: they expire, are too many, are refused, rejected or delivered too often.
 *
 * Where a message is at any moment is nobody's promise; that it is somewhere, once, is:
 *
 *   - a confirmed message that was neither acked nor dropped for good is in its source queue or in each target of its dead
 *     letters, and never in both;
 *   - it tells of its death in a target, and in its source it does not;
 *   - what expired is not delivered by its queue any more, and what was refused is not there;
 *   - a transaction of rejects and publishes happened whole or not at all.
 *
 * All of a run follows from its seed. */
#ifndef CRASH_DEPARTURES_H
#define CRASH_DEPARTURES_H

#include "crash_env.h"
#include "crash_model.h"
#include "crash_work.h"
#include "env_test.h"
#include "journal_internal.h"
#include "qs_test_fields.h"

#define DEPART_MESSAGES_MAX 4096
#define DEPART_OUTS_MAX 512
#define DEPART_NEVER UINT64_MAX

enum depart_queue {
    DEPART_LENGTH,   /* drops the oldest of too many */
    DEPART_BYTES,    /* of too many bytes; dead letters go to two queues */
    DEPART_TTL,      /* expire; likewise */
    DEPART_LIMIT,    /* delivered once and again, but no more */
    DEPART_LEAST,    /* at-least-once */
    DEPART_OVERFLOW, /* refuses, and passes on what it refuses */
    DEPART_REFUSE,   /* refuses */
    DEPART_GONE,     /* expire, and are dropped */
    DEPART_PLAIN,
    DEPART_SOURCES,
    DEPART_FIRST = DEPART_SOURCES, /* the targets */
    DEPART_SECOND,
    DEPART_QUEUES,
};

struct depart_kind {
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
extern const struct depart_kind depart_kinds[DEPART_QUEUES];

/* Where a message may be. */
enum depart_place { DEPART_AT_SOURCE, DEPART_AT_FIRST, DEPART_AT_SECOND, DEPART_PLACES };

struct depart_message {
    uint32_t body_bytes;
    uint8_t source; /* enum depart_queue */
    bool is_transient;
    bool was_refused;
    bool is_gone;                           /* an earlier recovery showed it */
    uint64_t expires_us;                    /* in its source; DEPART_NEVER */
    uint64_t publish_lsn;                   /* durable up to here: it must be somewhere */
    uint64_t settle_lsns[DEPART_PLACES];    /* 0: nobody acked or dropped it there */
    uint64_t published_with, rejected_with; /* the marker of the transaction that did; 0: none */
};

struct depart_model {
    struct depart_message messages[DEPART_MESSAGES_MAX]; /* by id - 1 */
    uint32_t count;
    uint64_t durable_lsn;
};

/* What a check found. */
struct depart_found {
    uint8_t counts[DEPART_MESSAGES_MAX][DEPART_PLACES];
};

/* A delivery that is out. */
struct depart_out {
    uint64_t id, tag;
    uint32_t channel;
    enum depart_place place;
};

struct depart_work {
    struct crash_work base; /* the store, its channels and what went wrong */
    struct depart_model *model;
    qs_env *sim; /* whose clock is turned */
    struct depart_out outs[DEPART_OUTS_MAX];
    uint32_t out_count;
    uint64_t confirm_ids[CRASH_CONFIRMS_MAX]; /* by publish number */
};

enum depart_verb { DEPART_ACK, DEPART_REJECT, DEPART_REQUEUE };

struct depart_options {
    enum crash_bug bug;
    uint32_t generations, ops;
    uint32_t cut_percent; /* of the steps at which cuts are taken */
    uint32_t end_steps;   /* a generation that is cut off ends within so many; 0: none is */
    bool pages;
};

struct depart_run {
    const struct depart_options *options;
    struct crash_report *report;
    uint64_t random, end_step;
    qs_options store_options;
    qs_env *sim, *next_disk;
    struct crash_env env;
    struct depart_model model, frozen;
    struct depart_found found;
    struct crash_model shell; /* what crash_work asks for */
    struct depart_work work;
    uint64_t moved;
    bool has_ended, ends_in_power_cut;
};

/* Takes everything; it stays out on the channel.  What is to move moves while its queue is looked at, and those it moves to come
 * last. */
void depart_check_store(const struct depart_model *model, struct crash_report *report,
                        qs_store *store, qs_channel *channel, struct crash_env *env,
                        struct depart_found *found);

/* What a recovery showed is the truth from then on; only where a message is may still change. */
void depart_adopt(struct depart_model *model, const struct depart_found *found);
uint64_t depart_new(struct depart_work *work, enum depart_queue queue, uint32_t bytes,
                    bool persistent, uint32_t expiration_ms);
uint32_t depart_any_bytes(struct depart_work *work);
bool depart_has_failed(const struct depart_work *work);

/* What was refused is known at once.  A store that fails nacks as well, and nobody knows what of. */
void depart_hear_nacks(struct depart_work *work);
void depart_published(struct depart_work *work, uint64_t first_id, const qs_receipt *receipt);
qs_status depart_publish_as(struct depart_work *work, uint32_t channel, uint64_t id,
                            uint32_t expiration_ms, qs_receipt *receipt);
void depart_work_publish(struct depart_work *work);
void depart_publish_batch(struct depart_work *work, enum depart_queue queue, uint32_t count);
void depart_work_batch(struct depart_work *work);

/* Not from the queue of the markers. */
void depart_get(struct depart_work *work, uint32_t channel, enum depart_queue queue);
void depart_work_get(struct depart_work *work);
/* Does the verb end the message there?  Rejects of a queue without dead letters do. */
bool depart_ends(const struct depart_work *work, const struct depart_out *out,
                 enum depart_verb verb);
qs_status depart_call(struct depart_work *work, const struct depart_out *by, bool multiple,
                      enum depart_verb verb);
void depart_settle(struct depart_work *work, struct depart_out by, bool multiple,
                   enum depart_verb verb);
void depart_work_settle(struct depart_work *work);
void depart_work_tx(struct depart_work *work);
void depart_set_up(struct depart_work *work);

/* As if the end of a group in the open end of the journal were none. */
void depart_plant(struct depart_work *work);
void depart_work_once(struct depart_work *work);
void depart_check_cut(struct depart_run *run, enum qsi_cut_how how, const char *name);

/* Returns how many dead letters were written. */
uint64_t depart_run(const struct depart_options *options, struct crash_report *report,
                    uint64_t seed);

#endif
