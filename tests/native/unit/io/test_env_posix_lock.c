/* The lock of a directory in the posix environment: one owner whatever becomes of the file, none
 * through a forked child; and whether what is written still has a name. */
#define _GNU_SOURCE 1
#include "qstore/env.h"

#include "qs_test.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

static qs_env *env;
static char base[256]; /* a fresh directory for each test */
static qs_dir *root;

static void path_of(char *path, const char *name)
{
    snprintf(path, 512, "%s/%s", base, name);
}

static bool exists(const char *name)
{
    char path[512];

    path_of(path, name);
    return access(path, F_OK) == 0;
}

static void run(void (*test)(void))
{
    bool created;

    qs_test_make_dir(base, sizeof base);
    QS_CHECK_OK(env->dir_open_root(env, base, false, &root, &created, QS_ERROR));
    test();
    env->dir_close(env, root);
    qs_test_remove_dir(base);
}
#define DIR_TEST(name) QS_TEST_BY(run, name, (void))

static qs_file *create_file(const char *name)
{
    qs_file *file;

    QS_CHECK_OK(env->open(env, root, name, QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &file, QS_ERROR));
    return file;
}

/* -- the lock --------------------------------------------------------------------------------- */

DIR_TEST(test_lock_is_refused_in_the_same_process)
{
    qs_file *lock;
    qs_file *second;
    uint64_t pid;

    QS_CHECK_OK(env->lock(env, root, "LOCK", &lock, &pid, QS_ERROR));
    QS_CHECK_STATUS(QS_ESTORE_LOCKED, env->lock(env, root, "LOCK", &second, &pid, QS_ERROR));
    QS_CHECK(second == NULL && pid == (uint64_t)getpid());
    env->close(env, lock);
    QS_CHECK_OK(env->lock(env, root, "LOCK", &lock, &pid, QS_ERROR));
    env->close(env, lock);
}

