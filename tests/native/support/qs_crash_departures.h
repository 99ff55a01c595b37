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
#ifndef QS_CRASH_DEPARTURES_H
#define QS_CRASH_DEPARTURES_H

#include "env_test.h"
#include "journal_internal.h"
#include "qs_crash_env.h"
#include "qs_crash_model.h"
#include "qs_crash_work.h"
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

static const struct depart_kind {
    const char *name;
    const char *exchange; /* of its dead letters; NULL: none */
    bool has_two;         /* targets */
    uint32_t ttl_ms;      /* 0: none */
    struct {
        const char *name;
        int64_t number;   /* 0: text */
        const char *text; /* NULL: no more */
    } arguments[3];
} depart_kinds[DEPART_QUEUES] = {
    [DEPART_LENGTH] = {"length", "one", false, 0, {{"x-max-length", 6, ""}}},
    [DEPART_BYTES] = {"bytes", "two", true, 0, {{"x-max-length-bytes", 2500, ""}}},
    [DEPART_TTL] = {"ttl", "two", true, 2000, {{"x-message-ttl", 2000, ""}}},
    [DEPART_LIMIT] = {"limit", "one", false, 0, {{"x-delivery-limit", 1, ""}}},
    [DEPART_LEAST] = {"least",
                      "one",
                      false,
                      0,
                      {{"x-overflow", 0, "reject-publish"},
                       {"x-dead-letter-strategy", 0, "at-least-once"}}},
    [DEPART_OVERFLOW] = {"overflow",
                         "one",
                         false,
                         0,
                         {{"x-max-length", 5, ""}, {"x-overflow", 0, "reject-publish-dlx"}}},
    [DEPART_REFUSE] =
        {"refuse", NULL, false, 0, {{"x-max-length", 5, ""}, {"x-overflow", 0, "reject-publish"}}},
    [DEPART_GONE] = {"gone", NULL, false, 3000, {{"x-message-ttl", 3000, ""}}},
    [DEPART_PLAIN] = {"plain", NULL, false, 0, {{NULL}}},
    [DEPART_FIRST] = {"first", NULL, false, 0, {{NULL}}},
    [DEPART_SECOND] = {"second", NULL, false, 0, {{NULL}}},
};

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

/* -- what must hold --------------------------------------------------------------------------- */

struct depart_check {
    const struct depart_model *model;
    struct crash_report *report;
    struct depart_found *found;
    const struct crash_env *env; /* of the store: a process that dies meanwhile says nothing */
    uint64_t now_us;
};

static inline bool depart_has_bytes(qs_slice where, const char *what)
{
    size_t bytes = strlen(what);

    for (size_t i = 0; i + bytes <= where.bytes; i++) {
        if (memcmp((const uint8_t *)where.data + i, what, bytes) == 0) {
            return true;
        }
    }
    return false;
}

static inline void depart_check_message(struct depart_check *check, enum depart_queue queue,
                                        const qs_message *message)
{
    uint64_t id = crash_body_id(message->body);
    const struct depart_message *known;
    enum depart_place place = queue == DEPART_FIRST    ? DEPART_AT_FIRST
                              : queue == DEPART_SECOND ? DEPART_AT_SECOND
                                                       : DEPART_AT_SOURCE;
    const char *name = depart_kinds[queue].name;

    if (id == 0 || id > check->model->count) {
        crash_violation(check->report, "%s: message %" PRIu64 " was never published", name, id);
        return;
    }
    known = &check->model->messages[id - 1];
    if (place == DEPART_AT_SOURCE
            ? known->source != queue
            : depart_kinds[known->source].exchange == NULL ||
                  (place == DEPART_AT_SECOND && !depart_kinds[known->source].has_two)) {
        crash_violation(check->report, "%s: message %" PRIu64 " of %s has no business there", name,
                        id, depart_kinds[known->source].name);
    }
    if (!crash_body_is_right(message->body, id, known->body_bytes)) {
        crash_violation(check->report, "%s: message %" PRIu64 " has wrong bytes", name, id);
    }
    if (depart_has_bytes(message->properties, "x-death") != (place != DEPART_AT_SOURCE)) {
        crash_violation(check->report, "%s: message %" PRIu64 " %s of a death", name, id,
                        place == DEPART_AT_SOURCE ? "tells" : "does not tell");
    }
    if (place == DEPART_AT_SOURCE && known->expires_us <= check->now_us) {
        crash_violation(check->report, "%s: message %" PRIu64 " had expired", name, id);
    }
    check->found->counts[id - 1][place]++;
}

static inline bool depart_was_durably_settled(const struct depart_check *check,
                                              const struct depart_message *known)
{
    for (int place = 0; place < DEPART_PLACES; place++) {
        uint64_t lsn = known->settle_lsns[place];
        if (lsn != 0 && lsn <= check->model->durable_lsn) {
            return true;
        }
    }
    return false;
}

