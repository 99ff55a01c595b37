/* Power cuts and the contents of files: what can be left of writes that were not synced, sector by
 * sector; and that what was synced is always there.  Random cuts are taken many times, to see that
 * every outcome which must be possible comes up, and none of the others. */
#include "qs_test_alloc.h"
#include "sim_fixture.h"
#include "splitmix.h"

#define CUT_COUNT 2000
#define SECTOR 512u

static uint64_t seed;

static void run(void (*test)(void))
{
    sim_set_up(seed);
    test();
    sim_tear_down();
}

static void test_synced_name_with_unsynced_data_keeps_the_name_only(void)
{
    qs_file *file = sim_create("a");
    int empty = 0;
    int whole = 0;
    int zeros = 0;

    sim_sync_dir();
    sim_write(file, "data", 4, 0);
    QS_CHECK(cut_has(QSI_CUT_KEEP_ALL, seed, "a", "data"));
    QS_CHECK(cut_has(QSI_CUT_DROP_ALL, seed, "a", ""));
    for (uint64_t i = 0; i < CUT_COUNT; i++) {
        qs_env *disk = sim_cut(QSI_CUT_RANDOM, seed + i);
        uint8_t content[CONTENT_BYTES_MAX];
        size_t bytes = disk_read(disk, "a", content);

        QS_CHECK(bytes == 0 || bytes == 4);
        empty += bytes == 0;
        whole += bytes == 4 && memcmp(content, "data", 4) == 0;
        zeros += bytes == 4 && memcmp(content, "\0\0\0\0", 4) == 0;
        qsi_env_mem_destroy(disk);
    }
    QS_CHECK(empty > 0 && whole > 0 && zeros > 0);
    sim_sync(file);
    QS_CHECK(cut_has(QSI_CUT_DROP_ALL, seed, "a", "data"));
    QS_CHECK(cut_has(QSI_CUT_RANDOM, seed, "a", "data"));
    sim->close(sim, file);
}

static bool all_are(const uint8_t *data, size_t bytes, int byte)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] != byte) {
            return false;
        }
    }
    return true;
}

/* One write of 'B' over ten durable sectors of 'A', from the middle of sector 2 to the middle of
 * sector 7. */
#define TORN_SECTORS 10u
#define TORN_START (2 * SECTOR + 100)
#define TORN_END (7 * SECTOR + 300)

struct torn_seen {
    unsigned kept; /* sectors with the new bytes */
    unsigned garbled;
    bool is_prefix; /* the kept ones come first */
    bool garbled_untouched_bytes;
};

static struct torn_seen look_at_sectors(const uint8_t *content)
{
    struct torn_seen seen = {.is_prefix = true};
    bool gap = false;

    for (unsigned sector = 0; sector < TORN_SECTORS; sector++) {
        unsigned start = sector * SECTOR;
        unsigned end = start + SECTOR;
        unsigned from = start < TORN_START ? TORN_START : start;
        unsigned to = end > TORN_END ? TORN_END : end;

        if (all_are(content + start, SECTOR, 'A')) {
            gap = gap || (sector >= 2 && sector <= 7);
            continue;
        }
        QS_CHECK(sector >= 2 && sector <= 7); /* no other sector ever changes */
        if (all_are(content + start, from - start, 'A') && all_are(content + to, end - to, 'A') &&
            all_are(content + from, to - from, 'B')) {
            seen.kept++;
            seen.is_prefix = seen.is_prefix && !gap;
            continue;
        }
        seen.garbled++;
        seen.garbled_untouched_bytes =
            seen.garbled_untouched_bytes ||
            !(all_are(content + start, from - start, 'A') && all_are(content + to, end - to, 'A'));
    }
    return seen;
}

