/* Power cuts and names: what is created, renamed or removed may come and go until the directory is
 * synced, and nothing that was durable ever gets lost on the way. */
#include "sim_run.h"

#define CUT_COUNT 1000

/* How many of the random cuts have the file with the text. */
static int count_cuts(const char *name, const char *text)
{
    int count = 0;

    for (uint64_t i = 0; i < CUT_COUNT; i++) {
        count += cut_has(QSI_CUT_RANDOM, seed + i, name, text);
    }
    return count;
}

static bool is_some(int count)
{
    return count > 0 && count < CUT_COUNT;
}

SIM_TEST(test_unsynced_name_may_vanish_although_its_file_was_synced)
{
    qs_file *file = sim_create("a");

    sim_write(file, "data", 4, 0);
    sim_sync(file);
    sim->close(sim, file);
    QS_CHECK(cut_has(QSI_CUT_KEEP_ALL, seed, "a", "data"));
    QS_CHECK(cut_has(QSI_CUT_DROP_ALL, seed, "a", NULL));
    QS_CHECK(is_some(count_cuts("a", NULL)));
    QS_CHECK(count_cuts("a", NULL) + count_cuts("a", "data") == CUT_COUNT);
    sim_sync_dir();
    QS_CHECK(cut_has(QSI_CUT_DROP_ALL, seed, "a", "data"));
    QS_CHECK(count_cuts("a", "data") == CUT_COUNT);
}

SIM_TEST(test_removed_name_may_return_with_its_contents)
{
    sim_put_durable("a", "data");
    QS_CHECK_OK(sim->remove(sim, root, "a", QS_ERROR));
    QS_CHECK(cut_has(QSI_CUT_KEEP_ALL, seed, "a", NULL));
    QS_CHECK(cut_has(QSI_CUT_DROP_ALL, seed, "a", "data"));
    QS_CHECK(is_some(count_cuts("a", NULL)));
    QS_CHECK(count_cuts("a", NULL) + count_cuts("a", "data") == CUT_COUNT);
    sim_sync_dir();
    QS_CHECK(count_cuts("a", NULL) == CUT_COUNT);
}

SIM_TEST(test_rename_over_a_file_is_one_change)
{
    int old = 0;
    int new = 0;

    sim_put_durable("name", "old");
    sim_put_durable("tmp", "new");
    QS_CHECK_OK(sim->rename(sim, root, "tmp", "name", QS_ERROR));
    for (uint64_t i = 0; i < CUT_COUNT; i++) {
        qs_env *disk = sim_cut(QSI_CUT_RANDOM, seed + i);
        bool is_old = disk_has(disk, "name", "old") && disk_has(disk, "tmp", "new");
        bool is_new = disk_has(disk, "name", "new") && disk_has(disk, "tmp", NULL);

        QS_CHECK(is_old || is_new);
        old += is_old;
        new += is_new;
        qsi_env_mem_destroy(disk);
    }
    QS_CHECK(old > 0 && new > 0);
    QS_CHECK(cut_has(QSI_CUT_DROP_ALL, seed, "name", "old"));
    sim_sync_dir();
    QS_CHECK(cut_has(QSI_CUT_DROP_ALL, seed, "name", "new"));
}

SIM_TEST(test_renamed_file_that_was_not_synced_may_be_empty)
{
    qs_file *file = sim_create("tmp");

    sim_sync_dir();
    sim_write(file, "new", 3, 0);
    sim->close(sim, file);
    QS_CHECK_OK(sim->rename(sim, root, "tmp", "name", QS_ERROR));
    sim_sync_dir();
    QS_CHECK(cut_has(QSI_CUT_DROP_ALL, seed, "name", ""));
    QS_CHECK(is_some(count_cuts("name", "new")));
}

