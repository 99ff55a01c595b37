/* What a recovery may show, must show and must not show.
 *
 * The model hears of every call on a store before it is made and after it returned, so at any moment
 * in between it knows what has been promised:
 *
 *   - confirmed messages are all there;
 *   - none is there twice, and none is back whose ack was durable;
 *   - the order of each queue is the order of publishing, level by level where it has priorities,
 *     and nothing is missing in front of a message that is there;
 *   - nothing appears that was not published: not the unpublished, not the transient, not what
 *     belongs to a transaction that did not happen, not what an earlier recovery showed to be lost.
 *
 * crash_model_check compares a recovered store with that; crash_model_adopt makes what a recovery
 * showed the truth from then on. */
#ifndef QS_CRASH_MODEL_H
#define QS_CRASH_MODEL_H

#include "qstore/qstore.h"

#include "qs_test.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#define CRASH_QUEUES 6
#define CRASH_LEVELS_QUEUE 1 /* the one with priorities */
#define CRASH_PRIORITY_MAX 4 /* of it */
#define CRASH_TXS_MAX 256
#define CRASH_UNDER_WAY UINT64_MAX /* an LSN that is not known yet: durable or not */

enum crash_certainty { CRASH_ABSENT, CRASH_UNCERTAIN, CRASH_PRESENT };

/* One message in one queue. */
struct crash_copy {
    uint64_t id;
    uint32_t body_bytes;
    uint8_t level;        /* 0 but in a queue with priorities */
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
    bool has_levels;
    enum crash_certainty exists;
    enum crash_certainty is_bound; /* to the fanout exchange */
    enum crash_certainty is_lazy;
    uint64_t last_tag;         /* of the check that is going on: up to here it was delivered */
    struct crash_copy *copies; /* highest level first, and in the order of publishing */
    uint32_t count;
    uint32_t capacity;
};

struct crash_model {
    struct crash_queue queues[CRASH_QUEUES];
    enum crash_certainty fan_exists;
    enum crash_certainty way_exists; /* an exchange whose alternate is the fanout exchange */
    enum crash_certainty
        way_leads; /* bound to it, too: what is published there goes there anyhow */
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
    uint32_t told_max; /* violations to print */
};

