/* Directories of a store and the files in them, seen from outside the store. */
#ifndef QS_TEST_DIRS_H
#define QS_TEST_DIRS_H

#include "qstore/env.h"

#include "qs_test.h"

#define QS_TEST_NAMES_MAX 256

/* A directory at this path, made durable if it was not there. */
static inline qs_dir *qs_test_make_root(qs_env *env, const char *path)
{
    qs_dir *root;
    bool created;

    QS_CHECK_OK(env->dir_open_root(env, path, true, &root, &created, QS_ERROR));
    if (created) {
        QS_CHECK_OK(env->dir_sync_parent(env, root, QS_ERROR));
    }
    return root;
}

/* The directory of this name in the store at that path; "": the store's own. */
static inline qs_dir *qs_test_open_dir(qs_env *env, const char *path, const char *name)
{
    qs_dir *root, *dir;
    bool created;

    QS_CHECK_OK(env->dir_open_root(env, path, false, &root, &created, QS_ERROR));
    if (name[0] == '\0') {
        return root;
    }
    QS_CHECK_OK(env->dir_open(env, root, name, false, &dir, &created, QS_ERROR));
    env->dir_close(env, root);
    return dir;
}

struct qs_test_names {
    const char *part; /* which they have */
    uint32_t count;
    char items[QS_TEST_NAMES_MAX][QS_NAME_BYTES_MAX + 1];
};

static inline bool qs_test_note_name(void *context, const char *name)
{
    struct qs_test_names *names = context;

    if (strstr(name, names->part) != NULL) {
        QS_CHECK(names->count < QS_TEST_NAMES_MAX);
        snprintf(names->items[names->count], sizeof names->items[0], "%s", name);
        names->count += 1;
    }
    return true;
}

/* Those of the directory that have this part; how many they are. */
static inline uint32_t qs_test_list(struct qs_test_names *names_out, qs_env *env, qs_dir *dir,
                                    const char *part)
{
    names_out->part = part;
    names_out->count = 0;
    QS_CHECK_OK(env->dir_list(env, dir, qs_test_note_name, names_out, QS_ERROR));
    return names_out->count;
}

static inline uint32_t qs_test_count_files(qs_env *env, const char *path, const char *dir_name,
                                           const char *part)
{
    struct qs_test_names names;
    qs_dir *dir = qs_test_open_dir(env, path, dir_name);

    qs_test_list(&names, env, dir, part);
    env->dir_close(env, dir);
    return names.count;
}

static inline uint64_t qs_test_file_bytes(qs_env *env, qs_dir *dir, const char *name)
{
    uint64_t bytes;
    qs_file *file;

    QS_CHECK_OK(env->open(env, dir, name, QS_OPEN_READ, &file, QS_ERROR));
    QS_CHECK_OK(env->size(env, file, &bytes, QS_ERROR));
    env->close(env, file);
    return bytes;
}

/* As much of the file from there on as there is room for. */
static inline size_t qs_test_read_file(qs_env *env, qs_dir *dir, const char *name, uint64_t offset,
                                       void *data_out, size_t room)
{
    qs_file *file;
    size_t bytes;

    QS_CHECK_OK(env->open(env, dir, name, QS_OPEN_READ, &file, QS_ERROR));
    QS_CHECK_OK(env->read(env, file, data_out, room, offset, &bytes, QS_ERROR));
    env->close(env, file);
    return bytes;
}

static inline void qs_test_write_file(qs_env *env, qs_dir *dir, const char *name, uint64_t offset,
                                      const void *data, size_t bytes)
{
    const qs_part part = {data, bytes};
    qs_file *file;
    size_t written;

    QS_CHECK_OK(env->open(env, dir, name, QS_OPEN_WRITE, &file, QS_ERROR));
    QS_CHECK_OK(env->write(env, file, &part, 1, offset, &written, QS_ERROR));
    QS_CHECK(written == bytes);
    env->close(env, file);
}

static inline void qs_test_flip(qs_env *env, qs_dir *dir, const char *name, uint64_t offset,
                                uint8_t mask)
{
    uint8_t byte;

    QS_CHECK(qs_test_read_file(env, dir, name, offset, &byte, 1) == 1);
    byte ^= mask;
    qs_test_write_file(env, dir, name, offset, &byte, 1);
}

static inline void qs_test_truncate_file(qs_env *env, qs_dir *dir, const char *name, uint64_t bytes)
{
    qs_file *file;

    QS_CHECK_OK(env->open(env, dir, name, QS_OPEN_WRITE, &file, QS_ERROR));
    QS_CHECK_OK(env->truncate(env, file, bytes, QS_ERROR));
    env->close(env, file);
}

#endif
