/* Faults of streams that the crash laboratory found, each named after its symptom, and one that
 * was suspected. */
#include "pager.h"
#include "qs_test_calls.h"
#include "stream_scene.h"

/* More bodies than memory holds. */
static void start(struct scene *scene)
{
    start_on(scene, qsi_env_mem_create(1), 64 << 10);
}

QS_TEST_FIXTURE(run_scene, struct scene, start(&fixture), stop(&fixture))
#define SCENE_TEST(name) QS_TEST_BY(run_scene, name, (struct scene * scene))

/* Recovery with little memory flushed the stream, and removed the message files, whose bodies the
 * blocks had now; but the blocks counted only with the next checkpoint, and the journal, which the
 * next recovery read again, named the bodies. */
SCENE_TEST(test_store_was_refused_after_the_second_of_two_crashes)
{
    declare(scene);
    publish(scene);
    die(scene);
    for (int i = 0; i < 3; i++) {
        open_store(scene);
        check_rows(scene);
        die(scene);
    }
    open_store(scene);
    QS_CHECK_OK(qs_store_checkpoint(scene->store, QS_ERROR)); /* and now the bodies may go */
    check_rows(scene);
    die(scene);
    open_store(scene);
    check_rows(scene);
}

/* ---- a stream that goes while it is flushed ---- */

static struct {
    qs_status (*read)(qs_env *env, qs_file *file, void *data, size_t bytes, uint64_t offset,
                      size_t *read_out, qs_error *error);
    struct scene *scene; /* NULL: nothing happens */
} hook;

/* In the middle of the flush the stream goes, and compaction leaves its bodies out. */
static qs_status read_and_delete(qs_env *env, qs_file *file, void *data, size_t bytes,
                                 uint64_t offset, size_t *read_out, qs_error *error)
{
    struct scene *scene = hook.scene;
    qs_status status = hook.read(env, file, data, bytes, offset, read_out, error);

    if (scene != NULL) {
        hook.scene = NULL;
        QS_CHECK_OK(qs_test_delete(scene->channel, "s", 0));
        QS_CHECK(crash_compact(scene->store, CRASH_COMPACTIONS_MAX, &status));
        QS_CHECK_OK(status);
    }
    return status;
}

static qs_status flush(struct scene *scene)
{
    struct qs_store *store = scene->store;
    struct qsi_map_cursor walk;
    qs_status status = QS_EEMPTY;

    qsi_mutex_lock(&store->mutex);
    walk = qsi_map_begin(&store->queues_by_id);
    while (qsi_map_next(&store->queues_by_id, &walk)) {
        struct qsi_store_queue *queue = walk.value;
        if (queue->stream != NULL) {
            status = qsi_pager_flush(store, queue, QS_ERROR);
            break;
        }
    }
    qsi_mutex_unlock(&store->mutex);
    return status;
}

/* The bodies that the flush reads are the stream's no more: that is no damage, the files that it
 * makes go like the stream's others, and the name is free. */
SCENE_TEST(test_stream_goes_in_its_flush_without_a_trace)
{
    struct qs_test_fields none = {.used = 0};

    scene->options.memory_budget = 64 << 20;
    die(scene);
    open_store(scene);
    declare(scene);
    qs_test_declare(scene->channel, "q", QS_DURABLE, &none);
    QS_CHECK_OK(qs_test_declare_exchange(scene->channel, "both", "fanout", QS_DURABLE));
    for (int i = 0; i < 2; i++) {
        QS_CHECK_OK(qs_test_bind(scene->channel, i == 0 ? "q" : "s", "both", "", 0));
    }
    publish(scene);
    publish_one(scene, "both", ROWS);
    QS_CHECK_OK(qs_store_sync(scene->store, QS_ERROR));
    die(scene);
    hook.read = scene->env.env.read;
    scene->env.env.read = read_and_delete;
    open_store(scene);
    hook.scene = scene;
    QS_CHECK_OK(flush(scene));
    QS_CHECK(hook.scene == NULL);
    qsi_mutex_lock(&scene->store->mutex);
    QS_CHECK(scene->store->paging.unpaged.status == QS_OK && !scene->store->failed);
    qsi_mutex_unlock(&scene->store->mutex);
    scene->env.env.read = hook.read;
    QS_CHECK(scene->store->streams.dead.bytes > 0); /* what the flush made */
    QS_CHECK_OK(qs_store_checkpoint(scene->store, QS_ERROR));
    QS_CHECK(scene->store->streams.dead.bytes == 0);
    die(scene);
    open_store(scene);
    declare(scene);
    publish(scene);
    check_rows(scene);
}
