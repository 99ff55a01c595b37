/* Clocks that are set, a disk that does not answer, file systems by name.
 *
 * The wall clock is the memory environment's with some seconds added; a sync may be made to wait.
 */
#include "engine_fixture.h"
#include "file_system.h"

#include <pthread.h>

#define US UINT64_C(1000000)
#define HOUR (UINT64_C(3600) * US)
#define DAY (24 * HOUR)
#define YEAR (365 * DAY)

static qs_env turned;
static qs_env *inner;
static _Atomic int64_t wall_ahead_us;
static bool is_stuck; /* syncs wait; under the mutex, like what follows */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static char warning[1024];
static unsigned warning_count;

static uint64_t turned_wall_us(qs_env *env)
{
    (void)env;
    return inner->wall_us(inner) + (uint64_t)wall_ahead_us;
}

static qs_status stuck_sync(qs_env *env, qs_file *file, qs_error *error)
{
    (void)env;
    pthread_mutex_lock(&mutex);
    while (is_stuck) {
        pthread_cond_wait(&changed, &mutex);
    }
    pthread_mutex_unlock(&mutex);
    return inner->sync(inner, file, error);
}

static void note_warning(void *context, uint32_t level, const char *what)
{
    QS_CHECK(context == &warning);
    if (level != QS_NOTE_WARNING) {
        return;
    }
    pthread_mutex_lock(&mutex);
    snprintf(warning, sizeof warning, "%s", what);
    warning_count += 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void start(struct engine *engine, bool background)
{
    engine_init(engine, IN_MEMORY);
    inner = engine->memory;
    turned = *inner;
    turned.wall_us = turned_wall_us;
    turned.sync = stuck_sync;
    wall_ahead_us = 0;
    warning_count = 0;
    engine->env = &turned;
    engine->options.background = background;
    engine->options.note = note_warning;
    engine->options.note_context = &warning;
    engine_open(engine);
    declare(engine, "q", QS_DURABLE);
}

QS_TEST_FIXTURE(run_with_clock, struct engine, start(&fixture, false), engine_stop(&fixture))
#define CLOCK_TEST(name) QS_TEST_BY(run_with_clock, name, (struct engine * engine))
QS_TEST_FIXTURE(run_with_timer, struct engine, start(&fixture, true), engine_stop(&fixture))
#define TIMER_TEST(name) QS_TEST_BY(run_with_timer, name, (struct engine * engine))

/* A message that lives for an hour. */
static void publish_for_an_hour(struct engine *engine, const char *body)
{
    static const uint8_t blob[] = {0x11, 0, 2, 7, '3', '6', '0', '0', '0', '0', '0'};

    publish_to(engine, "", "q", (qs_slice){blob, sizeof blob}, text(body));
}

static int64_t ahead_s(struct engine *engine)
{
    int64_t ahead_us = stats_of(engine).clock_ahead_us;

    return (ahead_us + (ahead_us < 0 ? -500000 : 500000)) / (int64_t)US;
}

CLOCK_TEST(test_messages_outlive_a_clock_that_jumps_ten_years_while_the_store_is_open)
{
    publish_for_an_hour(engine, "before");
    wall_ahead_us = (int64_t)(10 * YEAR);
    publish_for_an_hour(engine, "behind");
    check_counts(engine, "q", 2, 0);
    QS_CHECK(ahead_s(engine) == 10 * 365 * 86400);
    wall_ahead_us = -(int64_t)(10 * YEAR);
    check_counts(engine, "q", 2, 0);
    qsi_env_mem_advance(inner, 3590 * SECOND);
    get(engine, "q", "before");
    qsi_env_mem_advance(inner, 20 * SECOND);
    get_nothing(engine, "q"); /* an hour is an hour */
}

CLOCK_TEST(test_messages_outlive_a_clock_that_jumps_ten_years_between_sessions_until_asked)
{
    publish_for_an_hour(engine, "kept");
    engine_close(engine);
    wall_ahead_us = (int64_t)(10 * YEAR);
    engine_open(engine);
    QS_CHECK(ahead_s(engine) == 10 * 365 * 86400);
    check_counts(engine, "q", 1, 0);
    engine_reopen(engine); /* nobody asked: as before */
    QS_CHECK(ahead_s(engine) == 10 * 365 * 86400);
    get_flags(engine, "q", "kept", QS_NO_ACK);
    publish_for_an_hour(engine, "dropped");
    QS_CHECK_OK(qs_store_accept_clock(engine->store, QS_ERROR));
    QS_CHECK(ahead_s(engine) == 0);
    get_nothing(engine, "q");
    engine_reopen(engine);
    QS_CHECK(ahead_s(engine) == 0);
}

QS_TEST(test_accepted_clock_is_known_after_a_crash)
{
    struct engine engine, dead;
    qs_env *dead_env;

    start(&engine, false);
    wall_ahead_us = (int64_t)YEAR;
    QS_CHECK_OK(qs_store_accept_clock(engine.store, QS_ERROR));
    publish_for_an_hour(&engine, "kept");
    QS_CHECK_OK(qs_store_sync(engine.store, QS_ERROR));
    dead = engine;
    dead_env = inner;
    inner = qsi_env_mem_clone(dead_env, 2);
    turned = *inner;
    turned.wall_us = turned_wall_us;
    engine.memory = inner;
    engine_open(&engine);
    QS_CHECK(ahead_s(&engine) == 0);
    check_counts(&engine, "q", 1, 0);
    engine_stop(&engine);
    inner = dead_env;
    turned = *inner;
    turned.wall_us = turned_wall_us;
    engine_stop(&dead);
}

CLOCK_TEST(test_messages_expire_while_the_store_is_closed)
{
    publish_for_an_hour(engine, "gone");
    engine_close(engine);
    wall_ahead_us = (int64_t)(29 * DAY);
    engine_open(engine);
    QS_CHECK(ahead_s(engine) == 0);
    get_nothing(engine, "q");
}

CLOCK_TEST(test_time_does_not_go_back_with_the_clock)
{
    publish_for_an_hour(engine, "gone");
    engine_close(engine);
    wall_ahead_us = -(int64_t)DAY;
    engine_open(engine);
    QS_CHECK(ahead_s(engine) == -86400);
    qsi_env_mem_advance(inner, 3590 * SECOND);
    check_counts(engine, "q", 1, 0);
    qsi_env_mem_advance(inner, 20 * SECOND);
    get_nothing(engine, "q"); /* though the clock says that it has a day left */
}

/* ---- told by a thread ---- */

/* The first one says so. */
static void await_warning(const char *part)
{
    pthread_mutex_lock(&mutex);
    while (warning_count < 1) {
        pthread_cond_wait(&changed, &mutex);
    }
    QS_CHECK(strstr(warning, part) != NULL);
    pthread_mutex_unlock(&mutex);
}

static void set_stuck(bool stuck)
{
    pthread_mutex_lock(&mutex);
    is_stuck = stuck;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

/* Other threads sync, too: until it is the commit. */
static void await_commit(struct engine *engine)
{
    while (stats_of(engine).commit_running_ms == 0) {
        qsi_env_mem_advance(inner, SECOND / 100);
        usleep(1000);
    }
}

/* A message that expires sooner than others wakes the timer, which would wake by itself later. */
TIMER_TEST(test_sync_that_stalls_is_told_while_it_does_and_nothing_is_confirmed)
{
    qs_receipt receipt;

    set_stuck(true);
    receipt = publish(engine, "q", "waits");
    await_commit(engine);
    QS_CHECK(stats_of(engine).commit_stalls == 0);
    qsi_env_mem_advance(inner, 31 * SECOND);
    publish_for_an_hour(engine, "wakes the timer");
    await_warning("store: a commit has waited for the disk for 31 s");
    QS_CHECK(stats_of(engine).commit_running_ms >= 31000 && stats_of(engine).commit_stalls == 1);
    QS_CHECK(qs_store_durable_lsn(engine->store) < receipt.lsn);
    set_stuck(false);
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    QS_CHECK(qs_store_durable_lsn(engine->store) >= receipt.lsn);
    QS_CHECK(stats_of(engine).commit_running_ms == 0 && stats_of(engine).commit_stalls == 1);
}

TIMER_TEST(test_stall_that_ends_while_nobody_watches_counts)
{
    set_stuck(true);
    publish(engine, "q", "waits");
    await_commit(engine);
    qsi_env_mem_advance(inner, 31 * SECOND);
    set_stuck(false);
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    QS_CHECK(stats_of(engine).commit_stalls == 1);
}

TIMER_TEST(test_clock_that_is_set_is_told)
{
    wall_ahead_us = (int64_t)YEAR;
    publish_for_an_hour(engine, "wakes the timer");
    await_warning("clock was set");
}

/* ---- what a store lies in ---- */

QS_TEST(test_file_systems_are_known_by_their_numbers)
{
    static const struct {
        uint32_t magic, kind;
        const char *name;
    } cases[] = {{0xef53, QS_FS_LOCAL, "ext4"},         {0x58465342, QS_FS_LOCAL, "xfs"},
                 {0x01021994, QS_FS_VOLATILE, "tmpfs"}, {0x6969, QS_FS_NETWORK, "nfs"},
                 {0xff534d42, QS_FS_NETWORK, "cifs"},   {0x65735546, QS_FS_UNKNOWN, "fuse"},
                 {0x01021997, QS_FS_NETWORK, "9p"},     {0x12345678, QS_FS_UNKNOWN, "0x12345678"}};
    qs_file_system system;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        qsi_file_system_of(cases[i].magic, &system);
        QS_CHECK(system.kind == cases[i].kind && strcmp(system.name, cases[i].name) == 0);
    }
}

QS_TEST(test_stats_tell_the_file_system)
{
    struct engine engine;

    engine_start(&engine, ON_DISK);
    QS_CHECK(stats_of(&engine).file_system.name[0] != '\0');
    engine_stop(&engine);
    start(&engine, false);
    QS_CHECK(stats_of(&engine).file_system.name[0] == '\0');
    engine_stop(&engine);
}
