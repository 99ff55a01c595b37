/* Reading the descriptor of qs_env.watch. */
#ifndef QSI_DRAIN_H
#define QSI_DRAIN_H

/* Reads all pending bytes, so that the descriptor can be waited for again.  fd -1: does nothing. */
void qsi_drain_fd(int fd);

#endif
