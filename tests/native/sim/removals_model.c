/* What a store must hold whose messages leave by themselves. */
#include "crash_removals.h"

const struct removal_kind removal_kinds[REMOVAL_QUEUES] = {
    [REMOVAL_LENGTH] = {"length", "one", false, 0, {{"x-max-length", 6, ""}}},
    [REMOVAL_BYTES] = {"bytes", "two", true, 0, {{"x-max-length-bytes", 2500, ""}}},
    [REMOVAL_TTL] = {"ttl", "two", true, 2000, {{"x-message-ttl", 2000, ""}}},
    [REMOVAL_LIMIT] = {"limit", "one", false, 0, {{"x-delivery-limit", 1, ""}}},
    [REMOVAL_LEAST] = {"least",
                       "one",
                       false,
                       0,
                       {{"x-overflow", 0, "reject-publish"},
                        {"x-dead-letter-strategy", 0, "at-least-once"}}},
    [REMOVAL_OVERFLOW] = {"overflow",
                          "one",
                          false,
                          0,
                          {{"x-max-length", 5, ""}, {"x-overflow", 0, "reject-publish-dlx"}}},
    [REMOVAL_REFUSE] =
        {"refuse", NULL, false, 0, {{"x-max-length", 5, ""}, {"x-overflow", 0, "reject-publish"}}},
    [REMOVAL_GONE] = {"gone", NULL, false, 3000, {{"x-message-ttl", 3000, ""}}},
    [REMOVAL_PLAIN] = {"plain", NULL, false, 0, {{NULL}}},
    [REMOVAL_FIRST] = {"first", NULL, false, 0, {{NULL}}},
    [REMOVAL_SECOND] = {"second", NULL, false, 0, {{NULL}}},
};

/* -- what must hold --------------------------------------------------------------------------- */

struct removal_check {
    const struct removal_model *model;
    struct crash_report *report;
    struct removal_found *found;
    const struct crash_env *env; /* of the store: a process that dies meanwhile says nothing */
    uint64_t now_us;
};

static bool removal_has_bytes(qs_slice where, const char *what)
{
    size_t bytes = strlen(what);

    for (size_t i = 0; i + bytes <= where.bytes; i++) {
        if (memcmp((const uint8_t *)where.data + i, what, bytes) == 0) {
            return true;
        }
    }
    return false;
}

static void removal_check_message(struct removal_check *check, enum removal_queue queue,
                                  const qs_message *message)
{
    uint64_t id = crash_body_id(message->body);
    const struct removal_message *known;
    enum removal_place place = queue == REMOVAL_FIRST    ? REMOVAL_AT_FIRST
                               : queue == REMOVAL_SECOND ? REMOVAL_AT_SECOND
                                                         : REMOVAL_AT_SOURCE;
    const char *name = removal_kinds[queue].name;

    if (id == 0 || id > check->model->count) {
        crash_violation(check->report, "%s: message %" PRIu64 " was never published", name, id);
        return;
    }
    known = &check->model->messages[id - 1];
    if (place == REMOVAL_AT_SOURCE
            ? known->source != queue
            : removal_kinds[known->source].exchange == NULL ||
                  (place == REMOVAL_AT_SECOND && !removal_kinds[known->source].has_two)) {
        crash_violation(check->report, "%s: message %" PRIu64 " of %s has no business there", name,
                        id, removal_kinds[known->source].name);
    }
    if (!crash_body_is_right(message->body, id, known->body_bytes)) {
        crash_violation(check->report, "%s: message %" PRIu64 " has wrong bytes", name, id);
    }
    if (removal_has_bytes(message->properties, "x-death") != (place != REMOVAL_AT_SOURCE)) {
        crash_violation(check->report, "%s: message %" PRIu64 " %s of a death", name, id,
                        place == REMOVAL_AT_SOURCE ? "tells" : "does not tell");
    }
    if (place == REMOVAL_AT_SOURCE && known->expires_us <= check->now_us) {
        crash_violation(check->report, "%s: message %" PRIu64 " had expired", name, id);
    }
    check->found->counts[id - 1][place]++;
}

static bool removal_was_durably_settled(const struct removal_check *check,
                                        const struct removal_message *known)
{
    for (int place = 0; place < REMOVAL_PLACES; place++) {
        uint64_t lsn = known->settle_lsns[place];
        if (lsn != 0 && lsn <= check->model->durable_lsn) {
            return true;
        }
    }
    return false;
}

/* Is it where it must be?  Targets of which it was acked may lack it. */
static bool removal_is_somewhere(const struct removal_message *known, const uint8_t *counts)
{
    const struct removal_kind *kind = &removal_kinds[known->source];

    if (counts[REMOVAL_AT_SOURCE] > 0) {
        return true;
    }
    return kind->exchange != NULL &&
           (counts[REMOVAL_AT_FIRST] > 0 || known->settle_lsns[REMOVAL_AT_FIRST] != 0) &&
           (!kind->has_two || counts[REMOVAL_AT_SECOND] > 0 ||
            known->settle_lsns[REMOVAL_AT_SECOND] != 0);
}

/* May it be nowhere? */
static bool removal_may_be_gone(const struct removal_check *check,
                                const struct removal_message *known)
{
    const struct removal_kind *kind = &removal_kinds[known->source];

    return known->is_gone || known->is_transient || known->was_refused ||
           known->publish_lsn > check->model->durable_lsn ||
           known->settle_lsns[REMOVAL_AT_SOURCE] != 0 ||
           (kind->exchange == NULL && known->expires_us <= check->now_us);
}

