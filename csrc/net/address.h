/* Addresses of sockets, and listening at them. */
#ifndef QSI_ADDRESS_H
#define QSI_ADDRESS_H

#include "qstore/server.h"

#include <stdbool.h>
#include <sys/socket.h>

/* Opens a listening socket; bound_out is the address in numbers.  Returns the statuses of
 * qs_server_listen. */
qs_status qsi_address_listen(int *fd_out, char bound_out[QS_ADDRESS_BYTES], const char *address,
                             qs_error *error) QS_MUST_CHECK;

/* Whether the address is a descriptor passed to this process ("fd:NUMBER").  The process that
 * passed it has bound it, and removes its name. */
bool qsi_address_is_passed(const char *address);

/* Removes the name of a socket in the file system. */
void qsi_address_unlisten(const char *bound);

/* Writes "127.0.0.1:40000", "[::1]:40000", or "unix". */
void qsi_address_text(char text_out[QS_ADDRESS_BYTES], const struct sockaddr *address);

/* Whether the address is local to this machine: loopback, or a socket in the file system. */
bool qsi_address_is_loopback(const struct sockaddr *address);

#endif
