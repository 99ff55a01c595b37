/* Sockets of this process, which a child of fork() closes.
 *
 * Invariant: a socket's descriptor has its bit in the table from the call that makes it to the call
 * that closes it.  Both calls hold the mutex, and fork holds it, too. */
#define _GNU_SOURCE 1 /* accept4 */
#include "net_fork.h"

#include "alloc.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BITS 64

static struct {
    pthread_once_t once;
    pthread_mutex_t mutex;
    uint64_t *bits; /* by descriptor */
    size_t words;
    uint32_t generation;
} process = {.once = PTHREAD_ONCE_INIT, .mutex = PTHREAD_MUTEX_INITIALIZER};

static void before_fork(void)
{
    pthread_mutex_lock(&process.mutex);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&process.mutex);
}

static void after_fork_in_child(void)
{
    for (size_t word = 0; word < process.words; word++) {
        for (int bit = 0; process.bits[word] != 0; bit++) {
            if ((process.bits[word] >> bit & 1) != 0) {
                close((int)(word * BITS) + bit);
                process.bits[word] &= ~((uint64_t)1 << bit);
            }
        }
    }
    process.generation += 1;
    pthread_mutex_unlock(&process.mutex);
}

static void start_process(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void qsi_net_fork_prepare(void)
{
    pthread_once(&process.once, start_process);
}

uint32_t qsi_net_fork_generation(void)
{
    return process.generation;
}

static bool has_room_for(int fd)
{
    size_t words = ((size_t)fd / BITS + 1) * 2;
    uint64_t *bits;

    if ((size_t)fd / BITS < process.words) {
        return true;
    }
    bits = qsi_realloc(process.bits, words * sizeof *bits);
    if (bits == NULL) {
        return false;
    }
    memset(bits + process.words, 0, (words - process.words) * sizeof *bits);
    process.bits = bits;
    process.words = words;
    return true;
}

/* Registers fd.  Returns fd, or -1 with errno set and fd closed.  REQUIRES the mutex. */
static int record(int fd)
{
    if (fd < 0) {
        return fd;
    }
    if (!has_room_for(fd)) {
        close(fd);
        errno = ENOMEM;
        return -1;
    }
    process.bits[fd / BITS] |= (uint64_t)1 << fd % BITS;
    return fd;
}

int qsi_net_socket(int family)
{
    int fd;

    pthread_mutex_lock(&process.mutex);
    fd = record(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    pthread_mutex_unlock(&process.mutex);
    return fd;
}

int qsi_net_accept(int listener_fd, struct sockaddr *peer_out, unsigned *peer_bytes)
{
    int fd;

    pthread_mutex_lock(&process.mutex);
    fd = record(accept4(listener_fd, peer_out, peer_bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
    pthread_mutex_unlock(&process.mutex);
    return fd;
}

bool qsi_net_adopt(int fd)
{
    bool is_noted;

    pthread_mutex_lock(&process.mutex);
    is_noted = record(fd) == fd;
    pthread_mutex_unlock(&process.mutex);
    return is_noted;
}

void qsi_net_release(int fd)
{
    pthread_mutex_lock(&process.mutex);
    process.bits[fd / BITS] &= ~((uint64_t)1 << fd % BITS);
    pthread_mutex_unlock(&process.mutex);
}

void qsi_net_close(int fd)
{
    if (fd < 0) {
        return;
    }
    pthread_mutex_lock(&process.mutex);
    process.bits[fd / BITS] &= ~((uint64_t)1 << fd % BITS);
    close(fd);
    pthread_mutex_unlock(&process.mutex);
}
