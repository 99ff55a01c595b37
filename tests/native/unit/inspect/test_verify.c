/* Verifying: what it finds, that it writes nothing, and what becomes of it when calls fail. */
#include "../engine/engine_fixture.h"
#include "qs_test_alloc.h"
#include "qs_test_dirs.h"
#include "qs_test_faults.h"

/* Segments, message files and a checkpoint, a journal behind it, settled messages everywhere. */
static void fill(struct engine *engine)
{
    char large[5000];

    memset(large, 'x', sizeof large);
    declare_exchange(engine, "all", "fanout", QS_DURABLE);
    declare(engine, "a", QS_DURABLE);
    declare(engine, "b", QS_DURABLE);
    bind_queue(engine, "a", "all", "");
    bind_queue(engine, "b", "all", "");
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 40; i++) {
            publish_to(engine, i % 2 == 0 ? "all" : "", i % 2 == 0 ? "" : "a", PERSISTENT,
                       i % 5 == 0 ? (qs_slice){large, sizeof large} : text("small"));
        }
        for (int i = 0; i < 10; i++) {
            QS_CHECK_OK(qs_test_get(engine->channel, "a", QS_NO_ACK));
        }
        QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
        if (round == 0) {
            qs_queue_status status;
            QS_CHECK_OK(qs_store_set_queue_mode(engine->store, text("a"), true, QS_ERROR));
            QS_CHECK_OK(qs_store_queue_status(engine->store, text("a"), &status, QS_ERROR));
            QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
        }
    }
}

static struct engine dead; /* has the handles that were open at a crash */

/* What the crash left of such a store. */
static void start(struct engine *engine)
{
    engine_init(engine, IN_MEMORY);
    engine->options.segment_entries = 16;
    engine->options.journal_file_bytes = 64u << 10;
    engine->options.message_file_bytes = 64u << 10;
    engine_open(engine);
    fill(engine);
    dead = *engine;
    engine->memory = engine->env = qsi_env_mem_clone(dead.memory, 2);
}

static void stop(struct engine *engine)
{
    engine_fini(engine);
    engine_stop(&dead);
}

QS_TEST_FIXTURE(run_crashed, struct engine, start(&fixture), stop(&fixture))
#define CRASHED_TEST(name) QS_TEST_BY(run_crashed, name, (struct engine * engine))

static qs_status verify_in(struct engine *engine, qs_env *env, qs_verified *verified)
{
    return qs_store_verify(engine->path, env, NULL, verified, NULL);
}

CRASHED_TEST(test_whole_store_is_whole)
{
    qs_verified verified;

    QS_CHECK_OK(verify_in(engine, engine->env, &verified));
    QS_CHECK(verified.damages == 0);
    QS_CHECK(verified.queues == 2);
    QS_CHECK(verified.segments >= 2);
    QS_CHECK(verified.bodies >= 10);
    QS_CHECK(verified.journal_records >= 40);
}

CRASHED_TEST(test_nothing_is_written)
{
    static const enum qsi_fault_kind kinds[] = {QSI_FAULT_WRITE,    QSI_FAULT_SYNC,
                                                QSI_FAULT_DIR_SYNC, QSI_FAULT_ALLOCATE,
                                                QSI_FAULT_RENAME,   QSI_FAULT_REMOVE};
    qs_verified verified;

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        qs_env *env = qsi_env_fault_create(engine->env);
        qsi_env_fault_arm(env, kinds[i], QSI_FAULT_EIO, 1, true);
        QS_CHECK_OK(verify_in(engine, env, &verified));
        QS_CHECK(!qsi_env_fault_fired(env));
        qsi_env_fault_destroy(env);
    }
}

CRASHED_TEST(test_failing_calls_are_told)
{
    qs_verified verified;
    qs_env *env;

    env = qsi_env_fault_create(engine->env);
    for (struct qs_test_sweep sweep = {.how = QSI_FAULT_EIO}; qs_test_sweep_on(&sweep);) {
        qs_status status;
        qs_test_sweep_calls(&sweep, env);
        status = verify_in(engine, env, &verified);
        qs_test_sweep_rest(&sweep);
        QS_CHECK(status == (sweep.has_failed ? QS_EIO : QS_OK));
    }
    qsi_env_fault_destroy(env);
}

