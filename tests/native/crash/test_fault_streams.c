/* Operations on streams with their n-th environment call failing, in every way, and their n-th
 * allocation, for n = 1, 2, ... until nothing fails any more; power cuts behind each failure.
 *
 * What must hold each time: no crash and no leak; an error means that nothing happened, where the
 * call promises that; a success is true, also after a power cut; an interrupted or short call is
 * none of the caller's business.
 *
 * Arguments: seed, a part of the names of the operations to try. */
#include "crash_log.h"
#include "fault_trial.h"

#define ALL_STREAMS ((1u << LOG_STREAMS) - 1)

struct operation {
    const char *name;
    bool is_undone;                         /* by an error */
    bool opens;                             /* the store is closed before */
    void (*prepare)(struct log_work *work); /* NULL: nothing */
    void (*run)(struct log_work *work);
};

struct trial {
    struct fault_trial base;
    const struct operation *operation;
    struct log_model model;
    struct crash_env env;
    struct log_work work;
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

    fault_begin(&trial->base, qsi_env_sim_from_mem(mem, 2));
    crash_env_init(&trial->env, trial->base.faulty, CRASH_NO_BUG);
    log_model_copy(&trial->model, &disk.model);
    trial->work = (struct log_work){.env = &trial->env,
                                    .model = &trial->model,
                                    .report = trial->base.report,
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
    fault_arm(&trial->base);
    trial->operation->run(&trial->work);
    fault_disarm(&trial->base);
    QS_CHECK(trial->base.has_fired || trial->operation->run != publish_large_batch ||
             trial->work.store->checkpoint.direct_bytes > 0); /* straight into the file */
}

static void check_store(void *context, qs_store *store, qs_channel *channel, struct crash_env *env)
{
    struct trial *trial = context;

    (void)env;
    log_check(&trial->model, trial->base.report, store, channel, NULL);
}

static void check_cut(struct trial *trial, enum qsi_cut_how how, const char *name)
{
    qs_env *mem = qsi_env_sim_cut(trial->base.sim, how, trial->base.n);
    qs_options options = sweep_options();
    const struct crash_looking looking = {
        .check = check_store, .context = trial, .closing_drops = true};

    options.memory_budget = trial->base.n % 2 == 0 ? 64 << 10 : 16 << 20;
    trial->base.report->cut = name;
    crash_open_disk(trial->base.report, mem, &options, &looking);
}

static void finish(struct trial *trial)
{
    struct log_work *work = &trial->work;

    work->is_over = work->is_over || trial->base.has_fired || work->store == NULL;
    trial->env.is_dead = trial->base.n % 2 == 1;
    if (!trial->model.is_under_way) { /* closing may drop what retention says */
        (void)log_model_begin(&trial->model);
    }
    log_close_store(work);
}

static void try_once(struct fault_trial *base)
{
    struct trial *trial = (struct trial *)base;

    begin(trial);
    run(trial);
    if (trial->work.is_over) {
        fault_check_error(base);
    }
    if (trial->work.is_over && trial->operation->is_undone) {
        trial->model.is_under_way = false;
    }
    check_cut(trial, QSI_CUT_DROP_ALL, "all dropped behind the fault");
    check_cut(trial, QSI_CUT_RANDOM, "random behind the fault");
    finish(trial);
    check_cut(trial, QSI_CUT_KEEP_ALL, "reopened");
    check_cut(trial, QSI_CUT_RANDOM, "random after the end");
    log_model_fini(&trial->model);
}

int main(int argc, char **argv)
{
    struct crash_report report = {.told_max = 60};
    uint64_t faults = 0;

    (void)qs_test_seed(argc, argv);
    qs_test_alloc_install(&fault_alloc);
    make_disk();
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
        struct trial trial = {
            .base = {.name = operations[i].name, .step = FAULT_QUICK_STEP, .report = &report},
            .operation = &operations[i]};

        faults +=
            fault_wanted(argc, argv, operations[i].name) ? fault_sweep(&trial.base, try_once) : 0;
    }
    qsi_env_mem_destroy(disk.mem);
    log_model_fini(&disk.model);
    fault_conclude(&report, faults);
    return 0;
}