/* Is it where it must be?  Targets of which it was acked may lack it. */
static inline bool depart_is_somewhere(const struct depart_message *known, const uint8_t *counts)
{
    const struct depart_kind *kind = &depart_kinds[known->source];

    if (counts[DEPART_AT_SOURCE] > 0) {
        return true;
    }
    return kind->exchange != NULL &&
           (counts[DEPART_AT_FIRST] > 0 || known->settle_lsns[DEPART_AT_FIRST] != 0) &&
           (!kind->has_two || counts[DEPART_AT_SECOND] > 0 ||
            known->settle_lsns[DEPART_AT_SECOND] != 0);
}

/* May it be nowhere? */
static inline bool depart_may_be_gone(const struct depart_check *check,
                                      const struct depart_message *known)
{
    const struct depart_kind *kind = &depart_kinds[known->source];

    return known->is_gone || known->is_transient || known->was_refused ||
           known->publish_lsn > check->model->durable_lsn ||
           known->settle_lsns[DEPART_AT_SOURCE] != 0 ||
           (kind->exchange == NULL && known->expires_us <= check->now_us);
}

static inline void depart_check_places(struct depart_check *check, uint64_t id)
{
    const struct depart_message *known = &check->model->messages[id - 1];
    const uint8_t *counts = check->found->counts[id - 1];
    const char *name = depart_kinds[known->source].name;
    uint32_t targets = counts[DEPART_AT_FIRST] + counts[DEPART_AT_SECOND];
    bool is_there = counts[DEPART_AT_SOURCE] + targets > 0;

    if (counts[DEPART_AT_SOURCE] > 1 || counts[DEPART_AT_FIRST] > 1 ||
        counts[DEPART_AT_SECOND] > 1 || (counts[DEPART_AT_SOURCE] > 0 && targets > 0)) {
        crash_violation(check->report,
                        "message %" PRIu64 " of %s: %u times at home, %u and %u times elsewhere",
                        id, name, counts[0], counts[1], counts[2]);
    }
    if (is_there && (known->is_gone || known->is_transient || known->was_refused)) {
        crash_violation(check->report, "message %" PRIu64 " of %s is there although %s", id, name,
                        known->is_gone        ? "it was gone"
                        : known->is_transient ? "it was transient"
                                              : "it was refused");
    }
    if (is_there && !known->is_gone && !depart_is_somewhere(known, counts)) {
        crash_violation(check->report, "message %" PRIu64 " of %s is in one of two targets", id,
                        name);
    }
    if (counts[DEPART_AT_SOURCE] > 0 && depart_was_durably_settled(check, known)) {
        crash_violation(check->report, "message %" PRIu64 " of %s is back, acked", id, name);
    }
    for (int place = DEPART_AT_FIRST; place < DEPART_PLACES; place++) {
        uint64_t lsn = known->settle_lsns[place];
        if (counts[place] > 0 && lsn != 0 && lsn <= check->model->durable_lsn) {
            crash_violation(check->report, "letter %" PRIu64 " of %s is back, acked", id, name);
        }
    }
    if (!is_there && !depart_may_be_gone(check, known) && !depart_is_somewhere(known, counts)) {
        crash_violation(check->report, "message %" PRIu64 " of %s is lost", id, name);
    }
}

/* Even if its transaction happened. */
static inline bool depart_may_have_left(const struct depart_check *check,
                                        const struct depart_message *known)
{
    return known->is_transient || known->settle_lsns[0] != 0 || known->settle_lsns[1] != 0 ||
           known->settle_lsns[2] != 0 ||
           (depart_kinds[known->source].exchange == NULL && known->expires_us <= check->now_us);
}

/* Whether its marker is there tells whether a transaction happened. */
static inline bool depart_happened(const struct depart_check *check, uint64_t marker)
{
    return check->found->counts[marker - 1][DEPART_AT_SOURCE] > 0;
}

static inline void depart_check_tx(struct depart_check *check, uint64_t id)
{
    const struct depart_message *known = &check->model->messages[id - 1];
    const uint8_t *counts = check->found->counts[id - 1];
    bool is_there = counts[0] + counts[1] + counts[2] > 0;

    if (known->is_gone) {
        return;
    }
    if (known->published_with != 0 && !depart_may_have_left(check, known) &&
        is_there != depart_happened(check, known->published_with)) {
        crash_violation(check->report,
                        "message %" PRIu64 " is %s, unlike the rest of its transaction", id,
                        is_there ? "there" : "lost");
    }
    if (known->rejected_with == 0) {
        return;
    }
    if (depart_happened(check, known->rejected_with)) {
        if (counts[DEPART_AT_SOURCE] > 0) {
            crash_violation(check->report,
                            "message %" PRIu64 " is back, though its reject was committed", id);
        }
    } else if (known->source == DEPART_LEAST && is_there && counts[DEPART_AT_SOURCE] == 0) {
        /* This queue's messages leave it by being rejected, and in no other way. */
        crash_violation(check->report,
                        "message %" PRIu64 " moved, though its reject was not committed", id);
    }
}

