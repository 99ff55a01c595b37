/* An environment that forgets: it leaves out one of the writes and syncs on which telling damage
 * from a crash depends, so that a test sees that it is missed. */
#ifndef FORGETFUL_ENV_H
#define FORGETFUL_ENV_H

#include "block.h"
#include "journal_fixture.h"

#define RECORD_BYTES 4000 /* a page each, in a commit of its own */

enum bug {
    NO_BUG,
    NO_END_BLOCK,        /* a file is left without a word */
    NO_HEADER_SYNC,      /* a file is named before its header is durable */
    NO_END_BLOCK_SYNC,   /* blocks are confirmed behind an end block that is not durable */
    MARK_BEFORE_DURABLE, /* a mark vouches for what is written along with it */
};

struct forgetful {
    qs_env env;
    qs_env *inner;
    enum bug bug;
    const qs_file *skipped; /* whose next sync is left out */
};

static inline bool is_header(const qs_part *parts)
{
    return parts[0].bytes >= 8 && memcmp(parts[0].data, "QSJOURN1", 8) == 0;
}

static inline bool is_end_block(const qs_part *parts)
{
    return parts[0].bytes >= QSI_BLOCK_HEADER_BYTES && memcmp(parts[0].data, "QSJB", 4) == 0 &&
           (qsi_get_u32((const uint8_t *)parts[0].data + 4) & QSI_BLOCK_LAST) != 0;
}

static inline qs_status forgetful_write(qs_env *env, qs_file *file, const qs_part *parts,
                                        size_t part_count, uint64_t offset, size_t *written_out,
                                        qs_error *error)
{
    struct forgetful *forgetful = env->data;
    qs_env *inner = forgetful->inner;
    qs_part changed[2];

    if (forgetful->bug == NO_END_BLOCK && is_end_block(parts)) {
        *written_out = parts[0].bytes + parts[1].bytes;
        return QS_OK;
    }
    if ((forgetful->bug == NO_HEADER_SYNC && is_header(parts)) ||
        (forgetful->bug == NO_END_BLOCK_SYNC && is_end_block(parts))) {
        forgetful->skipped = file;
    }
    if (forgetful->bug == MARK_BEFORE_DURABLE && part_count == 2 &&
        parts[0].bytes == QSI_JOURNAL_MARK_BYTES) {
        static uint8_t mark[QSI_JOURNAL_MARK_BYTES];

        qsi_journal_mark_encode(mark, qsi_get_u64((const uint8_t *)parts[0].data + 8),
                                qsi_get_u64((const uint8_t *)parts[0].data + 16) + RECORD_BYTES);
        changed[0] = (qs_part){mark, sizeof mark};
        changed[1] = parts[1];
        parts = changed;
    }
    return inner->write(inner, file, parts, part_count, offset, written_out, error);
}

static inline qs_status forgetful_sync(qs_env *env, qs_file *file, qs_error *error)
{
    struct forgetful *forgetful = env->data;

    if (forgetful->skipped == file) {
        forgetful->skipped = NULL;
        return QS_OK;
    }
    return forgetful->inner->sync(forgetful->inner, file, error);
}

static inline qs_status forgetful_open_root(qs_env *env, const char *path, bool create,
                                            qs_dir **dir_out, bool *created_out, qs_error *error)
{
    qs_env *inner = ((struct forgetful *)env->data)->inner;

    return inner->dir_open_root(inner, path, create, dir_out, created_out, error);
}

#define INNER(env) (((struct forgetful *)(env)->data)->inner)

static inline qs_status forgetful_dir_sync_parent(qs_env *env, qs_dir *dir, qs_error *error)
{
    return INNER(env)->dir_sync_parent(INNER(env), dir, error);
}

static inline qs_status forgetful_dir_open(qs_env *env, qs_dir *parent, const char *name,
                                           bool create, qs_dir **dir_out, bool *created_out,
                                           qs_error *error)
{
    return INNER(env)->dir_open(INNER(env), parent, name, create, dir_out, created_out, error);
}

