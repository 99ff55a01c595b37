/* Large batches that go straight into a stream's file, each case named after what went wrong, or
 * would. */
#include "block_format.h"
#include "block_write.h"
#include "limits.h"
#include "pager.h"
#include "qs_test_calls.h"
#include "queue_life.h"
#include "stream_hooks.h"
#include "stream_internal.h"

#define STREAMS 80

/* ---- syncs ---- */

/* The process died before the sync; recovery found the blocks in the page cache, could not open
 * their file to sync it, and decided that they count.  The power cut came next. */
QS_TEST(test_confirmed_batch_was_lost_when_recovery_could_not_sync_its_file)
{
    qs_env *sim = qsi_env_sim_create(1);
    struct scene scene;

    begin(&scene, sim);
    QS_CHECK_OK(publish_rows(&scene, "s", 0, ROWS));
    QS_CHECK(direct_bytes(&scene) > 0);
    plant(AT_SYNC, 0, kill_process);
    QS_CHECK(qs_store_sync(scene.store, NULL) != QS_OK && hook.has_acted);
    die(&scene);
    plant(AT_OPEN, 0, fail_eio);
    QS_CHECK(qs_store_open(&scene.store, CRASH_PATH, &scene.options, &scene.env.env, QS_ERROR) ==
             QS_ECORRUPT);
    QS_CHECK(hook.has_acted && strstr(qs_test_error.text, ".str") != NULL);
    open_store(&scene);
    check_all(&scene);
    cut(&scene, sim);
    check_all(&scene);
    stop(&scene);
}

static void check_failed(struct scene *scene)
{
    QS_CHECK(hook.has_acted && has_failed(scene));
    QS_CHECK(publish_rows(scene, "s", 0, 1) == QS_ESTORE_FAILED);
    QS_CHECK(qs_store_checkpoint(scene->store, NULL) == QS_ESTORE_FAILED);
}

/* A second sync would succeed, and say nothing. */
QS_TEST(test_failed_sync_of_a_block_file_is_the_end_of_the_store)
{
    qs_env *sim = qsi_env_sim_create(2);
    struct scene scene;

    begin(&scene, sim);
    QS_CHECK_OK(publish_rows(&scene, "s", 0, ROWS));
    QS_CHECK(direct_bytes(&scene) > 0);
    plant(AT_SYNC, 0, fail_eio);
    QS_CHECK(qs_store_sync(scene.store, NULL) != QS_OK);
    QS_CHECK(qs_store_sync(scene.store, NULL) == QS_ESTORE_FAILED);
    check_failed(&scene);
    cut(&scene, sim);
    QS_CHECK_OK(publish_rows(&scene, "s", 0, ROWS));
    check_all(&scene);
    stop(&scene);
}

/* What the tail brought into the file was not durable, and the batch behind it was named. */
QS_TEST(test_failed_sync_of_what_lies_before_a_batch_was_swallowed)
{
    qs_env *sim = qsi_env_sim_create(3);
    struct scene scene;

    begin(&scene, sim);
    publish_one(&scene, "", 0);
    plant(AT_SYNC, 0, fail_eio);
    QS_CHECK(publish_rows(&scene, "s", 1, ROWS - 1) == QS_ESTORE_FAILED);
    check_failed(&scene);
    cut(&scene, sim);
    publish(&scene);
    check_all(&scene);
    stop(&scene);
}

/* The kernel tells a failure to one handle of a file, perhaps: that of the commit.  The
 * checkpoint's own sync of the file would succeed. */
