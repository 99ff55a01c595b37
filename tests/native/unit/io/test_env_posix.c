/* The posix environment on real files: what it makes, and what it refuses to open. */
#define _GNU_SOURCE 1
#include "qstore/env.h"

#include "qs_test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static qs_env *env;
static unsigned times_asked;
static char base[256]; /* a fresh directory for each test */
static qs_dir *root;

/* In place of the C library's: like every stat but statx, it asks for the times. */
int fstat(int fd, struct stat *stat_out)
{
    times_asked++;
    return fstatat(fd, "", stat_out, AT_EMPTY_PATH);
}

static void path_of(char *path, const char *name)
{
    snprintf(path, 512, "%s/%s", base, name);
}

static mode_t mode_of(const char *name)
{
    char path[512];
    struct stat stat;

    path_of(path, name);
    QS_CHECK(lstat(path, &stat) == 0);
    return stat.st_mode & 07777;
}

static void set_up(void)
{
    bool created;

    qs_test_make_dir(base, sizeof base);
    QS_CHECK_OK(env->dir_open_root(env, base, false, &root, &created, QS_ERROR));
    QS_CHECK(!created);
}

static void tear_down(void)
{
    env->dir_close(env, root);
    qs_test_remove_dir(base);
}

static void run(void (*test)(void))
{
    set_up();
    test();
    tear_down();
}
#define DIR_TEST(name) QS_TEST_BY(run, name, (void))

static qs_file *create_file(const char *name)
{
    qs_file *file;

    QS_CHECK_OK(env->open(env, root, name, QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &file, QS_ERROR));
    return file;
}

static void write_text(qs_file *file, const char *text, uint64_t offset)
{
    qs_part part = {text, strlen(text)};
    size_t written;

    QS_CHECK_OK(env->write(env, file, &part, 1, offset, &written, QS_ERROR));
    QS_CHECK(written == part.bytes);
}

/* -- roots and directories -------------------------------------------------------------------- */

DIR_TEST(test_missing_root_is_made_only_on_request)
{
    char path[512];
    qs_dir *dir;
    bool created;

    path_of(path, "store");
    QS_CHECK_STATUS(QS_ENOENT, env->dir_open_root(env, path, false, &dir, &created, QS_ERROR));
    QS_CHECK(dir == NULL && !created);
    QS_CHECK_OK(env->dir_open_root(env, path, true, &dir, &created, QS_ERROR));
    QS_CHECK(created && mode_of("store") == 0700);
    QS_CHECK_OK(env->dir_sync_parent(env, dir, QS_ERROR));
    QS_CHECK_OK(env->dir_sync(env, dir, QS_ERROR));
    env->dir_close(env, dir);
    QS_CHECK_OK(env->dir_open_root(env, path, true, &dir, &created, QS_ERROR));
    QS_CHECK(!created);
    env->dir_close(env, dir);
    path_of(path, "no/store");
    QS_CHECK_STATUS(QS_ENOENT, env->dir_open_root(env, path, true, &dir, &created, QS_ERROR));
    env->dir_close(env, NULL);
}

DIR_TEST(test_root_that_others_can_write_is_refused_and_told_to_chmod)
{
    qs_dir *dir;
    bool created;

    QS_CHECK(chmod(base, 0770) == 0);
    QS_CHECK_STATUS(QS_EINVAL, env->dir_open_root(env, base, true, &dir, &created, QS_ERROR));
    QS_CHECK(dir == NULL && strstr(QS_ERROR->text, "chmod") != NULL);
    QS_CHECK(chmod(base, 0702) == 0);
    QS_CHECK_STATUS(QS_EINVAL, env->dir_open_root(env, base, true, &dir, &created, QS_ERROR));
    QS_CHECK(chmod(base, 0755) == 0);
    QS_CHECK_OK(env->dir_open_root(env, base, true, &dir, &created, QS_ERROR));
    env->dir_close(env, dir);
}

/* Only the superuser can give a directory away; elsewhere "/" serves, which is nobody else's. */
DIR_TEST(test_root_of_another_user_is_refused)
{
    const char *path = "/";
    char other[512];
    qs_dir *dir;
    bool created;

    if (geteuid() == 0) {
        path_of(other, "other");
        QS_CHECK(mkdir(other, 0700) == 0 && chown(other, 12345, 12345) == 0);
        path = other;
    }
    QS_CHECK_STATUS(QS_EINVAL, env->dir_open_root(env, path, true, &dir, &created, QS_ERROR));
    QS_CHECK(dir == NULL && strstr(QS_ERROR->text, "chown") != NULL);
}

