/* Keys of transactions: each is committed once until it is forgotten, whatever happens in between.
 *
 * A small budget, so that keys go to files all the time, and files are merged.  Power cuts at any
 * step; every call and every allocation that fails; every byte of every key file with a bit turned.
 *
 * Arguments: seed, number of cuts. */
#include "qstore/qstore.h"

#include "env_test.h"
#include "qs_test.h"
#include "qs_test_alloc.h"
#include "splitmix.h"
#include "store.h"

#define KEYS 300
#define OPERATIONS 2500
#define NONE ((qs_slice){NULL, 0})

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

static uint64_t below(uint64_t *random, uint64_t end)
{
    return qsi_splitmix_next(random) % end;
}

static qs_slice key_text(char text[64], uint32_t key)
{
    /* Of many lengths: they divide pages unevenly. */
    int bytes = snprintf(text, 64, "key-%u-%.*s", key, (int)(key % 40),
                         "........................................");

    return (qs_slice){text, (size_t)bytes};
}

static qs_options options_of_store(void)
{
    qs_options options;

    qs_options_default(&options);
    options.memory_budget = 64u << 10;
    options.journal_file_bytes = 64u << 10;
    options.message_file_bytes = 64u << 10;
    options.segment_entries = 64;
    options.checkpoint_bytes = 256u << 10;
    options.background = false;
    return options;
}

static qs_slice text(const char *string)
{
    return (qs_slice){string, strlen(string)};
}

/* Was it made to fail?  Then nothing more is done. */
static bool went_well(struct world *world, qs_status status)
{
    if (status != QS_OK && !world->may_fail) {
        fprintf(stderr, "%s: %s\n", qs_status_name(status), qs_test_error.text);
        QS_CHECK(!"a call failed");
    }
    world->is_over = world->is_over || status != QS_OK;
    return status == QS_OK;
}

static void open_world(struct world *world)
{
    qs_options options = options_of_store();
    qs_declare_ok ok;

    world->store = NULL;
    world->channel = NULL;
    if (went_well(world, qs_store_open(&world->store, "store", &options, world->env, QS_ERROR)) &&
        went_well(world, qs_channel_open(&world->channel, world->store, QS_ERROR)) &&
        went_well(world, qs_channel_queue_declare(world->channel, text("q"), QS_DURABLE, NONE, &ok,
                                                  QS_ERROR))) {
        went_well(world, qs_channel_tx_select(world->channel, QS_ERROR));
    }
}

static void close_world(struct world *world)
{
    qs_channel_close(world->channel);
    (void)went_well(world, qs_store_close(world->store, QS_ERROR));
    world->store = NULL;
    world->channel = NULL;
}

/* ---- checking ---- */

