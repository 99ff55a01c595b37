/* The fault environment: each kind counts its calls, each way of failing does what it says, and all
 * other calls pass through. */
#include "env_test.h"
#include "qs_test.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static qs_env *inner; /* a sim: it does all that a memory environment does */
static qs_env *env;
static qs_dir *root;
static qs_file *file;

/* A root whose entry is not synced, with an empty file. */
static void set_up(void)
{
    bool created;

    inner = qsi_env_sim_create(1);
    env = qsi_env_fault_create(inner);
    QS_CHECK_OK(env->dir_open_root(env, "/r", true, &root, &created, QS_ERROR));
    QS_CHECK_OK(env->open(env, root, "a", QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &file, QS_ERROR));
}

static void tear_down(void)
{
    env->close(env, file);
    env->dir_close(env, root);
    qsi_env_fault_destroy(env);
    qsi_env_sim_destroy(inner);
}

static void run(void (*test)(void))
{
    set_up();
    test();
    tear_down();
}
#define FAULT_TEST(name) QS_TEST_BY(run, name, (void))

/* -- one function per call of the environment ------------------------------------------------- */

static qs_status call_open(void)
{
    qs_file *other;
    qs_status status = env->open(env, root, "a", QS_OPEN_READ, &other, QS_ERROR);

    QS_CHECK((other == NULL) == (status != QS_OK));
    env->close(env, other);
    return status;
}

static qs_status call_lock(void)
{
    qs_file *lock;
    uint64_t pid;
    qs_status status = env->lock(env, root, "LOCK", &lock, &pid, QS_ERROR);

    QS_CHECK((lock == NULL) == (status != QS_OK));
    env->close(env, lock);
    return status;
}

static qs_status call_dir_open(void)
{
    qs_dir *dir;
    bool created;
    qs_status status = env->dir_open(env, root, "d", true, &dir, &created, QS_ERROR);

    env->dir_close(env, dir);
    return status;
}

static qs_status call_dir_open_root(void)
{
    qs_dir *dir;
    bool created;
    qs_status status = env->dir_open_root(env, "/r", false, &dir, &created, QS_ERROR);

    env->dir_close(env, dir);
    return status;
}

static qs_status call_read(void)
{
    char data[4];
    size_t count;

    return env->read(env, file, data, sizeof data, 0, &count, QS_ERROR);
}

static qs_status call_size(void)
{
    uint64_t bytes;

    return env->size(env, file, &bytes, QS_ERROR);
}

static bool visit_none(void *context, const char *name)
{
    (void)context;
    (void)name;
    return false;
}

static qs_status call_dir_list(void)
{
    return env->dir_list(env, root, visit_none, NULL, QS_ERROR);
}

static qs_status call_write(void)
{
    qs_part part = {"data", 4};
    size_t count;

    return env->write(env, file, &part, 1, 0, &count, QS_ERROR);
}

static qs_status call_sync(void)
{
    return env->sync(env, file, QS_ERROR);
}

static qs_status call_dir_sync(void)
{
    return env->dir_sync(env, root, QS_ERROR);
}

static qs_status call_dir_sync_parent(void)
{
    return env->dir_sync_parent(env, root, QS_ERROR);
}

static qs_status call_allocate(void)
{
    return env->allocate(env, file, 100, QS_ERROR);
}

static qs_status call_truncate(void)
{
    return env->truncate(env, file, 10, QS_ERROR);
}

static qs_status call_rename(void)
{
    return env->rename(env, root, "a", "a", QS_ERROR);
}

/* Of a file that is there, also when the call before failed. */
static qs_status call_remove(void)
{
    qs_file *doomed;
    qs_status status =
        inner->open(inner, root, "x", QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &doomed, QS_ERROR);

    QS_CHECK(status == QS_OK || status == QS_EEXIST);
    inner->close(inner, doomed);
    return env->remove(env, root, "x", QS_ERROR);
}

static qs_status call_check_linked(void)
{
    return env->check_linked(env, file, QS_ERROR);
}

static qs_status call_random(void)
{
    uint8_t byte;

    return env->random(env, &byte, 1, QS_ERROR);
}

static const struct call {
    enum qsi_fault_kind kind;
    qs_status (*make)(void);
} calls[] = {
    {QSI_FAULT_OPEN, call_open},
    {QSI_FAULT_OPEN, call_lock},
    {QSI_FAULT_OPEN, call_dir_open},
    {QSI_FAULT_OPEN, call_dir_open_root},
    {QSI_FAULT_READ, call_read},
    {QSI_FAULT_READ, call_size},
    {QSI_FAULT_READ, call_dir_list},
    {QSI_FAULT_WRITE, call_write},
    {QSI_FAULT_SYNC, call_sync},
    {QSI_FAULT_DIR_SYNC, call_dir_sync},
    {QSI_FAULT_DIR_SYNC, call_dir_sync_parent},
    {QSI_FAULT_ALLOCATE, call_allocate},
    {QSI_FAULT_ALLOCATE, call_truncate},
    {QSI_FAULT_RENAME, call_rename},
    {QSI_FAULT_REMOVE, call_remove},
    {QSI_FAULT_RANDOM, call_random},
    {QSI_FAULT_CHECK_LINKED, call_check_linked},
};