DIR_TEST(test_sub_directory_is_made_once_and_never_through_a_link)
{
    char path[512];
    qs_dir *dir;
    bool created;

    QS_CHECK_STATUS(QS_ENOENT, env->dir_open(env, root, "q", false, &dir, &created, QS_ERROR));
    QS_CHECK_OK(env->dir_open(env, root, "q", true, &dir, &created, QS_ERROR));
    QS_CHECK(created && mode_of("q") == 0700);
    env->dir_close(env, dir);
    QS_CHECK_OK(env->dir_open(env, root, "q", true, &dir, &created, QS_ERROR));
    QS_CHECK(!created);
    env->dir_close(env, dir);
    path_of(path, "link");
    QS_CHECK(symlink("q", path) == 0);
    QS_CHECK_STATUS(QS_EIO, env->dir_open(env, root, "link", true, &dir, &created, QS_ERROR));
    QS_CHECK_OK(env->remove(env, root, "q", QS_ERROR));
    QS_CHECK_STATUS(QS_ENOENT, env->remove(env, root, "q", QS_ERROR));
}

static bool collect_name(void *context, const char *name)
{
    char *names = context;

    strcat(strcat(names, name), " ");
    return true;
}

static bool stop_at_once(void *context, const char *name)
{
    (void)name;
    ++*(int *)context;
    return false;
}

DIR_TEST(test_list_tells_every_name_each_time)
{
    char names[100] = "";
    int count = 0;

    env->close(env, create_file("b"));
    env->close(env, create_file("a"));
    for (int i = 0; i < 2; i++) {
        names[0] = '\0';
        QS_CHECK_OK(env->dir_list(env, root, collect_name, names, QS_ERROR));
        QS_CHECK(strcmp(names, "a b ") == 0 || strcmp(names, "b a ") == 0);
    }
    QS_CHECK_OK(env->dir_list(env, root, stop_at_once, &count, QS_ERROR));
    QS_CHECK(count == 1);
}

/* -- names ------------------------------------------------------------------------------------ */

DIR_TEST(test_name_that_leaves_the_directory_is_refused)
{
    char too_long[QS_NAME_BYTES_MAX + 2] = {0};
    const char *names[] = {"", ".", "..", "a/b", "/a", too_long};
    qs_file *file;
    qs_dir *dir;
    uint64_t pid;
    bool created;

    memset(too_long, 'n', QS_NAME_BYTES_MAX + 1);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *name = names[i];
        uint32_t flags = QS_OPEN_WRITE | QS_OPEN_CREATE_NEW;

        QS_CHECK_STATUS(QS_EINVAL, env->open(env, root, name, flags, &file, QS_ERROR));
        QS_CHECK_STATUS(QS_EINVAL, env->dir_open(env, root, name, true, &dir, &created, QS_ERROR));
        QS_CHECK_STATUS(QS_EINVAL, env->rename(env, root, name, "x", QS_ERROR));
        QS_CHECK_STATUS(QS_EINVAL, env->rename(env, root, "x", name, QS_ERROR));
        QS_CHECK_STATUS(QS_EINVAL, env->remove(env, root, name, QS_ERROR));
        QS_CHECK_STATUS(QS_EINVAL, env->lock(env, root, name, &file, &pid, QS_ERROR));
    }
}

DIR_TEST(test_rename_replaces_and_remove_removes)
{
    qs_file *file = create_file("old");

    env->close(env, create_file("new"));
    write_text(file, "x", 0);
    env->close(env, file);
    QS_CHECK_OK(env->rename(env, root, "old", "new", QS_ERROR));
    QS_CHECK_STATUS(QS_ENOENT, env->rename(env, root, "old", "new", QS_ERROR));
    QS_CHECK_OK(env->remove(env, root, "new", QS_ERROR));
    QS_CHECK_STATUS(QS_ENOENT, env->remove(env, root, "new", QS_ERROR));
    QS_CHECK(strcmp(QS_ERROR->path, "new") == 0 && QS_ERROR->os_errno == ENOENT);
}

/* -- files ------------------------------------------------------------------------------------ */

