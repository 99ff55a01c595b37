/* The environments in memory, that of stores without files and that of the tests: the contract of
 * env.h without a disk; of the latter the clock and clones as well. */
#include "env_test.h"
#include "qs_test_alloc.h"

#include <pthread.h>

#define THREAD_COUNT 4
#define ROUND_COUNT 300

static qs_env *env;
static qs_dir *root;

static void set_up(qs_env *tested)
{
    bool created;

    QS_CHECK(tested != NULL);
    env = tested;
    QS_CHECK_OK(env->dir_open_root(env, "/any/path", true, &root, &created, QS_ERROR));
    QS_CHECK(created);
}

static void tear_down(void)
{
    env->dir_close(env, root);
}

static void run_on_tests_memory(void (*test)(void))
{
    set_up(qsi_env_mem_create(qs_test_seed_given));
    test();
    tear_down();
    qsi_env_mem_destroy(env);
}
#define TESTS_MEMORY_TEST(name) QS_TEST_BY(run_on_tests_memory, name, (void))

/* In the memory of tests, and in that of stores. */
static void run(void (*test)(void))
{
    run_on_tests_memory(test);
    set_up(qs_env_memory_create());
    test();
    tear_down();
    qs_env_memory_destroy(env);
}
#define MEMORY_TEST(name) QS_TEST_BY(run, name, (void))

static qs_file *create_file(const char *name, const char *text)
{
    qs_part part = {text, strlen(text)};
    qs_file *file;
    size_t written;

    QS_CHECK_OK(env->open(env, root, name, QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &file, QS_ERROR));
    QS_CHECK_OK(env->write(env, file, &part, 1, 0, &written, QS_ERROR));
    QS_CHECK(written == part.bytes);
    return file;
}

static void check_text(qs_env *any, qs_file *file, const char *text)
{
    char data[100];
    size_t count;

    QS_CHECK_OK(any->read(any, file, data, sizeof data, 0, &count, QS_ERROR));
    QS_CHECK(count == strlen(text) && memcmp(data, text, count) == 0);
}

MEMORY_TEST(test_files_behave_as_on_disk)
{
    qs_file *file = create_file("a", "hello");
    qs_file *reader;
    qs_part parts[] = {{"X", 1}, {"", 0}, {"YZ", 2}};
    uint64_t bytes;
    size_t count;
    char byte;

    QS_CHECK_OK(env->write(env, file, parts, 3, 1, &count, QS_ERROR));
    QS_CHECK(count == 3);
    QS_CHECK_OK(env->open(env, root, "a", QS_OPEN_READ, &reader, QS_ERROR));
    check_text(env, reader, "hXYZo");
    QS_CHECK_STATUS(QS_EIO, env->write(env, reader, parts, 1, 0, &count, QS_ERROR));
    QS_CHECK_OK(env->read(env, reader, &byte, 1, 5, &count, QS_ERROR));
    QS_CHECK(count == 0);
    QS_CHECK_OK(env->allocate(env, file, 10, QS_ERROR));
    QS_CHECK_OK(env->allocate(env, file, 7, QS_ERROR));
    QS_CHECK_OK(env->size(env, reader, &bytes, QS_ERROR));
    QS_CHECK(bytes == 10);
    QS_CHECK_OK(env->truncate(env, file, 2, QS_ERROR));
    check_text(env, reader, "hX");
    QS_CHECK_OK(env->sync(env, file, QS_ERROR));
    env->close(env, file);
    env->close(env, reader);
    env->close(env, NULL);
}

