/* The environment that behaves like a broken engine. */
#include "crash_env.h"

static void crash_note_handle(qs_env *env, const void *handle, enum crash_thing thing)
{
    struct crash_env *crash = env->data;

    for (int i = 0; thing != CRASH_OTHER && i < CRASH_HANDLES_MAX; i++) {
        if (crash->handles[i].handle == NULL) {
            crash->handles[i].handle = handle;
            crash->handles[i].thing = thing;
            return;
        }
    }
}

static void crash_forget_handle(qs_env *env, const void *handle)
{
    struct crash_env *crash = env->data;

    for (int i = 0; crash->bug != CRASH_NO_BUG && i < CRASH_HANDLES_MAX; i++) {
        if (crash->handles[i].handle == handle) {
            crash->handles[i].handle = NULL;
        }
    }
}

static enum crash_thing crash_thing_of(qs_env *env, const void *handle)
{
    const struct crash_env *crash = env->data;

    for (int i = 0; i < CRASH_HANDLES_MAX; i++) {
        if (crash->handles[i].handle == handle) {
            return crash->handles[i].thing;
        }
    }
    return CRASH_OTHER;
}

static bool crash_has_suffix(const char *name, const char *suffix)
{
    size_t bytes = strlen(name), suffix_bytes = strlen(suffix);

    return bytes >= suffix_bytes && strcmp(name + bytes - suffix_bytes, suffix) == 0;
}

static enum crash_thing crash_thing_named(const char *name)
{
    return crash_has_suffix(name, ".seg")    ? CRASH_SEGMENT
           : crash_has_suffix(name, ".msg")  ? CRASH_MESSAGE_FILE
           : crash_has_suffix(name, ".ckp")  ? CRASH_CHECKPOINT
           : crash_has_suffix(name, ".str")  ? CRASH_STREAM_FILE
           : strcmp(name, "streams") == 0    ? CRASH_STREAM_DIR
           : strcmp(name, "index") == 0      ? CRASH_INDEX_DIR
           : strcmp(name, "checkpoint") == 0 ? CRASH_CHECKPOINT_DIR
                                             : CRASH_OTHER;
}

/* Does the planted bug leave out this sync? */
static bool crash_skips_sync(qs_env *env, const void *handle)
{
    switch (((struct crash_env *)env->data)->bug) {
    case CRASH_NO_SEGMENT_SYNC:
        return crash_thing_of(env, handle) == CRASH_SEGMENT;
    case CRASH_NO_INDEX_DIR_SYNC:
        return crash_thing_of(env, handle) == CRASH_INDEX_DIR;
    case CRASH_NO_CHECKPOINT_SYNC:
        return crash_thing_of(env, handle) == CRASH_CHECKPOINT;
    case CRASH_NO_CHECKPOINT_DIR_SYNC:
        return crash_thing_of(env, handle) == CRASH_CHECKPOINT_DIR;
    case CRASH_NO_STREAM_SYNC:
        return crash_thing_of(env, handle) == CRASH_STREAM_FILE;
    case CRASH_NO_STREAM_DIR_SYNC:
        return crash_thing_of(env, handle) == CRASH_STREAM_DIR;
    case CRASH_NO_MESSAGE_SYNC:
        return crash_thing_of(env, handle) == CRASH_MESSAGE_FILE;
    default:
        return false;
    }
}

static qs_env *crash_inner(qs_env *env)
{
    return ((struct crash_env *)env->data)->inner;
}

static enum crash_bug crash_bug_of(qs_env *env)
{
    return ((struct crash_env *)env->data)->bug;
}

static qs_status crash_fail(qs_error *error, const char *why)
{
    if (error != NULL) {
        memset(error, 0, sizeof *error);
        error->status = QS_EIO;
        strcpy(error->text, why);
    }
    return QS_EIO;
}

/* QS_EIO in a dead process, which reports errors to nobody. */
static qs_status crash_alive(qs_env *env, qs_error *error)
{
    return ((struct crash_env *)env->data)->is_dead ? crash_fail(error, "the process is dead")
                                                    : QS_OK;
}

#define CRASH_ALIVE(env, error)                 \
    do {                                        \
        if (crash_alive(env, error) != QS_OK) { \
            return QS_EIO;                      \
        }                                       \
    } while (0)

/* -- directories and names -------------------------------------------------------------------- */

static qs_status crash_dir_open_root(qs_env *env, const char *path, bool create, qs_dir **dir_out,
                                     bool *created_out, qs_error *error)
{
    CRASH_ALIVE(env, error);
    return crash_inner(env)->dir_open_root(crash_inner(env), path, create, dir_out, created_out,
                                           error);
}

