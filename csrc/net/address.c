/* Addresses of sockets, and listening at them. */
#include "address.h"

#include "check.h"
#include "error.h"
#include "net_fork.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define UNIX_PREFIX "unix:"
#define UNIX_PREFIX_BYTES (sizeof UNIX_PREFIX - 1)
#define PASSED_PREFIX "fd:"
#define PASSED_PREFIX_BYTES (sizeof PASSED_PREFIX - 1)
#define FD_DIGITS_MAX 9
#define BACKLOG 1024
#define PORT_MAX 65535
#define PORT_DIGITS_MAX 5
#define SOCKET_MODE 0600

/* ---- text ---- */

void qsi_address_text(char text_out[QS_ADDRESS_BYTES], const struct sockaddr *address)
{
    char host[INET6_ADDRSTRLEN] = "?";

    if (address->sa_family == AF_INET) {
        struct sockaddr_in four;
        memcpy(&four, address, sizeof four);
        inet_ntop(AF_INET, &four.sin_addr, host, sizeof host);
        snprintf(text_out, QS_ADDRESS_BYTES, "%s:%u", host, ntohs(four.sin_port));
    } else if (address->sa_family == AF_INET6) {
        struct sockaddr_in6 six;
        memcpy(&six, address, sizeof six);
        inet_ntop(AF_INET6, &six.sin6_addr, host, sizeof host);
        snprintf(text_out, QS_ADDRESS_BYTES, "[%s]:%u", host, ntohs(six.sin6_port));
    } else {
        snprintf(text_out, QS_ADDRESS_BYTES, "unix");
    }
}

static bool is_loopback_4(const uint8_t bytes[4])
{
    return bytes[0] == 127;
}

bool qsi_address_is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        struct sockaddr_in four;
        memcpy(&four, address, sizeof four);
        return is_loopback_4((const uint8_t *)&four.sin_addr);
    }
    if (address->sa_family == AF_INET6) {
        struct sockaddr_in6 six;
        memcpy(&six, address, sizeof six);
        return IN6_IS_ADDR_LOOPBACK(&six.sin6_addr) ||
               (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr) && is_loopback_4(&six.sin6_addr.s6_addr[12]));
    }
    return address->sa_family == AF_UNIX;
}

/* ---- listening ---- */

/* Whether the path has something other than a socket: a file, a directory, a link. */
static bool is_other_file(const char *address)
{
    struct stat stat;

    return strncmp(address, UNIX_PREFIX, UNIX_PREFIX_BYTES) == 0 &&
           lstat(address + UNIX_PREFIX_BYTES, &stat) == 0 && !S_ISSOCK(stat.st_mode);
}

static const char *advice_for(int os_errno, const char *address)
{
    if (os_errno == EADDRINUSE && is_other_file(address)) {
        return "what is there is not a socket: remove it, or take another path";
    }
    switch (os_errno) {
    case EADDRINUSE:
        return "another process listens there: stop it, or take another port";
    case EADDRNOTAVAIL:
        return "no interface of this machine has that address";
    case EACCES:
        return "ports below 1024, and folders of others, need rights: take another";
    default:
        return "take another address";
    }
}

static qs_status fail_listen(qs_error *error, int os_errno, const char *address)
{
    bool is_shortage = os_errno == EMFILE || os_errno == ENFILE;
    const char *advice = is_shortage ? "raise the limit" : advice_for(os_errno, address);
    qs_status status = qsi_fail(error, is_shortage ? QS_EMFILE : QS_EIO, "listen on '%s': %s; %s",
                                address, strerror(os_errno), advice);

    if (error != NULL) {
        error->os_errno = os_errno;
    }
    return status;
}

