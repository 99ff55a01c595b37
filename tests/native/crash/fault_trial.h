/* Trying an operation again and again, each time with another of its environment calls failing, in
 * every way, or another of its allocations, until nothing fails any more. */
#ifndef FAULT_TRIAL_H
#define FAULT_TRIAL_H

#include "crash_faults.h"
#include "crash_run.h"
#include "qs_test_alloc.h"

#define FAULT_N_MAX 4000 /* a sweep that does not come to an end is a failure */

/* Each call in turn; with the sanitizer, which takes ten times as long, one in four. */
#ifdef __SANITIZE_ADDRESS__
#define FAULT_QUICK_STEP 4
#else
#define FAULT_QUICK_STEP 1
#endif

/* One try. */
struct fault_trial {
    const char *name;                /* of the operation */
    const struct crash_fault *fault; /* NULL: the n-th allocation fails */
    uint64_t n;
    uint64_t step;               /* from n to n */
    uint64_t n_least;            /* as many fail at least */
    struct crash_report *report; /* NULL: checks end the test */
    qs_env *sim, *faulty;        /* faulty is around sim, and both end with the try */
    bool has_fired;
};

static struct qs_test_alloc fault_alloc;
static uint64_t fault_leaks; /* tries that leaked */

static inline const char *fault_name(const struct fault_trial *trial)
{
    return trial->fault != NULL ? trial->fault->name : "allocation";
}

static inline void fault_begin(struct fault_trial *trial, qs_env *sim)
{
    trial->sim = sim;
    trial->faulty = qsi_env_fault_create(sim);
}

static inline void fault_end(struct fault_trial *trial)
{
    qsi_env_fault_destroy(trial->faulty);
    qsi_env_sim_destroy(trial->sim);
}

/* From here on faults may hit. */
static inline void fault_arm(struct fault_trial *trial)
{
    qs_test_error = (qs_error){0};
    if (trial->fault != NULL) {
        qsi_env_fault_arm(trial->faulty, QSI_FAULT_ANY, trial->fault->how, trial->n,
                          trial->fault->is_sticky);
    } else {
        qs_test_alloc_arm(&fault_alloc, trial->n, false);
    }
}

/* Up to here; did one? */
static inline void fault_disarm(struct fault_trial *trial)
{
    trial->has_fired =
        trial->fault != NULL ? qsi_env_fault_fired(trial->faulty) : fault_alloc.has_failed;
    qsi_env_fault_arm(trial->faulty, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
    qs_test_alloc_arm(&fault_alloc, 0, false);
}

static inline void fault_tell(const struct fault_trial *trial, const char *what)
{
    crash_violation(trial->report, "%s, %s %" PRIu64 ": %s: %s", trial->name, fault_name(trial),
                    trial->n, what, qs_test_error.text);
}

/* Errors that a caller cannot be asked to understand. */
static inline void fault_check_error(const struct fault_trial *trial)
{
    bool is_sync = strstr(qs_test_error.text, "sync") != NULL;

    if (!trial->has_fired) {
        fault_tell(trial, "failed without a fault");
    } else if (trial->fault != NULL && trial->fault->is_invisible && !is_sync) {
        fault_tell(trial, "is visible");
    } else if (qs_test_error.status == QS_OK || qs_test_error.text[0] == '\0') {
        fault_tell(trial, "failed without a word");
    } else if (qs_test_error.status == QS_EINTR) {
        fault_tell(trial, "QS_EINTR");
    }
}

/* What three cuts leave is as it must be: wrong_on finds nothing. */
static inline void fault_check_cuts(const struct fault_trial *trial,
                                    const char *(*wrong_on)(qs_env *mem, const void *promise),
                                    const void *promise)
{
    for (int how = QSI_CUT_KEEP_ALL; how <= QSI_CUT_RANDOM; how++) {
        qs_env *mem = qsi_env_sim_cut(trial->sim, (enum qsi_cut_how)how, trial->n);
        const char *wrong = wrong_on(mem, promise);

        if (wrong != NULL) {
            printf("%s, %s %" PRIu64 ", cut %d: %s: %s\n", trial->name, fault_name(trial), trial->n,
                   how, wrong, qs_test_error.text);
        }
        QS_CHECK(wrong == NULL);
        qsi_env_mem_destroy(mem);
    }
}

/* The calls, or the allocations, of one kind; how many there are. */
static inline uint64_t fault_sweep_kind(struct fault_trial *trial,
                                        void (*try_once)(struct fault_trial *trial))
{
    struct crash_report none = {0}, *report = trial->report != NULL ? trial->report : &none;

    trial->has_fired = true;
    for (trial->n = 1; trial->n < FAULT_N_MAX; trial->n += trial->step) {
        uint64_t violations = report->violations, alive = fault_alloc.alive;

        report->seed = trial->n;
        try_once(trial);
        fault_end(trial);
        if (fault_alloc.alive != alive) {
            printf("%s, %s %" PRIu64 " leaks\n", trial->name, fault_name(trial), trial->n);
            fault_leaks += 1;
        }
        if (report->violations > violations && report->violations < report->told_max) {
            fault_tell(trial, "see above");
        }
        if (!trial->has_fired) {
            break;
        }
    }
    QS_CHECK(trial->n > trial->n_least && trial->n < FAULT_N_MAX);
    return trial->n - 1;
}

/* All that may fail of an operation; how often that was tried. */
static inline uint64_t fault_sweep(struct fault_trial *trial,
                                   void (*try_once)(struct fault_trial *trial))
{
    uint64_t allocations, calls = 0, faults;

    trial->fault = NULL;
    faults = allocations = fault_sweep_kind(trial, try_once);
    for (size_t k = 0; k < CRASH_FAULT_COUNT; k++) {
        uint64_t count;

        trial->fault = &crash_faults[k];
        count = fault_sweep_kind(trial, try_once);
        faults += count;
        calls = k == 0 ? count : calls;
    }
    printf("%s: %" PRIu64 " calls, %" PRIu64 " allocations\n", trial->name, calls, allocations);
    fflush(stdout);
    return faults;
}

/* The end of a sweep over operations. */
static inline void fault_conclude(const struct crash_report *report, uint64_t faults)
{
    QS_CHECK(fault_leaks == 0);
    qs_test_alloc_end(&fault_alloc);
    printf("%" PRIu64 " faults, %" PRIu64 " states, %" PRIu64 " violations\n", faults,
           report->states, report->violations);
    QS_CHECK(faults > 0 && report->violations == 0);
}

/* Whether the second argument names a part of the operation's name, or there is none. */
static inline bool fault_wanted(int argc, char **argv, const char *name)
{
    return argc <= 2 || strstr(name, argv[2]) != NULL;
}

#endif
