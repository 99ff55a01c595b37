/* Keys of transactions: each is committed once until it is forgotten, whatever happens in between.
 *
 * A small budget, so that keys go to files all the time, and files are merged.  Power cuts at any
 * step; every call and every allocation that fails.
 *
 * Arguments: seed, number of cuts. */
#include "keys_world.h"
#include "transactions.h"

/* ---- power cuts ---- */

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
    if (world->store != NULL && world->channel != NULL) {
        check_disk(disk, &world->model);
    }
    qsi_env_mem_destroy(disk);
}

static void test_keys_survive_power_cuts(uint64_t seed, uint64_t cuts_max)
{
    struct world world = {.random = seed, .cuts_max = cuts_max};
    uint64_t random = seed ^ 77;
    uint32_t runs_max = 0;

    world.sim = world.env = qsi_env_sim_create(seed);
    open_world(&world);
    qsi_env_sim_on_step(world.sim, on_step, &world);
    for (int i = 0; i < OPERATIONS; i++) {
        uint32_t runs;
        operate(&world, &random);
        runs = world.store->transactions->run_count;
        runs_max = runs > runs_max ? runs : runs_max;
        QS_CHECK(world.store->transactions->fresh.bytes <= 2 * (64u << 10) / 16 + 256);
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

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);
    uint64_t cuts = argc > 2 ? strtoull(argv[2], NULL, 0) : 400;
    struct qs_test_alloc alloc;

    qs_test_alloc_install(&alloc);
    test_keys_survive_power_cuts(seed, cuts);
    test_keys_survive_whatever_fails(seed, &alloc);
    qs_test_alloc_end(&alloc);
    return 0;
}
