/* Operations on streams with their n-th environment call failing, in every way, and their n-th
 * allocation, for n = 1, 2, ... until nothing fails any more; power cuts behind each failure.
 *
 * What must hold each time: no crash and no leak; an error means that nothing happened, where the
 * call promises that; a success is true, also after a power cut; an interrupted or short call is
 * none of the caller's business.
 *
 * Arguments: seed, a part of the names of the operations to try. */
#include "crash_faults.h"
#include "crash_log.h"
#include "crash_run.h"
#include "qs_test_alloc.h"

#define ALL_STREAMS ((1u << LOG_STREAMS) - 1)
#define N_MAX 3000 /* a sweep that does not come to an end is a failure */

/* Each call in turn; with the sanitizer, which takes ten times as long, one in four. */
#ifdef __SANITIZE_ADDRESS__
#define SWEEP_STEP 4
#else
#define SWEEP_STEP 1
#endif

struct operation {
    const char *name;
    bool is_undone;                         /* by an error */
    bool opens;                             /* the store is closed before */
    void (*prepare)(struct log_work *work); /* NULL: nothing */
    void (*run)(struct log_work *work);
};

struct trial {
    const struct operation *operation;
    const struct crash_fault *fault; /* NULL: the n-th allocation fails */
    uint64_t n;
    struct qs_test_alloc *alloc;
    struct crash_report *report;
    struct log_model model;
    qs_env *sim, *faulty;
    struct crash_env env;
    struct log_work work;
    bool has_fired;
};

static struct {
    qs_env *mem;
    struct log_model model;
} disk;

/* ---- operations ---- */

static void publish_small_batch(struct log_work *work)
{
    log_publish_batch(work, LOG_STREAMS + 1, 20, false);
}

static void publish_large_batch(struct log_work *work)
{
    log_publish_batch(work, 2, LOG_LARGE_ROWS, true);
}

static void publish_to_each(struct log_work *work)
{
    for (uint32_t i = 0; i < LOG_STREAMS; i++) {
        log_publish_batch(work, i, 10, false);
    }
}

/* Blocks begin on pages of their own then. */
static void checkpoint_and_publish(struct log_work *work)
{
    publish_to_each(work);
    log_flush(work, ALL_STREAMS, false);
    log_checkpoint(work);
    publish_to_each(work);
}

static void flush(struct log_work *work)
{
    log_flush(work, ALL_STREAMS, false);
}

static void retain(struct log_work *work)
{
    log_retain(work);
    if (!work->is_over) {
        log_sync(work);
    }
}

/* Several segments of the first two streams, which may go then. */
static void fill_segments(struct log_work *work)
{
    log_publish_batch(work, 0, LOG_LARGE_ROWS, true);
    log_publish_batch(work, 0, LOG_LARGE_ROWS, true);
    log_publish_batch(work, 1, LOG_LARGE_ROWS, true);
    log_sync(work);
}

static void fill_and_checkpoint(struct log_work *work)
{
    fill_segments(work);
    log_checkpoint(work);
}

static void drop_and_remove(struct log_work *work)
{
    log_retain(work);
    if (!work->is_over) {
        log_checkpoint(work);
    }
}

static void fill_and_drop(struct log_work *work)
{
    fill_segments(work);
    log_flush(work, ALL_STREAMS, true);
}

static void read_all(struct log_work *work)
{
    for (uint32_t i = 0; i < LOG_STREAMS && !work->is_over; i++) {
        log_read(work, i);
    }
}

static void delete_one(struct log_work *work)
{
    log_delete(work, 1);
}

static void delete_and_checkpoint(struct log_work *work)
{
    log_delete(work, 0);
    if (!work->is_over) {
        log_checkpoint(work);
    }
}

static void declare_one(struct log_work *work)
{
    log_declare(work, 1);
}

static void open_store(struct log_work *work)
{
    log_open_store(work);
}

static void close_store(struct log_work *work)
{
    (void)log_model_begin(work->model);
    log_close_store(work);
}