QS_TEST(test_without_memory_nothing_leaks)
{
    struct qs_test_alloc state;
    struct engine engine;
    qs_verified verified;

    qs_test_alloc_install(&state);
    start(&engine);
    for (struct qs_test_sweep sweep = {.memory = &state}; qs_test_sweep_on(&sweep);) {
        qs_status status;
        qs_test_sweep_allocations(&sweep);
        status = verify_in(&engine, engine.env, &verified);
        qs_test_sweep_rest(&sweep);
        /* Some allocations can be done without, as at an open. */
        QS_CHECK(status == QS_OK || (sweep.has_failed && status == QS_ENOMEM));
        QS_CHECK(verified.damages == 0);
    }
    stop(&engine);
    qs_allocator_set(NULL);
}

/* ---- damage ---- */

/* Whether verifying and opening judge alike is not the same question: a body may be damaged in
 * an open store. */
static void flip_through(struct engine *engine, const char *folder, uint64_t step,
                         uint64_t *found_io)
{
    qs_env *env = engine->env;
    qs_dir *dir = qs_test_open_dir(env, engine->path, folder);
    struct qs_test_names names;

    qs_test_list(&names, env, dir, "");
    for (size_t i = 0; i < names.count; i++) {
        uint64_t bytes = qs_test_file_bytes(env, dir, names.items[i]);
        for (uint64_t offset = i % step; offset < bytes; offset += step) {
            qs_verified verified;
            qs_status status;
            qs_test_flip(env, dir, names.items[i], offset, 0x10);
            status = verify_in(engine, env, &verified);
            QS_CHECK(status == QS_OK || status == QS_ECORRUPT || status == QS_EVERSION);
            QS_CHECK((status == QS_ECORRUPT) == (verified.damages > 0) || status == QS_EVERSION);
            *found_io += status != QS_OK ? 1 : 0;
            qs_test_flip(env, dir, names.items[i], offset, 0x10);
        }
    }
    env->dir_close(env, dir);
}

CRASHED_TEST(test_flipped_bits_are_found_or_nobody_needs_them)
{
    qs_verified verified;
    uint64_t found = 0;

    flip_through(engine, "checkpoint", 7, &found);
    QS_CHECK(found > 20);
    found = 0;
    flip_through(engine, "index", 61, &found);
    QS_CHECK(found > 10);
    found = 0;
    flip_through(engine, "messages", 401, &found);
    QS_CHECK(found > 50);
    found = 0;
    flip_through(engine, "journal", 509, &found);
    QS_CHECK(found > 5);
    QS_CHECK_OK(verify_in(engine, engine->env, &verified));
}

/* ---- callbacks ---- */

struct told {
    uint64_t progress_count, damage_count, last_done, last_total;
    uint64_t stop_at; /* this call of progress; 0: none */
};

static bool note_progress(void *context, uint64_t bytes_done, uint64_t bytes_total)
{
    struct told *told = context;

    QS_CHECK(bytes_done >= told->last_done && bytes_done <= bytes_total);
    told->last_done = bytes_done;
    told->last_total = bytes_total;
    return ++told->progress_count != told->stop_at;
}

static void note_damage(void *context, const qs_error *what)
{
    struct told *told = context;

    QS_CHECK(what->path[0] != 0 && what->text[0] != 0);
    told->damage_count += 1;
}

CRASHED_TEST(test_progress_is_told_and_may_stop)
{
    struct told told = {0};
    qs_verify_callbacks callbacks = {note_progress, note_damage, &told};
    qs_verified verified;

    QS_CHECK_OK(qs_store_verify(engine->path, engine->env, &callbacks, &verified, QS_ERROR));
    QS_CHECK(told.progress_count > 0 && told.last_done == told.last_total);
    QS_CHECK(told.damage_count == 0);
    told = (struct told){.stop_at = 1};
    QS_CHECK_STATUS(QS_EINTR,
                    qs_store_verify(engine->path, engine->env, &callbacks, &verified, QS_ERROR));
    QS_CHECK(told.progress_count == 1);
}

IN_MEMORY_TEST(test_store_that_is_open_or_not_there_is_refused)
{
    qs_verified verified;

    QS_CHECK_STATUS(QS_ESTORE_LOCKED,
                    qs_store_verify(engine->path, engine->env, NULL, &verified, QS_ERROR));
    QS_CHECK_STATUS(QS_ESTORE_NOT_FOUND,
                    qs_store_verify("elsewhere", engine->env, NULL, &verified, QS_ERROR));
}