MEMORY_TEST(test_names_behave_as_on_disk)
{
    qs_file *old = create_file("old", "old");
    qs_file *file;
    qs_dir *dir;
    bool created;

    env->close(env, create_file("new", "new"));
    QS_CHECK_STATUS(QS_EEXIST, env->open(env, root, "new", QS_OPEN_WRITE | QS_OPEN_CREATE_NEW,
                                         &file, QS_ERROR));
    QS_CHECK_OK(env->rename(env, root, "new", "old", QS_ERROR));
    QS_CHECK_OK(env->rename(env, root, "old", "old", QS_ERROR));
    check_text(env, old, "old"); /* a handle keeps its file */
    QS_CHECK_OK(env->open(env, root, "old", QS_OPEN_WRITE, &file, QS_ERROR));
    check_text(env, file, "new");
    QS_CHECK_OK(env->remove(env, root, "old", QS_ERROR));
    check_text(env, file, "new");
    env->close(env, file);
    env->close(env, old);
    QS_CHECK_STATUS(QS_ENOENT, env->open(env, root, "old", QS_OPEN_READ, &file, QS_ERROR));
    QS_CHECK_STATUS(QS_ENOENT, env->remove(env, root, "old", QS_ERROR));
    QS_CHECK_STATUS(QS_ENOENT, env->rename(env, root, "old", "x", QS_ERROR));
    QS_CHECK_STATUS(QS_EINVAL, env->remove(env, root, "a/b", QS_ERROR));
    QS_CHECK_STATUS(QS_EINVAL, env->dir_open(env, root, "..", true, &dir, &created, QS_ERROR));
}

MEMORY_TEST(test_directories_behave_as_on_disk)
{
    qs_file *file = create_file("file", "");
    qs_dir *dir;
    qs_dir *again;
    qs_dir *outer = root;
    bool created;

    env->close(env, file);
    QS_CHECK_STATUS(QS_ENOENT, env->dir_open(env, root, "q", false, &dir, &created, QS_ERROR));
    QS_CHECK_OK(env->dir_open(env, root, "q", true, &dir, &created, QS_ERROR));
    QS_CHECK(created);
    QS_CHECK_OK(env->dir_open(env, root, "q", true, &again, &created, QS_ERROR));
    QS_CHECK(!created);
    env->dir_close(env, again);
    QS_CHECK_STATUS(QS_EIO, env->dir_open(env, root, "file", true, &again, &created, QS_ERROR));
    QS_CHECK_STATUS(QS_EIO, env->open(env, root, "q", QS_OPEN_READ, &file, QS_ERROR));
    root = dir;
    env->close(env, create_file("inner", ""));
    root = outer;
    QS_CHECK_STATUS(QS_EIO, env->remove(env, root, "q", QS_ERROR));
    QS_CHECK_STATUS(QS_EIO, env->rename(env, root, "file", "q", QS_ERROR));
    QS_CHECK_OK(env->remove(env, dir, "inner", QS_ERROR));
    QS_CHECK_OK(env->remove(env, root, "q", QS_ERROR));
    QS_CHECK_OK(env->dir_sync(env, dir, QS_ERROR));
    QS_CHECK_OK(env->dir_sync_parent(env, dir, QS_ERROR));
    env->dir_close(env, dir);
    env->dir_close(env, NULL);
}

static bool remove_name(void *context, const char *name)
{
    ++*(int *)context;
    QS_CHECK_OK(env->remove(env, root, name, QS_ERROR));
    return true;
}

MEMORY_TEST(test_visitor_may_remove_what_it_visits)
{
    char name[8] = "f0";
    int count = 0;

    for (; name[1] <= '9'; name[1]++) {
        env->close(env, create_file(name, ""));
    }
    QS_CHECK_OK(env->dir_list(env, root, remove_name, &count, QS_ERROR));
    QS_CHECK(count == 10);
    QS_CHECK_OK(env->dir_list(env, root, remove_name, &count, QS_ERROR));
    QS_CHECK(count == 10);
}

MEMORY_TEST(test_lock_is_held_until_close)
{
    qs_file *lock;
    qs_file *second;
    uint64_t pid;

    QS_CHECK_OK(env->lock(env, root, "LOCK", &lock, &pid, QS_ERROR));
    QS_CHECK_STATUS(QS_ESTORE_LOCKED, env->lock(env, root, "LOCK", &second, &pid, QS_ERROR));
    QS_CHECK(second == NULL);
    env->close(env, lock);
    QS_CHECK_OK(env->lock(env, root, "LOCK", &lock, &pid, QS_ERROR));
    env->close(env, lock);
}

