/* The simulated disk before, at and after a power cut: what a cut costs, what it leaves alone, and
 * that the simulation goes on from it. */
#include "sim_run.h"

SIM_TEST(test_cut_leaves_the_sim_unharmed)
{
    qs_file *file = sim_create("a");
    qs_env *disk;
    qs_dir *dir;
    qs_file *copy;
    qs_part part = {"XX", 2};
    size_t count;
    bool created;
    uint64_t steps;

    sim_sync_dir();
    sim_write(file, "data", 4, 0);
    steps = qsi_env_sim_steps(sim);
    disk = sim_cut(QSI_CUT_KEEP_ALL, seed);
    QS_CHECK_OK(disk->dir_open_root(disk, ROOT, false, &dir, &created, QS_ERROR));
    QS_CHECK_OK(disk->open(disk, dir, "a", QS_OPEN_WRITE, &copy, QS_ERROR));
    QS_CHECK_OK(disk->write(disk, copy, &part, 1, 1, &count, QS_ERROR));
    disk->close(disk, copy);
    disk->dir_close(disk, dir);
    QS_CHECK(disk_has(disk, "a", "dXXa"));
    qsi_env_mem_destroy(disk);
    QS_CHECK(qsi_env_sim_steps(sim) == steps);
    QS_CHECK(cut_has(QSI_CUT_KEEP_ALL, seed, "a", "data"));
    QS_CHECK(cut_has(QSI_CUT_DROP_ALL, seed, "a", ""));
    sim->close(sim, file);
}

static uint64_t allocations_of_a_cut(void)
{
    struct qs_test_alloc state;

    qs_test_alloc_install(&state);
    qsi_env_mem_destroy(sim_cut(QSI_CUT_RANDOM, seed));
    qs_test_alloc_end(&state);
    return state.calls;
}

SIM_TEST(test_cut_costs_the_same_for_large_files)
{
    qs_file *file = sim_create("a");
    uint64_t before;

    sim_fill(file, 'A', 1, 0);
    sim_sync(file);
    sim_sync_dir();
    before = allocations_of_a_cut();
    for (uint64_t i = 0; i < 100; i++) {
        sim_fill(file, 'A', CONTENT_BYTES_MAX, i * CONTENT_BYTES_MAX);
    }
    sim_sync(file);
    QS_CHECK(allocations_of_a_cut() == before);
    sim->close(sim, file);
}

SIM_TEST(test_cut_without_memory_leaks_nothing)
{
    struct qs_test_alloc state;
    qs_file *file = sim_create("a");
    uint64_t n = 0;

    sim_sync_dir();
    sim_write(file, "data", 4, 0);
    qs_test_alloc_install(&state);
    do {
        qs_env *disk;

        qs_test_alloc_arm(&state, ++n, false);
        disk = qsi_env_sim_try_cut(sim, QSI_CUT_RANDOM, seed);
        QS_CHECK((disk == NULL) == state.has_failed);
        qsi_env_mem_destroy(disk);
        QS_CHECK(state.alive == 0);
    } while (state.has_failed);
    qs_allocator_set(NULL);
    sim->close(sim, file);
}

SIM_TEST(test_sim_goes_on_from_a_cut_disk)
{
    qs_file *file = sim_create("a");
    qs_env *disk;
    bool created;

    sim_write(file, "one", 3, 0);
    sim_sync(file);
    sim_sync_dir();
    sim->close(sim, file);
    disk = sim_cut(QSI_CUT_KEEP_ALL, seed);
    sim_tear_down();

    sim = qsi_env_sim_from_mem(disk, seed);
    QS_CHECK(qsi_env_sim_steps(sim) == 0);
    QS_CHECK(cut_has(QSI_CUT_DROP_ALL, seed, "a", "one"));
    QS_CHECK_OK(sim->dir_open_root(sim, ROOT, true, &root, &created, QS_ERROR));
    QS_CHECK(!created);
    file = sim_open("a", QS_OPEN_WRITE);
    sim_write(file, "two", 3, 0);
    QS_CHECK(cut_has(QSI_CUT_DROP_ALL, seed, "a", "one"));
    QS_CHECK(cut_has(QSI_CUT_KEEP_ALL, seed, "a", "two"));
    sim->close(sim, file);
}