static inline void depart_drain(struct depart_check *check, qs_store *store, qs_channel *channel,
                                enum depart_queue queue)
{
    const char *name = depart_kinds[queue].name;
    qs_queue_status found;
    qs_status status = qs_store_queue_status(store, crash_text(name), &found, NULL);

    while (status == QS_OK) {
        qs_message message;
        status = qs_channel_get(channel, crash_text(name), 0, &message, QS_ERROR);
        if (status == QS_OK) {
            depart_check_message(check, queue, &message);
            qs_message_release(&message);
        }
    }
    if (status != QS_EEMPTY && status != QS_NOT_FOUND && !check->env->is_dead) {
        crash_violation(check->report, "%s: get: %s: %s", name, qs_status_name(status),
                        qs_test_error.text);
    }
}

/* Takes everything; it stays out on the channel.  What is to move moves while its queue is looked at, and those it moves to come
 * last. */
static inline void depart_check_store(const struct depart_model *model, struct crash_report *report,
                                      qs_store *store, qs_channel *channel, struct crash_env *env,
                                      struct depart_found *found)
{
    struct depart_check check = {.model = model,
                                 .report = report,
                                 .found = found,
                                 .env = env,
                                 .now_us = env->env.wall_us(&env->env)};

    memset(found, 0, sizeof *found);
    for (int queue = 0; queue < DEPART_QUEUES; queue++) {
        depart_drain(&check, store, channel, (enum depart_queue)queue);
    }
    for (uint64_t id = 1; id <= model->count && !env->is_dead; id++) {
        depart_check_places(&check, id);
        depart_check_tx(&check, id);
    }
}

/* What a recovery showed is the truth from then on; only where a message is may still change. */
static inline void depart_adopt(struct depart_model *model, const struct depart_found *found)
{
    for (uint32_t i = 0; i < model->count; i++) {
        struct depart_message *known = &model->messages[i];
        const uint8_t *counts = found->counts[i];

        known->is_gone = known->is_gone || counts[0] + counts[1] + counts[2] == 0;
        known->publish_lsn = 0;
        for (int place = 0; place < DEPART_PLACES; place++) {
            bool is_settled = place != DEPART_AT_SOURCE && counts[DEPART_AT_SOURCE] == 0 &&
                              counts[place] == 0 && known->settle_lsns[place] != 0;
            known->settle_lsns[place] = is_settled ? 1 : 0; /* durable */
        }
    }
    for (uint32_t i = 0; i < model->count; i++) {
        struct depart_message *known = &model->messages[i];

        if (known->rejected_with != 0 && model->messages[known->rejected_with - 1].is_gone) {
            known->rejected_with = 0;
        }
    }
}

/* -- the work --------------------------------------------------------------------------------- */

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

static inline uint64_t depart_new(struct depart_work *work, enum depart_queue queue, uint32_t bytes,
                                  bool persistent, uint32_t expiration_ms)
{
    struct depart_model *model = work->model;
    struct depart_message *message = &model->messages[model->count];
    uint32_t ttl_ms = depart_kinds[queue].ttl_ms;

    QS_CHECK(model->count < DEPART_MESSAGES_MAX);
    if (expiration_ms != 0 && (ttl_ms == 0 || expiration_ms < ttl_ms)) {
        ttl_ms = expiration_ms;
    }
    *message = (struct depart_message){
        .body_bytes = bytes,
        .source = (uint8_t)queue,
        .is_transient = !persistent,
        .expires_us =
            ttl_ms == 0 ? DEPART_NEVER : work->sim->wall_us(work->sim) + ttl_ms * UINT64_C(1000),
        .publish_lsn = CRASH_UNDER_WAY,
    };
    return ++model->count;
}

static inline uint32_t depart_any_bytes(struct depart_work *work)
{
    return crash_below(&work->base, 4) == 0 ? 200 + crash_below(&work->base, 3000)
                                            : 8 + crash_below(&work->base, 150);
}

static inline bool depart_has_failed(const struct depart_work *work)
{
    qs_stats stats;

    qs_store_stats(work->base.store, &stats);
    return stats.failed;
}