static inline void crash_violation(struct crash_report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static inline void crash_violation(struct crash_report *report, const char *format, ...)
{
    va_list arguments;

    report->violations++;
    if (report->violations > report->told_max) {
        return;
    }
    printf("violation: run %" PRIu64 " step %" PRIu64 " (%s): ", report->seed, report->step,
           report->cut);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    fflush(stdout);
}

/* -- bodies ----------------------------------------------------------------------------------- */

#define CRASH_BODY_BYTES_MAX 60000u
#define CRASH_FILLER_PERIOD 4093u

static inline const uint8_t *crash_filler(uint64_t id)
{
    static uint8_t filler[CRASH_BODY_BYTES_MAX + CRASH_FILLER_PERIOD];
    static bool is_made;
    uint64_t random = 42;

    for (size_t i = 0; !is_made && i < sizeof filler; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        filler[i] = (uint8_t)(random >> 56);
    }
    is_made = true;
    return filler + id * 61 % CRASH_FILLER_PERIOD;
}

/* A body names its message and is filled with bytes that depend on it. */
static inline void crash_body_fill(uint8_t *body, uint64_t id, uint32_t body_bytes)
{
    memcpy(body, &id, sizeof id);
    memcpy(body + sizeof id, crash_filler(id), body_bytes - sizeof id);
}

static inline uint64_t crash_body_id(qs_slice body)
{
    uint64_t id = 0;

    memcpy(&id, body.data, body.bytes < sizeof id ? body.bytes : sizeof id);
    return id;
}

static inline bool crash_body_is_right(qs_slice body, uint64_t id, uint32_t body_bytes)
{
    return body.bytes == body_bytes && crash_body_id(body) == id &&
           memcmp((const uint8_t *)body.data + sizeof id, crash_filler(id),
                  body_bytes - sizeof id) == 0;
}

/* Some messages have a priority: mostly one that there is a level for. */
static inline uint8_t crash_priority(uint64_t id)
{
    return id % 3 == 0 ? (uint8_t)id : (uint8_t)(id % (CRASH_PRIORITY_MAX + 1));
}

static inline bool crash_properties_are_right(qs_slice properties, uint64_t id)
{
    const uint8_t *bytes = properties.data;

    return properties.bytes != 4 || bytes[0] != 0x18 || bytes[3] == crash_priority(id);
}

/* -- building it ------------------------------------------------------------------------------ */

static inline qs_slice crash_text(const char *text)
{
    return (qs_slice){text, strlen(text)};
}

static inline qs_slice crash_queue_name(const struct crash_queue *queue)
{
    return crash_text(queue->name);
}

static inline qs_slice crash_tx_key(char text[16], uint32_t index)
{
    snprintf(text, 16, "tx-%u", index);
    return crash_text(text);
}

static inline bool crash_is_known(qs_store *store, qs_slice key)
{
    bool known = false;

    QS_CHECK_OK(qs_store_transaction_known(store, key, &known, QS_ERROR));
    return known;
}

/* All queues are durable but the last. */
static inline void crash_model_init(struct crash_model *model)
{
    *model = (struct crash_model){.next_id = 1};
    for (int i = 0; i < CRASH_QUEUES; i++) {
        struct crash_queue *queue = &model->queues[i];

        queue->is_durable = i != CRASH_QUEUES - 1;
        queue->has_levels = i == CRASH_LEVELS_QUEUE;
        snprintf(queue->name, sizeof queue->name, "%c%d", queue->is_durable ? 'q' : 't', i);
    }
}

static inline void crash_model_fini(struct crash_model *model)
{
    for (int i = 0; i < CRASH_QUEUES; i++) {
        free(model->queues[i].copies);
    }
    *model = (struct crash_model){0};
}

static inline void crash_model_copy(struct crash_model *to, const struct crash_model *from)
{
    *to = *from;
    for (int i = 0; i < CRASH_QUEUES; i++) {
        struct crash_queue *queue = &to->queues[i];
        size_t bytes = queue->count * sizeof *queue->copies;

        queue->capacity = queue->count;
        queue->copies = malloc(bytes + 1);
        QS_CHECK(queue->copies != NULL);
        if (bytes > 0) {
            memcpy(queue->copies, from->queues[i].copies, bytes);
        }
    }
}

static inline struct crash_copy *crash_queue_add(struct crash_queue *queue, uint8_t priority)
{
    uint8_t level = priority < CRASH_PRIORITY_MAX ? priority : CRASH_PRIORITY_MAX;
    uint32_t at = queue->count;

    if (queue->count == queue->capacity) {
        queue->capacity = queue->capacity * 2 + 16;
        queue->copies = realloc(queue->copies, queue->capacity * sizeof *queue->copies);
        QS_CHECK(queue->copies != NULL);
    }
    level = queue->has_levels ? level : 0;
    for (; at > 0 && queue->copies[at - 1].level < level; at--) {
        queue->copies[at] = queue->copies[at - 1];
    }
    queue->copies[at] = (struct crash_copy){.level = level};
    queue->count++;
    return &queue->copies[at];
}

/* -- what is promised ------------------------------------------------------------------------- */

static inline bool crash_is_confirmed(const struct crash_model *model,
                                      const struct crash_copy *copy)
{
    return copy->publish_lsn <= model->durable_lsn;
}

static inline bool crash_must_be_there(const struct crash_model *model,
                                       const struct crash_queue *queue,
                                       const struct crash_copy *copy)
{
    return queue->exists == CRASH_PRESENT && !copy->is_transient &&
           crash_is_confirmed(model, copy) && copy->settle_lsn == 0;
}

static inline bool crash_must_be_gone(const struct crash_model *model,
                                      const struct crash_copy *copy)
{
    return copy->is_transient || (copy->settle_lsn != 0 && copy->settle_lsn <= model->durable_lsn);
}

/* -- comparing a recovered store with it ------------------------------------------------------ */

struct crash_check {
    struct crash_model *model; /* only is_found changes */
    struct crash_report *report;
    qs_store *store;
    qs_channel *channel;
    uint64_t refused; /* of the queue at hand */
};

/* Finds the message behind *position_io, which moves behind it. */
static inline void crash_check_message(struct crash_check *check, struct crash_queue *queue,
                                       const qs_message *message, uint32_t *position_io)
{
    uint64_t id = crash_body_id(message->body);
    uint32_t position = *position_io;
    struct crash_copy *copy;

    while (position < queue->count && queue->copies[position].id != id) {
        position++;
    }
    if (position == queue->count) {
        for (position = 0; position < *position_io && queue->copies[position].id != id;) {
            position++;
        }
        position = position < *position_io ? position : queue->count;
    }
    if (position == queue->count) {
        crash_violation(check->report, "%s: message %" PRIu64 " of %zu bytes appears, unpublished",
                        queue->name, id, message->body.bytes);
        return;
    }
    copy = &queue->copies[position];
    if (copy->is_found) {
        crash_violation(check->report, "%s: message %" PRIu64 " is there twice", queue->name, id);
    } else if (position < *position_io) {
        crash_violation(check->report, "%s: message %" PRIu64 " is out of order", queue->name, id);
    }
    copy->is_found = true;
    *position_io = position + 1;
    if (!crash_body_is_right(message->body, id, copy->body_bytes) ||
        !crash_properties_are_right(message->properties, id)) {
        crash_violation(check->report, "%s: message %" PRIu64 " has wrong bytes", queue->name, id);
    }
    if (crash_must_be_gone(check->model, copy)) {
        crash_violation(check->report, "%s: message %" PRIu64 " is back although %s", queue->name,
                        id, copy->is_transient ? "it was transient" : "its ack was durable");
    }
    if (copy->was_delivered && !message->redelivered) {
        crash_violation(check->report, "%s: message %" PRIu64 " comes again unflagged", queue->name,
                        id);
    }
}

/* Nothing that had to be there is missing, and nothing is missing in front of what is there. */
static inline void crash_check_missing(struct crash_check *check, struct crash_queue *queue)
{
    bool later_is_there = false;

    for (uint32_t i = queue->count; i-- > 0;) {
        const struct crash_copy *copy = &queue->copies[i];

        if (i + 1 < queue->count && queue->copies[i + 1].level != copy->level) {
            later_is_there = false; /* what is behind it may be older */
        }
        if (copy->is_found) {
            later_is_there = true;
        } else if (check->refused > 0 && copy->settle_lsn == 0) {
            check->refused--; /* nobody can tell which one it was */
        } else if (crash_must_be_there(check->model, queue, copy)) {
            crash_violation(check->report, "%s: confirmed message %" PRIu64 " is lost", queue->name,
                            copy->id);
        } else if (later_is_there && copy->settle_lsn == 0 && !copy->is_transient) {
            crash_violation(check->report, "%s: message %" PRIu64 " is lost, a later one is there",
                            queue->name, copy->id);
        }
    }
}

static inline uint64_t crash_ready_count(struct crash_check *check, struct crash_queue *queue)
{
    qs_queue_status found;

    QS_CHECK_OK(qs_store_queue_status(check->store, crash_queue_name(queue), &found, QS_ERROR));
    return found.messages_ready;
}

static inline void crash_check_drain(struct crash_check *check, struct crash_queue *queue)
{
    uint32_t position = 0;
    uint64_t ready = crash_ready_count(check, queue);
    qs_status status;

    for (;;) {
        qs_message message;

        status = qs_channel_get(check->channel, crash_queue_name(queue), 0, &message, QS_ERROR);
        if (status == QS_ECORRUPT && check->report->allows_refusals &&
            qs_test_error.path[0] != '\0') {
            /* A message, or as many as a segment has; what lies behind comes next. */
            uint64_t left = crash_ready_count(check, queue);
            check->report->refusals++;
            if (left >= ready) {
                crash_violation(check->report, "%s: it does not get past its damage", queue->name);
                return;
            }
            check->refused += ready - left;
            ready = left;
            continue;
        }
        if (status != QS_OK) {
            break;
        }
        ready -= 1;
        crash_check_message(check, queue, &message, &position);
        queue->last_tag = message.delivery_tag;
        qs_message_release(&message);
    }
    if (status != QS_EEMPTY) {
        crash_violation(check->report, "%s: get: %s: %s", queue->name, qs_status_name(status),
                        qs_test_error.text);
    }
}

/* Compares what was asked with what the store says; returns whether the queue is there. */
static inline bool crash_check_existence(struct crash_check *check, struct crash_queue *queue)
{
    qs_queue_status found;
    qs_status status =
        qs_store_queue_status(check->store, crash_queue_name(queue), &found, QS_ERROR);
    bool is_there = status == QS_OK;

    if (is_there && queue->exists == CRASH_PRESENT && queue->is_lazy != CRASH_UNCERTAIN &&
        found.lazy != (queue->is_lazy == CRASH_PRESENT)) {
        crash_violation(check->report, "%s: the queue %s lazy", queue->name,
                        found.lazy ? "is" : "is no longer");
    }

    if (is_there && (queue->exists == CRASH_ABSENT || !queue->is_durable)) {
        crash_violation(check->report, "%s: the queue is there although it was %s", queue->name,
                        queue->is_durable ? "deleted" : "transient");
    }
    if (!is_there && queue->exists == CRASH_PRESENT && queue->is_durable) {
        crash_violation(check->report, "%s: the queue is lost", queue->name);
    }
    return is_there;
}

static inline void crash_check_queue(struct crash_check *check, struct crash_queue *queue)
{
    check->refused = 0;
    queue->last_tag = 0;
    for (uint32_t i = 0; i < queue->count; i++) {
        queue->copies[i].is_found = false;
    }
    if (crash_check_existence(check, queue)) {
        crash_check_drain(check, queue);
    }
    crash_check_missing(check, queue);
}

/* A transaction under way: everything of it happened, or nothing did. */
static inline void crash_check_tx(struct crash_check *check, uint32_t index, bool is_known)
{
    struct crash_model *model = check->model;

    for (int i = 0; i < CRASH_QUEUES; i++) {
        struct crash_queue *queue = &model->queues[i];

        for (uint32_t k = 0; k < queue->count; k++) {
            const struct crash_copy *copy = &queue->copies[k];

            if (copy->publish_tx == index + 1 && !copy->is_transient &&
                copy->is_found != is_known) {
                crash_violation(check->report, "%s: message %" PRIu64 " %s, but its transaction %s",
                                queue->name, copy->id, copy->is_found ? "is there" : "is lost",
                                is_known ? "was committed" : "was not");
            }
            if (copy->settle_tx == index + 1 && !copy->is_transient &&
                crash_is_confirmed(model, copy) && copy->is_found == is_known) {
                crash_violation(check->report, "%s: message %" PRIu64 " %s, but the transaction %s",
                                queue->name, copy->id, copy->is_found ? "is there" : "is acked",
                                is_known ? "that acks it was committed"
                                         : "that would ack it was not");
            }
        }
    }
}

static inline void crash_check_txs(struct crash_check *check)
{
    for (uint32_t i = 0; i < check->model->tx_count; i++) {
        enum crash_certainty committed = check->model->txs[i];
        char text[16];
        bool is_known = crash_is_known(check->store, crash_tx_key(text, i));

        if (committed == CRASH_UNCERTAIN) {
            crash_check_tx(check, i, is_known);
        } else if (is_known != (committed == CRASH_PRESENT)) {
            crash_violation(check->report, "transaction %u is %s", i,
                            is_known ? "known, but never happened" : "forgotten");
        }
    }
}

struct crash_topology {
    bool fan_exists;
    bool way_exists;
    bool way_leads;
    bool is_bound[CRASH_QUEUES];
    const struct crash_model *model;
};

static inline void crash_visit_exchange(void *context, const qs_exchange_info *exchange)
{
    struct crash_topology *topology = context;

    if (exchange->name.bytes == 3 && memcmp(exchange->name.data, "fan", 3) == 0) {
        topology->fan_exists = true;
    }
    if (exchange->name.bytes == 3 && memcmp(exchange->name.data, "way", 3) == 0) {
        topology->way_exists = exchange->arguments.bytes > 0;
    }
}

static inline void crash_visit_binding(void *context, const qs_binding_info *binding)
{
    struct crash_topology *topology = context;

    if (binding->to_exchange) {
        topology->way_leads = topology->way_leads || binding->source.bytes == 3;
        return;
    }
    for (int i = 0; i < CRASH_QUEUES; i++) {
        qs_slice name = crash_queue_name(&topology->model->queues[i]);

        if (binding->source.bytes == 3 && binding->destination.bytes == name.bytes &&
            memcmp(binding->destination.data, name.data, name.bytes) == 0) {
            topology->is_bound[i] = true;
        }
    }
}

static inline struct crash_topology crash_topology_of(const struct crash_model *model,
                                                      qs_store *store)
{
    struct crash_topology topology = {.model = model};

    QS_CHECK_OK(qs_store_visit_exchanges(store, crash_visit_exchange, &topology));
    QS_CHECK_OK(qs_store_visit_bindings(store, crash_visit_binding, &topology));
    return topology;
}

static inline void crash_check_certainty(struct crash_check *check, enum crash_certainty expected,
                                         bool is_there, const char *what, const char *name)
{
    if (expected != CRASH_UNCERTAIN && is_there != (expected == CRASH_PRESENT)) {
        crash_violation(check->report, "%s%s %s", what, name,
                        is_there ? "is there, but it was removed" : "is lost");
    }
}

static inline void crash_check_topology(struct crash_check *check)
{
    struct crash_topology topology = crash_topology_of(check->model, check->store);

    crash_check_certainty(check, check->model->fan_exists, topology.fan_exists, "the exchange", "");
    crash_check_certainty(check, check->model->way_exists, topology.way_exists,
                          "the exchange with an alternate", "");
    crash_check_certainty(check, check->model->way_leads, topology.way_leads,
                          "the binding between exchanges", "");
    for (int i = 0; i < CRASH_QUEUES; i++) {
        const struct crash_queue *queue = &check->model->queues[i];
        enum crash_certainty expected = queue->is_bound;

        if (!queue->is_durable || queue->exists == CRASH_ABSENT) {
            expected = CRASH_ABSENT;
        } else if (queue->exists == CRASH_UNCERTAIN && expected == CRASH_PRESENT) {
            expected = CRASH_UNCERTAIN;
        }
        crash_check_certainty(check, expected, topology.is_bound[i], "the binding of ",
                              queue->name);
    }
}

/* Drains all queues of an opened store and compares; the messages stay out on the channel. */
static inline void crash_model_check(struct crash_model *model, struct crash_report *report,
                                     qs_store *store, qs_channel *channel)
{
    struct crash_check check = {
        .model = model, .report = report, .store = store, .channel = channel};

    model->is_checking = true;
    for (int i = 0; i < CRASH_QUEUES; i++) {
        crash_check_queue(&check, &model->queues[i]);
    }
    crash_check_txs(&check);
    crash_check_topology(&check);
    model->is_checking = false;
}

/* -- going on from what a recovery showed ----------------------------------------------------- */

static inline void crash_adopt_queue(struct crash_queue *queue, qs_store *store)
{
    uint32_t kept = 0;
    qs_queue_status found = {0};

    for (uint32_t i = 0; i < queue->count; i++) {
        struct crash_copy copy = queue->copies[i];

        if (copy.is_found) {
            queue->copies[kept++] = (struct crash_copy){
                .id = copy.id,
                .body_bytes = copy.body_bytes,
                .level = copy.level,
                .was_delivered = true, /* by the check itself */
            };
        }
    }
    queue->count = kept;
    queue->exists = qs_store_queue_status(store, crash_queue_name(queue), &found, NULL) == QS_OK
                        ? CRASH_PRESENT
                        : CRASH_ABSENT;
    queue->is_lazy = found.lazy ? CRASH_PRESENT : CRASH_ABSENT;
}

/* REQUIRES that crash_model_check was the last to look at this store: what it found is final. */
static inline void crash_model_adopt(struct crash_model *model, qs_store *store)
{
    struct crash_topology topology = crash_topology_of(model, store);

    for (int i = 0; i < CRASH_QUEUES; i++) {
        crash_adopt_queue(&model->queues[i], store);
        model->queues[i].is_bound = topology.is_bound[i] ? CRASH_PRESENT : CRASH_ABSENT;
    }
    model->fan_exists = topology.fan_exists ? CRASH_PRESENT : CRASH_ABSENT;
    model->way_exists = topology.way_exists ? CRASH_PRESENT : CRASH_ABSENT;
    model->way_leads = topology.way_leads ? CRASH_PRESENT : CRASH_ABSENT;
    for (uint32_t i = 0; i < model->tx_count; i++) {
        char text[16];

        model->txs[i] = crash_is_known(store, crash_tx_key(text, i)) ? CRASH_PRESENT : CRASH_ABSENT;
    }
    model->durable_lsn = qs_store_durable_lsn(store);
}

/* The process ended in order: everything published and every ack is durable, what was out is
 * ready again, and what was transient is gone. */
static inline void crash_model_close(struct crash_model *model)
{
    for (int i = 0; i < CRASH_QUEUES; i++) {
        struct crash_queue *queue = &model->queues[i];
        uint32_t kept = 0;

        for (uint32_t k = 0; k < queue->count; k++) {
            struct crash_copy copy = queue->copies[k];

            if (!copy.is_transient && copy.settle_lsn == 0) {
                copy.publish_lsn = 0;
                copy.publish_tx = copy.settle_tx = 0;
                copy.tag = 0;
                queue->copies[kept++] = copy;
            }
        }
        queue->count = kept;
        if (!queue->is_durable) {
            queue->exists = queue->is_bound = queue->is_lazy = CRASH_ABSENT;
        }
    }
}

#endif
