/* Files on a simulated disk behind an environment whose calls fail, and what a disk has of them. */
#ifndef FILE_FIXTURE_H
#define FILE_FIXTURE_H

#include "alloc.h"
#include "env_test.h"
#include "file.h"
#include "qs_test_alloc.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static uint64_t seed;
static qs_env *sim;
static qs_env *env; /* sim behind a fault environment */
static qs_dir *root;

static inline void set_up(void)
{
    bool created;

    seed = qs_test_seed_given;
    sim = qsi_env_sim_create(seed);
    env = qsi_env_fault_create(sim);
    QS_CHECK_OK(env->dir_open_root(env, "/r", true, &root, &created, QS_ERROR));
    QS_CHECK_OK(env->dir_sync_parent(env, root, QS_ERROR));
}

static inline void tear_down(void)
{
    env->dir_close(env, root);
    qsi_env_fault_destroy(env);
    qsi_env_sim_destroy(sim);
}

static inline void run(void (*test)(void))
{
    set_up();
    test();
    tear_down();
}
#define FILE_TEST(name) QS_TEST_BY(run, name, (void))

/* QS_ENOENT if the disk has no such file. */
static inline qs_status load(qs_env *disk, const char *name, uint8_t **data_out, size_t *bytes_out)
{
    qs_dir *dir;
    bool created;
    qs_status status;

    QS_CHECK_OK(disk->dir_open_root(disk, "/r", false, &dir, &created, QS_ERROR));
    status = qsi_file_load(disk, dir, name, SIZE_MAX, data_out, bytes_out, QS_ERROR);
    disk->dir_close(disk, dir);
    return status;
}

static inline bool has_text(qs_env *disk, const char *name, const char *text)
{
    uint8_t *data = NULL;
    size_t bytes;
    qs_status status = load(disk, name, &data, &bytes);
    bool has = status == QS_OK && bytes == strlen(text) && memcmp(data, text, bytes) == 0;

    QS_CHECK(status == QS_OK || status == QS_ENOENT);
    qsi_free(data);
    return has;
}

static inline bool has_name(qs_env *disk, const char *name)
{
    uint8_t *data = NULL;
    size_t bytes;
    qs_status status = load(disk, name, &data, &bytes);

    qsi_free(data);
    return status == QS_OK;
}

static inline bool has_zeros(qs_env *disk, const char *name, size_t expected)
{
    uint8_t *data = NULL;
    size_t bytes;
    bool has = load(disk, name, &data, &bytes) == QS_OK && bytes == expected;

    for (size_t i = 0; has && i < bytes; i++) {
        has = data[i] == 0;
    }
    qsi_free(data);
    return has;
}

#endif
