/* What comes through the descriptor of qs_env.watch. */
#ifndef QSI_DRAIN_H
#define QSI_DRAIN_H

/* Reads what is there, so that it can be waited for again.  fd -1: nothing is. */
void qsi_drain_fd(int fd);

#endif