static void removal_check_places(struct removal_check *check, uint64_t id)
{
    const struct removal_message *known = &check->model->messages[id - 1];
    const uint8_t *counts = check->found->counts[id - 1];
    const char *name = removal_kinds[known->source].name;
    uint32_t targets = counts[REMOVAL_AT_FIRST] + counts[REMOVAL_AT_SECOND];
    bool is_there = counts[REMOVAL_AT_SOURCE] + targets > 0;

    if (counts[REMOVAL_AT_SOURCE] > 1 || counts[REMOVAL_AT_FIRST] > 1 ||
        counts[REMOVAL_AT_SECOND] > 1 || (counts[REMOVAL_AT_SOURCE] > 0 && targets > 0)) {
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
    if (is_there && !known->is_gone && !removal_is_somewhere(known, counts)) {
        crash_violation(check->report, "message %" PRIu64 " of %s is in one of two targets", id,
                        name);
    }
    if (counts[REMOVAL_AT_SOURCE] > 0 && removal_was_durably_settled(check, known)) {
        crash_violation(check->report, "message %" PRIu64 " of %s is back, acked", id, name);
    }
    for (int place = REMOVAL_AT_FIRST; place < REMOVAL_PLACES; place++) {
        uint64_t lsn = known->settle_lsns[place];
        if (counts[place] > 0 && lsn != 0 && lsn <= check->model->durable_lsn) {
            crash_violation(check->report, "dead letter %" PRIu64 " of %s is back, acked", id,
                            name);
        }
    }
    if (!is_there && !removal_may_be_gone(check, known) && !removal_is_somewhere(known, counts)) {
        crash_violation(check->report, "message %" PRIu64 " of %s is lost", id, name);
    }
}

/* Even if its transaction happened. */
static bool removal_may_have_left(const struct removal_check *check,
                                  const struct removal_message *known)
{
    return known->is_transient || known->settle_lsns[0] != 0 || known->settle_lsns[1] != 0 ||
           known->settle_lsns[2] != 0 ||
           (removal_kinds[known->source].exchange == NULL && known->expires_us <= check->now_us);
}

/* Whether its marker is there tells whether a transaction happened. */
static bool removal_happened(const struct removal_check *check, uint64_t marker)
{
    return check->found->counts[marker - 1][REMOVAL_AT_SOURCE] > 0;
}

static void removal_check_tx(struct removal_check *check, uint64_t id)
{
    const struct removal_message *known = &check->model->messages[id - 1];
    const uint8_t *counts = check->found->counts[id - 1];
    bool is_there = counts[0] + counts[1] + counts[2] > 0;

    if (known->is_gone) {
        return;
    }
    if (known->published_with != 0 && !removal_may_have_left(check, known) &&
        is_there != removal_happened(check, known->published_with)) {
        crash_violation(check->report,
                        "message %" PRIu64 " is %s, unlike the rest of its transaction", id,
                        is_there ? "there" : "lost");
    }
    if (known->rejected_with == 0) {
        return;
    }
    if (removal_happened(check, known->rejected_with)) {
        if (counts[REMOVAL_AT_SOURCE] > 0) {
            crash_violation(check->report,
                            "message %" PRIu64 " is back, though its reject was committed", id);
        }
    } else if (known->source == REMOVAL_LEAST && is_there && counts[REMOVAL_AT_SOURCE] == 0) {
        /* This queue's messages leave it by being rejected, and in no other way. */
        crash_violation(check->report,
                        "message %" PRIu64 " moved, though its reject was not committed", id);
    }
}

static void removal_drain(struct removal_check *check, qs_store *store, qs_channel *channel,
                          enum removal_queue queue)
{
    const char *name = removal_kinds[queue].name;
    qs_queue_status found;
    qs_status status = qs_store_queue_status(store, text(name), &found, NULL);

    while (status == QS_OK) {
        qs_message message;
        status = qs_channel_get(channel, text(name), 0, &message, QS_ERROR);
        if (status == QS_OK) {
            removal_check_message(check, queue, &message);
            qs_message_release(&message);
        }
    }
    if (status != QS_EEMPTY && status != QS_NOT_FOUND && !check->env->is_dead) {
        crash_violation(check->report, "%s: get: %s: %s", name, qs_status_name(status),
                        qs_test_error.text);
    }
}

void removal_check_store(const struct removal_model *model, struct crash_report *report,
                         qs_store *store, qs_channel *channel, struct crash_env *env,
                         struct removal_found *found)
{
    struct removal_check check = {.model = model,
                                  .report = report,
                                  .found = found,
                                  .env = env,
                                  .now_us = env->env.wall_us(&env->env)};

    memset(found, 0, sizeof *found);
    for (int queue = 0; queue < REMOVAL_QUEUES; queue++) {
        removal_drain(&check, store, channel, (enum removal_queue)queue);
    }
    for (uint64_t id = 1; id <= model->count && !env->is_dead; id++) {
        removal_check_places(&check, id);
        removal_check_tx(&check, id);
    }
}

void removal_adopt(struct removal_model *model, const struct removal_found *found)
{
    for (uint32_t i = 0; i < model->count; i++) {
        struct removal_message *known = &model->messages[i];
        const uint8_t *counts = found->counts[i];

        known->is_gone = known->is_gone || counts[0] + counts[1] + counts[2] == 0;
        known->publish_lsn = 0;
        for (int place = 0; place < REMOVAL_PLACES; place++) {
            bool is_settled = place != REMOVAL_AT_SOURCE && counts[REMOVAL_AT_SOURCE] == 0 &&
                              counts[place] == 0 && known->settle_lsns[place] != 0;
            known->settle_lsns[place] = is_settled ? 1 : 0; /* durable */
        }
    }
    for (uint32_t i = 0; i < model->count; i++) {
        struct removal_message *known = &model->messages[i];

        if (known->rejected_with != 0 && model->messages[known->rejected_with - 1].is_gone) {
            known->rejected_with = 0;
        }
    }
}