QS_TEST(test_checkpoint_counted_behind_a_failed_sync_of_a_commit)
{
    qs_env *sim = qsi_env_sim_create(4);
    struct scene scene;
    const struct qsi_block_unsynced *unsynced;
    struct qsi_block_file file;

    begin(&scene, sim);
    QS_CHECK_OK(publish_rows(&scene, "s", 0, ROWS));
    unsynced = (const void *)scene.store->commit.dirty_blocks.files.data;
    file = unsynced->file;
    plant(AT_SYNC, 0, fail_eio);
    QS_CHECK(qsi_block_unsynced_sync(scene.store->streams.blocks, unsynced, NULL) == QS_EIO);
    QS_CHECK(qsi_block_file_sync(scene.store->streams.blocks, &file, NULL) == QS_EIO);
    QS_CHECK(qs_store_checkpoint(scene.store, NULL) != QS_OK);
    QS_CHECK(has_failed(&scene));
    cut(&scene, sim);
    publish(&scene);
    check_all(&scene);
    stop(&scene);
}

/* ---- what came to nothing ---- */

HOOKED_TEST(test_full_disk_kept_the_bytes_of_a_batch_that_was_not_written)
{
    uint64_t bytes_before;

    QS_CHECK_OK(publish_rows(scene, "s", 0, 40));
    QS_CHECK(direct_bytes(scene) > 0);
    bytes_before = file_bytes(scene, "0000000000000001-0000000000000000.str");
    for (uint64_t id = 40; id < 50; id++) {
        publish_one(scene, "", id);
    }
    plant(AT_WRITE, 1, fail_enospc); /* behind a block with these */
    QS_CHECK_OK(publish_rows(scene, "s", 50, 40));
    QS_CHECK(hook.has_acted && !has_failed(scene));
    QS_CHECK(file_bytes(scene, "0000000000000001-0000000000000000.str") <
             bytes_before + QSI_BLOCK_PAGE);
    die(scene);
    open_store(scene);
}

static qs_status publish_other(struct scene *scene)
{
    publish_one(scene, "", 0);
    return QS_OK;
}

/* Who comes in between has the first offset, and the batch takes the way of all others. */
HOOKED_TEST(test_file_of_a_batch_that_came_second_stayed)
{
    plant(AT_WRITE, 1, publish_other);
    QS_CHECK_OK(publish_rows(scene, "s", 1, ROWS - 1));
    QS_CHECK(hook.has_acted && direct_bytes(scene) == 0 && file_count(scene) == 0);
    check_all(scene);
    reopen(scene); /* what was not synced by now is still in the page cache, or never was */
}

static qs_status delete_stream(struct scene *scene)
{
    QS_CHECK_OK(qs_test_delete(scene->channel, "s", 0));
    return QS_OK;
}

HOOKED_TEST(test_file_of_a_batch_stayed_when_its_stream_was_deleted)
{
    plant(AT_WRITE, 1, delete_stream);
    QS_CHECK_OK(publish_rows(scene, "s", 0, ROWS));
    QS_CHECK(hook.has_acted && file_count(scene) == 0);
    QS_CHECK(!has_failed(scene));
    declare(scene);
    QS_CHECK_OK(publish_rows(scene, "s", 0, ROWS));
    check_all(scene);
}

static qs_status fill_disk(struct scene *scene)
{
    qsi_env_ram_limit(scene->mem, qsi_env_ram_used(scene->mem) + (130 << 10));
    qsi_mutex_lock(&scene->store->mutex);
    scene->store->space.open_upto = 0; /* the publisher looks at the disk */
    qsi_mutex_unlock(&scene->store->mutex);
    return QS_OK;
}

/* The publisher waited for a checkpoint that brings space, and the checkpoint for the publisher. */
HOOKED_TEST(test_publisher_and_checkpoint_waited_for_each_other_on_a_full_disk)
{
    qs_status status;

    plant(AT_WRITE, 1, fill_disk);
    status = publish_rows(scene, "s", 0, ROWS);
    QS_CHECK(status == QS_OK || status == QS_ESTORE_FULL);
    QS_CHECK(hook.has_acted && !has_failed(scene));
    qsi_env_ram_limit(scene->mem, 0);
    if (status != QS_OK) {
        QS_CHECK(file_count(scene) == 0);
        QS_CHECK_OK(publish_rows(scene, "s", 0, ROWS));
    }
    check_all(scene);
}