DIR_TEST(test_modes_do_not_depend_on_the_umask)
{
    const mode_t masks[] = {0, 0077, 0777};
    char file_name[8] = "f0";
    char dir_name[8] = "d0";
    char lock_name[8] = "l0";

    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        mode_t before = umask(masks[i]);
        qs_file *lock;
        qs_dir *dir;
        uint64_t pid;
        bool created;

        file_name[1] = dir_name[1] = lock_name[1] = (char)('0' + i);
        env->close(env, create_file(file_name));
        QS_CHECK_OK(env->dir_open(env, root, dir_name, true, &dir, &created, QS_ERROR));
        QS_CHECK_OK(env->lock(env, root, lock_name, &lock, &pid, QS_ERROR));
        umask(before);
        env->dir_close(env, dir);
        env->close(env, lock);
        QS_CHECK(mode_of(file_name) == 0600);
        QS_CHECK(mode_of(lock_name) == 0600);
        QS_CHECK(mode_of(dir_name) == 0700);
    }
}

DIR_TEST(test_written_bytes_are_read_back)
{
    qs_part parts[] = {{"ab", 2}, {NULL, 0}, {"cde", 3}};
    qs_file *file = create_file("a");
    char text[10];
    size_t count;
    uint64_t bytes;

    QS_CHECK_OK(env->write(env, file, parts, 3, 10, &count, QS_ERROR));
    QS_CHECK(count == 5);
    QS_CHECK_OK(env->size(env, file, &bytes, QS_ERROR));
    QS_CHECK(bytes == 15);
    QS_CHECK_OK(env->read(env, file, text, sizeof text, 9, &count, QS_ERROR));
    QS_CHECK(count == 6 && memcmp(text, "\0abcde", 6) == 0);
    QS_CHECK_OK(env->read(env, file, text, sizeof text, 15, &count, QS_ERROR));
    QS_CHECK(count == 0);
    env->begin_sync(env, file, 0, 15);
    QS_CHECK_OK(env->sync(env, file, QS_ERROR));
    QS_CHECK_STATUS(QS_EINVAL, env->read(env, file, text, 1, UINT64_MAX, &count, QS_ERROR));
    QS_CHECK_STATUS(QS_EINVAL, env->write(env, file, parts, 1, UINT64_MAX, &count, QS_ERROR));
    env->close(env, file);
    env->close(env, NULL);
}

DIR_TEST(test_allocate_never_shrinks_and_truncate_does)
{
    qs_file *file = create_file("a");
    uint64_t bytes;

    QS_CHECK_OK(env->allocate(env, file, 0, QS_ERROR));
    QS_CHECK_OK(env->allocate(env, file, 100000, QS_ERROR));
    QS_CHECK_OK(env->allocate(env, file, 10, QS_ERROR));
    QS_CHECK_OK(env->size(env, file, &bytes, QS_ERROR));
    QS_CHECK(bytes == 100000);
    QS_CHECK_OK(env->truncate(env, file, 10, QS_ERROR));
    QS_CHECK_OK(env->size(env, file, &bytes, QS_ERROR));
    QS_CHECK(bytes == 10);
    QS_CHECK_STATUS(QS_EINVAL, env->allocate(env, file, UINT64_MAX, QS_ERROR));
    QS_CHECK_STATUS(QS_EINVAL, env->truncate(env, file, UINT64_MAX, QS_ERROR));
    env->close(env, file);
}

DIR_TEST(test_open_minds_its_flags)
{
    qs_file *file = create_file("a");
    qs_part part = {"x", 1};
    size_t count;

    env->close(env, file);
    QS_CHECK_STATUS(QS_EEXIST,
                    env->open(env, root, "a", QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &file, QS_ERROR));
    QS_CHECK(file == NULL);
    QS_CHECK_STATUS(QS_ENOENT, env->open(env, root, "b", QS_OPEN_WRITE, &file, QS_ERROR));
    QS_CHECK_STATUS(QS_EINVAL, env->open(env, root, "a", 0, &file, QS_ERROR));
    QS_CHECK_STATUS(QS_EINVAL,
                    env->open(env, root, "b", QS_OPEN_READ | QS_OPEN_CREATE_NEW, &file, QS_ERROR));
    QS_CHECK_OK(env->open(env, root, "a", QS_OPEN_READ, &file, QS_ERROR));
    QS_CHECK_STATUS(QS_EIO, env->write(env, file, &part, 1, 0, &count, QS_ERROR));
    env->close(env, file);
}