static void test_write_tears_at_sectors_and_garbage_stays_in_one(void)
{
    static uint8_t content[CONTENT_BYTES_MAX];
    qs_file *file = sim_create("a");
    int none = 0;
    int whole = 0;
    int prefix = 0;
    int scattered = 0;
    int garbled = 0;
    int garbled_neighbour_bytes = 0;

    sim_fill(file, 'A', TORN_SECTORS * SECTOR, 0);
    sim_sync(file);
    sim_sync_dir();
    sim_fill(file, 'B', TORN_END - TORN_START, TORN_START);
    for (uint64_t i = 0; i < CUT_COUNT; i++) {
        qs_env *disk = sim_cut(QSI_CUT_RANDOM, seed + i);
        struct torn_seen seen;

        QS_CHECK(disk_read(disk, "a", content) == TORN_SECTORS * SECTOR);
        seen = look_at_sectors(content);
        QS_CHECK(seen.garbled <= 1 && (seen.garbled == 0 || seen.kept == 5));
        none += seen.kept == 0;
        whole += seen.kept == 6;
        prefix += seen.garbled == 0 && seen.kept > 0 && seen.kept < 6 && seen.is_prefix;
        scattered += seen.garbled == 0 && seen.kept > 0 && seen.kept < 6 && !seen.is_prefix;
        garbled += seen.garbled == 1;
        garbled_neighbour_bytes += seen.garbled_untouched_bytes;
        qsi_env_mem_destroy(disk);
    }
    QS_CHECK(none > 0 && whole > 0 && prefix > 0 && scattered > 0);
    QS_CHECK(garbled > 0 && garbled_neighbour_bytes > 0);
    sim->close(sim, file);
}

static void test_write_within_a_sector_is_atomic_or_garbage(void)
{
    static uint8_t content[CONTENT_BYTES_MAX];
    qs_file *file = sim_create("a");
    int kept = 0;
    int dropped = 0;

    sim_fill(file, 'A', 2 * SECTOR, 0);
    sim_sync(file);
    sim_sync_dir();
    sim_fill(file, 'B', 100, SECTOR + 50);
    for (uint64_t i = 0; i < CUT_COUNT; i++) {
        qs_env *disk = sim_cut(QSI_CUT_RANDOM, seed + i);
        const uint8_t *second = content + SECTOR;

        QS_CHECK(disk_read(disk, "a", content) == 2 * SECTOR);
        QS_CHECK(all_are(content, SECTOR, 'A'));
        kept += all_are(second, 50, 'A') && all_are(second + 50, 100, 'B');
        dropped += all_are(second, SECTOR, 'A');
        qsi_env_mem_destroy(disk);
    }
    QS_CHECK(kept > 0 && dropped > 0 && kept + dropped < CUT_COUNT);
    sim->close(sim, file);
}

static void test_writes_survive_independently_of_their_order(void)
{
    static uint8_t content[CONTENT_BYTES_MAX];
    qs_file *file = sim_create("a");
    int seen[4] = {0};

    sim_fill(file, 'A', 2 * SECTOR, 0);
    sim_sync(file);
    sim_sync_dir();
    sim_fill(file, 'B', SECTOR, 0);
    sim_fill(file, 'C', SECTOR, SECTOR);
    for (uint64_t i = 0; i < CUT_COUNT; i++) {
        qs_env *disk = sim_cut(QSI_CUT_RANDOM, seed + i);

        QS_CHECK(disk_read(disk, "a", content) == 2 * SECTOR);
        seen[(content[0] == 'B') + 2 * (content[SECTOR] == 'C')]++;
        qsi_env_mem_destroy(disk);
    }
    QS_CHECK(seen[0] > 0 && seen[1] > 0 && seen[2] > 0 && seen[3] > 0);
    sim->close(sim, file);
}