static void check_keys(qs_store *store, const struct model *model, bool may_be_damaged,
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

static void check_store(qs_store *store, const struct model *model)
{
    qs_queue_status queue;

    check_keys(store, model, false, NULL);
    QS_CHECK_OK(qs_store_queue_status(store, text("q"), &queue, QS_ERROR));
    QS_CHECK(queue.messages_ready == model->commits ||
             (model->commit_under_way && queue.messages_ready == model->commits + 1));
}

static void report_damage(void *context, const qs_error *what)
{
    (void)context;
    fprintf(stderr, "damage: %s\n", what->text);
}

/* What a cut left: opened, looked at, used, closed, opened again. */
static void check_disk(qs_env *disk, const struct model *model)
{
    qs_verify_callbacks callbacks = {.damage = report_damage};
    struct world world = {.env = disk, .model = *model};
    qs_verified verified;
    qs_slice last = text("behind the cut");
    bool repeated, known;

    open_world(&world);
    check_store(world.store, model);
    QS_CHECK_OK(qs_channel_tx_commit(world.channel, last, &repeated, QS_ERROR));
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

static void on_step(void *context, uint64_t step)
{
    struct world *world = context;
    static const enum qsi_cut_how ways[] = {QSI_CUT_KEEP_ALL, QSI_CUT_DROP_ALL, QSI_CUT_RANDOM,
                                            QSI_CUT_RANDOM};
    qs_env *disk;

    (void)step;
    if (world->cuts >= world->cuts_max || below(&world->random, 40) != 0) {
        return;
    }
    world->cuts += 1;
    disk = qsi_env_sim_cut(world->sim, ways[below(&world->random, 4)],
                           qsi_splitmix_next(&world->random));
    QS_CHECK(disk != NULL);
    if (world->store != NULL && world->channel != NULL) {
        check_disk(disk, &world->model);
    }
    qsi_env_mem_destroy(disk);
}

/* ---- operations ---- */

static void commit_key(struct world *world, uint32_t key)
{
    struct model *model = &world->model;
    enum state before = model->keys[key];
    char name[64];
    qs_receipt receipt;
    bool repeated = false;

    if (!went_well(world, qs_channel_publish(world->channel, NONE, text("q"),
                                             (qs_slice){"\x10\x00\x02", 3}, text("body"), 0,
                                             &receipt, QS_ERROR))) {
        return;
    }
    model->keys[key] = before == PRESENT ? PRESENT : UNCERTAIN;
    model->commit_under_way = before != PRESENT;
    model->times[key] = before == PRESENT ? model->times[key] : world->env->wall_us(world->env);
    if (went_well(world,
                  qs_channel_tx_commit(world->channel, key_text(name, key), &repeated, QS_ERROR))) {
        QS_CHECK(repeated == (before == PRESENT));
        model->keys[key] = PRESENT;
        model->commits += repeated ? 0 : 1;
        model->commit_under_way = false;
    }
}

static void forget_key(struct world *world, uint32_t key)
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

static void forget_old(struct world *world, uint64_t older_than_us)
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

static void ask(struct world *world, uint32_t key)
{
    char name[64];
    bool known = false;

    if (went_well(world, qs_store_transaction_known(world->store, key_text(name, key), &known,
                                                    QS_ERROR))) {
        QS_CHECK(known == (world->model.keys[key] == PRESENT));
    }
}

static void operate(struct world *world, uint64_t *random)
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

/* ---- power cuts ---- */

static void test_keys_survive_power_cuts(uint64_t seed, uint64_t cuts_max)
{
    struct world world = {.random = seed, .cuts_max = cuts_max};
    uint64_t random = seed ^ 77;
    uint32_t runs_max = 0;

    world.sim = world.env = qsi_env_sim_create(seed);
    QS_CHECK(world.sim != NULL);
    open_world(&world);
    qsi_env_sim_on_step(world.sim, on_step, &world);
    for (int i = 0; i < OPERATIONS; i++) {
        uint32_t runs;
        operate(&world, &random);
        runs = world.store->transactions.run_count;
        runs_max = runs > runs_max ? runs : runs_max;
        QS_CHECK(world.store->transactions.fresh.bytes <= 2 * (64u << 10) / 16 + 256);
        if (i % 100 == 0) {
            check_store(world.store, &world.model);
        }
    }
    printf("%" PRIu64 " cuts, %" PRIu64 " commits, %u key files at most\n", world.cuts,
           world.model.commits, runs_max);
    QS_CHECK(runs_max >= 2 && runs_max <= 16);
    close_world(&world);
    qsi_env_sim_destroy(world.sim);
}

/* ---- faults ---- */

/* A store with keys in files, in a checkpoint and in the journal. */
static qs_env *make_disk(uint64_t seed, struct model *model_out, bool is_closed)
{
    struct world world = {0};
    uint64_t random = seed;
    qs_env *clone;

    world.env = qsi_env_mem_create(seed);
    QS_CHECK(world.env != NULL);
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
    QS_CHECK(clone != NULL);
    if (!is_closed) {
        close_world(&world);
    }
    qsi_env_mem_destroy(world.env);
    return clone;
}

static void script(struct world *world, uint64_t seed)
{
    uint64_t random = seed;

    open_world(world);
    for (uint32_t i = 0; i < 70 && !world->is_over; i++) {
        if (i == 40) {
            forget_old(world, 1);
        } else if (i == 55) {
            (void)went_well(world, qs_store_checkpoint(world->store, QS_ERROR));
        } else if (i % 7 == 6) {
            forget_key(world, (uint32_t)below(&random, KEYS));
        } else {
            commit_key(world, (uint32_t)below(&random, KEYS));
        }
    }
}

/* Files in memory grow in a write, which no real one needs memory for. */
static qs_status (*write_in_memory)(qs_env *, qs_file *, const qs_part *, size_t, uint64_t,
                                    size_t *, qs_error *);
static struct qs_test_alloc *the_alloc;

static qs_status write_with_memory(qs_env *env, qs_file *file, const qs_part *parts,
                                   size_t part_count, uint64_t offset, size_t *written_out,
                                   qs_error *error)
{
    uint64_t fail_at = the_alloc->fail_at;
    qs_status status;

    the_alloc->fail_at = 0;
    status = write_in_memory(env, file, parts, part_count, offset, written_out, error);
    the_alloc->fail_at = fail_at;
    return status;
}

struct fault {
    enum qsi_fault_kind kind;
    enum qsi_fault_how how;
    bool is_sticky;
};

/* Whatever fails, a key is known after a success, and is not before; of the call that failed nobody
 * can tell. */
static bool try_fault(qs_env *disk, const struct model *model, uint64_t seed,
                      const struct fault *fault, struct qs_test_alloc *alloc, uint64_t n)
{
    struct world world = {.model = *model, .may_fail = true};
    qs_env *mem = qsi_env_mem_clone(disk, seed);
    qs_env *faulty = qsi_env_fault_create(mem);
    bool has_fired;

    QS_CHECK(mem != NULL && faulty != NULL);
    world.env = faulty;
    write_in_memory = mem->write;
    the_alloc = alloc;
    mem->write = write_with_memory;
    if (fault != NULL) {
        qsi_env_fault_arm(faulty, fault->kind, fault->how, n, fault->is_sticky);
    } else {
        qs_test_alloc_arm(alloc, n, false);
    }
    script(&world, seed);
    has_fired = fault != NULL ? qsi_env_fault_fired(faulty) : alloc->has_failed;
    if (fault == NULL && world.store != NULL) { /* the call failed, and nothing else */
        qs_stats stats;
        qs_test_alloc_arm(alloc, 0, false);
        qs_store_stats(world.store, &stats);
        if (stats.failed) {
            fprintf(stderr, "allocation %" PRIu64 ": %s\n", n, world.store->failure.text);
        }
        QS_CHECK(!stats.failed);
    }
    qsi_env_fault_arm(faulty, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
    qs_test_alloc_arm(alloc, 0, false);
    world.is_over = false;
    if (world.store != NULL) {
        close_world(&world);
    } else {
        qs_channel_close(world.channel);
    }
    check_disk(mem, &world.model);
    qsi_env_fault_destroy(faulty);
    qsi_env_mem_destroy(mem);
    return has_fired;
}

static void test_keys_survive_whatever_fails(uint64_t seed, struct qs_test_alloc *alloc)
{
    static const struct fault faults[] = {
        {QSI_FAULT_ANY, QSI_FAULT_EIO, false},       {QSI_FAULT_ANY, QSI_FAULT_ENOSPC, false},
        {QSI_FAULT_ANY, QSI_FAULT_ENOSPC, true},     {QSI_FAULT_ANY, QSI_FAULT_SHORT_EIO, false},
        {QSI_FAULT_ANY, QSI_FAULT_SHORT, true},      {QSI_FAULT_ANY, QSI_FAULT_EINTR, true},
        {QSI_FAULT_SYNC, QSI_FAULT_SYNC_LOST, false}};
    struct model model;
    qs_env *disk = make_disk(seed, &model, false);
    uint64_t trials = 0;

    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        for (uint64_t n = 1; try_fault(disk, &model, seed, &faults[i], alloc, n); n += 1 + n / 30) {
            trials += 1;
        }
    }
    for (uint64_t n = 1; try_fault(disk, &model, seed, NULL, alloc, n); n += 1 + n / 60) {
        trials += 1;
    }
    printf("%" PRIu64 " faults\n", trials);
    QS_CHECK(trials > 100);
    qsi_env_mem_destroy(disk);
}

/* ---- damage ---- */

struct key_files {
    char names[QSI_KEY_RUNS_MAX][QSI_KEY_NAME_BYTES];
    uint32_t count;
};

static bool note_key_file(void *context, const char *name)
{
    struct key_files *files = context;
    uint64_t number;

    if (strlen(name) == QSI_KEY_NAME_BYTES - 2 && qsi_key_file_number(name, &number)) {
        QS_CHECK(files->count < QSI_KEY_RUNS_MAX);
        snprintf(files->names[files->count++], QSI_KEY_NAME_BYTES, "%s", name);
    }
    return true;
}

static qs_dir *open_checkpoint_dir(qs_env *env)
{
    qs_dir *root = NULL, *dir = NULL;
    bool created;

    QS_CHECK_OK(env->dir_open_root(env, "store", false, &root, &created, QS_ERROR));
    QS_CHECK_OK(env->dir_open(env, root, "checkpoint", false, &dir, &created, QS_ERROR));
    env->dir_close(env, root);
    return dir;
}

/* Known, unknown or damaged: never forgotten, and never what it was not. */
static void check_damaged(qs_env *disk, const struct model *model, uint64_t *refused,
                          uint64_t *told)
{
    qs_options options = options_of_store();
    qs_store *store = NULL;
    qs_status status = qs_store_open(&store, "store", &options, disk, QS_ERROR);
    qs_stats stats;

    if (status == QS_OK) {
        check_keys(store, model, true, told);
        (void)qs_store_close(store, NULL);
        return;
    }
    QS_CHECK(status == QS_ECORRUPT && strncmp(qs_test_error.path, "checkpoint/", 11) == 0);
    *refused += 1;
    options.recovery = QS_RECOVERY_SALVAGE;
    QS_CHECK_OK(qs_store_open(&store, "store", &options, disk, QS_ERROR));
    qs_store_stats(store, &stats);
    QS_CHECK(stats.lost_ranges == 1 && stats.lost_bytes >= QSI_KEY_PAGE_BYTES);
    QS_CHECK_OK(qs_store_close(store, QS_ERROR));
}

static void flip(qs_env *disk, qs_dir *dir, const char *name, uint64_t at, uint8_t bit)
{
    qs_file *file = NULL;
    size_t done;
    uint8_t byte;
    qs_part part = {&byte, 1};

    QS_CHECK_OK(disk->open(disk, dir, name, QS_OPEN_WRITE, &file, QS_ERROR));
    QS_CHECK_OK(disk->read(disk, file, &byte, 1, at, &done, QS_ERROR));
    byte ^= (uint8_t)(1u << bit);
    QS_CHECK_OK(disk->write(disk, file, &part, 1, at, &done, QS_ERROR));
    disk->close(disk, file);
}

static void damage_one(qs_env *whole, const struct model *model, const char *name, uint64_t at,
                       bool removes, uint64_t *random, uint64_t *refused, uint64_t *told)
{
    qs_env *disk = qsi_env_mem_clone(whole, 1);
    qs_dir *dir;
    uint64_t before = *refused + *told;
    qs_verified verified;

    QS_CHECK(disk != NULL);
    dir = open_checkpoint_dir(disk);
    if (removes) {
        QS_CHECK_OK(disk->remove(disk, dir, name, QS_ERROR));
    } else {
        flip(disk, dir, name, at, (uint8_t)below(random, 8));
    }
    disk->dir_close(disk, dir);
    /* What is met is what is found: but for the padding behind the filter, which tells nothing. */
    if (qs_store_verify("store", disk, NULL, &verified, NULL) == QS_OK) {
        check_damaged(disk, model, refused, told);
        QS_CHECK(*refused + *told == before);
    } else {
        check_damaged(disk, model, refused, told);
        QS_CHECK(verified.damages == 1);
    }
    qsi_env_mem_destroy(disk);
}

static void test_damaged_key_file_is_told_and_forgets_nothing(uint64_t seed)
{
    struct model model;
    qs_env *disk = make_disk(seed, &model, true);
    qs_dir *dir = open_checkpoint_dir(disk);
    struct key_files files = {.count = 0};
    uint64_t random = seed, refused = 0, told = 0, flips = 0;

    QS_CHECK_OK(disk->dir_list(disk, dir, note_key_file, &files, QS_ERROR));
    QS_CHECK(files.count >= 1);
    for (uint32_t i = 0; i < files.count; i++) {
        qs_file *file = NULL;
        uint64_t bytes;
        QS_CHECK_OK(disk->open(disk, dir, files.names[i], QS_OPEN_READ, &file, QS_ERROR));
        QS_CHECK_OK(disk->size(disk, file, &bytes, QS_ERROR));
        disk->close(disk, file);
        for (uint64_t at = below(&random, 7); at < bytes; at += 1 + below(&random, 13)) {
            damage_one(disk, &model, files.names[i], at, false, &random, &refused, &told);
            flips += 1;
        }
        damage_one(disk, &model, files.names[i], 0, true, &random, &refused, &told);
    }
    printf("%u key files, %" PRIu64 " bits: %" PRIu64 " times refused at open, %" PRIu64
           " answers refused\n",
           files.count, flips, refused, told);
    QS_CHECK(refused > 0 && told > 0);
    disk->dir_close(disk, dir);
    qsi_env_mem_destroy(disk);
}

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);
    uint64_t cuts = argc > 2 ? strtoull(argv[2], NULL, 0) : 400;
    struct qs_test_alloc alloc;

    qs_test_alloc_install(&alloc);
    test_keys_survive_power_cuts(seed, cuts);
    test_keys_survive_whatever_fails(seed, &alloc);
    test_damaged_key_file_is_told_and_forgets_nothing(seed);
    QS_CHECK(alloc.alive == 0);
    qs_allocator_set(NULL);
    return 0;
}