FAULT_TEST(test_every_call_fails_under_its_kind_and_under_no_other)
{
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        for (int kind = QSI_FAULT_ANY; kind <= QSI_FAULT_CHECK_LINKED; kind++) {
            bool counts = kind == QSI_FAULT_ANY || kind == (int)calls[i].kind;

            qsi_env_fault_arm(env, (enum qsi_fault_kind)kind, QSI_FAULT_EIO, 1, false);
            QS_CHECK_STATUS(counts ? QS_EIO : QS_OK, calls[i].make());
            QS_CHECK(qsi_env_fault_fired(env) == counts);
            QS_CHECK(qsi_env_fault_calls(env) == (counts ? 1u : 0u));
        }
    }
}

FAULT_TEST(test_status_is_that_of_the_way_it_fails)
{
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        qsi_env_fault_arm(env, calls[i].kind, QSI_FAULT_ENOSPC, 1, false);
        QS_CHECK_STATUS(QS_ENOSPC, calls[i].make());
        QS_CHECK_OK(calls[i].make());
        qsi_env_fault_arm(env, calls[i].kind, QSI_FAULT_EINTR, 1, false);
        QS_CHECK_STATUS(QS_EINTR, calls[i].make());
        QS_CHECK_OK(calls[i].make());
        qsi_env_fault_arm(env, calls[i].kind, QSI_FAULT_SHORT, 1, false);
        QS_CHECK_OK(calls[i].make());
        QS_CHECK(qsi_env_fault_fired(env));
    }
}

FAULT_TEST(test_only_the_nth_call_fails_unless_it_is_sticky)
{
    qsi_env_fault_arm(env, QSI_FAULT_WRITE, QSI_FAULT_EIO, 3, false);
    QS_CHECK_OK(call_write());
    QS_CHECK_OK(call_read());
    QS_CHECK_OK(call_write());
    QS_CHECK(!qsi_env_fault_fired(env));
    QS_CHECK_STATUS(QS_EIO, call_write());
    QS_CHECK_OK(call_write());
    QS_CHECK(qsi_env_fault_fired(env) && qsi_env_fault_calls(env) == 4);

    qsi_env_fault_arm(env, QSI_FAULT_WRITE, QSI_FAULT_ENOSPC, 2, true);
    QS_CHECK_OK(call_write());
    QS_CHECK_STATUS(QS_ENOSPC, call_write());
    QS_CHECK_STATUS(QS_ENOSPC, call_write());

    qsi_env_fault_arm(env, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, true);
    QS_CHECK_OK(call_write());
    QS_CHECK(!qsi_env_fault_fired(env) && qsi_env_fault_calls(env) == 1);
}

FAULT_TEST(test_sticky_interruption_lets_every_second_call_through)
{
    qsi_env_fault_arm(env, QSI_FAULT_READ, QSI_FAULT_EINTR, 1, true);
    for (int i = 0; i < 3; i++) {
        QS_CHECK_STATUS(QS_EINTR, call_read());
        QS_CHECK_OK(call_read());
    }
}

FAULT_TEST(test_short_transfers_do_half_and_never_nothing)
{
    qs_part parts[] = {{"", 0}, {"abc", 3}, {"defg", 4}};
    char text[10];
    size_t count;

    qsi_env_fault_arm(env, QSI_FAULT_WRITE, QSI_FAULT_SHORT, 1, true);
    QS_CHECK_OK(env->write(env, file, parts, 3, 0, &count, QS_ERROR));
    QS_CHECK(count == 4);
    QS_CHECK_OK(env->write(env, file, parts, 2, 4, &count, QS_ERROR));
    QS_CHECK(count == 2);
    parts[1].bytes = 1;
    QS_CHECK_OK(env->write(env, file, parts, 2, 6, &count, QS_ERROR));
    QS_CHECK(count == 1);
    qsi_env_fault_arm(env, QSI_FAULT_READ, QSI_FAULT_SHORT, 1, true);
    QS_CHECK_OK(env->read(env, file, text, 7, 0, &count, QS_ERROR));
    QS_CHECK(count == 4 && memcmp(text, "abcd", 4) == 0);
    QS_CHECK_OK(env->read(env, file, text, 1, 6, &count, QS_ERROR));
    QS_CHECK(count == 1 && text[0] == 'a');
}

