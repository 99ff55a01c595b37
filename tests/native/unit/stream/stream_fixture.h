/* What the tests of streams share: a stream in an environment, and its flush in one call. */
#ifndef STREAM_FIXTURE_H
#define STREAM_FIXTURE_H

#include "alloc.h"
#include "block_cache.h"
#include "check.h"
#include "env_test.h"
#include "qs_test_alloc.h"
#include "qs_test_dirs.h"
#include "qs_test_records.h"
#include "record.h"
#include "splitmix.h"
#include "stream.h"

#define ID 3u

static const uint8_t test_uuid[16] = "a store's uuid.";
static const struct qs_test_records kind = {.body_bytes_max = 1500, .key_count = 6};
#define FLAGS QS_TEST_PER_ROW

struct world {
    qs_env *env;
    qs_dir *dir;
    struct qsi_stream_shared shared;
    struct qsi_stream stream;
};

static inline void start(struct world *world, qs_env *env, const struct qsi_stream_limits *limits)
{
    struct qsi_block_cache_options options = {.bytes_max = 3000000, .handle_max = 2};

    memset(world, 0, sizeof *world);
    world->env = env;
    world->dir = qs_test_make_root(env, "streams");
    qsi_stream_shared_init(&world->shared);
    QS_CHECK_OK(qsi_block_dir_open(&world->shared.blocks, env, world->dir, test_uuid, "streams",
                                   "str", QS_ERROR));
    QS_CHECK_OK(
        qsi_block_cache_create(&world->shared.cache, world->shared.blocks, &options, QS_ERROR));
    QS_CHECK_OK(qsi_stream_init(&world->stream, &world->shared, ID, limits));
}

static inline void stop(struct world *world)
{
    qsi_container_fini(&world->stream.container);
    qsi_block_cache_destroy(world->shared.cache);
    qsi_block_dir_close(world->shared.blocks);
    qsi_stream_shared_fini(&world->shared);
    world->env->dir_close(world->env, world->dir);
}

static inline qs_status flush(struct world *world, uint64_t bytes_max, qs_error *error)
{
    struct qsi_job *job;
    qs_status status = qsi_container_begin_flush(&world->stream.container, bytes_max, &job);

    if (status != QS_OK) {
        return status == QS_EEMPTY ? QS_OK : status;
    }
    status = qsi_job_run(job, error);
    qsi_job_end(job, status == QS_OK);
    return status;
}

#endif