SIM_TEST(test_changes_of_different_names_are_independent)
{
    int seen[4] = {0};

    sim_put_durable("a", "a");
    sim_put_durable("b", "b");
    QS_CHECK_OK(sim->remove(sim, root, "a", QS_ERROR));
    QS_CHECK_OK(sim->remove(sim, root, "b", QS_ERROR));
    for (uint64_t i = 0; i < CUT_COUNT; i++) {
        qs_env *disk = sim_cut(QSI_CUT_RANDOM, seed + i);

        seen[disk_has(disk, "a", NULL) + 2 * disk_has(disk, "b", NULL)]++;
        qsi_env_mem_destroy(disk);
    }
    QS_CHECK(seen[0] > 0 && seen[1] > 0 && seen[2] > 0 && seen[3] > 0);
}

/* The name is used again: a disk that undid the renaming cannot also have the new file there, which
 * would lose a durable file that nobody removed. */
SIM_TEST(test_durable_file_survives_the_reuse_of_its_name)
{
    int moved = 0;
    int reused = 0;

    sim_put_durable("a", "durable");
    QS_CHECK_OK(sim->rename(sim, root, "a", "b", QS_ERROR));
    sim->close(sim, sim_create("a"));
    for (uint64_t i = 0; i < CUT_COUNT; i++) {
        qs_env *disk = sim_cut(QSI_CUT_RANDOM, seed + i);
        bool is_moved = disk_has(disk, "b", "durable");

        QS_CHECK(is_moved || (disk_has(disk, "a", "durable") && disk_has(disk, "b", NULL)));
        moved += is_moved;
        reused += disk_has(disk, "a", "");
        qsi_env_mem_destroy(disk);
    }
    QS_CHECK(is_some(moved) && is_some(reused) && reused < moved);
    QS_CHECK(cut_has(QSI_CUT_KEEP_ALL, seed, "a", ""));
}

/* Likewise the removal of the new file cannot hit the durable one, which has the name if its
 * renaming was undone. */
SIM_TEST(test_durable_file_survives_the_removal_of_its_successor)
{
    sim_put_durable("a", "durable");
    QS_CHECK_OK(sim->rename(sim, root, "a", "b", QS_ERROR));
    sim->close(sim, sim_create("a"));
    QS_CHECK_OK(sim->remove(sim, root, "a", QS_ERROR));
    QS_CHECK(is_some(count_cuts("a", "durable")));
    QS_CHECK(count_cuts("a", "durable") + count_cuts("b", "durable") == CUT_COUNT);
}

SIM_TEST(test_name_that_came_and_went_may_be_there)
{
    qs_file *file = sim_create("a");

    sim_write(file, "data", 4, 0);
    sim_sync(file);
    QS_CHECK_OK(sim->remove(sim, root, "a", QS_ERROR));
    QS_CHECK(is_some(count_cuts("a", "data")));
    sim->close(sim, file); /* the last handle: pending names keep the file */
    QS_CHECK(is_some(count_cuts("a", "data")));
    sim_sync_dir();
    QS_CHECK(count_cuts("a", NULL) == CUT_COUNT);
}

SIM_TEST(test_lost_directory_changes_do_not_come_back_with_the_next_sync)
{
    sim->close(sim, sim_create("a"));
    qsi_env_sim_lose_dir(sim, root);
    sim->close(sim, sim_create("b"));
    sim_sync_dir();
    QS_CHECK(cut_has(QSI_CUT_KEEP_ALL, seed, "a", ""));
    QS_CHECK(cut_has(QSI_CUT_DROP_ALL, seed, "a", NULL));
    QS_CHECK(cut_has(QSI_CUT_DROP_ALL, seed, "b", ""));
}

/* -- directories ------------------------------------------------------------------------------ */

