/* Checks and small helpers for the C tests; one executable per file, exit status 1 at the first
 * failure. */
#ifndef QS_TEST_H
#define QS_TEST_H

#include "qstore/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define QS_CHECK(cond)                                                               \
    do {                                                                             \
        if (!(cond)) {                                                               \
            fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #cond); \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

/* Give QS_ERROR to the call, and QS_CHECK_OK tells its text when the call fails.  Weak: one for
 * all files of a test. */
__attribute__((weak)) _Thread_local qs_error qs_test_error;
#define QS_ERROR (&qs_test_error)
#define QS_CHECK_OK(call) QS_CHECK_STATUS(QS_OK, call)
#define QS_CHECK_STATUS(expected, call)                                                            \
    do {                                                                                           \
        qs_status qs_test_status;                                                                  \
        qs_test_error.text[0] = '\0';                                                              \
        qs_test_status = (call);                                                                   \
        if (qs_test_status != (expected)) {                                                        \
            fprintf(stderr, "%s:%d: %s: %s, not %s: %s\n", __FILE__, __LINE__, #call,              \
                    qs_status_name(qs_test_status), qs_status_name(expected), qs_test_error.text); \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* The first argument, or 1.  Printed, so that a failure can be repeated. */
static inline uint64_t qs_test_seed(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;

    printf("seed %" PRIu64 "\n", seed);
    fflush(stdout);
    return seed;
}

/* A new directory on disk that only its owner can use; path holds its name. */
static inline void qs_test_make_dir(char *path, size_t path_bytes)
{
    const char *base = getenv("TMPDIR");

    snprintf(path, path_bytes, "%s/qstore-test-XXXXXX", base != NULL ? base : "/tmp");
    QS_CHECK(mkdtemp(path) != NULL);
}

/* Removes the directory and all below it. */
static inline void qs_test_remove_dir(const char *path)
{
    char command[512];

    QS_CHECK(strchr(path, '\'') == NULL);
    snprintf(command, sizeof command, "rm -rf -- '%s'", path);
    QS_CHECK(system(command) == 0);
}

#endif
