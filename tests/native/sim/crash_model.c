/* Bodies, the model, and what it promises. */
#include "crash_model.h"

void crash_violation(struct crash_report *report, const char *format, ...)
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

#define CRASH_FILLER_PERIOD 4093u

static const uint8_t *crash_filler(uint64_t id)
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

void crash_body_fill(uint8_t *body, uint64_t id, uint32_t body_bytes)
{
    memcpy(body, &id, sizeof id);
    memcpy(body + sizeof id, crash_filler(id), body_bytes - sizeof id);
}

uint64_t crash_body_id(qs_slice body)
{
    uint64_t id = 0;

    memcpy(&id, body.data, body.bytes < sizeof id ? body.bytes : sizeof id);
    return id;
}

bool crash_body_is_right(qs_slice body, uint64_t id, uint32_t body_bytes)
{
    return body.bytes == body_bytes && crash_body_id(body) == id &&
           memcmp((const uint8_t *)body.data + sizeof id, crash_filler(id),
                  body_bytes - sizeof id) == 0;
}

uint8_t crash_priority(uint64_t id)
{
    return id % 3 == 0 ? (uint8_t)id : (uint8_t)(id % (CRASH_PRIORITY_MAX + 1));
}

bool crash_properties_are_right(qs_slice properties, uint64_t id)
{
    const uint8_t *bytes = properties.data;

    return properties.bytes != 4 || bytes[0] != 0x18 || bytes[3] == crash_priority(id);
}

/* -- building it ------------------------------------------------------------------------------ */

qs_slice crash_queue_name(const struct crash_queue *queue)
{
    return text(queue->name);
}

qs_slice crash_tx_key(char key[16], uint32_t index)
{
    snprintf(key, 16, "tx-%u", index);
    return text(key);
}

bool crash_is_known(qs_store *store, qs_slice key)
{
    bool known = false;

    QS_CHECK_OK(qs_store_transaction_known(store, key, &known, QS_ERROR));
    return known;
}

void crash_model_init(struct crash_model *model)
{
    *model = (struct crash_model){.next_id = 1};
    for (int i = 0; i < CRASH_QUEUES; i++) {
        struct crash_queue *queue = &model->queues[i];

        queue->is_durable = i != CRASH_QUEUES - 1;
        queue->has_priorities = i == CRASH_LEVELS_QUEUE;
        queue->keeps_all = i == CRASH_KEPT_QUEUE;
        snprintf(queue->name, sizeof queue->name, "%c%d", queue->is_durable ? 'q' : 't', i);
    }
}

void crash_model_fini(struct crash_model *model)
{
    for (int i = 0; i < CRASH_QUEUES; i++) {
        free(model->queues[i].copies);
    }
    *model = (struct crash_model){0};
}

void crash_model_copy(struct crash_model *to, const struct crash_model *from)
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

struct crash_copy *crash_queue_add(struct crash_queue *queue, uint8_t priority)
{
    uint8_t clamped = priority < CRASH_PRIORITY_MAX ? priority : CRASH_PRIORITY_MAX;
    uint32_t at = queue->count;

    if (queue->count == queue->capacity) {
        queue->capacity = queue->capacity * 2 + 16;
        queue->copies = realloc(queue->copies, queue->capacity * sizeof *queue->copies);
        QS_CHECK(queue->copies != NULL);
    }
    clamped = queue->has_priorities ? clamped : 0;
    for (; at > 0 && queue->copies[at - 1].priority < clamped; at--) {
        queue->copies[at] = queue->copies[at - 1];
    }
    queue->copies[at] = (struct crash_copy){.priority = clamped};
    queue->count++;
    return &queue->copies[at];
}

/* -- what is promised ------------------------------------------------------------------------- */

bool crash_is_confirmed(const struct crash_model *model, const struct crash_copy *copy)
{
    return copy->publish_lsn <= model->durable_lsn;
}

bool crash_must_be_there(const struct crash_model *model, const struct crash_queue *queue,
                         const struct crash_copy *copy)
{
    return queue->exists == CRASH_PRESENT && !copy->is_transient &&
           crash_is_confirmed(model, copy) && copy->settle_lsn == 0;
}

bool crash_must_be_gone(const struct crash_model *model, const struct crash_copy *copy)
{
    return copy->is_transient || (copy->settle_lsn != 0 && copy->settle_lsn <= model->durable_lsn);
}

/* -- going on from what a recovery showed ----------------------------------------------------- */

static void crash_adopt_queue(struct crash_queue *queue, qs_store *store)
{
    uint32_t kept = 0;
    qs_queue_status found = {0};

    for (uint32_t i = 0; i < queue->count; i++) {
        struct crash_copy copy = queue->copies[i];

        if (copy.is_found) {
            queue->copies[kept++] = (struct crash_copy){
                .id = copy.id,
                .body_bytes = copy.body_bytes,
                .priority = copy.priority,
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

void crash_model_adopt(struct crash_model *model, qs_store *store)
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

void crash_model_close(struct crash_model *model)
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
