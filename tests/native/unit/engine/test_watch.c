/* What no call tells, told to the host: checkpoints, a full disk, a checkpoint that cannot be made,
 * failure.  Stalls and clocks that are set: test_clock.c. */
#include "engine_fixture.h"
#include "enter.h"
#include "store.h"

#include <pthread.h>
#include <stdatomic.h>

enum { NOTES_MAX = 64 };

struct note {
    uint32_t level;
    char text[512];
};

static struct note notes[NOTES_MAX];
static unsigned note_count;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;
/* A note may call the store: no lock is held.  NULL: it is being closed.  Threads of the store that
 * are at a checkpoint read it while a test ends. */
static _Atomic(struct engine *) noting;

static void take_note(void *context, uint32_t level, const char *text)
{
    struct engine *called = atomic_load(&noting);

    QS_CHECK(context == notes);
    if (called != NULL) {
        (void)stats_of(called);
    }
    pthread_mutex_lock(&mutex);
    QS_CHECK(note_count < NOTES_MAX);
    notes[note_count].level = level;
    snprintf(notes[note_count].text, sizeof notes[note_count].text, "%s", text);
    note_count += 1;
    pthread_cond_broadcast(&told);
    pthread_mutex_unlock(&mutex);
}

/* Under the mutex. */
static unsigned count_told(uint32_t level, const char *part)
{
    unsigned count = 0;

    for (unsigned i = 0; i < note_count; i++) {
        count += notes[i].level == level && strstr(notes[i].text, part) != NULL;
    }
    return count;
}

static unsigned count_of(uint32_t level, const char *part)
{
    unsigned count;

    pthread_mutex_lock(&mutex);
    count = count_told(level, part);
    pthread_mutex_unlock(&mutex);
    return count;
}

static void await(uint32_t level, const char *part)
{
    pthread_mutex_lock(&mutex);
    while (count_told(level, part) == 0) {
        pthread_cond_wait(&told, &mutex);
    }
    pthread_mutex_unlock(&mutex);
}

static void start(struct engine *engine, bool faulty)
{
    engine_init(engine, IN_MEMORY);
    note_count = 0;
    if (faulty) {
        engine_put_fault(engine);
    }
    engine->options.background = true;
    engine->options.journal_file_bytes = 64u << 10;
    engine->options.note = take_note;
    engine->options.note_context = notes;
    engine_open(engine);
    atomic_store(&noting, engine);
    declare(engine, "q", QS_DURABLE);
}

static void stop(struct engine *engine)
{
    atomic_store(&noting, NULL);
    engine_stop(engine);
}

static qs_status try_publish(struct engine *engine)
{
    QS_TEST_FREED char *body = make_body(3000, 1);
    qs_status status = qs_test_publish(engine->channel, "", "q", PERSISTENT, text(body), 0);

    return status;
}

QS_TEST(test_each_checkpoint_is_told_whoever_made_it)
{
    struct engine engine;

    start(&engine, false);
    publish(&engine, "q", "a");
    QS_CHECK_OK(qs_store_checkpoint(engine.store, QS_ERROR));
    await(QS_NOTE_DEBUG, "store: checkpoint 1, up to LSN ");
    atomic_store(&noting, NULL);
    engine_close(&engine);
    engine.options.checkpoint_bytes = 64u << 10;
    engine_open(&engine);
    atomic_store(&noting, &engine);
    for (unsigned i = 0; i < 40; i++) {
        QS_CHECK_OK(try_publish(&engine));
    }
    QS_CHECK_OK(qs_store_sync(engine.store, QS_ERROR));
    await(QS_NOTE_DEBUG, "checkpoint 2, up to LSN ");
    stop(&engine);
}

QS_TEST(test_full_disk_is_told_once_and_so_is_its_end)
{
    struct engine engine;
    unsigned count = 0;

    start(&engine, false);
    qsi_env_ram_limit(engine.memory, qsi_env_ram_used(engine.memory) + (1u << 20));
    while (try_publish(&engine) == QS_OK) {
        QS_CHECK(++count < 2000);
    }
    await(QS_NOTE_WARNING, "the disk is full");
    QS_CHECK(try_publish(&engine) == QS_ESTORE_FULL);
    QS_CHECK(count_of(QS_NOTE_INFO, "there is space") == 0);
    qsi_env_ram_limit(engine.memory, UINT64_MAX);
    while (try_publish(&engine) != QS_OK) { /* the disk is looked at now and then */
        qsi_env_mem_advance(engine.memory, SECOND / 10);
    }
    qsi_env_mem_advance(engine.memory, 2 * SECOND);
    QS_CHECK_OK(try_publish(&engine));
    while (count_of(QS_NOTE_INFO, "there is space on the disk again") == 0) {
        qsi_env_mem_advance(engine.memory, SECOND);
        usleep(2000);
    }
    QS_CHECK(count_of(QS_NOTE_WARNING, "the disk is full") == 1);
    stop(&engine);
}

/* Until it has marked where the journal ends, and sleeps until it is called. */
static void await_idle_committer(struct engine *engine)
{
    qsi_store_lock(engine->store);
    while (!engine->store->commit.committer_sleeps) {
        qsi_cond_wait(&engine->store->commit.durable, &engine->store->mutex, SECOND / 1000);
    }
    qsi_store_unlock(engine->store);
}

QS_TEST(test_failure_is_told_at_its_moment)
{
    struct engine engine;
    qs_env *env;

    start(&engine, true);
    env = engine.env;
    await_idle_committer(&engine); /* or it meets the fault before anything is published */
    qsi_env_fault_arm(env, QSI_FAULT_SYNC, QSI_FAULT_EIO, 1, true);
    QS_CHECK_OK(try_publish(&engine)); /* nobody waits for it, and nobody calls again */
    await(QS_NOTE_ERROR, "the store has failed");
    QS_CHECK(count_of(QS_NOTE_ERROR, "") == 1);
    qsi_env_fault_arm(env, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
    atomic_store(&noting, NULL);
    qs_channel_close(engine.channel);
    QS_CHECK_STATUS(QS_ESTORE_FAILED, qs_store_close(engine.store, QS_ERROR));
    engine_fini(&engine);
}
