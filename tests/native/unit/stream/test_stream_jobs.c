/* What a stream does with others: bodies in the message store, a file that cannot be added to,
 * blocks that somebody else wrote, deletion in the middle of a flush, and readers that go on while
 * a writer appends, flushes and trims. */
#include "block_build.h"
#include "block_write.h"
#include "envelope.h"
#include "lock.h"
#include "stream_fixture.h"

#include <pthread.h>

#define ROWS 60u

static uint64_t time_of(uint64_t offset)
{
    return 1000000 + offset / ROWS * 10;
}

/* ---- appending and reading ---- */

/* ROWS messages from the stream's next offset on; refs: of the bodies that are stored, or NULL. */
static void append(struct world *world, const struct qsi_body_ref *refs)
{
    struct qsi_container *container = &world->stream.container;
    uint64_t first = container->next_seq;
    uint32_t flags = FLAGS | (refs != NULL ? QS_TEST_STORED : 0);
    struct qsi_chunk *chunk =
        qs_test_record_chunk(&kind, flags, (uint32_t)first, ROWS, ID, first, time_of(first));
    struct qsi_messages view;
    struct qsi_run *run;

    qsi_messages_view(&view, chunk->data);
    for (uint32_t row = 0; refs != NULL && row < ROWS; row++) {
        if (qsi_messages_is_stored(&view, row)) {
            struct qsi_slice cell = qsi_messages_body(&view, row);
            qsi_body_ref_encode((uint8_t *)(uintptr_t)cell.data, &refs[row]);
        }
    }
    QS_CHECK_OK(qsi_container_reserve(container, 1, ROWS, false));
    QS_CHECK_OK(qsi_run_create(&run, chunk, 0, ROWS, NULL, true));
    run->ram_bytes = chunk->used;
    run->has_stored = refs != NULL;
    QS_CHECK(qsi_container_append(container, run) == first);
    qsi_chunk_unref(chunk);
}

static void check_batch(const struct qsi_stream_batch *batch)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        uint64_t offset = batch->first_offset + i;
        struct qsi_messages view;
        uint32_t row;
        int64_t time_us;
        qsi_messages_view(&view, qsi_stream_batch_record(batch, i, &row));
        qs_test_check_row(&view, row, &kind, FLAGS, 0, (uint32_t)offset);
        qsi_stream_batch_times(batch, i, 1, &time_us);
        QS_CHECK((uint64_t)time_us == time_of(offset));
    }
}

/* All that files have, from first on, is there. */
static void check_files(struct world *world, uint64_t first)
{
    struct qsi_stream_view view;
    struct qsi_stream_batch batch;
    uint64_t offset = first;

    QS_CHECK_OK(qsi_stream_view_take(&view, &world->stream, 0, 0, 0));
    while (offset < view.files_end) {
        QS_CHECK_OK(qsi_stream_read(&view, offset, NULL, NULL, &batch, QS_ERROR));
        QS_CHECK(batch.first_offset == offset && batch.tail == NULL);
        check_batch(&batch);
        offset += batch.count;
        qsi_stream_batch_fini(&batch);
    }
    qsi_stream_view_fini(&view);
}

/* Each append was a run of its own, and is a block in a file. */
static void check_block_starts(struct world *world)
{
    for (uint64_t offset = 0; offset < world->stream.container.next_seq; offset++) {
        struct qsi_stream_view view;
        uint64_t begin;
        QS_CHECK_OK(qsi_stream_view_take(&view, &world->stream, offset, 1, 1));
        QS_CHECK_OK(qsi_stream_block_start(&view, offset, &begin, QS_ERROR));
        QS_CHECK(begin == offset / ROWS * ROWS);
        qsi_stream_view_fini(&view);
    }
}

QS_TEST(test_a_block_starts_where_its_run_did)
{
    const struct qsi_stream_limits limits = {0};
    struct world world;

    start(&world, qsi_env_mem_create(1), &limits);
    for (int i = 0; i < 2; i++) {
        append(&world, NULL);
        QS_CHECK_OK(flush(&world, UINT64_MAX, QS_ERROR));
    }
    QS_CHECK(qsi_container_drop_content(&world.stream.container, 0, UINT64_MAX) > 0);
    append(&world, NULL);
    append(&world, NULL);
    check_block_starts(&world);
    stop(&world);
    qsi_env_mem_destroy(world.env);
}

