/* What a recovered store holds, compared with the model. */
#include "crash_model.h"

/* -- comparing a recovered store with it ------------------------------------------------------ */

struct crash_check {
    struct crash_model *model; /* only is_found changes */
    struct crash_report *report;
    qs_store *store;
    qs_channel *channel;
    uint64_t refused; /* of the queue at hand */
};

/* Finds the message behind *position_io, which moves behind it. */
static void crash_check_message(struct crash_check *check, struct crash_queue *queue,
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
static void crash_check_missing(struct crash_check *check, struct crash_queue *queue)
{
    bool later_is_there = false;

    for (uint32_t i = queue->count; i-- > 0;) {
        const struct crash_copy *copy = &queue->copies[i];

        if (i + 1 < queue->count && queue->copies[i + 1].priority != copy->priority) {
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

static uint64_t crash_ready_count(struct crash_check *check, struct crash_queue *queue)
{
    qs_queue_status found;

    QS_CHECK_OK(qs_store_queue_status(check->store, crash_queue_name(queue), &found, QS_ERROR));
    return found.messages_ready;
}

static void crash_check_drain(struct crash_check *check, struct crash_queue *queue)
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
static bool crash_check_existence(struct crash_check *check, struct crash_queue *queue)
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

static void crash_check_queue(struct crash_check *check, struct crash_queue *queue)
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
static void crash_check_tx(struct crash_check *check, uint32_t index, bool is_known)
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

static void crash_check_txs(struct crash_check *check)
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

static void crash_visit_exchange(void *context, const qs_exchange_info *exchange)
{
    struct crash_topology *topology = context;

    if (exchange->name.bytes == 3 && memcmp(exchange->name.data, "fan", 3) == 0) {
        topology->fan_exists = true;
    }
    if (exchange->name.bytes == 3 && memcmp(exchange->name.data, "way", 3) == 0) {
        topology->way_exists = exchange->arguments.bytes > 0;
    }
}

static void crash_visit_binding(void *context, const qs_binding_info *binding)
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

struct crash_topology crash_topology_of(const struct crash_model *model, qs_store *store)
{
    struct crash_topology topology = {.model = model};

    QS_CHECK_OK(qs_store_visit_exchanges(store, crash_visit_exchange, &topology));
    QS_CHECK_OK(qs_store_visit_bindings(store, crash_visit_binding, &topology));
    return topology;
}

static void crash_check_certainty(struct crash_check *check, enum crash_certainty expected,
                                  bool is_there, const char *what, const char *name)
{
    if (expected != CRASH_UNCERTAIN && is_there != (expected == CRASH_PRESENT)) {
        crash_violation(check->report, "%s%s %s", what, name,
                        is_there ? "is there, but it was removed" : "is lost");
    }
}

static void crash_check_topology(struct crash_check *check)
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

void crash_model_check(struct crash_model *model, struct crash_report *report, qs_store *store,
                       qs_channel *channel)
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
