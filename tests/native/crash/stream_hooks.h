/* A scene whose environment does something at calls for block files, and batches that are written
 * directly in it. */
#ifndef STREAM_HOOKS_H
#define STREAM_HOOKS_H

#include "qs_test_dirs.h"
#include "stream_scene.h"

#define HANDLES_MAX 200
#define BUDGET (64 << 20)

/* ---- an environment that does something at calls for block files ---- */

enum at_call { NOWHERE, AT_OPEN, AT_WRITE, AT_SYNC };

static struct {
    qs_env calls; /* those of the environment below */
    struct scene *scene;
    enum at_call at;
    uint32_t passes; /* calls that go well before */
    /* QS_OK: the call goes on */
    qs_status (*act)(struct scene *scene);
    bool has_acted;
    const void *handles[HANDLES_MAX];
    uint32_t open, most_open;
} hook;

static inline bool is_block_file(const void *handle)
{
    for (uint32_t i = 0; i < HANDLES_MAX; i++) {
        if (handle != NULL && hook.handles[i] == handle) {
            return true;
        }
    }
    return false;
}

static inline qs_status act(enum at_call at, qs_error *error)
{
    qs_status status = QS_OK;

    if (hook.at == at && hook.passes > 0) {
        hook.passes--;
    } else if (hook.at == at) {
        hook.at = NOWHERE;
        hook.has_acted = true;
        status = hook.act(hook.scene);
    }
    if (status != QS_OK && error != NULL) {
        *error = (qs_error){.status = status, .text = "planted"};
    }
    return status;
}

static inline qs_status hooked_open(qs_env *env, qs_dir *dir, const char *name, uint32_t flags,
                                    qs_file **file_out, qs_error *error)
{
    bool is_block = strstr(name, ".str") != NULL;
    qs_status status = QS_OK;

    if (is_block && (flags & QS_OPEN_WRITE) != 0) {
        status = act(AT_OPEN, error);
    }
    if (status == QS_OK) {
        status = hook.calls.open(env, dir, name, flags, file_out, error);
    }
    for (uint32_t i = 0; status == QS_OK && is_block; i++) {
        QS_CHECK(i < HANDLES_MAX);
        if (hook.handles[i] == NULL) {
            hook.handles[i] = *file_out;
            hook.open++;
            hook.most_open = hook.open > hook.most_open ? hook.open : hook.most_open;
            break;
        }
    }
    return status;
}

static inline void hooked_close(qs_env *env, qs_file *file)
{
    for (uint32_t i = 0; i < HANDLES_MAX; i++) {
        if (file != NULL && hook.handles[i] == file) {
            hook.handles[i] = NULL;
            hook.open--;
        }
    }
    hook.calls.close(env, file);
}

static inline qs_status hooked_write(qs_env *env, qs_file *file, const qs_part *parts,
                                     size_t part_count, uint64_t offset, size_t *written_out,
                                     qs_error *error)
{
    qs_status status = is_block_file(file) ? act(AT_WRITE, error) : QS_OK;

    return status == QS_OK
               ? hook.calls.write(env, file, parts, part_count, offset, written_out, error)
               : status;
}

static inline qs_status hooked_sync(qs_env *env, qs_file *file, qs_error *error)
{
    qs_status status = is_block_file(file) ? act(AT_SYNC, error) : QS_OK;

    return status == QS_OK ? hook.calls.sync(env, file, error) : status;
}

static inline void begin(struct scene *scene, qs_env *disk)
{
    memset(&hook, 0, sizeof hook);
    start_on(scene, disk, BUDGET);
    hook.calls = scene->env.env;
    hook.scene = scene;
    die(scene);
    scene->env.env.open = hooked_open;
    scene->env.env.close = hooked_close;
    scene->env.env.write = hooked_write;
    scene->env.env.sync = hooked_sync;
    scene->options.embed_below = 1 << 20;
    scene->options.journal_file_bytes = 512 << 10; /* a batch is one record */
    open_store(scene);
    declare(scene);
    QS_CHECK_OK(qs_store_sync(scene->store, QS_ERROR));
}

QS_TEST_FIXTURE(run_hooked, struct scene, begin(&fixture, qsi_env_mem_create(1)), stop(&fixture))
#define HOOKED_TEST(name) QS_TEST_BY(run_hooked, name, (struct scene * scene))

static inline void plant(enum at_call at, uint32_t passes, qs_status (*what)(struct scene *scene))
{
    hook.passes = passes;
    hook.act = what;
    hook.has_acted = false;
    hook.at = at;
}

static inline qs_status fail_eio(struct scene *scene)
{
    (void)scene;
    return QS_EIO;
}

static inline qs_status fail_enospc(struct scene *scene)
{
    (void)scene;
    return QS_ENOSPC;
}

static inline qs_status kill_process(struct scene *scene)
{
    scene->env.is_dead = true;
    return QS_EIO;
}

/* ---- batches ---- */

static inline qs_status publish_rows(struct scene *scene, const char *stream, uint64_t first_id,
                                     uint32_t rows)
{
    struct qs_test_batch batch;
    qs_receipt receipt;
    qs_status status;
    qs_batch made;

    qs_test_batch_init(&batch);
    for (uint32_t i = 0; i < rows; i++) {
        crash_body_fill(qs_test_batch_add(&batch, stream, ROW_BYTES), first_id + i, ROW_BYTES);
    }
    made = qs_test_batch_finish(&batch);
    status = qs_channel_publish_batch(scene->channel, &made, &receipt, QS_ERROR);
    qs_test_batch_fini(&batch);
    return status;
}

static uint64_t direct_bytes(struct scene *scene)
{
    uint64_t bytes;

    qsi_mutex_lock(&scene->store->mutex);
    bytes = scene->store->checkpoint.direct_bytes;
    qsi_mutex_unlock(&scene->store->mutex);
    return bytes;
}

static inline bool has_failed(struct scene *scene)
{
    bool failed;

    qsi_mutex_lock(&scene->store->mutex);
    failed = scene->store->failed;
    qsi_mutex_unlock(&scene->store->mutex);
    return failed;
}

static uint32_t file_count(struct scene *scene)
{
    return qs_test_count_files(scene->mem, CRASH_PATH, "streams", ".str");
}

static uint64_t file_bytes(struct scene *scene, const char *name)
{
    qs_dir *streams = qs_test_open_dir(scene->mem, CRASH_PATH, "streams");
    uint64_t bytes = qs_test_file_bytes(scene->mem, streams, name);

    scene->mem->dir_close(scene->mem, streams);
    return bytes;
}

static inline void reopen(struct scene *scene)
{
    die(scene);
    open_store(scene);
}

static inline void check_all(struct scene *scene)
{
    QS_CHECK_OK(qs_store_sync(scene->store, QS_ERROR)); /* readers get what is durable */
    check_rows(scene);
}

/* The power fails; what was not synced is gone. */
static inline void cut(struct scene *scene, qs_env *sim)
{
    die(scene);
    scene->mem = qsi_env_sim_cut(sim, QSI_CUT_DROP_ALL, 1);
    scene->env.inner = scene->mem;
    qsi_env_sim_destroy(sim);
    open_store(scene);
}

#endif
