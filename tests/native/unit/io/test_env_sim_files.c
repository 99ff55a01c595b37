/* Power cuts and the contents of files: what can be left of writes that were not synced, sector by
 * sector; and that what was synced is always there.  Random cuts are taken many times, to see that
 * every outcome which must be possible comes up, and none of the others. */
#include "sim_run.h"

#define CUT_COUNT 2000
#define SECTOR 512u

SIM_TEST(test_synced_name_with_unsynced_data_keeps_the_name_only)
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

SIM_TEST(test_write_tears_at_sectors_and_garbage_stays_in_one)
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

SIM_TEST(test_write_within_a_sector_is_atomic_or_garbage)
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

SIM_TEST(test_writes_survive_independently_of_their_order)
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
SIM_TEST(test_sizes_are_pending_until_sync)
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

SIM_TEST(test_keep_all_is_what_was_written_and_drop_all_what_was_synced)
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

SIM_TEST(test_equal_seeds_give_equal_disks_and_others_differ)
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
