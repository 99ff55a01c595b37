/* Copying a store's files: each copy is opened, verified and counted.  It is given up, the disk
 * fails at any of its calls, is full, or has its power cut at any step; and a copy has its turn
 * however many checkpoints and commits are asked for beside it. */
#include "qstore/admin.h"

#include "concurrent_fixture.h"
#include "crash_run.h"
#include "qs_test_calls.h"

#define TURNS 20
#define MESSAGES 12
#define ROWS 60
#define BODY_BYTES 1000
#define ROW_BYTES 6000 /* ten of them are more than a checkpoint carries along */
#define SEGMENT_BYTES 4096
#define CUTS 10 /* at each step */

static const uint8_t zeros[ROW_BYTES];

/* A sixteenth in short sweeps, but one at least. */
static uint64_t some_of(uint64_t count)
{
    uint64_t some = crash_state_count(0, NULL, count);

    return some > 0 ? some : 1;
}

static void publish_one(struct engine *engine, const char *queue, size_t bytes)
{
    qs_receipt receipt = publish_to(engine, "", queue, PERSISTENT, (qs_slice){zeros, bytes});

    QS_CHECK_OK(qs_store_wait_durable(engine->store, receipt.lsn, QS_FOREVER, QS_ERROR));
}

/* A queue whose bodies are in the journal, or, as the store is opened once more, in a full and in a
 * growing message file, and a stream with sealed files. */
static void fill(struct engine *engine)
{
    struct qs_test_fields fields = qs_test_fields_of("x-queue-type=stream");

    qs_test_put_long(&fields, "x-stream-max-segment-size-bytes", SEGMENT_BYTES);
    declare(engine, "q", QS_DURABLE);
    qs_test_declare(engine->channel, "s", QS_DURABLE, &fields);
    for (int i = 0; i < MESSAGES; i++) {
        if (i == MESSAGES / 2) {
            engine_close(engine);
            engine_open(engine);
        }
        publish_one(engine, "q", BODY_BYTES);
    }
    for (int i = 1; i <= ROWS; i++) {
        publish_one(engine, "s", ROW_BYTES);
        if (i % 10 == 0) {
            QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
        }
    }
}

static uint64_t ready_in(qs_store *store, const char *queue)
{
    qs_queue_status status;

    QS_CHECK_OK(qs_store_queue_status(store, text(queue), &status, QS_ERROR));
    return status.messages_ready;
}

/* False: there is none.  Else it is whole, and has as many messages. */
static bool check_copy(struct engine *engine, qs_env *env, const char *path, uint64_t in_queue)
{
    qs_options options = engine->options;
    qs_verified verified;
    qs_store *store;
    qs_status status;

    options.create = false;
    options.background = false;
    status = qs_store_open(&store, path, &options, env, QS_ERROR);
    if (status == QS_ESTORE_NOT_FOUND ||
        (status == QS_ECORRUPT && strstr(QS_ERROR->text, "'MANIFEST' at offset 0: missing"))) {
        return false;
    }
    QS_CHECK_STATUS(QS_OK, status);
    QS_CHECK(ready_in(store, "q") == in_queue && ready_in(store, "s") == ROWS);
    QS_CHECK_OK(qs_store_close(store, QS_ERROR));
    QS_CHECK_OK(qs_store_verify(path, env, NULL, &verified, QS_ERROR));
    return true;
}

static void check_goes_on(struct engine *engine)
{
    publish_one(engine, "q", BODY_BYTES);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
}

static void name_copy(const struct engine *engine, char path_out[160])
{
    snprintf(path_out, 160, "%s-copy", engine->path);
}

QS_TEST(test_copy_is_a_store_and_so_is_the_source)
{
    for (enum place place = IN_MEMORY; place <= ON_DISK; place++) {
        struct engine engine;
        char path[160];
        qs_copied copied;

        engine_init(&engine, place);
        engine.options.embed_below = BODY_BYTES / 2;
        engine_open(&engine);
        fill(&engine);
        name_copy(&engine, path);
        QS_CHECK_OK(qs_store_copy(engine.store, path, NULL, NULL, &copied, QS_ERROR));
        QS_CHECK(copied.linked > 0 && copied.files > copied.linked && copied.bytes > 0);
        check_goes_on(&engine);
        QS_CHECK(check_copy(&engine, engine.env, path, MESSAGES));
        QS_CHECK(ready_in(engine.store, "q") == MESSAGES + 1);
        QS_CHECK_STATUS(QS_EEXIST,
                        qs_store_copy(engine.store, path, NULL, NULL, &copied, QS_ERROR));
        QS_CHECK(copied.files == 0);
        QS_CHECK(check_copy(&engine, engine.env, path, MESSAGES));
        if (place == ON_DISK) {
            qs_test_remove_dir(path);
        }
        engine_stop(&engine);
    }
}