static void check_refused(const char *name, const char *word)
{
    const uint32_t flags[] = {QS_OPEN_READ, QS_OPEN_WRITE};
    qs_file *file;
    uint64_t pid;

    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        QS_CHECK_STATUS(QS_EIO, env->open(env, root, name, flags[i], &file, QS_ERROR));
        QS_CHECK(file == NULL && strcmp(QS_ERROR->path, name) == 0);
        QS_CHECK(strstr(QS_ERROR->text, word) != NULL);
    }
    QS_CHECK_STATUS(QS_EIO, env->lock(env, root, name, &file, &pid, QS_ERROR));
}

/* Linux 6.13 and later write the inode at the next sync, even of the data alone. */
DIR_TEST(test_commit_does_not_write_the_inode_because_its_times_were_asked_for)
{
    qs_file *file = create_file("a");

    QS_CHECK(times_asked > 0); /* so the count is one */
    times_asked = 0;
    QS_CHECK_OK(env->check_linked(env, file, QS_ERROR));
    QS_CHECK(times_asked == 0);
    QS_CHECK_OK(env->remove(env, root, "a", QS_ERROR));
    QS_CHECK_STATUS(QS_EIO, env->check_linked(env, file, QS_ERROR));
    env->close(env, file);
}

DIR_TEST(test_what_only_looks_like_a_file_is_refused)
{
    char path[512];
    char other[512];

    path_of(path, "fifo");
    QS_CHECK(mkfifo(path, 0600) == 0);
    alarm(20); /* a hang ends the test */
    check_refused("fifo", "regular");
    alarm(0);
    env->close(env, create_file("file"));
    path_of(other, "link");
    QS_CHECK(symlink("file", other) == 0);
    check_refused("link", "symbolic link");
    path_of(path, "file");
    path_of(other, "hard");
    QS_CHECK(link(path, other) == 0);
    check_refused("hard", "hard links");
    path_of(path, "dir");
    QS_CHECK(mkdir(path, 0700) == 0);
    check_refused("dir", "dir");
}

/* -- descriptors ------------------------------------------------------------------------------ */

#define FD_COUNT 64

static int check_new_descriptors(const bool *was_open)
{
    int problems = 0;

    for (int fd = 0; fd < FD_COUNT; fd++) {
        int flags = fcntl(fd, F_GETFD);

        if (flags != -1 && !was_open[fd]) {
            problems += fd <= STDERR_FILENO || (flags & FD_CLOEXEC) == 0;
        }
    }
    return problems;
}

static int open_some_and_check(void)
{
    bool was_open[FD_COUNT];
    qs_file *file;
    qs_file *lock;
    qs_dir *dir;
    uint64_t pid;
    bool created;
    int problems;

    for (int fd = 0; fd < FD_COUNT; fd++) {
        was_open[fd] = fcntl(fd, F_GETFD) != -1;
    }
    file = create_file("a");
    QS_CHECK_OK(env->dir_open_root(env, base, false, &dir, &created, QS_ERROR));
    QS_CHECK_OK(env->lock(env, root, "LOCK", &lock, &pid, QS_ERROR));
    problems = check_new_descriptors(was_open);
    env->close(env, lock);
    env->close(env, file);
    env->dir_close(env, dir);
    QS_CHECK_OK(env->remove(env, root, "a", QS_ERROR));
    return problems;
}

DIR_TEST(test_descriptors_are_closed_by_exec)
{
    QS_CHECK(open_some_and_check() == 0);
}

/* In a child, because it closes the standard streams. */
DIR_TEST(test_descriptors_are_above_the_standard_ones_that_the_host_closed)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        for (int fd = 0; fd <= STDERR_FILENO; fd++) {
            close(fd);
        }
        _exit(open_some_and_check());
    }
    QS_CHECK(waitpid(child, &status, 0) == child);
    QS_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* -- clock and randomness --------------------------------------------------------------------- */

DIR_TEST(test_clock_goes_on_and_random_differs)
{
    uint64_t before = env->monotonic_ns(env);
    uint8_t first[32] = {0};
    uint8_t second[32] = {0};

    QS_CHECK(env->monotonic_ns(env) >= before);
    QS_CHECK(env->wall_us(env) > UINT64_C(1500000000000000));
    QS_CHECK_OK(env->random(env, first, sizeof first, QS_ERROR));
    QS_CHECK_OK(env->random(env, second, sizeof second, QS_ERROR));
    QS_CHECK(memcmp(first, second, sizeof first) != 0);
}

int main(void)
{
    env = qs_env_posix();
    QS_CHECK(env->version == QS_ENV_VERSION);
    qs_test_run_all();
    return 0;
}
