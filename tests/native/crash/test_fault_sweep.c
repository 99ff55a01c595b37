/* Every public operation with its n-th environment call failing, in every way, and its n-th
 * allocation, for n = 1, 2, ... until nothing fails any more.
 *
 * What must hold each time: no crash and no leak; an error means that nothing happened, where the
 * call promises that; a success is true, also after a power cut right behind it; the store opens
 * again on a disk that is well, with the four sentences intact; an interrupted or short call is
 * none of the caller's business; and a disk that was full is as good as new once there is space.
 *
 * Arguments: seed, a part of the names of the operations to try. */
#include "crash_faults.h"
#include "crash_run.h"
#include "qs_test_alloc.h"
#include "sweep_disks.h"

#define STEP_BYTES (32u << 10) /* of space, from trial to trial */
#define N_MAX 3000             /* a sweep that does not come to an end is a failure */

/* ---- one case ---- */

struct trial {
    const struct operation *operation;
    const struct crash_fault *fault; /* NULL: the n-th allocation fails */
    uint64_t n;
    struct qs_test_alloc *alloc;
    struct crash_report *report;
    struct crash_model model;
    qs_env *sim;
    qs_env *faulty;
    struct crash_env env;
    struct crash_work work;
    bool has_fired;
};

static bool is_paged(const struct trial *trial)
{
    enum start start = trial->operation->start;

    return start == ON_CLOSED_PAGED_STORE || start == ON_CRASHED_PAGED_STORE ||
           start == ON_OPEN_PAGED_STORE;
}

static void begin(struct trial *trial)
{
    enum start start = trial->operation->start;
    const struct disk *disk = &disks[start == ON_OPEN_STORE         ? ON_CLOSED_STORE
                                     : start == ON_OPEN_PAGED_STORE ? ON_CRASHED_PAGED_STORE
                                                                    : start];
    qs_env *mem = qsi_env_mem_clone(disk->mem, 2);

    QS_CHECK(mem != NULL);
    trial->sim = qsi_env_sim_from_mem(mem, 2);
    trial->faulty = qsi_env_fault_create(trial->sim);
    QS_CHECK(trial->sim != NULL && trial->faulty != NULL);
    crash_env_init(&trial->env, trial->faulty, CRASH_NO_BUG);
    crash_model_copy(&trial->model, &disk->model);
    trial->work = (struct crash_work){
        .env = &trial->env, .model = &trial->model, .report = trial->report, .random = 11};
    if (is_paged(trial)) {
        trial->work.options = paged_options();
    }
    if (start == ON_OPEN_STORE || start == ON_OPEN_PAGED_STORE) {
        QS_CHECK(crash_open_store(&trial->work));
        crash_set_up(&trial->work); /* the transient queue */
    }
    if (trial->operation->prepare != NULL) {
        trial->operation->prepare(&trial->work);
    }
    QS_CHECK(!trial->work.is_over);
}

