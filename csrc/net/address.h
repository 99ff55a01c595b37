/* Addresses of sockets, and listening at them. */
#ifndef QSI_ADDRESS_H
#define QSI_ADDRESS_H

#include "qstore/server.h"

#include <stdbool.h>
#include <sys/socket.h>

/* A listening socket; bound_out is the address in numbers.  The statuses of qs_server_listen. */
qs_status qsi_address_listen(int *fd_out, char bound_out[QS_ADDRESS_BYTES], const char *address,
                             qs_error *error) QS_MUST_CHECK;

/* Was it bound, and is it to be removed, by the process that passed it? */
bool qsi_address_is_passed(const char *address);

/* The name of a socket in the file system goes with it. */
void qsi_address_unlisten(const char *bound);

/* "127.0.0.1:40000", "[::1]:40000", or "unix". */
void qsi_address_text(char text_out[QS_ADDRESS_BYTES], const struct sockaddr *address);

/* Is it one of this machine's own: loopback, or a socket in the file system. */
bool qsi_address_is_loopback(const struct sockaddr *address);

#endif