/* A durable file of 1000 'A', cut to 10 bytes and grown to 500 again. */
static void test_sizes_are_pending_until_sync(void)
{
    static uint8_t content[CONTENT_BYTES_MAX];
    qs_file *file = sim_create("a");
    int whole = 0;
    int cut = 0;
    int grown = 0;

    sim_fill(file, 'A', 1000, 0);
    sim_sync(file);
    sim_sync_dir();
    QS_CHECK_OK(sim->truncate(sim, file, 10, QS_ERROR));
    QS_CHECK_OK(sim->allocate(sim, file, 500, QS_ERROR));
    for (uint64_t i = 0; i < CUT_COUNT; i++) {
        qs_env *disk = sim_cut(QSI_CUT_RANDOM, seed + i);
        size_t bytes = disk_read(disk, "a", content);

        whole += bytes == 1000 && all_are(content, 1000, 'A');
        cut += bytes == 10 && all_are(content, 10, 'A');
        grown += bytes == 500 && all_are(content, 10, 'A') && all_are(content + 10, 490, 0);
        qsi_env_mem_destroy(disk);
    }
    QS_CHECK(whole > 0 && cut > 0 && grown > 0 && whole + cut + grown == CUT_COUNT);
    sim_sync(file);
    QS_CHECK_OK(sim->truncate(sim, file, 3, QS_ERROR));
    sim_sync(file);
    QS_CHECK(cut_has(QSI_CUT_DROP_ALL, seed, "a", "AAA"));
    sim->close(sim, file);
}

/* -- against a model -------------------------------------------------------------------------- */

#define MODEL_FILES 3
#define MODEL_BYTES 20000

struct model {
    uint8_t data[MODEL_BYTES];
    size_t bytes;
};

static struct model written[MODEL_FILES];
static struct model synced[MODEL_FILES];

static void change_some(uint64_t *random, qs_file *file, struct model *now, struct model *durable)
{
    size_t offset = (size_t)qsi_splitmix_below(random, MODEL_BYTES);
    size_t bytes = (size_t)qsi_splitmix_below(random, MODEL_BYTES - offset);
    int byte = (int)qsi_splitmix_below(random, 3);

    switch (qsi_splitmix_below(random, 8)) {
    case 0:
        sim_sync(file);
        *durable = *now;
        break;
    case 1:
        QS_CHECK_OK(sim->truncate(sim, file, offset, QS_ERROR));
        memset(now->data + offset, 0, MODEL_BYTES - offset);
        now->bytes = offset;
        break;
    case 2:
        QS_CHECK_OK(sim->allocate(sim, file, offset, QS_ERROR));
        now->bytes = now->bytes > offset ? now->bytes : offset;
        break;
    default:
        sim_fill(file, byte, bytes, offset);
        memset(now->data + offset, byte, bytes);
        if (bytes > 0 && offset + bytes > now->bytes) {
            now->bytes = offset + bytes;
        }
        break;
    }
}

static void check_models(enum qsi_cut_how how, const char names[][2], const struct model *models)
{
    static uint8_t content[CONTENT_BYTES_MAX];
    qs_env *disk = sim_cut(how, seed);

    for (size_t i = 0; i < MODEL_FILES; i++) {
        QS_CHECK(disk_read(disk, names[i], content) == models[i].bytes);
        QS_CHECK(memcmp(content, models[i].data, models[i].bytes) == 0);
    }
    qsi_env_mem_destroy(disk);
}

static void test_keep_all_is_what_was_written_and_drop_all_what_was_synced(void)
{
    const char names[MODEL_FILES][2] = {"a", "b", "c"};
    qs_file *files[MODEL_FILES];
    uint64_t random = seed;

    for (size_t i = 0; i < MODEL_FILES; i++) {
        files[i] = sim_create(names[i]);
    }
    sim_sync_dir();
    for (int step = 0; step < 3000; step++) {
        size_t i = (size_t)qsi_splitmix_below(&random, MODEL_FILES);

        change_some(&random, files[i], &written[i], &synced[i]);
        check_models(QSI_CUT_KEEP_ALL, names, written);
        check_models(QSI_CUT_DROP_ALL, names, synced);
    }
    for (size_t i = 0; i < MODEL_FILES; i++) {
        sim->close(sim, files[i]);
    }
}

/* -- the cut as a whole ----------------------------------------------------------------------- */

