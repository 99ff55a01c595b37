/* A store with keys of transactions, the model of them, and what is done to both: keys are
 * committed, forgotten and asked for, with checkpoints and closes in between. */
#ifndef KEYS_WORLD_H
#define KEYS_WORLD_H

#include "qstore/qstore.h"

#include "env_test.h"
#include "qs_test_alloc.h"
#include "qs_test_calls.h"
#include "qs_test_slices.h"
#include "splitmix.h"
#include "store.h"

#define KEYS 300
#define OPERATIONS 2500

enum state { ABSENT, PRESENT, UNCERTAIN };

struct model {
    enum state keys[KEYS];
    uint64_t times[KEYS]; /* of the commit, wall us */
    uint64_t commits;
    bool commit_under_way;
};

struct world {
    qs_env *env; /* of the store */
    qs_env *sim;
    qs_store *store;
    qs_channel *channel;
    struct model model;
    uint64_t random;
    uint64_t cuts, cuts_max;
    bool may_fail;
    bool is_over; /* a call failed that was made to */
};

static inline uint64_t below(uint64_t *random, uint64_t end)
{
    return qsi_splitmix_next(random) % end;
}

static inline qs_slice key_text(char text[64], uint32_t key)
{
    /* Of many lengths: they divide pages unevenly. */
    int bytes = snprintf(text, 64, "key-%u-%.*s", key, (int)(key % 40),
                         "........................................");

    return (qs_slice){text, (size_t)bytes};
}

static inline qs_options options_of_store(void)
{
    qs_options options = qs_test_small_options();

    options.memory_budget = 64u << 10;
    options.segment_entries = 64;
    options.checkpoint_bytes = 256u << 10;
    return options;
}

/* Was it made to fail?  Then nothing more is done. */
static inline bool went_well(struct world *world, qs_status status)
{
    if (status != QS_OK && !world->may_fail) {
        fprintf(stderr, "%s: %s\n", qs_status_name(status), qs_test_error.text);
        QS_CHECK(!"a call failed");
    }
    world->is_over = world->is_over || status != QS_OK;
    return status == QS_OK;
}

static inline void open_world(struct world *world)
{
    qs_options options = options_of_store();

    world->store = NULL;
    world->channel = NULL;
    if (went_well(world, qs_store_open(&world->store, "store", &options, world->env, QS_ERROR)) &&
        went_well(world, qs_channel_open(&world->channel, world->store, QS_ERROR)) &&
        went_well(world, qs_test_declare_as(world->channel, "q", QS_DURABLE, NONE))) {
        went_well(world, qs_channel_tx_select(world->channel, QS_ERROR));
    }
}

static inline void close_world(struct world *world)
{
    qs_channel_close(world->channel);
    (void)went_well(world, qs_store_close(world->store, QS_ERROR));
    world->store = NULL;
    world->channel = NULL;
}

/* ---- checking ---- */

static inline void check_keys(qs_store *store, const struct model *model, bool may_be_damaged,
                              uint64_t *damaged_out)
{
    for (uint32_t key = 0; key < KEYS; key++) {
        char name[64];
        bool known = false;
        qs_status status = qs_store_transaction_known(store, key_text(name, key), &known, QS_ERROR);
        if (status == QS_ECORRUPT && may_be_damaged) {
            QS_CHECK(strncmp(qs_test_error.path, "checkpoint/", 11) == 0);
            *damaged_out += 1;
            continue;
        }
        QS_CHECK_OK(status);
        if (model->keys[key] != UNCERTAIN && known != (model->keys[key] == PRESENT)) {
            fprintf(stderr, "key %u is %s\n", key,
                    known ? "known, and should not be" : "not known any more");
            QS_CHECK(false);
        }
    }
}

static inline void check_store(qs_store *store, const struct model *model)
{
    qs_queue_status queue;

    check_keys(store, model, false, NULL);
    QS_CHECK_OK(qs_store_queue_status(store, text("q"), &queue, QS_ERROR));
    QS_CHECK(queue.messages_ready == model->commits ||
             (model->commit_under_way && queue.messages_ready == model->commits + 1));
}

static inline void report_damage(void *context, const qs_error *what)
{
    (void)context;
    fprintf(stderr, "damage: %s\n", what->text);
}