struct hook_log {
    uint64_t count;
    uint64_t next;
    bool had_data;
};

static void log_step(void *context, uint64_t step)
{
    struct hook_log *log = context;

    QS_CHECK(step == log->next && step == qsi_env_sim_steps(sim));
    log->next++;
    log->count++;
    log->had_data = cut_has(QSI_CUT_KEEP_ALL, seed, "a", "data");
}

SIM_TEST(test_hook_sees_the_disk_before_each_step)
{
    struct hook_log log = {.next = qsi_env_sim_steps(sim)};
    qs_file *file;

    qsi_env_sim_on_step(sim, log_step, &log);
    file = sim_create("a");
    QS_CHECK(log.count == 1 && !log.had_data);
    sim_write(file, "data", 4, 0);
    QS_CHECK(log.count == 2 && !log.had_data);
    sim_sync(file);
    QS_CHECK(log.count == 3 && log.had_data);
    sim_sync_dir();
    QS_CHECK_OK(sim->allocate(sim, file, 100, QS_ERROR));
    QS_CHECK_OK(sim->truncate(sim, file, 4, QS_ERROR));
    QS_CHECK_OK(sim->rename(sim, root, "a", "b", QS_ERROR));
    QS_CHECK_OK(sim->remove(sim, root, "b", QS_ERROR));
    QS_CHECK(log.count == 8 && !log.had_data);
    sim_write(file, "", 0, 0);
    QS_CHECK_OK(sim->allocate(sim, file, 1, QS_ERROR));
    QS_CHECK_STATUS(QS_ENOENT, sim->remove(sim, root, "b", QS_ERROR));
    QS_CHECK(log.count == 8);
    qsi_env_sim_on_step(sim, NULL, NULL);
    sim_sync(file);
    QS_CHECK(log.count == 8);
    sim->close(sim, file);
}

SIM_TEST(test_lost_writes_never_become_durable_and_later_ones_do)
{
    qs_file *file = sim_create("a");

    sim_write(file, "....", 4, 0);
    sim_sync(file);
    sim_sync_dir();
    sim_write(file, "AB", 2, 0);
    qsi_env_sim_lose_file(sim, file);
    sim_write(file, "C", 1, 2);
    sim_sync(file);
    QS_CHECK(cut_has(QSI_CUT_KEEP_ALL, seed, "a", "ABC."));
    QS_CHECK(cut_has(QSI_CUT_DROP_ALL, seed, "a", "..C."));
    QS_CHECK(cut_has(QSI_CUT_RANDOM, seed, "a", "..C."));
    sim->close(sim, file);
}

SIM_TEST(test_lock_does_not_outlive_a_cut)
{
    qs_file *lock;
    qs_file *second;
    qs_env *disk;
    qs_dir *dir;
    uint64_t pid;
    bool created;

    QS_CHECK_OK(sim->lock(sim, root, "LOCK", &lock, &pid, QS_ERROR));
    QS_CHECK_STATUS(QS_ESTORE_LOCKED, sim->lock(sim, root, "LOCK", &second, &pid, QS_ERROR));
    disk = sim_cut(QSI_CUT_KEEP_ALL, seed);
    QS_CHECK_OK(disk->dir_open_root(disk, ROOT, false, &dir, &created, QS_ERROR));
    QS_CHECK_OK(disk->lock(disk, dir, "LOCK", &second, &pid, QS_ERROR));
    disk->close(disk, second);
    disk->dir_close(disk, dir);
    qsi_env_mem_destroy(disk);
    sim->close(sim, lock);
}

SIM_TEST(test_clock_moves_when_told_and_a_cut_keeps_it)
{
    uint64_t start = sim->monotonic_ns(sim);
    qs_env *disk;

    qsi_env_sim_advance(sim, 1000000);
    QS_CHECK(sim->monotonic_ns(sim) == start + 1001000);
    disk = sim_cut(QSI_CUT_DROP_ALL, seed);
    QS_CHECK(disk->monotonic_ns(disk) == start + 1002000);
    qsi_env_mem_destroy(disk);
}