static bool disk_has_dir(qs_env *disk, const char *name, const char *file_name)
{
    qs_dir *top = NULL;
    qs_dir *dir = NULL;
    qs_file *file = NULL;
    bool created;
    qs_status status = disk->dir_open_root(disk, ROOT, false, &top, &created, QS_ERROR);

    if (status == QS_OK) {
        status = disk->dir_open(disk, top, name, false, &dir, &created, QS_ERROR);
    }
    if (status == QS_OK) {
        status = disk->open(disk, dir, file_name, QS_OPEN_READ, &file, QS_ERROR);
    }
    QS_CHECK(status == QS_OK || status == QS_ENOENT);
    disk->close(disk, file);
    disk->dir_close(disk, dir);
    disk->dir_close(disk, top);
    return status == QS_OK;
}

static int count_cuts_with_dir(const char *name, const char *file_name)
{
    int count = 0;

    for (uint64_t i = 0; i < CUT_COUNT; i++) {
        qs_env *disk = sim_cut(QSI_CUT_RANDOM, seed + i);

        count += disk_has_dir(disk, name, file_name);
        qsi_env_mem_destroy(disk);
    }
    return count;
}

SIM_TEST(test_unsynced_sub_directory_takes_its_synced_files_along)
{
    qs_dir *dir;
    qs_file *file;
    bool created;

    QS_CHECK_OK(sim->dir_open(sim, root, "q", true, &dir, &created, QS_ERROR));
    QS_CHECK(created);
    QS_CHECK_OK(sim->open(sim, dir, "f", QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &file, QS_ERROR));
    sim_sync(file);
    QS_CHECK_OK(sim->dir_sync(sim, dir, QS_ERROR));
    QS_CHECK(is_some(count_cuts_with_dir("q", "f")));
    sim_sync_dir();
    QS_CHECK(count_cuts_with_dir("q", "f") == CUT_COUNT);
    sim->close(sim, file);
    sim->dir_close(sim, dir);
}

SIM_TEST(test_removed_sub_directory_may_return)
{
    qs_dir *dir;
    qs_file *file;
    bool created;

    QS_CHECK_OK(sim->dir_open(sim, root, "q", true, &dir, &created, QS_ERROR));
    QS_CHECK_OK(sim->open(sim, dir, "f", QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &file, QS_ERROR));
    QS_CHECK_OK(sim->dir_sync(sim, dir, QS_ERROR));
    sim_sync_dir();
    sim->close(sim, file);
    QS_CHECK_OK(sim->remove(sim, dir, "f", QS_ERROR));
    sim->dir_close(sim, dir);
    QS_CHECK_OK(sim->remove(sim, root, "q", QS_ERROR));
    QS_CHECK(is_some(count_cuts_with_dir("q", "f")));
    sim_sync_dir();
    QS_CHECK(count_cuts_with_dir("q", "f") == 0);
}

SIM_TEST(test_root_is_there_only_once_its_parent_is_synced)
{
    qs_dir *dir;
    bool created;
    int there = 0;

    QS_CHECK_OK(sim->dir_open_root(sim, "/other", true, &dir, &created, QS_ERROR));
    QS_CHECK(created);
    for (uint64_t i = 0; i < CUT_COUNT; i++) {
        qs_env *disk = sim_cut(QSI_CUT_RANDOM, seed + i);
        qs_dir *other = NULL;

        there += disk->dir_open_root(disk, "/other", false, &other, &created, NULL) == QS_OK;
        disk->dir_close(disk, other);
        qsi_env_mem_destroy(disk);
    }
    QS_CHECK(is_some(there));
    QS_CHECK_OK(sim->dir_sync_parent(sim, dir, QS_ERROR));
    sim->dir_close(sim, dir);
    for (uint64_t i = 0; i < CUT_COUNT; i++) {
        qs_env *disk = sim_cut(QSI_CUT_RANDOM, seed + i);

        QS_CHECK_OK(disk->dir_open_root(disk, "/other", false, &dir, &created, QS_ERROR));
        disk->dir_close(disk, dir);
        qsi_env_mem_destroy(disk);
    }
}
