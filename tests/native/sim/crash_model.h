/* What a recovery may show, must show and must not show.
 *
 * The model hears of every call on a store before it is made and after it returned, so at any
 * moment in between it knows what has been promised:
 *
 *   - confirmed messages are all there;
 *   - none is there twice, and none is back whose ack was durable;
 *   - the order of each queue is the order of publishing, priority by priority where it has
 *     priorities,
 *     and nothing is missing in front of a message that is there;
 *   - nothing appears that was not published: not the unpublished, not the transient, not what
 *     belongs to a transaction that did not happen, not what an earlier recovery showed to be lost.
 *
 * crash_model_check compares a recovered store with that; crash_model_adopt makes what a recovery
 * showed the truth from then on. */
#ifndef CRASH_MODEL_H
#define CRASH_MODEL_H

#include "qstore/qstore.h"

#include "qs_test.h"
#include "qs_test_slices.h"

#include <stdarg.h>
#include <stdint.h>

#define CRASH_QUEUES 6
#define CRASH_LEVELS_QUEUE 1 /* the one with priorities */
#define CRASH_KEPT_QUEUE 2 /* the one that keeps all; what goes there alone says it is transient */
#define CRASH_PRIORITY_MAX 4 /* of it */
#define CRASH_TXS_MAX 256
#define CRASH_UNDER_WAY UINT64_MAX /* an LSN that is not known yet: durable or not */

enum crash_certainty { CRASH_ABSENT, CRASH_UNCERTAIN, CRASH_PRESENT };

/* One message in one queue. */
struct crash_copy {
    uint64_t id;
    uint32_t body_bytes;
    uint8_t priority;     /* 0 but in a queue with priorities */
    bool is_transient;    /* by itself or by its queue: ends with the process */
    bool was_delivered;   /* it must be flagged redelivered next time */
    bool is_found;        /* by the check that is going on */
    uint64_t publish_lsn; /* durable up to here: must be there */
    uint64_t settle_lsn;  /* 0: nobody asked for its removal; durable up to here: must be gone */
    uint32_t publish_tx;  /* 1 + index of the transaction it came by; 0: none */
    uint32_t settle_tx;   /* likewise of the one that acked it */
    uint32_t channel;     /* where it is out, with the tag */
    uint64_t tag;         /* 0: it is ready */
};

struct crash_queue {
    char name[16];
    bool is_durable;
    bool has_priorities;
    bool keeps_all; /* its messages are persistent, whatever their delivery mode says */
    enum crash_certainty exists;
    enum crash_certainty is_bound; /* to the fanout exchange */
    enum crash_certainty is_lazy;
    uint64_t last_tag;         /* of the check that is going on: up to here it was delivered */
    struct crash_copy *copies; /* highest priority first, and in the order of publishing */
    uint32_t count;
    uint32_t capacity;
};

struct crash_model {
    struct crash_queue queues[CRASH_QUEUES];
    enum crash_certainty fan_exists;
    enum crash_certainty way_exists; /* an exchange whose alternate is the fanout exchange */
    /* bound to it, too: what is published there goes there anyhow */
    enum crash_certainty way_leads;
    enum crash_certainty txs[CRASH_TXS_MAX]; /* committed? */
    uint32_t tx_count;
    bool is_checking;     /* crash_model_check is at work with it */
    uint64_t durable_lsn; /* as the store told last */
    uint64_t next_id;
};

struct crash_report {
    uint64_t states;
    uint64_t violations;
    uint64_t seed;        /* of the run at hand */
    uint64_t step;        /* likewise */
    const char *cut;      /* how the state came about */
    bool allows_refusals; /* of single messages, as damaged: the disk is not merely cut then */
    uint64_t refusals;
    uint32_t told_max;     /* violations to print */
    uint64_t dead_letters; /* that were written */
};

#define CRASH_BODY_BYTES_MAX 60000u

struct crash_topology {
    bool fan_exists;
    bool way_exists;
    bool way_leads;
    bool is_bound[CRASH_QUEUES];
    const struct crash_model *model;
};

void crash_violation(struct crash_report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A body names its message and is filled with bytes that depend on it. */
void crash_body_fill(uint8_t *body, uint64_t id, uint32_t body_bytes);
uint64_t crash_body_id(qs_slice body);
bool crash_body_is_right(qs_slice body, uint64_t id, uint32_t body_bytes);

/* Some messages have a priority: mostly one that there is a priority for. */
uint8_t crash_priority(uint64_t id);
bool crash_properties_are_right(qs_slice properties, uint64_t id);
qs_slice crash_queue_name(const struct crash_queue *queue);
qs_slice crash_tx_key(char key[16], uint32_t index);
bool crash_is_known(qs_store *store, qs_slice key);

/* All queues are durable but the last. */
void crash_model_init(struct crash_model *model);
void crash_model_fini(struct crash_model *model);
void crash_model_copy(struct crash_model *to, const struct crash_model *from);
struct crash_copy *crash_queue_add(struct crash_queue *queue, uint8_t priority);
bool crash_is_confirmed(const struct crash_model *model, const struct crash_copy *copy);
bool crash_must_be_there(const struct crash_model *model, const struct crash_queue *queue,
                         const struct crash_copy *copy);
bool crash_must_be_gone(const struct crash_model *model, const struct crash_copy *copy);

/* REQUIRES that crash_model_check was the last to look at this store: what it found is final. */
void crash_model_adopt(struct crash_model *model, qs_store *store);

/* The process ended in order: everything published and every ack is durable, what was out is
 * ready again, and what was transient is gone. */
void crash_model_close(struct crash_model *model);
struct crash_topology crash_topology_of(const struct crash_model *model, qs_store *store);

/* Drains all queues of an opened store and compares; the messages stay out on the channel. */
void crash_model_check(struct crash_model *model, struct crash_report *report, qs_store *store,
                       qs_channel *channel);

#endif