/* What a cut left: opened, looked at, used, closed, opened again. */
static inline void check_disk(qs_env *disk, const struct model *model)
{
    qs_verify_callbacks callbacks = {.damage = report_damage};
    struct world world = {.env = disk, .model = *model};
    qs_verified verified;
    qs_slice last = text("behind the cut");
    bool repeated, known;

    open_world(&world);
    check_store(world.store, model);
    QS_CHECK_OK(qs_channel_tx_commit(world.channel, last, 0, &repeated, QS_ERROR));
    QS_CHECK(!repeated);
    QS_CHECK_OK(qs_store_checkpoint(world.store, QS_ERROR));
    check_store(world.store, model);
    close_world(&world);
    QS_CHECK_OK(qs_store_verify("store", disk, &callbacks, &verified, QS_ERROR));
    open_world(&world);
    check_store(world.store, model);
    QS_CHECK_OK(qs_store_transaction_known(world.store, last, &known, QS_ERROR));
    QS_CHECK(known);
    close_world(&world);
}

/* ---- operations ---- */

static inline void commit_key(struct world *world, uint32_t key)
{
    struct model *model = &world->model;
    enum state before = model->keys[key];
    char name[64];
    bool repeated = false;

    if (!went_well(world, qs_test_publish(world->channel, "", "q", (qs_slice){"\x10\x00\x02", 3},
                                          text("body"), 0))) {
        return;
    }
    model->keys[key] = before == PRESENT ? PRESENT : UNCERTAIN;
    model->commit_under_way = before != PRESENT;
    model->times[key] = before == PRESENT ? model->times[key] : world->env->wall_us(world->env);
    if (went_well(world, qs_channel_tx_commit(world->channel, key_text(name, key), 0, &repeated,
                                              QS_ERROR))) {
        QS_CHECK(repeated == (before == PRESENT));
        model->keys[key] = PRESENT;
        model->commits += repeated ? 0 : 1;
        model->commit_under_way = false;
    }
}

static inline void forget_key(struct world *world, uint32_t key)
{
    struct model *model = &world->model;
    enum state before = model->keys[key];
    char name[64];
    uint64_t count = 0;

    model->keys[key] = before == ABSENT ? ABSENT : UNCERTAIN;
    if (went_well(world, qs_store_forget_transaction(world->store, key_text(name, key), &count,
                                                     QS_ERROR))) {
        QS_CHECK(count == (before == PRESENT ? 1 : 0));
        model->keys[key] = ABSENT;
    }
}

static inline void forget_old(struct world *world, uint64_t older_than_us)
{
    struct model *model = &world->model;
    uint64_t now = world->env->wall_us(world->env) + 1, count = 0, expected = 0;
    bool old[KEYS];

    for (uint32_t key = 0; key < KEYS; key++) {
        old[key] = model->keys[key] == PRESENT && model->times[key] + older_than_us < now;
        expected += old[key] ? 1 : 0;
        model->keys[key] = old[key] ? UNCERTAIN : model->keys[key];
    }
    if (went_well(world,
                  qs_store_forget_transactions(world->store, older_than_us, &count, QS_ERROR))) {
        QS_CHECK(count == expected);
        for (uint32_t key = 0; key < KEYS; key++) {
            model->keys[key] = old[key] ? ABSENT : model->keys[key];
        }
    }
}

static inline void ask(struct world *world, uint32_t key)
{
    char name[64];
    bool known = false;

    if (went_well(world, qs_store_transaction_known(world->store, key_text(name, key), &known,
                                                    QS_ERROR))) {
        QS_CHECK(known == (world->model.keys[key] == PRESENT));
    }
}

static inline void operate(struct world *world, uint64_t *random)
{
    uint64_t what = below(random, 1000);
    uint32_t key = (uint32_t)below(random, KEYS);

    if (what < 600) {
        commit_key(world, key);
    } else if (what < 750) {
        forget_key(world, key);
    } else if (what < 760) {
        forget_old(world, below(random, 60) * 1000);
    } else if (what < 800) {
        (void)went_well(world, qs_store_checkpoint(world->store, QS_ERROR));
    } else if (what < 815) {
        close_world(world);
        if (!world->is_over) {
            open_world(world);
        }
    } else if (what < 900) {
        if (world->sim != NULL) {
            qsi_env_sim_advance(world->sim, below(random, 2000000));
        }
    } else {
        ask(world, key);
    }
}

/* A store with keys in files, in a checkpoint and in the journal. */
static inline qs_env *make_disk(uint64_t seed, struct model *model_out, bool is_closed)
{
    struct world world = {0};
    uint64_t random = seed;
    qs_env *clone;

    world.env = qsi_env_mem_create(seed);
    open_world(&world);
    for (int i = 0; i < 500; i++) {
        operate(&world, &random);
    }
    for (uint32_t key = 0; key < 20; key++) { /* behind the last checkpoint */
        commit_key(&world, key);
    }
    if (is_closed) {
        close_world(&world);
    }
    *model_out = world.model;
    clone = qsi_env_mem_clone(world.env, seed);
    if (!is_closed) {
        close_world(&world);
    }
    qsi_env_mem_destroy(world.env);
    return clone;
}

#endif