/* The part that faults may hit. */
static void run(struct trial *trial)
{
    trial->work.has_faults = true;
    if (trial->fault != NULL) {
        qsi_env_fault_arm(trial->faulty, QSI_FAULT_ANY, trial->fault->how, trial->n,
                          trial->fault->is_sticky);
    } else {
        qs_test_alloc_arm(trial->alloc, trial->n, false);
    }
    qs_test_error = (qs_error){0};
    trial->operation->run(&trial->work);
    trial->has_fired =
        trial->fault != NULL ? qsi_env_fault_fired(trial->faulty) : trial->alloc->has_failed;
    qsi_env_fault_arm(trial->faulty, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
    qs_test_alloc_arm(trial->alloc, 0, false);
}

/* An error means that nothing happened: the model forgets that it was tried. */
static void undo(struct crash_model *model)
{
    for (int i = 0; i < CRASH_QUEUES; i++) {
        struct crash_queue *queue = &model->queues[i];

        uint32_t kept = 0;

        for (uint32_t k = 0; k < queue->count; k++) {
            struct crash_copy copy = queue->copies[k];

            copy.settle_lsn = copy.settle_lsn == CRASH_UNDER_WAY ? 0 : copy.settle_lsn;
            if (copy.publish_lsn != CRASH_UNDER_WAY) {
                queue->copies[kept++] = copy;
            }
        }
        queue->count = kept;
    }
}

/* What comes after the faults ends the same way each time; the kind of end takes turns. */
static void finish(struct trial *trial)
{
    struct crash_work *work = &trial->work;

    if (work->store == NULL) {
        crash_close_channels(work);
    } else if (trial->n % 2 == 0) {
        work->is_over = work->is_over || trial->has_fired; /* it may close in failure */
        crash_close_store(work);
    } else {
        work->is_over = trial->env.is_dead = true;
        crash_close_store(work);
    }
}

static void check_cut(struct trial *trial, enum qsi_cut_how how, const char *name)
{
    qs_env *mem = qsi_env_sim_cut(trial->sim, how, trial->n);

    QS_CHECK(mem != NULL);
    trial->report->cut = name;
    if (is_paged(trial)) { /* by turns with as little memory, and with enough */
        crash_check_disk_as(&trial->model, trial->report, mem,
                            trial->n % 2 == 0 ? paged_options() : crash_options(),
                            trial->n % 3 == 0 ? trial->n << 8 | 1 : 0);
    } else {
        crash_check_disk(&trial->model, trial->report, mem);
    }
}

static void tell(const struct trial *trial, const char *what)
{
    crash_violation(trial->report, "%s, %s %" PRIu64 ": %s: %s", trial->operation->name,
                    trial->fault != NULL ? trial->fault->name : "allocation", trial->n, what,
                    qs_test_error.text);
}

/* Errors that a caller cannot be asked to understand. */
static void check_status(struct trial *trial)
{
    bool is_sync = strstr(qs_test_error.text, "sync") != NULL;

    if (!trial->work.is_over) {
        return;
    }
    if (!trial->has_fired) {
        tell(trial, "failed without a fault");
    } else if (trial->fault != NULL && trial->fault->is_invisible && !is_sync) {
        tell(trial, "is visible");
    } else if (qs_test_error.status == QS_OK || qs_test_error.text[0] == '\0') {
        tell(trial, "failed without a word");
    } else if (qs_test_error.status == QS_EINTR) {
        tell(trial, "QS_EINTR");
    }
}

static bool sweep_one(struct trial *trial)
{
    uint64_t violations = trial->report->violations;
    uint64_t alive = trial->alloc->alive;

    begin(trial);
    run(trial);
    check_status(trial);
    if (trial->work.is_over && trial->operation->promise == NOTHING_HAPPENED) {
        undo(&trial->model);
    }
    check_cut(trial, QSI_CUT_DROP_ALL, "all dropped behind the fault");
    check_cut(trial, QSI_CUT_RANDOM, "random behind the fault");
    finish(trial);
    check_cut(trial, QSI_CUT_KEEP_ALL, "reopened");
    check_cut(trial, QSI_CUT_RANDOM, "random after the end");
    crash_model_fini(&trial->model);
    qsi_env_fault_destroy(trial->faulty);
    qsi_env_sim_destroy(trial->sim);
    if (trial->alloc->alive != alive) {
        tell(trial, "leaks");
    }
    if (trial->report->violations > violations && trial->report->violations < 40) {
        tell(trial, "see above");
    }
    return trial->has_fired;
}

/* Each call in turn; with the sanitizer, which takes ten times as long, one in four. */
#ifdef __SANITIZE_ADDRESS__
#define SWEEP_STEP 4
#else
#define SWEEP_STEP 1
#endif

static uint64_t sweep(struct trial *trial)
{
    for (trial->n = 1; trial->n < N_MAX; trial->n += SWEEP_STEP) {
        trial->report->seed = trial->n;
        if (!sweep_one(trial)) {
            break;
        }
    }
    QS_CHECK(trial->n < N_MAX);
    return trial->n - 1;
}

/* ---- a full disk ---- */

/* No space for another file is QS_ESTORE_FULL, and nobody has to open the store again for it. */
static void test_store_accepts_again_when_space_returns(struct qs_test_alloc *alloc,
                                                        struct crash_report *report)
{
    static const struct operation operation = {"publish until full", ON_OPEN_STORE,
                                               NOTHING_HAPPENED, NULL, publish_until_files_roll};
    struct trial trial = {.operation = &operation, .alloc = alloc, .report = report};
    uint64_t full_count = 0;

    for (trial.n = 1;; trial.n++) {
        bool was_full;

        begin(&trial);
        trial.work.has_faults = true;
        qsi_env_ram_limit(trial.sim, qsi_env_ram_used(trial.sim) + trial.n * STEP_BYTES);
        publish_until_files_roll(&trial.work);
        was_full = trial.work.is_over;
        qsi_env_ram_limit(trial.sim, 0);
        if (was_full) {
            QS_CHECK(qs_test_error.status == QS_ESTORE_FULL);
            undo(&trial.model);
            full_count++;
            trial.work.is_over = trial.work.has_faults = false;
            publish_until_files_roll(&trial.work);
            QS_CHECK(!trial.work.is_over);
        }
        check_cut(&trial, QSI_CUT_DROP_ALL, "space returned");
        crash_close_store(&trial.work);
        check_cut(&trial, QSI_CUT_DROP_ALL, "space returned, closed");
        crash_model_fini(&trial.model);
        qsi_env_fault_destroy(trial.faulty);
        qsi_env_sim_destroy(trial.sim);
        if (!was_full) {
            break;
        }
    }
    printf("full disk: %" PRIu64 " times, accepts again\n", full_count);
    QS_CHECK(full_count > 0);
}

int main(int argc, char **argv)
{
    struct crash_report report = {.told_max = 60};
    struct qs_test_alloc alloc;
    uint64_t trials = 0;

    (void)qs_test_seed(argc, argv);
    qs_test_alloc_install(&alloc);
    make_disk(&disks[ON_NOTHING], false, false, false);
    make_disk(&disks[ON_CLOSED_STORE], true, true, false);
    make_disk(&disks[ON_CRASHED_STORE], true, false, false);
    make_disk(&disks[ON_CLOSED_PAGED_STORE], true, true, true);
    make_disk(&disks[ON_CRASHED_PAGED_STORE], true, false, true);
    for (size_t i = 0; i < OPERATION_COUNT; i++) {
        if (argc > 2 && strstr(operations[i].name, argv[2]) == NULL) {
            continue;
        }
        struct trial trial = {.operation = &operations[i], .alloc = &alloc, .report = &report};
        uint64_t allocations = sweep(&trial), calls = 0;

        for (size_t k = 0; k < CRASH_FAULT_COUNT; k++) {
            uint64_t count;

            trial.fault = &crash_faults[k];
            count = sweep(&trial);
            trials += count;
            calls =
                crash_faults[k].how == QSI_FAULT_EIO && !crash_faults[k].is_sticky ? count : calls;
        }
        trials += allocations;
        printf("%s: %" PRIu64 " calls, %" PRIu64 " allocations\n", operations[i].name, calls,
               allocations);
    }
    test_store_accepts_again_when_space_returns(&alloc, &report);
    for (int i = 0; i < ON_OPEN_STORE; i++) {
        qsi_env_mem_destroy(disks[i].mem);
        crash_model_fini(&disks[i].model);
    }
    QS_CHECK(alloc.alive == 0);
    qs_allocator_set(NULL);
    printf("%" PRIu64 " faults, %" PRIu64 " states, %" PRIu64 " violations\n", trials,
           report.states, report.violations);
    QS_CHECK(report.violations == 0);
    return 0;
}