/* A child that holds the lock until it is told to end. */
static pid_t start_owner(int *stop_out)
{
    int ready[2];
    int stop[2];
    char byte;
    pid_t child;

    QS_CHECK(pipe2(ready, O_CLOEXEC) == 0 && pipe2(stop, O_CLOEXEC) == 0);
    child = fork();
    if (child == 0) {
        qs_file *lock;
        uint64_t pid;

        close(stop[1]);
        QS_CHECK_OK(env->lock(env, root, "LOCK", &lock, &pid, QS_ERROR));
        QS_CHECK(write(ready[1], "r", 1) == 1);
        _exit(read(stop[0], &byte, 1) == 0 ? 0 : 1);
    }
    close(ready[1]);
    close(stop[0]);
    QS_CHECK(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    *stop_out = stop[1];
    return child;
}

DIR_TEST(test_lock_tells_the_owner_and_dies_with_it)
{
    qs_file *lock;
    uint64_t pid;
    int stop;
    int status;
    pid_t child = start_owner(&stop);

    QS_CHECK_STATUS(QS_ESTORE_LOCKED, env->lock(env, root, "LOCK", &lock, &pid, QS_ERROR));
    QS_CHECK(pid == (uint64_t)child);
    QS_CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    close(stop);
    QS_CHECK_OK(env->lock(env, root, "LOCK", &lock, &pid, QS_ERROR));
    env->close(env, lock);
}

/* Forks while the lock is held; the child closes its copy, or keeps it past the parent's close. */
DIR_TEST(test_lock_is_the_parents_to_release_and_not_a_forked_childs)
{
    qs_file *lock;
    qs_file *second;
    uint64_t pid;
    int status;
    int stop[2];
    char byte;
    pid_t child;

    QS_CHECK_OK(env->lock(env, root, "LOCK", &lock, &pid, QS_ERROR));
    child = fork();
    if (child == 0) {
        env->close(env, lock);
        _exit(0);
    }
    QS_CHECK(waitpid(child, &status, 0) == child && status == 0);
    QS_CHECK_STATUS(QS_ESTORE_LOCKED, env->lock(env, root, "LOCK", &second, &pid, QS_ERROR));

    QS_CHECK(pipe2(stop, O_CLOEXEC) == 0);
    child = fork();
    if (child == 0) {
        close(stop[1]);
        _exit(read(stop[0], &byte, 1) == 0 ? 0 : 1);
    }
    env->close(env, lock);
    QS_CHECK_OK(env->lock(env, root, "LOCK", &lock, &pid, QS_ERROR));
    env->close(env, lock);
    close(stop[0]);
    close(stop[1]);
    QS_CHECK(waitpid(child, &status, 0) == child && status == 0);
}

DIR_TEST(test_a_removed_lock_file_lets_no_second_owner_in)
{
    qs_file *lock;
    qs_file *second;
    uint64_t pid;
    int stop;
    int status;
    pid_t child = start_owner(&stop);

    QS_CHECK_OK(env->remove(env, root, "LOCK", QS_ERROR));
    QS_CHECK_STATUS(QS_ESTORE_LOCKED, env->lock(env, root, "LOCK", &lock, &pid, QS_ERROR));
    QS_CHECK(pid == (uint64_t)child || pid == 0); /* 0: /proc/locks names another device */
    QS_CHECK(!exists("LOCK"));                    /* it is not made before it is needed */
    QS_CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    close(stop);
    QS_CHECK_OK(env->lock(env, root, "LOCK", &lock, &pid, QS_ERROR));
    QS_CHECK_OK(env->remove(env, root, "LOCK", QS_ERROR));
    QS_CHECK_STATUS(QS_ESTORE_LOCKED, env->lock(env, root, "LOCK", &second, &pid, QS_ERROR));
    QS_CHECK_OK(env->check_linked(env, lock, QS_ERROR)); /* the directory is what counts */
    env->close(env, lock);
}

DIR_TEST(test_a_lock_file_that_is_locked_alone_is_respected)
{
    char path[512];
    qs_file *lock;
    uint64_t pid;
    int fd;

    path_of(path, "LOCK");
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    QS_CHECK(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
    QS_CHECK_STATUS(QS_ESTORE_LOCKED, env->lock(env, root, "LOCK", &lock, &pid, QS_ERROR));
    close(fd);
    QS_CHECK_OK(env->lock(env, root, "LOCK", &lock, &pid, QS_ERROR));
    env->close(env, lock);
}

DIR_TEST(test_readers_share_the_lock_and_make_no_file)
{
    qs_file *first;
    qs_file *second;
    qs_file *owner;
    uint64_t pid;

    (void)env->remove(env, root, "LOCK", NULL);
    QS_CHECK_OK(env->lock_shared(env, root, "LOCK", &first, &pid, QS_ERROR));
    QS_CHECK_OK(env->lock_shared(env, root, "LOCK", &second, &pid, QS_ERROR));
    QS_CHECK(!exists("LOCK"));
    env->close(env, first);
    QS_CHECK_STATUS(QS_ESTORE_LOCKED, env->lock(env, root, "LOCK", &owner, &pid, QS_ERROR));
    env->close(env, second);
    QS_CHECK_OK(env->lock(env, root, "LOCK", &owner, &pid, QS_ERROR));
    QS_CHECK_STATUS(QS_ESTORE_LOCKED, env->lock_shared(env, root, "LOCK", &first, &pid, QS_ERROR));
    env->close(env, owner);
}

/* A child that was forked and has not run yet still has its copies. */
static qs_file *lock_soon(void)
{
    qs_file *lock;
    uint64_t pid;

    while (env->lock(env, root, "LOCK", &lock, &pid, NULL) != QS_OK) {
        usleep(1000);
    }
    return lock;
}

struct forker {
    int go_on;
    atomic_bool stop;
};

/* Forks children that live until the pipe is closed. */
static void *fork_children(void *argument)
{
    struct forker *forker = argument;
    char byte;

    for (int i = 0; i < 40 && !atomic_load(&forker->stop); i++) {
        if (fork() == 0) {
            _exit(read(forker->go_on, &byte, 1) == 0 ? 0 : 1);
        }
    }
    return NULL;
}

/* The owner dies while children of it live on that were forked before, in the middle of, and after
 * its taking the lock. */
DIR_TEST(test_children_that_outlive_the_owner_keep_no_lock)
{
    for (int round = 0; round < 20; round++) {
        qs_file *lock;
        uint64_t pid;
        int status;
        int go_on[2];
        pid_t owner;

        QS_CHECK(pipe2(go_on, O_CLOEXEC) == 0);
        owner = fork();
        if (owner == 0) {
            struct forker forker = {.go_on = go_on[0]};
            pthread_t thread;
            close(go_on[1]);
            QS_CHECK(pthread_create(&thread, NULL, fork_children, &forker) == 0);
            for (int i = 0; i < round; i++) {
                sched_yield();
            }
            QS_CHECK_OK(env->lock(env, root, "LOCK", &lock, &pid, QS_ERROR));
            atomic_store(&forker.stop, true);
            QS_CHECK(pthread_join(thread, NULL) == 0);
            if (fork() == 0) {
                char byte;
                _exit(read(go_on[0], &byte, 1) == 0 ? 0 : 1);
            }
            _exit(0); /* without giving the lock back */
        }
        QS_CHECK(waitpid(owner, &status, 0) == owner && status == 0);
        lock = lock_soon();
        env->close(env, lock);
        close(go_on[0]);
        close(go_on[1]);
    }
}

/* -- what is written here, would the next owner find it? --------------------------------------- */

DIR_TEST(test_a_file_that_was_removed_is_told)
{
    qs_file *file = create_file("a");

    QS_CHECK_OK(env->check_linked(env, file, QS_ERROR));
    QS_CHECK_OK(env->rename(env, root, "a", "b", QS_ERROR));
    QS_CHECK_OK(env->check_linked(env, file, QS_ERROR));
    QS_CHECK_OK(env->remove(env, root, "b", QS_ERROR));
    QS_CHECK_STATUS(QS_EIO, env->check_linked(env, file, QS_ERROR));
    env->close(env, file);
}

/* A directory of its own, two levels down: base/over/store. */
static qs_file *lock_below(const char *over, const char *store)
{
    qs_file *lock;
    qs_dir *dir;
    uint64_t pid;
    bool created;

    QS_CHECK(mkdir(over, 0700) == 0);
    QS_CHECK_OK(env->dir_open_root(env, store, true, &dir, &created, QS_ERROR));
    QS_CHECK_OK(env->lock(env, dir, "LOCK", &lock, &pid, QS_ERROR));
    QS_CHECK_OK(env->check_linked(env, lock, QS_ERROR));
    env->dir_close(env, dir);
    return lock;
}

static void remove_below(const char *store)
{
    char path[600];

    snprintf(path, sizeof path, "%s/LOCK", store);
    QS_CHECK(unlink(path) == 0 && rmdir(store) == 0);
}

DIR_TEST(test_a_directory_that_was_moved_or_removed_is_told)
{
    char over[512], moved[512], store[512], away[512];
    qs_file *lock;

    path_of(over, "over");
    path_of(moved, "moved");
    path_of(store, "over/store");
    path_of(away, "over/away");
    lock = lock_below(over, store);
    QS_CHECK(rename(over, moved) ==
             0); /* with all that is in it: the store is where it was in there */
    QS_CHECK_OK(env->check_linked(env, lock, QS_ERROR));
    QS_CHECK(rename(moved, over) == 0);
    QS_CHECK(rename(store, away) == 0);
    QS_CHECK_STATUS(QS_EIO, env->check_linked(env, lock, QS_ERROR));
    QS_CHECK(mkdir(store, 0700) == 0);
    QS_CHECK_STATUS(QS_EIO, env->check_linked(env, lock, QS_ERROR));
    QS_CHECK(rmdir(store) == 0 && rename(away, store) == 0);
    QS_CHECK_OK(env->check_linked(env, lock, QS_ERROR));
    remove_below(store);
    QS_CHECK_STATUS(QS_EIO, env->check_linked(env, lock, QS_ERROR));
    env->close(env, lock);
    QS_CHECK(rmdir(over) == 0);
}

int main(void)
{
    env = qs_env_posix();
    qs_test_run_all();
    return 0;
}