/* What was refused is known at once.  A store that fails nacks as well, and nobody knows what of. */
static inline void depart_hear_nacks(struct depart_work *work)
{
    qs_channel *channel = work->base.channels[CRASH_CONFIRM_CHANNEL];
    qs_event event;

    while (!work->base.env->is_dead && !depart_has_failed(work) &&
           qs_channel_next_event(channel, QS_EVENT_ACK | QS_EVENT_NACK, 0, &event, NULL) == QS_OK) {
        uint64_t id = work->confirm_ids[event.publish_number % CRASH_CONFIRMS_MAX];
        struct depart_message *message = &work->model->messages[id - 1];
        if (event.kind != QS_EVENT_NACK) {
            continue;
        }
        if (message->source != DEPART_REFUSE && message->source != DEPART_OVERFLOW) {
            crash_violation(work->base.report, "%s refuses a message",
                            depart_kinds[message->source].name);
        }
        message->was_refused = message->source == DEPART_REFUSE;
    }
    crash_note_durable(&work->base);
    work->model->durable_lsn = work->base.model->durable_lsn;
}

static inline void depart_published(struct depart_work *work, uint64_t first_id,
                                    const qs_receipt *receipt)
{
    for (uint64_t i = 0; i < receipt->count; i++) {
        work->model->messages[first_id - 1 + i].publish_lsn = receipt->lsn;
        if (receipt->first_number != 0) {
            work->confirm_ids[(receipt->first_number + i) % CRASH_CONFIRMS_MAX] = first_id + i;
        }
    }
    depart_hear_nacks(work);
}

static inline qs_status depart_publish_as(struct depart_work *work, uint32_t channel, uint64_t id,
                                          uint32_t expiration_ms, qs_receipt *receipt)
{
    static uint8_t body[CRASH_BODY_BYTES_MAX];
    const struct depart_message *message = &work->model->messages[id - 1];
    uint8_t properties[16] = {0x10, 0x00, message->is_transient ? 1 : 2};
    size_t bytes = 3;

    if (expiration_ms != 0) {
        int length = snprintf((char *)properties + 4, 12, "%u", expiration_ms);
        properties[0] |= 0x01;
        properties[3] = (uint8_t)length;
        bytes = 4 + (size_t)length;
    }
    crash_body_fill(body, id, message->body_bytes);
    return qs_channel_publish(
        work->base.channels[channel], (qs_slice){0}, crash_text(depart_kinds[message->source].name),
        (qs_slice){properties, bytes}, (qs_slice){body, message->body_bytes}, 0, receipt, QS_ERROR);
}

static inline void depart_publish(struct depart_work *work, uint32_t channel,
                                  enum depart_queue queue, uint32_t bytes, bool persistent)
{
    uint32_t expiration_ms = queue != DEPART_LEAST && crash_chance(&work->base, 15)
                                 ? 500 + crash_below(&work->base, 4000)
                                 : 0;
    uint64_t id = depart_new(work, queue, bytes, persistent, expiration_ms);
    qs_receipt receipt = {0};

    if (crash_done(&work->base, depart_publish_as(work, channel, id, expiration_ms, &receipt),
                   "publish")) {
        depart_published(work, id, &receipt);
    }
}

static inline enum depart_queue depart_any_source(struct depart_work *work)
{
    return (enum depart_queue)crash_below(&work->base, DEPART_SOURCES);
}

static inline void depart_work_publish(struct depart_work *work)
{
    uint32_t count = 1 + crash_below(&work->base, 6);

    while (count-- > 0 && !work->base.is_over) {
        depart_publish(work, CRASH_CONFIRM_CHANNEL, depart_any_source(work), depart_any_bytes(work),
                       crash_chance(&work->base, 90));
    }
}

static inline void depart_publish_batch(struct depart_work *work, enum depart_queue queue,
                                        uint32_t count)
{
    uint64_t first_id = work->model->count + 1;
    struct qs_test_batch rows;
    qs_receipt receipt = {0};
    qs_batch batch;

    qs_test_batch_init(&rows);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bytes = depart_any_bytes(work);
        uint64_t id = depart_new(work, queue, bytes, true, 0);
        crash_body_fill(qs_test_batch_add(&rows, depart_kinds[queue].name, bytes), id, bytes);
    }
    batch = qs_test_batch_finish(&rows);
    if (crash_done(&work->base,
                   qs_channel_publish_batch(work->base.channels[CRASH_CONFIRM_CHANNEL], &batch,
                                            &receipt, QS_ERROR),
                   "publish batch")) {
        depart_published(work, first_id, &receipt);
    }
    qs_test_batch_fini(&rows);
}

static inline void depart_work_batch(struct depart_work *work)
{
    enum depart_queue queue = depart_any_source(work);

    depart_publish_batch(work, queue, 2 + crash_below(&work->base, 14));
}

/* Not from the queue of the markers. */
static inline void depart_get(struct depart_work *work, uint32_t channel, enum depart_queue queue)
{
    qs_message message = {0};
    qs_status status = qs_channel_get(work->base.channels[channel],
                                      crash_text(depart_kinds[queue].name), 0, &message, QS_ERROR);

    if (status == QS_EEMPTY) {
        return;
    }
    if (crash_done(&work->base, status, "get") && work->out_count < DEPART_OUTS_MAX) {
        work->outs[work->out_count++] = (struct depart_out){
            .id = crash_body_id(message.body),
            .tag = message.delivery_tag,
            .channel = channel,
            .place = queue == DEPART_FIRST    ? DEPART_AT_FIRST
                     : queue == DEPART_SECOND ? DEPART_AT_SECOND
                                              : DEPART_AT_SOURCE,
        };
    }
    qs_message_release(&message);
}