static bool count_down(void *left)
{
    *(uint64_t *)left -= 1;
    return *(uint64_t *)left > 0;
}

IN_MEMORY_TEST(test_copy_that_is_given_up_holds_nothing_any_more)
{
    char path[160];

    fill(engine);
    for (uint64_t at = 1;; at++) {
        qs_copied copied;
        uint64_t left = at;
        qs_status status;

        snprintf(path, sizeof path, "copy-%d", (int)at);
        status = qs_store_copy(engine->store, path, count_down, &left, &copied, QS_ERROR);
        QS_CHECK(status == QS_OK || status == QS_EINTR);
        QS_CHECK(check_copy(engine, engine->env, path, MESSAGES + at - 1) == (status == QS_OK));
        check_goes_on(engine);
        if (status == QS_OK) {
            QS_CHECK(at > 10);
            break;
        }
    }
}

/* ---- disks that fail ---- */

/* True: the fault came.  Whatever call fails: the copy is not there or whole, the store goes on or
 * says that it has failed, and what it has is there when it is opened again. */
static bool copy_with_a_fault(enum qsi_fault_kind kind, enum qsi_fault_how how, uint64_t at)
{
    struct engine engine;
    qs_copied copied;
    qs_status status;
    qs_env *faults;
    bool fired;

    engine_init(&engine, IN_MEMORY);
    faults = engine_put_fault(&engine);
    engine_open(&engine);
    fill(&engine);
    qsi_env_fault_arm(faults, kind, how, at, false);
    status = qs_store_copy(engine.store, "copy", NULL, NULL, &copied, QS_ERROR);
    fired = qsi_env_fault_fired(faults);
    qsi_env_fault_arm(faults, kind, how, 0, false);
    QS_CHECK(fired || status == QS_OK);
    QS_CHECK(check_copy(&engine, faults, "copy", MESSAGES) || status != QS_OK);
    if (status != QS_ESTORE_FAILED) {
        check_goes_on(&engine);
    } else {
        QS_CHECK_STATUS(QS_ESTORE_FAILED,
                        qs_store_copy(engine.store, "another", NULL, NULL, &copied, QS_ERROR));
    }
    qs_channel_close(engine.channel);
    (void)qs_store_close(engine.store, NULL);
    QS_CHECK(check_copy(&engine, faults, "store", MESSAGES + (status != QS_ESTORE_FAILED)));
    engine_fini(&engine);
    return fired;
}

QS_TEST(test_copy_on_a_disk_that_fails_is_whole_or_not_there)
{
    static const enum qsi_fault_kind kinds[] = {QSI_FAULT_OPEN,     QSI_FAULT_READ,
                                                QSI_FAULT_WRITE,    QSI_FAULT_SYNC,
                                                QSI_FAULT_DIR_SYNC, QSI_FAULT_RENAME};
    static const enum qsi_fault_how errors[] = {QSI_FAULT_EIO, QSI_FAULT_ENOSPC, QSI_FAULT_EINTR};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        for (size_t j = 0; j < some_of(sizeof errors / sizeof errors[0]); j++) {
            enum qsi_fault_how how = errors[(i + j) % (sizeof errors / sizeof errors[0])];
            uint64_t at = 1;

            while (copy_with_a_fault(kinds[i], how, at)) {
                at += 1;
            }
            QS_CHECK(at > 1);
        }
    }
}

IN_MEMORY_TEST(test_copy_on_a_full_disk_names_the_file_and_the_store_goes_on)
{
    qs_copied copied;
    uint64_t needed;

    fill(engine);
    needed = qsi_env_ram_used(engine->memory);
    QS_CHECK_OK(qs_store_copy(engine->store, "first", NULL, NULL, &copied, QS_ERROR));
    needed = qsi_env_ram_used(engine->memory) - needed;
    for (uint64_t part = 1; part < 8; part++) {
        uint64_t used = qsi_env_ram_used(engine->memory);
        char path[16];
        qs_status status;

        snprintf(path, sizeof path, "copy-%d", (int)part);
        qsi_env_ram_limit(engine->memory, used + needed * part / 8);
        status = qs_store_copy(engine->store, path, NULL, NULL, &copied, QS_ERROR);
        qsi_env_ram_limit(engine->memory, 0);
        QS_CHECK(status == QS_ENOSPC || status == QS_ESTORE_FULL);
        QS_CHECK(status != QS_ENOSPC || strstr(QS_ERROR->text, path) != NULL);
        QS_CHECK(!check_copy(engine, engine->env, path, MESSAGES));
        QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    }
    check_goes_on(engine);
}

