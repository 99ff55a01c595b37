/* Descriptors that no stray output of the host reaches. */
#ifndef QSI_ABOVE_STDIO_H
#define QSI_ABOVE_STDIO_H

/* Off the numbers of the standard streams; -1 with errno set, and fd closed, on failure. */
int qsi_move_above_stdio(int fd);

#endif
