/* The sim environment: a tracked disk in RAM, and the cuts of it. */
#include "check.h"
#include "env_test.h"
#include "ram_disk.h"

static struct qsi_ram_disk *sim_of(qs_env *env)
{
    struct qsi_ram_disk *disk = qsi_ram_disk_of(env);

    return disk != NULL && disk->is_tracked ? disk : NULL;
}

static struct qsi_ram_disk *must_be_sim(qs_env *env)
{
    struct qsi_ram_disk *disk = sim_of(env);

    QS_ASSERT(disk != NULL);
    return disk;
}

qs_env *qsi_env_sim_create(uint64_t seed)
{
    struct qsi_ram_disk *disk = qsi_ram_disk_create(seed, true);

    return disk != NULL ? &disk->env : NULL;
}

void qsi_env_sim_destroy(qs_env *env)
{
    if (env != NULL) {
        qsi_ram_disk_destroy(must_be_sim(env));
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

qs_env *qsi_env_sim_cut(qs_env *env, enum qsi_cut_how how, uint64_t seed)
{
    struct qsi_ram_disk *disk = qsi_ram_disk_cut(must_be_sim(env), how, seed);

    return disk != NULL ? &disk->env : NULL;
}

void qsi_env_sim_on_step(qs_env *env, void (*hook)(void *context, uint64_t step), void *context)
{
    struct qsi_ram_disk *disk = must_be_sim(env);

    disk->on_step = hook;
    disk->on_step_context = context;
}

qs_env *qsi_env_sim_from_mem(qs_env *mem, uint64_t seed)
{
    struct qsi_ram_disk *disk = mem->data;

    disk->random = seed;
    disk->step_count = 0;
    if (qsi_ram_disk_track(disk) != QS_OK) {
        qsi_ram_disk_destroy(disk);
        return NULL;
    }
    return mem;
}

static void lose(qs_env *env, struct qsi_ram_node *node)
{
    struct qsi_ram_disk *disk = sim_of(env);

    node->has_lost = true;
    qsi_ram_forget_pending(disk, node);
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
