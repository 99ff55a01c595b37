/* The memory and sim environments: a disk in RAM with a clock and randomness that follow from the
 * seed, tracked or not, and the cuts of it. */
#include "check.h"
#include "sim_disk.h"
#include "splitmix.h"

#define NS_PER_US 1000u
#define WALL_US_AT_START UINT64_C(1735689600000000) /* 2025-01-01 00:00 UTC */

static struct sim_disk *lock_disk(qs_env *env)
{
    struct sim_disk *disk = env->data;

    qsi_mutex_lock(&disk->ram.mutex);
    return disk;
}

static void unlock_disk(struct sim_disk *disk)
{
    qsi_mutex_unlock(&disk->ram.mutex);
}

static qs_env *env_of(struct sim_disk *disk)
{
    return disk != NULL ? &disk->ram.env : NULL;
}

/* -- space, clock and randomness -------------------------------------------------------------- */

static qs_status sim_space(qs_env *env, qs_dir *dir, uint64_t *total_out, uint64_t *free_out,
                           qs_error *error)
{
    struct sim_disk *disk = lock_disk(env);

    (void)dir;
    (void)error;
    *total_out = *free_out = UINT64_MAX / 4;
    if (disk->capacity_bytes > 0) {
        uint64_t used = sim_disk_used(disk);

        *total_out = disk->capacity_bytes;
        *free_out = used < disk->capacity_bytes ? disk->capacity_bytes - used : 0;
    }
    unlock_disk(disk);
    return QS_OK;
}

/* Strictly increasing, so that code which waits for the clock to move cannot hang. */
static uint64_t sim_monotonic_ns(qs_env *env)
{
    struct sim_disk *disk = lock_disk(env);
    uint64_t now;

    disk->clock_ns += NS_PER_US;
    now = disk->clock_ns;
    unlock_disk(disk);
    return now;
}

static uint64_t sim_wall_us(qs_env *env)
{
    struct sim_disk *disk = lock_disk(env);
    uint64_t now = WALL_US_AT_START + disk->clock_ns / NS_PER_US;

    unlock_disk(disk);
    return now;
}

static qs_status sim_random(qs_env *env, void *data, size_t bytes, qs_error *error)
{
    struct sim_disk *disk = lock_disk(env);
    uint8_t *next = data;

    (void)error;
    for (size_t i = 0; i < bytes; i++) {
        next[i] = (uint8_t)qsi_splitmix_next(&disk->random);
    }
    unlock_disk(disk);
    return QS_OK;
}

void sim_env_init(struct sim_disk *disk)
{
    qs_env *env = &disk->ram.env;

    env->space = sim_space;
    env->monotonic_ns = sim_monotonic_ns;
    env->wall_us = sim_wall_us;
    env->random = sim_random;
    env->file_system = NULL;
}

void qsi_env_ram_limit(qs_env *env, uint64_t bytes)
{
    struct sim_disk *disk = lock_disk(env);

    disk->capacity_bytes = bytes;
    unlock_disk(disk);
}

uint64_t qsi_env_ram_used(qs_env *env)
{
    struct sim_disk *disk = lock_disk(env);
    uint64_t bytes = sim_disk_used(disk);

    unlock_disk(disk);
    return bytes;
}

/* -- memory ----------------------------------------------------------------------------------- */

/* There is memory for it. */
static qs_env *must_be_made(qs_env *env)
{
    QS_ASSERT(env != NULL);
    return env;
}

qs_env *qsi_env_mem_try_create(uint64_t seed)
{
    return env_of(sim_disk_create(seed, false));
}

qs_env *qsi_env_mem_create(uint64_t seed)
{
    return must_be_made(qsi_env_mem_try_create(seed));
}

void qsi_env_mem_destroy(qs_env *env)
{
    if (env != NULL) {
        sim_disk_destroy(env->data);
    }
}

void qsi_env_mem_advance(qs_env *env, uint64_t ns)
{
    struct sim_disk *disk = lock_disk(env);

    disk->clock_ns += ns;
    unlock_disk(disk);
}

qs_env *qsi_env_mem_clone(qs_env *env, uint64_t seed)
{
    struct sim_disk *disk = lock_disk(env);
    struct sim_disk *clone = sim_disk_cut(disk, QSI_CUT_KEEP_ALL, seed);

    unlock_disk(disk);
    return must_be_made(env_of(clone));
}

/* -- sim -------------------------------------------------------------------------------------- */

/* NULL: env is no sim. */
static struct sim_disk *sim_of(qs_env *env)
{
    struct sim_disk *disk = env->monotonic_ns == sim_monotonic_ns ? env->data : NULL;

    return disk != NULL && disk->is_tracked ? disk : NULL;
}

static struct sim_disk *must_be_sim(qs_env *env)
{
    struct sim_disk *disk = sim_of(env);

    QS_ASSERT(disk != NULL);
    return disk;
}

qs_env *qsi_env_sim_try_create(uint64_t seed)
{
    return env_of(sim_disk_create(seed, true));
}

qs_env *qsi_env_sim_create(uint64_t seed)
{
    return must_be_made(qsi_env_sim_try_create(seed));
}

void qsi_env_sim_destroy(qs_env *env)
{
    if (env != NULL) {
        sim_disk_destroy(must_be_sim(env));
    }
}

uint64_t qsi_env_sim_steps(qs_env *env)
{
    return must_be_sim(env)->step_count;
}

void qsi_env_sim_advance(qs_env *env, uint64_t ns)
{
    must_be_sim(env)->clock_ns += ns;
}

qs_env *qsi_env_sim_try_cut(qs_env *env, enum qsi_cut_how how, uint64_t seed)
{
    return env_of(sim_disk_cut(must_be_sim(env), how, seed));
}

qs_env *qsi_env_sim_cut(qs_env *env, enum qsi_cut_how how, uint64_t seed)
{
    return must_be_made(qsi_env_sim_try_cut(env, how, seed));
}

void qsi_env_sim_on_step(qs_env *env, void (*hook)(void *context, uint64_t step), void *context)
{
    struct sim_disk *disk = must_be_sim(env);

    disk->on_step = hook;
    disk->on_step_context = context;
}

qs_env *qsi_env_sim_from_mem(qs_env *mem, uint64_t seed)
{
    struct sim_disk *disk = mem->data;

    disk->random = seed;
    disk->step_count = 0;
    QS_ASSERT(sim_disk_track(disk) == QS_OK);
    return mem;
}

/* -- syncs that fail -------------------------------------------------------------------------- */

static void lose(qs_env *env, struct qsi_ram_node *node)
{
    struct sim_node *sim = sim_node_of(node);

    sim->has_lost = true;
    sim_forget_pending(sim_of(env), sim);
}

void qsi_env_sim_lose_file(qs_env *env, qs_file *file)
{
    if (sim_of(env) != NULL) {
        lose(env, qsi_ram_node_of_file(file));
    }
}

void qsi_env_sim_lose_dir(qs_env *env, qs_dir *dir)
{
    if (sim_of(env) != NULL) {
        lose(env, qsi_ram_node_of_dir(dir));
    }
}

void qsi_env_sim_lose_dir_entry(qs_env *env, qs_dir *dir)
{
    if (sim_of(env) != NULL) {
        lose(env, qsi_ram_parent_of_dir(dir));
    }
}