static inline void depart_work_get(struct depart_work *work)
{
    uint32_t queue = crash_below(&work->base, DEPART_QUEUES - 1);
    uint32_t count = 1 + crash_below(&work->base, 6);

    queue += queue >= DEPART_PLAIN ? 1 : 0;
    while (count-- > 0 && !work->base.is_over) {
        depart_get(work, CRASH_PLAIN_CHANNEL, (enum depart_queue)queue);
    }
}

enum depart_verb { DEPART_ACK, DEPART_REJECT, DEPART_REQUEUE };

/* Does the verb end the message there?  Rejects of a queue without dead letters do. */
static inline bool depart_ends(const struct depart_work *work, const struct depart_out *out,
                               enum depart_verb verb)
{
    return verb == DEPART_ACK ||
           (verb == DEPART_REJECT &&
            (out->place != DEPART_AT_SOURCE ||
             depart_kinds[work->model->messages[out->id - 1].source].exchange == NULL));
}

static inline bool depart_is_meant(const struct depart_out *out, const struct depart_out *by,
                                   bool multiple)
{
    return out->channel == by->channel && (multiple ? out->tag <= by->tag : out->tag == by->tag);
}

static inline void depart_set_settled(struct depart_work *work, const struct depart_out *by,
                                      bool multiple, enum depart_verb verb, uint64_t lsn)
{
    for (uint32_t i = 0; i < work->out_count; i++) {
        const struct depart_out *out = &work->outs[i];
        if (depart_is_meant(out, by, multiple) && depart_ends(work, out, verb)) {
            work->model->messages[out->id - 1].settle_lsns[out->place] = lsn;
        }
    }
}

static inline void depart_forget_outs(struct depart_work *work, const struct depart_out *by,
                                      bool multiple)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < work->out_count; i++) {
        if (!depart_is_meant(&work->outs[i], by, multiple)) {
            work->outs[kept++] = work->outs[i];
        }
    }
    work->out_count = kept;
}

static inline qs_status depart_call(struct depart_work *work, const struct depart_out *by,
                                    bool multiple, enum depart_verb verb)
{
    qs_channel *channel = work->base.channels[by->channel];
    uint32_t flags = multiple ? QS_MULTIPLE : 0;

    return verb == DEPART_ACK
               ? qs_channel_ack(channel, by->tag, flags, QS_ERROR)
               : qs_channel_nack(channel, by->tag,
                                 flags | (verb == DEPART_REQUEUE ? QS_REQUEUE : 0), QS_ERROR);
}

static inline void depart_settle(struct depart_work *work, struct depart_out by, bool multiple,
                                 enum depart_verb verb)
{
    depart_set_settled(work, &by, multiple, verb, CRASH_UNDER_WAY);
    if (crash_done(&work->base, depart_call(work, &by, multiple, verb), "settle")) {
        depart_set_settled(work, &by, multiple, verb, crash_appended_lsn(&work->base));
        depart_forget_outs(work, &by, multiple);
        depart_hear_nacks(work);
    }
}

static inline void depart_work_settle(struct depart_work *work)
{
    static const enum depart_verb verbs[] = {DEPART_ACK,    DEPART_REJECT,  DEPART_REJECT,
                                             DEPART_REJECT, DEPART_REQUEUE, DEPART_REQUEUE};

    if (work->out_count > 0) {
        depart_settle(work, work->outs[crash_below(&work->base, work->out_count)],
                      crash_chance(&work->base, 30), verbs[crash_below(&work->base, 6)]);
    }
}

/* -- transactions ----------------------------------------------------------------------------- */

#define DEPART_TX_MAX 24

struct depart_tx {
    struct depart_out outs[DEPART_TX_MAX];
    enum depart_verb verbs[DEPART_TX_MAX];
    uint32_t out_count;
    uint64_t first_id, marker; /* of what it publishes */
};

/* Takes messages and settles each of them. */
static inline void depart_tx_settle(struct depart_work *work, struct depart_tx *tx)
{
    static const enum depart_queue sources[] = {DEPART_LEAST, DEPART_LEAST, DEPART_LENGTH,
                                                DEPART_TTL,   DEPART_BYTES, DEPART_FIRST};
    uint32_t count = 1 + crash_below(&work->base, 8), before = work->out_count;

    while (count-- > 0 && !work->base.is_over) {
        depart_get(work, CRASH_TX_CHANNEL, sources[crash_below(&work->base, 6)]);
    }
    for (uint32_t i = before; i < work->out_count && !work->base.is_over; i++) {
        tx->outs[tx->out_count] = work->outs[i];
        tx->verbs[tx->out_count] = crash_chance(&work->base, 70) ? DEPART_REJECT : DEPART_ACK;
        crash_done(&work->base, depart_call(work, &work->outs[i], false, tx->verbs[tx->out_count]),
                   "settle in a transaction");
        tx->out_count++;
    }
    work->out_count = before; /* they are the transaction's */
}