/* ---- bodies in the message store ---- */

static qs_dir *open_messages(struct world *world)
{
    const struct qsi_message_store_options small_files = {65536, 2};
    qs_dir *dir = qs_test_make_root(world->env, "messages");

    QS_CHECK_OK(qsi_message_store_open(&world->shared.messages, world->env, dir, test_uuid,
                                       &small_files, QS_ERROR));
    return dir;
}

/* Message number, as a queue and the stream would share it: the queue's reference is counted. */
static struct qsi_body_ref store_body(struct qsi_message_store *messages, uint32_t number)
{
    uint32_t body_bytes = qs_test_body_bytes(&kind, number), key = qs_test_key(&kind, 0, number);
    uint8_t properties[32], bytes[2048];
    struct qsi_slice blob = {properties, qs_test_property_bytes(number)};
    char text[QS_TEST_NAME_BYTES];
    struct qsi_slice exchange = qs_test_exchange(key), routing_key = qs_test_key_text(key, text);
    uint32_t envelope_bytes = qsi_envelope_bytes(exchange, routing_key, blob);
    qs_part part = {bytes, envelope_bytes + body_bytes};
    struct qsi_place place;
    struct qsi_body_ref ref;

    qs_test_fill(properties, blob.bytes, number + 1);
    qsi_envelope_encode(bytes, exchange, routing_key, blob);
    qs_test_fill(bytes + envelope_bytes, body_bytes, number);
    QS_CHECK_OK(qsi_message_store_reserve(messages, envelope_bytes, body_bytes, &place, QS_ERROR));
    QS_CHECK_OK(qsi_message_store_write(messages, &place, &part, 1, &ref, QS_ERROR));
    qsi_message_store_add_refs(messages, &ref, 1, 0);
    qsi_message_store_mark(messages, &place);
    return ref;
}

static void store_bodies(struct qsi_message_store *messages, struct qsi_body_ref refs[ROWS])
{
    struct qsi_dirty_set dirty;

    for (uint32_t row = 0; row < ROWS; row++) {
        if (qs_test_is_stored(QS_TEST_STORED, row)) {
            refs[row] = store_body(messages, row);
        }
    }
    qsi_message_store_dirty_take(messages, &dirty);
    QS_CHECK_OK(qsi_message_store_sync(messages, &dirty, QS_ERROR));
}

static uint64_t live_bytes(struct world *world)
{
    struct qsi_message_space space;

    qsi_message_store_space(world->shared.messages, &space);
    return space.live_bytes;
}

/* The queue's references go one by one; the stream's are gone: the last one takes the body. */
static void check_dropped_once(struct world *world, const struct qsi_body_ref refs[ROWS])
{
    for (uint32_t row = 0; row < ROWS; row++) {
        if (qs_test_is_stored(QS_TEST_STORED, row)) {
            uint64_t before = live_bytes(world);
            qsi_message_store_drop_ref(world->shared.messages, &refs[row], false);
            QS_CHECK(live_bytes(world) < before);
        }
    }
    QS_CHECK(live_bytes(world) == 0);
}

static void flush_and_drop(struct world *world)
{
    uint64_t before = live_bytes(world);

    QS_CHECK_OK(flush(world, UINT64_MAX, QS_ERROR));
    QS_CHECK(live_bytes(world) == before);
    QS_CHECK(qsi_container_drop_content(&world->stream.container, 0, UINT64_MAX) > 0);
    QS_CHECK(world->stream.container.ram_count == 0);
    check_files(world, 0);
}

static void stop_with_messages(struct world *world, qs_dir *dir)
{
    struct qsi_message_store *messages = world->shared.messages;
    qs_env *env = world->env;

    stop(world);
    qsi_message_store_close(messages);
    env->dir_close(env, dir);
}