FAULT_TEST(test_broken_write_lands_half_and_fails_next_time)
{
    qs_part part = {"abcdef", 6};
    qs_file *other;
    uint64_t bytes;
    size_t count;

    qsi_env_fault_arm(env, QSI_FAULT_WRITE, QSI_FAULT_SHORT_EIO, 1, false);
    QS_CHECK_OK(env->open(env, root, "b", QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &other, QS_ERROR));
    QS_CHECK_OK(env->write(env, file, &part, 1, 0, &count, QS_ERROR));
    QS_CHECK(count == 3);
    QS_CHECK_OK(env->write(env, other, &part, 1, 0, &count, QS_ERROR));
    QS_CHECK(count == 6);
    QS_CHECK_STATUS(QS_EIO, env->write(env, file, &part, 1, 3, &count, QS_ERROR));
    QS_CHECK_OK(env->size(env, file, &bytes, QS_ERROR));
    QS_CHECK(bytes == 3);
    QS_CHECK_OK(env->write(env, file, &part, 1, 3, &count, QS_ERROR));
    env->close(env, other);
    qsi_env_fault_arm(env, QSI_FAULT_SYNC, QSI_FAULT_SHORT_EIO, 1, false);
    QS_CHECK_STATUS(QS_EIO, call_sync());
}

FAULT_TEST(test_clocks_pass_through_uncounted)
{
    uint64_t now = inner->monotonic_ns(inner);

    qsi_env_fault_arm(env, QSI_FAULT_ANY, QSI_FAULT_EIO, 1, true);
    QS_CHECK(env->monotonic_ns(env) == now + 1000);
    QS_CHECK(env->wall_us(env) == inner->wall_us(inner));
    QS_CHECK(qsi_env_fault_calls(env) == 0);
}

/* -- lost syncs ------------------------------------------------------------------------------- */

#define NOT_THERE UINT64_MAX

/* The size that only what is durable has. */
static uint64_t durable_size(void)
{
    qs_env *disk = qsi_env_sim_cut(inner, QSI_CUT_DROP_ALL, 1);
    qs_dir *dir = NULL;
    qs_file *copy = NULL;
    uint64_t bytes = NOT_THERE;
    bool created;

    if (disk->dir_open_root(disk, "/r", false, &dir, &created, NULL) == QS_OK &&
        disk->open(disk, dir, "a", QS_OPEN_READ, &copy, NULL) == QS_OK) {
        QS_CHECK_OK(disk->size(disk, copy, &bytes, QS_ERROR));
    }
    disk->close(disk, copy);
    disk->dir_close(disk, dir);
    qsi_env_mem_destroy(disk);
    return bytes;
}

static void sync_all_but(qs_status (*one)(void))
{
    qs_status (*const syncs[])(void) = {call_sync, call_dir_sync, call_dir_sync_parent};

    QS_CHECK_OK(call_write());
    for (size_t i = 0; i < COUNT_OF(syncs); i++) {
        if (syncs[i] != one) {
            QS_CHECK_OK(syncs[i]());
        }
    }
    qsi_env_fault_arm(env, QSI_FAULT_ANY, QSI_FAULT_SYNC_LOST, 1, false);
    QS_CHECK_STATUS(QS_EIO, one());
    QS_CHECK_OK(one()); /* the lie that nobody may believe */
}

FAULT_TEST(test_lost_file_sync_loses_the_bytes)
{
    sync_all_but(call_sync);
    QS_CHECK(durable_size() == 0);
}

FAULT_TEST(test_lost_directory_sync_loses_the_name)
{
    sync_all_but(call_dir_sync);
    QS_CHECK(durable_size() == NOT_THERE);
}

FAULT_TEST(test_lost_parent_sync_loses_the_root)
{
    sync_all_but(call_dir_sync_parent);
    QS_CHECK(durable_size() == NOT_THERE);
}

FAULT_TEST(test_all_synced_is_all_there)
{
    sync_all_but(call_random); /* which has nothing to lose */
    QS_CHECK(durable_size() == 4);
}

QS_TEST(test_lost_sync_without_a_sim_is_a_failed_one)
{
    qs_env *mem = qsi_env_mem_create(1);
    qs_env *fault = qsi_env_fault_create(mem);
    qs_dir *dir;
    bool created;

    QS_CHECK_OK(fault->dir_open_root(fault, "/r", true, &dir, &created, QS_ERROR));
    qsi_env_fault_arm(fault, QSI_FAULT_ANY, QSI_FAULT_SYNC_LOST, 1, false);
    QS_CHECK_STATUS(QS_EIO, fault->dir_sync(fault, dir, QS_ERROR));
    QS_CHECK_OK(fault->dir_sync(fault, dir, QS_ERROR));
    fault->dir_close(fault, dir);
    qsi_env_fault_destroy(fault);
    qsi_env_mem_destroy(mem);
}

int main(void)
{
    qs_test_run_all();
    qsi_env_fault_destroy(NULL);
    return 0;
}