static inline void depart_tx_publish(struct depart_work *work, struct depart_tx *tx)
{
    static const enum depart_queue sources[] = {DEPART_LENGTH, DEPART_BYTES, DEPART_TTL,
                                                DEPART_LEAST};
    uint32_t count = crash_below(&work->base, 4);
    qs_receipt receipt;

    tx->first_id = work->model->count + 1;
    for (uint32_t i = 0; i <= count && !work->base.is_over; i++) {
        enum depart_queue queue = i == count ? DEPART_PLAIN : sources[crash_below(&work->base, 4)];
        tx->marker = depart_new(work, queue, depart_any_bytes(work), true, 0);
        crash_done(&work->base, depart_publish_as(work, CRASH_TX_CHANNEL, tx->marker, 0, &receipt),
                   "publish in a transaction");
    }
}

/* Told before the commit: it may have happened from now on.  lsn: of what it settles. */
static inline void depart_tx_expect(struct depart_work *work, const struct depart_tx *tx,
                                    uint64_t lsn)
{
    struct depart_model *model = work->model;

    for (uint64_t id = tx->first_id; id <= tx->marker; id++) {
        model->messages[id - 1].published_with = tx->marker;
        model->messages[id - 1].publish_lsn = lsn;
    }
    for (uint32_t i = 0; i < tx->out_count; i++) {
        struct depart_message *message = &model->messages[tx->outs[i].id - 1];
        if (depart_ends(work, &tx->outs[i], tx->verbs[i])) {
            message->settle_lsns[tx->outs[i].place] = lsn;
        } else {
            message->rejected_with = tx->marker;
        }
    }
}

static inline void depart_new_channel(struct depart_work *work, uint32_t channel)
{
    qs_channel_close(work->base.channels[channel]);
    work->base.channels[channel] = NULL;
    if (crash_done(&work->base,
                   qs_channel_open(&work->base.channels[channel], work->base.store, QS_ERROR),
                   "open") &&
        channel == CRASH_TX_CHANNEL) {
        crash_done(&work->base, qs_channel_tx_select(work->base.channels[channel], QS_ERROR), "tx");
    }
}

static inline void depart_work_tx(struct depart_work *work)
{
    struct depart_tx tx = {.out_count = 0};
    bool repeated;
    qs_status status;

    depart_tx_settle(work, &tx);
    if (!work->base.is_over) {
        depart_tx_publish(work, &tx);
    }
    if (work->base.is_over) {
        return;
    }
    if (crash_chance(&work->base, 15)) {
        for (uint64_t id = tx.first_id; id <= tx.marker; id++) {
            work->model->messages[id - 1].is_gone = true;
        }
        depart_new_channel(work, CRASH_TX_CHANNEL);
        return;
    }
    depart_tx_expect(work, &tx, CRASH_UNDER_WAY);
    status = qs_channel_tx_commit(work->base.channels[CRASH_TX_CHANNEL], (qs_slice){0}, &repeated,
                                  QS_ERROR);
    if (crash_done(&work->base, status, "commit")) {
        depart_hear_nacks(work);
        depart_tx_expect(work, &tx, work->model->durable_lsn);
    }
}

/* -- all of it -------------------------------------------------------------------------------- */

static inline void depart_set_up(struct depart_work *work)
{
    qs_channel *channel = work->base.channels[CRASH_PLAIN_CHANNEL];
    qs_declare_ok ok;

    for (int i = 0; i < 2 && !work->base.is_over; i++) {
        crash_done(&work->base,
                   qs_channel_exchange_declare(channel, crash_text(i == 0 ? "one" : "two"),
                                               crash_text("fanout"), QS_DURABLE, (qs_slice){0},
                                               QS_ERROR),
                   "declare exchange");
    }
    for (int i = DEPART_QUEUES;
         i-- > 0 && !work->base.is_over;) { /* what is there has its targets */
        const struct depart_kind *kind = &depart_kinds[i];
        struct qs_test_fields fields = {.used = 0};
        if (kind->exchange != NULL) {
            qs_test_put_text(&fields, "x-dead-letter-exchange", kind->exchange);
        }
        for (int k = 0; k < 3 && kind->arguments[k].name != NULL; k++) {
            if (kind->arguments[k].number != 0) {
                qs_test_put_long(&fields, kind->arguments[k].name, kind->arguments[k].number);
            } else {
                qs_test_put_text(&fields, kind->arguments[k].name, kind->arguments[k].text);
            }
        }
        crash_done(&work->base,
                   qs_channel_queue_declare(channel, crash_text(kind->name), QS_DURABLE,
                                            qs_test_fields_slice(&fields), &ok, QS_ERROR),
                   "declare");
        for (int k = 0; i >= DEPART_SOURCES && k < 2 && !work->base.is_over; k++) {
            if (k == 1 || i == DEPART_FIRST) {
                crash_done(&work->base,
                           qs_channel_queue_bind(channel, crash_text(kind->name),
                                                 crash_text(k == 0 ? "one" : "two"), (qs_slice){0},
                                                 (qs_slice){0}, QS_ERROR),
                           "bind");
            }
        }
    }
}