/* Returns the descriptor, or -1 with errno set. */
static int listen_at(const struct sockaddr *address, socklen_t address_bytes)
{
    int fd = qsi_net_socket(address->sa_family);
    int one = 1;
    bool is_unix = address->sa_family == AF_UNIX;
    int failed;

    if (fd < 0) {
        return -1;
    }
    if (!is_unix) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    }
    if (address->sa_family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    }
    failed = bind(fd, address, address_bytes);
    if (failed == 0 && is_unix) { /* no client can connect before listen */
        failed = chmod(((const struct sockaddr_un *)(const void *)address)->sun_path, SOCKET_MODE);
    }
    if (failed == 0) {
        failed = listen(fd, BACKLOG);
    }
    if (failed != 0) {
        int os_errno = errno;
        qsi_net_close(fd);
        errno = os_errno;
        return -1;
    }
    return fd;
}

/* Whether the path has a socket at which no process listens any more. */
static bool is_stale(const struct sockaddr_un *address)
{
    struct stat stat;
    int fd;
    bool is_refused;

    if (lstat(address->sun_path, &stat) != 0 || !S_ISSOCK(stat.st_mode)) {
        return false;
    }
    fd = qsi_net_socket(AF_UNIX);
    is_refused = fd >= 0 && connect(fd, (const void *)address, sizeof *address) != 0 &&
                 errno == ECONNREFUSED;
    qsi_net_close(fd);
    return is_refused;
}

static qs_status listen_unix(int *fd_out, const char *address, qs_error *error)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const char *path = address + UNIX_PREFIX_BYTES;

    if (path[0] == '\0' || strlen(path) >= sizeof name.sun_path) {
        return qsi_fail(error, QS_EINVAL, "listen on '%s': the path of a socket has 1 to %zu bytes",
                        address, sizeof name.sun_path - 1);
    }
    memcpy(name.sun_path, path, strlen(path) + 1);
    *fd_out = listen_at((const void *)&name, sizeof name);
    if (*fd_out < 0 && errno == EADDRINUSE && is_stale(&name)) {
        unlink(path);
        *fd_out = listen_at((const void *)&name, sizeof name);
    }
    return *fd_out >= 0 ? QS_OK : fail_listen(error, errno, address);
}

/* Splits "host:port" and "[host]:port". */
static bool split(const char *address, char *host_out, size_t host_bytes, const char **port_out)
{
    const char *colon = strrchr(address, ':');
    size_t bytes = colon != NULL ? (size_t)(colon - address) : 0;

    if (bytes >= 2 && address[0] == '[' && address[bytes - 1] == ']') {
        address += 1;
        bytes -= 2;
    } else if (bytes > 0 && memchr(address, ':', bytes) != NULL) {
        return false; /* IPv6 without brackets: the port is ambiguous */
    }
    if (bytes == 0 || bytes >= host_bytes || colon[1] == '\0' ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1)) {
        return false;
    }
    memcpy(host_out, address, bytes);
    host_out[bytes] = '\0';
    *port_out = colon + 1;
    return true;
}

/* getaddrinfo accepts larger numbers, and takes their lower 16 bits. */
static bool is_port(const char *digits)
{
    digits += strspn(digits, "0");
    return strlen(digits) <= PORT_DIGITS_MAX && strtol(digits, NULL, 10) <= PORT_MAX;
}

static qs_status listen_tcp(int *fd_out, const char *address, qs_error *error)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | AI_PASSIVE};
    struct addrinfo *found = NULL;
    char host[QS_ADDRESS_BYTES];
    const char *port;
    int failed;

    if (!split(address, host, sizeof host, &port)) {
        return qsi_fail(error, QS_EINVAL,
                        "listen on '%s': say HOST:PORT as 127.0.0.1:5672, [ADDRESS]:PORT for IPv6, "
                        "or unix:PATH",
                        address);
    }
    if (!is_port(port)) {
        return qsi_fail(error, QS_EINVAL, "listen on '%s': a port is 0 to %d", address, PORT_MAX);
    }
    failed = getaddrinfo(host, port, &hints, &found);
    if (failed != 0) {
        return qsi_fail(error, QS_EINVAL, "listen on '%s': %s", address, gai_strerror(failed));
    }
    *fd_out = listen_at(found->ai_addr, found->ai_addrlen);
    failed = errno;
    freeaddrinfo(found);
    return *fd_out >= 0 ? QS_OK : fail_listen(error, failed, address);
}