/* ---- the power ---- */

struct cuts {
    struct engine *engine;
    uint64_t taken, whole;
};

static void cut(void *context, uint64_t step)
{
    struct cuts *cuts = context;
    uint64_t count = QSI_CUT_RANDOM + some_of(CUTS - QSI_CUT_RANDOM);

    for (uint64_t i = 0; i < count; i++) {
        enum qsi_cut_how how = i < QSI_CUT_RANDOM ? (enum qsi_cut_how)i : QSI_CUT_RANDOM;
        qs_env *disk = qsi_env_sim_cut(cuts->engine->env, how, step * CUTS + i);

        cuts->taken += 1;
        cuts->whole += check_copy(cuts->engine, disk, "copy", MESSAGES);
        QS_CHECK(check_copy(cuts->engine, disk, "store", MESSAGES));
        qsi_env_mem_destroy(disk);
    }
}

QS_TEST(test_copy_is_whole_or_not_there_after_a_power_cut_at_any_step)
{
    struct engine engine = {.path = "store"};
    struct cuts cuts = {.engine = &engine};
    qs_copied copied;

    qs_options_default(&engine.options);
    engine.options.journal_file_bytes = 64u << 10;
    engine.options.message_file_bytes = 64u << 10;
    engine.options.embed_below = BODY_BYTES / 2;
    engine.options.background = false;
    engine.env = qsi_env_sim_create(1);
    engine_open(&engine);
    fill(&engine);
    qsi_env_sim_on_step(engine.env, cut, &cuts);
    QS_CHECK_OK(qs_store_copy(engine.store, "copy", NULL, NULL, &copied, QS_ERROR));
    qsi_env_sim_on_step(engine.env, NULL, NULL);
    QS_CHECK(cuts.taken > 100 && cuts.whole > 0 && cuts.whole < cuts.taken);
    for (uint64_t seed = 0; seed < 20; seed++) { /* from now on it is there */
        qs_env *disk =
            qsi_env_sim_cut(engine.env, seed == 0 ? QSI_CUT_DROP_ALL : QSI_CUT_RANDOM, seed);
        QS_CHECK(check_copy(&engine, disk, "copy", MESSAGES));
        qsi_env_mem_destroy(disk);
    }
    engine_close(&engine);
    qsi_env_sim_destroy(engine.env);
}

/* ---- beside others ---- */

static void *run_publisher(void *argument)
{
    static const uint8_t large[60000] = {1};
    struct shared *shared = argument;
    qs_channel *channel = open_channel(shared);

    while (!atomic_load(&shared->done)) { /* as fast as checkpoints let it */
        QS_CHECK_OK(
            qs_test_publish(channel, "", "q", PERSISTENT, (qs_slice){large, sizeof large}, 0));
    }
    qs_channel_close(channel);
    return NULL;
}

static void *run_checkpoints(void *argument)
{
    struct shared *shared = argument;

    while (!atomic_load(&shared->done)) {
        QS_CHECK_OK(qs_store_checkpoint(shared->engine.store, QS_ERROR));
    }
    return NULL;
}

/* Each thread asks again as soon as it was answered, and the checkpointer has always one due. */
QS_TEST(test_copy_has_its_turn_among_checkpoints_without_a_pause)
{
    struct shared shared;
    pthread_t threads[4];

    memset(&shared, 0, sizeof shared);
    engine_init(&shared.engine, ON_DISK);
    shared.engine.options.journal_file_bytes = 64u << 10;
    shared.engine.options.checkpoint_bytes = 64u << 10;
    shared.engine.options.embed_below = 1u << 16;
    engine_open(&shared.engine);
    declare(&shared.engine, "q", QS_DURABLE);
    threads[0] = start(run_publisher, &shared);
    threads[1] = start(run_publisher, &shared);
    threads[2] = start(run_checkpoints, &shared);
    threads[3] = start(run_checkpoints, &shared);
    for (uint32_t i = 1; i <= some_of(TURNS); i++) {
        char path[160];
        qs_copied copied;
        qs_verified verified;

        name_copy(&shared.engine, path);
        QS_CHECK_OK(qs_store_copy(shared.engine.store, path, NULL, NULL, &copied, QS_ERROR));
        QS_CHECK_OK(qs_store_verify(path, NULL, NULL, &verified, QS_ERROR));
        qs_test_remove_dir(path);
    }
    atomic_store(&shared.done, true);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    engine_stop(&shared.engine);
}
