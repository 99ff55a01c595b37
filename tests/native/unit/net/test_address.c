/* Addresses: what is taken, in what words what is not is refused, and sockets in the file
 * system. */
#include "address.h"
#include "net_fork.h"
#include "qs_test.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/un.h>

static char bound[QS_ADDRESS_BYTES];

static void refuse(const char *address, const char *words)
{
    int fd = -1;

    QS_CHECK_STATUS(QS_EINVAL, qsi_address_listen(&fd, bound, address, QS_ERROR));
    QS_CHECK(strstr(qs_test_error.text, words) != NULL);
}

QS_TEST(test_an_address_that_is_none_is_refused_with_what_to_say)
{
    refuse("", "HOST:PORT");
    refuse("5672", "HOST:PORT");
    refuse("127.0.0.1", "HOST:PORT");
    refuse("127.0.0.1:", "HOST:PORT");
    refuse("127.0.0.1:amqp", "HOST:PORT");
    refuse(":5672", "HOST:PORT");
    refuse("[]:5672", "HOST:PORT");
    refuse("::1:5672", "[ADDRESS]:PORT");
    refuse("unix:", "path");
    refuse("unix:/a/path/that/is/longer/than/the/name/of/any/socket/can/be/in/the/file/system/of/"
           "this/kernel/which/is/108/bytes",
           "107");
    refuse("no.such.host.invalid:5672", "no.such.host.invalid");
}

QS_TEST(test_a_port_beyond_65535_is_refused_and_not_cut_to_16_bits)
{
    refuse("127.0.0.1:65536", "a port is 0 to 65535");
    refuse("127.0.0.1:99999", "a port is 0 to 65535");
    refuse("127.0.0.1:00018446744073709551616", "a port is 0 to 65535");
}

static void listen_and_close(const char *address, const char *start)
{
    int fd = -1;

    QS_CHECK_OK(qsi_address_listen(&fd, bound, address, QS_ERROR));
    QS_CHECK(strncmp(bound, start, strlen(start)) == 0 && fd >= 0);
    qsi_net_close(fd);
}

QS_TEST(test_port_0_is_any_and_is_told)
{
    listen_and_close("127.0.0.1:0", "127.0.0.1:");
    QS_CHECK(strcmp(bound, "127.0.0.1:0") != 0);
    listen_and_close("127.0.0.1:000000", "127.0.0.1:");
    listen_and_close("localhost:0", "");
    QS_CHECK(strtol(strrchr(bound, ':') + 1, NULL, 10) > 0);
}

QS_TEST(test_an_address_that_is_taken_is_refused_with_its_name)
{
    int fd = -1, second = -1;
    char again[QS_ADDRESS_BYTES];

    QS_CHECK_OK(qsi_address_listen(&fd, bound, "127.0.0.1:0", QS_ERROR));
    QS_CHECK_STATUS(QS_EIO, qsi_address_listen(&second, again, bound, QS_ERROR));
    QS_CHECK(qs_test_error.os_errno == EADDRINUSE);
    QS_CHECK(strstr(qs_test_error.text, bound) != NULL &&
             strstr(qs_test_error.text, "take another port") != NULL);
    qsi_net_close(fd);
}

static void test_a_socket_in_the_file_system_is_its_owners_alone(const char *dir)
{
    char address[QS_ADDRESS_BYTES];
    struct stat stat_of;
    int fd = -1, second = -1;

    snprintf(address, sizeof address, "unix:%s/s", dir);
    QS_CHECK_OK(qsi_address_listen(&fd, bound, address, QS_ERROR));
    QS_CHECK(strcmp(bound, address) == 0);
    QS_CHECK(stat(address + 5, &stat_of) == 0 && (stat_of.st_mode & 0777) == 0600);
    QS_CHECK_STATUS(QS_EIO, qsi_address_listen(&second, bound, address, QS_ERROR));
    qsi_net_close(fd);
    /* Its process went without a word: the name is taken over. */
    QS_CHECK_OK(qsi_address_listen(&fd, bound, address, QS_ERROR));
    qsi_net_close(fd);
    qsi_address_unlisten(bound);
    QS_CHECK(stat(address + 5, &stat_of) != 0 && errno == ENOENT);
}

