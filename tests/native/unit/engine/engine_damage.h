/* Damage to a file of a store, between two openings or while it is open. */
#ifndef ENGINE_DAMAGE_H
#define ENGINE_DAMAGE_H

#include "engine_fixture.h"
#include "le.h"
#include "segment_format.h"

struct damage_wanted {
    const char *part; /* of the name */
    char name[128];
};

static inline bool damage_find_file(void *context, const char *name)
{
    struct damage_wanted *wanted = context;
    bool is_one = strstr(name, wanted->part) != NULL;

    if (is_one) {
        snprintf(wanted->name, sizeof wanted->name, "%s", name);
    }
    return !is_one;
}

/* Changes the byte behind the first places in the file where these bytes are. */
static inline void damage_first(struct engine *engine, const char *dir_name, const char *part,
                                const char *needle, size_t bytes, size_t places_max)
{
    static uint8_t data[1u << 20];
    struct damage_wanted wanted = {.part = part};
    qs_env *env = engine->env;
    qs_dir *root, *dir;
    qs_file *file;
    size_t got, places = 0;
    bool created;

    QS_CHECK_OK(env->dir_open_root(env, engine->path, false, &root, &created, QS_ERROR));
    QS_CHECK_OK(env->dir_open(env, root, dir_name, false, &dir, &created, QS_ERROR));
    QS_CHECK_OK(env->dir_list(env, dir, damage_find_file, &wanted, QS_ERROR));
    QS_CHECK_OK(env->open(env, dir, wanted.name, QS_OPEN_WRITE, &file, QS_ERROR));
    QS_CHECK_OK(env->read(env, file, data, sizeof data, 0, &got, QS_ERROR));
    for (size_t i = 0; i + bytes < got && places < places_max; i++) {
        if (memcmp(data + i, needle, bytes) == 0) {
            const uint8_t other = (uint8_t)~data[i + bytes];
            const qs_part byte = {&other, 1};
            size_t written;
            QS_CHECK_OK(env->write(env, file, &byte, 1, i + bytes, &written, QS_ERROR));
            places++;
        }
    }
    QS_CHECK(places > 0);
    env->close(env, file);
    env->dir_close(env, dir);
    env->dir_close(env, root);
}

static inline void damage(struct engine *engine, const char *dir_name, const char *part,
                          const char *needle, size_t bytes)
{
    damage_first(engine, dir_name, part, needle, bytes, SIZE_MAX);
}

enum damage_kind { HEADER, STATE, FILE_GONE, FILE_CUT, KINDS };

/* Removes the file whose name has that part, or cuts it. */
static inline void damage_file(struct engine *engine, const char *dir_name, const char *part,
                               bool cut)
{
    struct damage_wanted wanted = {.part = part};
    qs_env *env = engine->env;
    qs_dir *root, *dir;
    qs_file *file;
    bool created;

    QS_CHECK_OK(env->dir_open_root(env, engine->path, false, &root, &created, QS_ERROR));
    QS_CHECK_OK(env->dir_open(env, root, dir_name, false, &dir, &created, QS_ERROR));
    QS_CHECK_OK(env->dir_list(env, dir, damage_find_file, &wanted, QS_ERROR));
    QS_CHECK(wanted.name[0] != '\0');
    if (cut) {
        QS_CHECK_OK(env->open(env, dir, wanted.name, QS_OPEN_WRITE, &file, QS_ERROR));
        QS_CHECK_OK(env->truncate(env, file, 100, QS_ERROR));
        env->close(env, file);
    } else {
        QS_CHECK_OK(env->remove(env, dir, wanted.name, QS_ERROR));
    }
    env->dir_close(env, dir);
    env->dir_close(env, root);
}

/* Makes the segment file whose name has that part one of the next version, its checksum valid. */
static inline void damage_version(struct engine *engine, const char *part)
{
    static uint8_t header[QSI_SEGMENT_HEADER_BYTES_MAX];
    struct damage_wanted wanted = {.part = part};
    const qs_part whole = {header, 4096}; /* of a segment of the usual size */
    qs_env *env = engine->env;
    qs_dir *root, *dir;
    qs_file *file;
    size_t done;
    bool created;

    QS_CHECK_OK(env->dir_open_root(env, engine->path, false, &root, &created, QS_ERROR));
    QS_CHECK_OK(env->dir_open(env, root, "index", false, &dir, &created, QS_ERROR));
    QS_CHECK_OK(env->dir_list(env, dir, damage_find_file, &wanted, QS_ERROR));
    QS_CHECK_OK(env->open(env, dir, wanted.name, QS_OPEN_WRITE, &file, QS_ERROR));
    QS_CHECK_OK(env->read(env, file, header, whole.bytes, 0, &done, QS_ERROR));
    QS_CHECK(done == whole.bytes && memcmp(header, "QSSEGMT\n", 8) == 0);
    header[8] += 1;
    qsi_put_u32(header + whole.bytes - 4, qs_crc32c(0, header, whole.bytes - 4));
    QS_CHECK_OK(env->write(env, file, &whole, 1, 0, &done, QS_ERROR));
    env->close(env, file);
    env->dir_close(env, dir);
    env->dir_close(env, root);
}

/* Of the one queue of the store. */
static inline void damage_segment(struct engine *engine, uint32_t number, enum damage_kind kind)
{
    char part[32];

    snprintf(part, sizeof part, "-%012x-", number);
    switch (kind) {
    case HEADER:
        damage(engine, "index", part, "QSSEGMT\n", 8);
        break;
    case STATE:
        damage(engine, "index", part, "QSSEGST\n", 8);
        break;
    case FILE_GONE:
        damage_file(engine, "index", part, false);
        break;
    case FILE_CUT:
        damage_file(engine, "index", part, true);
        break;
    case KINDS:
        break;
    }
}

#endif