/* The flush went well and nothing of it is durable: the next session has bodies and journal. */
static void flush_again_after_a_cut(qs_env *sim, const struct qsi_body_ref refs[ROWS])
{
    const struct qsi_stream_limits limits = {0};
    qs_env *mem = qsi_env_sim_cut(sim, QSI_CUT_DROP_ALL, 1);
    struct world world;
    qs_dir *dir;

    start(&world, mem, &limits);
    dir = open_messages(&world);
    for (uint32_t row = 0; row < ROWS; row++) {
        if (qs_test_is_stored(QS_TEST_STORED, row)) {
            QS_CHECK_OK(
                qsi_message_store_add_reference(world.shared.messages, &refs[row], QS_ERROR));
            qsi_message_store_add_refs(world.shared.messages, &refs[row], 1, 0);
        }
    }
    append(&world, refs);
    QS_CHECK_OK(qsi_message_store_retain_counted(world.shared.messages, QSI_RETAIN, QS_ERROR));
    flush_and_drop(&world);
    check_dropped_once(&world, refs);
    stop_with_messages(&world, dir);
    qsi_env_mem_destroy(mem);
}

QS_TEST(test_stored_bodies_are_copied_and_their_references_dropped_once)
{
    const struct qsi_stream_limits limits = {0};
    struct qsi_body_ref refs[ROWS];
    struct world world;
    qs_dir *dir;

    start(&world, qsi_env_sim_create(1), &limits);
    dir = open_messages(&world);
    store_bodies(world.shared.messages, refs);
    append(&world, refs);
    flush_and_drop(&world);
    flush_again_after_a_cut(world.env, refs);
    check_dropped_once(&world, refs);
    stop_with_messages(&world, dir);
    qsi_env_sim_destroy(world.env);
}

/* ---- a file that cannot be added to ---- */

QS_TEST(test_flush_goes_on_in_a_new_file_where_the_old_one_is_missing)
{
    const struct qsi_stream_limits limits = {0};
    struct qsi_block_file file = {.owner = ID, .number = 0};
    struct qsi_job *job;
    struct world world;

    start(&world, qsi_env_mem_create(1), &limits);
    append(&world, NULL);
    QS_CHECK_OK(flush(&world, UINT64_MAX, QS_ERROR));
    QS_CHECK_OK(qsi_block_file_remove(world.shared.blocks, &file, QS_ERROR));
    append(&world, NULL);
    QS_CHECK_OK(qsi_container_begin_flush(&world.stream.container, UINT64_MAX, &job));
    QS_CHECK_STATUS(QS_ECORRUPT, qsi_job_run(job, QS_ERROR));
    QS_CHECK_OK(qsi_job_leave_file(job));
    QS_CHECK_STATUS(QS_ECORRUPT, qsi_job_leave_file(job)); /* there is none any more */
    QS_CHECK_OK(qsi_job_run(job, QS_ERROR));
    qsi_job_end(job, true);
    QS_CHECK(qsi_container_is_flushed(&world.stream.container));
    QS_CHECK(qsi_stream_segment_count(&world.stream) == 2);
    (void)qsi_container_drop_content(&world.stream.container, 0, UINT64_MAX);
    check_files(&world, ROWS);
    stop(&world);
    qsi_env_mem_destroy(world.env);
}

/* ---- deletion meanwhile ---- */

QS_TEST(test_file_of_a_flush_is_dead_if_the_stream_was_deleted_meanwhile)
{
    const struct qsi_stream_limits limits = {0};
    struct qsi_job *job;
    struct world world;

    start(&world, qsi_env_mem_create(1), &limits);
    append(&world, NULL);
    QS_CHECK_OK(qsi_container_begin_flush(&world.stream.container, UINT64_MAX, &job));
    QS_CHECK_OK(qsi_job_run(job, QS_ERROR));
    qsi_container_abandon(&world.stream.container);
    qsi_job_end(job, true);
    QS_CHECK(world.shared.dead.bytes == sizeof(struct qsi_block_file));
    QS_CHECK(((struct qsi_block_file *)(void *)world.shared.dead.data)->owner == ID);
    QS_CHECK(qsi_stream_bytes(&world.stream) == 0);
    stop(&world);
    qsi_env_mem_destroy(world.env);
}