/* As if the end of a group in the open end of the journal were none. */
static inline void depart_plant(struct depart_work *work)
{
    struct qsi_entries *open;

    if (work->base.env->bug != CRASH_GROUP_DIVIDED) {
        return;
    }
    qsi_mutex_lock(&work->base.store->mutex);
    open = &work->base.store->journal->open;
    for (uint32_t i = 0; i < open->count; i++) {
        open->items[i].more = false;
    }
    qsi_mutex_unlock(&work->base.store->mutex);
}

static inline void depart_work_time(struct depart_work *work)
{
    qsi_env_sim_advance(work->sim, crash_below(&work->base, 2500) * UINT64_C(1000000));
}

static inline void depart_work_reopen(struct depart_work *work)
{
    crash_close_store(&work->base);
    work->out_count = 0;
    if (!work->base.is_over) {
        for (uint32_t i = 0; i < work->model->count; i++) {
            work->model->messages[i].is_gone =
                work->model->messages[i].is_gone || work->model->messages[i].is_transient;
        }
        crash_open_store(&work->base);
    }
    if (!work->base.is_over) {
        depart_hear_nacks(work);
    }
}

static inline void depart_work_once(struct depart_work *work)
{
    uint32_t ticket = crash_below(&work->base, 100);

    if (ticket < 24) {
        depart_work_publish(work);
    } else if (ticket < 34) {
        depart_work_batch(work);
    } else if (ticket < 52) {
        depart_work_get(work);
    } else if (ticket < 68) {
        depart_work_settle(work);
    } else if (ticket < 78) {
        depart_work_tx(work);
    } else if (ticket < 85) {
        depart_work_time(work);
    } else if (ticket < 91) {
        crash_work_sync(&work->base);
    } else if (ticket < 94) {
        crash_work_checkpoint(&work->base);
    } else if (ticket < 96) {
        crash_work_compact(&work->base);
    } else if (ticket < 98) {
        depart_new_channel(work, CRASH_PLAIN_CHANNEL);
        work->out_count = 0;
    } else {
        depart_work_reopen(work);
    }
    if (!work->base.is_over) {
        crash_note_durable(&work->base);
        work->model->durable_lsn = work->base.model->durable_lsn;
    }
}

/* -- runs ------------------------------------------------------------------------------------- */

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

static inline uint32_t depart_below(struct depart_run *run, uint32_t limit)
{
    return (uint32_t)qsi_splitmix_below(&run->random, limit);
}

/* It may be opened with more memory or less. */
static inline qs_options depart_reader_options(struct depart_run *run)
{
    qs_options options = run->store_options;

    if (run->options->pages) {
        options = crash_paging_options(qsi_splitmix_next(&run->random));
        options.segment_entries = run->store_options.segment_entries;
    }
    return options;
}

static inline void depart_check_disk(struct depart_run *run, qs_env *mem, const char *cut)
{
    qs_options options = depart_reader_options(run);
    struct crash_env env;
    qs_store *store = NULL;
    qs_channel *channel = NULL;
    qs_status status;

    run->report->cut = cut;
    run->report->states++;
    crash_env_init(&env, mem, CRASH_NO_BUG);
    status = qs_store_open(&store, CRASH_PATH, &options, &env.env, QS_ERROR);
    if (status == QS_OK) {
        QS_CHECK_OK(qs_channel_open(&channel, store, QS_ERROR));
        depart_check_store(&run->model, run->report, store, channel, &env, &run->found);
        env.is_dead = true;
        qs_channel_close(channel);
        qs_store_close(store, NULL);
    } else {
        crash_violation(run->report, "open: %s: %s", qs_status_name(status), qs_test_error.text);
    }
    qsi_env_mem_destroy(mem);
    run->report->cut = "alive";
}

static inline void depart_check_cut(struct depart_run *run, enum qsi_cut_how how, const char *name)
{
    qs_env *mem = qsi_env_sim_cut(run->sim, how, qsi_splitmix_next(&run->random));

    QS_CHECK(mem != NULL);
    depart_check_disk(run, mem, name);
}

