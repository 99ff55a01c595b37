/* A store with a stream of rows that all differ, for tests that tell a story. */
#ifndef STREAM_SCENE_H
#define STREAM_SCENE_H

#include "crash_log.h"
#include "crash_work.h"
#include "qs_test_calls.h"
#include "qs_test_fields.h"

#define ROWS 60
#define ROW_BYTES 2000

struct scene {
    qs_env *mem;
    struct crash_env env;
    qs_options options;
    qs_store *store;
    qs_channel *channel;
};

static inline void open_store(struct scene *scene)
{
    QS_CHECK_OK(
        qs_store_open(&scene->store, CRASH_PATH, &scene->options, &scene->env.env, QS_ERROR));
    QS_CHECK_OK(qs_channel_open(&scene->channel, scene->store, QS_ERROR));
}

/* Bodies of one message are in the message store. */
static inline void start_on(struct scene *scene, qs_env *mem, uint64_t budget)
{
    memset(scene, 0, sizeof *scene);
    scene->mem = mem;
    crash_env_init(&scene->env, scene->mem, CRASH_NO_BUG);
    scene->options = crash_options();
    scene->options.embed_below = 100;
    scene->options.memory_budget = budget;
    scene->options.checkpoint_bytes = 0;
    open_store(scene);
}

static inline void declare(struct scene *scene)
{
    qs_test_declare_with(scene->channel, "s", QS_DURABLE, "x-queue-type=stream");
}

static inline void publish_one(struct scene *scene, const char *exchange, uint64_t id)
{
    uint8_t body[ROW_BYTES];

    crash_body_fill(body, id, sizeof body);
    QS_CHECK_OK(qs_test_publish(scene->channel, exchange, "s", PERSISTENT,
                                (qs_slice){body, sizeof body}, 0));
}

static inline void publish(struct scene *scene)
{
    for (uint64_t id = 0; id < ROWS; id++) {
        publish_one(scene, "", id);
    }
    QS_CHECK_OK(qs_store_sync(scene->store, QS_ERROR));
}

/* The process is killed. */
static inline void die(struct scene *scene)
{
    scene->env.is_dead = true;
    qs_channel_close(scene->channel);
    (void)qs_store_close(scene->store, NULL);
    scene->env.is_dead = false;
}

static inline void check_rows(struct scene *scene)
{
    const qs_stream_read read = {.start = {.at = QS_STREAM_FIRST},
                                 .columns = QS_STREAM_COLUMN_BODY};
    struct ArrowSchema schema;
    struct ArrowArray array;
    qs_stream_reader *reader;
    uint64_t count = 0;

    QS_CHECK_OK(qs_stream_reader_open(&reader, scene->store, text("s"), &read, QS_ERROR));
    while (qs_stream_reader_next(reader, 100, UINT64_MAX, 0, &schema, &array, QS_ERROR) == QS_OK) {
        const int32_t *ends = array.children[1]->buffers[1];
        for (int64_t i = 0; i < array.length; i++, count++) {
            qs_slice body = {(const char *)array.children[1]->buffers[2] + ends[i],
                             (size_t)(ends[i + 1] - ends[i])};
            QS_CHECK(crash_body_is_right(body, count, ROW_BYTES));
        }
        array.release(&array);
        schema.release(&schema);
    }
    qs_stream_reader_close(reader);
    QS_CHECK(count == ROWS);
}

static inline void stop(struct scene *scene)
{
    qs_channel_close(scene->channel);
    QS_CHECK_OK(qs_store_close(scene->store, QS_ERROR));
    qsi_env_mem_destroy(scene->mem);
}

#endif
