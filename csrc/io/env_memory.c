/* An environment for stores that leave no files: the disk of the memory environment, with the
 * machine's clock and randomness. */
#include "env_test.h"
#include "ram_disk.h"

static uint64_t real_monotonic_ns(qs_env *env)
{
    (void)env;
    return qs_env_posix()->monotonic_ns(qs_env_posix());
}

static uint64_t real_wall_us(qs_env *env)
{
    (void)env;
    return qs_env_posix()->wall_us(qs_env_posix());
}

static qs_status real_random(qs_env *env, void *data, size_t bytes, qs_error *error)
{
    (void)env;
    return qs_env_posix()->random(qs_env_posix(), data, bytes, error);
}

static void memory_file_system(qs_env *env, qs_dir *dir, qs_file_system *system_out)
{
    (void)env;
    (void)dir;
    *system_out = (qs_file_system){.name = "memory", .kind = QS_FS_VOLATILE};
}

qs_env *qs_env_memory_create(void)
{
    qs_env *env = qsi_env_mem_create(0);

    if (env != NULL) {
        env->monotonic_ns = real_monotonic_ns;
        env->wall_us = real_wall_us;
        env->random = real_random;
        env->file_system = memory_file_system;
    }
    return env;
}

void qs_env_memory_destroy(qs_env *env)
{
    qsi_env_mem_destroy(env);
}