static qs_status crash_dir_sync_parent(qs_env *env, qs_dir *dir, qs_error *error)
{
    CRASH_ALIVE(env, error);
    if (crash_bug_of(env) == CRASH_NO_DIR_SYNC) {
        return QS_OK;
    }
    return crash_inner(env)->dir_sync_parent(crash_inner(env), dir, error);
}

static qs_status crash_dir_open(qs_env *env, qs_dir *parent, const char *name, bool create,
                                qs_dir **dir_out, bool *created_out, qs_error *error)
{
    qs_status status;

    CRASH_ALIVE(env, error);
    status = crash_inner(env)->dir_open(crash_inner(env), parent, name, create, dir_out,
                                        created_out, error);
    if (status == QS_OK && crash_bug_of(env) != CRASH_NO_BUG) {
        crash_note_handle(env, *dir_out, crash_thing_named(name));
    }
    return status;
}

static qs_status crash_dir_sync(qs_env *env, qs_dir *dir, qs_error *error)
{
    CRASH_ALIVE(env, error);
    if (crash_bug_of(env) == CRASH_NO_DIR_SYNC || crash_skips_sync(env, dir)) {
        return QS_OK;
    }
    return crash_inner(env)->dir_sync(crash_inner(env), dir, error);
}

static qs_status crash_dir_list(qs_env *env, qs_dir *dir, qs_name_visitor *visit, void *context,
                                qs_error *error)
{
    return crash_inner(env)->dir_list(crash_inner(env), dir, visit, context, error);
}

static void crash_dir_close(qs_env *env, qs_dir *dir)
{
    crash_forget_handle(env, dir);
    crash_inner(env)->dir_close(crash_inner(env), dir);
}

static qs_status crash_rename(qs_env *env, qs_dir *dir, const char *from, const char *to,
                              qs_error *error)
{
    CRASH_ALIVE(env, error);
    return crash_inner(env)->rename(crash_inner(env), dir, from, to, error);
}

static qs_status crash_remove(qs_env *env, qs_dir *dir, const char *name, qs_error *error)
{
    CRASH_ALIVE(env, error);
    return crash_inner(env)->remove(crash_inner(env), dir, name, error);
}

static qs_status crash_link(qs_env *env, qs_dir *from_dir, const char *from, qs_dir *to_dir,
                            const char *to, qs_error *error)
{
    CRASH_ALIVE(env, error);
    return crash_inner(env)->link(crash_inner(env), from_dir, from, to_dir, to, error);
}

/* -- files ------------------------------------------------------------------------------------ */

static bool crash_cannot_read(struct crash_env *crash, const char *name, uint32_t flags)
{
    enum crash_thing thing = crash_thing_named(name);

    return crash->unread_percent > 0 && (flags & QS_OPEN_WRITE) != 0 &&
           (flags & QS_OPEN_CREATE_NEW) == 0 &&
           (thing == CRASH_SEGMENT || thing == CRASH_STREAM_FILE) &&
           qsi_splitmix_below(&crash->unread_random, 100) < crash->unread_percent;
}

static qs_status crash_open(qs_env *env, qs_dir *dir, const char *name, uint32_t flags,
                            qs_file **file_out, qs_error *error)
{
    qs_status status;

    CRASH_ALIVE(env, error);
    if (crash_cannot_read(env->data, name, flags)) {
        return crash_fail(error, "the disk cannot be read");
    }
    status = crash_inner(env)->open(crash_inner(env), dir, name, flags, file_out, error);
    if (status == QS_OK && crash_bug_of(env) != CRASH_NO_BUG) {
        crash_note_handle(env, *file_out, crash_thing_named(name));
    }
    return status;
}

static void crash_close(qs_env *env, qs_file *file)
{
    crash_forget_handle(env, file);
    crash_inner(env)->close(crash_inner(env), file);
}

static qs_status crash_read(qs_env *env, qs_file *file, void *data, size_t bytes, uint64_t offset,
                            size_t *read_out, qs_error *error)
{
    return crash_inner(env)->read(crash_inner(env), file, data, bytes, offset, read_out, error);
}

static qs_status crash_write(qs_env *env, qs_file *file, const qs_part *parts, size_t part_count,
                             uint64_t offset, size_t *written_out, qs_error *error)
{
    CRASH_ALIVE(env, error);
    return crash_inner(env)->write(crash_inner(env), file, parts, part_count, offset, written_out,
                                   error);
}