static void test_equal_seeds_give_equal_disks_and_others_differ(void)
{
    static uint8_t first[CONTENT_BYTES_MAX];
    static uint8_t second[CONTENT_BYTES_MAX];
    qs_file *file = sim_create("a");
    int different = 0;

    for (uint64_t i = 0; i < 20; i++) {
        sim_fill(file, (int)i + 1, 2000, i * 1500);
    }
    sim_sync_dir();
    for (uint64_t i = 0; i < 200; i++) {
        qs_env *disks[] = {sim_cut(QSI_CUT_RANDOM, seed + i), sim_cut(QSI_CUT_RANDOM, seed + i)};
        qs_env *other = sim_cut(QSI_CUT_RANDOM, seed + i + 1);
        size_t bytes = disk_read(disks[0], "a", first);

        QS_CHECK(disk_read(disks[1], "a", second) == bytes && memcmp(first, second, bytes) == 0);
        different += disk_read(other, "a", second) != bytes || memcmp(first, second, bytes) != 0;
        qsi_env_mem_destroy(disks[0]);
        qsi_env_mem_destroy(disks[1]);
        qsi_env_mem_destroy(other);
    }
    QS_CHECK(different > 100);
    sim->close(sim, file);
}

static void test_cut_leaves_the_sim_unharmed(void)
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
    QS_CHECK(state.alive == 0);
    qs_allocator_set(NULL);
    return state.calls;
}

static void test_cut_costs_the_same_for_large_files(void)
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

static void test_cut_without_memory_leaks_nothing(void)
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
        disk = qsi_env_sim_cut(sim, QSI_CUT_RANDOM, seed);
        QS_CHECK((disk == NULL) == state.has_failed);
        qsi_env_mem_destroy(disk);
        QS_CHECK(state.alive == 0);
    } while (state.has_failed);
    qs_allocator_set(NULL);
    sim->close(sim, file);
}

static void test_sim_goes_on_from_a_cut_disk(void)
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
    QS_CHECK(sim != NULL && qsi_env_sim_steps(sim) == 0);
    QS_CHECK(cut_has(QSI_CUT_DROP_ALL, seed, "a", "one"));
    QS_CHECK_OK(sim->dir_open_root(sim, ROOT, true, &root, &created, QS_ERROR));
    QS_CHECK(!created);
    file = sim_open("a", QS_OPEN_WRITE);
    sim_write(file, "two", 3, 0);
    QS_CHECK(cut_has(QSI_CUT_DROP_ALL, seed, "a", "one"));
    QS_CHECK(cut_has(QSI_CUT_KEEP_ALL, seed, "a", "two"));
    sim->close(sim, file);
}

/* -- steps, losses, locks --------------------------------------------------------------------- */

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

static void test_hook_sees_the_disk_before_each_step(void)
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

static void test_lost_writes_never_become_durable_and_later_ones_do(void)
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

static void test_lock_does_not_outlive_a_cut(void)
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

static void test_clock_moves_when_told_and_a_cut_keeps_it(void)
{
    uint64_t start = sim->monotonic_ns(sim);
    qs_env *disk;

    qsi_env_sim_advance(sim, 1000000);
    QS_CHECK(sim->monotonic_ns(sim) == start + 1001000);
    disk = sim_cut(QSI_CUT_DROP_ALL, seed);
    QS_CHECK(disk->monotonic_ns(disk) == start + 1002000);
    qsi_env_mem_destroy(disk);
}

int main(int argc, char **argv)
{
    seed = qs_test_seed(argc, argv);
    run(test_synced_name_with_unsynced_data_keeps_the_name_only);
    run(test_write_tears_at_sectors_and_garbage_stays_in_one);
    run(test_write_within_a_sector_is_atomic_or_garbage);
    run(test_writes_survive_independently_of_their_order);
    run(test_sizes_are_pending_until_sync);
    run(test_keep_all_is_what_was_written_and_drop_all_what_was_synced);
    run(test_equal_seeds_give_equal_disks_and_others_differ);
    run(test_cut_leaves_the_sim_unharmed);
    run(test_cut_costs_the_same_for_large_files);
    run(test_cut_without_memory_leaks_nothing);
    run(test_sim_goes_on_from_a_cut_disk);
    run(test_hook_sees_the_disk_before_each_step);
    run(test_lost_writes_never_become_durable_and_later_ones_do);
    run(test_lock_does_not_outlive_a_cut);
    run(test_clock_moves_when_told_and_a_cut_keeps_it);
    return 0;
}
