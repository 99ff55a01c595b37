/* What the tests of block files share: a directory in an environment, and a file of blocks whose
 * rows are messages known by their offsets (qs_test_records.h). */
#ifndef BLOCK_FIXTURE_H
#define BLOCK_FIXTURE_H

#include "alloc.h"
#include "block_build.h"
#include "block_cache.h"
#include "block_format.h"
#include "block_read.h"
#include "block_write.h"
#include "check.h"
#include "env_test.h"
#include "qs_test_alloc.h"
#include "qs_test_dirs.h"
#include "qs_test_records.h"
#include "splitmix.h"

#define OWNER 7u

static const uint8_t test_uuid[16] = "a store's uuid.";
static const struct qs_test_records test_kind = {.body_bytes_max = 90, .key_count = 5};

struct fixture {
    qs_env *env;
    qs_dir *dir;
    struct qsi_block_dir *blocks;
};

static inline void start(struct fixture *fixture, qs_env *env)
{
    *fixture = (struct fixture){.env = env};
    fixture->dir = qs_test_make_root(env, "streams");
    QS_CHECK_OK(qsi_block_dir_open(&fixture->blocks, env, fixture->dir, test_uuid, "streams", "str",
                                   QS_ERROR));
}

static inline void stop(struct fixture *fixture)
{
    qsi_block_dir_close(fixture->blocks);
    fixture->env->dir_close(fixture->env, fixture->dir);
}

QS_TEST_FIXTURE(run_in_memory, struct fixture, start(&fixture, qsi_env_mem_create(1)),
                stop(&fixture);
                qsi_env_mem_destroy(fixture.env))
#define BLOCKS_TEST(name) QS_TEST_BY(run_in_memory, name, (struct fixture * fixture))

/* When message number was published: several share a time. */
static inline uint64_t test_time(uint64_t number)
{
    return 1000000 + number / 3 * 10;
}

/* A block of messages [first, first + count). */
static inline qs_status build(uint64_t first, uint32_t count, struct qsi_built_block *block,
                              qs_error *error)
{
    struct qsi_block_build_options options = {0};
    struct qsi_block_builder *builder = qsi_block_builder_create(&options);
    struct qsi_chunk *chunk = qs_test_record_chunk(&test_kind, QS_TEST_PER_ROW, (uint32_t)first,
                                                   count, OWNER, first, test_time(first));
    qs_status status = builder != NULL ? QS_OK : QS_ENOMEM;

    for (uint32_t row = 0; status == QS_OK && row < count; row++) {
        uint32_t taken;
        status = qsi_block_builder_add(builder, &(struct qsi_row_stretch){chunk->data, row, 1},
                                       test_time(first + row), &taken, error);
        QS_CHECK(status != QS_OK || taken == 1);
    }
    if (status == QS_OK) {
        status = qsi_block_builder_finish(builder, OWNER, first, block, error);
    }
    qsi_block_builder_destroy(builder);
    qsi_chunk_unref(chunk);
    return status;
}

static inline void check_view(const struct qsi_block_view *view, uint64_t first, uint32_t count)
{
    int64_t *times = malloc(count * sizeof *times);

    QS_CHECK(view->first_offset == first && view->rows == count && view->owner == OWNER);
    QS_CHECK(view->messages.row_count == count);
    QS_CHECK(((uintptr_t)view->messages.bodies & 63) == 0);
    qsi_block_view_times(view, 0, count, times);
    for (uint32_t row = 0; row < count; row++) {
        qs_test_check_row(&view->messages, row, &test_kind, QS_TEST_PER_ROW, (uint32_t)first,
                          (uint32_t)first + row);
        QS_CHECK((uint64_t)times[row] == test_time(first + row));
    }
    free(times);
}

#endif
