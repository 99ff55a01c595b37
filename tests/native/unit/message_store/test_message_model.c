/* The message store against a simple model, for thousands of random steps.
 *
 * Method: the model has the counts of every body, a log of what a journal would say behind the last
 * durable checkpoint, and that checkpoint.  Bodies with references read back at every moment; the
 * live bytes are the model's; a store that is opened again recovers from checkpoint and log. */
#include "counts_fixture.h"
#include "splitmix.h"

enum { BODIES_MAX = 400, LOG_MAX = 20000, STEPS = 20000 };

struct body {
    struct qsi_body_ref ref;
    uint32_t number;
    uint32_t durable;
    uint32_t transient;
    bool is_packed;
};

struct entry {
    struct qsi_body_ref ref;
    uint32_t added; /* 0: dropped */
};

struct model {
    uint64_t random;
    struct body bodies[BODIES_MAX];
    uint32_t count;
    uint32_t next_number;
    struct entry log[LOG_MAX];
    uint32_t log_count;
    struct checkpoint checkpoint; /* the durable one */
    struct checkpoint next;
    struct fixture fixture;
    uint32_t compactions;
    uint32_t reopenings;
};

static uint32_t pick(struct model *model, uint32_t below)
{
    return (uint32_t)qsi_splitmix_below(&model->random, below);
}

static void log_entry(struct model *model, const struct qsi_body_ref *ref, uint32_t added)
{
    QS_CHECK(model->log_count < LOG_MAX);
    model->log[model->log_count++] = (struct entry){*ref, added};
}

static void add_body(struct model *model, const struct qsi_body_ref *ref, uint32_t number,
                     bool is_packed)
{
    struct body *body = &model->bodies[model->count++];

    *body = (struct body){.ref = *ref, .number = number, .is_packed = is_packed};
    if (is_packed) {
        body->durable = 1; /* the pack came with a reference each */
        log_entry(model, ref, 1);
    }
}

static void put_one(struct model *model)
{
    uint32_t number = model->next_number++;
    uint32_t bytes = pick(model, 50) == 0 ? 70000 + pick(model, 50000) : pick(model, 6000);
    struct qsi_body_ref ref;
    struct qsi_place place;
    struct body *body;

    if (model->count == BODIES_MAX) {
        return;
    }
    if (pick(model, 4) == 0) { /* a place that comes to nothing */
        QS_CHECK_OK(qsi_message_store_reserve(model->fixture.messages, 0, bytes, &place, QS_ERROR));
        qsi_message_store_abandon(model->fixture.messages, &place);
    }
    ref = put(&model->fixture, bytes, number);
    add_body(model, &ref, number, false);
    body = &model->bodies[model->count - 1];
    body->durable = 1 + pick(model, 3);
    body->transient = pick(model, 3) == 0 ? pick(model, 3) : 0;
    qsi_message_store_add_refs(model->fixture.messages, &ref, body->durable, body->transient);
    log_entry(model, &ref, body->durable);
}

static void put_many(struct model *model)
{
    uint32_t count = 1 + pick(model, 30);
    uint32_t sizes[PACK_COUNT_MAX];
    struct qsi_body_ref refs[PACK_COUNT_MAX];

    if (model->count + count > BODIES_MAX) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        sizes[i] = pick(model, 1500);
    }
    QS_CHECK_OK(try_put_pack(&model->fixture, sizes, count, model->next_number, refs, QS_ERROR));
    for (uint32_t i = 0; i < count; i++) {
        add_body(model, &refs[i], model->next_number++, true);
    }
}

static void forget_if_dead(struct model *model, uint32_t index)
{
    const struct body *body = &model->bodies[index];

    if (body->durable == 0 && body->transient == 0) {
        model->bodies[index] = model->bodies[--model->count];
    }
}

static void add_or_drop(struct model *model)
{
    uint32_t index = pick(model, model->count);
    struct body *body = &model->bodies[index];

    if (pick(model, 5) == 0) {
        body->durable++;
        qsi_message_store_add_refs(model->fixture.messages, &body->ref, 1, 0);
        log_entry(model, &body->ref, 1);
    } else if (body->durable > 0) {
        body->durable--;
        drop(&model->fixture, &body->ref);
        log_entry(model, &body->ref, 0);
    } else {
        body->transient--;
        qsi_message_store_drop_ref(model->fixture.messages, &body->ref, true);
    }
    forget_if_dead(model, index);
}

static void compact_one(struct model *model)
{
    struct qsi_compaction *job;

    QS_CHECK_OK(qsi_message_store_compact_begin(model->fixture.messages, &job, QS_ERROR));
    if (job == NULL) {
        return;
    }
    if (model->count > 0 && pick(model, 2) == 0) {
        add_or_drop(model);
    }
    QS_CHECK_OK(qsi_message_store_compact_run(model->fixture.messages, job, QS_ERROR));
    if (model->count > 0 && pick(model, 2) == 0) {
        add_or_drop(model);
    }
    qsi_message_store_compact_end(model->fixture.messages, job, pick(model, 5) != 0);
    model->compactions++;
}

