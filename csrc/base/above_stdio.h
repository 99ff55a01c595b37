/* Moves descriptors above the standard streams, so that stray output of the host does not reach
 * them. */
#ifndef QSI_ABOVE_STDIO_H
#define QSI_ABOVE_STDIO_H

/* Moves fd above the numbers of the standard streams; -1 with errno set, and fd closed, on
 * failure. */
int qsi_move_above_stdio(int fd);

#endif
