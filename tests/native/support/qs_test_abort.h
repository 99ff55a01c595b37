/* A broken invariant ends the process: tried in a child. */
#ifndef QS_TEST_ABORT_H
#define QS_TEST_ABORT_H

#include "qs_test.h"

#include <signal.h>
#include <sys/wait.h>

/* Does function(argument) end in an assertion?  It is tried in a process of its own, whose last
 * words nobody reads, and which does not wait for ever. */
static inline bool qs_test_aborts(void (*function)(void *), void *argument)
{
    int status;
    pid_t child;

    fflush(stdout);
    child = fork();
    QS_CHECK(child >= 0);
    if (child == 0) {
        QS_CHECK(freopen("/dev/null", "w", stderr) != NULL);
        alarm(60);
        function(argument);
        _exit(0);
    }
    QS_CHECK(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

#endif