/* ---- passed sockets ---- */

bool qsi_address_is_passed(const char *address)
{
    return strncmp(address, PASSED_PREFIX, PASSED_PREFIX_BYTES) == 0;
}

/* Uses the length of the name: it may have no NUL at its end.  An abstract name begins with a NUL,
 * which is written as '@'. */
static void name_unix(char text_out[QS_ADDRESS_BYTES], const struct sockaddr_un *name,
                      socklen_t bytes)
{
    size_t path_bytes = bytes - offsetof(struct sockaddr_un, sun_path);
    bool is_abstract = path_bytes > 0 && name->sun_path[0] == '\0';
    const char *path = name->sun_path + is_abstract;

    path_bytes = strnlen(path, path_bytes - is_abstract);
    snprintf(text_out, QS_ADDRESS_BYTES, UNIX_PREFIX "%s%.*s", is_abstract ? "@" : "",
             (int)path_bytes, path);
}

/* Whether it is a listening stream socket. */
static bool listens(int fd)
{
    int type = 0, is_listening = 0;
    socklen_t bytes = sizeof type;

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_STREAM &&
           getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &bytes) == 0 && is_listening;
}

static bool make_ready(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 &&
           fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

static qs_status listen_passed(int *fd_out, char bound_out[QS_ADDRESS_BYTES], const char *address,
                               qs_error *error)
{
    const char *digits = address + PASSED_PREFIX_BYTES;
    struct sockaddr_storage name = {0};
    socklen_t bytes = sizeof name;
    int fd;

    if (*digits == '\0' || strlen(digits) > FD_DIGITS_MAX ||
        strspn(digits, "0123456789") != strlen(digits)) {
        return qsi_fail(error, QS_EINVAL, "listen on '%s': say fd:NUMBER", address);
    }
    fd = (int)strtol(digits, NULL, 10);
    if (!listens(fd) || getsockname(fd, (struct sockaddr *)&name, &bytes) != 0 ||
        (name.ss_family != AF_INET && name.ss_family != AF_INET6 && name.ss_family != AF_UNIX)) {
        return qsi_fail(error, QS_EINVAL,
                        "listen on '%s': the descriptor is no socket that listens for streams",
                        address);
    }
    if (!make_ready(fd) || !qsi_net_adopt(fd)) {
        return qsi_fail(error, QS_ENOMEM, "listen on '%s'", address);
    }
    if (name.ss_family == AF_UNIX) {
        name_unix(bound_out, (const struct sockaddr_un *)(const void *)&name, bytes);
    } else {
        qsi_address_text(bound_out, (const struct sockaddr *)&name);
    }
    *fd_out = fd;
    return QS_OK;
}

qs_status qsi_address_listen(int *fd_out, char bound_out[QS_ADDRESS_BYTES], const char *address,
                             qs_error *error)
{
    struct sockaddr_storage bound;
    socklen_t bound_bytes = sizeof bound;

    if (strncmp(address, UNIX_PREFIX, UNIX_PREFIX_BYTES) == 0) {
        snprintf(bound_out, QS_ADDRESS_BYTES, "%s", address);
        return listen_unix(fd_out, address, error);
    }
    if (qsi_address_is_passed(address)) {
        return listen_passed(fd_out, bound_out, address, error);
    }
    QS_TRY(listen_tcp(fd_out, address, error));
    if (getsockname(*fd_out, (struct sockaddr *)&bound, &bound_bytes) != 0) {
        int os_errno = errno;
        qsi_net_close(*fd_out);
        return fail_listen(error, os_errno, address);
    }
    qsi_address_text(bound_out, (const struct sockaddr *)&bound);
    return QS_OK;
}

void qsi_address_unlisten(const char *bound)
{
    if (strncmp(bound, UNIX_PREFIX, UNIX_PREFIX_BYTES) == 0) {
        unlink(bound + UNIX_PREFIX_BYTES);
    }
}