static void declare_short(struct scene *scene)
{
    qs_test_declare_with(
        scene->channel, "short", QS_DURABLE,
        "x-queue-type=stream x-stream-max-segment-size-bytes=100000 x-max-messages=50");
}

static struct qsi_store_queue *find(struct scene *scene, const char *name)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_queue *queue = qsi_find_queue(scene->store, qsi_slice_of(text(name)));

    QS_CHECK(queue != NULL && queue->stream != NULL);
    return queue;
}

/* The checkpoint knew the segment as the last one; retention took it before the journal told of
 * those behind it. */
HOOKED_TEST(test_segment_that_retention_took_came_back_with_a_record)
{
    const struct qsi_stream *log;

    declare_short(scene);
    QS_CHECK_OK(publish_rows(scene, "short", 0, 40));
    QS_CHECK_OK(qs_store_checkpoint(scene->store, QS_ERROR));
    for (int i = 0; i < 3; i++) { /* too small to be written directly */
        QS_CHECK_OK(publish_rows(scene, "short", 0, 30));
    }
    QS_CHECK_OK(qs_store_sync(scene->store, QS_ERROR));
    qsi_mutex_lock(&scene->store->mutex);
    QS_CHECK_OK(qsi_pager_flush(scene->store, find(scene, "short"), QS_ERROR));
    qsi_retain_streams(scene->store);
    QS_CHECK(find(scene, "short")->stream->log.first == 40);
    qsi_mutex_unlock(&scene->store->mutex);
    QS_CHECK(direct_bytes(scene) == 0);
    QS_CHECK_OK(publish_rows(scene, "short", 0, 40));
    QS_CHECK(direct_bytes(scene) > 0);
    QS_CHECK_OK(qs_store_sync(scene->store, QS_ERROR));
    reopen(scene);
    log = &find(scene, "short")->stream->log;
    QS_CHECK(log->first == 40 && log->container.next_seq == 170);
    QS_CHECK(log->table->segments[log->table_first].first >= log->first);
    QS_CHECK(scene->store->streams.dead.bytes == sizeof(struct qsi_block_file));
    QS_CHECK_OK(qs_store_checkpoint(scene->store, QS_ERROR));
    QS_CHECK(file_count(scene) == qsi_stream_segment_count(log));
}

/* ---- bounds ---- */

static qs_status publish_large(struct scene *scene)
{
    QS_CHECK_OK(publish_rows(scene, "capped", 30, 50));
    return QS_OK;
}

/* Retention drops a file as a whole, so no file gets more than a segment: the journal takes a
 * larger batch.  Before, the batch waited for a flush; here that is its own thread's, so it waited
 * forever. */
HOOKED_TEST(test_batch_larger_than_a_segment_waited_for_a_flush)
{
    struct qsi_store_queue *capped;

    scene->options.journal_file_bytes = 16 << 20; /* no checkpoint for want of room */
    reopen(scene);
    qs_test_declare_with(scene->channel, "capped", QS_DURABLE,
                         "x-queue-type=stream x-max-length-bytes=2000000");
    QS_CHECK_OK(publish_rows(scene, "capped", 0, 30));
    QS_CHECK_OK(qs_store_sync(scene->store, QS_ERROR));
    plant(AT_WRITE, 0, publish_large);
    qsi_mutex_lock(&scene->store->mutex);
    capped = find(scene, "capped");
    capped->stream->log.limits.segment_bytes = 70000;
    QS_CHECK_OK(qsi_pager_flush(scene->store, capped, QS_ERROR));
    QS_CHECK(hook.has_acted && capped->messages->next_seq == 80);
    qsi_mutex_unlock(&scene->store->mutex);
    QS_CHECK(direct_bytes(scene) == 0);
}

static uint64_t count_commits(struct scene *scene)
{
    qs_stats stats;

    qs_store_stats(scene->store, &stats);
    return stats.commits;
}