MEMORY_TEST(test_readers_share_the_lock_and_an_owner_does_not)
{
    qs_file *first;
    qs_file *second;
    qs_file *owner;
    uint64_t pid;

    QS_CHECK_OK(env->lock_shared(env, root, "LOCK", &first, &pid, QS_ERROR));
    QS_CHECK_OK(env->lock_shared(env, root, "LOCK", &second, &pid, QS_ERROR));
    QS_CHECK_STATUS(QS_ENOENT, env->remove(env, root, "LOCK", QS_ERROR)); /* none was made */
    env->close(env, first);
    QS_CHECK_STATUS(QS_ESTORE_LOCKED, env->lock(env, root, "LOCK", &owner, &pid, QS_ERROR));
    env->close(env, second);
    QS_CHECK_OK(env->lock(env, root, "LOCK", &owner, &pid, QS_ERROR));
    QS_CHECK_OK(env->remove(env, root, "LOCK", QS_ERROR)); /* the directory is what is locked */
    QS_CHECK_STATUS(QS_ESTORE_LOCKED, env->lock_shared(env, root, "LOCK", &first, &pid, QS_ERROR));
    QS_CHECK_OK(env->check_linked(env, owner, QS_ERROR));
    env->close(env, owner);
}

MEMORY_TEST(test_a_file_without_a_name_is_told)
{
    qs_file *file = create_file("a", "x");

    QS_CHECK_OK(env->check_linked(env, file, QS_ERROR));
    QS_CHECK_OK(env->rename(env, root, "a", "b", QS_ERROR));
    QS_CHECK_OK(env->check_linked(env, file, QS_ERROR));
    QS_CHECK_OK(env->remove(env, root, "b", QS_ERROR));
    QS_CHECK_STATUS(QS_EIO, env->check_linked(env, file, QS_ERROR));
    env->close(env, file);
}

TESTS_MEMORY_TEST(test_clock_moves_when_told_and_never_stands_still)
{
    uint64_t start = env->monotonic_ns(env);
    uint64_t wall_us = env->wall_us(env);

    QS_CHECK(env->monotonic_ns(env) == start + 1000);
    qsi_env_mem_advance(env, 5000000);
    QS_CHECK(env->monotonic_ns(env) == start + 5002000);
    QS_CHECK(env->wall_us(env) == wall_us + 5002);
    QS_CHECK(env->wall_us(env) == wall_us + 5002);
}

TESTS_MEMORY_TEST(test_random_repeats_with_the_seed_only)
{
    uint8_t numbers[3][16];
    const uint64_t seeds[] = {7, 7, 8};

    for (size_t i = 0; i < 3; i++) {
        qs_env *other = qsi_env_mem_create(seeds[i]);

        QS_CHECK(other != NULL);
        QS_CHECK_OK(other->random(other, numbers[i], sizeof numbers[i], QS_ERROR));
        qsi_env_mem_destroy(other);
    }
    QS_CHECK(memcmp(numbers[0], numbers[1], sizeof numbers[0]) == 0);
    QS_CHECK(memcmp(numbers[0], numbers[2], sizeof numbers[0]) != 0);
    qsi_env_mem_destroy(NULL);
}

TESTS_MEMORY_TEST(test_clone_is_independent)
{
    qs_file *file = create_file("a", "one");
    qs_dir *dir;
    qs_file *copy;
    qs_part part = {"two", 3};
    size_t count;
    bool created;
    qs_env *clone = qsi_env_mem_clone(env, 1);

    QS_CHECK_OK(env->write(env, file, &part, 1, 0, &count, QS_ERROR));
    QS_CHECK_OK(clone->dir_open_root(clone, "/any/path", false, &dir, &created, QS_ERROR));
    QS_CHECK_OK(clone->open(clone, dir, "a", QS_OPEN_READ, &copy, QS_ERROR));
    check_text(clone, copy, "one");
    check_text(env, file, "two");
    clone->close(clone, copy);
    clone->dir_close(clone, dir);
    qsi_env_mem_destroy(clone);
    env->close(env, file);
}

static void *use_own_file(void *argument)
{
    const char *name = argument;

    for (int i = 0; i < ROUND_COUNT; i++) {
        qs_file *file = create_file(name, name);

        check_text(env, file, name);
        env->close(env, file);
        QS_CHECK_OK(env->remove(env, root, name, QS_ERROR));
    }
    return NULL;
}