/* ---- readers beside a writer ---- */

#define READERS 3u
#define ROUNDS 150u

struct shared_world {
    struct world world;
    struct qsi_mutex mutex; /* the store's, over the stream */
    bool is_over;
};

/* From the first message to the last one, as the writer goes on, without what was trimmed. */
static void *run_reader(void *argument)
{
    struct shared_world *shared = argument;
    uint64_t offset = 0, next = 0;
    bool is_over = false;

    while (!is_over || offset < next) {
        struct qsi_stream_view view;
        struct qsi_stream_batch batch;
        qs_status status;
        qsi_mutex_lock(&shared->mutex);
        QS_CHECK_OK(qsi_stream_view_take(&view, &shared->world.stream, offset, 200, UINT64_MAX));
        is_over = shared->is_over;
        qsi_mutex_unlock(&shared->mutex);
        next = view.next;
        status = qsi_stream_read(&view, offset, NULL, NULL, &batch, QS_ERROR);
        if (status == QS_OK) {
            check_batch(&batch);
        }
        qsi_mutex_lock(&shared->mutex);
        if (status == QS_ECORRUPT) { /* removed before this could open it */
            QS_CHECK(offset < shared->world.stream.first);
        } else {
            QS_CHECK(status == QS_OK || (status == QS_EEMPTY && offset >= view.next));
        }
        offset = batch.first_offset + batch.count;
        qsi_stream_view_fini(&view);
        qsi_mutex_unlock(&shared->mutex);
        qsi_stream_batch_fini(&batch);
    }
    return NULL;
}

static void remove_dead(struct world *world, struct qsi_buf *dead)
{
    for (size_t i = 0; i < dead->bytes / sizeof(struct qsi_block_file); i++) {
        const struct qsi_block_file *file =
            (const struct qsi_block_file *)(const void *)dead->data + i;
        qsi_block_cache_forget(world->shared.cache, file);
        QS_CHECK_OK(qsi_block_file_remove(world->shared.blocks, file, QS_ERROR));
    }
    qsi_buf_fini(dead);
}

static void write_round(struct shared_world *shared)
{
    struct qsi_stream *stream = &shared->world.stream;
    struct qsi_job *job;
    struct qsi_buf dead;

    qsi_mutex_lock(&shared->mutex);
    append(&shared->world, NULL);
    QS_CHECK_OK(qsi_container_begin_flush(&stream->container, UINT64_MAX, &job));
    qsi_mutex_unlock(&shared->mutex);
    QS_CHECK_OK(qsi_job_run(job, QS_ERROR));
    qsi_mutex_lock(&shared->mutex);
    qsi_job_end(job, true);
    (void)qsi_container_drop_content(&stream->container, 0, 300000);
    QS_CHECK_OK(qsi_container_trim_to(&stream->container, qsi_stream_trim_offset(stream, 0)));
    dead = stream->shared->dead;
    stream->shared->dead = (struct qsi_buf){0};
    qsi_mutex_unlock(&shared->mutex);
    remove_dead(&shared->world, &dead);
}

QS_TEST(test_readers_go_on_while_a_writer_appends_and_trims)
{
    const struct qsi_stream_limits limits = {.segment_bytes = 300000, .max_bytes = 1500000};
    static struct shared_world shared;
    pthread_t readers[READERS];

    start(&shared.world, qsi_env_mem_create(1), &limits);
    qsi_mutex_init(&shared.mutex);
    append(&shared.world, NULL);
    for (uint32_t i = 0; i < READERS; i++) {
        QS_CHECK(pthread_create(&readers[i], NULL, run_reader, &shared) == 0);
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        write_round(&shared);
    }
    qsi_mutex_lock(&shared.mutex);
    shared.is_over = true;
    qsi_mutex_unlock(&shared.mutex);
    for (uint32_t i = 0; i < READERS; i++) {
        QS_CHECK(pthread_join(readers[i], NULL) == 0);
    }
    QS_CHECK(shared.world.stream.first > 0);
    qsi_mutex_fini(&shared.mutex);
    stop(&shared.world);
    qsi_env_mem_destroy(shared.world.env);
}
