/* What the tests of the sim environment share: a disk under test, and looking at what a cut left of
 * it. */
#ifndef SIM_FIXTURE_H
#define SIM_FIXTURE_H
#include "qstore/env.h"

#include "env_test.h"
#include "qs_test.h"

#define ROOT "/store"
#define CONTENT_BYTES_MAX 65536
#define MISSING SIZE_MAX

static qs_env *sim;
static qs_dir *root;

/* With a root directory that is durable. */
static inline void sim_set_up(uint64_t seed)
{
    bool created;

    sim = qsi_env_sim_create(seed);
    QS_CHECK_OK(sim->dir_open_root(sim, ROOT, true, &root, &created, QS_ERROR));
    QS_CHECK_OK(sim->dir_sync_parent(sim, root, QS_ERROR));
}

static inline void sim_tear_down(void)
{
    sim->dir_close(sim, root);
    qsi_env_sim_destroy(sim);
}

static inline qs_file *sim_open(const char *name, uint32_t flags)
{
    qs_file *file;

    QS_CHECK_OK(sim->open(sim, root, name, flags, &file, QS_ERROR));
    return file;
}

static inline qs_file *sim_create(const char *name)
{
    return sim_open(name, QS_OPEN_WRITE | QS_OPEN_CREATE_NEW);
}

static inline void sim_write(qs_file *file, const void *data, size_t bytes, uint64_t offset)
{
    qs_part part = {data, bytes};
    size_t written;

    QS_CHECK_OK(sim->write(sim, file, &part, 1, offset, &written, QS_ERROR));
    QS_CHECK(written == bytes);
}

static inline void sim_fill(qs_file *file, int byte, size_t bytes, uint64_t offset)
{
    static uint8_t data[CONTENT_BYTES_MAX];

    memset(data, byte, bytes);
    sim_write(file, data, bytes, offset);
}

static inline void sim_sync(qs_file *file)
{
    QS_CHECK_OK(sim->sync(sim, file, QS_ERROR));
}

static inline void sim_sync_dir(void)
{
    QS_CHECK_OK(sim->dir_sync(sim, root, QS_ERROR));
}

/* A closed file with the text, all of it durable. */
static inline void sim_put_durable(const char *name, const char *text)
{
    qs_file *file = sim_create(name);

    sim_write(file, text, strlen(text), 0);
    sim_sync(file);
    sim->close(sim, file);
    sim_sync_dir();
}

static inline qs_env *sim_cut(enum qsi_cut_how how, uint64_t seed)
{
    qs_env *disk = qsi_env_sim_cut(sim, how, seed);

    return disk;
}

/* The size of the file, its bytes in content; MISSING if there is none, or no directory. */
static inline size_t disk_read(qs_env *disk, const char *name, uint8_t *content)
{
    qs_dir *dir = NULL;
    qs_file *file = NULL;
    size_t bytes = MISSING;
    bool created;
    qs_status status = disk->dir_open_root(disk, ROOT, false, &dir, &created, QS_ERROR);

    if (status == QS_OK) {
        status = disk->open(disk, dir, name, QS_OPEN_READ, &file, QS_ERROR);
    }
    QS_CHECK(status == QS_OK || status == QS_ENOENT);
    if (status == QS_OK) {
        QS_CHECK_OK(disk->read(disk, file, content, CONTENT_BYTES_MAX, 0, &bytes, QS_ERROR));
    }
    disk->close(disk, file);
    disk->dir_close(disk, dir);
    return bytes;
}

/* Whether the disk has the file with exactly this text; NULL: whether it has no such file. */
static inline bool disk_has(qs_env *disk, const char *name, const char *text)
{
    static uint8_t content[CONTENT_BYTES_MAX];
    size_t bytes = disk_read(disk, name, content);

    if (text == NULL) {
        return bytes == MISSING;
    }
    return bytes == strlen(text) && memcmp(content, text, bytes) == 0;
}

static inline bool cut_has(enum qsi_cut_how how, uint64_t seed, const char *name, const char *text)
{
    qs_env *disk = sim_cut(how, seed);
    bool has = disk_has(disk, name, text);

    qsi_env_mem_destroy(disk);
    return has;
}

#endif