MEMORY_TEST(test_threads_do_not_disturb_each_other)
{
    static char names[THREAD_COUNT][3] = {"t0", "t1", "t2", "t3"};
    pthread_t threads[THREAD_COUNT];

    for (int i = 0; i < THREAD_COUNT; i++) {
        QS_CHECK(pthread_create(&threads[i], NULL, use_own_file, names[i]) == 0);
    }
    for (int i = 0; i < THREAD_COUNT; i++) {
        QS_CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

/* A little of everything; stops at the first failure and leaves nothing open. */
static qs_status use_once(qs_env *any)
{
    qs_part part = {"data", 4};
    qs_dir *dir = NULL;
    qs_file *file = NULL;
    size_t count;
    bool created;
    qs_status status = any->dir_open_root(any, "/r", true, &dir, &created, QS_ERROR);

    if (status == QS_OK) {
        status = any->open(any, dir, "a", QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &file, QS_ERROR);
    }
    if (status == QS_OK) {
        status = any->write(any, file, &part, 1, 5000, &count, QS_ERROR);
    }
    if (status == QS_OK) {
        status = any->truncate(any, file, 5001, QS_ERROR);
    }
    if (status == QS_OK) {
        status = any->rename(any, dir, "a", "b", QS_ERROR);
    }
    if (status == QS_OK) {
        status = any->dir_sync(any, dir, QS_ERROR);
    }
    if (status == QS_OK) {
        status = any->remove(any, dir, "b", QS_ERROR);
    }
    any->close(any, file);
    any->dir_close(any, dir);
    return status;
}

static qs_env *create_without_seed(uint64_t seed)
{
    (void)seed;
    return qs_env_memory_create();
}

static void sweep_allocations(qs_env *(*create)(uint64_t seed), void (*destroy)(qs_env *env))
{
    struct qs_test_alloc state;
    uint64_t n = 0;

    qs_test_alloc_install(&state);
    do {
        qs_env *other;

        qs_test_alloc_arm(&state, ++n, false);
        other = create(1);
        if (other != NULL) {
            qs_status status = use_once(other);

            QS_CHECK(status == (state.has_failed ? QS_ENOMEM : QS_OK));
        }
        destroy(other);
        QS_CHECK(state.alive == 0);
    } while (state.has_failed);
    QS_CHECK(n > 10);
    qs_allocator_set(NULL);
}

QS_TEST(test_every_failed_allocation_is_reported_and_leaks_nothing)
{
    sweep_allocations(create_without_seed, qs_env_memory_destroy);
    sweep_allocations(qsi_env_mem_try_create, qsi_env_mem_destroy);
    sweep_allocations(qsi_env_sim_try_create, qsi_env_sim_destroy);
}

QS_TEST(test_memory_of_a_store_has_the_clock_of_the_machine)
{
    qs_env *first = qs_env_memory_create();
    qs_env *posix = qs_env_posix();
    uint64_t before_ns = posix->monotonic_ns(posix);
    uint64_t before_us = posix->wall_us(posix);
    qs_dir *dir;
    qs_file_system system;
    uint64_t total, left;
    uint8_t numbers[2][16];
    bool created;

    QS_CHECK(first != NULL);
    QS_CHECK(first->monotonic_ns(first) >= before_ns);
    QS_CHECK(first->monotonic_ns(first) <= posix->monotonic_ns(posix));
    QS_CHECK(first->wall_us(first) + 3600000000u > before_us);
    QS_CHECK_OK(first->random(first, numbers[0], sizeof numbers[0], QS_ERROR));
    QS_CHECK_OK(first->random(first, numbers[1], sizeof numbers[1], QS_ERROR));
    QS_CHECK(memcmp(numbers[0], numbers[1], sizeof numbers[0]) != 0);
    QS_CHECK_OK(first->dir_open_root(first, "/any", true, &dir, &created, QS_ERROR));
    QS_CHECK_OK(first->space(first, dir, &total, &left, QS_ERROR));
    QS_CHECK(left > 0 && left <= total);
    first->file_system(first, dir, &system);
    QS_CHECK(strcmp(system.name, "memory") == 0 && system.kind == QS_FS_VOLATILE);
    first->dir_close(first, dir);
    qs_env_memory_destroy(first);
    qs_env_memory_destroy(NULL);
}
