/* Checks and small helpers for the C tests; one executable per file, exit status 1 at the first
 * failure.  Its tests run in their order in the file: QS_TEST(test_...) { ... } needs no other
 * mention.  A file without a main has that of qs_test_main.c. */
#ifndef QS_TEST_H
#define QS_TEST_H

#include "qstore/status.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The test that runs; weak: one for all files of a test. */
__attribute__((weak)) const char *qs_test_running = "main";

#define QS_CHECK(cond)                                                                      \
    do {                                                                                    \
        if (!(cond)) {                                                                      \
            fprintf(stderr, "%s:%d: check failed: %s (in %s)\n", __FILE__, __LINE__, #cond, \
                    qs_test_running);                                                       \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)

/* Give QS_ERROR to the call, and QS_CHECK_OK tells its text when the call fails.  Weak: one for
 * all files of a test. */
__attribute__((weak)) _Thread_local qs_error qs_test_error;
#define QS_ERROR (&qs_test_error)
#define QS_CHECK_OK(call) QS_CHECK_STATUS(QS_OK, call)
#define QS_CHECK_STATUS(expected, call)                                                           \
    do {                                                                                          \
        qs_status qs_test_status;                                                                 \
        qs_test_error.text[0] = '\0';                                                             \
        qs_test_status = (call);                                                                  \
        if (qs_test_status != (expected)) {                                                       \
            fprintf(stderr, "%s:%d: %s: %s, not %s: %s (in %s)\n", __FILE__, __LINE__, #call,     \
                    qs_status_name(qs_test_status), qs_status_name(expected), qs_test_error.text, \
                    qs_test_running);                                                             \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

/* Weak, as above. */
struct qs_test {
    void (*run)(void);
    const char *name;
    struct qs_test *next;
};
__attribute__((weak)) struct qs_test *qs_test_first;
__attribute__((weak)) struct qs_test **qs_test_last = &qs_test_first;
__attribute__((weak)) uint64_t qs_test_seed_given = 1;
__attribute__((weak)) uint64_t qs_test_random_state = 1; /* begins with the seed */
__attribute__((weak)) void (*qs_test_at_end)(void);      /* called behind the last test */

static inline void qs_test_add(struct qs_test *test)
{
    *qs_test_last = test;
    qs_test_last = &test->next;
}

/* What main does, where it does more: runs the tests of the file. */
static inline void qs_test_run_all(void)
{
    QS_CHECK(qs_test_first != NULL);
    for (struct qs_test *test = qs_test_first; test != NULL; test = test->next) {
        qs_test_running = test->name;
        test->run();
    }
    qs_test_running = "main";
    if (qs_test_at_end != NULL) {
        qs_test_at_end();
    }
}

/* A test with other parameters, which by() gives to it. */
#define QS_TEST_BY(by, name, parameters)                        \
    static void name parameters;                                \
    static void name##_run(void)                                \
    {                                                           \
        by(name);                                               \
    }                                                           \
    __attribute__((constructor)) static void name##_add(void)   \
    {                                                           \
        static struct qs_test test = {name##_run, #name, NULL}; \
        qs_test_add(&test);                                     \
    }                                                           \
    static void name parameters

/* Defines by(): sets a fixture up, around each test, and tears it down. */
#define QS_TEST_FIXTURE(by, type, set_up, tear_down)    \
    static inline void by(void (*test)(type * fixture)) \
    {                                                   \
        type fixture;                                   \
        set_up;                                         \
        test(&fixture);                                 \
        tear_down;                                      \
    }

static inline void qs_test_alone(void (*test)(void))
{
    test();
}
#define QS_TEST(name) QS_TEST_BY(qs_test_alone, name, (void))

static inline void qs_test_seeded(void (*test)(uint64_t seed))
{
    test(qs_test_seed_given);
}
#define QS_SEED_TEST(name) QS_TEST_BY(qs_test_seeded, name, (uint64_t seed))

static inline void qs_test_both_ways(void (*test)(bool))
{
    test(false);
    test(true);
}
#define QS_BOOL_TEST(name, parameter) QS_TEST_BY(qs_test_both_ways, name, (bool parameter))

/* The first argument, or 1.  Printed, so that a failure can be repeated. */
static inline uint64_t qs_test_seed(int argc, char **argv)
{
    qs_test_seed_given = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    qs_test_random_state = qs_test_seed_given;
    printf("seed %" PRIu64 "\n", qs_test_seed_given);
    fflush(stdout);
    return qs_test_seed_given;
}

/* 0 to limit - 1, by chance; all of it follows from the seed. */
static inline uint32_t qs_test_below(uint32_t limit)
{
    qs_test_random_state =
        qs_test_random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(qs_test_random_state >> 33) % limit;
}

/* Of a pointer to memory of malloc: it is freed at the end of its block. */
#define QS_TEST_FREED __attribute__((cleanup(qs_test_free)))
static inline void qs_test_free(void *pointer)
{
    void *memory;

    memcpy(&memory, pointer, sizeof memory);
    free(memory);
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