static qs_status crash_sync(qs_env *env, qs_file *file, qs_error *error)
{
    qs_status status;

    CRASH_ALIVE(env, error);
    ((struct crash_env *)env->data)->syncs_begun++;
    if (crash_bug_of(env) == CRASH_NO_FILE_SYNC || crash_skips_sync(env, file)) {
        return QS_OK;
    }
    status = crash_inner(env)->sync(crash_inner(env), file, error);
    if (status != QS_OK && crash_bug_of(env) == CRASH_STREAM_SYNC_SWALLOWED &&
        crash_thing_of(env, file) == CRASH_STREAM_FILE) {
        return QS_OK;
    }
    if (status != QS_OK && crash_bug_of(env) == CRASH_RETRIED_SYNC) {
        status = crash_inner(env)->sync(crash_inner(env), file, error);
    }
    return status;
}

static qs_status crash_size(qs_env *env, qs_file *file, uint64_t *bytes_out, qs_error *error)
{
    return crash_inner(env)->size(crash_inner(env), file, bytes_out, error);
}

static qs_status crash_allocate(qs_env *env, qs_file *file, uint64_t bytes, qs_error *error)
{
    CRASH_ALIVE(env, error);
    return crash_inner(env)->allocate(crash_inner(env), file, bytes, error);
}

static qs_status crash_truncate(qs_env *env, qs_file *file, uint64_t bytes, qs_error *error)
{
    CRASH_ALIVE(env, error);
    return crash_inner(env)->truncate(crash_inner(env), file, bytes, error);
}

static qs_status crash_lock(qs_env *env, qs_dir *dir, const char *name, qs_file **lock_out,
                            uint64_t *pid_out, qs_error *error)
{
    CRASH_ALIVE(env, error);
    return crash_inner(env)->lock(crash_inner(env), dir, name, lock_out, pid_out, error);
}

static qs_status crash_check_linked(qs_env *env, qs_file *file, qs_error *error)
{
    CRASH_ALIVE(env, error);
    return crash_inner(env)->check_linked(crash_inner(env), file, error);
}

static qs_status crash_lock_shared(qs_env *env, qs_dir *dir, const char *name, qs_file **lock_out,
                                   uint64_t *pid_out, qs_error *error)
{
    CRASH_ALIVE(env, error);
    return crash_inner(env)->lock_shared(crash_inner(env), dir, name, lock_out, pid_out, error);
}

/* -- clock and randomness --------------------------------------------------------------------- */

static uint64_t crash_monotonic_ns(qs_env *env)
{
    return crash_inner(env)->monotonic_ns(crash_inner(env));
}

static uint64_t crash_wall_us(qs_env *env)
{
    return crash_inner(env)->wall_us(crash_inner(env)) +
           ((struct crash_env *)env->data)->wall_shift_us;
}

static qs_status crash_random(qs_env *env, void *data, size_t bytes, qs_error *error)
{
    if (crash_bug_of(env) == CRASH_CONSTANT_RANDOM) {
        memset(data, 7, bytes);
        return QS_OK;
    }
    return crash_inner(env)->random(crash_inner(env), data, bytes, error);
}

static qs_status crash_space(qs_env *env, qs_dir *dir, uint64_t *total_out, uint64_t *free_out,
                             qs_error *error)
{
    return crash_inner(env)->space(crash_inner(env), dir, total_out, free_out, error);
}

void crash_env_init(struct crash_env *crash, qs_env *inner, enum crash_bug bug)
{
    *crash = (struct crash_env){
        .env =
            {
                .version = QS_ENV_VERSION,
                .data = crash,
                .dir_open_root = crash_dir_open_root,
                .dir_sync_parent = crash_dir_sync_parent,
                .dir_open = crash_dir_open,
                .dir_sync = crash_dir_sync,
                .dir_list = crash_dir_list,
                .dir_close = crash_dir_close,
                .rename = crash_rename,
                .remove = crash_remove,
                .open = crash_open,
                .close = crash_close,
                .read = crash_read,
                .write = crash_write,
                .sync = crash_sync,
                .size = crash_size,
                .allocate = crash_allocate,
                .truncate = crash_truncate,
                .space = crash_space,
                .lock = crash_lock,
                .lock_shared = crash_lock_shared,
                .check_linked = crash_check_linked,
                .link = crash_link,
                .monotonic_ns = crash_monotonic_ns,
                .wall_us = crash_wall_us,
                .random = crash_random,
            },
        .inner = inner,
        .bug = bug,
    };
}
