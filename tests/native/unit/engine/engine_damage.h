/* Damage to a file of a store, between two openings or while it is open. */
#ifndef ENGINE_DAMAGE_H
#define ENGINE_DAMAGE_H

#include "engine_fixture.h"
#include "le.h"
#include "qs_test_dirs.h"
#include "segment_format.h"

/* The directory of the store, and the first of its files whose name has that part. */
static inline qs_dir *damage_find(struct qs_test_names *names_out, struct engine *engine,
                                  const char *dir_name, const char *part)
{
    qs_dir *dir = qs_test_open_dir(engine->env, engine->path, dir_name);

    QS_CHECK(qs_test_list(names_out, engine->env, dir, part) > 0);
    return dir;
}

/* Changes the byte behind the first places in the file where these bytes are. */
static inline void damage_first(struct engine *engine, const char *dir_name, const char *part,
                                const char *needle, size_t bytes, size_t places_max)
{
    static uint8_t data[1u << 20];
    struct qs_test_names names;
    qs_env *env = engine->env;
    qs_dir *dir = damage_find(&names, engine, dir_name, part);
    size_t got = qs_test_read_file(env, dir, names.items[0], 0, data, sizeof data), places = 0;

    for (size_t i = 0; i + bytes < got && places < places_max; i++) {
        if (memcmp(data + i, needle, bytes) == 0) {
            qs_test_flip(env, dir, names.items[0], i + bytes, 0xff);
            places++;
        }
    }
    QS_CHECK(places > 0);
    env->dir_close(env, dir);
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
    struct qs_test_names names;
    qs_env *env = engine->env;
    qs_dir *dir = damage_find(&names, engine, dir_name, part);

    if (cut) {
        qs_test_truncate_file(env, dir, names.items[0], 100);
    } else {
        QS_CHECK_OK(env->remove(env, dir, names.items[0], QS_ERROR));
    }
    env->dir_close(env, dir);
}

/* Makes the segment file whose name has that part one of the next version, its checksum valid. */
static inline void damage_version(struct engine *engine, const char *part)
{
    static uint8_t header[QSI_SEGMENT_HEADER_BYTES_MAX];
    const size_t bytes = 4096; /* of a segment of the usual size */
    struct qs_test_names names;
    qs_env *env = engine->env;
    qs_dir *dir = damage_find(&names, engine, "index", part);

    QS_CHECK(qs_test_read_file(env, dir, names.items[0], 0, header, bytes) == bytes);
    QS_CHECK(memcmp(header, "QSSEGMT\n", 8) == 0);
    header[8] += 1;
    qsi_put_u32(header + bytes - 4, qs_crc32c(0, header, bytes - 4));
    qs_test_write_file(env, dir, names.items[0], 0, header, bytes);
    env->dir_close(env, dir);
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
