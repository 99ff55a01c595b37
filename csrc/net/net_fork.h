/* Sockets of this process.  A child of fork() closes its copies at once.  Otherwise a client would
 * not see the parent's end, and the address would stay in use. */
#ifndef QSI_NET_FORK_H
#define QSI_NET_FORK_H

#include <stdbool.h>
#include <stdint.h>

struct sockaddr;

/* The number of forks between the first process and this one. */
uint32_t qsi_net_fork_generation(void);

/* Call it before the first socket of a process. */
void qsi_net_fork_prepare(void);

/* Creates a socket for a stream, non-blocking and close-on-exec; -1 with errno set.  qsi_net_accept
 * does likewise. */
int qsi_net_socket(int family);
int qsi_net_accept(int listener_fd, struct sockaddr *peer_out, unsigned *peer_bytes);
/* Registers a descriptor that the caller made; false: no memory, and fd is closed. */
bool qsi_net_adopt(int fd);
/* Unregisters a descriptor: the caller owns it from now on, and a child keeps its copy. */
void qsi_net_release(int fd);
void qsi_net_close(int fd); /* negative: does nothing */

#endif