static void test_a_file_that_is_no_socket_is_left_alone(const char *dir)
{
    char address[QS_ADDRESS_BYTES];
    int fd = -1;
    FILE *file;

    snprintf(address, sizeof address, "unix:%s/file", dir);
    file = fopen(address + 5, "w");
    QS_CHECK(file != NULL && fclose(file) == 0);
    QS_CHECK_STATUS(QS_EIO, qsi_address_listen(&fd, bound, address, QS_ERROR));
    QS_CHECK(strstr(qs_test_error.text, "not a socket: remove it") != NULL);
    QS_CHECK(strstr(qs_test_error.text, "process") == NULL);
    QS_CHECK(access(address + 5, F_OK) == 0);
    snprintf(address, sizeof address, "unix:%s/link", dir);
    QS_CHECK(symlink("nowhere", address + 5) == 0);
    QS_CHECK_STATUS(QS_EIO, qsi_address_listen(&fd, bound, address, QS_ERROR));
    QS_CHECK(strstr(qs_test_error.text, "not a socket: remove it") != NULL);
}

static void listen_passed(int fd, const char *start)
{
    char address[QS_ADDRESS_BYTES];
    int same = -1;

    snprintf(address, sizeof address, "fd:%d", fd);
    QS_CHECK_OK(qsi_address_listen(&same, bound, address, QS_ERROR));
    QS_CHECK(same == fd && strncmp(bound, start, strlen(start)) == 0);
    QS_CHECK((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    qsi_net_close(fd);
}

static int bind_unix(const char *name, size_t bytes)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    memcpy(address.sun_path, name, bytes);
    QS_CHECK(bind(fd, (const void *)&address,
                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes)) == 0);
    QS_CHECK(listen(fd, 1) == 0);
    return fd;
}

static void test_a_socket_that_was_passed_is_taken_as_it_is(const char *dir)
{
    char path[QS_ADDRESS_BYTES - 8], name[QS_ADDRESS_BYTES];
    int tcp = socket(AF_INET, SOCK_STREAM, 0);

    QS_CHECK(listen(tcp, 1) == 0);
    listen_passed(tcp, "0.0.0.0:");
    snprintf(path, sizeof path, "%s/passed", dir);
    snprintf(name, sizeof name, "unix:%s", path);
    listen_passed(bind_unix(path, strlen(path)), name);
    QS_CHECK(strcmp(bound, name) == 0 && access(path, F_OK) == 0);
    snprintf(path, sizeof path, "@%s/abstract", dir);
    snprintf(name, sizeof name, "unix:%s", path);
    path[0] = '\0';
    listen_passed(bind_unix(path, strlen(path + 1) + 1), name);
    QS_CHECK(strcmp(bound, name) == 0);
}

static void test_a_descriptor_that_does_not_listen_is_refused_and_left(void)
{
    int pair[2], datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    char address[QS_ADDRESS_BYTES];

    refuse("fd:", "fd:NUMBER");
    refuse("fd:-1", "fd:NUMBER");
    refuse("fd:1x", "fd:NUMBER");
    refuse("fd:12345678901", "fd:NUMBER");
    refuse("fd:999999999", "listens");
    QS_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    for (int i = 0; i < 3; i++) {
        int fd = i < 2 ? pair[i] : datagrams;
        snprintf(address, sizeof address, "fd:%d", fd);
        refuse(address, "listens");
        QS_CHECK(close(fd) == 0);
    }
}

int main(void)
{
    char dir[QS_ADDRESS_BYTES / 2];

    qs_test_make_dir(dir, sizeof dir);
    qs_test_run_all();
    test_a_socket_in_the_file_system_is_its_owners_alone(dir);
    test_a_file_that_is_no_socket_is_left_alone(dir);
    test_a_socket_that_was_passed_is_taken_as_it_is(dir);
    test_a_descriptor_that_does_not_listen_is_refused_and_left();
    qs_test_remove_dir(dir);
    return 0;
}
