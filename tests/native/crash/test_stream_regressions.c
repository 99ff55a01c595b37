/* Faults of streams that the crash laboratory found, each named after its symptom, and one that
 * was suspected. */
#include "crash_env.h"
#include "crash_log.h"
#include "crash_work.h"
#include "env_test.h"
#include "pager.h"
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

static void open_store(struct scene *scene)
{
    QS_CHECK_OK(
        qs_store_open(&scene->store, CRASH_PATH, &scene->options, &scene->env.env, QS_ERROR));
    QS_CHECK_OK(qs_channel_open(&scene->channel, scene->store, QS_ERROR));
}

/* Bodies of the message store, more than memory holds. */
static void start(struct scene *scene)
{
    memset(scene, 0, sizeof *scene);
    scene->mem = qsi_env_mem_create(1);
    QS_CHECK(scene->mem != NULL);
    crash_env_init(&scene->env, scene->mem, CRASH_NO_BUG);
    scene->options = crash_options();
    scene->options.embed_below = 100;
    scene->options.memory_budget = 64 << 10;
    scene->options.checkpoint_bytes = 0;
    open_store(scene);
}

static void declare(struct scene *scene)
{
    struct qs_test_fields arguments = {.used = 0};
    qs_declare_ok ok;

    qs_test_put_text(&arguments, "x-queue-type", "stream");
    QS_CHECK_OK(qs_channel_queue_declare(scene->channel, crash_text("s"), QS_DURABLE,
                                         qs_test_fields_slice(&arguments), &ok, QS_ERROR));
}

static void publish_one(struct scene *scene, const char *exchange, uint64_t id)
{
    static const uint8_t persistent[] = {0x10, 0, 2};
    uint8_t body[ROW_BYTES];
    qs_receipt receipt;

    crash_body_fill(body, id, sizeof body);
    QS_CHECK_OK(qs_channel_publish(scene->channel, crash_text(exchange), crash_text("s"),
                                   (qs_slice){persistent, sizeof persistent},
                                   (qs_slice){body, sizeof body}, 0, &receipt, QS_ERROR));
}

static void publish(struct scene *scene)
{
    for (uint64_t id = 0; id < ROWS; id++) {
        publish_one(scene, "", id);
    }
    QS_CHECK_OK(qs_store_sync(scene->store, QS_ERROR));
}

/* The process is killed. */
static void die(struct scene *scene)
{
    scene->env.is_dead = true;
    qs_channel_close(scene->channel);
    (void)qs_store_close(scene->store, NULL);
    scene->env.is_dead = false;
}

static void check_rows(struct scene *scene)
{
    const qs_stream_read read = {.start = {.at = QS_STREAM_FIRST},
                                 .columns = QS_STREAM_COLUMN_BODY};
    struct ArrowSchema schema;
    struct ArrowArray array;
    qs_stream_reader *reader;
    uint64_t count = 0;

    QS_CHECK_OK(qs_stream_reader_open(&reader, scene->store, crash_text("s"), &read, QS_ERROR));
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

static void stop(struct scene *scene)
{
    qs_channel_close(scene->channel);
    QS_CHECK_OK(qs_store_close(scene->store, QS_ERROR));
    qsi_env_mem_destroy(scene->mem);
}

/* Recovery with little memory flushed the stream, and removed the message files, whose bodies the
 * blocks had now; but the blocks counted only with the next checkpoint, and the journal, which the
 * next recovery read again, named the bodies. */
static void test_store_was_refused_after_the_second_of_two_crashes(void)
{
    struct scene scene;

    start(&scene);
    declare(&scene);
    publish(&scene);
    die(&scene);
    for (int i = 0; i < 3; i++) {
        open_store(&scene);
        check_rows(&scene);
        die(&scene);
    }
    open_store(&scene);
    QS_CHECK_OK(qs_store_checkpoint(scene.store, QS_ERROR)); /* and now the bodies may go */
    check_rows(&scene);
    die(&scene);
    open_store(&scene);
    check_rows(&scene);
    stop(&scene);
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
        uint64_t count;
        hook.scene = NULL;
        QS_CHECK_OK(qs_channel_queue_delete(scene->channel, crash_text("s"), 0, &count, QS_ERROR));
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
        struct store_queue *queue = walk.value;
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
static void test_stream_goes_in_its_flush_without_a_trace(void)
{
    struct qs_test_fields none = {.used = 0};
    struct scene scene;
    qs_declare_ok ok;

    start(&scene);
    scene.options.memory_budget = 64 << 20;
    die(&scene);
    open_store(&scene);
    declare(&scene);
    QS_CHECK_OK(qs_channel_queue_declare(scene.channel, crash_text("q"), QS_DURABLE,
                                         qs_test_fields_slice(&none), &ok, QS_ERROR));
    QS_CHECK_OK(qs_channel_exchange_declare(scene.channel, crash_text("both"), crash_text("fanout"),
                                            QS_DURABLE, crash_text(""), QS_ERROR));
    for (int i = 0; i < 2; i++) {
        QS_CHECK_OK(qs_channel_queue_bind(scene.channel, crash_text(i == 0 ? "q" : "s"),
                                          crash_text("both"), crash_text(""), crash_text(""),
                                          QS_ERROR));
    }
    publish(&scene);
    publish_one(&scene, "both", ROWS);
    QS_CHECK_OK(qs_store_sync(scene.store, QS_ERROR));
    die(&scene);
    hook.read = scene.env.env.read;
    scene.env.env.read = read_and_delete;
    open_store(&scene);
    hook.scene = &scene;
    QS_CHECK_OK(flush(&scene));
    QS_CHECK(hook.scene == NULL);
    qsi_mutex_lock(&scene.store->mutex);
    QS_CHECK(scene.store->paging.unpaged.status == QS_OK && !scene.store->failed);
    qsi_mutex_unlock(&scene.store->mutex);
    scene.env.env.read = hook.read;
    QS_CHECK(scene.store->streams.dead.bytes > 0); /* what the flush made */
    QS_CHECK_OK(qs_store_checkpoint(scene.store, QS_ERROR));
    QS_CHECK(scene.store->streams.dead.bytes == 0);
    die(&scene);
    open_store(&scene);
    declare(&scene);
    publish(&scene);
    check_rows(&scene);
    stop(&scene);
}

int main(void)
{
    test_stream_goes_in_its_flush_without_a_trace();
    test_store_was_refused_after_the_second_of_two_crashes();
    return 0;
}
