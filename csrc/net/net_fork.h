/* Sockets, and what a child of fork() does with its copies: it closes them at once.  Otherwise a
 * client would not hear that the parent has gone, and the address would stay taken. */
#ifndef QSI_NET_FORK_H
#define QSI_NET_FORK_H

#include <stdbool.h>
#include <stdint.h>

struct sockaddr;

/* How often this process was made by a fork. */
uint32_t qsi_net_fork_generation(void);

/* Before the first socket of a process. */
void qsi_net_fork_prepare(void);

/* Non-blocking and close-on-exec; -1 with errno set. */
int qsi_net_socket(int family, int type);
int qsi_net_accept(int listener_fd, struct sockaddr *peer_out, unsigned *peer_bytes);
/* A descriptor that the caller made; false: there is no memory, and fd is closed. */
bool qsi_net_adopt(int fd);
/* It is the caller's from now on, and a child keeps its copy. */
void qsi_net_release(int fd);
void qsi_net_close(int fd); /* negative: nothing */

#endif