static const struct operation operations[] = {
    {"publish", false, false, NULL, log_publish},
    {"publish a batch", true, false, NULL, publish_small_batch},
    {"publish a large batch", true, false, NULL, publish_large_batch},
    {"transact", false, false, NULL, log_transact},
    {"commit an offset", false, false, NULL, log_commit_cursor},
    {"consume and ack", false, false, NULL, log_consume},
    {"flush", true, false, publish_to_each, flush},
    {"flush and seal", true, false, fill_segments, flush},
    {"flush behind a checkpoint", true, false, checkpoint_and_publish, flush},
    {"checkpoint", false, false, fill_segments, log_checkpoint},
    {"drop", false, false, fill_and_checkpoint, retain},
    {"drop and remove files", false, false, fill_and_checkpoint, drop_and_remove},
    {"declare", false, false, delete_one, declare_one},
    {"delete", false, false, NULL, delete_one},
    {"delete and remove files", false, false, fill_and_checkpoint, delete_and_checkpoint},
    {"read", true, false, fill_and_drop, read_all},
    {"open", true, true, NULL, open_store},
    {"close", false, false, fill_segments, close_store},
};

static qs_options sweep_options(void)
{
    qs_options options = crash_options();

    options.segment_entries = 64;
    options.embed_below = 1500;
    options.memory_budget = 256 << 10;
    options.checkpoint_bytes = 64 << 20;
    options.journal_file_bytes = 256 << 10;
    return options;
}

/* ---- the disk that they start on ---- */

static void make_disk(void)
{
    struct crash_report report = {.told_max = 10, .cut = "preparing"};
    struct crash_env env;
    struct log_work work = {.env = &env,
                            .model = &disk.model,
                            .report = &report,
                            .random = 3,
                            .options = sweep_options()};

    disk.mem = qsi_env_mem_create(1);
    log_model_init(&disk.model);
    crash_env_init(&env, disk.mem, CRASH_NO_BUG);
    QS_CHECK(log_open_store(&work));
    log_set_up(&work);
    log_publish_batch(&work, 0, LOG_LARGE_ROWS, true);
    log_publish(&work);
    log_flush(&work, ALL_STREAMS, true);
    log_checkpoint(&work);
    log_publish_batch(&work, LOG_STREAMS + 1, 30, false);
    for (int i = 0; i < 5; i++) {
        log_publish(&work);
        log_transact(&work);
        log_commit_cursor(&work);
    }
    log_sync(&work);
    QS_CHECK(!work.is_over && report.violations == 0);
    env.is_dead = work.is_over = true;
    log_close_store(&work);
}

/* ---- one case ---- */