static inline qs_status forgetful_dir_sync(qs_env *env, qs_dir *dir, qs_error *error)
{
    return INNER(env)->dir_sync(INNER(env), dir, error);
}

static inline qs_status forgetful_dir_list(qs_env *env, qs_dir *dir, qs_name_visitor *visit,
                                           void *context, qs_error *error)
{
    return INNER(env)->dir_list(INNER(env), dir, visit, context, error);
}

static inline void forgetful_dir_close(qs_env *env, qs_dir *dir)
{
    INNER(env)->dir_close(INNER(env), dir);
}

static inline qs_status forgetful_rename(qs_env *env, qs_dir *dir, const char *from, const char *to,
                                         qs_error *error)
{
    return INNER(env)->rename(INNER(env), dir, from, to, error);
}

static inline qs_status forgetful_remove(qs_env *env, qs_dir *dir, const char *name,
                                         qs_error *error)
{
    return INNER(env)->remove(INNER(env), dir, name, error);
}

static inline qs_status forgetful_open(qs_env *env, qs_dir *dir, const char *name, uint32_t flags,
                                       qs_file **file_out, qs_error *error)
{
    return INNER(env)->open(INNER(env), dir, name, flags, file_out, error);
}

static inline void forgetful_close(qs_env *env, qs_file *file)
{
    INNER(env)->close(INNER(env), file);
}

static inline qs_status forgetful_read(qs_env *env, qs_file *file, void *data, size_t bytes,
                                       uint64_t offset, size_t *read_out, qs_error *error)
{
    return INNER(env)->read(INNER(env), file, data, bytes, offset, read_out, error);
}

static inline qs_status forgetful_size(qs_env *env, qs_file *file, uint64_t *bytes_out,
                                       qs_error *error)
{
    return INNER(env)->size(INNER(env), file, bytes_out, error);
}

static inline qs_status forgetful_allocate(qs_env *env, qs_file *file, uint64_t bytes,
                                           qs_error *error)
{
    return INNER(env)->allocate(INNER(env), file, bytes, error);
}

static inline qs_status forgetful_truncate(qs_env *env, qs_file *file, uint64_t bytes,
                                           qs_error *error)
{
    return INNER(env)->truncate(INNER(env), file, bytes, error);
}

static inline uint64_t forgetful_monotonic_ns(qs_env *env)
{
    qsi_env_sim_advance(INNER(env), 4000000); /* some commits get a mark */
    return INNER(env)->monotonic_ns(INNER(env));
}

static inline uint64_t forgetful_wall_us(qs_env *env)
{
    return INNER(env)->wall_us(INNER(env));
}

static inline qs_status forgetful_random(qs_env *env, void *data, size_t bytes, qs_error *error)
{
    return INNER(env)->random(INNER(env), data, bytes, error);
}

static inline void forgetful_init(struct forgetful *forgetful, qs_env *inner, enum bug bug)
{
    *forgetful = (struct forgetful){
        .env =
            {
                .version = QS_ENV_VERSION,
                .data = forgetful,
                .dir_open_root = forgetful_open_root,
                .dir_sync_parent = forgetful_dir_sync_parent,
                .dir_open = forgetful_dir_open,
                .dir_sync = forgetful_dir_sync,
                .dir_list = forgetful_dir_list,
                .dir_close = forgetful_dir_close,
                .rename = forgetful_rename,
                .remove = forgetful_remove,
                .open = forgetful_open,
                .close = forgetful_close,
                .read = forgetful_read,
                .write = forgetful_write,
                .sync = forgetful_sync,
                .size = forgetful_size,
                .allocate = forgetful_allocate,
                .truncate = forgetful_truncate,
                .monotonic_ns = forgetful_monotonic_ns,
                .wall_us = forgetful_wall_us,
                .random = forgetful_random,
            },
        .inner = inner,
        .bug = bug,
    };
}

#endif