static void make_checkpoint(struct model *model)
{
    struct checkpoint old = model->checkpoint;
    bool durable = pick(model, 4) != 0;

    QS_CHECK_OK(qsi_message_store_sync_packs(model->fixture.messages, QS_ERROR));
    QS_CHECK_OK(try_snapshot(&model->fixture, &model->next, QS_ERROR));
    if (durable) {
        model->checkpoint = model->next;
        model->next = old;
        model->log_count = 0;
    }
    QS_CHECK_OK(qsi_message_store_unseal(model->fixture.messages, durable, QS_ERROR));
}

/* What a crash leaves: references of queues that are not durable are gone. */
static void reopen(struct model *model)
{
    restart(&model->fixture);
    model->reopenings++;
    QS_CHECK_OK(try_restore(&model->fixture, &model->checkpoint, QS_ERROR));
    for (uint32_t i = 0; i < model->log_count; i++) {
        const struct entry *entry = &model->log[i];

        QS_CHECK_OK(
            qsi_message_store_add_reference(model->fixture.messages, &entry->ref, QS_ERROR));
        if (entry->added > 0) {
            qsi_message_store_add_refs(model->fixture.messages, &entry->ref, entry->added, 0);
        } else {
            drop(&model->fixture, &entry->ref);
        }
    }
    QS_CHECK_OK(try_finish(&model->fixture, QS_ERROR));
    for (uint32_t i = model->count; i-- > 0;) {
        model->bodies[i].transient = 0;
        forget_if_dead(model, i);
    }
}

static void check_one(struct model *model, uint32_t index)
{
    const struct body *body = &model->bodies[index];

    if (body->is_packed) {
        QS_CHECK_OK(get_packed(&model->fixture, &body->ref, body->number, QS_ERROR));
    } else {
        QS_CHECK_OK(get(&model->fixture, &body->ref, body->number, QS_ERROR));
    }
}

static void check_all(struct model *model)
{
    uint64_t live_bytes = 0;

    for (uint32_t i = 0; i < model->count; i++) {
        check_one(model, i);
        live_bytes += qsi_body_packed_bytes(&model->bodies[i].ref);
    }
    QS_CHECK(space_of(&model->fixture).live_bytes == live_bytes);
    QS_CHECK(space_of(&model->fixture).total_bytes >= live_bytes);
}

static void step(struct model *model)
{
    uint32_t choice = pick(model, 1000);

    if (choice < 150) {
        put_one(model);
    } else if (choice < 165) {
        put_many(model);
    } else if (choice < 750) {
        if (model->count > 0) {
            add_or_drop(model);
        }
    } else if (choice < 850) {
        QS_CHECK_OK(commit(&model->fixture, QS_ERROR));
    } else if (choice < 900) {
        QS_CHECK_OK(qsi_message_store_maintain(model->fixture.messages, QS_ERROR));
    } else if (choice < 955) {
        compact_one(model);
    } else if (choice < 980) {
        make_checkpoint(model);
    } else if (choice < 985) {
        QS_CHECK_OK(commit(&model->fixture, QS_ERROR));
        QS_CHECK_OK(qsi_message_store_settle(model->fixture.messages, QS_ERROR));
    } else if (choice < 990) {
        reopen(model);
    } else {
        check_all(model);
    }
    if (model->count > 0) {
        check_one(model, pick(model, model->count));
    }
}

/* When everything is settled, and nobody refers to anything, nothing is left. */
static void empty(struct model *model)
{
    while (model->count > 0) {
        add_or_drop(model);
    }
    QS_CHECK_OK(commit(&model->fixture, QS_ERROR));
    QS_CHECK_OK(qsi_message_store_sync_packs(model->fixture.messages, QS_ERROR));
    QS_CHECK_OK(qsi_message_store_settle(model->fixture.messages, QS_ERROR));
    take_checkpoint(&model->fixture, &model->checkpoint);
    QS_CHECK(model->checkpoint.count == 0);
    QS_CHECK(space_of(&model->fixture).file_count == 0);
    QS_CHECK(space_of(&model->fixture).doomed_bytes == 0);
}

static bool count_name(void *context, const char *name)
{
    (void)name;
    *(uint32_t *)context += 1;
    return true;
}

int main(int argc, char **argv)
{
    static struct model model;
    uint32_t names = 0;
    qs_env *env = qsi_env_mem_create(1);

    model.random = qs_test_seed(argc, argv);
    start(&model.fixture, env);
    for (uint32_t i = 0; i < STEPS; i++) {
        step(&model);
        qsi_message_store_check_counts(model.fixture.messages);
    }
    check_all(&model);
    reopen(&model);
    check_all(&model);
    QS_CHECK(model.compactions > 20 && model.reopenings > 20);
    empty(&model);
    QS_CHECK_OK(env->dir_list(env, model.fixture.dir, count_name, &names, QS_ERROR));
    QS_CHECK(names == 0);
    stop(&model.fixture);
    qsi_buf_fini(&model.checkpoint.records);
    qsi_buf_fini(&model.next.records);
    qsi_env_mem_destroy(env);
    return 0;
}