/* So much waits for a sync that another batch for the stream must wait for it.  The journal takes
 * one for a stream with small segments, which needs no sync; it waited, too. */
HOOKED_TEST(test_batch_that_no_stream_takes_waited_for_a_sync)
{
    struct qs_test_fields arguments = {.used = 0};
    uint64_t before, wanted = BUDGET / 4 - 40 * ROW_BYTES;

    scene->options.journal_file_bytes = 16 << 20; /* no commit for want of room */
    reopen(scene);
    qs_test_put_text(&arguments, "x-queue-type", "stream");
    qs_test_put_long(&arguments, "x-max-length-bytes", 2000000);
    qs_test_declare(scene->channel, "capped", QS_DURABLE, &arguments);
    QS_CHECK_OK(qs_store_sync(scene->store, QS_ERROR));
    qsi_mutex_lock(&scene->store->mutex);
    find(scene, "capped")->stream->log.limits.segment_bytes = 70000;
    qsi_mutex_unlock(&scene->store->mutex);
    before = count_commits(scene);
    while (direct_bytes(scene) < wanted) {
        QS_CHECK_OK(publish_rows(scene, "s", 0, 50));
    }
    QS_CHECK_OK(publish_rows(scene, "capped", 0, 50));
    QS_CHECK(count_commits(scene) == before);
    QS_CHECK_OK(publish_rows(scene, "s", 0, 50));
    QS_CHECK(count_commits(scene) > before);
}

static void declare_many(struct scene *scene, char names[STREAMS][16])
{
    for (int i = 0; i < STREAMS; i++) {
        snprintf(names[i], 16, "t%d", i);
        qs_test_declare_with(scene->channel, names[i], QS_DURABLE, "x-queue-type=stream");
    }
}

HOOKED_TEST(test_each_stream_kept_a_file_open_until_the_commit)
{
    char names[STREAMS][16];

    scene->options.journal_file_bytes = 64 << 20; /* no commit for want of room */
    reopen(scene);
    declare_many(scene, names);
    QS_CHECK_OK(qs_store_sync(scene->store, QS_ERROR));
    for (int i = 0; i < STREAMS; i++) {
        QS_CHECK_OK(publish_rows(scene, names[i], 0, 40));
    }
    QS_CHECK(hook.most_open > 60 && hook.most_open <= 66);
    QS_CHECK_OK(qs_store_sync(scene->store, QS_ERROR));
    QS_CHECK(hook.open == 0);
    reopen(scene);
}

/* With more than this in memory and in no file that was told of, recovery flushes: nothing may be
 * named behind it. */
HOOKED_TEST(test_recovery_kept_a_long_tail_in_memory)
{
    uint64_t before;

    for (uint64_t id = 0; id < QSI_STREAM_UNNAMED_BYTES / ROW_BYTES + 1; id++) {
        publish_one(scene, "", id);
    }
    before = direct_bytes(scene);
    QS_CHECK_OK(publish_rows(scene, "s", 0, ROWS));
    QS_CHECK(direct_bytes(scene) == before);
    QS_CHECK_OK(qs_store_checkpoint(scene->store, QS_ERROR));
    QS_CHECK_OK(publish_rows(scene, "s", 0, ROWS));
    QS_CHECK(direct_bytes(scene) > 0);
    for (uint64_t id = 0; id < 3 * QSI_STREAM_UNNAMED_BYTES / ROW_BYTES; id++) {
        publish_one(scene, "", id);
    }
    QS_CHECK_OK(qs_store_sync(scene->store, QS_ERROR));
    scene->options.memory_budget = 64 << 10;
    reopen(scene);
    qsi_mutex_lock(&scene->store->mutex);
    QS_CHECK(qsi_budget_bytes(scene->store->budget) < 3 * QSI_STREAM_UNNAMED_BYTES);
    qsi_mutex_unlock(&scene->store->mutex);
}