static inline void depart_end(struct depart_run *run)
{
    run->has_ended = run->env.is_dead = true;
    run->frozen = run->model;
    if (run->ends_in_power_cut) {
        run->next_disk = qsi_env_sim_cut(run->sim, QSI_CUT_RANDOM, qsi_splitmix_next(&run->random));
        QS_CHECK(run->next_disk != NULL);
    }
}

static inline void depart_on_step(void *context, uint64_t step)
{
    struct depart_run *run = context;

    if (run->has_ended) {
        return;
    }
    run->report->step = step;
    if (depart_below(run, 100) < run->options->cut_percent) {
        switch (depart_below(run, 4)) {
        case 0:
            depart_check_cut(run, QSI_CUT_KEEP_ALL, "all kept");
            break;
        case 1:
            depart_check_cut(run, QSI_CUT_DROP_ALL, "all dropped");
            break;
        default:
            depart_check_cut(run, QSI_CUT_RANDOM, "random");
            break;
        }
    }
    if (run->end_step != 0 && step >= run->end_step) {
        depart_end(run);
    }
}

/* What recovery shows is compared and is the truth from here on. */
static inline void depart_begin(struct depart_run *run)
{
    struct depart_work *work = &run->work;
    struct depart_found *found = malloc(sizeof *found); /* cuts have the other one */
    qs_channel *channel = NULL;

    QS_CHECK(found != NULL);
    if (crash_open_store(&work->base) &&
        crash_done(&work->base, qs_channel_open(&channel, work->base.store, QS_ERROR), "open")) {
        depart_check_store(&run->model, run->report, work->base.store, channel, &run->env, found);
        if (!run->has_ended) {
            depart_adopt(&run->model, found);
            run->model.durable_lsn = qs_store_durable_lsn(work->base.store);
        }
        qs_channel_close(channel);
    }
    free(found);
    work->base.is_over = work->base.is_over || run->has_ended;
}

static inline void depart_generation(struct depart_run *run)
{
    struct depart_work *work = &run->work;
    uint32_t ops = 1 + depart_below(run, run->options->ops);
    bool is_cut_off = run->options->end_steps != 0 && depart_below(run, 4) > 0;

    *work = (struct depart_work){
        .base = {.env = &run->env,
                 .model = &run->shell,
                 .report = run->report,
                 .random = qsi_splitmix_next(&run->random),
                 .options = depart_reader_options(run)},
        .model = &run->model,
        .sim = run->sim,
    };
    run->has_ended = false;
    run->ends_in_power_cut = depart_below(run, 3) > 0;
    run->end_step =
        is_cut_off ? qsi_env_sim_steps(run->sim) + 1 + depart_below(run, run->options->end_steps)
                   : 0;
    depart_begin(run);
    if (!work->base.is_over) {
        depart_set_up(work);
    }
    for (uint32_t i = 0;
         i < ops && !work->base.is_over && run->model.count < DEPART_MESSAGES_MAX - 64; i++) {
        depart_plant(work);
        depart_work_once(work);
    }
    run->moved += work->base.store != NULL ? work->base.store->stats.dead_lettered : 0;
    if (!run->has_ended) {
        depart_end(run);
    }
    work->base.is_over = true; /* what is left of the process goes without a trace */
    crash_close_store(&work->base);
    run->env.is_dead = false;
}

static inline void depart_next_disk(struct depart_run *run)
{
    run->model = run->frozen;
    if (run->next_disk != NULL) {
        qsi_env_sim_destroy(run->sim);
        run->sim = qsi_env_sim_from_mem(run->next_disk, qsi_splitmix_next(&run->random));
        QS_CHECK(run->sim != NULL);
        run->next_disk = NULL;
        run->env.inner = run->sim;
        qsi_env_sim_on_step(run->sim, depart_on_step, run);
    }
}

/* Returns how many dead letters were written. */
static inline uint64_t depart_run(const struct depart_options *options, struct crash_report *report,
                                  uint64_t seed)
{
    struct depart_run *run = calloc(1, sizeof *run);
    uint64_t moved;

    QS_CHECK(run != NULL);
    run->options = options;
    run->report = report;
    run->random = seed;
    run->store_options = options->pages ? crash_paging_options(seed) : crash_options();
    report->seed = seed;
    report->cut = "alive";
    crash_model_init(&run->shell);
    run->sim = qsi_env_sim_create(seed);
    QS_CHECK(run->sim != NULL);
    crash_env_init(&run->env, run->sim, options->bug);
    qsi_env_sim_on_step(run->sim, depart_on_step, run);
    for (uint32_t i = 0; i < options->generations; i++) {
        depart_generation(run);
        depart_next_disk(run);
    }
    depart_check_cut(run, QSI_CUT_DROP_ALL, "at the end");
    moved = run->moved;
    crash_model_fini(&run->shell);
    qsi_env_sim_destroy(run->sim);
    free(run);
    return moved;
}

#endif