static void begin(struct trial *trial)
{
    qs_env *mem = qsi_env_mem_clone(disk.mem, 2); /* other salts than the disk has already */

    QS_CHECK(mem != NULL);
    trial->sim = qsi_env_sim_from_mem(mem, 2);
    trial->faulty = qsi_env_fault_create(trial->sim);
    QS_CHECK(trial->sim != NULL && trial->faulty != NULL);
    crash_env_init(&trial->env, trial->faulty, CRASH_NO_BUG);
    log_model_copy(&trial->model, &disk.model);
    trial->work = (struct log_work){.env = &trial->env,
                                    .model = &trial->model,
                                    .report = trial->report,
                                    .random = 11,
                                    .options = sweep_options()};
    if (trial->operation->run == publish_large_batch) { /* it is one record */
        trial->work.options.memory_budget = 16 << 20;
        trial->work.options.journal_file_bytes = 512 << 10;
    }
    if (!trial->operation->opens) {
        QS_CHECK(log_open_store(&trial->work));
    }
    log_model_close(&trial->model); /* what the process that ended had transient is gone */
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
    QS_CHECK(trial->has_fired || trial->operation->run != publish_large_batch ||
             trial->work.store->checkpoint.direct_bytes > 0); /* straight into the file */
    qsi_env_fault_arm(trial->faulty, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
    qs_test_alloc_arm(trial->alloc, 0, false);
}

static void check_cut(struct trial *trial, enum qsi_cut_how how, const char *name)
{
    qs_env *mem = qsi_env_sim_cut(trial->sim, how, trial->n);
    qs_options options = sweep_options();
    struct crash_env env;
    qs_channel *channel = NULL;
    qs_store *store = NULL;

    QS_CHECK(mem != NULL);
    options.memory_budget = trial->n % 2 == 0 ? 64 << 10 : 16 << 20;
    trial->report->cut = name;
    trial->report->states++;
    crash_env_init(&env, mem, CRASH_NO_BUG);
    if (qs_store_open(&store, CRASH_PATH, &options, &env.env, QS_ERROR) == QS_OK) {
        QS_CHECK_OK(qs_channel_open(&channel, store, QS_ERROR));
        log_check(&trial->model, trial->report, store, channel, NULL);
        env.is_dead = true;
        qs_channel_close(channel);
        (void)qs_store_close(store, NULL);
    } else {
        crash_violation(trial->report, "open: %s", qs_test_error.text);
    }
    qsi_env_mem_destroy(mem);
}

static void tell(const struct trial *trial, const char *what)
{
    crash_violation(trial->report, "%s, %s %" PRIu64 ": %s: %s", trial->operation->name,
                    trial->fault != NULL ? trial->fault->name : "allocation", trial->n, what,
                    qs_test_error.text);
}

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

static void finish(struct trial *trial)
{
    struct log_work *work = &trial->work;

    work->is_over = work->is_over || trial->has_fired || work->store == NULL;
    trial->env.is_dead = trial->n % 2 == 1;
    if (!trial->model.is_under_way) { /* closing may drop what retention says */
        (void)log_model_begin(&trial->model);
    }
    log_close_store(work);
}

static bool sweep_one(struct trial *trial)
{
    uint64_t violations = trial->report->violations, alive = trial->alloc->alive;

    begin(trial);
    run(trial);
    check_status(trial);
    if (trial->work.is_over && trial->operation->is_undone) {
        trial->model.is_under_way = false;
    }
    check_cut(trial, QSI_CUT_DROP_ALL, "all dropped behind the fault");
    check_cut(trial, QSI_CUT_RANDOM, "random behind the fault");
    finish(trial);
    check_cut(trial, QSI_CUT_KEEP_ALL, "reopened");
    check_cut(trial, QSI_CUT_RANDOM, "random after the end");
    log_model_fini(&trial->model);
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

int main(int argc, char **argv)
{
    struct crash_report report = {.told_max = 60};
    struct qs_test_alloc alloc;
    uint64_t trials = 0;

    (void)qs_test_seed(argc, argv);
    qs_test_alloc_install(&alloc);
    make_disk();
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
        struct trial trial = {.operation = &operations[i], .alloc = &alloc, .report = &report};
        uint64_t allocations, calls = 0;

        if (argc > 2 && strstr(operations[i].name, argv[2]) == NULL) {
            continue;
        }
        allocations = sweep(&trial);
        for (size_t k = 0; k < CRASH_FAULT_COUNT; k++) {
            uint64_t count;

            trial.fault = &crash_faults[k];
            count = sweep(&trial);
            trials += count;
            calls = k == 0 ? count : calls;
        }
        trials += allocations;
        printf("%s: %" PRIu64 " calls, %" PRIu64 " allocations\n", operations[i].name, calls,
               allocations);
        fflush(stdout);
    }
    qsi_env_mem_destroy(disk.mem);
    log_model_fini(&disk.model);
    QS_CHECK(alloc.alive == 0);
    qs_allocator_set(NULL);
    printf("%" PRIu64 " faults, %" PRIu64 " states, %" PRIu64 " violations\n", trials,
           report.states, report.violations);
    QS_CHECK(report.violations == 0);
    return 0;
}
