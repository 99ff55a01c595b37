/* The memory environment: an untracked disk in RAM. */
#include "env_test.h"
#include "ram_disk.h"

qs_env *qsi_env_mem_create(uint64_t seed)
{
    struct qsi_ram_disk *disk = qsi_ram_disk_create(seed, false);

    return disk != NULL ? &disk->env : NULL;
}

void qsi_env_mem_destroy(qs_env *env)
{
    if (env != NULL) {
        qsi_ram_disk_destroy(env->data);
    }
}

void qsi_env_mem_advance(qs_env *env, uint64_t ns)
{
    struct qsi_ram_disk *disk = env->data;

    qsi_mutex_lock(&disk->mutex);
    disk->clock_ns += ns;
    qsi_mutex_unlock(&disk->mutex);
}

qs_env *qsi_env_mem_clone(qs_env *env, uint64_t seed)
{
    struct qsi_ram_disk *disk = env->data;
    struct qsi_ram_disk *clone;

    qsi_mutex_lock(&disk->mutex);
    clone = qsi_ram_disk_cut(disk, QSI_CUT_KEEP_ALL, seed);
    qsi_mutex_unlock(&disk->mutex);
    return clone != NULL ? &clone->env : NULL;
}
